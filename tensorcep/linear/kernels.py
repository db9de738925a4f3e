"""The kernels of the Bayes point machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from tensorcep.core.checks import fail_value


class Kernel(NamedTuple):
    """The prior covariance of f(x) and f(z) without the prior variance: k(x, z), and 1 for an intercept.

    Attributes
    ----------
    kernel : {"linear", "rbf"} or callable
        "rbf" is exp(-|x - z|^2 / (2 length_scale^2)). A callable ``kernel(X, Z)`` returns the matrix of k(x, z).
    """

    kernel: str | Callable[[Any, Any], Any]
    length_scale: float
    constant: bool

    def matrix(self, X: Any, Z: Any) -> np.ndarray:
        """Covariances of f at the rows of X with f at those of Z."""
        if callable(self.kernel):
            K = np.asarray(self.kernel(X, Z), dtype=np.float64)
            if K.shape != (X.shape[0], Z.shape[0]):
                fail_value(f"kernel must return a matrix of shape {(X.shape[0], Z.shape[0])}; got {K.shape}.")
        elif self.kernel == "rbf":
            K = np.exp(-0.5 * euclidean_distances(X, Z, squared=True) / self.length_scale**2)
        else:
            K = (X @ Z.T).toarray() if sparse.issparse(X) else X @ Z.T
        return K + 1.0 if self.constant else K

    def diagonal(self, X: Any) -> np.ndarray:
        """Variances of f at the rows of X."""
        n = X.shape[0]
        if callable(self.kernel):
            return np.array([self.matrix(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(n)])
        square = X.multiply(X) if sparse.issparse(X) else X * X
        own = np.ones(n) if self.kernel == "rbf" else np.asarray(square.sum(axis=1)).ravel()
        return own + 1.0 if self.constant else own
