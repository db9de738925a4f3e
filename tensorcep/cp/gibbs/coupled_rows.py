"""The Gibbs step of the rows of a mode that is a series or a graph: one joint draw of all rows with entries.

What the entries say of each row is summed as for rows that are drawn by themselves (`tensorcep.cp.gibbs.row_draw`).
Rows without entries are drawn once, with the draws that are kept.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tensorcep.core.executor import Executor, Rooms
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.gibbs.row_draw import sum_rows
from tensorcep.cp.model.memmap import in_pieces
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.rows import squares_left
from tensorcep.priors.coupled import Joint, as_slice, in_place
from tensorcep.priors.gmrf import Field, draw_gaps
from tensorcep.priors.graph import Net
from tensorcep.priors.ou_process import draw_at, laws_of, n_lines
from tensorcep.priors.solvers.chain import Links, PiecewiseDraw

# Numbers of rows of a graph that gaps are filled of at a time.
NUMBERS_AT_A_TIME = 20_000_000
# Numbers of sums that a cache holds.
NUMBERS_IN_CACHE = 50_000


def draw_series(
    prior: Joint,
    cuts: np.ndarray,
    record: tuple[Any, ...],
    precision: float,
    key: tuple[int, int, int],
    factors: np.ndarray,
    rooms: Rooms,
    executor: Executor,
    told: bool,
) -> float:
    """Draw the rows with entries of a mode, in place in `factors` (n_rows, R); `told`: give the sum of (target - f)^2.

    `record` holds offset, lists, source, columns and entries as `sum_rows` takes them, which is called between `cuts`.
    """
    offset, columns, (n, D) = record[0], record[3], (int(cuts[-1]), prior.own.shape[1])
    own = in_place(prior.of)
    free = as_slice(columns.free[columns.free >= 0])
    at: Any = (own[:, None], free) if isinstance(own, np.ndarray) and isinstance(free, np.ndarray) else (own, free)
    mine = factors[offset : offset + n]
    if not told and isinstance(prior, Links) and not prior.of.closed and bool((np.diff(prior.of.place) > 0).all()):
        mine[at] = _in_pieces(prior, cuts, record, precision, key, rooms, executor)
        return 0.0
    Lam, eta, squares = np.empty((n, D * (D + 1) // 2)), np.empty((n, D)), np.empty(n)
    rooms.start()
    executor.run(_sum_parts, 0, len(cuts) - 1, cuts, *record, Lam, eta, squares, scratch=rooms)
    said, linear = Lam[own], eta[own]
    mine[at] = rows = prior.draw(said, linear, key, precision, overwrite=not told)
    if not told:
        return 0.0
    fit = np.empty(len(rows))
    executor.run(squares_left, 0, len(rows), said, linear, rows, fit)
    return float(squares.sum() + fit.sum())


def _in_pieces(
    prior: Links,
    cuts: np.ndarray,
    record: tuple[Any, ...],
    precision: float,
    key: tuple[int, int, int],
    rooms: Rooms,
    executor: Executor,
) -> np.ndarray:
    """The draw, of sums over entries that stay in the cache until they are read: there are as many as of the rows."""
    D, place, drawn = prior.own.shape[1], prior.of.place, PiecewiseDraw(prior, precision)
    P = D * (D + 1) // 2
    ends = np.searchsorted(cuts, np.arange(0, cuts[-1], max(1, NUMBERS_IN_CACHE // P)))
    ends = np.unique(np.append(ends, len(cuts) - 1))
    size = int(np.diff(cuts[ends]).max())
    Lam, eta, squares = np.empty((size, P)), np.empty((size, D)), np.empty(size)
    for a, b in itertools.pairwise(ends.tolist()):
        first, last = int(cuts[a]), int(cuts[b])
        rooms.start()
        shifted = record[0] + first, *record[1:]
        executor.run(_sum_parts, 0, b - a, cuts[a : b + 1] - first, *shifted, Lam, eta, squares, scratch=rooms)
        mine = place[slice(*np.searchsorted(place, (first, last)))]
        if len(mine):
            some = as_slice(mine - first)
            drawn.tell(Lam[some], eta[some])
    return drawn.rows(key)


def _sum_parts(first: int, last: int, cuts: np.ndarray, *record: Any) -> None:
    """Sums of the rows cuts[first]:cuts[last]."""
    in_pieces(sum_rows, int(cuts[first]), int(cuts[last]), *record)


def fill_gaps(small: Problem, kept: tuple[np.ndarray, ...], drifts: tuple[np.ndarray, ...], seen: np.ndarray) -> None:
    """Draw the rows of series and graphs that have no entries, in place in all draws that are kept, (C, n_rows, R)."""
    first, at = offsets(small.shape), 0
    for k, clock in enumerate(small.prior.clocks):
        if clock is None:
            continue
        own, lines = seen[first[k] : first[k + 1]], slice(at, at + n_lines(clock))
        at = lines.stop
        if isinstance(clock, Net):
            _fill_graph(small, k, kept, [of_draw[:, lines] for of_draw in drifts])
            continue
        if own.all() or not own.any():
            continue
        laws = laws_of(np.concatenate([lines_of_draw[:, lines] for lines_of_draw in drifts]))
        gaps, known = first[k] + np.flatnonzero(~own), first[k] + np.flatnonzero(own)
        rows = np.concatenate([own_rows[:, known] for own_rows in kept]).astype(np.float64)
        noise = generator(small.seed, RandomStream.GAPS, k).standard_normal((len(rows), len(gaps), rows.shape[2]))
        found = draw_at(clock, clock.at(own), rows, laws, clock.at(~own), noise, joint=True)
        for own_rows, (a, b) in zip(kept, itertools.pairwise(range(0, len(rows) + 1, len(kept[0]))), strict=True):
            own_rows[:, gaps] = found[a:b]


def _fill_graph(small: Problem, k: int, kept: tuple[np.ndarray, ...], lines: list[np.ndarray]) -> None:
    """The same for mode k, a graph; some draws at a time."""
    of: Field | None = small.prior.axis(k)
    if of is None or not len(of.gaps.row):
        return
    own, rng = slice(*offsets(small.shape)[k : k + 2]), generator(small.seed, RandomStream.GAPS, k)
    C, n, R = len(kept[0]), of.clock.n, kept[0].shape[2]
    some = max(1, NUMBERS_AT_A_TIME // (C * n * R))
    for first in range(0, len(kept), some):
        part = kept[first : first + some]
        laws = laws_of(np.concatenate(lines[first : first + some]))
        rows = np.concatenate([kept_draw[:, own] for kept_draw in part]).astype(np.float64)
        which = np.abs(of.lengths[:, None, None] - laws.length).argmin(axis=0)
        noise = rng.standard_normal((len(rows), len(of.gaps.row), R)) / np.sqrt(laws.precision)[:, None]
        draw_gaps(of.gaps, rows, which, laws.mean, noise)
        for i, kept_draw in enumerate(part):
            kept_draw[:, own][:, of.gaps.row] = rows[i * C : (i + 1) * C, of.gaps.row]
