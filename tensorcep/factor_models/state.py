"""The state of a method for relations, entity by entity and relation by relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.gammas import Gammas
from tensorcep.factor_models.known_rows import RowLaw
from tensorcep.factor_models.moments import Moments
from tensorcep.factor_models.relations import CountTable, Relation, RelationProblem, Sites

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

    def target_sums(self, sites: Sites, vectors: np.ndarray, executor: Executor) -> np.ndarray:
        """Sums of the opposite entity's vectors times the targets of the sites."""
        if sites.target is None:
            return self.sums(sites.weight, vectors, executor, self.relation.x)
        return self.sums(sites.target, vectors, executor)


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
