"""Gaussian likelihood: y ~ N(level + f, 1 / theta), with theta the noise precision of the entry."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from tensorcep.core.checks import check_fraction, check_values
from tensorcep.core.jit import kernel
from tensorcep.kernels.special import LOG_SQRT_2PI, log
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameter import NOISE_PRECISION
from tensorcep.likelihoods.record import Likelihood

# Newton steps stop below this fraction of the narrowest component: the error left is about its square.
QUANTILE_TOL = 1e-5
QUANTILE_STEPS = 60
SQRT_HALF = math.sqrt(0.5)
SQRT_HALF_OVER_PI = math.sqrt(0.5 / math.pi)


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log N(y; m, v + 1/theta) and its first and minus its second derivative in m."""
    for n in range(y.shape[0]):
        precision = theta[n] / (v[n] * theta[n] + 1.0)
        residual = y[n] - m[n]
        logz[n] = 0.5 * log(precision) - LOG_SQRT_2PI - 0.5 * residual * residual * precision
        alpha[n] = residual * precision
        beta[n] = precision


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        residual = y[n] - f[n]
        value[n] = 0.5 * log(theta[n]) - LOG_SQRT_2PI - 0.5 * residual * residual * theta[n]
        d1[n] = residual * theta[n]
        d2[n] = -theta[n]


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a new observation."""
    m, v, theta = aligned(m, v, theta)
    return m, v + 1.0 / theta


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the q-quantile of a new observation."""
    mean, variance = predict(m, v, theta)
    return mean + ndtri(check_fraction("q", q)) * np.sqrt(variance)


@kernel
def solve_mixture(q, mean, sd, start, x):
    """x[n] = the q-quantile of the mixture of N(mean[n, c], sd[n, c]^2) over c, by Newton steps within a bracket.

    `start` holds the standard normal quantile: the mixture's lies between the smallest and the largest of its parts'.
    """
    C = mean.shape[1]
    for n in range(len(mean)):
        low = high = mean[n, 0] + start * sd[n, 0]
        centre, square, narrowest = 0.0, 0.0, sd[n, 0]
        for c in range(C):
            m, s = mean[n, c], sd[n, c]
            low, high, narrowest = min(low, m + start * s), max(high, m + start * s), min(narrowest, s)
            centre += m / C
            square += (m * m + s * s) / C
        now = min(max(centre + start * math.sqrt(max(0.0, square - centre * centre)), low), high)
        for _ in range(QUANTILE_STEPS):
            excess, density = 0.0, 0.0
            for c in range(C):
                z = (now - mean[n, c]) / sd[n, c]
                excess += 0.5 * math.erfc(-SQRT_HALF * z) - q
                density += SQRT_HALF_OVER_PI * math.exp(-0.5 * z * z) / sd[n, c]
            if excess > 0.0:
                high = now
            else:
                low = now
            step = excess / density if density > 0.0 else np.inf
            now = now - step if low <= now - step <= high else 0.5 * (low + high)
            if abs(step) <= QUANTILE_TOL * narrowest or high - low <= QUANTILE_TOL * narrowest:
                break
        x[n] = now


def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the q-quantile (n,) of a new observation under equally likely components (C, n)."""
    sd, x = np.sqrt(v + 1.0 / theta), np.empty(m.shape[1])
    solve_mixture(float(q), *(np.ascontiguousarray(a.T) for a in (m, sd)), float(ndtri(check_fraction("q", q))), x)
    return x


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive density."""
    return tilted_moments(tilted, y, m, v, theta)[0]


def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of an observation of at most, and of at least, y."""
    y, m, v, theta = aligned(y, m, v, theta)
    z = (y - m) / np.sqrt(v + 1.0 / theta)
    return ndtr(z), ndtr(-z)


def gaussian_about(level: float) -> Likelihood:
    """Return the record of y ~ N(level + f, 1 / theta).

    What goes in and comes out (values, means, quantiles, draws) is in the units of y. Inside, y and f are differences
    from the level.
    """

    def check_y(y: ArrayLike) -> np.ndarray:
        return check_values(y, name="y") - level

    def predict_about(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = predict(m, v, theta)
        return level + mean, variance

    def quantile_about(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return level + quantile(q, m, v, theta)

    def mixture_quantile_about(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return level + mixture_quantile(q, m, v, theta)

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        return level + (f + rng.standard_normal(f.shape) / np.sqrt(theta))

    return Likelihood(
        "gaussian",
        1.0,
        check_y,
        tilted,
        loglik,
        predict_about,
        quantile_about,
        logpdf,
        sample,
        parameter=NOISE_PRECISION,
        normal=Augmentation(),
        mixture_quantile=mixture_quantile_about,
        observes="values",
        tails=tails,
    )


GAUSSIAN = gaussian_about(0.0)
