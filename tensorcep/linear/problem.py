"""What the methods for generalised linear models work on, and what they return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.likelihoods.base import Likelihood


class GLMProblem(NamedTuple):
    """y_i ~ p(y | x_i'w) with w ~ N(prior_mean, prior_cov)."""

    X: Any  # (n, d) scipy.sparse CSR, float64; also dense for methods with a full posterior covariance
    y: np.ndarray  # (n,) labels in the likelihood's own coding, -1 and +1
    likelihood: Likelihood
    prior_mean: np.ndarray  # (d,)
    prior_cov: np.ndarray  # (d,) variances, or a matrix (d, d) for methods with a full posterior covariance
    learned: np.ndarray  # (d,) bool: the weights whose common prior variance is learned by evidence
    seed: int = 0


class GLMPosterior(NamedTuple):
    """A Gaussian posterior of the weights."""

    mean: np.ndarray  # (d,)
    cov: np.ndarray  # (d,) variances of a factorised posterior, or the covariance (d, d)
    prior_cov: np.ndarray  # the prior's, with the learned variance in it
    log_evidence: float  # the method's estimate or lower bound of log p(y); nan where it has none


def learned_variance(problem: GLMProblem, prior_cov: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """The prior variances with those of the learned weights at E[w^2] averaged over them (a step of EM)."""
    if not problem.learned.any():
        return prior_cov
    second = float(np.mean((mean - problem.prior_mean)[problem.learned] ** 2 + var[problem.learned]))
    return np.where(problem.learned, second, prior_cov)


def as_csr(X: Any) -> Any:
    """A float64 CSR matrix with sorted rows, without stored zeros."""
    X = sparse.csr_matrix(X, dtype=np.float64)
    if not X.has_canonical_format or (X.data == 0.0).any():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X
