"""Gibbs sampling of the CP model: every chain draws, in every sweep, each part given everything else.

The likelihood is augmented, so that every entry says something Gaussian about its latent value; then the rows of one
mode after the other are drawn. In the burn-in chains leave some entries out, which then tell how far each chain is to
be believed (`tensorcep.cp.calibration.holdout`).

For likelihoods that are not Gaussian in f an auxiliary variable per entry (`tensorcep.likelihoods.augmentation`), then
the rows of one mode after the other, then what is learned of the noise, where there is some. Other parameters come
first (`tensorcep.likelihoods.parameters.base.DrawStage`), given the latent values, with the auxiliary variables
integrated out: drawn given an old variable, whose law depends on it, they would change the stationary law.

Two samplers differ in the auxiliary variable alone. "gibbs" has normal latent values: real values, censored or not
(Chib 1992), and probit labels (Albert and Chib 1993). "pg-gibbs" has Polya-Gamma variables: labels with the logit link,
negative-binomial counts.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1, 3-4 and 6, for order 2; Zhou, Li,
Dunson and Carin (2012) for r. Where we differ: any order; the partially collapsed order above; r ~ Gamma(a + sum of
tables, rate b + sum log(1 + e^f)), of the entries of each row where rows have one each (Zhou and Carin 2015), whose a
and b are drawn with all r integrated out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import concatenated, mean_square, on_scratch, room_of, variance
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import ALONE, Executor, Pass, Rooms
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator, stream_key
from tensorcep.cp.calibration import holdout
from tensorcep.cp.calibration.null_model import can_shrink, shrink, with_constant
from tensorcep.cp.gibbs import row_draw
from tensorcep.cp.gibbs.metropolis import Around, Judge, Pair, judge_of
from tensorcep.cp.model import parameters as of_likelihood
from tensorcep.cp.model import rows as cp_rows
from tensorcep.cp.model.columns import FreeColumns, encode_columns, free_problem
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import latent_of_entries, relative_change
from tensorcep.cp.model.memmap import StoredTargets, by_row_of, value_offset
from tensorcep.cp.model.parameters import kernel_arguments
from tensorcep.cp.model.problem import USUAL, Problem, weights_of_entries
from tensorcep.cp.posterior import Draws, EntryTheta, stack_draws
from tensorcep.cp.settings import Gibbs, PGGibbs, Sampler
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.rows import draw_rows as draw_packed_rows
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation, Likelihood
from tensorcep.likelihoods.parameters import base
from tensorcep.priors.base import Conditional, LearnedPrior, conditional_of_modes, of_mode, per_row
from tensorcep.priors.coupled import fill_gaps
from tensorcep.priors.ou_process import in_columns, lines_of_modes

Precision = float | base.RowPrecision  # of all entries, or one for those of each row of a mode
NO_PLACES = np.zeros(0, dtype=np.int64)
NO_FIT = np.zeros(0), NO_PLACES
NO_ENTRIES = EntriesByRow(
    np.zeros(1, np.int64), NO_PLACES, np.zeros(0, np.int32), row_draw.NOTHING, np.zeros((0, 0), np.int32), ()
)
# The share of the burn-in in which noise is the same everywhere: factors of entries that are not explained yet would
# take them for outliers.
EVEN_SHARE = 0.25


class ChainSetup(NamedTuple):
    """What follows from the problem."""

    by_row: EntriesByRow  # those that the burn-in leaves out last; chunks count groups of rows from the first of a mode
    columns: tuple[row_draw.ModeColumns, ...]  # one per mode
    rooms: tuple[tuple[Rooms, ...], ...]  # one per chain and mode: chains may be drawn at once
    free: FreeColumns
    small: Problem  # the problem in the free columns, whose prior the rows have
    augmentation: Augmentation  # one that is not `auxiliary` where entries are Gaussian in f as they are
    parameters: tuple[base.Parameter[Any], ...]  # what is learned of the likelihood
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
    held: holdout.HeldOut | None = None  # entries that the burn-in leaves out
    told_noise: bool = False  # whether these tell the noise
    noise_law: holdout.NoiseLaw | None = None  # after the burn-in, how new observations differ from normal ones
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
    def held(self) -> holdout.HeldOut | None:
        """Entries that the burn-in leaves out."""
        return self.own.held

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
        return any(parameter.is_precision for parameter in self.own.setup.parameters)

    @property
    def left_out(self) -> np.ndarray:
        """Places of the entries that are left out at present."""
        return NO_PLACES if self.held is None or self.sweeps >= self.own.setup.burn_in else self.held.place

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
            self.own.f.take(which, axis=0, out=f, mode="clip")
        if around is not None:
            around = around._replace(mean=around.mean[which], variance=around.variance[which])
        state = self.put(f=f, around=around)
        hyper, parameters = tuple(self.hyper[c] for c in which), tuple(self.parameters[c] for c in which)
        return state._replace(rows=self.rows[which], hyper=hyper, parameters=parameters)

    def given_at(self, place: np.ndarray, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take as y and theta of the entries at these places in every chain, (C, n) each."""
        each = [kernel_arguments(self.own.setup.parameters, draws, problem, place) for draws in self.parameters]
        y, theta = zip(*each, strict=True)
        return np.stack(y), np.stack(theta)

    def predictive_at(self, place: np.ndarray, problem: Problem) -> tuple[Likelihood, np.ndarray]:
        """The likelihood of new observations at these places, and its parameter in every chain, (C, n)."""
        likelihood, theta = of_likelihood.with_parameter(problem.likelihood, EntryTheta(self.theta))
        if likelihood is problem.likelihood:
            return likelihood, self.given_at(place, problem)[1]
        return likelihood, np.broadcast_to(theta.values, (len(theta.values), len(place)))


def start_chains(
    problem: Problem,
    options: Sampler,
    augmentation: Augmentation,
    parameters: tuple[base.Parameter[Any], ...] = (),
    held: holdout.HeldOut | None = None,
    executor: Executor = ALONE,
) -> GibbsState:
    """Chains at their starts: the problem's, and draws from the prior; clamped columns at 1."""
    # `held` are entries that the burn-in leaves out; entries with weights have sites; latent values and parameters are
    # not set yet
    small, free_columns = cp_rows.with_seen_rows(free_problem(problem)), encode_columns(problem.every_free)
    columns = row_draw.mode_columns(free_columns)
    factors = first_rows(small, columns, options.n_chains, problem.rank)
    priors = (cp_rows.initial_prior(small),) * options.n_chains
    weighted = problem.power is not None or augmentation.weighted or any(one.weighs for one in parameters)
    has_sites = weighted or augmentation.auxiliary
    by_row = by_row_of(problem, None if held is None else held.place, values=not has_sites, executor=executor)
    cuts = (chunks - chunks[0] for chunks in by_row.chunks)  # at whole groups of rows, which share a random stream
    by_row = by_row._replace(chunks=tuple(np.unique(np.minimum(-(-own // LANES) * LANES, own[-1])) for own in cuts))
    rooms = tuple(tuple(Rooms(partial(row_draw.room_for, small.rank, own)) for own in columns) for _ in priors)
    made = by_row, columns, rooms, free_columns, small
    order = sorted(range(len(parameters)), key=lambda i: parameters[i].stage)
    after = tuple(i for i in order if parameters[i].stage is base.DrawStage.RESIDUAL)
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
    factors, first, setup = state.rows[chain], offsets(problem.shape), state.own.setup
    if setup.free.free.all():
        return latent_of_entries(problem.entries, factors, executor, setup.free.groups)
    free = np.empty((len(factors), setup.small.rank))
    for k, columns in enumerate(setup.columns):
        executor.run(arrange, int(first[k]), int(first[k + 1]), factors, columns.free, free)
    return latent_of_entries(problem.entries, free, executor, setup.free.groups)


def draw_factors(
    state: GibbsState, c: int, problem: Problem, precision: Precision, executor: Executor, judge: Judge | None = None
) -> Pair:
    """Draw the rows of every mode in turn, those of a mode with a precision each last; a `judge` turns some down."""
    # gives of the rows of the mode drawn last sums over their entries of weight (target / weight - f)^2, (n_k,), or of
    # a series their sum first, and how many entries they have
    setup, prior, factors = state.own.setup, state.hyper[c], state.rows[c]
    first, by_row, rooms, fit = offsets(problem.shape), setup.by_row, setup.rooms[c], np.zeros(len(factors))
    by_row = by_row if len(state.left_out) else by_row._replace(end=by_row.start[1:])
    modes_prior: Any = prior.modes
    if problem.fixed is not None:  # the next draw of what is known of rows that are not learned
        own, draws = problem.rows_of_fixed, problem.fixed.draws
        factors[own] = draws[(state.sweeps * len(state.rows) + c) % len(draws)][own]
    of_rows = precision if isinstance(precision, base.RowPrecision) else None
    last, tau = (-1, np.array([precision])) if of_rows is None else (of_rows.mode, np.ones(1))
    stay = not len(state.own.sites.weight) and of_rows is None
    values: Any = by_row.value  # what stays is in the order of every mode's rows
    if stay and on_scratch(values):
        values = StoredTargets(values, value_offset(problem.likelihood))
    modes = [k for k in sorted(range(len(setup.columns)), key=lambda k: k == last) if not problem.is_fixed(k)]
    name, of = f"factors {c}", {"factors": factors}
    for k in modes:
        columns, offset = setup.columns[k], int(first[k])
        given: Any = (0, row_draw.NOTHING, values), tau  # as of `in_order`
        if of_rows is not None:
            given = row_draw.of_row_noise(k, of_rows, by_row, first, executor)
        elif not stay:
            given = row_draw.in_order(state.own.sites, k, by_row, setup.weighted, executor), tau
        source: Any = cp_rows.RowSource(name, factors, of, order=columns.order)
        key, cuts = stream_key(problem.seed, c, state.sweeps, k), by_row.chunks[k]
        coupled = setup.small.prior.links(k, modes_prior)
        if coupled is not None or judge is not None or not executor.updates_rows:
            source = source.made(executor)
        data = (offset, (by_row.start, by_row.end, by_row.others), source, columns, given[0])
        if coupled is not None:
            how = (float(tau[0]), key, factors[offset : first[k + 1]], rooms[k], executor)
            fit[offset] = row_draw.draw_series(coupled, (cuts, *data), *how, told=k == modes[-1])
            continue
        old = factors[offset : first[k + 1]].copy() if judge is not None else NO_PLACES
        Lam, eta = (of_mode(part, k, problem.shape) for part in (prior.Lam, prior.eta))
        shift = setup.small.prior.shift(k, modes_prior, natural=True)
        law = (Lam, eta if shift is None else shift + eta, given[1], key)
        record = (cuts, offset, by_row, source, columns, *given[0], *law, fit, factors)
        rooms[k].start()
        work = row_draw.ROW_DRAWS.of_mode(k, ("weight", "target"), stay)
        executor.run(work, 0, len(cuts) - 1, *record, scratch=rooms[k])
        if judge is not None:
            judge.decide(data, key, old, factors, executor)
    executor.settle()
    of_last = slice(first[modes[-1]], first[modes[-1] + 1]) if modes else slice(0)
    return fit[of_last], by_row.end[of_last] - by_row.start[:-1][of_last]


def draw_priors(state: GibbsState) -> GibbsState:
    """Draw the rows' prior of every chain, where it is learned, given rows with entries; others are drawn from it."""
    small, law, priors = state.own.setup.small, state.own.setup.small.prior, []
    for c, prior in enumerate(state.hyper):
        if prior.modes is None or not isinstance(law, LearnedPrior):
            return state
        rows = []
        for k, (a, b) in enumerate(itertools.pairwise(offsets(small.shape))):
            seen, columns = state.rows[c, a:b][prior.seen[a:b]], state.own.setup.columns[k]
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
        clocks, places = state.own.setup.small.prior.clocks, [own.free for own in state.own.setup.columns]
        modes: list[Any] = [prior.modes for prior in state.hyper]
        lines = (lines_of_modes(own, clocks) for own in modes)
        drifts = (np.stack([in_columns(own, clocks, places, problem.every_free) for own in lines]),)
    unknown = (_unknown_rows(state, problem),) if problem.prior.learned else ()
    shared, rows = (common,) if common.size else (), (state.rows.astype(dtype),)
    now = KeptDraws(rows=rows, theta=(state.theta,), common=shared, unknown=unknown, drifts=drifts)
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
        for k, columns in enumerate(state.own.setup.columns):
            mine = columns.free[columns.free >= 0]
            rows[c, k, mine] = drawn[k, : len(mine)]
    return rows


def collect(state: GibbsState, problem: Problem, shares: np.ndarray | None = None) -> Draws:
    """The kept draws; those of the last sweep when a run was stopped before any was kept."""
    if not state.own.kept.rows:
        state = _with_current(state, problem, "float64")
    kept, parameters = state.own.kept, state.own.setup.parameters
    if kept.drifts:
        small = state.own.setup.small
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
        theta_mode=next((one.groups.mode for one in parameters if one.groups.mode is not None), None),
        seen=cp_rows.seen_rows(problem),
        unknown=unknown,
        drifts=_in_form(kept.drifts, which, form),
        uneven=_in_form(kept.common, which, form),
    )


def _in_form(kept: Sequence[np.ndarray], which: list[tuple[int, int]], form: tuple[int, int]) -> np.ndarray | None:
    """What was kept of these draws and chains, in an array whose first sizes are `form`; None where nothing was."""
    return np.array([kept[d][c] for d, c in which]).reshape(*form, *kept[0].shape[1:]) if kept else None


def draws_to_take(state: GibbsState, shares: np.ndarray | None) -> list[tuple[int, int]]:
    """Which of the kept draws are taken, (draw, chain), one chain after the other."""
    C, D = len(state.rows), len(state.own.kept.rows)
    sizes = np.full(C, D) if shares is None else np.maximum(1, np.rint(D * shares)).astype(int)
    return [(int(d), c) for c in range(C) for d in np.linspace(0, D - 1, sizes[c]).round()]


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> GibbsState:
    """Every chain at its start, a precision at that of the data; `kind` names the likelihood's augmentation."""
    augmentation = cp_rows.augmentation_in_use(getattr(problem.likelihood, kind), problem) or Augmentation()
    auxiliary, n, weight = augmentation.auxiliary, len(problem.entries.permutation), weights_of_entries(problem)
    y = problem.entries.y.ravel()[:n]
    # the variance of the data; of data that do not vary a thousandth of their mean square, or 1
    spread = max(variance(y, weight), 1e-3 * mean_square(y, weight)) or 1.0 if y.size else 1.0
    parameters = of_likelihood.parameters_of(problem, options, drawn=auxiliary)
    stacked = options.n_chains > 1 and options.weights == "stacked"
    wanted = stacked or getattr(options, "noise", "sampled") == "held-out"
    held = holdout.hold_out(problem, options.n_chains, spread) if wanted and options.burn_in > 0 else None
    state = start_chains(problem, options, augmentation, parameters, held, executor)
    C, f = options.n_chains, state.own.f
    if auxiliary or any(parameter.weighs for parameter in parameters):
        f = room_of(problem.entries.y).empty((C, *problem.entries.y.shape))
        for c in range(C):
            f[c] = latent_of_chain(state, c, problem, executor)
    draws = []
    for c in range(C):
        stats = _entry_stats(state, f[c], problem, executor)
        draws.append(tuple(parameter.first_draw(spread, stats) for parameter in parameters))
    told = not auxiliary and state.learns_precision and options.noise == "held-out"
    around = Around(f.copy(), np.zeros_like(f), options.burn_in) if augmentation.matched else None
    enough = held is not None and len(held.place) >= THRESHOLDS.fewest
    state = state.put(f=f, around=around, told_noise=told and enough)
    return state._replace(parameters=tuple(draws))


def _entry_stats(state: GibbsState, f: np.ndarray, problem: Problem, executor: Executor, c: int = 0) -> base.EntryStats:
    """What entries say of parameters by their latent values f, (n_blocks, LANES), in chain c."""
    entries = problem.entries

    def theta() -> np.ndarray:
        return kernel_arguments(state.own.setup.parameters, state.parameters[c], problem)[1]

    return base.EntryStats(entries.y, entries.weight, f, len(entries.permutation), theta, executor)


def resume(state: GibbsState, problem: Problem, executor: Executor) -> GibbsState:
    """A state that comes from a file, with the latent values of its rows."""
    if not state.own.f.size:
        return state
    return state.put(f=np.stack([latent_of_chain(state, c, problem, executor) for c in range(len(state.rows))]))


def step(state: GibbsState, problem: Problem, options: Any, executor: Executor) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    own, held, sweeps, burn_in = state.own, state.held, state.sweeps, options.burn_in
    if held is not None and sweeps == burn_in and held.weights is None:
        state = with_weights(state, problem, options)
    state, old = draw_priors(state), state.rows.copy()
    even = sweeps < EVEN_SHARE * burn_in
    if not len(state.own.sites.weight):
        swept = executor.apart(_sweep_chain, len(state.rows), state, problem, even)
    else:  # chains take turns with the room for sites
        swept = [_sweep_chain(c, state, problem, even, executor) for c in range(len(state.rows))]
    state = state._replace(parameters=tuple(draws for draws, _ in swept))
    change = relative_change(state.rows, old)
    del old  # a draw may be kept in its place
    if held is not None and len(state.left_out):
        now = holdout.ChainsDrawn(sweeps, state.rows, state.own.setup.parameters, state.parameters, even)
        given = state.given_at(held.place, problem)
        held, draws = holdout.learn_from_held(held, now, given, problem, options, own.told_noise)
        which = holdout.promising_chains(held, sweeps, burn_in, problem.likelihood)
        state = state._replace(parameters=draws).put(held=held)
        if options.weights == "stacked" and len(which) < len(draws):
            state = state.of_chains(which).put(held=holdout.chains_of(held, which))
    noise = float(state.theta.mean()) if state.learns_precision else np.nan
    sweep = Sweep(change, noise, 0, 0, float(np.array([score for _, score in swept]).mean()))
    return keep(state, problem, options), sweep


def _sweep_chain(c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor) -> tuple[Any, float]:
    """Draw everything of chain c once; gives the parameters and the mean log likelihood of the entries in the sweep."""
    setup, f, key = state.own.setup, state.own.f[c], base.DrawKey(problem.seed, state.sweeps, c)
    parameters, draws, judge = setup.parameters, list(state.parameters[c]), None
    if setup.before_rows or setup.augmentation.auxiliary:
        stats = _entry_stats(state, f, problem, executor, c)
        for i in setup.before_rows:
            draws[i], stats = parameters[i].draw(draws[i], stats, key)
        if setup.augmentation.auxiliary:
            judge = draw_sites(c, state, draws, problem, executor, stats.used)
    precision: Precision = 1.0
    for i in setup.after_rows:
        if parameters[i].weighs:
            draws[i] = parameters[i].weigh(draws[i], _residual_stats(c, state, problem, even, executor), key)
        precision = parameters[i].precision(draws[i])
    fit = draw_factors(state, c, problem, precision, executor, judge)
    if f.size:
        f[:] = latent_of_chain(state, c, problem, executor)
    rest: base.ResidualStats = _residual_stats(c, state, problem, even, executor, fit)
    for i in setup.after_rows:
        draws[i], rest = parameters[i].draw(draws[i], rest, key)
    if rest.score is not None:
        return tuple(draws), rest.score
    y, theta = kernel_arguments(parameters, draws, problem)
    mixed = partial(of_likelihood.mix_densities, parameters, draws)
    return tuple(draws), cp_rows.train_score(problem, f, theta, y, mixed)


def _residual_stats(
    c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor, fit: Pair = NO_FIT
) -> base.ResidualStats:
    """What is known of the residuals of chain c, before its rows are drawn or with the fit of those that were."""
    own, entries, left_out, validation = state.own, problem.entries, state.left_out, None
    without = len(left_out) if problem.power is None else problem.power.ravel()[left_out].sum()
    if own.told_noise:
        held: Any = own.held
        validation = base.ValidationNoise(held.place, float(held.noise[held.alive[c]]))
    weight, target = (part.reshape(-1, LANES) for part in own.sites[:2])
    return base.ResidualStats(
        n=problem.total_weight - float(without),
        sums=fit[0],
        sizes=fit[1],
        y=entries.y,
        present=entries.weight,
        f=own.f[c],
        weight=weight,
        target=target,
        left_out=left_out,
        drawn=state.own.setup.augmentation.auxiliary,
        even=even,
        validation=validation,
        executor=executor,
    )


def draw_sites(
    c: int, state: GibbsState, draws: Sequence[Any], problem: Problem, executor: Executor, used: np.ndarray
) -> Judge | None:
    """Draw the auxiliary variables of chain c: the weight and the target of every entry."""
    # `used` (n_blocks, LANES) is 0 where an entry says nothing of its latent value; where there are no such variables
    # weight and target are of a Gaussian that stands for the entry, and rows drawn by it need the judge
    own, setup, f = state.own, state.own.setup, state.own.f[c]
    room, around, known = own.sites, own.around, problem.entries.known
    sites = room.weight.reshape(f.shape), room.target.reshape(f.shape)
    y, theta = kernel_arguments(setup.parameters, draws, problem)
    theta_of_sites = theta
    for parameter, draw in zip(setup.parameters, draws, strict=True):
        theta_of_sites = parameter.of_sites(draw, theta_of_sites)
    hides = used is not problem.entries.weight
    for part in sites if hides else ():  # what was drawn in the sweep before is no more
        part *= used
    if around is not None:
        around.look(c, f, state.sweeps)
        mean = around.mean[c]
        given, unused = (y, mean, mean * mean + around.variance[c], theta), (np.empty_like(mean), np.empty_like(mean))
        cp_rows.per_entry(given, (*sites, *unused), setup.augmentation.expected, problem, executor)
        for part in sites if problem.power is not None else ():
            part *= problem.power
    else:
        key = base.DrawKey(problem.seed, state.sweeps, c).of_entries(RandomStream.AUGMENTATION)
        record = (y, used if hides else problem.weights, f, theta_of_sites, key, *sites)
        draw = Pass(setup.augmentation.drawn, over="entries", entries=("y", "used", "theta"), changing=("f",))
        if setup.augmentation.weighted:
            draw = draw._replace(changes=("target", "weight"))
        else:
            draw = draw._replace(changes=("target",), entries=(*draw.entries, "weight"))
        executor.run(draw, 0, len(f), *record, scratch=base.room_for_stream)
    if len(known):
        np.subtract(sites[1], sites[0] * known, out=sites[1])
    if around is None:
        return None
    return judge_of((y, theta), setup.by_row.entry, sites, problem, around.climbs(state.sweeps))


def with_weights(
    state: GibbsState, problem: Problem, options: Any, beside: Sequence[holdout.Beside] = (), before: Any = 0.0
) -> GibbsState:
    """At the end of the burn-in: the chains that go on, and how far each, and each fit beside them, is believed."""
    # `before` is what fits beside count unless entries left out say otherwise
    held: Any = state.held
    _, shapes = holdout.noise_at(state.own.setup.parameters, state.parameters, held.place)
    held = holdout.weigh_chains(held, options, beside, before)
    if state.own.told_noise and shapes is not None:
        held = held._replace(noise_ratio=holdout.ratio_of_student(held, shapes, beside))
    even = problem.uneven is None
    if problem.likelihood.censored:
        told = held.beside.any() and even
        ratio = holdout.ratio_beside_limits(held.y, problem.likelihood, beside, held.beside) if told else 1.0
        held = held._replace(noise_ratio=ratio)
    if options.weights == "stacked" and can_shrink(problem.likelihood):
        held = shrink(held, problem)
    law = holdout.noise_law_of(held) if state.own.told_noise and even else None
    return state.of_chains(held.alive).put(held=held, noise_law=law)


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, those of the constant unless fits beside the chains have draws, and of what else was learned."""
    held = state.held
    draws = collect(state, problem, None if held is None else held.shares)
    draws = draws._replace(**of_likelihood.told_of_theta(problem.likelihood))
    if held is None:
        return draws
    if state.own.told_noise:  # a precision from entries left out is that beside all draws
        theta, uneven = np.asarray(draws.theta) / held.noise_ratio, draws.uneven
        uneven = None if uneven is None else uneven / [held.noise_ratio, 1.0]
        draws = draws._replace(theta=theta, uneven=uneven)
    draws = draws if held.beside.any() else with_constant(draws, held, problem.free, problem.prior)
    return holdout.with_factors(draws, state.own.noise_law)


def _takes_powers(problem: Problem) -> bool:
    """Whether entries may count as any number: normals that labels or limits hide have no such power."""
    normal = problem.likelihood.normal
    shown = normal is None or cp_rows.augmentation_in_use(normal, problem) is None
    return shown and problem.likelihood.levels is None


GIBBS = Method(
    name="gibbs",
    needs=("mean_field",),
    options=Gibbs,
    init=partial(init, "mean_field"),
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993)",
    capabilities=USUAL._replace(
        sampler=True,
        censors_spikes=True,
        heteroscedastic=("noise", "dispersion"),
        weights=_takes_powers,
        stores=lambda likelihood: likelihood.normal is not None,
        proposes_rows=lambda likelihood: likelihood.normal is None,
    ),
    resume=resume,
    ended=lambda state: None if state is None else state.put(setup=state.own.setup._replace(by_row=NO_ENTRIES)),
)
PG_GIBBS = replace(
    GIBBS,
    name="pg-gibbs",
    needs=("pg",),
    options=PGGibbs,
    capabilities=GIBBS.capabilities._replace(
        structural_zeros=True,
        heteroscedastic=("dispersion",),
        stores=lambda likelihood: likelihood.extent is None,
        proposes_rows=lambda likelihood: False,
    ),
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4 and 6",
)
