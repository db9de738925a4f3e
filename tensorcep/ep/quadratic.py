"""Sums over rows a_i that dense products would be a waste for: A' diag(w) A and the a_i' C a_i, of sparse rows too."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dtrmm, strmm

from tensorcep.kernels.sparse_rows import add_weighted, write_quadratic


def weighted_gram(rows: Any, weight: np.ndarray) -> np.ndarray:
    """A' diag(weight) A (d, d) float64, symmetric to the last bit; weights may be negative.

    Dense rows of single precision are multiplied in it.
    """
    if sparse.issparse(rows):
        total = np.zeros((rows.shape[1], rows.shape[1]))
        add_weighted(rows.indptr, rows.indices, rows.data, weight, total)
        return whole_of(total)
    if (weight >= 0.0).all():  # one matrix with itself: half the work
        half = np.sqrt(weight).astype(rows.dtype)[:, None] * rows
        return np.asarray(half.T @ half, dtype=np.float64)
    product = (rows.T @ (weight.astype(rows.dtype)[:, None] * rows)).astype(np.float64)
    return np.asarray(0.5 * (product + product.T))


def whole_of(half: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose numbers off the diagonal are the sums of those at (i, j) and (j, i)."""
    whole = half + half.T
    whole[np.diag_indices_from(whole)] *= 0.5
    return whole


def quadratic_forms(rows: Any, cov: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """a_i' cov a_i (n,), where cov = factor' factor with a lower triangular factor; precisions as `weighted_gram`."""
    if sparse.issparse(rows):
        result = np.empty(rows.shape[0])
        write_quadratic(rows.indptr, rows.indices, rows.data, cov, result)
        return result
    multiply = strmm if rows.dtype == np.float32 else dtrmm
    half = multiply(1.0, factor.astype(rows.dtype), rows.T, lower=1)
    return np.asarray(np.einsum("an,an->n", half, half), dtype=np.float64)
