"""Latent values of a relation's cells, as variational methods have them: arrays, or the rows whose products they are.

Of Gaussian data in a dense matrix, sites and bounds need sums alone: over the observed cells of each column of the
squares of what is left of the data, and of the traces that the variances are made of. Products of matrices give them a
block of rows at a time, and no array of the size of the matrix is made. All terms of the traces are positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.moments import Moments, latent_moments, products_of, second_moments, trace_weights
from tensorcep.factor_models.relations import Relation

Arrays = tuple[np.ndarray, np.ndarray]


class Products(NamedTuple):
    """Latent values u_i . v_j of a dense matrix.

    Attributes
    ----------
    u, v : Moments
    squares : (groups,) float64
        Expected squares of what is left of the data, sums over the observed cells of each group.
    means, covariances : (D or 1, P) float64
        Sums over the observed cells of each column of m_i m_i' and of S_i, the moments of u_i; one row serves all.
    """

    u: Moments
    v: Moments
    squares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def row_squares(self) -> np.ndarray:
        """Sums over the observed cells of each column of E[u_i u_i'], packed."""
        return self.means + self.covariances

    def change(self, old: Products) -> float:
        """Root mean square change of the means, relative to the root mean square of the latent values."""
        # u v' - u0 v0' = (u - u0) v' + u0 (v - v0)', so that what is small is not a difference of what is large
        left = np.hstack([self.u.mean - old.u.mean, old.u.mean])
        right = np.hstack([self.v.mean, self.v.mean - old.v.mean])
        moved = float(np.vdot(left.T @ left, right.T @ right))
        size = _energy(self.u, self.v)
        return float(np.sqrt(max(moved, 0.0) / size)) if size > 0.0 else 0.0


Latent = Arrays | Products


def _energy(u: Moments, v: Moments) -> float:
    """Sum over all cells of E[f^2]."""
    (mean_u, cov_u), (mean_v, cov_v) = ((m.mean.T @ m.mean, _whole_cov(m)) for m in (u, v))
    scale = trace_weights(len(mean_u))
    low = np.tril_indices(len(mean_u))
    mean_u, mean_v = mean_u[low], mean_v[low]
    return float(((mean_u + cov_u) * (mean_v + cov_v) * scale).sum())


def _whole_cov(moments: Moments) -> np.ndarray:
    """The sum of the covariances of all rows, packed."""
    return np.asarray(moments.cov.sum(axis=0) * (len(moments.mean) / len(moments.cov)))


def latent_of(relation: Relation, u: Moments, v: Moments, executor: Executor, before: Latent | None = None) -> Latent:
    """The latent values of a relation whose rows and columns have these moments; `before` were those before them."""
    summed = relation.kind.form.of_squares is not None and relation.groups != "row" and not u.diagonal
    if not (summed and isinstance(relation.cells, DenseCells)):
        return latent_moments(relation.cells, u, v, executor)
    if isinstance(before, Products) and before.u is u:
        means, covariances = before.means, before.covariances
    else:
        means, covariances = _column_sums(relation.cells, u, executor)
    scale = trace_weights(u.mean.shape[1])
    squares = _rest(relation, relation.cells, u.mean, v.mean)
    squares += (means * (v.cov * scale)).sum(axis=1) + (covariances * (second_moments(v) * scale)).sum(axis=1)
    return Products(u, v, squares if relation.groups == "column" else squares.sum(keepdims=True), means, covariances)


def _column_sums(cells: DenseCells, u: Moments, executor: Executor) -> Arrays:
    """Sums over the observed cells of each column of m m' and of S, packed."""
    one = np.ones((1, 1))
    means = cells.column_sums(one, products_of(u.mean), executor)
    if len(u.cov) == 1:
        return means, cells.observed_sums(one, "column")[:, None] * u.cov
    return means, cells.column_sums(one, u.cov, executor)


def _rest(relation: Relation, cells: DenseCells, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Sums over the observed cells of each column of (x - u_i . v_j)^2."""
    total = np.zeros(cells.shape[1])
    for rows in cells.blocks():
        rest = u[rows] @ v.T
        np.subtract(relation.x[rows], rest, out=rest)
        if cells.observed is not None:
            rest *= cells.observed[rows]
        total += np.einsum("ij,ij->j", rest, rest)
    return total


def arrays_of(relation: Relation, latent: Latent, executor: Executor) -> Arrays:
    """Mean and variance of the latent value of every cell."""
    if isinstance(latent, Products):
        return latent_moments(relation.cells, latent.u, latent.v, executor)
    return latent
