"""The compiled draw of a new row whose entries are not Gaussian in f, everything else known.

The row's posterior is p(u) = N(u; prior) prod_n p(y_n | z_n'u + c_n), log-concave for every likelihood that samplers
take. Newton's steps find its mode and the precision there; a draw from the multivariate t distribution about it starts
a chain of independence Metropolis-Hastings steps with the same proposals (Tierney 1994, "Markov chains for exploring
posterior distributions", sec. 2.3). The t distribution has heavier tails than the posterior, whose tails are not above
those of the prior: the chain converges at a geometric rate whatever the entries say, and most proposals are taken.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, call_loglik
from tensorcep.cp.gibbs.sweep import ModeColumns, product_of_others
from tensorcep.kernels.outer import add_outer_products, dot_row, padded
from tensorcep.kernels.slots import lane_zeros
from tensorcep.kernels.streams import gamma, new_stream, normal, start_stream, uniform

# Newton's steps, at most, the halvings of all of them, and the squared length of a step, in standard deviations, that
# is the last one: the proposals, not the draws, depend on it.
NEWTON, HALVINGS, SETTLED = 30, 20, 1e-4
# Steps of the chain after the first draw, and degrees of freedom of the proposals beyond the number of columns.
STEPS, MORE_DF = 6, 4.0


class PosteriorRoom(NamedTuple):
    """Work space of one thread, for rows of at most n entries.

    Attributes
    ----------
    z, weighted : (n, W)
        Products of the other modes' rows, and the same times the curvature of the entry's log likelihood.
    rest : (n,)
        Sums of the columns that are clamped.
    f, value, d1, d2 : (n,)
        Latent values, and the log likelihood there with its derivatives.
    gram : (S + 1, S)
    lower : (S, S)
        The Cholesky factor of the precision.
    mode, before, step, now : (1, W)
    stream : (4,) uint64
    """

    z: np.ndarray
    weighted: np.ndarray
    rest: np.ndarray
    f: np.ndarray
    value: np.ndarray
    d1: np.ndarray
    d2: np.ndarray
    gram: np.ndarray
    lower: np.ndarray
    mode: np.ndarray
    before: np.ndarray
    step: np.ndarray
    now: np.ndarray
    stream: np.ndarray


def posterior_room(n: int, columns: ModeColumns) -> PosteriorRoom:
    """Work space for rows of at most n entries."""
    W, S = len(columns.order), padded(len(columns.free))
    return PosteriorRoom(
        z=lane_zeros((n, W)),
        weighted=lane_zeros((n, W)),
        rest=np.zeros(n),
        f=np.zeros(n),
        value=np.zeros(n),
        d1=np.zeros(n),
        d2=np.zeros(n),
        gram=lane_zeros((S + 1, S)),
        lower=lane_zeros((S, S)),
        mode=lane_zeros((1, W)),
        before=lane_zeros((1, W)),
        step=lane_zeros((1, W)),
        now=lane_zeros((1, W)),
        stream=new_stream(),
    )


@block_kernel
def _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room):
    """Log density of the row u (1, W) but for a constant; leaves f and the derivatives of the entries in the room."""
    W, R = room.z.shape[1], len(prior_eta)
    for q in range(n):
        room.f[q] = room.rest[q] + dot_row(room.z, q * W, u, 0, W)
    call_loglik(loglik, y, room.f[:n], theta, room.value[:n], room.d1[:n], room.d2[:n])
    total, p = 0.0, 0
    for q in range(n):
        total += room.value[q]
    for a in range(R):
        total += u[0, a] * prior_eta[a]
        for b in range(a):
            total -= u[0, a] * prior_Lam[p + b] * u[0, b]
        total -= 0.5 * prior_Lam[p + a] * u[0, a] * u[0, a]
        p += a + 1
    return total


@block_kernel
def _newton_step(n, prior_Lam, prior_eta, u, room):
    """Newton's step from u to `room.step`, the precision's factor to `room.lower`; gives the squared length of it."""
    W, R, gram, lower, step = room.z.shape[1], len(prior_eta), room.gram, room.lower, room.step
    S = gram.shape[1]
    gram[:] = 0.0
    for q in range(n):
        weight = max(0.0, -room.d2[q])
        for a in range(W):
            room.weighted[q, a] = weight * room.z[q, a]
    add_outer_products(n, R, room.weighted, room.z, room.d1, gram)
    for a in range(R):
        total = prior_eta[a] + gram[S, a]
        for b in range(R):
            total -= prior_Lam[a * (a + 1) // 2 + b if b <= a else b * (b + 1) // 2 + a] * u[0, b]
        step[0, a] = total
    for a in range(R):
        for b in range(a + 1):
            total = gram[a, b] + prior_Lam[a * (a + 1) // 2 + b]
            for c in range(b):
                total -= lower[a, c] * lower[b, c]
            lower[a, b] = total / lower[b, b] if b < a else math.sqrt(total)
    size = 0.0
    for a in range(R):
        total = step[0, a]
        for b in range(a):
            total -= lower[a, b] * step[0, b]
        step[0, a] = total / lower[a, a]
        size += step[0, a] * step[0, a]
    _solve_upper(R, lower, step)
    return size


@block_kernel
def _solve_upper(R, lower, x):
    """x = lower^-T x."""
    for a in range(R - 1, -1, -1):
        total = x[0, a]
        for b in range(a + 1, R):
            total -= lower[b, a] * x[0, b]
        x[0, a] = total / lower[a, a]


@block_kernel
def _find_mode(n, loglik, y, theta, prior_Lam, prior_eta, room):
    """Move `room.mode` to the mode of the posterior."""
    u, before, R = room.mode, room.before, len(prior_eta)
    best, halvings = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room), 0
    for _ in range(NEWTON):
        size = _newton_step(n, prior_Lam, prior_eta, u, room)
        for a in range(R):
            before[0, a] = u[0, a]
            u[0, a] += room.step[0, a]
        found = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room)
        while not found >= best - SETTLED and halvings < HALVINGS:
            halvings += 1
            for a in range(R):
                u[0, a] = 0.5 * (u[0, a] + before[0, a])
            found = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room)
        best = found
        if size < SETTLED:
            break


@block_kernel
def _propose(R, room):
    """A proposal to `room.now`; gives the log of its density, but for a constant."""
    s, now, df = room.stream, room.now, MORE_DF + R
    square = 0.0
    for a in range(R):
        now[0, a] = normal(s)
        square += now[0, a] * now[0, a]
    scale = df / (2.0 * gamma(s, 0.5 * df))
    _solve_upper(R, room.lower, now)
    for a in range(R):
        now[0, a] = room.mode[0, a] + math.sqrt(scale) * now[0, a]
    return -0.5 * (df + R) * math.log1p(square * scale / df)


@block_kernel
def draw_posterior_rows(first, last, lists, source, columns, loglik, y, theta, prior, key, modes, out, room):
    """Draw the rows first:last of `out` (n, R), whose clamped columns stay.

    `lists` and `source` are those of `gibbs.sweep.draw_rows`; y and theta (N,) are in the order of the lists, and
    `loglik` is the address of the likelihood's kernel. `prior` is (Lam (P,), eta (Q,)), packed, of the free columns;
    `modes` (n, Q) is where Newton's steps start, and becomes where they end. `key` is (seed, sweep, part).
    """
    start, end, others = lists
    prior_Lam, prior_eta = prior
    R, s = len(prior_eta), room.stream
    for i in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + i)
        a, b = start[i], end[i]
        n = b - a
        for q in range(n):
            room.rest[q] = product_of_others(q, R, others[a + q], source, columns.clamped, room.z)
        for r in range(R):
            room.mode[0, r] = modes[i, r]
        _find_mode(n, loglik, y[a:b], theta[a:b], prior_Lam, prior_eta, room)
        for r in range(R):
            modes[i, r] = room.mode[0, r]
        weight = -np.inf
        for step in range(STEPS + 1):
            log_t = _propose(R, room)
            new = _log_posterior(n, loglik, y[a:b], theta[a:b], prior_Lam, prior_eta, room.now, room) - log_t
            if step == 0 or math.log(uniform(s)) < new - weight:
                weight = new
                for r in range(R):
                    out[i, columns.free[r]] = room.now[0, r]
