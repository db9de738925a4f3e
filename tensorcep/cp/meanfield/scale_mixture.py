"""Noise that differs, in mean field: q of the factors of the noise precision, and the best precision and shape of them.

The factors of rows or entries are integrated out exactly given the precision tau and the shape of their prior, which
are points: the maximum of the bound given the rows, found after every sweep that is not annealed. The rows see the
factors by their means, as weights of the entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.meanfield.row_update import MeanFieldState, UnevenFactors, all_second_moments
from tensorcep.cp.meanfield.sites import ExpectedSites, latent_squares
from tensorcep.cp.model.parameters import groups_of
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior.belief import GammaNoise, UnevenNoise
from tensorcep.cp.posterior.components import EVEN
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.likelihoods.parameters.scale_mixture import (
    ALPHAS,
    Evenness,
    GroupSums,
    fitted,
    law_of_factors,
    log_evidence,
    log_prior,
)


class Residuals(NamedTuple):
    """Targets without their weights, and the expected squares of what the latent values leave of them, in the lanes."""

    target: np.ndarray
    spread: np.ndarray
    squares: np.ndarray


def even_factors(problem: Problem) -> UnevenFactors | None:
    """All factors at 1, to begin with; None where noise is the same everywhere."""
    if problem.uneven is None or problem.noise_prior is None:  # or it is a dispersion that differs
        return None
    mode = problem.uneven.mode
    size = 0 if mode is None else problem.shape[mode]
    law = Gamma(np.full(size, EVEN), np.full(size, EVEN))
    start = Evenness(1.0, len(ALPHAS) - 1, 1.0)
    return UnevenFactors(groups_of(problem, mode), start, law, np.ones(problem.entries.y.shape), -np.inf)


def weigh(sites: ExpectedSites, factors: UnevenFactors) -> None:
    """Multiply what entries say by the means of their factors, in place."""
    for part in (sites.weight, sites.target, sites.spread):
        if len(part):
            part *= factors.mean


def with_factors(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The best factors, precision and shape at the present rows."""
    factors, learned, sites = state.parameters.uneven, state.parameters.learned, state.own.sites
    power, second = problem.weights, latent_squares(problem, all_second_moments(state, executor), executor)
    rest = _residuals(state, problem, second)
    groups = _groups(factors, rest.squares, power, problem)  # type: ignore[arg-type]
    tau = state.precision()
    found = fitted(groups, learned.prior, tau, factors.found.place)  # type: ignore[union-attr]
    a, b = law_of_factors(groups, found.tau, found.alpha)
    mean = np.zeros(power.shape)
    if problem.uneven.mode is None:  # type: ignore[union-attr]
        mean[power > 0.0] = a / b
    else:
        mean[:] = (a / b)[factors.groups.of_entry] * (power > 0.0)  # type: ignore[union-attr]
    law = Gamma(a, b) if problem.uneven.mode is not None else factors.law  # type: ignore[union-attr]
    sites.weight[:] = power * mean
    sites.target[:] = sites.weight * rest.target
    if len(sites.spread):
        sites.spread[:] = sites.weight * rest.spread
    evidence = log_evidence(groups, found.tau, found.alpha) + log_prior(found.tau, learned.prior)  # type: ignore[union-attr]
    return state.put(square=float(np.einsum("bl,bl->", sites.weight, second))).learn(
        uneven=factors._replace(found=found, law=law, mean=mean, evidence=evidence),  # type: ignore[union-attr]
        law=Gamma(np.array([found.curvature]), np.array([found.curvature / found.tau])),
    )


def _residuals(state: MeanFieldState, problem: Problem, second: np.ndarray) -> Residuals:
    """What the rows leave of the targets; `second` is E[f^2]."""
    sites, f = state.own.sites, state.f
    target, spread = problem.entries.y, np.zeros((1, 1))
    if state.setup.auxiliary:
        used = sites.weight > 0.0
        target, spread = (np.divide(part, sites.weight, where=used, out=np.zeros(f.shape)) for part in sites[3:5])
    squares = (target - f) ** 2 + spread + np.maximum(second - f * f, 0.0)
    return Residuals(target, spread, squares)


def _groups(factors: UnevenFactors, squares: np.ndarray, power: np.ndarray, problem: Problem) -> GroupSums:
    """The entries of every factor."""
    if problem.uneven.mode is None:  # type: ignore[union-attr]
        used = power > 0.0
        return GroupSums(np.array(1.0), squares[used], power[used])
    groups = factors.groups
    return GroupSums(groups.totals(lambda at: power[at]), groups.totals(lambda at: power[at] * squares[at]))


def uneven_result(state: MeanFieldState, problem: Problem) -> dict[str, GammaNoise | UnevenNoise]:
    """Its part of a `Posterior`."""
    uneven: Any = state.parameters.uneven
    found, law, noise = uneven.found, uneven.law, GammaNoise(*(float(part[0]) for part in state.parameters.law))
    return {"noise": noise, "uneven": UnevenNoise(problem.uneven.mode, found.alpha, law.a, law.b)}  # type: ignore[union-attr]
