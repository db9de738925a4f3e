"""What is learned of the likelihood of a problem: the parameter, its prior, and which entries share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import LINES, beside, filled, room_of
from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.executor import Executor
from tensorcep.cp.model.latent import latent_moments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior.belief import Dispersion, GammaNoise
from tensorcep.cp.posterior.components import Components, EntryTheta
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.base import Gamma, Groups, Parameter
from tensorcep.likelihoods.parameters.dispersion import DispersionLaw, DispersionParameter, Pool, first_pool, pooled
from tensorcep.likelihoods.parameters.precision import KnownTheta, NoisePrecision
from tensorcep.likelihoods.parameters.scale_mixture import ScaleMixture
from tensorcep.likelihoods.parameters.thresholds import LevelEntries, Levels, ThresholdLaw, law_of_thresholds

# Entries from which a parameter that all entries share is learned: it is then known to about 1 part in 100.
ENOUGH = 10_000
# The same of those that the entries of one row share: to about 1 part in 30.
ENOUGH_OF_ROW = 1000
# Blocks of entries whose coordinates are copied at a time.
BLOCKS_OF_MOMENTS = 4096


def groups_of(problem: Problem, mode: int | None) -> Groups:
    """One group, or one per row of `mode`."""
    entries = problem.entries
    if mode is None:
        return Groups(None, np.broadcast_to(np.int64(0), entries.y.shape), 1)
    first, of_entry = entries.offsets[mode], room_of(entries.y).empty(entries.y.shape, np.int64)
    filled(of_entry, lambda at: np.where(entries.weight[at] > 0, entries.rows[at, mode] - first, 0))
    return Groups(mode, of_entry, problem.shape[mode])


class Learned(NamedTuple):
    """A parameter that is learned, shape and rate of its prior, who shares one, and what prior rows have in common.

    Where they have one (`pool`), it is the present prior.
    """

    parameter: NoisePrecision | DispersionParameter
    prior: tuple[float, float]
    groups: Groups
    pool: Pool | None = None

    def first_law(self) -> Gamma:
        """Its law to begin with; without a start of its own the prior."""
        (a, b), start, size = self.prior, self.parameter.start, self.groups.size
        return Gamma(np.full(size, a), np.full(size, b if start is None else a / start))

    def _dispersion(self, law: Gamma, counts: tuple[np.ndarray, ...] = ()) -> tuple[DispersionParameter, DispersionLaw]:
        parameter: Any = self.parameter
        return replace(parameter, prior=self.prior, groups=self.groups, counts=counts), DispersionLaw(law, self.pool)

    def law_of_marginals(
        self,
        law: Gamma,
        problem: Problem,
        index: np.ndarray,
        m: np.ndarray,
        v: np.ndarray,
        used: np.ndarray | float = 1.0,
    ) -> Gamma:
        """The law after `law`, given the mean and variance of f of the entries `index`, flat places in the lanes.

        `used` says how far each of them counts.
        """
        dispersion, state = self._dispersion(law)
        y, n = problem.entries.y.ravel()[index], len(problem.entries.permutation)
        return dispersion.law_of_marginals(state, (y, m, v), index, n, used)

    def law_of_counts(self, law: Gamma, rate: np.ndarray, counts: tuple[np.ndarray, ...]) -> Gamma:
        """The law after rounds of updates in turn with the expected tables; `rate` (m,) are sums over the entries."""
        dispersion, state = self._dispersion(law, counts)
        return dispersion.law_of_counts(state, rate)

    def pooled(self, law: Gamma) -> tuple[Learned, Gamma]:
        """The same with the best common prior of the rows given their laws, and these laws under it."""
        if self.pool is None:
            return self, law
        pool, law = pooled(self.pool, law)
        return self._replace(prior=pool.law, pool=pool), law

    def bound(self, law: Gamma, counts: tuple[np.ndarray, ...]) -> float:
        """What parameters of counts add to a lower bound."""
        dispersion, state = self._dispersion(law, counts)
        return dispersion.bound(state)

    def result(self, law: Gamma) -> dict[str, Any]:
        """Its part of a `Posterior`."""
        if self.parameter.is_precision:
            return {"noise": GammaNoise(float(law.a[0]), float(law.b[0]))}
        common = {} if self.pool is None else {"mean": self.pool.found.tau, "shape": self.pool.found.alpha}
        return {"noise": None, "dispersion": Dispersion(self.groups.mode, law.a, law.b, **common)}


def distinct_counts(learned: Learned | None, problem: Problem) -> tuple[np.ndarray, ...]:
    """The distinct pairs of a parameter and a count, and how many entries have each; none for a precision."""
    if learned is None or learned.parameter.is_precision:
        return ()
    entries, groups = problem.entries, learned.groups
    pairs: np.ndarray = np.zeros((2, 0))
    times: np.ndarray = np.zeros(0)
    for first in range(0, len(entries.y), LINES):
        at = slice(first, first + LINES)
        used = entries.weight[at] > 0
        some = np.stack([groups.of_entry[at][used], entries.y[at][used]])
        every, count = np.concatenate([pairs, some], axis=1), np.append(times, np.ones(some.shape[1]))
        pairs, place = np.unique(every, axis=1, return_inverse=True)
        times = np.bincount(place.ravel(), count, minlength=pairs.shape[1])
    return pairs[0].astype(np.int64), pairs[1], times


def own_law(theta: float) -> Gamma:
    """The law of a parameter that is not learned."""
    return Gamma(np.array([theta]), np.ones(1))


def sampled_entries(problem: Problem, groups: Groups) -> np.ndarray:
    """Flat places in the lanes of entries that say enough of each parameter, evenly spaced among those of it."""
    n = len(problem.entries.permutation)
    if n <= (ENOUGH if groups.mode is None else ENOUGH_OF_ROW):
        return np.arange(n)
    if groups.mode is None:
        return np.linspace(0, n - 1, ENOUGH).astype(np.int64)
    row = groups.of_entry.ravel()[:n]
    order, count = np.argsort(row, kind="stable"), np.bincount(row, minlength=groups.size)
    place = np.arange(n) - (np.cumsum(count) - count)[row[order]]
    part = np.minimum(1.0, ENOUGH_OF_ROW / np.maximum(count, 1))[row[order]]
    return np.sort(order[np.floor((place + 1) * part) > np.floor(place * part)])


def law_of_rows(
    learned: Learned, law: Gamma, problem: Problem, mean: np.ndarray, cov: np.ndarray, step: float = 1.0
) -> tuple[Learned, Gamma]:
    """The law a share `step` of the way from `law`, given the packed moments of all columns of the rows.

    And what rows have in common.
    """
    index, entries = sampled_entries(problem, learned.groups), problem.entries
    rows = np.ascontiguousarray(entries.rows[index // LANES, :, index % LANES], dtype=np.int64)
    m, v = np.empty(len(index)), np.empty(len(index))
    latent_moments(rows, mean, cov, m, v)
    m = m + entries.known.ravel()[index] if len(entries.known) else m
    new = learned.law_of_marginals(law, problem, index, m, v)
    return learned.pooled(Gamma(new.a, new.a / (law.mean ** (1.0 - step) * new.mean**step)))


def learned_levels(likelihood: Likelihood) -> Levels | None:
    """The levels whose thresholds are learned; None where there are none."""
    levels = likelihood.levels
    return levels if levels is not None and levels.learned else None


def told_of_theta(likelihood: Likelihood) -> dict[str, Any]:
    """What the theta of draws under this likelihood holds, as fields of `tensorcep.cp.posterior.belief.Draws`.

    Chains and the fits beside them must say the same of it: files are read by what it says.
    """
    levels = learned_levels(likelihood)
    return {"n_thresholds": 0 if levels is None else levels.n - 2, "has_share": likelihood.zeros is not None}


def first_thresholds(problem: Problem) -> ThresholdLaw | None:
    """The law of the thresholds to begin with; None where none are learned."""
    levels = learned_levels(problem.likelihood)
    return None if levels is None else levels.first_law()


def cuts_of(problem: Problem, law: ThresholdLaw | None) -> np.ndarray:
    """Where ordered levels are cut, (L + 1,); nothing where the likelihood has none."""
    levels = problem.likelihood.levels
    if levels is None:
        return np.zeros(0)
    return levels.cuts(levels.start if law is None else law.thresholds)


def in_places_of(problem: Problem, theta: np.ndarray, thresholds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What kernels take as y and theta of every entry, (n_blocks, LANES) each: of ordered levels the cuts around it."""
    y, levels = problem.entries.y, problem.likelihood.levels
    if levels is None:
        return y, problem.entries.theta if len(problem.entries.theta) else theta
    cuts = levels.start if thresholds is None else thresholds
    both = beside(y), beside(y)
    for first in range(0, len(y), LINES):
        at = slice(first, first + LINES)
        both[0][at], both[1][at] = levels.between(y[at], cuts)
    return both


def thresholds_of_rows(
    problem: Problem, law: ThresholdLaw, mean: np.ndarray, cov: np.ndarray, step: float, executor: Executor
) -> ThresholdLaw:
    """The law a share `step` of the way from `law`, given the packed moments of all columns of the rows."""
    entries, levels = problem.entries, learned_levels(problem.likelihood)
    if levels is None:
        return law
    m, v = beside(entries.y), beside(entries.y)
    for b in range(0, len(entries.y), BLOCKS_OF_MOMENTS):
        part = slice(b, b + BLOCKS_OF_MOMENTS)
        rows = np.ascontiguousarray(entries.rows[part].transpose(0, 2, 1).reshape(-1, len(problem.shape)), np.int64)
        latent_moments(rows, mean, cov, m[part].ravel(), v[part].ravel())
    known = LevelEntries(entries.y, entries.weight, m, np.sqrt(v, out=v))
    new = law_of_thresholds(levels, law.thresholds, known, executor)
    return new._replace(mean=law.mean + step * (new.mean - law.mean))


def likelihood_after(likelihood: Likelihood, known: Dispersion | None, weight: float) -> Likelihood:
    """The likelihood with what is known of its dispersion, a share `weight` of it, as the prior and the start."""
    parameter = likelihood.parameter
    if known is None or not isinstance(parameter, DispersionParameter):
        return likelihood
    (a, b), (p, q) = (float(known.a[0]), float(known.b[0])), parameter.prior
    earlier = weight * (b - q)
    changed = replace(parameter, prior=(p + weight * (a - p), q + earlier), start=a / b, earlier=max(earlier, 0.0))
    return likelihood.with_parameter(changed)


def learned_parameter(problem: Problem, options: Any) -> Learned | None:
    """What is learned; None for likelihoods without a parameter, or one whose prior the problem does not give.

    The prior of a precision is the problem's. That of any other parameter, and the mode whose rows have one each, are
    settings of the method, called by its name.
    """
    parameter = problem.likelihood.parameter
    if parameter is None:
        return None
    if parameter.is_precision:
        prior = problem.noise_prior
        return None if prior is None else Learned(parameter, (prior.a, prior.b), groups_of(problem, None))
    mode = getattr(options, f"{parameter.name}_mode", None)
    given: tuple[float, float] = getattr(options, f"{parameter.name}_prior", parameter.prior)
    if problem.uneven is not None:
        if mode is not None:
            name = parameter.name
            fail_value(f"{name}= names a mode, and so do the settings; got {name}_mode={mode}; leave that out.")
        groups, start = groups_of(problem, problem.uneven.mode), parameter.start
        pool = first_pool(given, given[0] / given[1] if start is None else start)
        return Learned(parameter, pool.law, groups, pool)
    if mode is not None:
        check_int(f"{parameter.name}_mode", mode, 0, len(problem.shape) - 1)
        if problem.likelihood.zeros is not None:
            fail_value(
                f"zero_inflation=True takes one dispersion of all counts; got dispersion_mode={mode}; leave one out."
            )
    return Learned(parameter, given, groups_of(problem, mode))


def parameters_of(problem: Problem, options: Any, drawn: bool = False) -> tuple[Parameter[Any], ...]:
    """What is learned of the likelihood, with priors and groups; a known theta in the place of one that is not learned.

    `drawn` says whether targets of entries are, as samplers do. Where noise differs the precision is a scale mixture.
    """
    learned, uneven = learned_parameter(problem, options), problem.uneven
    found: list[Parameter[Any]] = []
    for own in problem.likelihood.parameters:
        if not isinstance(own, NoisePrecision | DispersionParameter):
            found.append(own)
        elif isinstance(own, DispersionParameter) and learned is not None:
            pool, prior = learned.pool, learned.prior if learned.pool is None else learned.pool.of
            found.append(replace(own, prior=prior, groups=learned.groups, has_pool=pool is not None))
        elif learned is not None and uneven is not None:
            by_sums = uneven.mode is not None and not drawn and not problem.is_fixed(uneven.mode)
            keeps = drawn and uneven.mode is None
            found.append(ScaleMixture(learned.prior, groups_of(problem, uneven.mode), by_sums, keeps))
        elif learned is not None:
            found.append(replace(own, prior=learned.prior))
    # of thresholds alone kernels take no theta
    if learned is None and problem.likelihood.levels is None:
        found.insert(0, KnownTheta(problem.likelihood.default_theta))
    return tuple(found)


def kernel_arguments(
    parameters: Sequence[Parameter[Any]], states: Sequence[Any], problem: Problem, place: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What kernels take as y and theta of all entries, (n_blocks, LANES) each, or of those at some places (n,)."""
    y, theta = problem.entries.y, problem.entries.theta if len(problem.entries.theta) else None
    if place is not None:
        y, theta = y.ravel()[place], theta if theta is None else theta.ravel()[place]
    for parameter, state in zip(parameters, states, strict=True):
        y, theta = parameter.theta(state, y, theta, place)
    return y, theta  # type: ignore[return-value]


def theta_of(belief: Components, likelihood: Likelihood) -> EntryTheta:
    """The likelihood's parameter: what was learned of it, or the one that is given."""
    return EntryTheta(np.array([[likelihood.default_theta]])) if belief.theta is None else belief.theta


def with_parameter(likelihood: Likelihood, theta: EntryTheta | None) -> tuple[Likelihood, EntryTheta]:
    """The likelihood and its parameter of one number per entry, whatever was learned of it in each component."""
    if theta is None:
        return likelihood, EntryTheta(np.array([[likelihood.default_theta]]))
    if likelihood.by_component is None:
        return likelihood, theta
    return likelihood.by_component(theta.values), EntryTheta(np.arange(len(theta.values), dtype=float)[:, None])
