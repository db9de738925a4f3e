"""Sums over listed cells against their definitions."""

from __future__ import annotations

import numpy as np

from tensorcep.factor_models.cells import entry_products, line_sums


def test_entry_products_and_line_sums(rng):
    N, D, R, n = 7, 5, 3, 20
    flat = np.sort(rng.choice(N * D, n, replace=False))
    rows, cols = flat // D, flat % D
    A, B, weight = rng.standard_normal((N, R)), rng.standard_normal((D, R)), rng.standard_normal(n)
    out = np.empty(n)
    entry_products(0, 9, rows, cols, A, B, out)
    entry_products(9, n, rows, cols, A, B, out)
    np.testing.assert_allclose(out, np.einsum("nr,nr->n", A[rows], B[cols]), rtol=1e-13)
    sums = np.empty((N, R))
    line_sums(0, N, np.searchsorted(rows, np.arange(N + 1)), np.arange(n), cols, weight, B, sums)
    dense = np.zeros((N, D))
    dense[rows, cols] = weight
    np.testing.assert_allclose(sums, dense @ B, rtol=1e-12, atol=1e-13)
