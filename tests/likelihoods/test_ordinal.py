"""The likelihood of ordered levels: masses, moments, quantiles, tails and draws belong together."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import ndtr

from tensorcep.likelihoods.binary import PROBIT
from tensorcep.likelihoods.ordinal import constant_of, ordinal, shares_of

SHARES = np.array([1.0, 2.0, 4.0, 3.0])
VALUES = [1.0, 2.0, 3.0, 7.0]
LINKS = pytest.mark.parametrize("link", ["probit", "logit"])


def masses(record, m, v):
    return np.exp([record.logpdf(float(k), m, v, 0.0) for k in range(4)]).T


@LINKS
def test_levels_are_as_likely_as_said_at_the_constant(link):
    record = ordinal(link, SHARES)
    p = masses(record, np.array([constant_of(link, SHARES)]), np.zeros(1))
    np.testing.assert_allclose(p[0], SHARES / SHARES.sum(), rtol=1e-12)
    np.testing.assert_allclose(shares_of(np.array([0.0, 2.0, 2.0]), 4), [1.5, 0.5, 2.5, 0.5])


@LINKS
@each("v", [0.0, 0.8])
def test_all_that_is_predicted_belongs_together(link, v, rng):
    record, m = ordinal(link, SHARES, VALUES), rng.normal(1.0, 2.0, 30)
    variance = np.full(30, v)
    p = masses(record, m, variance)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    rows = np.zeros((1, 30))
    np.testing.assert_allclose(record.probabilities(m[None], variance[None], rows), p, atol=1e-12)
    mean, spread = record.predict(m, variance, 0.0)
    np.testing.assert_allclose(mean, p @ VALUES, rtol=1e-10)
    np.testing.assert_allclose(spread, p @ np.square(VALUES) - (p @ VALUES) ** 2, rtol=1e-8, atol=1e-10)
    for k in range(4):
        lower, upper = record.tails(np.full(30, float(k)), m, variance, np.zeros(30))
        np.testing.assert_allclose(lower, p[:, : k + 1].sum(axis=1), atol=1e-12)
        np.testing.assert_allclose(upper, p[:, k:].sum(axis=1), atol=1e-12)
    for q in (0.05, 0.5, 0.9):
        wanted = (np.cumsum(p, axis=1) < q).sum(axis=1)
        np.testing.assert_array_equal(record.quantile(q, m, variance, np.zeros(30)), wanted)


@LINKS
def test_draws_are_as_often_at_each_level_as_they_should(link, rng):
    record, n = ordinal(link, SHARES), 20_000
    found = np.bincount(record.sample(rng, np.full(n, 0.7), np.zeros(n)).astype(int), minlength=4) / n
    p = masses(record, np.array([0.7]), np.zeros(1))[0]
    assert (np.abs(found - p) < 5.0 * np.sqrt(p * (1.0 - p) / n)).all()


def test_thresholds_of_components_are_looked_up_by_number(rng):
    record = ordinal("probit", SHARES)
    each = np.array([[0.5, 1.0], [2.0, 4.0]])
    bound = record.by_component(each)
    f, lines = np.array([0.3, 0.3]), np.array([0.0, 1.0])
    found = np.exp(bound.logpdf(1.0, f, np.zeros(2), lines))
    np.testing.assert_allclose(found, ndtr(each[:, 0] - 0.3) - ndtr(-0.3), rtol=1e-12)
    mixed = bound.probabilities(f[:, None], np.zeros((2, 1)), lines[:, None])
    np.testing.assert_allclose(mixed[0, 1], found.mean(), rtol=1e-12)


def test_two_levels_are_the_probit_likelihood(rng):
    record = ordinal("probit", [1.0, 3.0])
    assert record.levels is not None
    assert not record.levels.learned
    m, v, y = rng.normal(size=20), rng.random(20), rng.integers(0, 2, 20).astype(float)
    np.testing.assert_allclose(
        record.logpdf(y, m, v, 0.0), PROBIT.logpdf(2.0 * y - 1.0, m, v, 1.0), rtol=1e-10, atol=1e-14
    )
    np.testing.assert_allclose(record.predict(m, v, 0.0)[0], PROBIT.predict(m, v, 1.0)[0], rtol=1e-10)


@each("y", [[0.0, 4.0], [-1.0], [1.5]])
def test_values_that_are_no_levels_are_refused(y):
    with pytest.raises(ValueError, match="y must hold whole levels from 0 to 3; got"):
        ordinal("probit", SHARES).check_y(y)
