"""Sums over rows, dense and sparse, against their definitions; and parallel EP on both."""

import itertools

import numpy as np
import pytest
from helpers.cases import each
from scipy import sparse

from tensorcep import GaussianEP
from tensorcep.ep import linear_gaussian
from tensorcep.ep.linear_gaussian import design_of, gaussian_of, quadratic_forms, weighted_gram
from tensorcep.ep.sites import Sites


@pytest.fixture
def rows(rng):
    result = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.5)
    result[3] = 0.0  # its latent value is known
    return result


def backwards(rows):
    """A sparse matrix whose columns come last first in every row."""
    found = sparse.csr_matrix(rows)
    for a, b in itertools.pairwise(found.indptr):
        found.indices[a:b], found.data[a:b] = found.indices[a:b][::-1].copy(), found.data[a:b][::-1].copy()
    return found


@each("form", [np.asarray, sparse.csr_matrix, backwards])
@each("negative", [False, True])
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


def single_products(monkeypatch):
    """Have products in single precision for any size; returns the precisions of those that are made."""
    made = []
    monkeypatch.setattr(linear_gaussian, "LARGE", 1)
    monkeypatch.setattr(linear_gaussian, "weighted_gram", lambda A, w: made.append(A.dtype.name) or weighted_gram(A, w))
    return made


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_parallel_ep_in_single_precision_ends_in_double_where_double_ends(rng, link, monkeypatch):
    X, y = rng.standard_normal((400, 7)), (rng.random(400) < 0.5).astype(float)
    ep = GaussianEP(0.3, 2.0, schedule="parallel", tol=1e-4)
    wanted = ep.fit(X, y, link)
    made = single_products(monkeypatch)
    found = ep.fit(X, y, link)
    assert (made[0], made[-1]) == ("float32", "float64")
    assert (np.abs(found.mean - wanted.mean) < 1e-5 * np.sqrt(np.diag(wanted.cov))).all()
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=1e-5, atol=1e-7)
    exact = np.linalg.inv(np.eye(7) / 2.0 + X.T @ (found.sites.tau[:, None] * X))
    np.testing.assert_allclose(found.cov, exact, rtol=1e-11, atol=1e-14)
    once = GaussianEP(0.3, 2.0, schedule="parallel", tol=1e-4, max_iter=1).fit(X, y, link)
    exact = np.linalg.inv(np.eye(7) / 2.0 + X.T @ (once.sites.tau[:, None] * X))
    np.testing.assert_allclose(once.cov, exact, rtol=1e-11, atol=1e-14)


def test_parallel_ep_takes_double_precision_for_a_small_tolerance_and_for_sites_that_are_given(rng, monkeypatch):
    X, y = rng.standard_normal((60, 4)), (rng.random(60) < 0.5).astype(float)
    made = single_products(monkeypatch)
    sites = GaussianEP(schedule="parallel", tol=1e-7).fit(X, y, "probit").sites
    GaussianEP(schedule="parallel", tol=1e-4).fit(X, y, "probit", sites=sites)
    assert set(made) == {"float64"}


def test_gaussian_of_takes_double_precision_where_precisions_lie_far_apart(rng):
    X = rng.standard_normal((50, 3)) * [1e4, 1.0, 1e-4]
    apart = design_of(X, 50, 0.0, 1.0)._replace(rough=X.astype(np.float32))
    near = apart._replace(rows=X[:, 1:2], rough=X[:, 1:2].astype(np.float32))
    sites = Sites(np.ones(50), np.ones(50), np.zeros(50))
    assert not gaussian_of(apart, sites, rough=True).rough
    assert gaussian_of(near, sites, rough=True).rough
