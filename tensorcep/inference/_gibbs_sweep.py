"""The compiled Gibbs step of the factor rows of one mode, and of what augments the likelihood.

Given the other modes, entry n of row i says N(target_n / weight_n; z_n'u + c_n, 1 / (precision weight_n)) of the row u,
where z_n is the elementwise product of the rows of the other modes in the columns that are free in this mode, and c_n
the sum of those products in the columns that are clamped to 1 in it (no such columns: c_n = 0). The row's conditional
is Gaussian with precision prior + precision sum_n weight_n z_n z_n' and natural mean
prior + precision sum_n (target_n - weight_n c_n) z_n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep._jit import block_kernel
from tensorcep.kernels.lanes import add_outer, cholesky, solve_lower, solve_upper, trace_product
from tensorcep.kernels.polya_gamma import draw_crt, draw_pg
from tensorcep.kernels.slots import LANES, axpy, copy, dot, multiply, scale
from tensorcep.kernels.streams import normal, start_stream, truncated_normal
from tensorcep.models.cp import gather


class ModeColumns(NamedTuple):
    """Columns of the factors in one mode, int64.

    Attributes
    ----------
    free : (R,)
        Those that are drawn; where the mode has fewer than others, the stored width stands for a column of zeros.
    clamped : (C,)
        Those that are 1.
    """

    free: np.ndarray
    clamped: np.ndarray


def mode_columns(free: np.ndarray) -> tuple[ModeColumns, ...]:
    """The columns of every mode from which ones are free, (K, R) bool."""
    Q, none = int(free.sum(axis=1).max()), padded(free.shape[1])
    found = []
    for row in free:
        mine = np.full(Q, none)
        mine[: row.sum()] = np.flatnonzero(row)
        found.append(ModeColumns(mine, np.flatnonzero(~row)))
    return tuple(found)


class Slots(NamedTuple):
    """Where things lie in the work array of one thread (slots of one lane array; see `layout`)."""

    product: int  # of the other modes' rows, all columns as stored
    none: int  # a zero, right after them
    other: int
    z: int  # the free columns; `product` where all are
    t: int
    sums: int  # of the entries in each lane: packed sum of weight z z', sum of target z, sum of target^2
    A: int  # the same, one row per lane
    Lam: int
    x: int
    inv_diag: int
    ok: int
    weight: int
    target: int
    spare: int
    one: int
    size: int


def layout(R: int, n_columns: int, structured: bool) -> Slots:
    """Slots of the work array for R free columns of n_columns, and whether any is clamped in a mode."""
    P, width = R * (R + 1) // 2, padded(n_columns)
    other = width + 1
    z = other + width if structured else 0
    t = other + width + R
    sums = t + R
    A = sums + P + R + 1
    Lam = A + P + R + 1
    x = Lam + P
    inv_diag = x + R
    ok = inv_diag + R
    return Slots(0, width, other, z, t, sums, A, Lam, x, inv_diag, ok, ok + 1, ok + 2, ok + 3, ok + 4, ok + 5)


def padded(R: int) -> int:
    """The rank rounded up to whole tiles of `gather`, with which rows are stored."""
    return -(-R // 4) * 4


@block_kernel
def _add_block(rows, index, factors, columns, entries, w, at, R):  # type: ignore[no-untyped-def]
    """Add one block of entries to the sums of their lanes; padding has z = c = 0."""
    weight, target, weighted = entries
    width = factors.shape[1]
    gather(rows[0], factors, w, at.product)
    for k in range(1, rows.shape[0]):
        gather(rows[k], factors, w, at.other)
        multiply(w, at.product, w, at.product, w, at.other, width, w, 0)
    for lane in range(LANES):
        w[at.target, lane] = target[index[lane]]
    if weighted:
        for lane in range(LANES):
            w[at.weight, lane] = weight[index[lane]]
    _remove_clamped(columns, weighted, w, at, R)
    if weighted:
        scale(w, at.t, w, at.z, w, 0, R, w, at.weight)
        add_outer(w, at.sums, at.t, at.z, at.sums, R)
    else:
        add_outer(w, at.sums, at.z, at.z, at.sums, R)
    b = at.sums + R * (R + 1) // 2
    axpy(w, b, w, b, w, at.z, R, w, at.target)
    axpy(w, b + R, w, b + R, w, at.target, 1, w, at.target)


@block_kernel
def _remove_clamped(columns, weighted, w, at, R):  # type: ignore[no-untyped-def]
    """z from the products of all columns, and target - weight c from the target."""
    if at.z != at.product:
        for r in range(R):
            copy(w, at.z + r, w, at.product + columns.free[r], w, 0, 1, w, 0)
    if len(columns.clamped):
        for lane in range(LANES):
            w[at.spare, lane] = 0.0
        for r in columns.clamped:
            axpy(w, at.spare, w, at.spare, w, at.product + r, 1, w, at.one)
        for lane in range(LANES):
            w[at.target, lane] -= w[at.spare, lane] * (w[at.weight, lane] if weighted else 1.0)


@block_kernel
def _sum_row(i, lane_of_row, blocks, factors, columns, entries, w, at, R):  # type: ignore[no-untyped-def]
    """Sums over the entries of row i, to one lane of A."""
    size = at.A - at.sums
    w[at.sums : at.A] = 0.0
    for b in range(blocks.start[i], blocks.start[i + 1]):
        _add_block(blocks.rows[b], blocks.entry[b], factors, columns, entries, w, at, R)
    for p in range(size):
        total = 0.0
        for lane in range(LANES):
            total += w[at.sums + p, lane]
        w[at.A + p, lane_of_row] = total


@block_kernel
def draw_rows(first, last, blocks, factors, columns, entries, prior_Lam, prior_eta, precision, key, fit, s, w, at):  # type: ignore[no-untyped-def]
    """Draw the rows first:last of one mode, in place in `factors` (n_rows + 1, padded width; the last row is zero).

    `columns` (ModeColumns) are those of the mode; prior_Lam and prior_eta hold its free ones. `entries` is (weight,
    target, weighted): weight and target (n + 1,), and whether the weights differ from 1. `key` is (seed, sweep, mode).
    Without weights the sum of (target - f)^2 over the entries of each new row goes to `fit`.
    """
    R, P = prior_eta.shape[1], prior_Lam.shape[1]
    b = at.A + P
    w[at.one] = 1.0
    w[at.none] = 0.0
    for group in range(first, last, LANES):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + group // LANES)
        used = min(LANES, last - group)
        w[at.ok] = 1.0
        for lane in range(LANES):
            i = group + min(lane, used - 1)
            _sum_row(i, lane, blocks, factors, columns, entries, w, at, R)
            row = blocks.first + i
            for p in range(P):
                w[at.Lam + p, lane] = prior_Lam[row, p] + precision * w[at.A + p, lane]
            for r in range(R):
                w[at.x + r, lane] = prior_eta[row, r] + precision * w[b + r, lane]
        cholesky(w, at.Lam, at.inv_diag, at.ok, R)
        solve_lower(w, at.Lam, at.inv_diag, at.x, R)
        for r in range(R):
            for lane in range(LANES):
                w[at.x + r, lane] += normal(s)
        solve_upper(w, at.Lam, at.inv_diag, at.x, at.spare, R)
        _store_rows(group, used, blocks.first, factors, columns.free, fit, w, at, R)


@block_kernel
def _store_rows(group, used, offset, factors, free, fit, w, at, R):  # type: ignore[no-untyped-def]
    """Write the new rows of one group and their share of the fit; a row without a factorisation stays as it is."""
    P = R * (R + 1) // 2
    for r in range(R):
        scale(w, at.t + r, w, at.x + r, w, 0, 1, w, at.one)
    w[at.Lam : at.Lam + P] = 0.0
    add_outer(w, at.Lam, at.x, at.t, at.Lam, R)
    trace_product(w, at.A, at.Lam, at.spare, R)
    dot(w, at.weight, w, at.A + P, w, at.x, R, w, 0)
    for lane in range(used):
        fit[group + lane] = w[at.A + P + R, lane]
        if w[at.ok, lane] > 0.0:
            for r in range(R):
                if free[r] < factors.shape[1]:
                    factors[offset + group + lane, free[r]] = w[at.x + r, lane]
            fit[group + lane] += w[at.spare, lane] - 2.0 * w[at.weight, lane]


@block_kernel
def draw_probit(first, last, y, f, key, target, s):  # type: ignore[no-untyped-def]
    """target = the latent normal of each label: N(f, 1) on the side of 0 that y = +-1 says (Albert and Chib 1993)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if y[b, lane] != 0.0:
                target[b, lane] = f[b, lane] + y[b, lane] * truncated_normal(s, -y[b, lane] * f[b, lane])


@block_kernel
def draw_censored(first, last, y, weight, f, tau, key, target, s):  # type: ignore[no-untyped-def]
    """target = y, and for y = 0 the latent normal N(f, 1 / tau) given that it is below 0; 0 in padding."""
    sd = 1.0 / np.sqrt(tau)
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            target[b, lane] = y[b, lane]
            if weight[b, lane] > 0.0 and y[b, lane] <= 0.0:
                target[b, lane] = f[b, lane] - sd * truncated_normal(s, f[b, lane] / sd)


@block_kernel
def draw_omega(first, last, count, f, key, weight, s):  # type: ignore[no-untyped-def]
    """weight = omega ~ PG(count, f) of each entry; padding has count 0."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if count[b, lane] > 0.0:
                weight[b, lane] = draw_pg(s, count[b, lane], f[b, lane])


@block_kernel
def draw_tables(first, last, y, r, used, key, tables, s):  # type: ignore[no-untyped-def]
    """tables ~ CRT(y, r) of each entry, r the dispersion of the entry."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            tables[b, lane] = draw_crt(s, y[b, lane], r[b, lane]) if used[b, lane] > 0.0 else 0.0
