"""Compiled sweeps over the messages of a factorised generalised linear model.

Row i of the design sends each weight d with x_id != 0 a Gaussian message with precision tau and natural mean nu. All
messages of a sweep are made from the same posterior (the parallel schedule), chunk by chunk of rows; each chunk adds
its messages up in a line of its own, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import call_loglik, call_tilted, call_tilted2, kernel
from tensorcep.ep.sites import cavity, damp, log_integral, site_from_tilted
from tensorcep.kernels.special import newton_or_middle

# Newton steps of a Laplace mode; from the last sweep's mode two or three are enough.
MAX_NEWTON = 60
NEWTON_TOL = 1e-12


class Rows(NamedTuple):
    """The design in compressed rows, labels -1/+1, and the first row of each chunk."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    y: np.ndarray
    chunk_start: np.ndarray


class GLMMessages(NamedTuple):
    """Precision, natural mean and the last change of it of every message, (nnz,) each; Laplace mode of every row."""

    tau: np.ndarray
    nu: np.ndarray
    velocity: np.ndarray
    mode: np.ndarray


class GLMRule(NamedTuple):
    """How messages are made.

    Attributes
    ----------
    address : int
        Kernel of the likelihood: `tilted`, `tilted2` where `second`, `loglik` for Laplace modes.
    step : float
        Fraction of the way that a message goes to its new value.
    momentum : float
        Fraction of the last change of its natural mean that a message makes again.
    floor : float
        Messages whose precision would be negative get this one.
    keep_nu : bool
        Whether a raised message keeps its old natural mean (as the published code does) or its new mean.
    """

    address: int
    laplace: bool
    second: bool
    step: float
    momentum: float
    floor: float
    keep_nu: bool


class GLMSums(NamedTuple):
    """Per chunk: sums of the new messages and of the undamped changes of nu, (chunks, d) each; counts, (chunks, 2).

    The counts are the sum of squared changes of nu, and the number of messages left as they were.
    """

    tau: np.ndarray
    nu: np.ndarray
    gap: np.ndarray
    counts: np.ndarray


class GLMBuffers(NamedTuple):
    """Buffers, one number per call of the likelihood in a block; `theta` is what the likelihood gets as it is."""

    y: np.ndarray
    m: np.ndarray
    v: np.ndarray
    theta: np.ndarray
    logz: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    alpha2: np.ndarray
    beta2: np.ndarray
    rest: np.ndarray


@kernel
def _store(at, d, f, mu, s, a, b, messages, rule, gap, count):
    """Store message `at` so that the cavity N(mu, s) gets mean mu + s a and variance s - s^2 b; count what it was.

    Momentum repeats that part of the change of nu which moves the posterior mean f of weight d, and not that which
    goes with a change of tau: the message's precision, which must stay positive, has no momentum.
    """
    if not (s * b < 1.0 and abs(a) < np.inf) and not rule.keep_nu:
        count[1] += 1.0
        return
    tau, nu = site_from_tilted(mu, s, a, b)
    if not (tau > 0.0 and s * b < 1.0):
        tau = rule.floor
        nu = messages.nu[at] if rule.keep_nu else mu * tau + a * (1.0 + s * tau)
    gap[d] += nu - messages.nu[at]
    change = rule.step * (nu - messages.nu[at]) + rule.momentum * messages.velocity[at]
    count[0] += change * change
    messages.velocity[at] = change - f * rule.step * (tau - messages.tau[at])
    messages.nu[at] += change
    messages.tau[at] = damp(messages.tau[at], tau, 1.0 - rule.step)


@kernel
def _add(first, last, chunk, rows, messages, sums):
    """Add the messages first..last to the sums of their chunk."""
    for at in range(first, last):
        d = rows.column[at]
        sums.tau[chunk, d] += messages.tau[at]
        sums.nu[chunk, d] += messages.nu[at]


@kernel
def laplace_modes(address, size, mode, work):
    """Write the modes s = m + v l'(s) of (likelihood x N(m, v)), with l' into work.alpha and -l'' into work.beta.

    l' falls with s, so the mode lies between m and m + v l'(m): Newton's steps are kept inside a shrinking bracket,
    and cut where they go back and forth.
    """
    y, m, v, theta = work.y[:size], work.m[:size], work.v[:size], work.theta
    value, d1, d2 = work.logz[:size], work.alpha[:size], work.beta[:size]
    low, high, before = work.alpha2, work.beta2, work.rest
    call_loglik(address, y, m, theta, value, d1, d2)
    for j in range(size):
        bound = m[j] + v[j] * d1[j]
        low[j], high[j] = min(m[j], bound), max(m[j], bound)
        before[j] = 2.0 * (high[j] - low[j])
        mode[j] = min(max(mode[j], low[j]), high[j])
    for _ in range(MAX_NEWTON):
        call_loglik(address, y, mode, theta, value, d1, d2)
        worst = 0.0
        for j in range(size):
            excess = mode[j] - m[j] - v[j] * d1[j]
            if excess > 0.0:
                high[j] = mode[j]
            else:
                low[j] = mode[j]
            step = -excess / (1.0 - v[j] * d2[j])
            close = NEWTON_TOL * (1.0 + abs(mode[j]))
            new, before[j] = newton_or_middle(mode[j], step, low[j], high[j], before[j], close)
            worst = max(worst, abs(new - mode[j]) / (1.0 + abs(new)))
            mode[j] = new
        if worst < NEWTON_TOL:
            break
    call_loglik(address, y, mode, theta, value, d1, d2)
    for j in range(size):
        d2[j] = -d2[j]


@kernel
def _row_moments(begin, end, rows, mean, var, messages, rule, work):
    """Write mean and variance of x'w under the cavities of rows begin..end, and the likelihood's answers."""
    for j in range(end - begin):
        work.y[j] = rows.y[begin + j]
        m, v = 0.0, 0.0
        for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
            d, x = rows.column[at], rows.value[at]
            mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
            m += x * mu
            v += x * x * s
        work.m[j], work.v[j] = m, v
    size = end - begin
    if rule.laplace:
        laplace_modes(rule.address, size, messages.mode[begin:end], work)
        return
    y, m, v = work.y[:size], work.m[:size], work.v[:size]
    call_tilted(rule.address, y, m, v, work.theta, work.logz[:size], work.alpha[:size], work.beta[:size])


@kernel
def row_sweep(first, last, rows, mean, var, messages, rule, sums, work):
    """Renew all messages of chunks first..last from the moments of x'w under the cavities: EP, or Laplace propagation.

    One call of the likelihood per row. Laplace propagation takes the curvature along each weight alone, h / (1 + x^2 s
    h) for h = -l'', that is a message of precision x^2 h: the diagonal of the Hessian, as in the published code.
    """
    block = work.m.shape[0]
    for c in range(first, last):
        sums.tau[c, :], sums.nu[c, :], sums.gap[c, :], sums.counts[c, :] = 0.0, 0.0, 0.0, 0.0
        for begin in range(rows.chunk_start[c], rows.chunk_start[c + 1], block):
            end = min(begin + block, rows.chunk_start[c + 1])
            _row_moments(begin, end, rows, mean, var, messages, rule, work)
            for j in range(end - begin):
                alpha, beta = work.alpha[j], work.beta[j]
                for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
                    d, x = rows.column[at], rows.value[at]
                    mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                    b = x * x * beta
                    if rule.laplace:
                        b /= 1.0 + s * b
                    _store(at, d, mean[d], mu, s, x * alpha, b, messages, rule, sums.gap[c], sums.counts[c])
            _add(rows.start[begin], rows.start[end], c, rows, messages, sums)


@kernel
def _fill(begin, chunk_end, rows, mean, var, messages, work):
    """Write the conditional moments of x'w given each weight's cavity for as many rows as fit; return their end.

    work.rest takes the posterior variance of the rest of x'w, which the second order needs.
    """
    end, size = begin, 0
    while end < chunk_end and size + rows.start[end + 1] - rows.start[end] <= work.m.shape[0]:
        f, o = 0.0, 0.0
        for at in range(rows.start[end], rows.start[end + 1]):
            d, x = rows.column[at], rows.value[at]
            f += x * mean[d]
            o += x * x * var[d]
        for at in range(rows.start[end], rows.start[end + 1]):
            d, x = rows.column[at], rows.value[at]
            mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
            work.y[size] = rows.y[end]
            work.m[size] = f + x * (mu - mean[d])
            work.v[size] = x * x * s
            work.rest[size] = o - x * x * var[d]
            size += 1
        end += 1
    return end


@kernel
def conditional_sweep(first, last, rows, mean, var, messages, rule, sums, work):
    """Renew all messages of chunks first..last from conditional moments: CEP, one call of the likelihood per message.

    Source: CEP eqs 10 and 11 at the posterior moments of the other weights, supplement 8.2 and 8.3.
    """
    for c in range(first, last):
        sums.tau[c, :], sums.nu[c, :], sums.gap[c, :], sums.counts[c, :] = 0.0, 0.0, 0.0, 0.0
        begin = rows.chunk_start[c]
        while begin < rows.chunk_start[c + 1]:
            end = _fill(begin, rows.chunk_start[c + 1], rows, mean, var, messages, work)
            at0 = rows.start[begin]
            size = rows.start[end] - at0
            y, m, v, theta = work.y[:size], work.m[:size], work.v[:size], work.theta
            logz, alpha, beta = work.logz[:size], work.alpha[:size], work.beta[:size]
            alpha2, beta2 = work.alpha2[:size], work.beta2[:size]
            if rule.second:
                call_tilted2(rule.address, y, m, v, theta, logz, alpha, beta, alpha2, beta2)
            else:
                call_tilted(rule.address, y, m, v, theta, logz, alpha, beta)
            for j in range(size):
                at = at0 + j
                d, x = rows.column[at], rows.value[at]
                mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                if rule.second:
                    alpha[j] += 0.5 * alpha2[j] * work.rest[j]
                    beta[j] += 0.5 * beta2[j] * work.rest[j]
                a, b = x * alpha[j], x * x * beta[j]
                _store(at, d, mean[d], mu, s, a, b, messages, rule, sums.gap[c], sums.counts[c])
            _add(at0, at0 + size, c, rows, messages, sums)
            begin = end


@kernel
def log_scales(first, last, rows, mean, var, messages, rule, total, work):
    """Write, per chunk, the sum of the log scales of the rows' sites: EP's part of the log evidence.

    Source: Minka (2008), eq. 48, with a site that is a product over the weights.
    """
    block = work.m.shape[0]
    for c in range(first, last):
        total[c] = 0.0
        for begin in range(rows.chunk_start[c], rows.chunk_start[c + 1], block):
            end = min(begin + block, rows.chunk_start[c + 1])
            _row_moments(begin, end, rows, mean, var, messages, rule, work)
            for j in range(end - begin):
                total[c] += work.logz[j]
                for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
                    d = rows.column[at]
                    mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                    total[c] -= log_integral(mu, s, messages.tau[at], messages.nu[at])
