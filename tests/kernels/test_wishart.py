"""Draws of means and precisions against the formulas."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.priors.normal_wishart import draw_normal_wishart, sums_of


@each(("n", "D"), [(1, 1), (7, 5), (70, 11)])
def test_scatter_is_about_the_mean(rng, n, D):
    rows = 3.0 + rng.standard_normal((n, D))
    mean, gram = sums_of(rows)
    scatter = gram[:D, :D]
    np.testing.assert_allclose(mean, rows.mean(axis=0))
    np.testing.assert_allclose(scatter, (rows - mean).T @ (rows - mean), atol=1e-12 * n)
    np.testing.assert_array_equal(scatter, scatter.T)


@each("D", [1, 5, 11])
def test_draw_is_bartlett_s_decomposition(rng, D):
    root = rng.standard_normal((D, D + 2))
    scatter, z, centre = root @ root.T, rng.standard_normal(D), rng.standard_normal(D)
    given = rng.standard_normal((D, D))
    given[np.diag_indices(D)] = 1.0 + rng.random(D)
    half = np.linalg.solve(np.linalg.cholesky(scatter).T, np.tril(given))
    mean, precision = centre.copy(), np.empty((D, D))
    assert draw_normal_wishart(scatter.copy(), given.copy(), z.copy(), mean, precision)
    np.testing.assert_allclose(precision, half @ half.T, rtol=1e-9)
    np.testing.assert_allclose(mean, centre + np.linalg.solve(half.T, z), rtol=1e-9)


def test_draw_says_that_a_scatter_is_not_positive_definite():
    scatter = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert not draw_normal_wishart(scatter, np.eye(2), np.zeros(2), np.zeros(2), np.empty((2, 2)))
