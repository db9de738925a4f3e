"""Gaussian posteriors of linear models: rows of the design, sparse or dense, and quadratic forms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.linalg.blas import dtrmm, strmm

from tensorcep.core.checks import check_matrix, fail_value
from tensorcep.core.compile import kernel
from tensorcep.ep.sites import Sites

# Sums over the rows of a matrix in compressed form, whose cost is that of the pairs of numbers in a row.
#
# Places are unsigned: a test of each for being negative takes up to eight times as long as the sums.


@kernel
def add_weighted(start, column, value, weight, total):
    """Add the weighted outer products of sparse rows to `total` (d, d): each pair of columns once, in any order."""
    flat, d = total.ravel(), np.uint64(total.shape[1])
    for i in range(weight.shape[0]):
        first, last = start[i], start[i + 1]
        for at in range(first, last):
            x, line = weight[i] * value[at], np.uint64(column[at]) * d
            for other in range(first, at + 1):
                flat[line + np.uint64(column[other])] += x * value[other]


@kernel
def write_quadratic(start, column, value, cov, result):
    """Write a_i' cov a_i of sparse rows."""
    flat, d = cov.ravel(), np.uint64(cov.shape[1])
    for i in range(result.shape[0]):
        total, first, last = 0.0, start[i], start[i + 1]
        for at in range(first, last):
            line, half = np.uint64(column[at]) * d, 0.0
            for other in range(first, at):
                half += value[other] * flat[line + np.uint64(column[other])]
            total += value[at] * (2.0 * half + value[at] * flat[line + np.uint64(column[at])])
        result[i] = total


def weighted_gram(rows: Any, weight: np.ndarray) -> np.ndarray:
    """A' diag(weight) A (d, d), symmetric to the last bit; weights may be negative, dense rows of single precision."""
    if sparse.issparse(rows):
        total = np.zeros((rows.shape[1], rows.shape[1]))
        add_weighted(rows.indptr, rows.indices, rows.data, weight, total)
        return symmetric_of_half(total)
    if (weight >= 0.0).all():  # one matrix with itself: half the work
        half = np.sqrt(weight).astype(rows.dtype)[:, None] * rows
        return np.asarray(half.T @ half, dtype=np.float64)
    product = (rows.T @ (weight.astype(rows.dtype)[:, None] * rows)).astype(np.float64)
    return np.asarray(0.5 * (product + product.T))


def symmetric_of_half(half: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose numbers off the diagonal are the sums of those at (i, j) and (j, i)."""
    whole = half + half.T
    whole[np.diag_indices_from(whole)] *= 0.5
    return whole


def quadratic_forms(rows: Any, cov: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """a_i' cov a_i (n,), where cov = factor' factor with a lower triangular factor; precisions as `weighted_gram`."""
    if sparse.issparse(rows):
        result = np.empty(rows.shape[0])
        write_quadratic(rows.indptr, rows.indices, rows.data, cov, result)
        return result
    multiply = strmm if rows.dtype == np.float32 else dtrmm
    half = multiply(1.0, factor.astype(rows.dtype), rows.T, lower=1)
    return np.asarray(np.einsum("an,an->n", half, half), dtype=np.float64)


# The linear part of Gaussian EP: f = X w with w = m0 + L u, u ~ N(0, I), and the Gaussian that sites leave of u.

# Sizes of dense rows from which products in single precision, on the way to the fixed point, are worth a copy of them.
LARGE = 1 << 20
# A posterior has lost no more than a thousandth by them while the spread of its precisions is below this.
MOST_SPREAD = 1e4


class DesignRows(NamedTuple):
    """Rows a_i = L'x_i in the coordinates of u."""

    rows: Any  # (n k, r) dense or CSR
    k: int  # rows per term; 1 for terms of one latent value
    vector: bool  # whether latent values are vectors (even of length 1)
    offset: np.ndarray  # (n k,): X m0
    prior_mean: np.ndarray  # (d,)
    root: np.ndarray  # (d,) or (d, r): L, or its diagonal
    # (n, r) float32 or None: the rows in single precision, whose products take half the time (`with_rough`)
    rough: np.ndarray | None = None

    def with_rough(self) -> DesignRows:
        """The design with rows in single precision too, where there are enough of them and they are dense."""
        if self.vector or sparse.issparse(self.rows) or self.rows.size < LARGE:
            return self
        rows = self.rows.astype(np.float32)
        return self._replace(rough=rows) if np.isfinite(rows).all() else self

    def weights(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of w from those of u."""
        if self.root.ndim == 1:
            return self.prior_mean + self.root * mean, self.root[:, None] * cov * self.root
        return self.prior_mean + self.root @ mean, self.root @ cov @ self.root.T

    def latent(self, state: Gaussian) -> tuple[np.ndarray, np.ndarray]:
        """Means (n k,), and variances (n,) (rough under a rough state) or, for vectors, covariances (n, k, k) of f."""
        f = self.offset + self.rows @ state.mean
        if state.rough and self.rough is not None:
            return f, quadratic_forms(self.rough, state.cov, state.factor)
        if not self.vector:
            return f, quadratic_forms(self.rows, state.cov, state.factor)
        blocks = (-1, self.k, state.mean.size)
        return f, np.einsum("nia,nja->nij", (self.rows @ state.cov).reshape(blocks), self.rows.reshape(blocks))


class Gaussian(NamedTuple):
    """Mean and cov = F'F of u, the log integral of prior times sites, lower F; `rough`: made in single precision."""

    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float
    factor: np.ndarray
    rough: bool = False


def design_of(X: Any, n: int, prior_mean: Any, prior_cov: Any) -> DesignRows:
    """Check X and the prior, and bring them into the coordinates of u."""
    k, vector = 1, False
    if X is None:
        X = sparse.identity(n, format="csr", dtype=np.float64)
    elif sparse.issparse(X):
        X = sparse.csr_matrix(X, dtype=np.float64)
        check_matrix("X", X.data[None, :])
    else:
        X = np.asarray(X)
        if X.ndim == 3:
            k, vector, X = X.shape[1], True, X.reshape(-1, X.shape[2])
        X = check_matrix("X", X)
    if X.shape[0] != n * k:
        fail_value(f"X must have one row (or block of rows) for each of the {n} observations; got {X.shape[0] // k}.")
    d = X.shape[1]
    mean = np.array(np.broadcast_to(_vector("prior_mean", prior_mean, d), (d,)))
    root = root_of(prior_cov, d)
    offset = np.asarray(X @ mean)
    if root.ndim == 2:
        rows = np.ascontiguousarray(X @ root)
    else:
        rows = X.multiply(root).tocsr() if sparse.issparse(X) else X * root
    if sparse.issparse(rows):
        rows.sum_duplicates()  # type: ignore[attr-defined]
    return DesignRows(rows, k, vector, offset, mean, root)


def _vector(name: str, value: Any, d: int) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (d,)) or not np.isfinite(array).all():
        fail_value(f"{name} must be one finite number or one for each of the {d} weights; got shape {array.shape}.")
    return array


def root_of(prior_cov: Any, d: int) -> np.ndarray:
    """L with L L' = prior_cov, or its diagonal."""
    cov = np.asarray(prior_cov, dtype=np.float64)
    if cov.ndim < 2:
        variance = np.broadcast_to(_vector("prior_cov", cov, d), (d,))
        if not (variance >= 0.0).all():
            fail_value(f"prior_cov must be >= 0; got {variance.min():g}.")
        return np.sqrt(variance)
    cov = check_matrix("prior_cov", cov)
    if cov.shape != (d, d) or not np.allclose(cov, cov.T, rtol=1e-8, atol=1e-12 * np.abs(cov).max(initial=0.0)):
        fail_value(f"prior_cov must be a symmetric ({d}, {d}) matrix; got shape {cov.shape}.")
    try:
        return np.linalg.cholesky(cov)
    except np.linalg.LinAlgError:
        values, vectors = linalg.eigh(cov)
    floor = d * np.finfo(np.float64).eps * max(values[-1], 0.0)
    if values[0] < -100.0 * floor:
        fail_value(f"prior_cov must be positive semi-definite; got an eigenvalue of {values[0]:g}.")
    kept = values > floor
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


def gaussian_of(design: DesignRows, sites: Sites, rough: bool = False) -> Gaussian | None:
    """Return prior times sites, or None where that is not a Gaussian."""
    # Source: Minka (2008), eqs 40, 41 and 48, with the prior at N(0, I). A `rough` one is of single precision where the
    # design has such rows and its precisions do not lie too far apart.
    rows, offset = design.rows, design.offset
    if design.vector:
        blocks = (-1, design.k, rows.shape[1])
        product = rows.T @ (sites.tau @ rows.reshape(blocks)).reshape(rows.shape)
        precision = 0.5 * (product + product.T)
        tau_offset = (sites.tau @ offset.reshape(-1, design.k, 1)).ravel()
    else:
        rough = rough and design.rough is not None
        precision = weighted_gram(design.rough if rough else rows, sites.tau)
        tau_offset = sites.tau * offset
    precision[np.diag_indices_from(precision)] += 1.0
    try:
        chol = linalg.cholesky(precision, lower=True)
    except (linalg.LinAlgError, ValueError):
        return gaussian_of(design, sites) if rough else None
    factor = linalg.lapack.dtrtri(chol, lower=1)[0]
    cov = symmetric_of_half(linalg.lapack.dlauum(factor, lower=1)[0])  # factor' factor
    if rough and np.diag(precision).max() * np.diag(cov).max() > MOST_SPREAD:
        return gaussian_of(design, sites)
    nu = sites.nu.ravel()
    pull = rows.T @ (nu - tau_offset)
    mean = cov @ pull
    log_evidence = sites.logc.sum() + nu @ offset - 0.5 * (offset @ tau_offset) + 0.5 * (pull @ mean)
    return Gaussian(mean, cov, float(log_evidence - np.log(np.diag(chol)).sum()), factor, rough)
