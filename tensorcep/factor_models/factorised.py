"""Fully factorised variational inference for relations: q = prod_ik q(u_ik) prod_jk q(v_jk), no matrix to invert.

The means of an entity move together along the gradient divided by the diagonal of the Hessian; variances are exact.

Source: Klami (2014), sections 2.2 and 4.1.2, after Ilin and Raiko (2010). In the gradient of 4.1.2 the paper prints
minus before the sum and plus before the variance term; it is the other way round.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.factor_models.moments import Moments
from tensorcep.factor_models.relations import RelationProblem
from tensorcep.factor_models.settings import FactorisedVB
from tensorcep.factor_models.state import State, opposite, sides
from tensorcep.factor_models.variational import finish, start_state, sweep


def init(problem: RelationProblem, settings: FactorisedVB, executor: Executor) -> State:
    """The state before the first sweep."""
    return start_state(problem, True, executor)


def step(state: State, problem: RelationProblem, settings: FactorisedVB, executor: Executor) -> tuple[State, Sweep]:
    """One step of every entity."""
    return sweep(state, problem, partial(update_entity, settings.step), executor)


def update_entity(length: float | str, state: State, problem: RelationProblem, e: int, executor: Executor) -> Moments:
    """One step of an entity's means, and its variances."""
    entity, old = problem.entities[e], state.moments[e]
    slope, curvature = gradient(state, problem, e, executor)
    variance = 1.0 / curvature
    if entity.one >= 0:
        variance[:, entity.one] = 0.0
    direction = slope * variance
    part = best_lengths(state, problem, e, slope, direction, executor) if isinstance(length, str) else length
    return Moments(old.mean + part * direction, variance, True)


def gradient(state: State, problem: RelationProblem, e: int, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the lower bound in an entity's means (n, C), and minus the diagonal of its Hessian (n or 1, C)."""
    entity, mean = problem.entities[e], state.moments[e].mean
    precision = state.precisions[e].mean
    slope, curvature = -precision * mean, precision[None, :]
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        k, f = side.coords, state.latent[side.number][0]
        noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), executor)
        rest = (sites.weight * side.relation.x if sites.target is None else sites.target) - sites.weight * f
        rest = side.relation.cells.only_observed(rest)
        slope[:, k] += side.sums(rest, other.mean, executor) - noise * mean[:, k]
        own = noise + side.sums(sites.weight, other.mean**2, executor)
        curvature = np.repeat(curvature, max(1, len(own) // len(curvature)), axis=0)
        curvature[:, k] += own
    if entity.one >= 0:
        slope[:, entity.one] = 0.0
    return slope, curvature


def best_lengths(
    state: State, problem: RelationProblem, e: int, slope: np.ndarray, direction: np.ndarray, executor: Executor
) -> np.ndarray:
    """For every row the step along the direction at which the lower bound, given the sites, is highest: (n, 1)."""
    bend = (state.precisions[e].mean * direction**2).sum(axis=1)
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        cells, d = side.relation.cells, direction[:, side.coords]
        along = cells.products(d, other.mean, executor) if side.rows else cells.products(other.mean, d, executor)
        along *= along
        along *= sites.weight
        bend += cells.observed_sums(along, "row" if side.rows else "column")
        noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), executor)
        bend += (noise * d**2).sum(axis=1)
    rise = (slope * direction).sum(axis=1)
    return np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0.0)[:, None]


FACTORISED_ENGINE = Method(
    name=FactorisedVB.name,
    needs=(),
    options=FactorisedVB,
    init=init,
    step=step,
    finish=finish,
    source="Klami (2014), fully factorised approximation",
)
