"""Fully factorised variational inference for relations: q = prod_ik q(u_ik) prod_jk q(v_jk), no matrix to invert.

The means of an entity move together along the gradient divided by the diagonal of the Hessian; variances are exact.

Source: Klami (2014), sections 2.2 and 4.1.2, after Ilin and Raiko (2010). In the gradient of 4.1.2 the paper prints
minus before the sum and plus before the variance term; it is the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorcep.core.checks import word_or_range
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.factor_models.model import Moments, Over
from tensorcep.factor_models.updates import RelationProblem, State, finish, opposite, sides, start_state, sweep


@dataclass(frozen=True)
class Options:
    """Settings of the method.

    Attributes
    ----------
    step : float or "best"
        Part of the Newton-like step to take, the same for all (the paper: 0.3), or for every row the length that
        raises the lower bound most, which never lowers it and costs one more product per entity.
    """

    step: float | str = "best"

    def __post_init__(self) -> None:
        word_or_range("step", self.step, ("best",), 0.0, 1.0, include_low=False)


def gradient(state: State, problem: RelationProblem, e: int, over: Over) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the lower bound in an entity's means (n, C), and minus the diagonal of its Hessian (n or 1, C)."""
    entity, mean = problem.entities[e], state.moments[e].mean
    precision = state.precisions[e].mean
    slope, curvature = -precision * mean, precision[None, :]
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        k, f = side.coords, state.latent[side.number][0]
        noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), over)
        slope[:, k] += side.sums(sites.target - sites.weight * f, other.mean, over) - noise * mean[:, k]
        found = noise + side.sums(sites.weight, other.mean**2, over)
        curvature = np.repeat(curvature, max(1, len(found) // len(curvature)), axis=0)
        curvature[:, k] += found
    slope[:, entity.one] *= 0.0 if entity.one >= 0 else 1.0
    return slope, curvature


def best_lengths(
    state: State, problem: RelationProblem, e: int, slope: np.ndarray, direction: np.ndarray, over: Over
) -> np.ndarray:
    """For every row the step along the direction at which the lower bound, given the sites, is highest: (n, 1)."""
    bend = (state.precisions[e].mean * direction**2).sum(axis=1)
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        cells, d = side.relation.cells, direction[:, side.coords]
        along = cells.products(d, other.mean, over) if side.rows else cells.products(other.mean, d, over)
        along *= along
        along *= sites.weight
        bend += cells.group_sums(along, "row" if side.rows else "column")
        noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), over)
        bend += (noise * d**2).sum(axis=1)
    rise = (slope * direction).sum(axis=1)
    return np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0.0)[:, None]


def update_entity(length: float | str, state: State, problem: RelationProblem, e: int, over: Over) -> Moments:
    """One step of an entity's means, and its variances."""
    entity, old = problem.entities[e], state.moments[e]
    slope, curvature = gradient(state, problem, e, over)
    variance = 1.0 / curvature
    if entity.one >= 0:
        variance[:, entity.one] = 0.0
    direction = slope * variance
    part = best_lengths(state, problem, e, slope, direction, over) if isinstance(length, str) else length
    return Moments(old.mean + part * direction, variance, True)


def init(problem: RelationProblem, options: Options, executor: Executor) -> State:
    """The state before the first sweep."""
    return start_state(problem, True, executor)


def step(state: State, problem: RelationProblem, options: Options, executor: Executor) -> tuple[State, Sweep]:
    """One step of every entity."""

    def update(state: State, problem: RelationProblem, e: int, over: Over) -> Moments:
        return update_entity(options.step, state, problem, e, over)

    return sweep(state, problem, update, executor)


PCA_FACTORIZED = Method(
    name="vb-factorized",
    needs=(),
    options=Options,
    init=init,
    step=step,
    finish=finish,
    source="Klami (2014), fully factorised approximation",
)
