"""Sums of outer products against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.compile import block_kernel
from tensorcep.kernels import rank_update
from tensorcep.kernels.rank_update import COLUMNS, add_outer_products, padded


@block_kernel
def multiply_rows(out, o, x, i, y, j, n):
    """The operation alone."""
    rank_update.multiply_rows(out, o, x, i, y, j, n)


@block_kernel
def dot_row(x, i, y, j, n):
    """The operation alone."""
    return rank_update.dot_row(x, i, y, j, n)


@each("R", [1, 2, 4, 7, 8, 9, 16, 33])
@each("n", [0, 1, 5, 32])
def test_the_lower_triangle_gains_the_products_of_the_first_n_rows(rng, R, n):
    S = padded(R)
    x, y = rng.standard_normal((2, 32, S + COLUMNS))
    factors, before = rng.standard_normal(32), rng.standard_normal((S + 1, S))
    out = before.copy()
    add_outer_products(n, R, x, y, factors, out)
    lower = np.tril_indices(R)
    np.testing.assert_allclose(out[lower], (before[:R, :R] + x[:n, :R].T @ y[:n, :R])[lower], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out[S, :R], before[S, :R] + factors[:n] @ y[:n, :R], rtol=1e-12, atol=1e-12)


def test_nothing_beyond_the_matrix_is_written(rng):
    S, R = padded(9), 9
    room = np.full((S + 3, S), 7.0)
    x, y, factors = rng.standard_normal((4, S)), rng.standard_normal((4, S)), rng.standard_normal(4)
    add_outer_products(4, R, x, y, factors, room[1:-1])
    assert (room[[0, -1]] == 7.0).all()


@each("n", [0, 8, 24])
def test_products_and_sums_of_rows_anywhere_in_their_arrays(rng, n):
    x, y, out = rng.standard_normal((3, 40)), rng.standard_normal((2, 24)), np.full((2, 32), 7.0)
    multiply_rows(out, 32, x, 40 + 3, y, 24, n)
    np.testing.assert_array_equal(out[1, :n], x[1, 3 : 3 + n] * y[1, :n])
    assert (out[0] == 7.0).all()
    assert (out[1, n:] == 7.0).all()
    assert dot_row(x, 40 + 3, y[1], 0, n) == pytest.approx(x[1, 3 : 3 + n] @ y[1, :n], rel=1e-12, abs=1e-14)


def test_padded_is_the_next_multiple():
    assert [padded(n) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
