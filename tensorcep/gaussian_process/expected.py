"""Means of log p(y | f) and of its derivatives over a Gaussian of f, for variational Bayes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from scipy.special import dawsn, digamma, gammaln

from tensorcep.kernels.quadrature import REACH
from tensorcep.likelihoods.arrays import log_density
from tensorcep.likelihoods.record import Likelihood

# Nodes of the trapezoidal rule per standard deviation of f and per unit of f: the error of an analytic integrand falls
# exponentially with their density.
NODES, NODES_PER_UNIT, MAX_NODES = 5.0, 5.0, 2048
# E[log f^2] by an integral up to this mean, in units of sqrt(2) standard deviations, and by its series beyond.
FAR, PANEL = 12.0, 96
Means = tuple[np.ndarray, np.ndarray, np.ndarray]


def expected_density(record: Likelihood, y: np.ndarray, theta: np.ndarray, f: np.ndarray, s: np.ndarray) -> Means:
    """Means over N(f, s) of log p(y | .), its slope and its curve, the last two as derivatives of the first by f."""
    if record.name in _CLOSED:
        return _CLOSED[record.name](y, f, s)
    sd = np.sqrt(np.maximum(s, 0.0))
    count = int(min(2.0 * REACH * (NODES + NODES_PER_UNIT * sd.max(initial=0.0)), MAX_NODES)) + 1
    u = np.linspace(-REACH, REACH, count)
    weight = np.exp(-0.5 * u * u)
    at = f[:, None] + sd[:, None] * u
    found = log_density(record.loglik, np.repeat(y, count), at.ravel(), np.repeat(theta, count))
    value, slope, curve = (a.reshape(at.shape) @ (weight / weight.sum()) for a in found)
    return value, slope, curve


def _poisson(y: np.ndarray, f: np.ndarray, s: np.ndarray) -> Means:
    with np.errstate(over="ignore"):
        rate = np.exp(f + 0.5 * s)
    return y * f - rate - gammaln(y + 1.0), y - rate, -rate


def _poisson_square(y: np.ndarray, f: np.ndarray, s: np.ndarray) -> Means:
    """E[log f^2] has the slope 2 sqrt(2 / s) D(z), z = f / sqrt(2 s), D Dawson's function (Lloyd et al. 2015)."""
    s = np.maximum(s, 1e-300)
    z = f / np.sqrt(2.0 * s)
    slope = 2.0 * np.sqrt(2.0 / s) * dawsn(z)
    curve = 2.0 / s * (1.0 - 2.0 * z * dawsn(z))
    value = y * _log_square(z, f, s) - (f * f + s) - gammaln(y + 1.0)
    return value, y * slope - 2.0 * f, y * curve - 2.0


def _log_square(z: np.ndarray, f: np.ndarray, s: np.ndarray) -> np.ndarray:
    """E[log f^2]."""
    node, weight = legendre.leggauss(PANEL)
    near = np.minimum(np.abs(z), FAR)
    inner = 0.5 * near * (dawsn(0.5 * near[:, None] * (node + 1.0)) @ weight)
    close = np.log(2.0 * s) + digamma(0.5) + 4.0 * inner
    w = 0.5 / np.maximum(np.abs(z), FAR) ** 2
    series = w * (1.0 + w * (1.5 + w * (5.0 + w * (26.25 + w * (189.0 + w * 1732.5)))))
    away = 2.0 * np.log(np.maximum(np.abs(f), 1e-300)) - series
    return np.where(np.abs(z) < FAR, close, away)


_CLOSED: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Means]] = {
    "poisson": _poisson,
    "poisson_square": _poisson_square,
}
