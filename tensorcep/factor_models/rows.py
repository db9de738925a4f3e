"""Natural parameters of rows, the state of a fit, and products of dense data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.problem import CountTable, Relation, RelationProblem, Sites
from tensorcep.factor_models.side_information import (
    Moments,
    RowLaw,
    latent_moments,
    packed_index,
    products_of,
    second_moments,
    trace_weights,
)
from tensorcep.likelihoods.parameters.base import Gammas

# Natural parameters of an entity's rows given the rest.


def natural_parameters(
    state: State, problem: RelationProblem, e: int, executor: Executor
) -> tuple[np.ndarray, np.ndarray]:
    """Lam (n or 1, P) and eta (n, C) of an entity's rows: the prior plus the sum over its relations."""
    entity = problem.entities[e]
    C = len(entity.precision)
    k = np.arange(C)
    Lam = np.zeros((1, C * (C + 1) // 2))
    Lam[0, k * (k + 3) // 2] = state.precisions[e].mean
    eta = np.zeros((entity.n_rows, C))
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        latent = state.latent[side.number]
        if isinstance(latent, Products) and not side.rows:
            precision = sites.weight.T * latent.row_squares
        else:
            precision = side.sums(sites.weight, second_moments(other), executor)
        if len(precision) > len(Lam):
            Lam = np.repeat(Lam, len(precision), axis=0)
        all_of_them = np.array_equal(side.coords, np.arange(C))
        Lam[:, slice(None) if all_of_them else packed_index(side.coords)] += precision
        if sites.target is None:
            eta[:, side.coords] += side.sums(sites.weight, other.mean, executor, side.relation.x)
        else:
            eta[:, side.coords] += side.sums(sites.target, other.mean, executor)
    return Lam, eta


def given_one(Lam: np.ndarray, eta: np.ndarray, free: np.ndarray, one: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the free coordinates, given that coordinate `one` is 1."""
    if one < 0:
        return Lam, eta
    with_one = np.array([packed_index(np.array([one, k]))[1] for k in free], dtype=np.int64)
    rest = np.ascontiguousarray(eta[:, free] - Lam[:, with_one])
    return np.ascontiguousarray(Lam[:, packed_index(free)]), rest


# The state of a method for relations, entity by entity and relation by relation.

Item = TypeVar("Item")


class State(NamedTuple):
    """Moments and prior precisions of every entity; sites and latent moments (f, variance) of every relation.

    `laws` has an item for each entity where something is known of the rows of one. A sampler has draws without
    covariance in place of moments, and in place of the variance psi, the latent values of cells with explicit noise.
    Where no array holds the latent values, there are `Products` of rows in place of them.
    """

    moments: tuple[Moments, ...]
    precisions: tuple[Gammas, ...]
    sites: tuple[Sites, ...]
    latent: tuple[Any, ...]
    tables: tuple[CountTable | None, ...] = ()
    laws: tuple[RowLaw | None, ...] = ()

    def law(self, e: int) -> RowLaw | None:
        """The prior of the rows of entity e, where something is known of them; None otherwise."""
        return self.laws[e] if self.laws else None


def replaced(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    """The items with another one at an index."""
    return (*items[:index], item, *items[index + 1 :])


class Side(NamedTuple):
    """One relation seen from an entity: `number` is the relation's, `rows` says whether the entity is its rows."""

    number: int
    relation: Relation
    rows: bool

    @property
    def coords(self) -> np.ndarray:
        """The entity's coordinates in the relation."""
        return self.relation.row_coords if self.rows else self.relation.col_coords

    def sums(
        self, weight: np.ndarray, vectors: np.ndarray, executor: Executor, of: np.ndarray | None = None
    ) -> np.ndarray:
        """Weighted sums of the opposite entity's vectors along the entity's rows, or of `of` times them."""
        cells = self.relation.cells
        return np.asarray((cells.row_sums if self.rows else cells.column_sums)(weight, vectors, executor, of))


def sides(problem: RelationProblem, e: int) -> Iterator[Side]:
    """The relations that an entity is in."""
    for index, relation in enumerate(problem.relations):
        if relation.row == e:
            yield Side(index, relation, True)
        if relation.col == e:
            yield Side(index, relation, False)


def opposite(state: State, side: Side) -> Moments:
    """Moments of the opposite entity, in the relation's coordinates."""
    relation = side.relation
    e, coords = (relation.col, relation.col_coords) if side.rows else (relation.row, relation.row_coords)
    return state.moments[e].select(coords)


def first_noise(state: State) -> float:
    """Noise precision of the first group of the first relation that has one; nan if none has."""
    noise = [sites.noise.mean[0] for sites in state.sites if sites.noise is not None]
    return float(noise[0]) if noise else np.nan


# Latent values of a relation's cells, as variational methods have them: arrays, or the rows whose products they are.
#
# Of Gaussian data in a dense matrix, sites and bounds need sums alone: over the observed cells of each column of the
# squares of what is left of the data, and of the traces that the variances are made of. Products of matrices give them
# a block of rows at a time, and no array of the size of the matrix is made. All terms of the traces are positive.

Arrays = tuple[np.ndarray, np.ndarray]


class Products(NamedTuple):
    """Latent values u_i . v_j of a dense matrix."""

    u: Moments
    v: Moments
    squares: np.ndarray  # (groups,): expected squares of what is left of the data, sums over the observed cells of each
    means: np.ndarray  # (D or 1, P): sums over the observed cells of each column of m_i m_i', the means of u_i
    covariances: np.ndarray  # (D or 1, P): the same of their covariances S_i; one row serves all

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
    (mean_u, cov_u), (mean_v, cov_v) = (
        (m.mean.T @ m.mean, np.asarray(m.cov.sum(axis=0) * (len(m.mean) / len(m.cov)))) for m in (u, v)
    )
    scale = trace_weights(len(mean_u))
    low = np.tril_indices(len(mean_u))
    mean_u, mean_v = mean_u[low], mean_v[low]
    return float(((mean_u + cov_u) * (mean_v + cov_v) * scale).sum())


def latent_of(relation: Relation, u: Moments, v: Moments, executor: Executor, before: Latent | None = None) -> Latent:
    """The latent values of a relation whose rows and columns have these moments; `before` were those before them."""
    summed = relation.kind.form.of_squares is not None and relation.groups != "row" and not u.diagonal
    if not (summed and isinstance(relation.cells, DenseCells)):
        return latent_moments(relation.cells, u, v, executor)
    if isinstance(before, Products) and before.u is u:
        means, covariances = before.means, before.covariances
    else:
        cells, one = relation.cells, np.ones((1, 1))
        means = cells.column_sums(one, products_of(u.mean), executor)
        if len(u.cov) == 1:
            covariances = cells.observed_sums(one, "column")[:, None] * u.cov
        else:
            covariances = cells.column_sums(one, u.cov, executor)
    scale = trace_weights(u.mean.shape[1])
    squares = _rest(relation, relation.cells, u.mean, v.mean)
    squares += (means * (v.cov * scale)).sum(axis=1) + (covariances * (second_moments(v) * scale)).sum(axis=1)
    return Products(u, v, squares if relation.groups == "column" else squares.sum(keepdims=True), means, covariances)


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
