"""Moments of an entity's rows, and of the latent values of cells that follow from those of two entities."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import pack
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rows import row_log_dets


class Moments(NamedTuple):
    """Mean (n, C) of an entity's rows, and their covariance.

    `cov` holds variances (n or 1, C) if `diagonal`, otherwise packed matrices (n or 1, P); one row serves all.
    """

    mean: Annotated[np.ndarray, Sized("n C")]
    cov: Annotated[np.ndarray, Sized("_ covariances")]
    diagonal: bool

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        C = self.mean.shape[-1]
        return {"C": C, "covariances": C if self.diagonal else C * (C + 1) // 2}

    def select(self, coords: np.ndarray) -> Moments:
        """The moments of some coordinates, in their order."""
        if np.array_equal(coords, np.arange(self.mean.shape[1])):
            return self
        cov = self.cov[:, coords if self.diagonal else packed_index(coords)]
        return Moments(self.mean[:, coords], cov, self.diagonal)


def packed_index(coords: np.ndarray) -> np.ndarray:
    """Where the packed matrix of some coordinates lies in that of all."""
    i, j = np.tril_indices(len(coords))
    high, low = np.maximum(coords[i], coords[j]), np.minimum(coords[i], coords[j])
    return np.asarray(high * (high + 1) // 2 + low)


def variances(moments: Moments) -> np.ndarray:
    """Variances of the coordinates, (n or 1, C)."""
    if moments.diagonal:
        return moments.cov
    k = np.arange(moments.mean.shape[1])
    return moments.cov[:, k * (k + 3) // 2]


def second_moments(moments: Moments) -> np.ndarray:
    """E[u u'] of every row: its diagonal (n, C), or packed (n, P)."""
    mean = moments.mean
    if moments.diagonal:
        return mean**2 + moments.cov
    return products_of(mean) + moments.cov


def products_of(mean: np.ndarray) -> np.ndarray:
    """Packed u u' of every row, (n, P); slices of the rows of triangles, which is faster than their indices."""
    n, C = mean.shape
    out, p = np.empty((n, C * (C + 1) // 2)), 0
    for a in range(C):
        np.multiply(mean[:, : a + 1], mean[:, a, None], out=out[:, p : p + a + 1])
        p += a + 1
    return out


def trace_weights(n_coords: int) -> np.ndarray:
    """What turns the dot product of two packed matrices into the trace of their product: 2 off the diagonal."""
    i, j = np.tril_indices(n_coords)
    return np.where(i == j, 1.0, 2.0)


def latent_moments(cells: Any, u: Moments, v: Moments, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of u_i . v_j at every cell, for independent rows.

    The variance sums three traces of products of positive semidefinite matrices, m' S m twice and tr(S S): nothing
    cancels.
    """
    f = cells.products(u.mean, v.mean, executor)
    if u.diagonal:
        n, m = (len(u.mean), u.mean.shape[1]), (len(v.mean), v.mean.shape[1])
        left = np.hstack([u.mean**2, np.broadcast_to(u.cov, n)])
        right = np.hstack([np.broadcast_to(v.cov, m), second_moments(v)])
        return f, cells.products(left, right, executor)
    scale = trace_weights(u.mean.shape[1])
    n, m = (len(u.mean), len(scale)), (len(v.mean), len(scale))
    left = np.hstack([products_of(u.mean), np.broadcast_to(u.cov, n)])
    right = np.hstack([np.broadcast_to(v.cov * scale, m), second_moments(v) * scale])
    return f, cells.products(left, right, executor)


def as_packed(moments: Moments) -> Moments:
    """The same moments with packed covariances."""
    if not moments.diagonal:
        return moments
    C = moments.mean.shape[1]
    return Moments(moments.mean, pack(moments.cov[:, :, None] * np.eye(C)), False)


def log_det_cov(moments: Moments, free: np.ndarray) -> float:
    """Sum over rows of the log determinant of the covariance of the free coordinates."""
    n = len(moments.mean)
    if moments.diagonal:
        log_det = np.log(moments.cov[:, free]).sum(axis=1)
    else:
        log_det = np.empty(len(moments.cov))
        row_log_dets(0, len(log_det), np.ascontiguousarray(moments.cov[:, packed_index(free)]), log_det)
    return float(np.broadcast_to(log_det, n).sum()) if len(log_det) == 1 else float(log_det.sum())
