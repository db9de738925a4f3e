"""Probit likelihood: P(y = 1 | f) = Phi(f), for labels coded -1 and +1. Everything is in closed form."""

from __future__ import annotations

import math

from scipy.special import ndtr

from tensorcep.core.jit import kernel
from tensorcep.kernels.special import normal_cdf_parts
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


PROBIT = binary_likelihood("probit", tilted, loglik, ndtr, tilted2)
