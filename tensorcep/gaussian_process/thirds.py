"""Third derivatives of log p(y | f) in f, which Laplace's evidence needs for its gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from tensorcep.likelihoods.arrays import log_density
from tensorcep.likelihoods.probit import PROBIT


def _probit(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """With r = phi(z) / Phi(z), z = y f: the derivatives of r are -r (z + r) and r ((z + r)(z + 2 r) - 1)."""
    _, slope, curve = log_density(PROBIT.loglik, y, f, 1.0)
    r = y * slope
    excess = np.divide(-curve, r, out=np.zeros_like(r), where=r > 0.0)
    return np.asarray(y * r * (excess * (excess + r) - 1.0))


def _logit(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    p = expit(f)
    return np.asarray(-p * (1.0 - p) * (1.0 - 2.0 * p))


def _poisson(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.asarray(-np.exp(f))


def _poisson_square(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.divide(4.0 * y, f**3, out=np.zeros_like(f), where=y > 0.0)


_THIRDS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "probit": _probit,
    "logit": _logit,
    "poisson": _poisson,
    "poisson_square": _poisson_square,
}


def third_derivative(name: str, y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The derivative for the likelihood of this name, (n,)."""
    return _THIRDS[name](y, f)
