"""The compiled Gibbs step of the factor rows of one mode.

Given the other modes, entry n of row i says N(target_n / weight_n; z_n'u + c_n, 1 / (precision weight_n)) of the row u,
where z_n is the elementwise product of the rows of the other modes in the columns that are free in this mode, and c_n
the sum of those products in the columns that are clamped to 1 in it (no such columns: c_n = 0). The row's conditional
is Gaussian with precision prior + precision sum_n weight_n z_n z_n' and natural mean
prior + precision sum_n (target_n - weight_n c_n) z_n.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import empty_near, room_of
from tensorcep.core.compile import block_kernel, inlined
from tensorcep.core.executor import Executor, Pass, Rooms
from tensorcep.core.random import new_stream, normal, start_stream
from tensorcep.cp.model.columns import FreeColumns
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.memmap import in_pieces
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.lanes import add_outer, cholesky, layout, solve_lower, solve_upper, trace_product
from tensorcep.kernels.rank_update import COLUMNS, add_outer_products, dot_row, multiply_rows, padded
from tensorcep.kernels.rows import gather, squares_left
from tensorcep.kernels.slots import LANES, axpy, dot, lane_zeros, scale, tile_in
from tensorcep.likelihoods.parameters.base import RowPrecision
from tensorcep.priors.coupled import Joint, as_slice, in_place
from tensorcep.priors.solvers.chain import Links, PiecewiseDraw

# Entries whose vectors z are held at a time: with the matrix they fit the first-level cache.
CHUNK = 64
# Numbers of sums that a cache holds.
NUMBERS_IN_CACHE = 50_000
NOTHING = np.zeros(0)


class ModeColumns(NamedTuple):
    """Columns of the factors in one mode."""

    free: np.ndarray  # (Q,) int64: those that are drawn; Q is the same in all modes, and -1 a column of zeros
    # (W,) int64: how sources of `draw_rows` are laid out: free ones, those clamped to 1, and -1 up to a whole tile
    order: np.ndarray
    clamped: np.ndarray  # (W,) float64: 1 for these, 0 for others; nothing where none is clamped


def mode_columns(columns: FreeColumns) -> tuple[ModeColumns, ...]:
    """The columns of every mode."""
    parts = zip(columns.free_index, columns.clamped_index, strict=True)
    return tuple(columns_of_mode(mine, rest[rest >= 0]) for mine, rest in parts)


def columns_of_mode(free: np.ndarray, rest: np.ndarray) -> ModeColumns:
    Q, used = len(free), len(free) + len(rest)
    order = np.concatenate([free, rest, np.full(padded(used) - used, -1)])
    place = np.arange(len(order))
    return ModeColumns(free, order, 1.0 * ((place >= Q) & (place < used)) if len(rest) else np.zeros(0))


# Where things lie in the lane array of one thread, one row per lane: A are the packed sums over the entries of each.
Slots = namedtuple("Slots", "A Lam x t inv_diag ok spare one precision size")


class RowDrawRoom(NamedTuple):
    """Work space of one thread."""

    lanes: np.ndarray  # (slots, LANES)
    z: np.ndarray  # (CHUNK, W), products of the other modes' rows
    weighted: np.ndarray  # the same times the entry's weight
    rest: np.ndarray  # (CHUNK,), targets less weight times c
    # (LANES, S + 1, S), sums over the entries of each row: of weight z z' (lower triangle), then, in line S, of rest z
    gram: np.ndarray
    squares: np.ndarray  # (LANES,), sums of the squares of the rest, each divided by its weight
    prior_row: np.ndarray  # (LANES,) int32
    stream: np.ndarray  # (4,) uint64


def room_for(R: int, columns: ModeColumns) -> tuple[RowDrawRoom, Slots]:
    """Work space for R free columns of a mode, and where things lie in it."""
    W, S, P = len(columns.order), padded(R), R * (R + 1) // 2
    at = layout(Slots, A=P + R, Lam=P, x=R, t=R, inv_diag=R)
    lanes, z, gram = lane_zeros((at.size, LANES)), lane_zeros((2, CHUNK, W)), lane_zeros((LANES, S + 1, S))
    rest, squares, rows = np.empty(CHUNK), np.empty(LANES), np.zeros(LANES, dtype=np.int32)
    return RowDrawRoom(lanes, z[0], z[1], rest, gram, squares, rows, new_stream()), at


@inlined
def product_of_others(q, R, others, source, clamped, z):
    """z[q] = elementwise product of the rows `others` of the source; gives the sum of its clamped columns."""
    width = source.shape[1]
    o, i = q * width, others[0] * width
    if len(others) == 1:
        for p in range(width):
            z[q, p] = source[others[0], p]
    else:
        multiply_rows(z, o, source, i, source, others[1] * width, width)
    for k in range(2, len(others)):
        multiply_rows(z, o, z, o, source, others[k] * width, width)
    if len(clamped) == 0:
        return 0.0
    first = R // COLUMNS * COLUMNS
    return dot_row(z, o + first, clamped, first, width - first)


@block_kernel
def sum_row(begin, end, others, source, clamped, entries, R, room, gram):
    """Sums over the places begin:end of the entries to gram (S + 1, S); gives the sum of the squares of the rest."""
    base, weight, target = entries
    z, wz, rest = room.z, room.weighted, room.rest
    S, squares = gram.shape[1], 0.0
    gram[:] = 0.0
    # a loop that adds up writes no array: its rounding would depend on where arrays happen to lie
    # (`tensorcep.core.compile`)
    for first in range(begin, end, CHUNK):
        n = min(CHUNK, end - first)
        for q in range(n):
            rest[q] = product_of_others(q, R, others[first + q], source, clamped, z)
        if len(weight):
            for q in range(n):
                w = weight[first - base + q]
                rest[q] = target[first - base + q] - w * rest[q]
                for p in range(S):
                    wz[q, p] = w * z[q, p]
            for q in range(n):
                squares += rest[q] * rest[q] / weight[first - base + q]
            add_outer_products(n, R, wz, z, rest, gram)
        else:
            for q in range(n):
                rest[q] = target[first - base + q] - rest[q]
            for q in range(n):
                squares += rest[q] * rest[q]
            add_outer_products(n, R, z, z, rest, gram)
    return squares


@block_kernel
def sum_rows(first, last, offset, lists, source, columns, entries, Lam, eta, squares, room, at):
    """As `draw_rows`, the sums over entries alone: packed Lam (n, P), eta (n, D) of D columns of rows, squares (n,)."""
    R, D = len(columns.free), eta.shape[1]
    start, end, others = lists
    gram = room.gram[0]
    S = gram.shape[1]
    for i in range(first, last):
        j = offset + i
        squares[i] = sum_row(start[j], end[j], others, source, columns.clamped, entries, R, room, gram)
        for a in range(D):
            eta[i, a] = gram[S, a]
            for b in range(a + 1):
                Lam[i, a * (a + 1) // 2 + b] = gram[a, b]


@block_kernel
def _to_lanes(used, R, gram, w, A):
    """The packed lower triangles of gram[:used], of R lines, to slots from A of their lanes; then the last line."""
    S = gram.shape[2]
    size = (S + 1) * S
    for lane in range(0, LANES, 4):
        f0, f1 = min(lane, used - 1) * size, min(lane + 1, used - 1) * size
        f2, f3 = min(lane + 2, used - 1) * size, min(lane + 3, used - 1) * size
        for r in range(R + 1):
            line = r if r < R else S
            for c in range(0, min(r + 1, R), 4):  # what a tile writes beyond its line, the next line overwrites
                o, at = A + r * (r + 1) // 2 + c, line * S + c
                tile_in(w, o, lane, gram, f0 + at, f1 + at, f2 + at, f3 + at)


@block_kernel
def draw_rows(
    first, last, offset, lists, source, columns, entries, prior_Lam, prior_eta, precision, key, fit, factors, room, at
):
    """Draw the rows first:last of the mode whose first packed row is `offset`, in place in `factors` (n_rows, R)."""
    # `lists` is (start, end, others): the entries of packed row i have the places start[i]:end[i] of the other modes'
    # rows (see `EntriesByRow`). `columns` (ModeColumns) are those of the mode, `source` the factors in their order
    # (`arrange`); prior_Lam and prior_eta hold the free ones, each for every row of the mode or one for all, as does
    # `precision`. `entries` is (base, weight, target), numbers of the places from `base` on, no weights where all have
    # weight 1. `key` is (seed, sweep, mode). The sum of weight (target / weight - f)^2 over the entries of each new row
    # goes to `fit` (n_rows,).
    R, P = prior_eta.shape[1], prior_Lam.shape[1]
    w, s = room.lanes, room.stream
    start, end, others = lists
    w[at.one] = 1.0
    for group in range(first, last, LANES):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + group // LANES)
        used = min(LANES, last - group)
        w[at.ok] = 1.0
        for lane in range(LANES):
            room.prior_row[lane] = min(group + min(lane, used - 1), len(prior_Lam) - 1)
        for lane in range(used):
            i = offset + group + lane
            squares = sum_row(start[i], end[i], others, source, columns.clamped, entries, R, room, room.gram[lane])
            room.squares[lane] = squares
        _to_lanes(used, R, room.gram, w, at.A)
        for lane in range(LANES):
            w[at.precision, lane] = precision[min(group + min(lane, used - 1), len(precision) - 1)]
        gather(room.prior_row, prior_Lam, w, at.Lam)
        axpy(w, at.Lam, at.Lam, at.A, P, at.precision)
        for lane in range(LANES):
            room.prior_row[lane] = min(group + min(lane, used - 1), len(prior_eta) - 1)
        gather(room.prior_row, prior_eta, w, at.x)
        axpy(w, at.x, at.x, at.A + P, R, at.precision)
        cholesky(w, at.Lam, at.inv_diag, at.ok, R)
        solve_lower(w, at.Lam, at.inv_diag, at.x, R)
        for r in range(R):
            for lane in range(LANES):
                w[at.x + r, lane] += normal(s)
        solve_upper(w, at.Lam, at.inv_diag, at.x, at.spare, R)
        _store_rows(group, used, offset, factors, columns.free, room.squares, fit, w, at, R)


@block_kernel
def _store_rows(group, used, offset, factors, free, squares, fit, w, at, R):
    """Write the new rows of one group and their share of the fit; a row without a factorisation stays as it is."""
    P = R * (R + 1) // 2
    for r in range(R):
        scale(w, at.t + r, at.x + r, 1, at.one)
    w[at.Lam : at.Lam + P] = 0.0
    add_outer(w, at.Lam, at.x, at.t, at.Lam, R)
    trace_product(w, at.A, at.Lam, at.spare, R)
    dot(w, at.t, at.A + P, at.x, R)
    for lane in range(used):
        fit[offset + group + lane] = squares[lane]
        if w[at.ok, lane] > 0.0:
            for r in range(R):
                if free[r] >= 0:
                    factors[offset + group + lane, free[r]] = w[at.x + r, lane]
            fit[offset + group + lane] += w[at.spare, lane] - 2.0 * w[at.t, lane]


def draw_parts(
    first, last, cuts, offset, by_row, source, columns, base, weight, target, Lam, eta, tau, key, fit, factors, *room
):
    """Draw the rows cuts[first]:cuts[last], whose prior has natural parameters Lam and eta: see `draw_rows`."""
    a, b, lists = int(cuts[first]), int(cuts[last]), (by_row.start, by_row.end, by_row.others)
    law = (Lam, eta, tau, key, fit, factors)
    in_pieces(draw_rows, a, b, offset, lists, source, columns, (base, weight, target), *law, *room, align=LANES)


# The draw of the rows of a mode given those of the others: nothing of a sweep needs them before all modes are drawn.
ROW_DRAWS = Pass(
    draw_parts, over="rows", reads=("source",), lines=("Lam", "eta"), gives=("fit",), changes=("factors",), later=True
)


# What the entries say of their latent values, in the order in which the rows of a mode read it. Read in the order of
# the lanes, every number of an entry would cost as much as a row of another mode.


class DrawnSites(NamedTuple):
    """Weights and targets that are drawn: an entry says N(target / weight; f, 1 / (precision weight))."""

    weight: np.ndarray  # (n,) float64, in the lanes, room for those of one chain
    target: np.ndarray  # the same
    ordered: np.ndarray  # (2, N) float64, room for the same in the order of the rows of one mode


NO_SITES = DrawnSites(NOTHING, NOTHING, np.zeros((2, 0)))


def weighted_sites(problem: Problem) -> DrawnSites:
    """Room for weights and targets; where entries have weights, those of values that are Gaussian in f."""
    entries = problem.entries
    room = room_of(entries.y).empty((2, len(entries.permutation)))
    if problem.power is None:
        weight, target = empty_near(entries.y).ravel(), empty_near(entries.y).ravel()
        weight[:], target[:] = 1.0, 0.0
        return DrawnSites(weight, target, room)
    return DrawnSites(problem.power.ravel().copy(), (problem.power * entries.y).ravel(), room)


def in_order(
    sites: DrawnSites, k: int, by_row: EntriesByRow, weighted: bool, executor: Executor
) -> tuple[int, np.ndarray, np.ndarray]:
    """The place of the first of them, weights (nothing where all are 1), and targets, in the order of mode k's rows."""
    n = sites.ordered.shape[1]
    place = by_row.entry[k * n : (k + 1) * n]
    parts = ((sites.target, sites.ordered[1]), (sites.weight, sites.ordered[0]))
    for source, out in parts if weighted else parts[:1]:
        executor.run(_take, 0, n, source, place, out)
    return k * n, (sites.ordered[0] if weighted else NOTHING), sites.ordered[1]


def _take(first: int, last: int, source: np.ndarray, place: np.ndarray, out: np.ndarray) -> None:
    """out = source[place] in the range first:last."""
    source.take(place[first:last], out=out[first:last], mode="clip")


@block_kernel
def _weigh(first, last, own, others, j, value, weight, target):
    """Weights and targets of the entries first:last from the precisions `own` of the packed rows others[:, j]."""
    for n in range(first, last):
        w = own[others[n, j]]
        weight[n] = w
        target[n] = w * value[n]


def of_row_noise(
    k: int, noise: RowPrecision, by_row: EntriesByRow, first: np.ndarray, executor: Executor
) -> tuple[tuple[int, np.ndarray, np.ndarray], np.ndarray]:
    """What the entries say in mode k, and the precision by which that is multiplied: it weighs them in other modes."""
    if k == noise.mode:
        return (0, NOTHING, by_row.value), noise.precision
    n = len(by_row.value) // (len(first) - 1)
    mine = slice(k * n, (k + 1) * n)
    own = np.concatenate([np.zeros(first[noise.mode]), noise.precision])
    weight, target = np.empty(n), np.empty(n)
    given = own, by_row.others[mine], noise.mode - (noise.mode > k), by_row.value[mine]
    executor.run(_weigh, 0, n, *given, weight, target)
    return (k * n, weight, target), np.ones(1)


# The rows of a mode that is a series or a graph: one joint draw of all rows with entries, of which what the entries say
# is summed as for rows that are drawn by themselves. Rows without entries are drawn once, with the draws that are kept.


def draw_series(
    prior: Joint, record: Any, tau: float, key: Any, mine: np.ndarray, rooms: Rooms, executor: Executor, told: bool
) -> float:
    """Draw those with entries of the rows (n, R) of a mode, in place; if `told`, the sum of (target - f)^2."""
    # the record is (cuts, offset, lists, source, columns, entries), of `sum_rows` between cuts; key of `draw_rows`
    (cuts, offset, _, _, columns, _), (n, D) = record, (len(mine), prior.own.shape[1])
    own, free = in_place(prior.of), as_slice(columns.free[columns.free >= 0])
    at: Any = (own[:, None], free) if isinstance(own, np.ndarray) and isinstance(free, np.ndarray) else (own, free)
    P = D * (D + 1) // 2
    if not told and isinstance(prior, Links) and not prior.of.closed and bool((np.diff(prior.of.place) > 0).all()):
        # of sums over entries that stay in the cache until they are read: there are as many as of the rows
        place, drawn = prior.of.place, PiecewiseDraw(prior, tau)
        ends = np.searchsorted(cuts, np.arange(0, cuts[-1], max(1, NUMBERS_IN_CACHE // P)))
        ends = np.unique(np.append(ends, len(cuts) - 1))
        size = int(np.diff(cuts[ends]).max())
        Lam, eta, squares = np.empty((size, P)), np.empty((size, D)), np.empty(size)
        for a, b in itertools.pairwise(ends.tolist()):
            first, last = int(cuts[a]), int(cuts[b])
            rooms.start()
            shifted = offset + first, *record[2:]
            executor.run(_sum_parts, 0, b - a, cuts[a : b + 1] - first, *shifted, Lam, eta, squares, scratch=rooms)
            rows_of_piece = place[slice(*np.searchsorted(place, (first, last)))]
            if len(rows_of_piece):
                some = as_slice(rows_of_piece - first)
                drawn.tell(Lam[some], eta[some])
        mine[at] = drawn.rows(key)
        return 0.0
    Lam, eta, squares = np.empty((n, P)), np.empty((n, D)), np.empty(n)
    rooms.start()
    executor.run(_sum_parts, 0, len(cuts) - 1, *record, Lam, eta, squares, scratch=rooms)
    said, linear = Lam[own], eta[own]
    mine[at] = rows = prior.draw(said, linear, key, tau, overwrite=not told)
    if not told:
        return 0.0
    fit = np.empty(len(rows))
    executor.run(squares_left, 0, len(rows), said, linear, rows, fit)
    return float(squares.sum() + fit.sum())


def _sum_parts(first: int, last: int, cuts: np.ndarray, *record: Any) -> None:
    """Sums of the rows cuts[first]:cuts[last]."""
    in_pieces(sum_rows, int(cuts[first]), int(cuts[last]), *record)
