"""The compiled Gibbs step of the factor rows of one mode, and of what augments the likelihood.

Given the other modes, entry n of row i says N(target_n / weight_n; z_n'u, 1 / (precision weight_n)) of the row u, where
z_n is the elementwise product of the rows of the other modes. The row's conditional is Gaussian with precision
prior + precision sum_n weight_n z_n z_n' and natural mean prior + precision sum_n target_n z_n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep._jit import block_kernel
from tensorcep.kernels.lanes import add_outer, cholesky, solve_lower, solve_upper, trace_product
from tensorcep.kernels.polya_gamma import draw_crt, draw_pg
from tensorcep.kernels.slots import LANES, axpy, dot, multiply, scale
from tensorcep.kernels.streams import normal, start_stream, truncated_normal
from tensorcep.models.cp import gather


class Slots(NamedTuple):
    """Where things lie in the work array of one thread (slots of one lane array; see `layout`)."""

    z: int
    other: int
    t: int
    sums: int  # packed sum of weight z z', then the sum of target z: of the entries in each lane
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


def layout(R: int) -> Slots:
    """Slots of the work array for rank R."""
    P, width = R * (R + 1) // 2, padded(R)
    other, t = width, 2 * width
    sums = t + width
    A = sums + P + R
    Lam = A + P + R
    x = Lam + P
    inv_diag = x + R
    ok = inv_diag + R
    return Slots(0, other, t, sums, A, Lam, x, inv_diag, ok, ok + 1, ok + 2, ok + 3, ok + 4, ok + 6)


def padded(R: int) -> int:
    """The rank rounded up to whole tiles of `gather`, with which rows are stored."""
    return -(-R // 4) * 4


@block_kernel
def _add_block(rows, index, factors, weight, target, weighted, w, at, R):  # type: ignore[no-untyped-def]
    """Add weight z z' and target z of one block of entries to the sums of their lanes; padding has z = 0."""
    gather(rows[0], factors, w, at.z)
    for k in range(1, rows.shape[0]):
        gather(rows[k], factors, w, at.other)
        multiply(w, at.z, w, at.z, w, at.other, R, w, 0)
    for lane in range(LANES):
        w[at.target, lane] = target[index[lane]]
    if weighted:
        for lane in range(LANES):
            w[at.weight, lane] = weight[index[lane]]
        scale(w, at.t, w, at.z, w, 0, R, w, at.weight)
        add_outer(w, at.sums, at.t, at.z, at.sums, R)
    else:
        add_outer(w, at.sums, at.z, at.z, at.sums, R)
    b = at.sums + R * (R + 1) // 2
    axpy(w, b, w, b, w, at.z, R, w, at.target)


@block_kernel
def _sum_row(i, lane_of_row, blocks, factors, weight, target, weighted, w, at, R):  # type: ignore[no-untyped-def]
    """Sums over the entries of row i, to one lane of A."""
    size = R * (R + 1) // 2 + R
    w[at.sums : at.sums + size] = 0.0
    for b in range(blocks.start[i], blocks.start[i + 1]):
        _add_block(blocks.rows[b], blocks.entry[b], factors, weight, target, weighted, w, at, R)
    for p in range(size):
        total = 0.0
        for lane in range(LANES):
            total += w[at.sums + p, lane]
        w[at.A + p, lane_of_row] = total


@block_kernel
def draw_rows(first, last, blocks, factors, entries, prior_Lam, prior_eta, precision, key, fit, s, w, at):  # type: ignore[no-untyped-def]
    """Draw the rows first:last of one mode, in place in `factors` (n_rows + 1, padded rank; the last row is zero).

    `entries` is (weight, target, weighted): weight and target (n + 1,), and whether the weights differ from 1. `key` is
    (seed, sweep, mode). With A = sum weight z z' and b = sum target z, u'A u - 2 b'u of each new row goes to `fit`.
    """
    weight, target, weighted = entries
    R, P = prior_eta.shape[1], prior_Lam.shape[1]
    b, ones = at.A + P, at.one
    w[ones] = 1.0
    for group in range(first, last, LANES):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + group // LANES)
        used = min(LANES, last - group)
        w[at.ok] = 1.0
        for lane in range(LANES):
            i = group + min(lane, used - 1)
            _sum_row(i, lane, blocks, factors, weight, target, weighted, w, at, R)
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
        _store_rows(group, used, blocks.first, factors, fit, w, at, R)


@block_kernel
def _store_rows(group, used, offset, factors, fit, w, at, R):  # type: ignore[no-untyped-def]
    """Write the new rows of one group and their share of the fit."""
    P = R * (R + 1) // 2
    for r in range(R):
        scale(w, at.t + r, w, at.x + r, w, 0, 1, w, at.one)
    w[at.Lam : at.Lam + P] = 0.0
    add_outer(w, at.Lam, at.x, at.t, at.Lam, R)
    trace_product(w, at.A, at.Lam, at.spare, R)
    dot(w, at.weight, w, at.A + P, w, at.x, R, w, 0)
    for lane in range(used):
        if w[at.ok, lane] > 0.0:
            for r in range(R):
                factors[offset + group + lane, r] = w[at.x + r, lane]
            fit[group + lane] = w[at.spare, lane] - 2.0 * w[at.weight, lane]


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
