"""What the likelihoods of 0/1 labels share: coding, predictive distribution and sampling.

Inside, a label is +1 or -1; what goes in and comes out (labels, means, quantiles, draws) is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.checks import check_fraction, check_values, check_zero_one
from tensorcep.likelihoods.arrays import tilted_moments
from tensorcep.likelihoods.base import Likelihood


def code_labels(y: ArrayLike) -> np.ndarray:
    """Return labels 0/1 or booleans as (n,) float64 -1/+1."""
    return 2.0 * check_zero_one("y", check_values(y, name="y")) - 1.0


def binary_likelihood(
    name: str,
    tilted: Any,
    loglik: Any,
    cdf: Callable[[np.ndarray], np.ndarray],
    tilted2: Any = None,
    shares: Any = None,
) -> Likelihood:
    """Return the record of P(y = 1 | f) = cdf(f) with a cdf that is symmetric about 0.

    The kernel ``shares(f, one, zero)``, if there is one, writes the means of both probabilities over the lines of f.
    """

    def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return tilted_moments(tilted, y, m, v, theta)[0]

    def of_points(f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one, zero = np.empty(f.shape[1]), np.empty(f.shape[1])
        shares(np.ascontiguousarray(f), one, zero)
        return one, one * zero

    record = label_record(name, logpdf, cdf)._replace(tilted=tilted, loglik=loglik, tilted2=tilted2)
    return record if shares is None else record._replace(of_points=of_points)


def label_record(
    name: str, logpdf: Callable[..., np.ndarray], probability: Callable[[np.ndarray], np.ndarray]
) -> Likelihood:
    """Return the record that predicts labels, from the log predictive mass and P(y = 1 | f); it cannot be fitted."""

    def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        one = np.exp(logpdf(1.0, m, v, theta))
        zero = np.exp(logpdf(-1.0, m, v, theta))
        return one, one * zero

    def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        zero = np.exp(logpdf(-1.0, m, v, theta))
        return np.where(check_fraction("q", q) <= zero, 0.0, 1.0)

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f = np.atleast_1d(np.asarray(f, dtype=np.float64))
        return (rng.random(f.shape) < probability(f)).astype(np.float64)

    def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        one, is_one = predict(m, v, theta)[0], np.asarray(y) > 0.0
        return np.where(is_one, 1.0, 1.0 - one), np.where(is_one, one, 1.0)

    return Likelihood(name, 1.0, code_labels, None, None, predict, quantile, logpdf, sample, tails=tails)


def mixed_with(likelihood: Likelihood, share: float, one: float) -> Likelihood:
    """Return the record that predicts labels by a likelihood at a share, and otherwise 1 with probability `one`."""

    def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        constant = np.where(np.asarray(y) > 0.0, np.log(one), np.log1p(-one))
        return np.logaddexp(np.log(share) + likelihood.logpdf(y, m, v, theta), np.log1p(-share) + constant)

    def probability(f: np.ndarray) -> np.ndarray:
        return share * likelihood.predict(f, np.zeros_like(f), np.ones_like(f))[0] + (1.0 - share) * one

    return label_record(f"{likelihood.name}, beside a constant", logpdf, probability)
