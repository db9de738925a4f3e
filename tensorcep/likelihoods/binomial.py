"""Binomial likelihood with logit link: y successes of theta = n trials, each with the probability 1 / (1 + e^-f).

In f it is that of a negative-binomial count with r = n - y, whose moments are taken; r may be 0 there. A Polya-Gamma
variable omega ~ PG(n, f) makes it Gaussian: e^((y - n / 2) f) / (2 cosh(f / 2))^n.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, xlogy

from tensorcep.core.checks import check_fraction
from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import start_stream
from tensorcep.kernels.polya_gamma import draw_pg, pg_expected
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import negbinomial
from tensorcep.likelihoods.base import Augmentation, aligned
from tensorcep.likelihoods.counts import CountCDF, Counts, beta_cdf, halved

FLAT = negbinomial.FLAT


@kernel
def _log_choose(y, n):
    """Return the log of the number of ways to choose y of n."""
    return math.lgamma(n + 1.0) - math.lgamma(y + 1.0) - math.lgamma(n - y + 1.0)


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log E[p(y | f)], alpha and beta; relative error 1e-10 or better for v <= 100. More than n is impossible."""
    for i in range(y.shape[0]):
        r = theta[i] - y[i]
        if r < 0.0:
            logz[i], alpha[i], beta[i] = -np.inf, 0.0, 0.0
        elif v[i] >= 0.0 and v[i] <= FLAT:
            logz[i], alpha[i], beta[i] = negbinomial.in_latent(y[i], r, m[i])
            logz[i] += _log_choose(y[i], theta[i])
            beta[i] = -beta[i]
        else:
            logz[i], alpha[i], beta[i] = negbinomial.tilted_in_latent(y[i], r, m[i], v[i])
            logz[i] += _log_choose(y[i], theta[i])


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for i in range(y.shape[0]):
        value[i], d1[i], d2[i] = negbinomial.in_latent(y[i], theta[i] - y[i], f[i])
        value[i] += _log_choose(y[i], theta[i])


def deviance(y: np.ndarray, mean: np.ndarray, n: np.ndarray, weights: np.ndarray) -> float:
    """Twice the sum over entries of their weights times log p(y) at the share y / n less that at mean / n."""
    tiny = np.finfo(np.float64).tiny
    each = xlogy(y, y / np.maximum(mean, tiny)) + xlogy(n - y, (n - y) / np.maximum(n - mean, tiny))
    return 2.0 * float(weights @ each)


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of omega ~ PG(n, xi) with xi^2 = square, and what it adds to the bound."""
    pg_expected(theta, square, weight, constant)
    spread[:] = 0.0
    for i in range(y.shape[0]):
        target[i] = y[i] - 0.5 * theta[i]
        constant[i] += _log_choose(y[i], theta[i])


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """weight = a draw of omega ~ PG(n, f); of an entry that counts `used` times of PG(used n, f)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                n = used[b, lane] * theta[b, lane]
                weight[b, lane], target[b, lane] = draw_pg(s, n, f[b, lane]), used[b, lane] * y[b, lane] - 0.5 * n


@kernel
def matched(y, f, square, theta, weight, target, spread, constant):
    """Write the Gaussian that has the expected slope and curvature of the log likelihood (see `poisson.matched`)."""
    negbinomial.matched(y, f, square, theta - y, weight, target, spread, constant)
    for i in range(y.shape[0]):
        constant[i] += _log_choose(y[i], theta[i])


class Binomial(Counts):
    """Successes of theta trials."""

    extent = "trials"

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        m, v, n = aligned(m, v, theta)
        # n / 4 is the largest curvature in f
        cdf = beta_cdf(m, v, lambda k, rows: (np.maximum(n[rows] - k, 0.5), 0.25 * n[rows]))
        return lambda k, rows: np.where(k >= n[rows], 1.0, cdf(k, rows))

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, n = aligned(m, v, theta)
        one, two = np.ones_like(m), np.full_like(m, 2.0)
        p, square = np.exp(self.logpdf(one, m, v, one)), np.exp(self.logpdf(two, m, v, two))
        return n * p, n * np.maximum(p - square, 0.0) + n * n * np.maximum(square - p * p, 0.0)

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        cdfs, n = [self.cdf(*component) for component in zip(m, v, theta, strict=True)], theta[0]
        low, high = np.full(n.shape, -1.0), np.array(n, dtype=np.float64)
        q = check_fraction("q", q)
        return halved(q, low, high, lambda k, rows: np.mean([cdf(k, rows) for cdf in cdfs], axis=0))

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, n = aligned(f, theta)
        return rng.binomial(n.astype(np.int64), expit(f)).astype(np.float64)

    def third(self, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return -n p (1 - p) (1 - 2 p) with p = 1 / (1 + e^-f)."""
        _, f, n = aligned(y, f, theta)
        p = expit(f)
        return np.asarray(-n * p * (1.0 - p) * (1.0 - 2.0 * p))


PG = Augmentation(expected, drawn, weighted=True, exponents=lambda y, n: (n, y - 0.5 * n))
BINOMIAL = Binomial("binomial", tilted, loglik, pg=PG, matched=Augmentation(matched, weighted=True, matched=True))
