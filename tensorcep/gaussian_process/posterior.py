"""A Gaussian process prior at n points times Gaussian sites: moments, normaliser, and what predictions are made of.

For sites of positive precision everything follows from one Cholesky factor of I + T^1/2 K T^1/2; where some are
negative, from one of I + C'T C with K = C C'.

Source: Rasmussen and Williams (2006), Gaussian processes for machine learning, sec. 3.6.3.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from tensorcep.ep.gaussian import Functions
from tensorcep.ep.linear_gaussian import root_of

# Sites that add less than this fraction to the precision of their latent value: its variance comes from a product,
# which does not cancel, and not from the diagonal of an inverse.
LEAST_INFORMED = 1e-5
# Rows of a triangle that are mirrored at a time.
ROWS = 256


class Prior:
    """f ~ N(mean, K) at the training points, K (n, n) and a constant prior mean."""

    def __init__(self, K: np.ndarray, mean: float = 0.0):
        self.K, self.mean, self.variance = K, mean, np.diag(K).copy()

    @cached_property
    def root(self) -> np.ndarray:
        """C with K = C C', of as many columns as K has rank; only sites of negative precision need it."""
        root = root_of(self.K, len(self.K))
        return root if root.ndim == 2 else np.diag(root)


class Posterior:
    """Prior times sites exp(nu f - tau f^2 / 2); raises LinAlgError where that is not a Gaussian."""

    # `f` and `s` are mean and variance of the latent values, `dual` is K^-1 (f - mean), all (n,); `log_root_det` is
    # half of the log determinant of I + K T, `log_integral` the log of the integral of prior times sites.
    def __init__(self, prior: Prior, tau: np.ndarray, nu: np.ndarray):
        self.prior, self.tau = prior, tau
        mean, K, pull = prior.mean, prior.K, nu - tau * prior.mean
        self._positive = bool((tau >= 0.0).all())
        if not self._positive:  # by the root of the prior
            C = prior.root
            P = C.T @ (tau[:, None] * C)
            P[np.diag_indices_from(P)] += 1.0
            self._chol = _cholesky(P.T)
            self.log_root_det = float(np.log(np.diag(self._chol)).sum())
            deviation = C @ lapack.dpotrs(self._chol, C.T @ pull, lower=1)[0]
            self.f, self.dual = mean + deviation, pull - tau * deviation
            half = linalg.solve_triangular(self._chol, C.T, lower=True)
            self.s = np.einsum("ij,ij->j", half, half)
        elif not tau.any():  # the prior, with a pull
            self._inverse, self.log_root_det, self.dual = np.asfortranarray(np.eye(len(K))), 0.0, pull
            self.f, self.s = mean + K @ pull, prior.variance.copy()
        else:  # by those of the sites
            root = np.sqrt(tau)
            B = K * root
            B *= root[:, None]
            B[np.diag_indices_from(B)] += 1.0
            chol = _cholesky(B.T)
            self.log_root_det = float(np.log(np.diag(chol)).sum())
            self._inverse = lapack.dtrtri(chol, lower=1, overwrite_c=1)[0]  # in the place of B
            self.dual = pull - root * (self._inverse.T @ (self._inverse @ (root * (K @ pull))))
            self.f = mean + K @ self.dual
            kept = np.einsum("ij,ij->j", self._inverse, self._inverse)  # the diagonal of B^-1, 1 - tau s
            weak = kept > 1.0 - LEAST_INFORMED
            self.s = (1.0 - kept) / np.where(weak, 1.0, tau)
            if weak.any():
                half = self._inverse @ (root[:, None] * K[:, weak])
                self.s[weak] = prior.variance[weak] - np.einsum("ij,ij->j", half, half)
        offset = (nu - 0.5 * tau * mean) * mean
        self.log_integral = float(offset.sum() + 0.5 * (pull @ (self.f - mean)) - self.log_root_det)

    @cached_property
    def resolvent(self) -> np.ndarray:
        """(K + T^-1)^-1 = T - T S T, S the posterior covariance, (n, n); made once, in the place of the factor."""
        if not self._positive:
            half = linalg.solve_triangular(self._chol, self.prior.root.T * self.tau, lower=True)
            R = half.T @ half
            np.negative(R, out=R)
            R[np.diag_indices_from(R)] += self.tau
            return np.asarray(R)
        R = lapack.dlauum(self._inverse, lower=1, overwrite_c=1)[0]
        del self._inverse
        for first in range(0, len(R), ROWS):  # the upper triangle, whose numbers are not those of the result
            rows = slice(first, first + ROWS)
            R[rows, first:] = R[first:, rows].T
            own = R[rows, rows]
            own[:] = np.tril(own.T) + np.tril(own.T, -1).T
        root = np.sqrt(self.tau)
        R *= root
        R *= root[:, None]
        return np.asarray(R)

    def covariance(self) -> np.ndarray:
        """The posterior covariance of f, (n, n)."""
        product = self.prior.K @ self.resolvent @ self.prior.K
        return np.subtract(self.prior.K, product, out=product)

    def functions(self) -> Functions:
        """The posterior of f at any points."""
        return Functions(self.dual, self.resolvent)


def _cholesky(B: np.ndarray) -> np.ndarray:
    """The lower factor of a matrix in columns, in its place."""
    chol, info = lapack.dpotrf(B, lower=1, clean=1, overwrite_a=1)
    if info != 0 or not np.isfinite(chol[-1, -1]):
        raise linalg.LinAlgError("prior times sites is not a Gaussian")
    return np.asarray(chol)
