"""Tobit likelihood: y = max(0, t) with t ~ N(f, 1 / theta), theta the noise precision; y <= 0 says only that t <= 0.

Values that pile up at a lower limit (detection limits, log(1 + count), durations) are such observations once the limit
is subtracted: `censored_at`.

Source: Tobin (1958), Econometrica 26; Chib (1992), J. Econometrics 51, for the latent normal of censored values.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from tensorcep.core.checks import check_fraction, check_values
from tensorcep.core.jit import block_kernel, kernel
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import LOG_SQRT_2PI, log, normal_cdf_parts
from tensorcep.kernels.streams import start_stream, truncated_normal
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameter import NOISE_PRECISION
from tensorcep.likelihoods.record import Likelihood


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """As the Gaussian for y > 0. Otherwise log Phi(z), alpha = -r / s and beta = r (z + r) / s^2.

    There z = -m / s, s^2 = v + 1 / theta, r = phi(z) / Phi(z); z + r keeps its digits for very negative z.
    """
    for n in range(y.shape[0]):
        beta[n] = -m[n] / math.sqrt(v[n] + 1.0 / theta[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        precision = theta[n] / (v[n] * theta[n] + 1.0)
        if y[n] > 0.0:
            residual = y[n] - m[n]
            logz[n] = 0.5 * log(precision) - LOG_SQRT_2PI - 0.5 * residual * residual * precision
            alpha[n] = residual * precision
            beta[n] = precision
        else:
            r = alpha[n]
            alpha[n] = -r * math.sqrt(precision)
            beta[n] = r * beta[n] * precision


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        d2[n] = -f[n] * math.sqrt(theta[n])
    normal_cdf_parts(d2, value, d1)
    for n in range(y.shape[0]):
        if y[n] > 0.0:
            residual = y[n] - f[n]
            value[n] = 0.5 * log(theta[n]) - LOG_SQRT_2PI - 0.5 * residual * residual * theta[n]
            d1[n] = residual * theta[n]
            d2[n] = -theta[n]
        else:
            r = d1[n]
            d1[n] = -r * math.sqrt(theta[n])
            d2[n] = -r * d2[n] * theta[n]


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write mean, variance and entropy of the normal N(f, 1 / theta) that is known to be below 0, where y <= 0."""
    for n in range(y.shape[0]):
        spread[n] = -f[n] * math.sqrt(theta[n])
    normal_cdf_parts(spread, constant, target)
    for n in range(y.shape[0]):
        weight[n] = 1.0
        if y[n] > 0.0:
            target[n], spread[n], constant[n] = y[n], 0.0, 0.0
        else:
            ratio, z = target[n], -f[n] * math.sqrt(theta[n])
            target[n] = f[n] - ratio / math.sqrt(theta[n])
            spread[n] = (1.0 - ratio * spread[n]) / theta[n]
            constant[n] += 0.5 * (log(2.0 * math.pi / theta[n]) + 1.0 - ratio * z)


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """target = y, and for y <= 0 a draw of the normal N(f, 1 / theta) that is known to be below 0 (Chib 1992)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            target[b, lane] = y[b, lane]
            if used[b, lane] > 0.0 and y[b, lane] <= 0.0:
                sd = 1.0 / np.sqrt(theta[b, lane])
                target[b, lane] = f[b, lane] - sd * truncated_normal(s, f[b, lane] / sd)


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of max(0, t), t ~ N(m, v + 1 / theta).

    With x = |m| / s, a = E[max(0, n - x)] and b = E[max(0, n - x)^2] of a standard normal n, mean and variance are
    s a and s^2 (b - a^2) for m < 0, and m + s a and s^2 (1 - b - 2 x a - a^2) otherwise: no digits are lost far out.
    """
    m, v, theta = aligned(m, v, theta)
    s = np.sqrt(v + 1.0 / theta)
    x = np.abs(m) / s
    log_tail, ratio, excess = np.empty_like(x), np.empty_like(x), -x
    normal_cdf_parts(excess, log_tail, ratio)
    tail = np.exp(log_tail)
    a, b = tail * excess, tail * (1.0 - x * excess)
    below = m < 0.0
    variance = np.where(below, b - a * a, 1.0 - b - 2.0 * x * a - a * a)
    return np.where(below, 0.0, m) + s * a, s * s * np.maximum(variance, 0.0)


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the q-quantile of a new observation."""
    m, v, theta = aligned(m, v, theta)
    return np.maximum(0.0, m + ndtri(check_fraction("q", q)) * np.sqrt(v + 1.0 / theta))


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive mass at the limit, and the density above it."""
    return tilted_moments(tilted, y, m, v, theta)[0]


def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of an observation of at most, and of at least, y; all are at least the limit."""
    y, m, v, theta = aligned(y, m, v, theta)
    z = (y - m) / np.sqrt(v + 1.0 / theta)
    return ndtr(z), np.where(y > 0.0, ndtr(-z), 1.0)


def censored_at(limit: float) -> Likelihood:
    """Return the record of y = max(limit, t), t ~ N(limit + f, 1 / theta).

    What goes in and comes out (values, means, quantiles, draws) is in the units of y. Inside, y and f are differences
    from the limit; a value below the limit counts as one at the limit.
    """

    def check_y(y: ArrayLike) -> np.ndarray:
        return np.maximum(check_values(y, name="y") - limit, 0.0)

    def predict_above(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = predict(m, v, theta)
        return limit + mean, variance

    def quantile_above(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return limit + quantile(q, m, v, theta)

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        return limit + np.maximum(0.0, f + rng.standard_normal(f.shape) / np.sqrt(theta))

    parts = (check_y, tilted, loglik, predict_above, quantile_above, logpdf, sample)
    normal = Augmentation(expected, drawn, hides=lambda y: y <= 0.0)
    return Likelihood("tobit", 1.0, *parts, parameter=NOISE_PRECISION, normal=normal, limit=limit, tails=tails)


TOBIT = censored_at(0.0)
