"""Tobit likelihood: y = max(0, t) with t ~ N(f, 1 / theta), theta the noise precision; y <= 0 says only that t <= 0.

Values that pile up at a lower limit (detection limits, log(1 + count), durations) are such observations once the limit
is subtracted (`censored_at`); a value beyond the limit counts as one at the limit. At an upper limit (saturated
sensors, full scores) y = min(0, t), and y >= 0 says only that t >= 0: the same with every sign turned round, for which
kernels have the `side` of measured values as a constant.

Source: Tobin (1958), Econometrica 26; Chib (1992), J. Econometrics 51, for the latent normal of censored values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from tensorcep.core.checks import check_fraction, check_values
from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.core.random import start_stream, truncated_normal
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import LOG_SQRT_2PI, log, normal_cdf_parts
from tensorcep.likelihoods.base import Augmentation, Likelihood, aligned
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.parameters.base import NoisePrecision

# Where measured values lie: above a lower limit, below an upper one (whose kernels are `tilted_above` and so on).
LOWER, UPPER = 1.0, -1.0


@inlined
def _tilted(side, y, m, v, theta, logz, alpha, beta):
    """As the Gaussian for side y > 0. Otherwise log Phi(z), alpha = -side r / s and beta = r (z + r) / s^2."""
    # There z = -side m / s, s^2 = v + 1 / theta, r = phi(z) / Phi(z); z + r keeps its digits for very negative z.
    for n in range(y.shape[0]):
        beta[n] = -side * m[n] / math.sqrt(v[n] + 1.0 / theta[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        precision = theta[n] / (v[n] * theta[n] + 1.0)
        if side * y[n] > 0.0:
            residual = y[n] - m[n]
            logz[n] = 0.5 * log(precision) - LOG_SQRT_2PI - 0.5 * residual * residual * precision
            alpha[n] = residual * precision
            beta[n] = precision
        else:
            r = alpha[n]
            alpha[n] = -side * r * math.sqrt(precision)
            beta[n] = r * beta[n] * precision


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    _tilted(LOWER, y, m, v, theta, logz, alpha, beta)


@kernel
def tilted_above(y, m, v, theta, logz, alpha, beta):
    _tilted(UPPER, y, m, v, theta, logz, alpha, beta)


@inlined
def _loglik(side, y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        d2[n] = -side * f[n] * math.sqrt(theta[n])
    normal_cdf_parts(d2, value, d1)
    for n in range(y.shape[0]):
        if side * y[n] > 0.0:
            residual = y[n] - f[n]
            value[n] = 0.5 * log(theta[n]) - LOG_SQRT_2PI - 0.5 * residual * residual * theta[n]
            d1[n] = residual * theta[n]
            d2[n] = -theta[n]
        else:
            r = d1[n]
            d1[n] = -side * r * math.sqrt(theta[n])
            d2[n] = -r * d2[n] * theta[n]


@kernel
def loglik(y, f, theta, value, d1, d2):
    _loglik(LOWER, y, f, theta, value, d1, d2)


@kernel
def loglik_above(y, f, theta, value, d1, d2):
    _loglik(UPPER, y, f, theta, value, d1, d2)


@inlined
def _expected(side, y, f, theta, weight, target, spread, constant):
    """Write mean, variance and entropy of the normal N(f, 1 / theta) on the other side of 0, where side y <= 0."""
    for n in range(y.shape[0]):
        spread[n] = -side * f[n] * math.sqrt(theta[n])
    normal_cdf_parts(spread, constant, target)
    for n in range(y.shape[0]):
        weight[n] = 1.0
        if side * y[n] > 0.0:
            target[n], spread[n], constant[n] = y[n], 0.0, 0.0
        else:
            ratio, z = target[n], -side * f[n] * math.sqrt(theta[n])
            target[n] = f[n] - side * ratio / math.sqrt(theta[n])
            spread[n] = (1.0 - ratio * spread[n]) / theta[n]
            constant[n] += 0.5 * (log(2.0 * math.pi / theta[n]) + 1.0 - ratio * z)


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    _expected(LOWER, y, f, theta, weight, target, spread, constant)


@kernel
def expected_above(y, f, square, theta, weight, target, spread, constant):
    _expected(UPPER, y, f, theta, weight, target, spread, constant)


@inlined
def _drawn(side, first, last, y, used, f, theta, key, target, s):
    """target = y, and for side y <= 0 a draw of the normal N(f, 1 / theta) on the other side of 0 (Chib 1992)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            target[b, lane] = y[b, lane]
            if used[b, lane] > 0.0 and side * y[b, lane] <= 0.0:
                sd = 1.0 / np.sqrt(theta[b, lane])
                target[b, lane] = f[b, lane] - side * sd * truncated_normal(s, side * f[b, lane] / sd)


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    _drawn(LOWER, first, last, y, used, f, theta, key, target, s)


@block_kernel
def drawn_above(first, last, y, used, f, theta, key, weight, target, s):
    _drawn(UPPER, first, last, y, used, f, theta, key, target, s)


@dataclass(frozen=True)
class Tobit(Likelihood):
    """y = max(limit, t), t ~ N(limit + f, 1 / theta), of a lower limit; min of an upper one. Kernels take y - limit."""

    limit: float = 0.0

    def back(self, z: np.ndarray) -> np.ndarray:
        """Values as they are observed, of values as kernels take them."""
        return self.limit + self.side * np.maximum(0.0, self.side * z)

    def check_y(self, y: ArrayLike) -> np.ndarray:
        return self.side * np.maximum(self.side * (check_values(y, name="y") - self.limit), 0.0)

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return limit and side times the mean of max(0, t), t ~ N(side m, v + 1 / theta), and its variance."""
        # With x = |m| / s, a = E[max(0, n - x)] and b = E[max(0, n - x)^2] of a standard normal n, mean and variance
        # are s a and s^2 (b - a^2) for side m < 0, and side m + s a and s^2 (1 - b - 2 x a - a^2) otherwise: no digits
        # are lost far out.
        m, v, theta = aligned(self.side * np.asarray(m), v, theta)
        s = np.sqrt(v + 1.0 / theta)
        x = np.abs(m) / s
        log_tail, ratio, excess = np.empty_like(x), np.empty_like(x), -x
        normal_cdf_parts(excess, log_tail, ratio)
        tail = np.exp(log_tail)
        a, b = tail * excess, tail * (1.0 - x * excess)
        below = m < 0.0
        variance = np.where(below, b - a * a, 1.0 - b - 2.0 * x * a - a * a)
        return self.limit + self.side * (np.where(below, 0.0, m) + s * a), s * s * np.maximum(variance, 0.0)

    def _on_side(self, q: float) -> float:
        return check_fraction("q", q) if self.side == LOWER else 1.0 - check_fraction("q", q)

    def quantile(self, q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        m, v, theta = aligned(self.side * np.asarray(m), v, theta)
        return self.back(self.side * (m + ndtri(self._on_side(q)) * np.sqrt(v + 1.0 / theta)))

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return self.back(self.side * mixture_quantile(self._on_side(q), self.side * np.asarray(m), v, theta))

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of an observation of at most, and of at least, y; none is beyond the limit."""
        y, m, v, theta = aligned(self.side * np.asarray(y), self.side * np.asarray(m), v, theta)
        z = (y - m) / np.sqrt(v + 1.0 / theta)
        tails = ndtr(z), np.where(y > 0.0, ndtr(-z), 1.0)
        return tails if self.side == LOWER else tails[::-1]

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        return self.back(f + rng.standard_normal(f.shape) / np.sqrt(theta))


def censored_at(limit: float, side: float = LOWER) -> Likelihood:
    """Return the likelihood of values with this limit, a lower one or, with side=UPPER, an upper one."""
    lower, upper = (tilted, loglik, expected, drawn), (tilted_above, loglik_above, expected_above, drawn_above)
    kernels = lower if side == LOWER else upper
    normal = Augmentation(*kernels[2:], hides=lambda y: side * y <= 0.0)
    return Tobit("tobit", *kernels[:2], (NoisePrecision(),), normal=normal, limit=limit, side=side)


TOBIT = censored_at(0.0)
