"""What the Gibbs samplers of the CP model share: chains, their schedule, the draws of the factor rows, and the result.

A sampler augments the likelihood, so that every entry says something Gaussian about its latent value; then the rows of
one mode after the other are drawn given everything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import ALONE, Executor, Pass, Rooms
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator, stream_key
from tensorcep.cp.gibbs.coupled_rows import draw_series, fill_gaps
from tensorcep.cp.gibbs.metropolis import Judge
from tensorcep.cp.gibbs.row_draw import ModeColumns, draw_rows, free_values, mode_columns, rooms_of
from tensorcep.cp.gibbs.sites import NOTHING, DrawnSites, RowNoise, in_order, of_row_noise, weighted_sites
from tensorcep.cp.model.active_columns import columns_of, free_problem
from tensorcep.cp.model.columns import FreeColumns
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import latent_at
from tensorcep.cp.model.memmap import StoredTargets, by_row_of, in_pieces
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowSource, initial_prior, learning, seen_rows
from tensorcep.cp.posterior.belief import Draws
from tensorcep.cp.posterior.components import stacked
from tensorcep.cp.settings.sampling import Sampler
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.rows import draw_rows as draw_packed_rows
from tensorcep.kernels.slots import LANES
from tensorcep.priors.base import Conditional, clocks_of, conditional_of_modes, of_mode, per_row
from tensorcep.priors.ou_process import in_columns, lines_of_modes


class Chains(NamedTuple):
    """Chains of draws.

    Attributes
    ----------
    factors : (C, n_rows, R) float64
        Current rows, clamped columns included.
    theta : (C, m) float64
        Current parameter of the likelihood.
    sites : Sites or None
        None where targets are the values.
    by_row : EntriesByRow
        Entries that the burn-in leaves out come last; chunks count whole groups of rows from the first of their mode.
    columns : tuple of ModeColumns, one per mode
    rooms : tuple of tuples of Rooms, one per chain and mode: chains may be drawn at once
    free : FreeColumns
    small : Problem
        The problem in the free columns, whose prior the rows have.
    priors : tuple of Conditional, one per chain
    kept : tuple of (C, n_rows, R), kept_theta : tuple of (C, m), and kept_unknown : tuple of (C, K, R)
        The last are rows of the present priors; none where these are not learned.
    kept_drifts : tuple of (C, n, R)
        Parameters of the series (`Draws.drifts`); none where there is none.
    sweeps : int
    uneven : (C, 2) float64 or None
        Of noise or a dispersion that differs: its mean over rows or entries, and the shape of the law of its factors.
    kept_uneven : tuple of (C, 2)
    """

    factors: np.ndarray
    theta: np.ndarray
    sites: DrawnSites | None
    by_row: EntriesByRow
    columns: tuple[ModeColumns, ...]
    rooms: tuple[tuple[Rooms, ...], ...]
    free: FreeColumns
    small: Problem
    priors: tuple[Conditional, ...]
    kept: tuple[np.ndarray, ...]
    kept_theta: tuple[np.ndarray, ...]
    kept_unknown: tuple[np.ndarray, ...]
    kept_drifts: tuple[np.ndarray, ...]
    sweeps: int
    uneven: np.ndarray | None = None
    kept_uneven: tuple[np.ndarray, ...] = ()


def start_chains(
    problem: Problem,
    options: Sampler,
    theta: np.ndarray,
    drawn: bool = False,
    left_out: np.ndarray | None = None,
    executor: Executor = ALONE,
) -> Chains:
    """Chains at their starts: the problem's, and draws from the prior; clamped columns at 1.

    `drawn` says whether the targets of the entries are, `left_out` which entries the burn-in leaves out. Entries with
    weights have sites, too.
    """
    small = learning(free_problem(problem))
    free_columns = columns_of(problem)
    columns = mode_columns(free_columns)
    factors = first_rows(small, columns, options.n_chains, problem.rank)
    priors = (initial_prior(small),) * options.n_chains
    drawn = drawn or problem.power is not None
    by_row = by_row_of(problem, left_out, values=not drawn, executor=executor)
    by_row = by_row._replace(chunks=tuple(_cut_at_groups(chunks) for chunks in by_row.chunks))
    sites = weighted_sites(problem) if drawn else None
    rooms = tuple(rooms_of(small.rank, columns) for _ in priors)
    return Chains(factors, theta, sites, by_row, columns, rooms, free_columns, small, priors, (), (), (), (), 0)


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


def latent_of_chain(chains: Chains, chain: int, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at the current rows of a chain."""
    factors, first = chains.factors[chain], offsets(problem.shape)
    if not chains.free.any_clamped:
        return latent_at(problem.entries, factors, chains.free, executor)
    free = np.empty((len(factors), chains.small.rank))
    for k, columns in enumerate(chains.columns):
        executor.run(arrange, int(first[k]), int(first[k + 1]), factors, columns.free, free)
    return latent_at(problem.entries, free, chains.free, executor)


def draw_factors(
    chains: Chains,
    chain: int,
    problem: Problem,
    precision: float,
    executor: Executor,
    weighted: bool = False,
    burning_in: bool = False,
    noise: RowNoise | None = None,
    judge: Judge | None = None,
) -> np.ndarray:
    """Draw the rows of every mode in turn, those of a mode with `noise` of its own last; a `judge` turns some down.

    Gives the sums of weight (target / weight - f)^2 at the new rows over the entries of each row of the last mode; of a
    series their sum comes first.
    """
    prior, factors = chains.priors[chain], chains.factors[chain]
    first, by_row, rooms, fit = offsets(problem.shape), chains.by_row, chains.rooms[chain], np.zeros(len(factors))
    by_row = by_row if burning_in else by_row._replace(end=by_row.start[1:])
    if problem.fixed is not None:  # the next draw of what is known of rows that are not learned
        own, draws = problem.rows_of_fixed, problem.fixed.draws
        factors[own] = draws[(chains.sweeps * len(chains.factors) + chain) % len(draws)][own]
    modes = sorted(range(len(chains.columns)), key=lambda k: noise is not None and k == noise.mode)
    modes = [k for k in modes if not problem.is_fixed(k)]
    for k in modes:
        columns, offset = chains.columns[k], int(first[k])
        given: Any = in_order(chains.sites, k, by_row, weighted, problem, executor), np.array([precision])
        given = given if noise is None else of_row_noise(k, noise, by_row, first, executor)
        source: Any = RowSource(f"factors {chain}", factors, {"factors": factors}, order=columns.order)
        key, cuts = stream_key(problem.seed, chain, chains.sweeps, k), by_row.chunks[k]
        coupled = None if prior.modes is None else chains.small.prior.links(k, prior.modes)
        if coupled is not None or judge is not None:
            source = source.made(executor)
        data = (offset, (by_row.start, by_row.end, by_row.others), source, columns, given[0])
        if coupled is not None:
            told = k == modes[-1]
            fit[offset] = draw_series(coupled, cuts, data, precision, key, factors, rooms[k], executor, told)
            continue
        old = None if judge is None else factors[offset : first[k + 1]].copy()
        stored = isinstance(given[0], StoredTargets)
        entries = (0, NOTHING, given[0]) if stored else given[0]
        law = (*_prior_of_mode(chains.small, prior, k), given[1], key)
        draw = ROW_DRAWS.of_mode(k, ("weight", "target"), chains.sites is None and noise is None)
        rooms[k].start()
        record = (cuts, offset, by_row, source, columns, *entries, *law, fit, factors)
        executor.run(draw, 0, len(cuts) - 1, *record, scratch=rooms[k])
        if judge is not None and old is not None:
            judge.decide(data, key, old, factors, executor)
    executor.settle()
    return fit[first[modes[-1]] : first[modes[-1] + 1]] if modes else np.zeros(1)


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
    entries = target if isinstance(target, StoredTargets) else (base, weight, target)
    data = (offset, (by_row.start, by_row.end, by_row.others), source, columns, entries)
    law = (prior_Lam, prior_eta, precision, key, fit, factors)
    in_pieces(draw_rows, int(cuts[first]), int(cuts[last]), *data, *law, *room, align=LANES)


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


def _prior_of_mode(small: Problem, prior: Conditional, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the rows of mode k; one line for all of them where they share it."""
    Lam, eta = of_mode(prior.Lam, k, small.shape), of_mode(prior.eta, k, small.shape)
    shift = None if prior.modes is None else small.prior.shift(k, prior.modes, natural=True)
    return Lam, eta if shift is None else shift + eta


def draw_priors(chains: Chains) -> Chains:
    """Draw the rows' prior of every chain given its rows that have entries, where it is learned.

    Rows without entries are left out and drawn after it, from it.
    """
    small, priors = chains.small, []
    for c, prior in enumerate(chains.priors):
        if prior.modes is None:
            return chains
        rows = []
        for k, (a, b) in enumerate(itertools.pairwise(offsets(small.shape))):
            rows.append(free_values(chains.factors[c, a:b][prior.seen[a:b]], chains.columns[k]))
        rng = generator(small.seed, RandomStream.PRIOR, chains.sweeps, c)
        priors.append(conditional_of_modes(small.prior.draw(prior.modes, rows, rng), prior.seen))
    return chains._replace(priors=tuple(priors))


def keep(chains: Chains, problem: Problem, options: Sampler) -> Chains:
    """Count the sweep, and keep its draw if it is due."""
    since = chains.sweeps - options.burn_in
    if since >= 0 and since % options.thin == 0:
        chains = _with_current(chains, problem, options.dtype)
    return chains._replace(sweeps=chains.sweeps + 1)


def _with_current(chains: Chains, problem: Problem, dtype: str | None) -> Chains:
    draw = chains.factors.astype(dtype)
    unknown = () if not problem.prior.learned else (_unknown_rows(chains, problem),)
    drifts = () if not clocks_of(problem.prior) else (_drifts(chains, problem.every_free),)
    return chains._replace(
        kept=(*chains.kept, draw),
        kept_theta=(*chains.kept_theta, chains.theta.copy()),
        kept_unknown=(*chains.kept_unknown, *unknown),
        kept_drifts=(*chains.kept_drifts, *drifts),
        kept_uneven=() if chains.uneven is None else (*chains.kept_uneven, chains.uneven.copy()),
    )


def _drifts(chains: Chains, free: np.ndarray) -> np.ndarray:
    """The present parameters of all series in every chain, (C, n, R)."""
    modes: list[Any] = [prior.modes for prior in chains.priors]
    clocks, places = clocks_of(chains.small.prior), [own.free for own in chains.columns]
    return np.stack([in_columns(lines_of_modes(own, clocks), clocks, places, free) for own in modes])


def _unknown_rows(chains: Chains, problem: Problem) -> np.ndarray:
    """A draw of one more row of every mode from the present prior of each chain, (C, K, R).

    Moments over all draws would not do: signs and order of the components differ from chain to chain.
    """
    rows = np.ones((len(chains.priors), len(problem.shape), problem.rank))
    for c, prior in enumerate(chains.priors):
        rng = generator(problem.seed, RandomStream.UNKNOWN_ROWS, chains.sweeps, c)
        modes: Any = prior.modes
        roots = np.linalg.cholesky(np.linalg.inv(modes.precision))
        drawn = modes.mean + np.einsum("kij,kj->ki", roots, rng.standard_normal(modes.mean.shape))
        for k, columns in enumerate(chains.columns):
            mine = columns.free[columns.free >= 0]
            rows[c, k, mine] = drawn[k, : len(mine)]
    return rows


def some_chains(chains: Chains, which: np.ndarray) -> Chains:
    """These chains alone, before any draw is kept."""
    if len(which) == len(chains.factors):
        return chains
    priors = tuple(chains.priors[c] for c in which)
    uneven = None if chains.uneven is None else chains.uneven[which]
    return chains._replace(factors=chains.factors[which], theta=chains.theta[which], priors=priors, uneven=uneven)


def collect(
    chains: Chains, problem: Problem, theta_mode: int | None, has_theta: bool, shares: np.ndarray | None = None
) -> Draws:
    """The kept draws; those of the last sweep when a run was stopped before any was kept.

    Draws are equally likely: where chains do not count the same, their `shares` of draws are taken, spread evenly over
    the sweeps, and form one chain.
    """
    if not chains.kept:
        chains = _with_current(chains, problem, "float64")
    if chains.kept_drifts:
        fill_gaps(chains.small, chains.kept, chains.kept_drifts, chains.priors[0].seen)
    which, D = taken(chains, shares), len(chains.kept)
    form = (len(chains.factors), D) if shares is None or np.all(shares == 1.0) else (1, len(which))
    more = [chains.kept_unknown[d][c] for d, c in which] if chains.kept_unknown else []
    rows, unknown = stacked([chains.kept[d][c] for d, c in which], more, form)
    return Draws(
        shape=problem.shape,
        rank=problem.rank,
        rows=rows,
        theta=_in_form(chains.kept_theta, which, form) if has_theta else None,
        theta_mode=theta_mode,
        seen=seen_rows(problem),
        unknown=unknown,
        drifts=_in_form(chains.kept_drifts, which, form),
        uneven=_in_form(chains.kept_uneven, which, form),
    )


def _in_form(
    kept: tuple[np.ndarray, ...], which: Sequence[tuple[int, int]], form: tuple[int, int]
) -> np.ndarray | None:
    """What was kept of these draws and chains, in an array whose first sizes are `form`; None where nothing was."""
    return np.array([kept[d][c] for d, c in which]).reshape(*form, *kept[0].shape[1:]) if kept else None


def taken(chains: Chains, shares: np.ndarray | None) -> list[tuple[int, int]]:
    """Which of the kept draws are taken, (draw, chain), one chain after the other."""
    C, D = len(chains.factors), len(chains.kept)
    sizes = np.full(C, D) if shares is None else np.maximum(1, np.rint(D * shares)).astype(int)
    return [(int(d), c) for c in range(C) for d in np.linspace(0, D - 1, sizes[c]).round()]
