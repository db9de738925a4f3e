"""What is learned of the likelihood of a problem: the parameter, its prior, and which entries share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorcep.core.arrays import empty_near, fill_by_parts, room_of
from tensorcep.core.checks import check_int, fail_value
from tensorcep.cp.model.latent import latent_moments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import Components, Dispersion, EntryTheta, GammaNoise, Thresholds, UnevenNoise
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import Beta
from tensorcep.likelihoods.parameters.base import DrawStage, Gamma, Groups, KnownTheta, Parameter
from tensorcep.likelihoods.parameters.scale_mixture import ScaleMixture

# What is learned of a likelihood, and a law, or a draw, of each; two numbers for each of some entries.
Parameters = Sequence[Parameter[Any]]
Laws = Sequence[Any]
Pair = tuple[np.ndarray, np.ndarray]
# Blocks of entries whose coordinates are copied at a time.
BLOCKS_OF_MOMENTS = 4096


def groups_of(problem: Problem, mode: int | None) -> Groups:
    """One group, or one per row of `mode`."""
    entries = problem.entries
    if mode is None:
        return Groups(None, np.broadcast_to(np.int64(0), entries.y.shape), 1)
    first, of_entry = entries.offsets[mode], room_of(entries.y).empty(entries.y.shape, np.int64)
    fill_by_parts(of_entry, lambda at: np.where(entries.weight[at] > 0, entries.rows[at, mode] - first, 0))
    return Groups(mode, of_entry, problem.shape[mode])


def told_of_theta(likelihood: Likelihood) -> dict[str, Any]:
    """What the theta of draws under this likelihood holds, as fields of `Draws`."""
    # chains and fits beside them must say the same of it: files are read by what it says
    levels = likelihood.levels
    return {"n_thresholds": 0 if levels is None else levels.n - 2, "has_share": likelihood.zeros is not None}


def likelihood_after(likelihood: Likelihood, known: Dispersion | None, weight: float) -> Likelihood:
    """The likelihood with what is known of its parameters, a share `weight` of it, as their priors and starts."""
    if known is None:
        return likelihood
    law = Gamma(known.a, known.b)
    return replace(likelihood, parameters=tuple(one.after(law, weight) for one in likelihood.parameters))


def parameters_of(problem: Problem, options: Any, drawn: bool = False) -> tuple[Parameter[Any], ...]:
    """What is learned of the likelihood, with priors and groups; a known theta where one is not learned."""
    # the prior of a precision is the problem's; where noise differs it is a scale mixture; the prior of any other
    # parameter, and the mode whose rows have one each, are settings of the method, called by its name; targets are
    # `drawn` by samplers
    bound = (_of_problem(one, problem, options, drawn) for one in problem.likelihood.parameters)
    found = [one for one in bound if one is not None]
    if all(one.stage == DrawStage.PRESENCE for one in found):  # of thresholds alone kernels take no theta
        found.insert(0, KnownTheta(problem.likelihood.default_theta))
    return tuple(found)


def _of_problem(one: Any, problem: Problem, options: Any, drawn: bool) -> Parameter[Any] | None:
    """A parameter with its prior and groups; None for a precision whose prior the problem does not give."""
    noise, uneven = problem.noise_prior, problem.uneven
    if one.is_precision:
        if noise is None or uneven is None:
            return None if noise is None else replace(one, prior=(noise.a, noise.b))
        by_sums = uneven.mode is not None and not drawn and not problem.is_fixed(uneven.mode)
        keeps = drawn and uneven.mode is None
        return ScaleMixture((noise.a, noise.b), groups_of(problem, uneven.mode), by_sums, keeps)
    if not one.of_rows:
        return one
    mode, prior = getattr(options, f"{one.name}_mode", None), getattr(options, f"{one.name}_prior", one.prior)
    if uneven is not None and mode is not None:
        fail_value(f"{one.name}= names a mode, and so do the settings; got {one.name}_mode={mode}; leave that out.")
    if mode is not None:
        check_int(f"{one.name}_mode", mode, 0, len(problem.shape) - 1)
        if problem.likelihood.zeros is not None:
            fail_value(
                f"zero_inflation=True takes one dispersion of all counts; got dispersion_mode={mode}; leave one out."
            )
    groups = groups_of(problem, mode if uneven is None else uneven.mode)
    return replace(one, prior=prior, groups=groups, has_pool=uneven is not None)


def shared_arguments(parameters: Parameters, states: Laws) -> tuple[float, np.ndarray]:
    """The theta that all entries share, and the cuts between ordered levels (L + 1,), of which others have none."""
    theta, cuts = np.nan, np.zeros(0)
    for parameter, state in zip(parameters, states, strict=True):
        theta, cuts = parameter.shared(state, theta, cuts)
    return theta, cuts


def kernel_arguments(parameters: Parameters, states: Laws, problem: Problem, place: np.ndarray | None = None) -> Pair:
    """What kernels take as y and theta of all entries, (n_blocks, LANES) each, or of those at some places (n,)."""
    y, theta = problem.entries.y, problem.entries.theta if len(problem.entries.theta) else None
    if place is not None:
        y, theta = y.ravel()[place], theta if theta is None else theta.ravel()[place]
    for parameter, state in zip(parameters, states, strict=True):
        y, theta = parameter.theta(state, y, theta, place)
    return y, theta  # type: ignore[return-value]


def mix_densities(parameters: Parameters, states: Laws, y: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    """The log densities of all kinds of entries of values y, from those of kernels."""
    for parameter, state in zip(parameters, states, strict=True):
        log_density = parameter.mixed(state, y, log_density)
    return log_density


def marginals_of_rows(problem: Problem, mean: np.ndarray, cov: np.ndarray) -> Callable[[np.ndarray | None], Pair]:
    """`EntryStats.marginals` of Gaussian rows, given by packed moments of all columns."""
    entries, K = problem.entries, len(problem.shape)

    def marginals(place: np.ndarray | None) -> Pair:
        if place is not None:
            rows = np.ascontiguousarray(entries.rows[place // LANES, :, place % LANES], dtype=np.int64)
            m, v = np.empty(len(place)), np.empty(len(place))
            latent_moments(rows, mean, cov, m, v)
            return m + entries.known.ravel()[place] if len(entries.known) else m, v
        m, v = empty_near(entries.y), empty_near(entries.y)
        for b in range(0, len(entries.y), BLOCKS_OF_MOMENTS):
            part = slice(b, b + BLOCKS_OF_MOMENTS)
            rows = np.ascontiguousarray(entries.rows[part].transpose(0, 2, 1).reshape(-1, K), np.int64)
            latent_moments(rows, mean, cov, m[part].ravel(), v[part].ravel())
        return m, v

    return marginals


# What a `Posterior` holds in fields that are called so.
RECORDS: dict[str, Callable[..., Any]] = {"noise": GammaNoise, "uneven": UnevenNoise, "dispersion": Dispersion}
RECORDS |= {"thresholds": Thresholds, "zeros": Beta}


def results(parameters: Parameters, laws: Laws) -> dict[str, Any]:
    """What a `Posterior` has of these laws, by the names of its fields."""
    fields: dict[str, Any] = {"noise": None}
    for parameter, law in zip(parameters, laws, strict=True):
        fields |= {name: RECORDS[name](*parts) for name, parts in parameter.results(law).items()}
    return fields


def theta_of(belief: Components, likelihood: Likelihood) -> EntryTheta:
    """The likelihood's parameter: what was learned of it, or the one that is given."""
    return EntryTheta(np.array([[likelihood.default_theta]])) if belief.theta is None else belief.theta


def with_parameter(likelihood: Likelihood, theta: EntryTheta | None) -> tuple[Likelihood, EntryTheta]:
    """The likelihood and its parameter of one number per entry, whatever was learned of it in each component."""
    if theta is None:
        return likelihood, EntryTheta(np.array([[likelihood.default_theta]]))
    if all(one.is_theta for one in likelihood.parameters):
        return likelihood, theta
    return likelihood.by_component(theta.values), EntryTheta(np.arange(len(theta.values), dtype=float)[:, None])
