"""Gaussian likelihood: y ~ N(f, 1 / theta), with theta the noise precision of the entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from tensorcep._checks import check_fraction, check_values
from tensorcep._jit import kernel
from tensorcep.kernels.special import LOG_SQRT_2PI, log
from tensorcep.likelihoods._arrays import aligned, tilted_moments
from tensorcep.likelihoods._record import Likelihood


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):  # type: ignore[no-untyped-def]
    """Write log N(y; m, v + 1/theta) and its first and minus its second derivative in m."""
    for n in range(y.shape[0]):
        precision = theta[n] / (v[n] * theta[n] + 1.0)
        residual = y[n] - m[n]
        logz[n] = 0.5 * log(precision) - LOG_SQRT_2PI - 0.5 * residual * residual * precision
        alpha[n] = residual * precision
        beta[n] = precision


@kernel
def loglik(y, f, theta, value, d1, d2):  # type: ignore[no-untyped-def]
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        residual = y[n] - f[n]
        value[n] = 0.5 * log(theta[n]) - LOG_SQRT_2PI - 0.5 * residual * residual * theta[n]
        d1[n] = residual * theta[n]
        d2[n] = -theta[n]


def check_y(y: ArrayLike) -> np.ndarray:
    """Return real observations as (n,) float64."""
    return check_values(y, name="y")


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a new observation."""
    m, v, theta = aligned(m, v, theta)
    return m, v + 1.0 / theta


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the q-quantile of a new observation."""
    mean, variance = predict(m, v, theta)
    return mean + ndtri(check_fraction("q", q)) * np.sqrt(variance)


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive density."""
    return tilted_moments(tilted, y, m, v, theta)[0]


def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return a draw of y for each f."""
    f, theta = aligned(f, theta)
    return f + rng.standard_normal(f.shape) / np.sqrt(theta)


GAUSSIAN = Likelihood("gaussian", 1.0, check_y, tilted, loglik, predict, quantile, logpdf, sample)
