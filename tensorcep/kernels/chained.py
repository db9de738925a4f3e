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
from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, inlined, kernel
from tensorcep.kernels.outer import COLUMNS, ROWS, add_row, add_tile, multiply_rows, padded, scale_row
from tensorcep.kernels.panels import FEW, eliminate_block, eliminate_few, eliminate_lines, mean_of_block
from tensorcep.kernels.streams import normals, start_stream

# Between these the product of pivots stays before its logarithm is taken: that of each takes as long as much else.
LEAST_PRODUCT, MOST_PRODUCT = 1e-100, 1e100


class Carry(NamedTuple):
    """What elimination of the blocks before a block leaves for it, and room.

    Attributes
    ----------
    start : (S, S)
        What is added to the upper triangle of the block's precision.
    h : (1, S)
        What is added to its natural mean.
    sums : (2,)
        A log determinant, and a product of inverse pivots whose logarithm is not taken off it yet.
    A, following : (S, S), and inverse : (S,)
    more : tuple of arrays
        Room of `_eliminate_many`.
    """

    start: np.ndarray
    h: np.ndarray
    sums: np.ndarray
    A: np.ndarray
    following: np.ndarray
    inverse: np.ndarray
    more: tuple[np.ndarray, ...]


def nothing_before(D: int) -> Carry:
    """What the first block of D numbers begins with."""
    S = padded(D)
    more = np.eye(S), np.zeros((1, S)), np.zeros((COLUMNS, COLUMNS)), np.zeros((COLUMNS, S)), *np.zeros((2, S, S))
    room = np.eye(S), np.eye(S), np.ones(S), (*more, np.empty(D))
    return Carry(np.zeros((S, S)), np.zeros((1, S)), np.array([0.0, 1.0]), *room)


@block_kernel
def _load(q, Lam, precision, t, own, A):
    """The upper triangle of the first D lines of A becomes that of precision Lam[q] + diag(own[t])."""
    for i in range(own.shape[1]):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            A[j, i] = precision * Lam[q, row + j]
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
def _factorise(A, V, h, panel, spare, inverse):
    """V A V' becomes diagonal, with `inverse` (S,) for its inverse, V being lower triangular, and h (1, S) becomes V h.

    A and V are (S, S), more than one panel wide. A is overwritten; `panel` (COLUMNS, COLUMNS) and `spare` (COLUMNS, S)
    are room.
    """
    S = len(A)
    V[:] = 0.0
    for first in range(0, S, COLUMNS):
        eliminate_lines(A, first * S + first, S, inverse, first, panel)
        for i in range(COLUMNS - 1, -1, -1):
            total = h[0, first + i]
            for j in range(i):
                total += panel[i, j] * h[0, first + j]
            h[0, first + i] = total
        _eliminate_below(first, panel, spare, A, V, h, inverse)


@block_kernel
def _take_off(D, V, c, h, inverse, moved, minus, following):
    """Take what a block says of the next one off `following`; h (1, S) becomes what it adds to the natural mean."""
    S = len(V)
    for q in range(D):
        size = (q & -COLUMNS) + COLUMNS
        multiply_rows(moved, q * S, V, q * S, c, 0, size)
        scale_row(minus, q * S, moved, q * S, -inverse[q], size)
    for j in range(0, D, COLUMNS):
        for i in range(0, j + COLUMNS, ROWS):
            add_tile(D - j, moved, j * S + i, S, 1, minus, j * S + j, S, following, i * S + j, S)


@inlined
def _eliminate_many(t, q, given, A, h, V, y, inverse, following, room):
    """As `panels.eliminate_block`, of more lines than one panel has."""
    eta, field, between, precision = given
    root, c, panel, spare, moved, minus, past = room
    m, (D, S) = len(V), (eta.shape[1], len(A))
    for i in range(D):
        h[0, i] += precision * eta[q, i] + field[t, i]
        c[0, i] = between[t, i] if t + 1 < m else 0.0
    _factorise(A, root, h, panel, spare, inverse)
    _take_off(D, root, c, h, inverse, moved, minus, following)
    for i in range(D):
        row, scale, past[i] = i * (i + 1) // 2, math.sqrt(inverse[i]), h[0, i]
        y[t, i] = scale * past[i]
        for j in range(i + 1):
            V[t, row + j] = scale * root[i, j]
    h[:] = 0.0
    for i in range(D):
        add_row(h, 0, minus, i * S, -past[i], (i & -COLUMNS) + COLUMNS)


@kernel
def eliminate(first, Lam, eta, precision, own, field, between, V, y, carry):
    """Eliminate the blocks first:first + k of a chain forwards, which Lam (k, P) and eta (k, D) tell of.

    Gives packed V (m, P) and y (m, D) of these blocks. Both, packed blocks and natural means, are times `precision`,
    beside the diagonal own (m, D) and field (m, D); between is (m - 1, D). `carry` (Carry) has what is before and,
    then, before the next one. V may be Lam. After the last block the log determinant of the whole precision is given,
    NaN if it is not positive definite.
    """
    k, (m, D), P = len(Lam), y.shape, V.shape[1]
    start, h, sums, A, following, inverse, more = carry
    log_det, product = sums[0], sums[1]
    _load(0, Lam, precision, first, own, following)
    for i in range(D):
        for j in range(i + 1):
            following[j, i] += start[j, i]
    for q in range(k):
        A, following = following, A
        t = first + q
        if q + 1 < k:  # in time for what is stored by numbers to be loaded as vectors
            _load(q + 1, Lam, precision, t + 1, own, following)
        else:
            following[:D, :D] = 0.0
        E = D if t + 1 < m else 0
        if D <= FEW:
            eliminate_few(A, h, eta, q * D, field, between, t * D, D, E, precision, V, t * P, y, inverse, following)
        elif len(A) == COLUMNS:
            eliminate_block(A, h, eta, q * D, field, between, t * D, D, E, precision, V, t * P, y, inverse, following)
        else:
            _eliminate_many(t, q, (eta, field, between, precision), A, h, V, y, inverse, following, more)
        for i in range(D):
            if not inverse[i] > 0.0:
                return np.nan
            product *= inverse[i]
            if not LEAST_PRODUCT < product < MOST_PRODUCT:
                log_det -= math.log(product)
                product = 1.0
    for i in range(D):
        for j in range(i + 1):
            start[j, i] = following[j, i]
    sums[0], sums[1] = log_det, product
    return log_det - math.log(product)


@block_kernel
def _draw_block(t, V, y, noise, between, x, rest, out):
    """out[t] and x become V_t' (y_t + noise + V_t C x), x (S,) being the next block before; the last one has none.

    noise and rest are (S,), the latter room.
    """
    m, (D, P) = len(V), (y.shape[1], V.shape[1])
    E = D if t + 1 < m else 0
    if len(x) == COLUMNS:
        mean_of_block(V, t * P, y, noise, between, t * D, D, E, x, out)
        return
    for i in range(D):
        x[i] = x[i] * between[t, i] if i < E else 0.0
    for i in range(D):
        row, total = i * (i + 1) // 2, y[t, i] + noise[i]
        for j in range(i + 1):
            total += V[t, row + j] * x[j]
        rest[i] = total
    for i in range(D):
        row = i * (i + 1) // 2
        x[i] = 0.0
        for j in range(i + 1):
            x[j] += V[t, row + j] * rest[i]
    for i in range(D):
        out[t, i] = x[i]


@kernel
def draw_back(V, y, between, key, out):
    """A draw of all blocks to out (m, D) after `eliminate`; `key` is (seed, sweep, what) of the stream."""
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    x, rest, spare, s = np.zeros(S), np.zeros(S), np.empty(S + 1), np.zeros(4, dtype=np.uint64)
    noise, following = np.zeros(S + 1), np.zeros(S + 1)
    for t in range(m, -1, -1):
        noise, following = following, noise
        if t > 0:  # in time for what is stored by numbers to be loaded as vectors
            start_stream(s, key[0], key[1], key[2] * (1 << 32) + t - 1)
            normals(s, D, following, spare)
        if t < m:
            _draw_block(t, V, y, noise, between, x, rest, out)


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
    rest, x, nothing = np.zeros(S), np.zeros(S), np.zeros(S)
    root, inverse, moved = np.zeros((S, S)), np.zeros((S, S)), np.zeros((S, S))
    now, between_both = np.zeros((S, S)), np.zeros((S, S))
    for t in range(m - 1, -1, -1):
        _draw_block(t, V, y, nothing, between, x, rest, mean)
        for i in range(D):
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
