"""Matrices as relations between entities: one relation is PCA or factor analysis, several are CCA, GFA or CMF.

The latent value of a cell is u_i . v_j, u_i a row of the relation's row entity and v_j one of its column entity. A bias
is a coordinate too: opposite to it stands one that is fixed at 1. The methods need three operations over the observed
cells: products of row and column vectors, and weighted sums along rows and along columns. `DenseCells` does them by
BLAS on arrays of the size of the matrix, `ListedCells` by kernels on one number per observed cell.

Source: Klami (2014), section 4.4; Klami, Bouchard, Tripathi (2014) for the layout by entities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import pack, unpack
from tensorcep.core.records import Sized
from tensorcep.kernels.entry_sums import entry_products, line_sums

Over = Callable[[int, Callable[[int, int], None]], None]
GROUPS = ("all", "row", "column")


class DenseCells:
    """The cells of a matrix kept as one, with the observed ones marked; cell arrays are (N or 1, D or 1).

    Attributes
    ----------
    shape : (int, int)
    observed : (N, D) float64 of 0 and 1, or None where all are
    """

    def __init__(self, shape: tuple[int, int], observed: np.ndarray | None = None):
        self.shape = shape
        self.observed = observed
        self.n_observed = int(np.prod(shape)) if observed is None else int(observed.sum())

    def only_observed(self, cells: np.ndarray) -> np.ndarray:
        """The cell array with zeros where nothing is observed."""
        return cells if self.observed is None else cells * self.observed

    def products(self, A: np.ndarray, B: np.ndarray, over: Over) -> np.ndarray:
        """A_i . B_j for every cell."""
        return A @ B.T

    def row_sums(self, weight: np.ndarray, B: np.ndarray, over: Over) -> np.ndarray:
        """Sum over j of weight_ij B_j; one row serves all where the weight has one."""
        weight = np.broadcast_to(weight, (weight.shape[0], self.shape[1]))
        return np.asarray(weight @ B)

    def column_sums(self, weight: np.ndarray, A: np.ndarray, over: Over) -> np.ndarray:
        """Sum over i of weight_ij A_i; one row serves all columns where the weight has one."""
        weight = np.broadcast_to(weight, (self.shape[0], weight.shape[1]))
        return np.asarray(weight.T @ A)

    def spread(self, values: np.ndarray, groups: str) -> np.ndarray:
        """Cell array of one value for all cells, for each row, or for each column."""
        return values[:, None] if groups == "row" else values[None, :]

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """Sums of a cell array over all cells, each row, or each column."""
        cells = np.broadcast_to(cells, self.shape)
        if groups == "all":
            return np.array([cells.sum()])
        return np.asarray(cells.sum(axis=1 if groups == "row" else 0))


class ListedCells:
    """The observed cells of a matrix as a list sorted by row; cell arrays hold one number for each, (n,) or (1,)."""

    observed = None

    def __init__(self, shape: tuple[int, int], rows: np.ndarray, cols: np.ndarray):
        self.shape = shape
        self.rows = np.ascontiguousarray(rows, dtype=np.int64)
        self.cols = np.ascontiguousarray(cols, dtype=np.int64)
        self.n_observed = len(rows)
        self._by_row = np.arange(len(rows))
        self._by_col = np.argsort(self.cols, kind="stable")
        self._row_start = np.searchsorted(self.rows, np.arange(shape[0] + 1))
        self._col_start = np.searchsorted(self.cols[self._by_col], np.arange(shape[1] + 1))

    def only_observed(self, cells: np.ndarray) -> np.ndarray:
        """The cell array: every cell in the list is observed."""
        return cells

    def products(self, A: np.ndarray, B: np.ndarray, over: Over) -> np.ndarray:
        """A_i . B_j for every listed cell."""
        out = np.empty(self.n_observed)
        A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
        over(self.n_observed, lambda a, b: entry_products(a, b, self.rows, self.cols, A, B, out))
        return out

    def row_sums(self, weight: np.ndarray, B: np.ndarray, over: Over) -> np.ndarray:
        """Sum of weight_ij B_j over the observed cells of each row."""
        return self._sums(self._row_start, self._by_row, self.cols, weight, B, over)

    def column_sums(self, weight: np.ndarray, A: np.ndarray, over: Over) -> np.ndarray:
        """Sum of weight_ij A_i over the observed cells of each column."""
        return self._sums(self._col_start, self._by_col, self.rows, weight, A, over)

    def _sums(
        self, start: np.ndarray, order: np.ndarray, other: np.ndarray, weight: np.ndarray, B: np.ndarray, over: Over
    ) -> np.ndarray:
        out = np.empty((len(start) - 1, B.shape[1]))
        weight, B = np.ascontiguousarray(np.broadcast_to(weight, self.n_observed)), np.ascontiguousarray(B)
        over(len(out), lambda a, b: line_sums(a, b, start, order, other, weight, B, out))
        return out

    def spread(self, values: np.ndarray, groups: str) -> np.ndarray:
        """Cell array of one value for all cells, for each row, or for each column."""
        return values if groups == "all" else values[self.rows if groups == "row" else self.cols]

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """Sums of a cell array over all cells, each row, or each column."""
        cells = np.broadcast_to(cells, self.n_observed)
        if groups == "all":
            return np.array([cells.sum()])
        index, size = (self.rows, self.shape[0]) if groups == "row" else (self.cols, self.shape[1])
        return np.bincount(index, weights=cells, minlength=size)


class Relation(NamedTuple):
    """One observed matrix.

    Attributes
    ----------
    row, col : int
        The entities of its rows and columns.
    row_coords, col_coords : (c,) int64
        The coordinates of the two entities whose products it sums.
    cells : DenseCells or ListedCells
    x : cell array
        Observations, 0 where there is none.
    likelihood : str
        "gaussian", "bernoulli", "negbinomial", or "poisson" (softplus rate; only with the Boehning bound).
    augmentation : str
        "direct", "noise" (a latent value with Gaussian noise of its own for every cell), or "boehning".
    groups : str
        Which cells share a noise precision or dispersion: "all", "row" or "column".
    known_noise : (groups,) float64 or None
        Noise precision where it is not inferred.
    known_r : (groups,) float64 or None
        Dispersion where it is not inferred.
    """

    row: int
    col: int
    row_coords: np.ndarray
    col_coords: np.ndarray
    cells: Any
    x: np.ndarray
    likelihood: str
    augmentation: str = "direct"
    groups: str = "all"
    known_noise: np.ndarray | None = None
    known_r: np.ndarray | None = None


class Entity(NamedTuple):
    """The rows of one entity and the prior of their coordinates, independent N(0, 1 / precision).

    Attributes
    ----------
    n_rows : int
    precision : (C,) float64
        Prior precision; the first guess where it is learned.
    learned : (C,) bool
        Whether the precision has a Gamma prior (automatic relevance determination).
    one : int
        The coordinate that is fixed at 1, -1 where there is none.
    """

    n_rows: int
    precision: np.ndarray
    learned: np.ndarray
    one: int = -1

    @property
    def free(self) -> np.ndarray:
        """The coordinates that are inferred."""
        return np.flatnonzero(np.arange(len(self.precision)) != self.one)


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
    i, j = np.tril_indices(mean.shape[1])
    return mean[:, i] * mean[:, j] + moments.cov


def trace_weights(n_coords: int) -> np.ndarray:
    """What turns the dot product of two packed matrices into the trace of their product: 2 off the diagonal."""
    i, j = np.tril_indices(n_coords)
    return np.where(i == j, 1.0, 2.0)


def latent_moments(cells: Any, u: Moments, v: Moments, over: Over) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of u_i . v_j at every cell, for independent rows.

    The variance sums three traces of products of positive semidefinite matrices, m' S m twice and tr(S S): nothing
    cancels.
    """
    f = cells.products(u.mean, v.mean, over)
    if u.diagonal:
        n, m = (len(u.mean), u.mean.shape[1]), (len(v.mean), v.mean.shape[1])
        left = np.hstack([u.mean**2, np.broadcast_to(u.cov, n)])
        right = np.hstack([np.broadcast_to(v.cov, m), second_moments(v)])
        return f, cells.products(left, right, over)
    scale = trace_weights(u.mean.shape[1])
    n, m = (len(u.mean), len(scale)), (len(v.mean), len(scale))
    outer = second_moments(Moments(u.mean, np.zeros((1, 1)), False))
    left = np.hstack([outer * scale, np.broadcast_to(u.cov * scale, n)])
    right = np.hstack([np.broadcast_to(v.cov, m), second_moments(v)])
    return f, cells.products(left, right, over)


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
        found = np.log(moments.cov[:, free]).sum(axis=1)
    else:
        found = np.linalg.slogdet(unpack(moments.cov[:, packed_index(free)], len(free)))[1]
    return float(np.broadcast_to(found, n).sum()) if len(found) == 1 else float(found.sum())
