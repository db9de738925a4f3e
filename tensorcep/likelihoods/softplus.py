"""Poisson likelihood with softplus link: y ~ Poisson(log(1 + e^f)), for counts 0, 1, 2, ...

Its log likelihood has a curvature that is bounded, which that with a log link has not: for Boehning's bound. It has no
moments for message passing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln, logsumexp

from tensorcep.core.checks import check_counts, check_fraction, check_values
from tensorcep.core.compile import kernel
from tensorcep.kernels.special import SMALLEST, exp, log, log1p_unit
from tensorcep.likelihoods.arrays import aligned
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import mixture_quantile

# E[g(f)] for f ~ N(m, v) as a weighted sum over m + sqrt(v) z; 20 Gauss-Hermite nodes are exact to 1e-6 for v < 10.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        e = exp(-abs(f[n]))
        big = 1.0 / (1.0 + e)
        slope = big if f[n] > 0.0 else e * big  # of the rate
        rate = (f[n] if f[n] > 0.0 else 0.0) + log1p_unit(e)
        rate = rate if rate > SMALLEST else SMALLEST
        excess = y[n] / rate - 1.0
        value[n] = y[n] * log(rate) - rate - math.lgamma(y[n] + 1.0)
        d1[n] = excess * slope
        d2[n] = excess * slope * (1.0 - slope) - y[n] * (slope / rate) ** 2


def _rate(f: np.ndarray) -> np.ndarray:
    return np.maximum(np.logaddexp(0.0, f), SMALLEST)


def _expected(g: Callable[[np.ndarray], np.ndarray], m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """E[g(f)] for f ~ N(m, v)."""
    sd, total = np.sqrt(v), np.zeros(m.shape)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        total += weight * g(m + sd * node)
    return total


def check_y(y: ArrayLike) -> np.ndarray:
    """Return counts as (n,) float64."""
    return check_counts("y", check_values(y, name="y"))


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a new count."""
    m, v, _ = aligned(m, v, theta)
    mean = _expected(lambda f: np.logaddexp(0.0, f), m, v)
    square = _expected(lambda f: np.logaddexp(0.0, f) ** 2, m, v)
    return mean, mean + square - mean**2


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the smallest count with a predictive probability of at least q of not being exceeded."""
    m, v, _ = aligned(m, v, theta)

    def cdf(k: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return _expected(lambda f: gammaincc(k + 1.0, _rate(f)), m[rows], v[rows])

    mean, variance = predict(m, v, theta)
    spread = np.log1p((variance - mean) / mean**2)
    return mixture_quantile(check_fraction("q", q), np.log(mean) - 0.5 * spread, spread, cdf)


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive mass."""
    y, m, v, _ = aligned(y, m, v, theta)
    rate = _rate(m + np.sqrt(v) * NODES[:, None])
    return np.asarray(logsumexp(y * np.log(rate) - rate, axis=0, b=WEIGHTS[:, None]) - gammaln(y + 1.0))


def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return a draw of y for each f."""
    return rng.poisson(_rate(np.atleast_1d(np.asarray(f, dtype=np.float64)))).astype(np.float64)


SOFTPLUS_POISSON = Likelihood("softplus poisson", 1.0, check_y, None, loglik, predict, quantile, logpdf, sample)
