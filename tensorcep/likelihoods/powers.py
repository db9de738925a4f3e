"""Gaussian likelihood of a power of y: g(y) ~ N(level + f, 1 / theta), g(y) = (y^p - 1) / p, and log y for p = 0.

For positive values whose noise grows with their level. Kernels take z = g(y) - level and are those of the Gaussian;
means, quantiles and draws are of y. Densities of z are those of y but for the slope of g, which `log_slope` tells.

Source: Box and Cox (1964), J. R. Statist. Soc. B 26. What the Gaussian says of powers below 0, where no y lies, counts
as y = 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import boxcox, inv_boxcox

from tensorcep.core.checks import check_values, fail_value
from tensorcep.likelihoods import gaussian
from tensorcep.likelihoods.arrays import aligned
from tensorcep.likelihoods.base import Likelihood

# Logarithms of y stay below this, so that squares of what is predicted are finite.
LARGEST_LOG = 300.0
# Nodes of the mean over the Gaussian: exact for the squares that p = 1/2 asks for.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def of_power(power: float, level: float) -> Likelihood:
    """Return the record of positive values whose power, 0 to 1, is Gaussian about a level; of all values for 1."""
    if power == 1.0:
        return gaussian.gaussian_about(level)

    def check_y(y: ArrayLike) -> np.ndarray:
        y = check_values(y, name="y")
        if len(y) and not y.min() > 0.0:
            fail_value(
                f"power={power:g} is for positive values; got {y.min():g}; add a constant to all, or use power=1."
            )
        return np.asarray(boxcox(y, power)) - level

    def back(z: np.ndarray) -> np.ndarray:
        if power == 0.0:
            return np.exp(np.minimum(level + z, LARGEST_LOG))
        return np.asarray(inv_boxcox(np.maximum(level + z, -1.0 / power), power))

    def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, variance = gaussian.predict(m, v, theta)
        if power == 0.0:
            mean = np.exp(np.minimum(level + m + 0.5 * variance, LARGEST_LOG))
            return mean, mean * mean * np.expm1(np.minimum(variance, LARGEST_LOG))
        sd, first, square = np.sqrt(variance), np.zeros_like(m), np.zeros_like(m)
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            y = back(m + node * sd)
            first += weight * y
            square += weight * y * y
        return first, np.maximum(square - first * first, 0.0)

    def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return back(gaussian.quantile(q, m, v, theta))

    def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return back(gaussian.mixture_quantile(q, m, v, theta))

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        return back(f + rng.standard_normal(f.shape) / np.sqrt(theta))

    def log_slope(z: np.ndarray) -> np.ndarray:
        # g'(y) = y^(p - 1), and y^p = 1 + p g
        log_y = level + z if power == 0.0 else np.log1p(power * (level + z)) / power
        return (power - 1.0) * log_y

    return gaussian.GAUSSIAN._replace(
        check_y=check_y,
        predict=predict,
        quantile=quantile,
        mixture_quantile=mixture_quantile,
        sample=sample,
        of_points=None,
        log_slope=log_slope,
    )
