"""The parallel CEP sweep of order 3 written in the plainest way: entry after entry, nested loops over R x R arrays.

It computes what `tensorcep.cp.cep.method` computes with schedule="parallel", moments="cavity" and order=1, for the
Gaussian and the probit likelihood, and is what the lane kernels are timed against.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import kernel
from tensorcep.core.packing import unpack
from tensorcep.cp.model.problem import Problem

SQRT_2, SQRT_2PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
ERFC_LIMIT = -36.0  # below it the normal distribution function leaves the range of float64


class PlainState(NamedTuple):
    """Messages Lam (N, K, R, R), eta (N, K, R), a and b (N,); rows Lam (n_rows, R, R), eta (n_rows, R); noise (2,)."""

    Lam: np.ndarray
    eta: np.ndarray
    a: np.ndarray
    b: np.ndarray
    row_Lam: np.ndarray
    row_eta: np.ndarray
    noise: np.ndarray


def plain_state(problem: Problem, noise_message: tuple[float, float]) -> PlainState:
    """Empty messages, and rows at the starting means with the prior's precision."""
    n, K, R = len(problem.entries.permutation), len(problem.shape), problem.rank
    Lam = unpack(problem.prior.Lam, R)
    eta = problem.prior.eta.copy() if problem.start is None else np.einsum("nij,nj->ni", Lam, problem.start)
    a, b = np.full(n, noise_message[0]), np.full(n, noise_message[1])
    noise = np.ones(2)
    if problem.noise_prior is not None:
        noise = np.array([problem.noise_prior.a + a.sum(), problem.noise_prior.b + b.sum()])
    return PlainState(np.zeros((n, K, R, R)), np.zeros((n, K, R)), a, b, Lam, eta, noise)


def plain_sweep(state: PlainState, problem: Problem, step: float) -> PlainState:
    """One parallel sweep with the fraction `step` of the new messages."""
    n, R = len(problem.entries.permutation), problem.rank
    rows = np.ascontiguousarray(problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[:n])
    y = problem.entries.y.ravel()[:n]
    new_Lam, new_eta = unpack(problem.prior.Lam, R), problem.prior.eta.copy()
    gaussian = problem.noise_prior is not None
    _sweep(rows, y, *state, new_Lam, new_eta, step, gaussian)
    noise = state.noise
    if problem.noise_prior is not None:
        noise = np.array([problem.noise_prior.a + state.a.sum(), problem.noise_prior.b + state.b.sum()])
    return state._replace(row_Lam=new_Lam, row_eta=new_eta, noise=noise)


@kernel
def _invert(a, work, out):  # type: ignore[no-untyped-def]
    """out = a^-1 for a symmetric positive definite a, by its Cholesky factor."""
    R = a.shape[0]
    for i in range(R):
        for j in range(i + 1):
            total = a[i, j]
            for q in range(j):
                total -= work[i, q] * work[j, q]
            work[i, j] = math.sqrt(total) if i == j else total / work[j, j]
    for c in range(R):
        for i in range(R):
            total = 1.0 if i == c else 0.0
            for q in range(i):
                total -= work[i, q] * out[q, c]
            out[i, c] = total / work[i, i]
        for i in range(R - 1, -1, -1):
            total = out[i, c]
            for q in range(i + 1, R):
                total -= work[q, i] * out[q, c]
            out[i, c] = total / work[i, i]


@kernel
def _probit(y, m, v):  # type: ignore[no-untyped-def]
    """alpha and beta of a probit likelihood with labels -1 and +1."""
    root = math.sqrt(1.0 + v)
    z = y * m / root
    if z > ERFC_LIMIT:
        hazard = math.exp(-0.5 * z * z) / (SQRT_2PI * 0.5 * math.erfc(-z / SQRT_2))
    else:
        hazard = -z - 1.0 / z
    return y * hazard / root, hazard * (z + hazard) / (1.0 + v)


@kernel
def _probit_message(y, z, Z2, S, m, Lam, eta, work, new_cov, T, t):  # type: ignore[no-untyped-def]
    """Message T, t that turns the cavity (S, m; Lam, eta) into the covariance S - S A S and the mean m + alpha S z."""
    R = len(z)
    f_mean, f_var = 0.0, 0.0
    for r in range(R):
        f_mean += z[r] * m[r]
        for c in range(R):
            f_var += Z2[r, c] * S[r, c]
    alpha, beta = _probit(y, f_mean, f_var)
    for r in range(R):
        for c in range(R):
            T[r, c] = alpha * alpha * z[r] * z[c] + (beta - alpha * alpha) * Z2[r, c]
    for r in range(R):
        for c in range(R):
            total = 0.0
            for q in range(R):
                total += S[r, q] * T[q, c]
            work[r, c] = total
    for r in range(R):
        for c in range(R):
            total = S[r, c]
            for q in range(R):
                total -= work[r, q] * S[q, c]
            new_cov[r, c] = total
    _invert(new_cov, work, T)
    for r in range(R):
        t[r] = m[r]
        for c in range(R):
            t[r] += S[r, c] * alpha * z[c]
    for r in range(R):
        total = 0.0
        for c in range(R):
            total += T[r, c] * t[c]
        work[0, r] = total - eta[r]
    for r in range(R):
        t[r] = work[0, r]
        for c in range(R):
            T[r, c] -= Lam[r, c]


@kernel
def _sweep(rows, y, Lam, eta, a, b, row_Lam, row_eta, noise, new_Lam, new_eta, step, gaussian):  # type: ignore[no-untyped-def]
    n, K = rows.shape
    R = row_eta.shape[1]
    S, cavity, G = np.empty((K, R, R)), np.empty((K, R, R)), np.empty((K, R, R))
    m, cavity_eta = np.empty((K, R)), np.empty((K, R))
    work, new_cov, T, Z2 = np.empty((R, R)), np.empty((R, R)), np.empty((R, R)), np.empty((R, R))
    z, t = np.empty(R), np.empty(R)
    for i in range(n):
        for k in range(K):
            for r in range(R):
                cavity_eta[k, r] = row_eta[rows[i, k], r] - eta[i, k, r]
                for c in range(R):
                    cavity[k, r, c] = row_Lam[rows[i, k], r, c] - Lam[i, k, r, c]
            _invert(cavity[k], work, S[k])
            for r in range(R):
                total = 0.0
                for c in range(R):
                    total += S[k, r, c] * cavity_eta[k, c]
                m[k, r] = total
            for r in range(R):
                for c in range(R):
                    G[k, r, c] = S[k, r, c] + m[k, r] * m[k, c]
        theta = (noise[0] - a[i]) / (noise[1] - b[i])
        for k in range(K):
            for r in range(R):
                z[r] = 1.0
                for c in range(R):
                    Z2[r, c] = 1.0
            for other in range(K):
                if other != k:
                    for r in range(R):
                        z[r] *= m[other, r]
                        for c in range(R):
                            Z2[r, c] *= G[other, r, c]
            if gaussian:
                for r in range(R):
                    t[r] = theta * y[i] * z[r]
                    for c in range(R):
                        T[r, c] = theta * Z2[r, c]
            else:
                _probit_message(y[i], z, Z2, S[k], m[k], cavity[k], cavity_eta[k], work, new_cov, T, t)
            if gaussian and k == K - 1:
                f1, f2 = 0.0, 0.0
                for r in range(R):
                    f1 += z[r] * m[k, r]
                    for c in range(R):
                        f2 += Z2[r, c] * G[k, r, c]
                a[i] += step * (0.5 - a[i])
                b[i] += step * (0.5 * (y[i] * y[i] - 2.0 * y[i] * f1 + f2) - b[i])
            for r in range(R):
                eta[i, k, r] += step * (t[r] - eta[i, k, r])
                new_eta[rows[i, k], r] += eta[i, k, r]
                for c in range(R):
                    Lam[i, k, r, c] += step * (T[r, c] - Lam[i, k, r, c])
                    new_Lam[rows[i, k], r, c] += Lam[i, k, r, c]
