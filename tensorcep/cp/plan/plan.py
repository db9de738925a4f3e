"""From a spec and entries to the plan of a fit: every choice by rule and every refusal, before anything is run.

A `Draft` is a fit decided by rule; what entries left out decide makes a `Plan` of it (`tensorcep.cp.fit.select`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import room_of, weighted_mean
from tensorcep.core.checks import check_choice, check_random_state, fail_value, word_or_range
from tensorcep.core.loop import AnyMethod, Run
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs import side_information
from tensorcep.cp.methods import get_method
from tensorcep.cp.model.columns import CLAMPED, free_columns
from tensorcep.cp.model.entries import Entries, in_lanes, pack_entries
from tensorcep.cp.model.memmap import StoredColumns, pack_stored, pieces
from tensorcep.cp.model.problem import Problem, Uneven
from tensorcep.cp.model.subsets import plain_values, telling, with_extents
from tensorcep.cp.plan.auto import check_storable, choose, with_numbers
from tensorcep.cp.plan.memory import check_memory, fits, room_for_draws, within
from tensorcep.cp.plan.spec import (
    INITS,
    SCALES,
    FitSpec,
    RunOptions,
    check_revisit,
    checked_options,
    is_auto,
    is_random,
)
from tensorcep.cp.settings import Size, size_of
from tensorcep.cp.targets.base import Chosen
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.base import RowPrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.fixed import FixedPrior, Prior, natural_lines

# Annealed sweeps of a mean-field fit that starts where another has ended: more of them lose what that has found.
REFIT_ANNEAL = 2
# Components beside those that a quick fit uses.
SPARE_COMPONENTS = 3


class Engine(NamedTuple):
    """A method, and its settings with numbers where the user's say "auto"."""

    method: AnyMethod
    settings: Settings

    def with_settings(self, **values: Any) -> Engine:
        """The same with other settings."""
        return self._replace(settings=copy(self.settings).set_params(**values))


class QuickFit(NamedTuple):
    """A mean-field fit from the spectra of the data that goes before another: of all columns, or of some."""

    name: str  # of its columns
    engine: Engine
    problem: Problem
    columns: np.ndarray  # (Q,) int64, those of the plan that are the problem's


@dataclass(frozen=True)
class Policy:
    """How a plan is run: from which starts, after which quick fits, and what decides between them."""

    starts: tuple[np.ndarray | None, ...]  # row means (n_rows, R), of one member after the other; None is the prior's
    members: int = 1
    spectral: bool = False  # whether the first start is to come from the spectra of the data
    one_at_a_time: bool = False  # whether no state waits while another start is tried, since states are large
    quick_fits: tuple[QuickFit, ...] = ()  # fits that go first, by policies that have them

    def run(self, plan: Plan) -> Run:
        """Run a plan that has this policy."""
        raise NotImplementedError


class Plan(NamedTuple):
    """One fit, or the mixture of several; the problem starts at the first of the policy's starts."""

    problem: Problem
    engine: Engine
    policy: Policy
    options: RunOptions
    # what the result will know beside the run
    prior: Prior  # the rows', as it was given or made
    labels: tuple[Any, ...]
    decided: Mapping[str, Any]  # by its names in files: method_, rank_, ...

    def with_problem(self, **fields: Any) -> Plan:
        """The same with another prior, start, ... of the problem."""
        return self._replace(problem=self.problem._replace(**fields))

    def with_options(self, **values: Any) -> Plan:
        """The same with other options."""
        return self._replace(options=self.options._replace(**values))

    def with_policy(self, **fields: Any) -> Plan:
        """The same with other starts, members or quick fits."""
        return self._replace(policy=replace(self.policy, **fields))

    def from_rows(self, rows: np.ndarray) -> Plan:
        """The plan of one run from these row means (n_rows, R), without quick fits."""
        return self.with_problem(start=rows).with_policy(starts=(rows,), members=1, spectral=False, quick_fits=())

    def started_at(self, start: np.ndarray | None) -> Plan:
        """The plan whose first start is this one."""
        return self.with_problem(start=start).with_policy(starts=(start, *self.policy.starts[1:]))

    def of_one_member(self) -> Plan:
        """The plan of the first member of a mixture."""
        return self.with_policy(members=1, starts=self.policy.starts[: len(self.policy.starts) // self.policy.members])

    def unseen(self) -> Plan:
        """The same without callbacks and progress."""
        return self.with_options(callbacks=(), verbose=False)


class Data(NamedTuple):
    """What a fit is to explain, and what is known of its rows."""

    entries: Entries
    values: np.ndarray  # in the order of the entries
    shape: tuple[int, ...]
    likelihood: Likelihood
    designs: side_information.Designs  # features of rows
    clocks: side_information.Clocks  # and their axes
    uneven: Uneven | None = None
    weight: np.ndarray | None = None  # (N,), how much each value counts; None where all count once


def checked_prior(prior: Prior, shape: tuple[int, ...], rank: int) -> Prior:
    """Return a Prior whose means and precisions fit the shape, are finite, and positive definite."""
    if not len(prior.mean) == len(prior.precision) == len(shape):
        fail_value(
            f"prior must hold one mean and one precision for each of {len(shape)} modes; got {len(prior.mean)} and "
            f"{len(prior.precision)}."
        )
    for k, (n, mean, precision) in enumerate(zip(shape, prior.mean, prior.precision, strict=True)):
        mean, precision = np.asarray(mean, dtype=np.float64), np.asarray(precision, dtype=np.float64)
        if mean.shape not in ((), (rank,), (n, rank)):
            fail_value(f"prior.mean of mode {k} must have shape (), ({rank},) or ({n}, {rank}); got {mean.shape}.")
        if precision.shape not in ((), (rank,), (rank, rank), (n, rank, rank)):
            allowed = f"(), ({rank},), ({rank}, {rank}) or ({n}, {rank}, {rank})"
            fail_value(f"prior.precision of mode {k} must have shape {allowed}; got {precision.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            fail_value(f"prior of mode {k} must be finite; got nan or infinity.")
        least = precision.min() if precision.ndim < 2 else np.linalg.eigvalsh(precision).min()
        if least <= 0.0:
            fail_value(f"prior.precision of mode {k} must be positive definite; its least eigenvalue is {least:g}.")
    return prior


def checked_init(init: Any, shape: tuple[int, ...], rank: int) -> Any:
    """A word, or the given row means (n_rows, R)."""
    if isinstance(init, str):
        return check_choice("init", init, INITS)
    factors = [np.asarray(factor, dtype=np.float64) for factor in init] if isinstance(init, (list, tuple)) else []
    if [factor.shape for factor in factors] != [(n, rank) for n in shape]:
        got = f"arrays of shapes {[factor.shape for factor in factors]}" if factors else repr(init)
        fail_value(
            f"init must be 'auto', 'random', 'prior', or a list of one array (n_k, {rank}) per mode of the shape "
            f"{shape}; got {got}."
        )
    if not all(np.isfinite(factor).all() for factor in factors):
        fail_value("init must be finite; got nan or infinity.")
    return np.concatenate(factors)


# Products of two numbers in the sums over the entries of one mode: some milliseconds, longer than threads take.
WORTH_THREADS = 4e6


class Draft(NamedTuple):
    """A fit that is decided but for what only fits to some of the entries can tell (`tensorcep.cp.fit.select`)."""

    spec: FitSpec
    chosen: Chosen
    data: Data  # as it is until noise or a power is chosen
    given: tuple[tuple[Any, ...], np.ndarray | None]  # coordinates, values and shape, and weights, as they were given
    labels: tuple[Any, ...]
    engine: Engine
    options: RunOptions
    facts: dict[str, Any]  # what is decided of the values and known of rows, by its names in files
    local: side_information.Local | None  # of rows that deviate
    n_told: int  # entries that tell
    size: Size
    limit: float | None  # the bytes that the fit may take
    stored: bool  # whether entries lie on scratch
    n_starts: int  # of all members together
    spectral: bool  # whether starts come from spectra
    has_quick_fits: bool  # whether these go first
    streaming: bool  # whether these are the first entries of a stream

    def fits(self, chosen: Chosen) -> bool:
        """Whether there is memory for a fit in these columns."""
        n, shape = len(self.data.values), self.data.shape
        return fits(self.engine.settings, within(size_of(n, shape, chosen.parts), self.limit, self.stored))


def resolve(
    spec: FitSpec,
    entries: tuple[np.ndarray, np.ndarray, tuple[int, ...], tuple[Any, ...]],
    source: Any,  # what the user passed, which may know more than the entries
    streaming: bool = False,
    prior: str = "fixed",  # what prior="auto" stands for in a stream
    decided: tuple[Likelihood, dict[str, Any]] | None = None,  # by an earlier fit, with the facts that tell of it
    limit: float | None = None,  # the bytes that the fit may take
    extent: np.ndarray | None = None,  # (N,), exposures of mean 1, or numbers of trials
    power: np.ndarray | None = None,  # (N,), how much each entry counts
) -> Draft:
    """Decide a fit by rule, and refuse what is not allowed, before anything is run."""
    coords, values, shape, labels = entries
    if spec.revisit:
        check_revisit(spec)
    stored, told_y = isinstance(coords, StoredColumns), values[telling(power)]
    chosen = choose(spec, len(told_y), shape, streaming, prior, limit, stored, spec.target.is_wild(told_y))
    likelihood, own = decided or spec.target.decide(values, chosen, coords, extent, power)
    method = get_method(chosen.method, likelihood, chosen.learns_prior, side_information.knows_rows(spec.prior))
    columns = coords.columns if isinstance(coords, StoredColumns) else list(coords.T)
    shape, labels, designs, clocks = side_information.described(spec.prior, shape, labels, columns)
    local = side_information.local_of(spec.prior, labels, clocks)
    side_information.check_known(designs, clocks, local is not None, chosen.settings, likelihood)
    uneven, told = spec.target.decide_noise(labels, chosen, streaming, spec.prior)
    own = own | told | spec.target.of_source(source)
    options, size = checked_options(spec), size_of(len(values), shape, chosen.parts)
    if local is not None:
        if stored:
            fail_value("scratch= is for fits without a Series that has local=; leave one of them out.")
        size = size._replace(shape=(*size.shape, side_information.check_pairs(local, coords, labels)), R=size.R + 1)
    size = within(size, limit, stored)
    most, learned = room_for_draws(chosen.settings, size), chosen.prior_name == "learned"
    settings = with_numbers(chosen.settings, likelihood.name, learned, chosen.max_iter, most)
    few = not side_information.are_many(designs) and not side_information.are_large(clocks)
    spectral = is_auto(spec.init) and not chosen.has_positive_rows and chosen.prior_name != "given"
    has_quick_fits = spectral and chosen.learns_prior and few
    alone = has_quick_fits and chosen.members == 1 and settings.get_params().get("messages") == "full"
    check_memory(copy(settings).set_params(n_starts=1) if alone else settings, size, chosen.max_iter)
    if stored:
        check_storable(chosen.settings, uneven, [likelihood])
    given = coords, values, shape
    packed, ordered, weight = packed_entries(spec, given, likelihood, extent, power)
    several = method.trial_sweeps(settings) > 0 and is_random(spec.init)
    n_starts = chosen.members * (settings.get_params().get("n_starts", 1) if several else 1)
    return Draft(
        spec=spec,
        chosen=chosen,
        data=Data(packed, ordered, shape, likelihood, designs, clocks, uneven, weight),
        given=(given, power),
        labels=labels,
        engine=Engine(method, settings),
        options=options._replace(n_threads=options.n_threads if size.n_entries * size.Q**2 >= WORTH_THREADS else 1),
        facts={"_features": designs, "_series": clocks, **own},
        local=local,
        n_told=len(told_y),
        size=size,
        limit=limit,
        stored=stored,
        n_starts=n_starts,
        spectral=spectral,
        has_quick_fits=has_quick_fits,
        streaming=streaming,
    )


def packed_entries(
    spec: FitSpec, entries: tuple[Any, ...], likelihood: Likelihood, extent: Any, weight: np.ndarray | None
) -> tuple[Entries, np.ndarray, np.ndarray | None]:
    """The entries in their order, their values and weights: sums over them do not depend on the order of the input."""
    coords, values, shape = entries
    if isinstance(coords, StoredColumns):
        checked = room_of(values).empty(len(values))
        for at in pieces(len(values)):
            checked[at] = spec.target.checked(values[at], likelihood)
        packed = pack_stored(coords, checked, shape)
        return packed, packed.y.ravel()[: len(values)], None
    values = spec.target.checked(values, likelihood)
    packed = with_extents(pack_entries(coords, values, shape), likelihood, extent)
    order = packed.permutation
    plain = plain_values(values, likelihood, extent, weight)[order]
    return packed, plain, None if weight is None else weight[order]


def problem_of(
    spec: FitSpec, data: Data, chosen: Chosen, n_starts: int, seed: Any = None
) -> tuple[Problem, Prior, tuple[np.ndarray | None, ...]]:
    """The problem in the columns that are chosen, its rows' prior as it was given or made, and starts (n_rows, R)."""
    # all is checked before the first random number is drawn, so that a refused fit leaves a Generator as it was
    y, shape, likelihood, weight = data.values, data.shape, data.likelihood, data.weight
    kind, free = chosen.prior, free_columns(chosen.parts, len(shape))
    scale = word_or_range("prior_scale", spec.prior_scale, ("auto",), *SCALES)
    centre = word_or_range("prior_mean", spec.prior_mean, ("uniform",), -np.inf)
    rank, with_components_alone = free.shape[1], bool(free.all())
    given = checked_init(spec.init, shape, rank)
    values, intercept = spec.target.latent_guess(y, likelihood, weight), 0.0
    if not with_components_alone:
        intercept, centred = spec.target.intercept(y, likelihood, weight), room_of(values).empty(len(values))
        np.subtract(values, weighted_mean(values, weight), out=centred)
        values = centred
    fixed = with_components_alone and kind == "fixed"
    if isinstance(kind, Prior):
        if not with_components_alone:
            fail_value("prior must be 'fixed', 'learned' or 'ard' with interactions; a Prior serves interactions='cp'.")
        if spec.prior_scale != "auto" or centre != "uniform":
            fail_value("prior_scale and prior_mean are for priors that are not given; leave them out beside a Prior.")
        prior, mean, sd = checked_prior(kind, shape, rank), np.zeros(free.shape), np.ones(rank)
    else:
        # expected means (K, R) of the columns, and standard deviations (R,) of their free elements: every part (main
        # effects, pairs, CP) is to explain as much as every other, a sum of products as large as the data
        active, centre_of_products = free.sum(axis=0), 0.0 if centre == "uniform" else centre
        parts, counts = np.unique(active, return_counts=True)
        orders = zip(parts.tolist(), counts.tolist(), strict=True)
        auto = {j: spec.target.auto_scale(values, j, n * len(parts), weight) for j, n in orders if scale == "auto"}
        mean = np.where(free & (active > 1), centre_of_products, np.where(free, 0.0, 1.0))
        if active.min() == 1:
            first = int(np.argmin(active))
            mean[free[:, first], first] = intercept  # of the first main effect
        sd = np.array([auto.get(j, scale) for j in active.tolist()], dtype=float)
        precision = list(np.where(free, sd**-2, CLAMPED))
        if with_components_alone:
            one = float(sd[0])  # the powers of an array may differ in the last bit
            precision = [1.0 / one**2 if fixed else one**-2] * len(shape)
        prior = Prior(list(mean), precision)
    drawn = fixed and centre == "uniform"  # the paper's prior: one draw per row, kept
    starts_at_prior = isinstance(given, str) and given == "prior"
    if starts_at_prior and not (drawn or (with_components_alone and any(np.any(mean) for mean in prior.mean))):
        where = "at prior means of zero" if with_components_alone else "interactions at zero"
        fail_value(f'init="prior" starts {where}, where every message is zero; use init="random".')
    rng = check_random_state(spec.random_state if seed is None else seed)
    if drawn:
        prior = prior._replace(mean=[sd * rng.random((n, rank)) for n in shape])

    def first_rows() -> np.ndarray:
        """Row means to start from, (n_rows, R): main effects at their mean, products at random, unless given."""
        # products at a common mean would all get the same messages, and at the prior mean zero no messages at all
        start, of_rows = np.repeat(mean, shape, axis=0), np.repeat(free, shape, axis=0)
        if not isinstance(given, str):
            return np.where(of_rows, given, start)
        return np.where(of_rows & (free.sum(axis=0) > 1), sd * rng.standard_normal(start.shape), start)

    starts = tuple(None if starts_at_prior else first_rows() for _ in range(n_starts))
    natural, learned = natural_lines(prior, shape, rank), None if isinstance(kind, Prior) else LEARNED.get(kind)
    law: RowPrior = FixedPrior(*natural)
    if learned is not None:
        law = learned(*natural, mean=mean, scale=np.broadcast_to(sd, free.shape), free=free)
    if isinstance(law, PriorByMode):
        law = replace(law, designs=tuple(data.designs), clocks=tuple(data.clocks))
    problem = Problem(
        entries=data.entries,
        shape=shape,
        rank=rank,
        likelihood=likelihood,
        prior=law,  # as methods take it; one that is learned begins with it
        start=starts[0],
        noise_prior=spec.target.gamma_noise(y, weight),
        seed=int(rng.integers(2**63)),
        free=None if with_components_alone else free,
        uneven=data.uneven,
        power=None if weight is None else in_lanes(data.entries, weight),
    )
    return problem, prior, starts
