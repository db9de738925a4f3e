"""The nearest Gaussian in the L2 Wasserstein distance of a likelihood times a cavity, inside compiled sweeps.

The same as `tensorcep.ep.projections` projects onto, for log-concave likelihoods: panels of Gauss-Legendre nodes over
the tilted density, no wider than it and finer towards 0, where a likelihood of labels has its slope. With P its
distribution function the standard deviation is the integral of phi(Phi^-1(P(f))) over f.

Source: Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian processes,
eq. 7.
"""

from __future__ import annotations

import math

import numpy as np
from numba.core import types
from numpy.polynomial import legendre

from tensorcep.core.compile import block_kernel, call_loglik, f64, i64, inlined, vec
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import INV_SQRT_2PI, LOG_SQRT_2PI, exp, log, mills_excess

# narrow(loglik, y, m, v, theta, alpha, beta, scratch), `call_narrow` of `tensorcep.core.compile`
NARROW_SIGNATURE = types.void(i64, vec, vec, vec, vec, vec, vec, types.Array(f64, 2, "C"))
# A panel's nodes are one slot; so many panels at most, enough for a density 1e4 times as wide as the slope at 0.
MOST_PANELS = 64
# A panel's width, in standard deviations and, at 0, in units of f; away from 0 it grows by this factor at most.
WIDE, NARROWEST, GROWTH = 2.5, 1.5, 2.0
# The density is followed until it has fallen by so many nats, in steps of so many standard deviations.
FALL, STRIDE = 32.0, 3.0
# Slots of the scratch: what `call_loglik` takes and gives, then mass and half width of panels, then mass up to nodes.
F, Y, THETA, VALUE, D1, D2, SIZES, UPTO = 0, 1, 2, 3, 4, 5, 6, 6 + 2 * MOST_PANELS // LANES
SCRATCH = UPTO + MOST_PANELS

NODE, WEIGHT = legendre.leggauss(LANES)


def _below() -> np.ndarray:
    """The matrix of the integrals from -1 up to each node."""
    basis = legendre.legvander(NODE, LANES - 1)
    upto = [legendre.legval(NODE, legendre.legint(row, lbnd=-1)) for row in np.eye(LANES)]
    return np.ascontiguousarray(np.stack(upto, axis=1) @ np.linalg.inv(basis))


BELOW = _below()


@inlined
def _height(p):
    """phi(Phi^-1(p)) for p <= 1/2: a rational start (Abramowitz and Stegun, 26.2.23) and two steps of Halley."""
    if p < 1e-300:
        return 0.0
    log_p = log(p)
    s = math.sqrt(-2.0 * log_p)
    x = s - (2.515517 + s * (0.802853 + s * 0.010328)) / (1.0 + s * (1.432788 + s * (0.189269 + s * 0.001308)))
    x = max(x, 0.0)
    for _ in range(2):  # log Phi(-x) = log p; its slope is -r and its curve -r (r - x)
        excess = mills_excess(x)
        r = x + excess
        off = (-0.5 * x * x - LOG_SQRT_2PI - log(r)) - log_p
        step = off / r
        x += step / (1.0 + 0.5 * step * excess)
    return INV_SQRT_2PI * exp(-0.5 * x * x)


@inlined
def _densities(loglik, m, v, scratch):
    """Slot VALUE = log of likelihood times cavity, without constants, at the points in slot F."""
    call_loglik(loglik, scratch[Y], scratch[F], scratch[THETA], scratch[VALUE], scratch[D1], scratch[D2])
    for q in range(LANES):
        scratch[VALUE, q] -= 0.5 * (scratch[F, q] - m) ** 2 / v


@inlined
def _reach(loglik, side, top, m, v, mean, sd, scratch):
    """How far from the mean the density has fallen by FALL nats."""
    for q in range(LANES):
        scratch[F, q] = mean + side * STRIDE * (1.0 + q) * sd
    _densities(loglik, m, v, scratch)
    for q in range(LANES):
        if not scratch[VALUE, q] > top - FALL:
            return STRIDE * (1.0 + q) * sd
    return STRIDE * LANES * sd


@inlined
def _next_edge(f, high, sd, left):
    """Where the panel ends that begins at f, when `left` panels may follow."""
    if f < 0.0:
        near = -f / GROWTH if -f > GROWTH * NARROWEST else min(-f, NARROWEST)
    else:
        near = max(f * (GROWTH - 1.0), NARROWEST)
    end = f + min(WIDE * sd, near)
    return high if left == 0 or end > high - 1e-3 * sd else end


@inlined
def _panels(loglik, top, low, high, m, v, sd, scratch):
    """Masses and half widths of all panels, and masses from a panel's begin to its nodes; how many, and the total."""
    count, f, total = 0, low, 0.0
    while f < high:
        end = _next_edge(f, high, sd, MOST_PANELS - 1 - count)
        half = 0.5 * (end - f)
        for q in range(LANES):
            scratch[F, q] = f + half + half * NODE[q]
        _densities(loglik, m, v, scratch)
        mass, upto = 0.0, UPTO + count
        for q in range(LANES):
            scratch[VALUE, q] = half * exp(scratch[VALUE, q] - top)
            mass += scratch[VALUE, q] * WEIGHT[q]
        for q in range(LANES):
            total_q = 0.0
            for j in range(LANES):
                total_q += BELOW[q, j] * scratch[VALUE, j]
            scratch[upto, q] = total_q
        scratch[SIZES + 2 * count // LANES, 2 * count % LANES] = mass
        scratch[SIZES + 2 * count // LANES, 2 * count % LANES + 1] = half
        total += mass
        count += 1
        f = end
    return count, total


@inlined
def _deviation(count, total, scratch):
    """The standard deviation from what `_panels` wrote."""
    before, sd = 0.0, 0.0
    for c in range(count):
        line, at = SIZES + 2 * c // LANES, 2 * c % LANES
        mass, half = scratch[line, at], scratch[line, at + 1]
        after = max(total - before - mass, 0.0)
        for q in range(LANES):
            upto = scratch[UPTO + c, q]
            sd += half * WEIGHT[q] * _height(min(before + upto, after + (mass - upto)) / total)
        before += mass
    return sd


@block_kernel
def narrow(loglik, y, m, v, theta, alpha, beta, scratch):
    """Replace beta by that of the nearest Gaussians, v (1 - v beta) being their variances; alpha stays as it is.

    A lane whose cavity or tilted variance is not above 0 keeps its beta.
    """
    for n in range(y.shape[0]):
        left = 1.0 - v[n] * beta[n]
        if not (v[n] > 0.0 and left > 0.0 and abs(alpha[n]) < np.inf):
            continue
        mean, sd = m[n] + v[n] * alpha[n], math.sqrt(v[n] * left)
        for q in range(LANES):
            scratch[Y, q], scratch[THETA, q], scratch[F, q] = y[n], theta[n], mean
        _densities(loglik, m[n], v[n], scratch)
        top = scratch[VALUE, 0]
        low = mean - _reach(loglik, -1.0, top, m[n], v[n], mean, sd, scratch)
        high = mean + _reach(loglik, 1.0, top, m[n], v[n], mean, sd, scratch)
        count, total = _panels(loglik, top, low, high, m[n], v[n], sd, scratch)
        ratio = _deviation(count, total, scratch) / sd
        if 0.0 < ratio < 1.0:
            beta[n] += left * (1.0 - ratio * ratio) / v[n]
