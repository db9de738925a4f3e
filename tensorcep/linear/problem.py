"""What the methods for generalised linear models work on, and what they return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigvalsh_tridiagonal

from tensorcep.likelihoods.base import Likelihood

# Work is divided into at most MAX_CHUNKS ranges of rows, each with about this many stored numbers or more.
CHUNK_SIZE = 1 << 15
MAX_CHUNKS = 32
# Lanczos' iteration has found an invariant space when the next vector is this short; eigenvalues are of the order of 1.
LANCZOS_END = 1e-8


class Rows(NamedTuple):
    """The design in compressed rows, labels -1/+1, and the first row of each chunk."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    y: np.ndarray
    chunk_start: np.ndarray


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


def rows_of(X: Any, y: np.ndarray) -> Rows:
    """The design for the sweeps, in chunks of about equal work that depend on the data alone."""
    start, size = X.indptr.astype(np.int64), X.nnz
    n_chunks = min(max(size // CHUNK_SIZE, 1), MAX_CHUNKS)
    cuts = np.searchsorted(start, np.linspace(0, size, n_chunks + 1)[1:-1])
    chunk_start = np.concatenate([[0], cuts, [X.shape[0]]]).astype(np.int64)
    return Rows(start, X.indices.astype(np.int64), X.data.astype(np.float64), y, chunk_start)


def spread(X: Any, information: np.ndarray, prior_cov: np.ndarray, steps: int) -> tuple[float, float]:
    """Least and largest eigenvalue of X'WX with the prior's precision, scaled to a unit diagonal.

    W is what each row tells of x'w. Both are 1 where the posterior has no correlations. By this many steps of Lanczos'
    iteration from a fixed start: the least one is found from above, the largest from below.
    """
    squares = X.multiply(X).T @ information
    scale = 1.0 / np.sqrt(squares + 1.0 / prior_cov)
    vector, before, b = np.sqrt(1.0 + np.arange(len(scale)) % 7), np.zeros(len(scale)), 0.0
    vector /= np.linalg.norm(vector)
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, len(scale))):
        scaled = scale * vector
        product = scale * (X.T @ (information * (X @ scaled)) + scaled / prior_cov) - b * before
        diagonal.append(float(vector @ product))
        product -= diagonal[-1] * vector
        b = float(np.linalg.norm(product))
        if b < LANCZOS_END:
            break
        beside.append(b)
        vector, before = product / b, vector
    values = eigvalsh_tridiagonal(diagonal, beside[: len(diagonal) - 1])
    return float(min(max(values[0], 0.0), 1.0)), float(max(values[-1], 1.0))


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
