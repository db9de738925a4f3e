"""What the variational methods for relations share: the problem, the state, one sweep, and the lower bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.gammas import Gammas, gammas, known
from tensorcep.core.loop import Sweep
from tensorcep.core.records import Sized
from tensorcep.factor_models.model import Entity, Moments, Over, Relation, latent_moments, log_det_cov, variances
from tensorcep.factor_models.sites import CountTable, Priors, Sites, bound, count_table, refresh


class RelationProblem(NamedTuple):
    """What a method infers from.

    Attributes
    ----------
    entities : tuple of Entity
    relations : tuple of Relation
    start : tuple of (n_rows, C) float64
        Means of every entity's rows to start from.
    frozen : tuple of Moments or None
        Moments of the entities that are known; None for those inferred.
    priors : Priors
    precision_prior : (float, float)
        Shape and rate of the Gamma prior of the learned precisions.
    seed : int
    rank : int
        The first coordinates of every entity that are components, not biases; a sampler's draws are turned in them.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    start: tuple[np.ndarray, ...]
    frozen: tuple[Moments | None, ...]
    priors: Priors = Priors()
    precision_prior: tuple[float, float] = (1e-3, 1e-3)
    seed: int = 0
    rank: int = 0


class State(NamedTuple):
    """Moments and prior precisions of every entity; sites and latent moments (f, variance) of every relation."""

    moments: list[Moments]
    precisions: list[Gammas]
    sites: list[Sites]
    latent: list[tuple[np.ndarray, np.ndarray]]
    tables: list[CountTable | None]


class RelationDraws(NamedTuple):
    """Draws of every entity's rows (S, n, C), and of every relation's noise precision and dispersion (S, groups)."""

    rows: tuple[Annotated[np.ndarray, Sized("S _ _")], ...]
    noise: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]
    r: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]


class RelationPosterior(NamedTuple):
    """Moments and prior precisions of every entity, and the last sites of every relation."""

    moments: tuple[Moments, ...]
    precisions: tuple[Gammas, ...]
    sites: tuple[Sites, ...]
    draws: RelationDraws | None = None


class Side(NamedTuple):
    """One relation seen from an entity: `other` is the opposite entity, `rows` whether the entity is its rows."""

    number: int
    relation: Relation
    rows: bool

    @property
    def coords(self) -> np.ndarray:
        """The entity's coordinates in the relation."""
        return self.relation.row_coords if self.rows else self.relation.col_coords

    def sums(self, weight: np.ndarray, vectors: np.ndarray, over: Over) -> np.ndarray:
        """Weighted sums of the opposite entity's vectors along the entity's rows."""
        cells = self.relation.cells
        return np.asarray((cells.row_sums if self.rows else cells.column_sums)(weight, vectors, over))


Update = Callable[[State, RelationProblem, int, Over], Moments]


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


def start_state(problem: RelationProblem, diagonal: bool, executor: Executor) -> State:
    """Means as given, unit covariance of what is inferred, sites that fit."""
    moments = []
    for entity, mean, frozen in zip(problem.entities, problem.start, problem.frozen, strict=True):
        C = len(entity.precision)
        variance = np.where(np.arange(C) == entity.one, 0.0, np.minimum(1.0, 1.0 / entity.precision))
        cov = variance if diagonal else (variance[:, None] * np.eye(C))[np.tril_indices(C)]
        moments.append(Moments(mean.copy(), cov[None, :], diagonal) if frozen is None else frozen)
    precisions = [known(entity.precision) for entity in problem.entities]
    tables = [count_table(relation) for relation in problem.relations]
    n = len(problem.relations)
    none: list[Any] = [None] * n
    state = State(moments, precisions, none, none.copy(), tables)
    for index in range(n):
        state = _refreshed(state, problem, index, executor)
    return state


def _refreshed(state: State, problem: RelationProblem, index: int, executor: Executor) -> State:
    """The state with one relation's latent moments and sites computed anew."""
    relation = problem.relations[index]
    u = state.moments[relation.row].select(relation.row_coords)
    v = state.moments[relation.col].select(relation.col_coords)
    latent = latent_moments(relation.cells, u, v, executor.over)
    sites = refresh(relation, state.tables[index], problem.priors, state.sites[index], *latent)
    return state._replace(
        latent=[*state.latent[:index], latent, *state.latent[index + 1 :]],
        sites=[*state.sites[:index], sites, *state.sites[index + 1 :]],
    )


def _precisions(problem: RelationProblem, e: int, moments: Moments) -> Gammas:
    """q(alpha) where the precisions are learned (Klami section 2.2)."""
    entity, (a0, b0) = problem.entities[e], problem.precision_prior
    if not entity.learned.any():
        return known(entity.precision)
    n = entity.n_rows
    b = b0 + 0.5 * ((moments.mean**2).sum(axis=0) + n / len(moments.cov) * variances(moments).sum(axis=0))
    found = gammas(np.full(len(b), a0 + 0.5 * n), b, a0, b0)
    fixed = known(entity.precision)
    divergence = gammas(np.full(entity.learned.sum(), a0 + 0.5 * n), b[entity.learned], a0, b0).divergence
    return Gammas(
        np.where(entity.learned, found.mean, fixed.mean),
        np.where(entity.learned, found.log_mean, fixed.log_mean),
        divergence,
    )


def sweep(state: State, problem: RelationProblem, update: Update, executor: Executor) -> tuple[State, Sweep]:
    """Update every entity, its precisions, and the relations that it is in; each given the newest of the others."""
    old = state.latent
    for e, frozen in enumerate(problem.frozen):
        if frozen is not None:
            continue
        moments = update(state, problem, e, executor.over)
        precisions = _precisions(problem, e, moments)
        state = state._replace(
            moments=[*state.moments[:e], moments, *state.moments[e + 1 :]],
            precisions=[*state.precisions[:e], precisions, *state.precisions[e + 1 :]],
        )
        for side in sides(problem, e):
            state = _refreshed(state, problem, side.number, executor)
    noise = [s.noise.mean[0] for s in state.sites if s.noise is not None]
    return state, Sweep(
        change=max(_change(new, before) for new, before in zip(state.latent, old, strict=True)),
        noise_precision=float(noise[0]) if noise else np.nan,
        skipped=0,
        shrunk=0,
        train_score=np.nan,
        lower_bound=lower_bound(state, problem),
    )


def _change(new: tuple[np.ndarray, np.ndarray], old: tuple[np.ndarray, np.ndarray]) -> float:
    """Root mean square change of the latent means, relative to the root mean square of the latent values."""
    size = np.mean(new[0] ** 2) + np.mean(new[1])
    return float(np.sqrt(np.mean((new[0] - old[0]) ** 2) / size)) if size > 0.0 else 0.0


def lower_bound(state: State, problem: RelationProblem) -> float:
    """Lower bound of the log evidence at the state's parameters."""
    total = 0.0
    for index, relation in enumerate(problem.relations):
        total += bound(relation, state.tables[index], state.sites[index], *state.latent[index])
    for e, frozen in enumerate(problem.frozen):
        if frozen is None:
            total -= entity_divergence(problem.entities[e], state.moments[e], state.precisions[e])
    return total


def entity_divergence(entity: Entity, moments: Moments, precisions: Gammas) -> float:
    """Divergence of q(rows) q(precisions) from their prior."""
    free, n = entity.free, entity.n_rows
    squares = (moments.mean**2).sum(axis=0) + n / len(moments.cov) * variances(moments).sum(axis=0)
    expected = float((precisions.mean * squares - n * precisions.log_mean)[free].sum())
    return 0.5 * (expected - n * len(free) - log_det_cov(moments, free)) + precisions.divergence


def finish(state: State, problem: RelationProblem) -> RelationPosterior:
    """What the estimators keep."""
    return RelationPosterior(tuple(state.moments), tuple(state.precisions), tuple(state.sites))
