"""Poisson likelihood with square link: y ~ Poisson(f^2), for counts 0, 1, 2, ...

The Gaussian N(f; m, v) times e^(-f^2) is a Gaussian in g of mean mu = |m| / (1 + 2 v) and variance w = v / (1 + 2 v),
times a constant; so the moments are those of powers of g, p_n = E[g^n], whose recursion p_n = mu p_(n-1) + (n - 1) w
p_(n-2) has no negative term. The likelihood is even in f: a prior mean away from 0 says which sign is meant.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.special import dawsn, digamma, gammaincc, gammaln

from tensorcep.core.checks import check_counts, check_fraction, check_values
from tensorcep.core.compile import kernel
from tensorcep.kernels.special import REACH, TINY
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import mixture_quantile

# Moments are scaled by this when they leave the range where their products are safe.
LARGE, SMALL = 1e150, 1e-150
# Nodes per standard deviation of f for a distribution function, at least, and per unit of f.
NODES, NODES_PER_UNIT, MAX_NODES = 6.0, 10.0, 4096
# E[log f^2] by an integral up to this mean, in units of sqrt(2) standard deviations, and by its series beyond.
FAR, DAWSON_NODES = 12.0, 96


@kernel
def _powers(n, mu, w):
    """Return p_n's logarithm, p_(n-1) / p_n and p_(n-2) / p_n."""
    before, last, now, log_scale = 0.0, 0.0, 1.0, 0.0
    for j in range(1, n + 1):
        before, last, now = last, now, mu * now + (j - 1) * w * last
        top = max(last, now)
        if top > LARGE or top < SMALL:
            before, last, now = before / top, last / top, now / top
            log_scale += math.log(top)
    return math.log(now) + log_scale, last / now, before / now


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write logz, alpha and beta; the time grows with the counts.

    Source: Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation, eqs 53-59, as a recursion.
    """
    for i in range(y.shape[0]):
        if not v[i] >= 0.0:
            logz[i], alpha[i], beta[i] = np.nan, np.nan, np.nan
            continue
        shrink = 1.0 / (1.0 + 2.0 * v[i])
        count = int(y[i])
        log_power, q1, q2 = _powers(2 * count, abs(m[i]) * shrink, v[i] * shrink)
        logz[i] = log_power - m[i] * m[i] * shrink + 0.5 * math.log(shrink) - math.lgamma(y[i] + 1.0)
        side = 1.0 if m[i] >= 0.0 else -1.0
        alpha[i] = 2.0 * shrink * (side * y[i] * q1 - m[i])
        beta[i] = 2.0 * shrink * (1.0 - y[i] * shrink * ((2.0 * y[i] - 1.0) * q2 - 2.0 * y[i] * q1 * q1))


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) = 2 y log |f| - f^2 - log y! and its first two derivatives in f."""
    for i in range(y.shape[0]):
        value[i] = -f[i] * f[i] - math.lgamma(y[i] + 1.0)
        d1[i], d2[i] = -2.0 * f[i], -2.0
        if y[i] > 0.0:
            value[i] += 2.0 * y[i] * math.log(abs(f[i]))
            d1[i] += 2.0 * y[i] / f[i]
            d2[i] -= 2.0 * y[i] / (f[i] * f[i])


def check_y(y: ArrayLike) -> np.ndarray:
    """Return counts as (n,) float64."""
    return check_counts("y", check_values(y, name="y"))


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a new count: E[f^2], and that plus Var[f^2]."""
    m, v, _ = aligned(m, v, theta)
    mean = m * m + v
    return mean, mean + 2.0 * v * (2.0 * m * m + v)


def cdf(k: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return P(y <= k) for whole k >= 0 and f ~ N(m, v), each argument (n,)."""
    s = np.sqrt(v)
    n_nodes = 2.0 * REACH * min(NODES + NODES_PER_UNIT * s.max(initial=0.0), MAX_NODES / (2.0 * REACH))
    u = np.linspace(-REACH, REACH, int(n_nodes) + 1)
    weight = np.exp(-0.5 * u * u)
    below = gammaincc(k[:, None] + 1.0, (m[:, None] + s[:, None] * u) ** 2)
    return np.asarray(below @ (weight / weight.sum()))


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the smallest count whose distribution function is at least q."""
    m, v, _ = aligned(m, v, theta)
    rate = np.maximum(m * m + v, 1e-300)
    spread = 2.0 * v * (2.0 * m * m + v) / rate**2
    return mixture_quantile(check_fraction("q", q), np.log(rate), spread, lambda k, rows: cdf(k, m[rows], v[rows]))


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive mass of y, exactly (the paper's eq. 54)."""
    return tilted_moments(tilted, y, m, v, theta)[0]


def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return a draw of y for each f."""
    return rng.poisson(np.atleast_1d(np.asarray(f, dtype=np.float64)) ** 2).astype(np.float64)


def third(y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return 4 y / f^3."""
    y, f, _ = aligned(y, f, theta)
    return np.divide(4.0 * y, f**3, out=np.zeros_like(f), where=y > 0.0)


def averaged(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of log p(y | f) and its derivatives in m, by that of log f^2.

    E[log f^2] has the slope 2 sqrt(2 / v) D(z) with z = m / sqrt(2 v) and D Dawson's function, though the mean of the
    curve, 1 / f^2, does not exist.

    Source: Lloyd, Gunter, Osborne, Roberts (2015), Variational inference for Gaussian process modulated Poisson
    processes, as an integral.
    """
    counts, mean, var, _ = aligned(y, m, v, theta)
    var = np.maximum(var, TINY)
    z = mean / np.sqrt(2.0 * var)
    slope = 2.0 * np.sqrt(2.0 / var) * dawsn(z)
    curve = 2.0 / var * (1.0 - 2.0 * z * dawsn(z))
    value = counts * _mean_log_square(z, mean, var) - (mean * mean + var) - gammaln(counts + 1.0)
    return value, counts * slope - 2.0 * mean, counts * curve - 2.0


def _mean_log_square(z: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """E[log f^2]."""
    node, weight = legendre.leggauss(DAWSON_NODES)
    near = np.minimum(np.abs(z), FAR)
    inner = 0.5 * near * (dawsn(0.5 * near[:, None] * (node + 1.0)) @ weight)
    close = np.log(2.0 * v) + digamma(0.5) + 4.0 * inner
    w = 0.5 / np.maximum(np.abs(z), FAR) ** 2
    series = w * (1.0 + w * (1.5 + w * (5.0 + w * (26.25 + w * (189.0 + w * 1732.5)))))
    away = 2.0 * np.log(np.maximum(np.abs(m), TINY)) - series
    return np.where(np.abs(z) < FAR, close, away)


def rough(y: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussians around sqrt(y), whose precision is about 4 whatever y is."""
    y, _ = aligned(y, theta)
    return np.full_like(y, 4.0), 4.0 * np.sqrt(y + 0.25)


POISSON_SQUARE = Likelihood(
    "poisson_square",
    1.0,
    check_y,
    tilted,
    loglik,
    predict,
    quantile,
    logpdf,
    sample,
    third=third,
    averaged=averaged,
    rough=rough,
)
