"""Observations that a fitted relation predicts, from the moments of their latent values."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

# E[g(f)] for f ~ N(m, v) as a weighted sum over m + sqrt(v) z; 20 Gauss-Hermite nodes are exact to 1e-6 for v < 10.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
MAX_EXPONENT = 300.0


def predict_cells(
    likelihood: str, f: np.ndarray, variance: np.ndarray, noise_variance: np.ndarray, r: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a new observation whose latent value is N(f, variance).

    `noise_variance` is that of the explicit noise or of Gaussian data, and is added to the latent variance.
    """
    total = variance + noise_variance
    if likelihood == "gaussian":
        return f, np.broadcast_to(total, f.shape)
    if likelihood == "bernoulli":
        p = _expected(expit, f, total)
        return p, p * (1.0 - p)
    if likelihood == "poisson":
        rate = _expected(lambda z: np.logaddexp(0.0, z), f, total)
        square = _expected(lambda z: np.logaddexp(0.0, z) ** 2, f, total)
        return rate, rate + square - rate**2
    if r is None:
        raise ValueError("counts need a dispersion r; got None.")
    odds = np.exp(np.minimum(f + 0.5 * total, MAX_EXPONENT))  # E[p / (1 - p)]
    squared = np.exp(np.minimum(2.0 * (f + total), MAX_EXPONENT))
    return r * odds, r * (odds + squared) + r * r * (squared - odds * odds)


def _expected(g, m: np.ndarray, v: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    sd = np.sqrt(v)
    total = np.zeros(np.broadcast_shapes(m.shape, sd.shape))
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        total += weight * g(m + sd * node)
    return total
