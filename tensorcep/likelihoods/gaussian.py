"""Gaussian likelihood: y ~ N(level + f, 1 / theta), with theta the noise precision of the entry."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from tensorcep.core.checks import check_fraction, check_values
from tensorcep.core.compile import kernel
from tensorcep.kernels.products import moments_over
from tensorcep.kernels.special import INV_SQRT_2PI, LOG_SQRT_2PI, exp, log, newton_or_middle, upper_tail
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.precision import NoisePrecision

# Halley's steps stop below this fraction of the narrowest component: the error left is about its cube.
QUANTILE_TOL = 1e-4
# A bracket of less than this fraction of it is no longer cut: that would only happen where the density is 0.
CLOSE = 1e-10
QUANTILE_STEPS = 60


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
def _first_guess(q_normal, mean, sd):
    """The quantile that fits the first four cumulants of the mixture, within the bracket of its parts', and those.

    Source: Cornish and Fisher (1938), to the second order. The spread of the parts counts as the same in all of them.
    """
    C = len(mean)
    low = high = mean[0] + q_normal * sd[0]
    centre, noise = 0.0, 0.0
    for c in range(C):
        end = mean[c] + q_normal * sd[c]
        low, high = min(low, end), max(high, end)
        centre += mean[c]
        noise += sd[c] * sd[c]
    centre, noise = centre / C, noise / C
    m2, m3, m4 = 0.0, 0.0, 0.0
    for c in range(C):
        d = mean[c] - centre
        m2 += d * d
        m3 += d * d * d
        m4 += d * d * d * d
    m2, m3, m4 = m2 / C, m3 / C, m4 / C
    variance = m2 + noise
    skew, excess = m3 / variance**1.5, (m4 - 3.0 * m2 * m2) / variance**2
    z = q_normal
    z += (z * z - 1.0) * skew / 6.0 + (z**3 - 3.0 * z) * excess / 24.0 - (2.0 * z**3 - 5.0 * z) * skew * skew / 36.0
    return low, high, min(max(centre + z * math.sqrt(variance), low), high)


@kernel
def _mixture_at(x, mean, inv_sd):
    """Distribution function of the mixture at x, its density, and the density's slope."""
    below, density, slope = 0.0, 0.0, 0.0
    for c in range(len(mean)):
        z = (x - mean[c]) * inv_sd[c]
        bell = exp(-0.5 * z * z)
        tail = upper_tail(abs(z), bell)
        other = 1.0 - tail
        below += other if z > 0.0 else tail
        phi = bell * inv_sd[c]
        density += phi
        slope -= phi * z * inv_sd[c]
    return below / len(mean), INV_SQRT_2PI * density / len(mean), INV_SQRT_2PI * slope / len(mean)


@kernel
def solve_mixture(q, mean, sd, inv_sd, q_normal, x):
    """x[n] = the q-quantile of the mixture of N(mean[n, c], sd[n, c]^2) over c, by Halley's steps within a bracket.

    `q_normal` is the standard normal quantile: the mixture's lies between the smallest and the largest of its parts'.
    Where all entries have the same sd, it has one line.
    """
    for n in range(len(mean)):
        line = min(n, len(sd) - 1)
        widths, inverse = sd[line], inv_sd[line]
        low, high, now = _first_guess(q_normal, mean[n], widths)
        narrowest, before = widths[0], 2.0 * (high - low)
        for c in range(1, len(widths)):
            narrowest = min(narrowest, widths[c])
        close = QUANTILE_TOL * narrowest
        for _ in range(QUANTILE_STEPS):
            below, density, slope = _mixture_at(now, mean[n], inverse)
            excess = below - q
            if excess > 0.0:
                high = now
            else:
                low = now
            step = excess / density if density > 0.0 else np.inf
            bend = 1.0 - 0.5 * step * slope / density if density > 0.0 else 1.0
            step = step / bend if 0.5 < bend < 2.0 else step  # far from the quantile the bend misleads
            now, before = newton_or_middle(now, -step, low, high, before, close)
            if abs(step) <= close or high - low <= CLOSE * narrowest:
                break
        x[n] = now


def _lines(values: np.ndarray) -> np.ndarray:
    """The transpose (n, C) of values (C, n), of one line where all columns are one."""
    return np.ascontiguousarray((values[:, :1] if values.strides[1] == 0 else values).T)


def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the q-quantile (n,) of a new observation under equally likely components (C, n)."""
    sd, x = np.sqrt(_lines(v) + 1.0 / _lines(theta)), np.empty(m.shape[1])
    solve_mixture(float(q), np.ascontiguousarray(m.T), sd, 1.0 / sd, float(ndtri(check_fraction("q", q))), x)
    return x


def of_points(f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance (n,) of a new observation under equally likely latent values (S, n)."""
    mean, variance = np.empty(f.shape[1]), np.empty(f.shape[1])
    moments_over(np.ascontiguousarray(f), mean, variance)
    noise = 1.0 / _lines(theta)
    return mean, variance + noise.mean(axis=1)


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

    def of_points_about(f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = of_points(f, theta)
        return level + mean, variance

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
        parameters=(NoisePrecision(),),
        normal=Augmentation(),
        mixture_quantile=mixture_quantile_about,
        observes="values",
        tails=tails,
        of_points=of_points_about,
    )


GAUSSIAN = gaussian_about(0.0)
