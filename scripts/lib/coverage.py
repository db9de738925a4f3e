"""Data simulated from the CP model, and how well the intervals of a fit hold the true latent values."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from tensorcep.cp.simulate import CPSimulation

# A product of normal factors has heavy tails: at sd 1 the largest of 50,000 latent values is 12, a count of 180,000.
LATENT_SD = {"gaussian": 1.0, "probit": 1.0, "logit": 1.0, "poisson": 0.5}
FIT_SEED = 1000  # added to the seed of the data, so that a fit does not start at the draws that made them


def latent_of(simulated: CPSimulation, coords: np.ndarray) -> np.ndarray:
    """The true latent value of any cells."""
    product = np.ones((len(coords), simulated.factors[0].shape[1]))
    for k, factor in enumerate(simulated.factors):
        product *= factor[coords[:, k]]
    return simulated.intercept + product.sum(axis=1)


def interval_scores(model: Any, coords: np.ndarray, truth: np.ndarray, coverage: float) -> dict[str, float]:
    """Coverage, mean width and error of the intervals, and the mean square of the standardised error."""
    mean, variance = model.predict_latent(coords)
    sd = np.sqrt(variance)
    z = float(ndtri(0.5 + 0.5 * coverage))
    error = np.abs(truth - mean)
    return {
        "coverage": float(np.mean(error <= z * sd)),
        "width": float(np.mean(2.0 * z * sd)),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "z2": float(np.mean((error / sd) ** 2)),
    }
