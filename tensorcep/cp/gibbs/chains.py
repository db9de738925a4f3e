"""What the Gibbs samplers of the CP model share: their state, the draws of rows and of their prior, and the result.

A sampler augments the likelihood, so that every entry says something Gaussian about its latent value; then the rows of
one mode after the other are drawn given everything else.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import concatenated, room_of
from tensorcep.core.executor import ALONE, Executor, Pass, Rooms
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator, stream_key
from tensorcep.cp.calibration.holdout import HeldOut, NoiseLaw
from tensorcep.cp.gibbs.metropolis import Around, Judge
from tensorcep.cp.gibbs.row_draw import (
    NO_SITES,
    DrawnSites,
    ModeColumns,
    draw_rows,
    draw_series,
    free_values,
    in_order,
    mode_columns,
    of_row_noise,
    rooms_of,
    values_in_order,
    weighted_sites,
)
from tensorcep.cp.model.columns import FreeColumns, encode_columns, free_problem
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import latent_of_entries
from tensorcep.cp.model.memmap import StoredTargets, by_row_of, in_pieces
from tensorcep.cp.model.parameters import kernel_arguments, with_parameter
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowSource, initial_prior, seen_rows, with_seen_rows
from tensorcep.cp.posterior.belief import Draws
from tensorcep.cp.posterior.components import EntryTheta, stack_draws
from tensorcep.cp.settings.sampling import Sampler
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
    start=np.zeros(1, dtype=np.int64),
    end=np.zeros(0, dtype=np.int64),
    entry=np.zeros(0, dtype=np.int32),
    value=np.zeros(0),
    others=np.zeros((0, 0), dtype=np.int32),
    chunks=(),
)


class ChainSetup(NamedTuple):
    """What follows from the problem.

    Attributes
    ----------
    by_row : EntriesByRow
        Entries that the burn-in leaves out come last; chunks count whole groups of rows from the first of their mode.
    columns : tuple of ModeColumns, one per mode
    rooms : tuple of tuples of Rooms, one per chain and mode: chains may be drawn at once
    free : FreeColumns
    small : Problem
        The problem in the free columns, whose prior the rows have.
    augmentation : Augmentation
        One that is not `auxiliary` where entries are Gaussian in f as they are.
    parameters : tuple of Parameter
        What is learned of the likelihood.
    weighted : bool
        Whether what entries say has weights.
    burn_in : int
    before_rows, after_rows : tuple of int
        Places of the parameters that are drawn given latent values, and given what the rows leave of the targets.
    """

    by_row: EntriesByRow
    columns: tuple[ModeColumns, ...]
    rooms: tuple[tuple[Rooms, ...], ...]
    free: FreeColumns
    small: Problem
    augmentation: Augmentation
    parameters: tuple[Parameter[Any], ...]
    weighted: bool
    burn_in: int
    before_rows: tuple[int, ...]
    after_rows: tuple[int, ...]


class KeptDraws(NamedTuple):
    """The draws that are kept: of every part one array for each.

    Attributes
    ----------
    rows : tuple of (C, n_rows, R), theta : tuple of (C, m), common : tuple of (C, 2)
        The last are means and shapes of a noise or a dispersion that differs; none where there is none.
    unknown : tuple of (C, K, R)
        Rows of the present priors; none where these are not learned.
    drifts : tuple of (C, n, R)
        Parameters of the series (`Draws.drifts`); none where there is none.
    """

    rows: tuple[np.ndarray, ...] = ()
    theta: tuple[np.ndarray, ...] = ()
    common: tuple[np.ndarray, ...] = ()
    unknown: tuple[np.ndarray, ...] = ()
    drifts: tuple[np.ndarray, ...] = ()

    def grows(self) -> bool:
        """Arrays are added, and never changed: files keep each once."""
        return True


class ChainSums(NamedTuple):
    """What samplers alone have.

    Attributes
    ----------
    setup : ChainSetup
    sites : DrawnSites
        Without entries where targets are the values.
    f : (C, n_blocks, LANES) float64
        Latent values of the entries; no blocks where nothing depends on them.
    around : Around or None
        Of likelihoods that no variable makes Gaussian, the past of the latent values.
    held : HeldOut or None
        Entries that the burn-in leaves out.
    told_noise : bool
        Whether these tell the noise.
    noise_law : NoiseLaw or None
        After the burn-in, how new observations differ from normal ones; None where these are normal.
    kept : KeptDraws
    """

    setup: ChainSetup
    sites: DrawnSites
    f: np.ndarray
    around: Around | None = None
    held: HeldOut | None = None
    told_noise: bool = False
    noise_law: NoiseLaw | None = None
    kept: KeptDraws = KeptDraws()

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it follows from the problem and the rows, or is made before it is read."""
        return ("setup", "sites", "f", "around")


class GibbsState(NamedTuple):
    """Chains of draws.

    Attributes
    ----------
    rows : (C, n_rows, R) float64
        Current rows, clamped columns included.
    hyper : tuple of Conditional, one per chain
    parameters : tuple of tuples
        The draw of each parameter, in every chain.
    own : ChainSums
    sweeps : int
    """

    rows: np.ndarray
    hyper: tuple[Conditional, ...]
    parameters: tuple[tuple[Any, ...], ...]
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
        state = self.put(f=f, around=None if around is None else around.of_chains(which))
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


def without_lists(state: GibbsState | None) -> GibbsState | None:
    """The state, if there is one, without the lists of the entries."""
    return None if state is None else state.put(setup=state.setup._replace(by_row=NO_ENTRIES))


def start_chains(
    problem: Problem,
    options: Sampler,
    augmentation: Augmentation,
    parameters: tuple[Parameter[Any], ...] = (),
    held: HeldOut | None = None,
    executor: Executor = ALONE,
) -> GibbsState:
    """Chains at their starts: the problem's, and draws from the prior; clamped columns at 1.

    `held` are entries that the burn-in leaves out. Entries with weights have sites. Latent values and parameters are
    not set yet.
    """
    small = with_seen_rows(free_problem(problem))
    free_columns = encode_columns(problem.every_free)
    columns = mode_columns(free_columns)
    factors = first_rows(small, columns, options.n_chains, problem.rank)
    priors = (initial_prior(small),) * options.n_chains
    weighted = problem.power is not None or augmentation.weighted or any(one.weighs for one in parameters)
    has_sites = weighted or augmentation.auxiliary
    by_row = by_row_of(problem, None if held is None else held.place, values=not has_sites, executor=executor)
    by_row = by_row._replace(chunks=tuple(_cut_at_groups(chunks) for chunks in by_row.chunks))
    rooms = tuple(rooms_of(small.rank, columns) for _ in priors)
    made = by_row, columns, rooms, free_columns, small
    order = sorted(range(len(parameters)), key=lambda i: parameters[i].stage)
    after = tuple(i for i in order if parameters[i].stage is DrawStage.RESIDUAL)
    before = tuple(order[: len(order) - len(after)])
    setup = ChainSetup(*made, augmentation, parameters, weighted, options.burn_in, before, after)
    sites = weighted_sites(problem) if has_sites else NO_SITES
    nothing = np.zeros((options.n_chains, 0, 0))
    return GibbsState(factors, priors, ((),) * options.n_chains, ChainSums(setup, sites, nothing, held=held))


def first_rows(small: Problem, columns: tuple[ModeColumns, ...], n_chains: int, rank: int) -> np.ndarray:
    """The rows of every chain, (C, n_rows, rank): the start of a problem in the free columns, then draws of its prior.

    Clamped columns are 1.
    """
    factors = np.empty((n_chains, sum(small.shape), rank))
    for c in range(n_chains):
        start = _draws_from_prior(small, c) if c or small.start is None else np.ascontiguousarray(small.start)
        for own, (a, b) in zip(columns, itertools.pairwise(offsets(small.shape)), strict=True):
            place = np.full(rank, -1)
            place[own.free[own.free >= 0]] = np.flatnonzero(own.free >= 0)
            arrange(int(a), int(b), start, place, factors[c])
            factors[c, a:b, place < 0] = 1.0
    return factors


def _draws_from_prior(problem: Problem, chain: int) -> np.ndarray:
    """A draw of every row from its prior, (n_rows, R)."""
    Lam, eta = problem.prior.Lam, per_row(problem.prior.eta, problem.shape)
    line = per_row(np.arange(len(Lam)), problem.shape)
    rows, good = np.empty(eta.shape), np.empty(len(eta))
    draw_packed_rows(0, -(-len(eta) // LANES), line, Lam, eta, problem.seed, RandomStream.START + chain, rows, good)
    return rows


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
    """Of the rows of the mode that was drawn last, (n_k,) each.

    Attributes
    ----------
    sums : array
        Sums of weight (target / weight - f)^2 at the new rows over the entries of each; of a series their sum comes
        first.
    sizes : array
        How many entries each has.
    """

    sums: np.ndarray
    sizes: np.ndarray


def draw_factors(
    state: GibbsState,
    chain: int,
    problem: Problem,
    precision: float | RowPrecision,
    executor: Executor,
    judge: Judge | None = None,
) -> RowFit:
    """Draw the rows of every mode in turn, those of a mode whose rows have a precision last; a `judge` turns some down.

    The precision multiplies the weights of the entries.
    """
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
    values = values_in_order(by_row, problem) if stay else None
    modes = [k for k in sorted(range(len(setup.columns)), key=lambda k: k == last) if not problem.is_fixed(k)]
    name, of = f"factors {chain}", {"factors": factors}
    for k in modes:
        columns, offset = setup.columns[k], int(first[k])
        given: Any = values, tau
        if of_rows is not None:
            given = of_row_noise(k, of_rows, by_row, first, executor)
        elif not stay:
            given = in_order(state.own.sites, k, by_row, setup.weighted, executor), tau
        source: Any = RowSource(name, factors, of, order=columns.order)
        key, cuts = stream_key(problem.seed, chain, state.sweeps, k), by_row.chunks[k]
        coupled = setup.small.prior.links(k, modes_prior)
        if coupled is not None or judge is not None or not executor.updates_rows:
            source = source.made(executor)
        data = (offset, (by_row.start, by_row.end, by_row.others), source, columns, given[0])
        if coupled is not None:
            told = k == modes[-1]
            fit[offset] = draw_series(coupled, cuts, data, float(tau[0]), key, factors, rooms[k], executor, told)
            continue
        old = factors[offset : first[k + 1]].copy() if judge is not None else NO_PLACES
        entries = (0, NO_SITES.weight, given[0]) if isinstance(given[0], StoredTargets) else given[0]
        law = (*_prior_of_mode(setup.small, prior, k), given[1], key)
        record = (cuts, offset, by_row, source, columns, *entries, *law, fit, factors)
        rooms[k].start()
        executor.run(_row_draws(k, stay), 0, len(cuts) - 1, *record, scratch=rooms[k])
        if judge is not None:
            judge.decide(data, key, old, factors, executor)
    executor.settle()
    of_last = slice(first[modes[-1]], first[modes[-1] + 1]) if modes else slice(0)
    return RowFit(fit[of_last], by_row.end[of_last] - by_row.start[:-1][of_last])


def _cut_at_groups(chunks: np.ndarray) -> np.ndarray:
    """The cuts of a mode counted from its first row, at whole groups of rows, which share a random stream."""
    return np.unique(np.minimum(-(-(chunks - chunks[0]) // LANES) * LANES, chunks[-1] - chunks[0]))


def draw_parts(
    first: int,
    last: int,
    cuts: np.ndarray,
    offset: int,
    by_row: EntriesByRow,
    source: np.ndarray,
    columns: ModeColumns,
    base: int,
    weight: np.ndarray,
    target: np.ndarray | StoredTargets,
    prior_Lam: np.ndarray,
    prior_eta: np.ndarray,
    precision: np.ndarray,
    key: tuple[int, int, int],
    fit: np.ndarray,
    factors: np.ndarray,
    *room: Any,
) -> None:
    """Draw the rows cuts[first]:cuts[last]: see `draw_rows`."""
    a, b, lists = int(cuts[first]), int(cuts[last]), (by_row.start, by_row.end, by_row.others)
    law = (prior_Lam, prior_eta, precision, key, fit, factors)
    if isinstance(target, StoredTargets):
        in_pieces(draw_rows, a, b, offset, lists, source, columns, target, *law, *room, align=LANES)
    else:
        draw_rows(a, b, offset, lists, source, columns, (base, weight, target), *law, *room)


# The draw of the rows of a mode given those of the others: nothing of a sweep needs them before all modes are drawn.
ROW_DRAWS = Pass(
    draw_parts,
    over="rows",
    reads=("source",),
    lines=("prior_Lam", "prior_eta"),
    gives=("fit",),
    changes=("factors",),
    later=True,
)


@functools.cache
def _row_draws(k: int, stay: bool) -> Pass:
    """That of mode k; `stay`: what entries say does not change from sweep to sweep."""
    return ROW_DRAWS.of_mode(k, ("weight", "target"), stay)


def _prior_of_mode(small: Problem, prior: Conditional, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the rows of mode k; one line for all of them where they share it."""
    Lam, eta = of_mode(prior.Lam, k, small.shape), of_mode(prior.eta, k, small.shape)
    modes: Any = prior.modes
    shift = small.prior.shift(k, modes, natural=True)
    return Lam, eta if shift is None else shift + eta


def draw_priors(state: GibbsState) -> GibbsState:
    """Draw the rows' prior of every chain given its rows that have entries, where it is learned.

    Rows without entries are left out and drawn after it, from it.
    """
    small, law, clamped, priors = state.setup.small, state.setup.small.prior, state.setup.free.any_clamped, []
    for c, prior in enumerate(state.hyper):
        if prior.modes is None or not isinstance(law, LearnedPrior):
            return state
        rows = []
        for k, (a, b) in enumerate(itertools.pairwise(offsets(small.shape))):
            seen, columns = state.rows[c, a:b][prior.seen[a:b]], state.setup.columns[k]
            rows.append(free_values(seen, columns) if clamped else seen[:, columns.free])
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
    kept, common = state.own.kept, state.common
    now = KeptDraws(
        rows=(state.rows.astype(dtype),),
        theta=(state.theta,),
        common=(common,) if common.size else (),
        unknown=(_unknown_rows(state, problem),) if problem.prior.learned else (),
        drifts=(_drifts(state, problem.every_free),) if problem.prior.clocks else (),
    )
    return state.put(kept=KeptDraws(*(old + new for old, new in zip(kept, now, strict=True))))


def _drifts(state: GibbsState, free: np.ndarray) -> np.ndarray:
    """The present parameters of all series in every chain, (C, n, R)."""
    modes: list[Any] = [prior.modes for prior in state.hyper]
    clocks, places = state.setup.small.prior.clocks, [own.free for own in state.setup.columns]
    return np.stack([in_columns(lines_of_modes(own, clocks), clocks, places, free) for own in modes])


def _unknown_rows(state: GibbsState, problem: Problem) -> np.ndarray:
    """A draw of one more row of every mode from the present prior of each chain, (C, K, R).

    Moments over all draws would not do: signs and order of the components differ from chain to chain.
    """
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
    """The kept draws; those of the last sweep when a run was stopped before any was kept.

    Draws are equally likely: where chains do not count the same, their `shares` of draws are taken, spread evenly over
    the sweeps, and form one chain.
    """
    if not state.own.kept.rows:
        state = _with_current(state, problem, "float64")
    kept, parameters = state.own.kept, state.setup.parameters
    if kept.drifts:
        small = state.setup.small
        fill_gaps(small.prior, small.shape, small.seed, kept.rows, kept.drifts, state.hyper[0].seen)
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
