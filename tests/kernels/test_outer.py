"""Sums of outer products against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcep.kernels.outer import COLUMNS, add_outer_products, padded


@pytest.mark.parametrize("R", [1, 2, 4, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("n", [0, 1, 5, 32])
def test_the_lower_triangle_gains_the_products_of_the_first_n_rows(rng, R, n):
    S = padded(R)
    x, y = rng.standard_normal((2, 32, S + COLUMNS))
    before = rng.standard_normal((S, S))
    out = before.copy()
    add_outer_products(n, R, x, y, out)
    lower = np.tril_indices(R)
    np.testing.assert_allclose(out[lower], (before[:R, :R] + x[:n, :R].T @ y[:n, :R])[lower], rtol=1e-12, atol=1e-12)


def test_nothing_beyond_the_matrix_is_written(rng):
    S, R = padded(9), 9
    room = np.full((S + 2, S), 7.0)
    add_outer_products(4, R, rng.standard_normal((4, S)), rng.standard_normal((4, S)), room[1:-1])
    assert (room[[0, -1]] == 7.0).all()
    assert (room[1 + padded(R) - 4 : -1] == 7.0).all()


def test_padded_is_the_next_multiple():
    assert [padded(n) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
