"""What the Gibbs samplers of the CP model share: their state, the draws of rows and of their prior, and the result.

A sampler augments the likelihood, so that every entry says something Gaussian about its latent value; then the rows of
one mode after the other are drawn given everything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import concatenated, on_scratch, room_of
from tensorcep.core.executor import ALONE, Executor, Rooms
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator, stream_key
from tensorcep.cp.calibration.holdout import HeldOut, NoiseLaw
from tensorcep.cp.gibbs import row_draw
from tensorcep.cp.gibbs.metropolis import Around, Judge
from tensorcep.cp.model.columns import FreeColumns, encode_columns, free_problem
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import latent_of_entries
from tensorcep.cp.model.memmap import StoredTargets, by_row_of, value_offset
from tensorcep.cp.model.parameters import kernel_arguments, with_parameter
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowSource, initial_prior, seen_rows, with_seen_rows
from tensorcep.cp.posterior import Draws, EntryTheta, stack_draws
from tensorcep.cp.settings import Sampler
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.rows import draw_rows as draw_packed_rows
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation, Likelihood
from tensorcep.likelihoods.parameters.base import DrawStage, Parameter, RowPrecision
from tensorcep.priors.base import Conditional, LearnedPrior, conditional_of_modes, of_mode, per_row
from tensorcep.priors.coupled import fill_gaps
from tensorcep.priors.ou_process import in_columns, lines_of_modes

NO_PLACES = np.zeros(0, dtype=np.int64)
NO_ENTRIES = EntriesByRow(
    np.zeros(1, np.int64), NO_PLACES, np.zeros(0, np.int32), row_draw.NOTHING, np.zeros((0, 0), np.int32), ()
)


class ChainSetup(NamedTuple):
    """What follows from the problem."""

    by_row: EntriesByRow  # those that the burn-in leaves out last; chunks count groups of rows from the first of a mode
    columns: tuple[row_draw.ModeColumns, ...]  # one per mode
    rooms: tuple[tuple[Rooms, ...], ...]  # one per chain and mode: chains may be drawn at once
    free: FreeColumns
    small: Problem  # the problem in the free columns, whose prior the rows have
    augmentation: Augmentation  # one that is not `auxiliary` where entries are Gaussian in f as they are
    parameters: tuple[Parameter[Any], ...]  # what is learned of the likelihood
    weighted: bool  # whether what entries say has weights
    burn_in: int
    before_rows: tuple[int, ...]  # places of the parameters that are drawn given latent values,
    after_rows: tuple[int, ...]  # and given what the rows leave of the targets


class KeptDraws(NamedTuple):
    """The draws that are kept: of every part one array for each, and none of a part that there is not."""

    rows: tuple[np.ndarray, ...] = ()  # (C, n_rows, R)
    theta: tuple[np.ndarray, ...] = ()  # (C, m)
    common: tuple[np.ndarray, ...] = ()  # (C, 2), means and shapes of a noise or a dispersion that differs
    unknown: tuple[np.ndarray, ...] = ()  # (C, K, R), rows of the present priors where these are learned
    drifts: tuple[np.ndarray, ...] = ()  # (C, n, R), parameters of the series (`Draws.drifts`)

    def grows(self) -> bool:
        """Arrays are added, and never changed: files keep each once."""
        return True


class ChainSums(NamedTuple):
    """What samplers alone have."""

    setup: ChainSetup
    sites: row_draw.DrawnSites  # without entries where targets are the values
    f: np.ndarray  # (C, n_blocks, LANES) float64, latent values of the entries; no blocks where nothing depends on them
    around: Around | None = None  # of likelihoods that no variable makes Gaussian, the past of the latent values
    held: HeldOut | None = None  # entries that the burn-in leaves out
    told_noise: bool = False  # whether these tell the noise
    noise_law: NoiseLaw | None = None  # after the burn-in, how new observations differ from normal ones, if they do
    kept: KeptDraws = KeptDraws()

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it follows from the problem and the rows, or is made before it is read."""
        return ("setup", "sites", "f", "around")


class GibbsState(NamedTuple):
    """Chains of draws."""

    rows: np.ndarray  # (C, n_rows, R) float64, current rows, clamped columns included
    hyper: tuple[Conditional, ...]  # one per chain
    parameters: tuple[tuple[Any, ...], ...]  # in every chain the draw of each
    own: ChainSums
    sweeps: int = 0

    @property
    def setup(self) -> ChainSetup:
        """What follows from the problem."""
        return self.own.setup

    @property
    def held(self) -> HeldOut | None:
        """Entries that the burn-in leaves out."""
        return self.own.held

    @property
    def noise_law(self) -> NoiseLaw | None:
        """After the burn-in, how new observations differ from normal ones."""
        return self.own.noise_law

    @property
    def theta(self) -> np.ndarray:
        """The numbers of all parameters, (C, m)."""
        return np.array([concatenated([own.theta for own in draws]) for draws in self.parameters])

    @property
    def common(self) -> np.ndarray:
        """Mean and shape of the law that numbers have in common, (C, 2), or (C, 0) where none do."""
        return np.array([concatenated([own.common for own in draws]) for draws in self.parameters])

    @property
    def learns_precision(self) -> bool:
        """Whether the entries have a precision that is learned."""
        return any(parameter.is_precision for parameter in self.setup.parameters)

    @property
    def left_out(self) -> np.ndarray:
        """Places of the entries that are left out at present."""
        return NO_PLACES if self.held is None or self.sweeps >= self.setup.burn_in else self.held.place

    def put(self, **changes: Any) -> GibbsState:
        """The state with some changed of what samplers alone have."""
        return self._replace(own=self.own._replace(**changes))

    def of_chains(self, which: np.ndarray) -> GibbsState:
        """That of these chains alone, before any draw is kept."""
        if len(which) == len(self.rows):
            return self
        f, around = self.own.f, self.own.around
        if f.size:
            f = room_of(f).empty((len(which), *f.shape[1:]))
            for own, c in zip(f, which, strict=True):
                own[:] = self.own.f[c]
        if around is not None:
            around = around._replace(mean=around.mean[which], variance=around.variance[which])
        state = self.put(f=f, around=around)
        hyper, parameters = tuple(self.hyper[c] for c in which), tuple(self.parameters[c] for c in which)
        return state._replace(rows=self.rows[which], hyper=hyper, parameters=parameters)

    def given_at(self, place: np.ndarray, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take as y and theta of the entries at these places in every chain, (C, n) each."""
        each = [kernel_arguments(self.setup.parameters, draws, problem, place) for draws in self.parameters]
        y, theta = zip(*each, strict=True)
        return np.stack(y), np.stack(theta)

    def predictive_at(self, place: np.ndarray, problem: Problem) -> tuple[Likelihood, np.ndarray]:
        """The likelihood of new observations at these places, and its parameter in every chain, (C, n)."""
        likelihood, theta = with_parameter(problem.likelihood, EntryTheta(self.theta))
        if likelihood is problem.likelihood:
            return likelihood, self.given_at(place, problem)[1]
        return likelihood, np.broadcast_to(theta.values, (len(theta.values), len(place)))


def start_chains(
    problem: Problem,
    options: Sampler,
    augmentation: Augmentation,
    parameters: tuple[Parameter[Any], ...] = (),
    held: HeldOut | None = None,
    executor: Executor = ALONE,
) -> GibbsState:
    """Chains at their starts: the problem's, and draws from the prior; clamped columns at 1."""
    # `held` are entries that the burn-in leaves out; entries with weights have sites; latent values and parameters are
    # not set yet
    small, free_columns = with_seen_rows(free_problem(problem)), encode_columns(problem.every_free)
    columns = row_draw.mode_columns(free_columns)
    factors = first_rows(small, columns, options.n_chains, problem.rank)
    priors = (initial_prior(small),) * options.n_chains
    weighted = problem.power is not None or augmentation.weighted or any(one.weighs for one in parameters)
    has_sites = weighted or augmentation.auxiliary
    by_row = by_row_of(problem, None if held is None else held.place, values=not has_sites, executor=executor)
    cuts = (chunks - chunks[0] for chunks in by_row.chunks)  # at whole groups of rows, which share a random stream
    by_row = by_row._replace(chunks=tuple(np.unique(np.minimum(-(-own // LANES) * LANES, own[-1])) for own in cuts))
    rooms = tuple(tuple(Rooms(partial(row_draw.room_for, small.rank, own)) for own in columns) for _ in priors)
    made = by_row, columns, rooms, free_columns, small
    order = sorted(range(len(parameters)), key=lambda i: parameters[i].stage)
    after = tuple(i for i in order if parameters[i].stage is DrawStage.RESIDUAL)
    before = tuple(order[: len(order) - len(after)])
    setup = ChainSetup(*made, augmentation, parameters, weighted, options.burn_in, before, after)
    sites = row_draw.weighted_sites(problem) if has_sites else row_draw.NO_SITES
    nothing = np.zeros((options.n_chains, 0, 0))
    return GibbsState(factors, priors, ((),) * options.n_chains, ChainSums(setup, sites, nothing, held=held))


def first_rows(small: Problem, columns: tuple[row_draw.ModeColumns, ...], n_chains: int, rank: int) -> np.ndarray:
    """The rows of every chain, (C, n_rows, rank): the start of a problem in free columns, or draws of its prior."""
    prior, shape, factors = small.prior, small.shape, np.empty((n_chains, sum(small.shape), rank))
    for c in range(n_chains):
        start = small.start if c == 0 else None
        if start is None:
            line, eta = per_row(np.arange(len(prior.Lam)), shape), per_row(prior.eta, shape)
            start, good, stream = np.empty(eta.shape), np.empty(len(eta)), RandomStream.START + c
            draw_packed_rows(0, -(-len(eta) // LANES), line, prior.Lam, eta, small.seed, stream, start, good)
        start = np.ascontiguousarray(start)
        for own, (a, b) in zip(columns, itertools.pairwise(offsets(small.shape)), strict=True):
            place = np.full(rank, -1)
            place[own.free[own.free >= 0]] = np.flatnonzero(own.free >= 0)
            arrange(int(a), int(b), start, place, factors[c])
            factors[c, a:b, place < 0] = 1.0
    return factors


def latent_of_chain(state: GibbsState, chain: int, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at the current rows of a chain."""
    factors, first, setup = state.rows[chain], offsets(problem.shape), state.setup
    if not setup.free.any_clamped:
        return latent_of_entries(problem.entries, factors, executor, setup.free.groups)
    free = np.empty((len(factors), setup.small.rank))
    for k, columns in enumerate(setup.columns):
        executor.run(arrange, int(first[k]), int(first[k + 1]), factors, columns.free, free)
    return latent_of_entries(problem.entries, free, executor, setup.free.groups)


class RowFit(NamedTuple):
    """Of the rows of the mode that was drawn last, (n_k,) each."""

    # of weight (target / weight - f)^2 at the new rows over the entries of each; of a series their sum comes first
    sums: np.ndarray
    sizes: np.ndarray  # how many entries each has


def draw_factors(
    state: GibbsState,
    chain: int,
    problem: Problem,
    precision: float | RowPrecision,
    executor: Executor,
    judge: Judge | None = None,
) -> RowFit:
    """Draw the rows of every mode in turn, those of a mode with a precision each last; a `judge` turns some down."""
    setup, prior, factors = state.setup, state.hyper[chain], state.rows[chain]
    first, by_row, rooms, fit = offsets(problem.shape), setup.by_row, setup.rooms[chain], np.zeros(len(factors))
    by_row = by_row if len(state.left_out) else by_row._replace(end=by_row.start[1:])
    modes_prior: Any = prior.modes
    if problem.fixed is not None:  # the next draw of what is known of rows that are not learned
        own, draws = problem.rows_of_fixed, problem.fixed.draws
        factors[own] = draws[(state.sweeps * len(state.rows) + chain) % len(draws)][own]
    of_rows = precision if isinstance(precision, RowPrecision) else None
    last, tau = (-1, np.array([precision])) if of_rows is None else (of_rows.mode, np.ones(1))
    stay = not len(state.own.sites.weight) and of_rows is None
    values: Any = (0, row_draw.NOTHING, by_row.value)  # as `in_order`: what stays is in the order of every mode's rows
    if stay and on_scratch(by_row.value):
        values = StoredTargets(by_row.value, value_offset(problem.likelihood))
    modes = [k for k in sorted(range(len(setup.columns)), key=lambda k: k == last) if not problem.is_fixed(k)]
    name, of = f"factors {chain}", {"factors": factors}
    for k in modes:
        columns, offset = setup.columns[k], int(first[k])
        given: Any = values, tau
        if of_rows is not None:
            given = row_draw.of_row_noise(k, of_rows, by_row, first, executor)
        elif not stay:
            given = row_draw.in_order(state.own.sites, k, by_row, setup.weighted, executor), tau
        source: Any = RowSource(name, factors, of, order=columns.order)
        key, cuts = stream_key(problem.seed, chain, state.sweeps, k), by_row.chunks[k]
        coupled = setup.small.prior.links(k, modes_prior)
        if coupled is not None or judge is not None or not executor.updates_rows:
            source = source.made(executor)
        data = (offset, (by_row.start, by_row.end, by_row.others), source, columns, given[0])
        if coupled is not None:
            fit[offset] = row_draw.draw_series(
                coupled, cuts, data, float(tau[0]), key, factors, rooms[k], executor, k == modes[-1]
            )
            continue
        old = factors[offset : first[k + 1]].copy() if judge is not None else NO_PLACES
        entries = (0, row_draw.NO_SITES.weight, given[0]) if isinstance(given[0], StoredTargets) else given[0]
        Lam, eta = (of_mode(part, k, problem.shape) for part in (prior.Lam, prior.eta))
        shift = setup.small.prior.shift(k, modes_prior, natural=True)
        law = (Lam, eta if shift is None else shift + eta, given[1], key)
        record = (cuts, offset, by_row, source, columns, *entries, *law, fit, factors)
        rooms[k].start()
        work = row_draw.ROW_DRAWS.of_mode(k, ("weight", "target"), stay)
        executor.run(work, 0, len(cuts) - 1, *record, scratch=rooms[k])
        if judge is not None:
            judge.decide(data, key, old, factors, executor)
    executor.settle()
    of_last = slice(first[modes[-1]], first[modes[-1] + 1]) if modes else slice(0)
    return RowFit(fit[of_last], by_row.end[of_last] - by_row.start[:-1][of_last])


def draw_priors(state: GibbsState) -> GibbsState:
    """Draw the rows' prior of every chain, where it is learned, given rows with entries; others are drawn from it."""
    small, law, priors = state.setup.small, state.setup.small.prior, []
    for c, prior in enumerate(state.hyper):
        if prior.modes is None or not isinstance(law, LearnedPrior):
            return state
        rows = []
        for k, (a, b) in enumerate(itertools.pairwise(offsets(small.shape))):
            seen, columns = state.rows[c, a:b][prior.seen[a:b]], state.setup.columns[k]
            used = columns.free >= 0
            rows.append(seen[:, columns.free] if used.all() else seen[:, np.where(used, columns.free, 0)] * used)
        rng = generator(small.seed, RandomStream.PRIOR, state.sweeps, c)
        priors.append(conditional_of_modes(law.draw(prior.modes, rows, rng), prior.seen))
    return state._replace(hyper=tuple(priors))


def keep(state: GibbsState, problem: Problem, options: Sampler) -> GibbsState:
    """Count the sweep, and keep its draw if it is due."""
    since = state.sweeps - options.burn_in
    if since >= 0 and since % options.thin == 0:
        state = _with_current(state, problem, options.dtype)
    return state._replace(sweeps=state.sweeps + 1)


def _with_current(state: GibbsState, problem: Problem, dtype: str | None) -> GibbsState:
    kept, common, drifts = state.own.kept, state.common, tuple[np.ndarray, ...]()
    if problem.prior.clocks:  # the present parameters of all series in every chain, (C, n, R)
        clocks, places = state.setup.small.prior.clocks, [own.free for own in state.setup.columns]
        modes: list[Any] = [prior.modes for prior in state.hyper]
        lines = (lines_of_modes(own, clocks) for own in modes)
        drifts = (np.stack([in_columns(own, clocks, places, problem.every_free) for own in lines]),)
    now = KeptDraws(
        rows=(state.rows.astype(dtype),),
        theta=(state.theta,),
        common=(common,) if common.size else (),
        unknown=(_unknown_rows(state, problem),) if problem.prior.learned else (),
        drifts=drifts,
    )
    return state.put(kept=KeptDraws(*(old + new for old, new in zip(kept, now, strict=True))))


def _unknown_rows(state: GibbsState, problem: Problem) -> np.ndarray:
    """A draw of one more row of every mode from the present prior of each chain, (C, K, R)."""
    # moments over all draws would not do: signs and order of the components differ from chain to chain
    rows = np.ones((len(state.hyper), len(problem.shape), problem.rank))
    for c, prior in enumerate(state.hyper):
        rng = generator(problem.seed, RandomStream.UNKNOWN_ROWS, state.sweeps, c)
        modes: Any = prior.modes
        roots = np.linalg.cholesky(np.linalg.inv(modes.precision))
        drawn = modes.mean + np.einsum("kij,kj->ki", roots, rng.standard_normal(modes.mean.shape))
        for k, columns in enumerate(state.setup.columns):
            mine = columns.free[columns.free >= 0]
            rows[c, k, mine] = drawn[k, : len(mine)]
    return rows


def collect(state: GibbsState, problem: Problem, shares: np.ndarray | None = None) -> Draws:
    """The kept draws; those of the last sweep when a run was stopped before any was kept."""
    if not state.own.kept.rows:
        state = _with_current(state, problem, "float64")
    kept, parameters = state.own.kept, state.setup.parameters
    if kept.drifts:
        small = state.setup.small
        fill_gaps(small.prior, small.shape, small.seed, kept.rows, kept.drifts, state.hyper[0].seen)
    # draws are equally likely: where chains do not count the same, their `shares` of draws are taken, spread evenly
    # over the sweeps, and form one chain
    which, D = draws_to_take(state, shares), len(kept.rows)
    form = (len(state.rows), D) if shares is None or np.all(shares == 1.0) else (1, len(which))
    more = [kept.unknown[d][c] for d, c in which] if kept.unknown else []
    rows, unknown = stack_draws([kept.rows[d][c] for d, c in which], more, form)
    return Draws(
        shape=problem.shape,
        rank=problem.rank,
        rows=rows,
        theta=_in_form(kept.theta, which, form) if any(one.learned for one in parameters) else None,
        theta_mode=next((one.mode for one in parameters if one.mode is not None), None),
        seen=seen_rows(problem),
        unknown=unknown,
        drifts=_in_form(kept.drifts, which, form),
        uneven=_in_form(kept.common, which, form),
    )


def _in_form(
    kept: tuple[np.ndarray, ...], which: Sequence[tuple[int, int]], form: tuple[int, int]
) -> np.ndarray | None:
    """What was kept of these draws and chains, in an array whose first sizes are `form`; None where nothing was."""
    return np.array([kept[d][c] for d, c in which]).reshape(*form, *kept[0].shape[1:]) if kept else None


def draws_to_take(state: GibbsState, shares: np.ndarray | None) -> list[tuple[int, int]]:
    """Which of the kept draws are taken, (draw, chain), one chain after the other."""
    C, D = len(state.rows), len(state.own.kept.rows)
    sizes = np.full(C, D) if shares is None else np.maximum(1, np.rint(D * shares)).astype(int)
    return [(int(d), c) for c in range(C) for d in np.linspace(0, D - 1, sizes[c]).round()]
