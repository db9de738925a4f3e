"""Means of log p(y | f) and of its derivatives over a Gaussian of f, for variational Bayes."""

from __future__ import annotations

import numpy as np

from tensorcep.kernels.special import REACH
from tensorcep.likelihoods.arrays import log_density
from tensorcep.likelihoods.base import Likelihood

# Nodes of the trapezoidal rule per standard deviation of f and per unit of f: the error of an analytic integrand falls
# exponentially with their density.
NODES, NODES_PER_UNIT, MAX_NODES = 5.0, 5.0, 2048


def expected_density(
    record: Likelihood, y: np.ndarray, theta: np.ndarray, f: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means over N(f, s) of log p(y | .), its slope and its curve, in closed form where the likelihood has one."""
    if record.averaged is not None:
        return record.averaged(y, f, s, theta)
    sd = np.sqrt(np.maximum(s, 0.0))
    count = int(min(2.0 * REACH * (NODES + NODES_PER_UNIT * sd.max(initial=0.0)), MAX_NODES)) + 1
    u = np.linspace(-REACH, REACH, count)
    weight = np.exp(-0.5 * u * u)
    at = f[:, None] + sd[:, None] * u
    found = log_density(record.loglik, np.repeat(y, count), at.ravel(), np.repeat(theta, count))
    value, slope, curve = (a.reshape(at.shape) @ (weight / weight.sum()) for a in found)
    return value, slope, curve
