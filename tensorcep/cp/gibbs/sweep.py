"""The compiled Gibbs step of the factor rows of one mode.

Given the other modes, entry n of row i says N(target_n / weight_n; z_n'u + c_n, 1 / (precision weight_n)) of the row u,
where z_n is the elementwise product of the rows of the other modes in the columns that are free in this mode, and c_n
the sum of those products in the columns that are clamped to 1 in it (no such columns: c_n = 0). The row's conditional
is Gaussian with precision prior + precision sum_n weight_n z_n z_n' and natural mean
prior + precision sum_n (target_n - weight_n c_n) z_n.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, inlined
from tensorcep.cp.free_columns import FreeColumns
from tensorcep.kernels.lanes import add_outer, cholesky, solve_lower, solve_upper, trace_product
from tensorcep.kernels.layout import layout
from tensorcep.kernels.outer import add_outer_products, padded
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, dot, lane_zeros, scale, tile_in
from tensorcep.kernels.streams import new_stream, normal, start_stream

# Entries whose vectors z are held at a time: with the matrix they fit the first-level cache.
CHUNK = 32


class ModeColumns(NamedTuple):
    """Columns of the factors in one mode, int64.

    Attributes
    ----------
    free : (Q,)
        Those that are drawn; Q is the same in all modes, and -1 stands for a column of zeros.
    order : (W,)
        How sources of `draw_rows` are laid out: free ones, -1 for the target and up to a whole tile, then those that
        are clamped to 1.
    """

    free: np.ndarray
    order: np.ndarray


def mode_columns(columns: FreeColumns) -> tuple[ModeColumns, ...]:
    """The columns of every mode."""
    fill = np.full(padded(columns.free_index.shape[1] + 1) - columns.free_index.shape[1], -1)
    parts = zip(columns.free_index, columns.clamped_index, strict=True)
    return tuple(ModeColumns(mine, np.concatenate([mine, fill, rest[rest >= 0]])) for mine, rest in parts)


class Slots(NamedTuple):
    """Where things lie in the lane array of one thread, one row per lane."""

    A: int  # the sums over the entries of each row (`Room.gram`), packed
    Lam: int
    x: int
    t: int
    inv_diag: int
    ok: int
    spare: int
    one: int
    precision: int
    size: int


@cache
def slots_for(R: int) -> Slots:
    """Slots of the lane array for R free columns."""
    P = R * (R + 1) // 2
    return layout(Slots, A=P + R + 1, Lam=P, x=R, t=R, inv_diag=R)


class Room(NamedTuple):
    """Work space of one thread.

    Attributes
    ----------
    lanes : (slots, LANES)
    z, weighted : (CHUNK, W)
        Products of the other modes' rows, and the same times the entry's weight.
    gram : (LANES, S, S)
        Sums over the entries of each row: of weight z z' (lower triangle), then, in line R, of target z and target^2.
    prior_row : (LANES,) int64
    stream : (4,) uint64
    """

    lanes: np.ndarray
    z: np.ndarray
    weighted: np.ndarray
    gram: np.ndarray
    prior_row: np.ndarray
    stream: np.ndarray


def room_for(R: int, columns: ModeColumns) -> tuple[Room, Slots]:
    """Work space for R free columns of a mode, and where things lie in it."""
    W, S, at = len(columns.order), padded(R + 1), slots_for(R)
    z, lanes = np.empty((2, CHUNK, W)), lane_zeros((at.size, LANES))
    return Room(lanes, z[0], z[1], np.empty((LANES, S, S)), np.zeros(LANES, dtype=np.int64), new_stream()), at


class Rooms:
    """Work space that one call of `draw_rows` after the other takes: to make it takes as long as to draw a few rows.

    A call of `start` says that none of it is in use.
    """

    def __init__(self, R: int, columns: ModeColumns):
        self._made: list[tuple[Room, Slots]] = []
        self._free: list[tuple[Room, Slots]] = []
        self._for = (R, columns)

    def start(self) -> None:
        """All room is free again."""
        self._free = list(self._made)

    def __call__(self) -> tuple[Room, Slots]:
        """Room that nobody else has."""
        try:
            return self._free.pop()
        except IndexError:
            made = room_for(*self._for)
            self._made.append(made)
            return made


@inlined
def _product(q, S, others, source, z):
    """z[q] = elementwise product of the rows `others` of the source; gives the sum of that from column S on."""
    width, i, total = source.shape[1], others[0], 0.0
    if len(others) == 2:  # third order: what is only summed is not stored
        j = others[1]
        for p in range(S):
            z[q, p] = source[i, p] * source[j, p]
        for p in range(S, width):
            total += source[i, p] * source[j, p]
        return total
    for p in range(width):
        z[q, p] = source[i, p]
    for k in range(1, len(others)):
        j = others[k]
        for p in range(width):
            z[q, p] *= source[j, p]
    for p in range(S, width):
        total += z[q, p]
    return total


@block_kernel
def _sum_row(i, by_row, source, entries, R, room, gram):
    """Sums over the entries of packed row i to gram (S, S)."""
    start, place, others = by_row
    weight, target, weighted = entries
    z, wz = room.z, room.weighted
    S = gram.shape[0]
    gram[:] = 0.0
    for begin in range(start[i], start[i + 1], CHUNK):
        n = min(CHUNK, start[i + 1] - begin)
        for q in range(n):
            entry = place[begin + q]
            clamped = _product(q, S, others[begin + q], source, z)
            if weighted:
                for p in range(S):
                    wz[q, p] = weight[entry] * z[q, p]
                wz[q, R] = target[entry] - weight[entry] * clamped
                z[q, R] = wz[q, R]  # of use to the fit alone, and there weights are 0 or 1
            else:
                z[q, R] = target[entry] - clamped
        if weighted:
            add_outer_products(n, R + 1, wz, z, gram)
        else:
            add_outer_products(n, R + 1, z, z, gram)


@block_kernel
def _to_lanes(used, R, gram, w, A):
    """The packed lower triangles of gram[:used], of R + 1 lines, to slots from A of their lanes; then the last one."""
    S = gram.shape[1]
    for lane in range(0, LANES, 4):
        f0, f1 = min(lane, used - 1) * S * S, min(lane + 1, used - 1) * S * S
        f2, f3 = min(lane + 2, used - 1) * S * S, min(lane + 3, used - 1) * S * S
        for r in range(R + 1):
            for c in range(0, r + 1, 4):  # what a tile writes beyond its line, the next line overwrites
                o, at = A + r * (r + 1) // 2 + c, r * S + c
                tile_in(w, o, lane, gram, f0 + at, f1 + at, f2 + at, f3 + at)


@block_kernel
def draw_rows(
    first, last, offset, by_row, source, columns, entries, prior_Lam, prior_eta, precision, key, fit, factors, room, at
):
    """Draw the rows first:last of the mode whose first packed row is `offset`, in place in `factors` (n_rows, R).

    `by_row` is (start, entry, others) of `EntriesByRow`. `columns` (ModeColumns) are those of the mode, `source` the
    factors in their order (`arrange`); prior_Lam and prior_eta hold the free ones, each for every row of the mode or
    one for all. `entries` is (weight, target, weighted): one number per place in `Entries`, and whether the weights
    differ from 1. `key` is (seed, sweep, mode). With weights that are 0 or 1 the sum of weight (target - f)^2 over the
    entries of each new row goes to `fit`.
    """
    R, P = prior_eta.shape[1], prior_Lam.shape[1]
    w, s = room.lanes, room.stream
    w[at.one] = 1.0
    w[at.precision] = precision
    for group in range(first, last, LANES):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + group // LANES)
        used = min(LANES, last - group)
        w[at.ok] = 1.0
        for lane in range(LANES):
            room.prior_row[lane] = min(group + min(lane, used - 1), len(prior_Lam) - 1)
        for lane in range(used):
            _sum_row(offset + group + lane, by_row, source, entries, R, room, room.gram[lane])
        _to_lanes(used, R, room.gram, w, at.A)
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
        _store_rows(group, used, offset, factors, columns.free, fit, w, at, R)


@block_kernel
def _store_rows(group, used, offset, factors, free, fit, w, at, R):
    """Write the new rows of one group and their share of the fit; a row without a factorisation stays as it is."""
    P = R * (R + 1) // 2
    for r in range(R):
        scale(w, at.t + r, at.x + r, 1, at.one)
    w[at.Lam : at.Lam + P] = 0.0
    add_outer(w, at.Lam, at.x, at.t, at.Lam, R)
    trace_product(w, at.A, at.Lam, at.spare, R)
    dot(w, at.t, at.A + P, at.x, R)
    for lane in range(used):
        fit[group + lane] = w[at.A + P + R, lane]
        if w[at.ok, lane] > 0.0:
            for r in range(R):
                if free[r] >= 0:
                    factors[offset + group + lane, free[r]] = w[at.x + r, lane]
            fit[group + lane] += w[at.spare, lane] - 2.0 * w[at.t, lane]
