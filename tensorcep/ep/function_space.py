"""Function space: the posterior of a latent function with a Gaussian process prior, given the sites of its values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.ep.gaussian import EPResult


class Functions(NamedTuple):
    """The posterior of f: mean K a and covariance (prior) - K B K, K the covariances with the training points.

    So no kernel matrix is inverted.

    Attributes
    ----------
    dual : (n,) float64
        a.
    cov : (n, n) float64
        B.
    """

    dual: np.ndarray
    cov: np.ndarray

    def latent(self, K: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at points whose covariances with the training points, and variances, are
        these a priori."""
        explained = np.einsum("ni,ni->n", K @ self.cov, K)
        return K @ self.dual, np.maximum(prior - explained, 0.0)

    def joint(self, K: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and covariance of f at points, as `latent`, for their prior covariance."""
        return K @ self.dual, prior - K @ self.cov @ K.T


def functions_of(result: EPResult, variance: float) -> Functions:
    """The posterior at all points, from the sites of f at the training points, in units of the prior variance."""
    tau = result.sites.tau
    dual = variance * (result.sites.nu - tau * result.mean)
    cov = variance * (np.diag(tau) - tau[:, None] * result.cov * tau) * variance
    return Functions(dual, cov)
