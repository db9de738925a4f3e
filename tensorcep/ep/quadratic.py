"""Sums over rows a_i that dense products would be a waste for: A' diag(w) A and the a_i' C a_i, of sparse rows too."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dtrmm

from tensorcep.kernels.sparse_rows import add_weighted, write_quadratic


def weighted_gram(rows: Any, weight: np.ndarray) -> np.ndarray:
    """A' diag(weight) A (d, d), symmetric to the last bit; weights may be negative."""
    if sparse.issparse(rows):
        total = np.zeros((rows.shape[1], rows.shape[1]))
        add_weighted(rows.indptr, rows.indices, rows.data, weight, total)
        return total + np.tril(total, -1).T
    if (weight >= 0.0).all():  # one matrix with itself: half the work
        half = np.sqrt(weight)[:, None] * rows
        return np.asarray(half.T @ half)
    product = rows.T @ (weight[:, None] * rows)
    return np.asarray(0.5 * (product + product.T))


def quadratic_forms(rows: Any, cov: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """a_i' cov a_i (n,), where cov = factor' factor with a lower triangular factor."""
    if sparse.issparse(rows):
        result = np.empty(rows.shape[0])
        write_quadratic(rows.indptr, rows.indices, rows.data, cov, result)
        return result
    half = dtrmm(1.0, factor, rows.T, lower=1)
    return np.asarray(np.einsum("an,an->n", half, half))
