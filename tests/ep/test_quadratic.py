"""Sums over rows, dense and sparse, against their definitions; and parallel EP on both."""

import numpy as np
import pytest
from scipy import sparse

from tensorcep import GaussianEP
from tensorcep.ep.quadratic import quadratic_forms, weighted_gram


@pytest.fixture
def rows(rng):
    result = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.5)
    result[3] = 0.0  # its latent value is known
    return result


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("negative", [False, True])
def test_weighted_gram_and_quadratic_forms_are_what_they_are_defined_as(rng, rows, form, negative):
    weight = rng.standard_normal(40) if negative else rng.random(40)
    found = weighted_gram(form(rows), weight)
    np.testing.assert_allclose(found, rows.T @ np.diag(weight) @ rows, atol=1e-13)
    np.testing.assert_array_equal(found, found.T)
    factor = np.tril(rng.standard_normal((7, 7)))
    cov = factor.T @ factor
    np.testing.assert_allclose(quadratic_forms(form(rows), cov, factor), np.diag(rows @ cov @ rows.T), atol=1e-12)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_parallel_ep_of_sparse_rows_with_numbers_given_twice_is_sequential_ep_of_dense_ones(rng, rows, link):
    y = (rng.random(40) < 0.5).astype(float)
    twice = sparse.csr_matrix(rows)
    halves = sparse.csr_matrix(
        (np.repeat(0.5 * twice.data, 2), np.repeat(twice.indices, 2), 2 * twice.indptr), shape=rows.shape
    )
    wanted = GaussianEP(0.3, 2.0, tol=1e-10).fit(rows, y, link)
    found = GaussianEP(0.3, 2.0, schedule="parallel", tol=1e-10).fit(halves, y, link)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-8)
    np.testing.assert_allclose(found.cov, wanted.cov, atol=1e-8)
    assert found.log_evidence == pytest.approx(wanted.log_evidence, abs=1e-8)
    assert found.n_iter < 15  # the mean settles between sweeps; 46 without
