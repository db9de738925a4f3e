"""Gaussian likelihood: y ~ N(level + f, 1 / theta), with theta the noise precision of the entry; or of a power of y.

What goes in and comes out (values, means, quantiles, draws) is in the units of y. Inside, y and f are differences from
the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import boxcox, inv_boxcox, ndtr, ndtri

from tensorcep.core.checks import check_fraction, check_values, fail_value
from tensorcep.core.compile import kernel
from tensorcep.kernels.rank_update import moments_over
from tensorcep.kernels.special import INV_SQRT_2PI, LOG_SQRT_2PI, exp, log, newton_or_middle, upper_tail
from tensorcep.likelihoods.base import Augmentation, Likelihood, aligned
from tensorcep.likelihoods.parameters.base import NoisePrecision

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


@kernel
def _first_guess(q_normal, mean, sd):
    """The quantile that fits the first four cumulants of the mixture, within the bracket of its parts', and those."""
    # Source: Cornish and Fisher (1938), to the second order. The spread of the parts counts as the same in all of them.
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
    """x[n] = the q-quantile of the mixture of N(mean[n, c], sd[n, c]^2) over c, by Halley's steps within a bracket."""
    # `q_normal` is the standard normal quantile: the mixture's lies between the smallest and the largest of its parts'.
    # Where all entries have the same sd, it has one line.
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


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y ~ N(level + f, 1 / theta)."""

    level: float = 0.0
    observes = "values"

    def back(self, z: np.ndarray) -> np.ndarray:
        """Values as they are observed, of values as kernels take them."""
        return self.level + z

    def check_y(self, y: ArrayLike) -> np.ndarray:
        return check_values(y, name="y") - self.level

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, theta = aligned(m, v, theta)
        return self.level + m, v + 1.0 / theta

    def quantile(self, q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        m, v, theta = aligned(m, v, theta)
        return self.back(m + ndtri(check_fraction("q", q)) * np.sqrt(v + 1.0 / theta))

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return self.back(mixture_quantile(q, m, v, theta))

    def of_points(self, f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = np.empty(f.shape[1]), np.empty(f.shape[1])
        moments_over(np.ascontiguousarray(f), mean, variance)
        return self.level + mean, variance + (1.0 / _lines(theta)).mean(axis=1)

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, theta = aligned(y, m, v, theta)
        z = (y - m) / np.sqrt(v + 1.0 / theta)
        return ndtr(z), ndtr(-z)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        return self.back(f + rng.standard_normal(f.shape) / np.sqrt(theta))


GAUSSIAN = Gaussian("gaussian", tilted, loglik, (NoisePrecision(),), normal=Augmentation())


# A power of y: g(y) ~ N(level + f, 1 / theta), g(y) = (y^p - 1) / p, and log y for p = 0.
#
# For positive values whose noise grows with their level. Kernels take z = g(y) - level and are those of the Gaussian;
# means, quantiles and draws are of y. Densities of z are those of y but for the slope of g, which `log_slopes` tells.
#
# Source: Box and Cox (1964), J. R. Statist. Soc. B 26. What the Gaussian says of powers below 0, where no y lies,
# counts as y = 0.

# Logarithms of y stay below this, so that squares of what is predicted are finite.
LARGEST_LOG = 300.0
# Nodes of the mean over the Gaussian: exact for the squares that p = 1/2 asks for.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class GaussianPower(Gaussian):
    """Positive values whose power, from 0 to below 1, is Gaussian about the level."""

    power: float = 1.0
    is_curved = True
    of_points = None  # type: ignore[assignment]

    def check_y(self, y: ArrayLike) -> np.ndarray:
        y, power = check_values(y, name="y"), self.power
        if len(y) and not y.min() > 0.0:
            remedy = "add a constant to all, or use power=1"
            fail_value(f"power={power:g} is for positive values; got {y.min():g}; {remedy}.")
        return np.asarray(boxcox(y, power)) - self.level

    def back(self, z: np.ndarray) -> np.ndarray:
        if self.power == 0.0:
            return np.exp(np.minimum(self.level + z, LARGEST_LOG))
        return np.asarray(inv_boxcox(np.maximum(self.level + z, -1.0 / self.power), self.power))

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, theta = aligned(m, v, theta)
        variance = v + 1.0 / theta
        if self.power == 0.0:
            mean = np.exp(np.minimum(self.level + m + 0.5 * variance, LARGEST_LOG))
            return mean, mean * mean * np.expm1(np.minimum(variance, LARGEST_LOG))
        sd, first, square = np.sqrt(variance), np.zeros_like(m), np.zeros_like(m)
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            y = self.back(m + node * sd)
            first += weight * y
            square += weight * y * y
        return first, np.maximum(square - first * first, 0.0)

    def log_slopes(self, y: np.ndarray) -> np.ndarray:
        # g'(y) = y^(p - 1), and y^p = 1 + p g
        log_y = self.level + y if self.power == 0.0 else np.log1p(self.power * (self.level + y)) / self.power
        return (self.power - 1.0) * log_y


def of_power(power: float, level: float) -> Gaussian:
    """Return the likelihood of positive values a power of which, 0 to 1, is Gaussian about a level; of all for 1."""
    if power == 1.0:
        return replace(GAUSSIAN, level=level)
    learned, normal = (NoisePrecision(),), Augmentation()
    return GaussianPower("gaussian", tilted, loglik, learned, normal=normal, level=level, power=power)
