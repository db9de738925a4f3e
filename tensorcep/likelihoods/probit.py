"""Probit likelihood: P(y = 1 | f) = Phi(f), for labels coded -1 and +1. Everything is in closed form."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import start_stream, truncated_normal
from tensorcep.kernels.products import TOGETHER
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import exp, normal_cdf_parts, upper_tail
from tensorcep.likelihoods.arrays import aligned, log_density
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.binary import binary_likelihood


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log Phi(z), alpha = y r / s and beta = r (z + r) / s^2 with z = y m / s, s^2 = 1 + v, r = phi(z) / Phi(z).

    For very negative z, z + r is about -1 / z: it comes from a fit of its own, not from the sum.

    Source: Minka (2008), EP: a quick reference, eqs 49-51.
    """
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(1.0 + v[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        r = alpha[n]
        alpha[n] = y[n] * r / math.sqrt(1.0 + v[n])
        beta[n] = r * beta[n] / (1.0 + v[n])


@kernel
def tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2):
    """Write what `tilted` does, and the second derivatives of alpha and beta in m, from r' = -r (z + r)."""
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(1.0 + v[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        r, z_r, inv_s = alpha[n], beta[n], 1.0 / math.sqrt(1.0 + v[n])
        r1 = -r * z_r
        r2 = -r1 * z_r - r * (1.0 + r1)
        r3 = -r2 * z_r - 2.0 * r1 * (1.0 + r1) - r * r2
        alpha[n] = y[n] * r * inv_s
        beta[n] = -r1 * inv_s**2
        alpha2[n] = y[n] * r2 * inv_s**3
        beta2[n] = -r3 * inv_s**4


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log Phi(y f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        d2[n] = y[n] * f[n]
    normal_cdf_parts(d2, value, d1)
    for n in range(y.shape[0]):
        r = d1[n]
        d1[n] = y[n] * r
        d2[n] = -r * d2[n]


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of the normal N(f, 1) that is known to have the sign y, and log Phi(y f) - target f + f^2 / 2."""
    for n in range(y.shape[0]):
        spread[n] = y[n] * f[n]
    normal_cdf_parts(spread, constant, target)
    for n in range(y.shape[0]):
        weight[n], spread[n] = 1.0, 0.0
        target[n] = f[n] + y[n] * target[n]
        constant[n] += f[n] * (0.5 * f[n] - target[n])


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """target = a draw of the normal N(f, 1) that is known to have the sign y."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                target[b, lane] = f[b, lane] + y[b, lane] * truncated_normal(s, -y[b, lane] * f[b, lane])


@block_kernel
def shares(f, one, zero):
    """Write the means (n,) of Phi(f) and of Phi(-f) over the lines of f (S, n)."""
    S, n = f.shape
    one[:] = 0.0
    zero[:] = 0.0
    for first in range(0, n, TOGETHER):
        last = min(first + TOGETHER, n)
        p, q = one[first:last], zero[first:last]
        for s in range(S):
            line = f[s, first:last]
            for i in range(line.shape[0]):
                small = upper_tail(abs(line[i]), exp(-0.5 * line[i] * line[i]))
                big = 1.0 - small
                p[i] += big if line[i] > 0.0 else small
                q[i] += small if line[i] > 0.0 else big
        for i in range(p.shape[0]):
            p[i] /= S
            q[i] /= S


def third(y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return y r ((z + r) (z + 2 r) - 1) with z = y f and r = phi(z) / Phi(z)."""
    y, f, theta = aligned(y, f, theta)
    _, slope, curve = log_density(loglik, y, f, theta)
    r = y * slope
    z_plus_r = np.divide(-curve, r, out=np.zeros_like(r), where=r > 0.0)
    return np.asarray(y * r * (z_plus_r * (z_plus_r + r) - 1.0))


# Source of the latent normal: Albert and Chib (1993), JASA 88.
PROBIT = binary_likelihood("probit", tilted, loglik, ndtr, tilted2, shares)._replace(
    normal=Augmentation(expected, drawn), third=third, observes="labels"
)
