"""Rows that are coupled in a chain: exact draws and marginals of a Gaussian with a block-tridiagonal precision.

The precision of m blocks of D numbers has blocks Lam_t on its diagonal and -diag(between_t) between block t and block
t + 1. Elimination forwards factorises

    L_t L_t' = D_t = Lam_t - C_{t-1} D_{t-1}^-1 C_{t-1},  h_t = eta_t + C_{t-1} D_{t-1}^-1 h_{t-1},  C = diag(between).

It is a Kalman filter in information form, linear in the blocks, that knows no transition which could be singular. Draws
and marginals follow backwards; all that they need are V_t = L_t^-1 and y_t = V_t h_t.

Work arrays have `padded` columns, so that lines are whole vectors: a block's line is worked on at once.

Source: Rue and Held (2005), Gaussian Markov Random Fields, sec. 2.4; Takahashi, Fagan and Chin (1973) for marginals.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import block_kernel, kernel
from tensorcep.kernels.outer import COLUMNS, ROWS, add_row, add_tile, multiply_rows, scale_row
from tensorcep.kernels.panels import FEW, eliminate_few, eliminate_lines
from tensorcep.kernels.streams import normal, start_stream

# Between these the product of pivots stays before its logarithm is taken: that of each takes as long as much else.
LEAST_PRODUCT, MOST_PRODUCT = 1e-100, 1e100


@block_kernel
def _load(t, Lam, precision, own, A):
    """The first D lines and columns of A become those of precision Lam[t] + diag(own[t])."""
    for i in range(own.shape[1]):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            number = precision * Lam[t, row + j]
            A[i, j] = number
            A[j, i] = number
        A[i, i] += own[t, i]


@block_kernel
def _times_panel(panel, spare, first, begin, end, M):
    """Lines first:first + COLUMNS of M become `panel` times themselves in the columns begin:end; `spare` is room."""
    S = M.shape[1]
    for j in range(begin, end, COLUMNS):
        for i in range(COLUMNS):
            scale_row(spare, i * S + j, M, (first + i) * S + j, 0.0, COLUMNS)
        for i in range(0, COLUMNS, ROWS):
            add_tile(COLUMNS, panel, i * COLUMNS, 1, COLUMNS, M, first * S + j, S, spare, i * S + j, S)
        for i in range(COLUMNS):
            scale_row(M, (first + i) * S + j, spare, i * S + j, 1.0, COLUMNS)


@block_kernel
def _eliminate_below(first, panel, spare, A, V, h, inverse):
    """Make lines first:first + COLUMNS of A and V ready, of which `panel` is known; take them off those below."""
    last, S = first + COLUMNS, len(A)
    _times_panel(panel, spare, first, last, S, A)
    _times_panel(panel, spare, first, 0, first, V)
    for k in range(COLUMNS):
        scale_row(V, (first + k) * S + first, panel, k * COLUMNS, 1.0, COLUMNS)
        scale_row(spare, k * S + last, A, (first + k) * S + last, -inverse[first + k], S - last)
        add_row(h, last, spare, k * S + last, h[0, first + k], S - last)
    for i in range(last, S, ROWS):
        for j in range(i & -COLUMNS, S, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, A, first * S + j, S, A, i * S + j, S)
        for j in range(0, last, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, V, first * S + j, S, V, i * S + j, S)


@block_kernel
def _factorise(D, A, V, h, panel, spare, inverse):
    """V A V' becomes diagonal, with `inverse` (S,) for its inverse, V being lower triangular, and h (1, S) becomes V h.

    A and V are (S, S), of which D lines count; the others of A are those of the unit matrix. A is overwritten; `panel`
    (COLUMNS, COLUMNS) and `spare` (COLUMNS, S) are room.
    """
    S = len(A)
    if D <= FEW:
        eliminate_few(A, 0, S, inverse, 0, V)
    elif S == COLUMNS:
        eliminate_lines(A, 0, S, inverse, 0, V)
    else:
        V[:] = 0.0
    for first in range(0, S, COLUMNS):
        if S > COLUMNS:
            eliminate_lines(A, first * S + first, S, inverse, first, panel)
        for i in range(COLUMNS - 1, -1, -1):
            for j in range(i):
                h[0, first + i] += (panel[i, j] if S > COLUMNS else V[i, j]) * h[0, first + j]
        if S > COLUMNS:
            _eliminate_below(first, panel, spare, A, V, h, inverse)


@kernel
def eliminate(Lam, eta, precision, own, field, between, V, y):
    """Eliminate forwards: packed V (m, P) and y (m, D) of packed blocks Lam (m, P) and natural means eta (m, D).

    Both are times `precision`, beside the diagonal own (m, D) and field (m, D); between is (m - 1, D). Gives the log
    determinant of the whole precision, NaN if it is not positive definite. V may be Lam.
    """
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    A, following, root, c, h = np.eye(S), np.eye(S), np.eye(S), np.zeros((1, S)), np.zeros((1, S))
    panel, spare, inverse = np.zeros((COLUMNS, COLUMNS)), np.zeros((COLUMNS, S)), np.ones(S)
    moved, minus = np.zeros((S, S)), np.zeros((S, S))  # V C, and less it over the pivots
    log_det, product, past = 0.0, 1.0, np.empty(D)
    _load(0, Lam, precision, own, following)
    for t in range(m):
        A, following = following, A
        if t + 1 < m:  # in time for what is stored by numbers to be loaded as vectors
            _load(t + 1, Lam, precision, own, following)
        for i in range(D):
            h[0, i] += precision * eta[t, i] + field[t, i]
        _factorise(D, A, root, h, panel, spare, inverse)
        if t + 1 < m:
            for i in range(D):
                c[0, i] = between[t, i]
            for q in range(D):
                size = (q & -COLUMNS) + COLUMNS
                multiply_rows(moved, q * S, root, q * S, c, 0, size)
                scale_row(minus, q * S, moved, q * S, -inverse[q], size)
            for j in range(0, D, COLUMNS):
                for i in range(0, j + COLUMNS, ROWS):
                    add_tile(D - j, moved, j * S + i, S, 1, minus, j * S + j, S, following, i * S + j, S)
        for i in range(D):
            row, scale, past[i] = i * (i + 1) // 2, math.sqrt(inverse[i]), h[0, i]
            y[t, i] = scale * past[i]
            for j in range(i + 1):
                V[t, row + j] = scale * root[i, j]
            if not inverse[i] > 0.0:
                return np.nan
            product *= inverse[i]
            if not LEAST_PRODUCT < product < MOST_PRODUCT:
                log_det -= math.log(product)
                product = 1.0
        h[:] = 0.0
        if t + 1 < m:
            for q in range(D):
                add_row(h, 0, minus, q * S, -past[q], (q & -COLUMNS) + COLUMNS)
    return log_det - math.log(product)


@block_kernel
def _conditional_mean(t, V, rest, between, following, x):
    """x = V_t' (rest + V_t C x_{t+1}); of the last block, which has no `following`, without the second part.

    `rest` (D,) is overwritten, and so is what `following` points to.
    """
    D = len(rest)
    if t < len(between):
        for i in range(D):
            following[i] *= between[t, i]
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                rest[i] += V[t, row + j] * following[j]
    for i in range(D):
        row = i * (i + 1) // 2
        x[i] = 0.0
        for j in range(i + 1):
            x[j] += V[t, row + j] * rest[i]


@kernel
def draw_back(V, y, between, key, out):
    """A draw of all blocks to out (m, D) after `eliminate`; `key` is (seed, sweep, what) of the stream."""
    m, D = y.shape
    rest, following, s = np.empty(D), np.empty(D), np.zeros(4, dtype=np.uint64)
    for t in range(m - 1, -1, -1):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + t)
        for i in range(D):
            rest[i] = y[t, i] + normal(s)
        _conditional_mean(t, V, rest, between, following, out[t])
        for i in range(D):
            following[i] = out[t, i]


@block_kernel
def _products(x, y, out, D):
    """out += x' y, all (S, S), of which the first D lines count."""
    S = len(out)
    for i in range(0, S, ROWS):
        for j in range(0, S, COLUMNS):
            add_tile(D, x, i, S, 1, y, j, S, out, i * S + j, S)


@kernel
def marginals_back(V, y, between, mean, cov, cross):
    """Means (m, D), packed covariances (m, P) and Cov(x_t, x_{t+1})_ii, (m - 1, D), after `eliminate`.

    With G_t = D_t^-1 C_t the covariance of block t is D_t^-1 + G_t S_{t+1} G_t'.
    """
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    rest, following = np.empty(D), np.empty(D)
    root, inverse, moved = np.zeros((S, S)), np.zeros((S, S)), np.zeros((S, S))
    now, between_both = np.zeros((S, S)), np.zeros((S, S))
    for t in range(m - 1, -1, -1):
        for i in range(D):
            rest[i] = y[t, i]
        _conditional_mean(t, V, rest, between, following, mean[t])
        for i in range(D):
            following[i] = mean[t, i]
            row = i * (i + 1) // 2
            for j in range(i + 1):
                root[i, j] = V[t, row + j]
        inverse[:] = 0.0
        _products(root, root, inverse, D)
        if t < m - 1:
            for i in range(D):
                scale_row(moved, i * S, inverse, i * S, between[t, i], S)
            between_both[:] = 0.0
            _products(now, moved, between_both, D)
            for i in range(D):
                cross[t, i] = between_both[i, i]
            _products(between_both, moved, inverse, D)
        now, inverse = inverse, now
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                cov[t, row + j] = now[i, j]
