"""Weights of what predicts entries that were left out: stacking."""

from __future__ import annotations

import numpy as np

# The steps that find the weights, at most; the log score within which they find the best; and the least weight with
# which a chain goes on.
STACKING_STEPS, STACKING_TOL, LEAST_WEIGHT = 500, 1e-3, 0.02


def stacking_weights(log_density: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Weights (C,) at which the mixture of C components predicts best, from the log densities (C, n) of n values.

    They are those of `before` unless the best ones gain more than one unit of log density for each weight that was
    chosen (Akaike), and 0 for components that hardly count. A density that is no number counts as 0, and a value that
    no component holds for possible tells nothing.
    """
    C, log_density = len(log_density), np.where(np.isnan(log_density), -np.inf, log_density)
    log_density = log_density[:, np.isfinite(log_density.max(axis=0))]
    if not log_density.size:
        return before
    density = np.exp(log_density - log_density.max(axis=0))
    weights = np.full(C, 1.0 / C)
    for _ in range(STACKING_STEPS):  # expectation maximisation: the problem is convex
        gain = (density / (weights @ density)).mean(axis=1)
        weights = weights * gain
        if len(density.T) * (gain.max() - 1.0) < STACKING_TOL:  # no weights have a score that is higher by more
            break
    with np.errstate(divide="ignore"):
        gain = np.log(weights @ density).sum() - np.log(before @ density).sum()
    if gain <= C - 1.0:
        return before
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    return weights / weights.sum()
