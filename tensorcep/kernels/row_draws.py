"""Draws from the Gaussian distributions of many rows, given their natural parameters."""

from __future__ import annotations

import numpy as np

from tensorcep.core.jit import kernel
from tensorcep.kernels.lanes import cholesky, invert_triangle, solve_lower
from tensorcep.kernels.slots import LANES, dot
from tensorcep.kernels.streams import normal, start_stream


@kernel
def draw_rows(first, last, line, Lam, eta, seed, sweep, out, good):
    """out[i] ~ N(Lam_j^-1 eta_i, Lam_j^-1), j = line[i], for the blocks of LANES rows first:last.

    With Lam = L L' the draw is L^-T (L^-1 eta + z). good[i] = 0 where Lam is not positive definite. Blocks whose rows
    share a line with those before them take their factors.
    """
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
            cholesky(w, a, inv_diag, ok, R)
            invert_triangle(w, a, inv_diag, vt, R)
            known = low if low == high else -1
        solve_lower(w, a, inv_diag, t, R)
        for lane in range(LANES):
            for k in range(R):
                w[t + k, lane] += normal(s)
        for k in range(R):
            dot(w, x, vt + k * R + k, t + k, R - k)
            for lane in range(min(LANES, n - block * LANES)):
                out[block * LANES + lane, k] = w[x, lane]
        for lane in range(min(LANES, n - block * LANES)):
            good[block * LANES + lane] = w[ok, lane]
