"""Moments, divergences and draws of packed Gaussian rows."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import normal, start_stream
from tensorcep.kernels import lanes
from tensorcep.kernels.slots import LANES, dot, subtract, tile_add, tile_in


@block_kernel
def arrange(first, last, source, order, out):
    """out[i, p] = source[i, order[p]] for rows first:last; 0 where order[p] is -1."""
    for i in range(first, last):
        for p in range(len(order)):
            out[i, p] = source[i, order[p]] if order[p] >= 0 else 0.0


@block_kernel
def gather(rows, source, w, slot):
    """Slots w[slot + p] = source[rows[lane], p] for the lanes of one block and every column p."""
    width = source.shape[1]
    tiled = width - width % 4
    for lane in range(0, LANES, 4):
        f0, f1, f2, f3 = rows[lane] * width, rows[lane + 1] * width, rows[lane + 2] * width, rows[lane + 3] * width
        for p in range(0, tiled, 4):
            tile_in(w, slot + p, lane, source, f0 + p, f1 + p, f2 + p, f3 + p)
    for p in range(tiled, width):
        for lane in range(LANES):
            w[slot + p, lane] = source[rows[lane], p]


@block_kernel
def scatter_add(rows, values, total):
    """total[rows[lane], p] += values[p, lane] for the lanes of one block and every column p."""
    width = total.shape[1]
    tiled = width - width % 4
    for lane in range(0, LANES, 4):
        f0, f1, f2, f3 = rows[lane] * width, rows[lane + 1] * width, rows[lane + 2] * width, rows[lane + 3] * width
        for p in range(0, tiled, 4):
            tile_add(total, f0 + p, f1 + p, f2 + p, f3 + p, values, p, lane)
    for p in range(tiled, width):
        for lane in range(LANES):
            total[rows[lane], p] += values[p, lane]


@kernel
def row_moments(first, last, Lam, eta, mean, cov, good):
    """Mean (n_rows, R) and packed covariance (n_rows, P) of rows first:last; good[i] = 0 where Lam is not positive."""
    R, P = eta.shape[1], Lam.shape[1]
    a, s, t, m, inv_diag, ok, vt = 0, P, 2 * P, 2 * P + R, 2 * P + 2 * R, 2 * P + 3 * R, 2 * P + 3 * R + 1
    w = np.zeros((vt + R * R, LANES))
    index = np.empty(LANES, dtype=np.int32)
    for block in range(first, last, LANES):
        for lane in range(LANES):
            index[lane] = min(block + lane, last - 1)
            w[ok, lane] = 1.0
        gather(index, Lam, w, a)
        gather(index, eta, w, t)
        lanes.moments(w, a, t, s, m, vt, inv_diag, ok, R)
        for lane in range(min(LANES, last - block)):
            i = block + lane
            good[i] = w[ok, lane]
            for p in range(P):
                cov[i, p] = w[s + p, lane]
            for r in range(R):
                mean[i, r] = w[m + r, lane]


@kernel
def row_log_dets(first, last, cov, out):
    """out[i] = log det of the packed covariance (n_rows, P) of rows first:last; their rank follows from P."""
    P = cov.shape[1]
    R = int((np.sqrt(8.0 * P + 1.0) - 1.0) / 2.0 + 0.5)
    inv_diag, ok = P, P + R
    w = np.zeros((ok + 1, LANES))
    index = np.empty(LANES, dtype=np.int32)
    for block in range(first, last, LANES):
        for lane in range(LANES):
            index[lane] = min(block + lane, last - 1)
            w[ok, lane] = 1.0
        gather(index, cov, w, 0)
        lanes.cholesky(w, 0, inv_diag, ok, R)
        for lane in range(min(LANES, last - block)):
            total = 0.0
            for r in range(R):
                total -= 2.0 * np.log(w[inv_diag + r, lane])
            out[block + lane] = total


@block_kernel
def second_moments(first, last, mean, cov, out):
    """Packed out[i] = cov_i + mean_i mean_i' of rows first:last."""
    for i in range(first, last):
        p = 0
        for a in range(mean.shape[1]):
            for b in range(a + 1):
                out[i, p] = cov[i, p] + mean[i, a] * mean[i, b]
                p += 1


@kernel
def packed_products(first, last, Lam, x, out):
    """out[i] = Lam_i x_i for rows first:last of x (n_rows, R); Lam (n_rows, P) is packed, or (1, P) for all rows."""
    for i in range(first, last):
        j, p = min(i, len(Lam) - 1), 0
        for a in range(x.shape[1]):
            total = 0.0
            for b in range(a):
                total += Lam[j, p + b] * x[i, b]
            for b in range(a):
                out[i, b] += Lam[j, p + b] * x[i, a]
            out[i, a] = total + Lam[j, p + a] * x[i, a]
            p += a + 1


@block_kernel
def squares_left(first, last, Lam, eta, x, out):
    """out[i] = x_i' Lam_i x_i - 2 eta_i' x_i for rows first:last of x (n, R), Lam (n, P) packed and eta (n, R)."""
    for i in range(first, last):
        total = 0.0
        for a in range(x.shape[1]):
            row, before = a * (a + 1) // 2, 0.0
            for b in range(a):
                before += Lam[i, row + b] * x[i, b]
            total += x[i, a] * (2.0 * (before - eta[i, a]) + Lam[i, row + a] * x[i, a])
        out[i] = total


@kernel
def row_divergences(first, last, rows, prior_Lam, prior_mean, out):
    """out[i] = KL(row i | prior) + log|prior_Lam_i| / 2 for rows first:last, which hold Lam, mean and cov."""
    # The last lines of prior_Lam and prior_mean serve the rows beyond them.
    R, P = rows.mean.shape[1], rows.Lam.shape[1]
    a, b, s, d, t, inv_diag, ok = 0, P, 2 * P, 3 * P, 3 * P + R, 3 * P + 2 * R, 3 * P + 3 * R
    w = np.zeros((ok + 3, LANES))
    index, line = np.empty(LANES, dtype=np.int32), np.empty(LANES, dtype=np.int32)
    for block in range(first, last, LANES):
        for lane in range(LANES):
            index[lane] = min(block + lane, last - 1)
            line[lane] = min(index[lane], len(prior_Lam) - 1)
        gather(index, rows.Lam, w, a)
        gather(line, prior_Lam, w, b)
        gather(index, rows.cov, w, s)
        gather(index, rows.mean, w, d)
        for lane in range(LANES):
            line[lane] = min(index[lane], len(prior_mean) - 1)
        gather(line, prior_mean, w, t)
        subtract(w, d, d, t, R)
        lanes.cholesky(w, a, inv_diag, ok, R)
        lanes.trace_product(w, b, s, ok + 1, R)
        lanes.symmetric_times_vector(w, b, d, t, R)
        dot(w, ok + 2, d, t, R)
        for lane in range(min(LANES, last - block)):
            total = 0.5 * (w[ok + 1, lane] + w[ok + 2, lane] - R)
            for r in range(R):
                total -= np.log(w[inv_diag + r, lane])
            out[block + lane] = total


@kernel
def draw_rows(first, last, line, Lam, eta, seed, sweep, out, good):
    """out[i] ~ N(Lam_j^-1 eta_i, Lam_j^-1), j = line[i], for the blocks of LANES rows first:last."""
    # With Lam = L L' the draw is L^-T (L^-1 eta + z). good[i] = 0 where Lam is not positive definite.
    n, R = eta.shape
    P = Lam.shape[1]
    a, t, inv_diag, vt = 0, P, P + R, P + 2 * R
    ok, x = vt + R * R, vt + R * R + 1
    w = np.zeros((x + 1, LANES))
    s = np.zeros(4, dtype=np.uint64)
    known = -1  # the line whose factors all lanes hold
    for block in range(first, last):
        start_stream(s, seed, sweep, block)
        low, high = len(Lam), -1
        for lane in range(LANES):
            i = min(block * LANES + lane, n - 1)
            low, high = min(low, line[i]), max(high, line[i])
            for k in range(R):
                w[t + k, lane] = eta[i, k]
        if low < high or low != known:
            for lane in range(LANES):
                j = line[min(block * LANES + lane, n - 1)]
                w[ok, lane] = 1.0
                for p in range(P):
                    w[a + p, lane] = Lam[j, p]
            lanes.cholesky(w, a, inv_diag, ok, R)
            lanes.invert_triangle(w, a, inv_diag, vt, R)
            known = low if low == high else -1
        lanes.solve_lower(w, a, inv_diag, t, R)
        for lane in range(LANES):
            for k in range(R):
                w[t + k, lane] += normal(s)
        for k in range(R):
            dot(w, x, vt + k * R + k, t + k, R - k)
            for lane in range(min(LANES, n - block * LANES)):
                out[block * LANES + lane, k] = w[x, lane]
        for lane in range(min(LANES, n - block * LANES)):
            good[block * LANES + lane] = w[ok, lane]
