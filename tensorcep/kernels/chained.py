"""Rows that are coupled in a chain: exact draws and marginals of a Gaussian with a block-tridiagonal precision.

The precision of m blocks of D numbers has the packed blocks Lam_t (m, P) on its diagonal and -diag(between_t), (m - 1,
D), between block t and block t + 1. Elimination forwards leaves, in place of Lam_t, the Cholesky factor L_t of

    D_t = Lam_t - C_{t-1} D_{t-1}^-1 C_{t-1},    h_t = eta_t + C_{t-1} D_{t-1}^-1 h_{t-1},    C = diag(between),

and y_t = L_t^-1 h_t in place of eta_t. It is a Kalman filter in information form, linear in the blocks, that knows no
transition which could be singular. Draws and marginals follow backwards.

Source: Rue and Held (2005), Gaussian Markov Random Fields, sec. 2.4; Takahashi, Fagan and Chin (1973) for marginals.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import block_kernel, kernel
from tensorcep.kernels.streams import normal, start_stream


@block_kernel
def factorise(Lam, t, D):
    """The Cholesky factor of the packed Lam[t], in place; whether it is positive definite."""
    for i in range(D):
        row_i = i * (i + 1) // 2
        for j in range(i + 1):
            row_j = j * (j + 1) // 2
            total = Lam[t, row_i + j]
            for k in range(j):
                total -= Lam[t, row_i + k] * Lam[t, row_j + k]
            if i > j:
                Lam[t, row_i + j] = total / Lam[t, row_j + j]
            elif total > 0.0:
                Lam[t, row_i + i] = math.sqrt(total)
            else:
                return False
    return True


@block_kernel
def _invert(Lam, t, D, V):
    """V = L^-1, lower triangular, of the packed factor L = Lam[t]."""
    for i in range(D):
        row = i * (i + 1) // 2
        scale = 1.0 / Lam[t, row + i]
        for j in range(i):
            V[i, j] = 0.0
        for k in range(i):
            f = -Lam[t, row + k] * scale
            for j in range(k + 1):
                V[i, j] += f * V[k, j]
        V[i, i] = scale


@block_kernel
def solve_lower(Lam, t, D, x):
    """x = L^-1 x."""
    for i in range(D):
        row = i * (i + 1) // 2
        total = x[i]
        for j in range(i):
            total -= Lam[t, row + j] * x[j]
        x[i] = total / Lam[t, row + i]


@block_kernel
def solve_upper(Lam, t, D, x):
    """x = L^-T x."""
    for i in range(D - 1, -1, -1):
        row = i * (i + 1) // 2
        x[i] /= Lam[t, row + i]
        for j in range(i):
            x[j] -= Lam[t, row + j] * x[i]


@kernel
def eliminate(Lam, eta, between):
    """Eliminate forwards, in place; gives the log determinant of the precision, NaN if it is not positive definite."""
    m, D = eta.shape
    V, x, log_det = np.zeros((D, D)), np.empty(D), 0.0
    for t in range(m):
        if t > 0:
            _invert(Lam, t - 1, D, V)
            for k in range(D):
                for i in range(k + 1):
                    V[k, i] *= between[t - 1, i]
                y = eta[t - 1, k]
                for i in range(k + 1):
                    row, f = i * (i + 1) // 2, V[k, i]
                    eta[t, i] += f * y
                    for j in range(i + 1):
                        Lam[t, row + j] -= f * V[k, j]
        if not factorise(Lam, t, D):
            return np.nan
        for i in range(D):
            x[i] = eta[t, i]
            log_det += 2.0 * math.log(Lam[t, i * (i + 3) // 2])
        solve_lower(Lam, t, D, x)
        for i in range(D):
            eta[t, i] = x[i]
    return log_det


@kernel
def draw_back(Lam, eta, between, key, out):
    """A draw of all blocks to out (m, D) after `eliminate`; `key` is (seed, sweep, what) of the stream."""
    m, D = eta.shape
    x, s = np.empty(D), np.zeros(4, dtype=np.uint64)
    for t in range(m - 1, -1, -1):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + t)
        for i in range(D):
            x[i] = between[t, i] * out[t + 1, i] if t < m - 1 else 0.0
        if t < m - 1:
            solve_lower(Lam, t, D, x)
        for i in range(D):
            x[i] += eta[t, i] + normal(s)
        solve_upper(Lam, t, D, x)
        for i in range(D):
            out[t, i] = x[i]


@block_kernel
def _inverse(V, D, S):
    """S = V'V, the inverse of the matrix whose inverted Cholesky factor is V."""
    for i in range(D):
        for j in range(D):
            S[i, j] = 0.0
    for k in range(D):
        for i in range(k + 1):
            f = V[k, i]
            for j in range(i + 1):
                S[i, j] += f * V[k, j]
    for i in range(D):
        for j in range(i):
            S[j, i] = S[i, j]


@block_kernel
def _covariance(t, D, V, between, S, G, T, cross):
    """S becomes that of block t from that of block t + 1, V = L_t^-1: D^-1 + G S G' with G = D^-1 C."""
    for i in range(D):
        for j in range(D):
            T[i, j] = 0.0
    _inverse(V, D, G)
    for i in range(D):
        for k in range(D):
            f = G[i, k] * between[t, k]
            for j in range(D):
                T[i, j] += f * S[k, j]
        cross[t, i] = T[i, i]
    for i in range(D):
        for j in range(i + 1):
            total = G[i, j]
            for k in range(D):
                total += T[i, k] * G[j, k] * between[t, k]
            S[i, j] = total
    for i in range(D):
        for j in range(i):
            S[j, i] = S[i, j]


@kernel
def marginals_back(Lam, eta, between, mean, cov, cross):
    """Means (m, D), packed covariances (m, P) and Cov(x_t, x_{t+1})_ii, (m - 1, D), after `eliminate`."""
    m, D = eta.shape
    x, V, S, G, T = np.empty(D), np.zeros((D, D)), np.empty((D, D)), np.empty((D, D)), np.empty((D, D))
    for t in range(m - 1, -1, -1):
        for i in range(D):
            x[i] = between[t, i] * mean[t + 1, i] if t < m - 1 else 0.0
        if t < m - 1:
            solve_lower(Lam, t, D, x)
        for i in range(D):
            x[i] += eta[t, i]
        solve_upper(Lam, t, D, x)
        _invert(Lam, t, D, V)
        if t < m - 1:
            _covariance(t, D, V, between, S, G, T, cross)
        else:
            _inverse(V, D, S)
        for i in range(D):
            mean[t, i] = x[i]
            for j in range(i + 1):
                cov[t, i * (i + 1) // 2 + j] = S[i, j]
