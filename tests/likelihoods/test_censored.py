"""Predictive distribution of values that are censored at a lower limit."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers.cases import each
from scipy import stats
from scipy.special import ndtr

from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments
from tensorcep.likelihoods.tobit import LOWER, UPPER, censored_at

TOBIT = get_likelihood("tobit")
ABOVE = censored_at(0.0, UPPER)


def exact(m, v, theta):
    """Mean and variance of max(0, t) with 50 digits."""
    with mp.workdps(50):
        s, m = mp.sqrt(mp.mpf(v) + 1 / mp.mpf(theta)), mp.mpf(m)
        z = m / s
        above, density = mp.erfc(-z / mp.sqrt(2)) / 2, mp.npdf(z)
        mean = m * above + s * density
        square = (m * m + s * s) * above + m * s * density
        return float(mean), float(square - mean * mean)


@each("m", [-9.0, -3.0, -0.2, 0.0, 0.4, 5.0, 60.0, 1e6])
@each("v", [0.0, 0.7, 30.0])
def test_predict_equals_the_formula_with_50_digits(m, v):
    mean, variance = TOBIT.predict(m, v, 2.0)
    np.testing.assert_allclose((mean[0], variance[0]), exact(m, v, 2.0), rtol=1e-11)


def test_predict_is_finite_and_not_negative_far_below_the_limit():
    mean, variance = TOBIT.predict([-50.0, -1e3, -1e200], 0.3, 2.0)
    assert (mean >= 0).all()
    assert (variance >= 0).all()
    assert (mean < 1e-100).all()


@each("side", [LOWER, UPPER])
def test_quantile_of_a_mixture_inverts_its_cdf_or_is_the_limit(rng, side):
    m, v, theta = rng.normal(size=(6, 40)), rng.gamma(1.0, size=(6, 40)), rng.gamma(2.0, size=(6, 40))
    likelihood = censored_at(2.5, side)
    for q in (0.05, 0.4, 0.95):
        y = likelihood.mixture_quantile(q, m, v, theta)
        reached = ndtr((y - 2.5 - m) / np.sqrt(v + 1.0 / theta)).mean(axis=0)
        at_limit = y == 2.5
        assert (side * y >= side * 2.5).all()
        np.testing.assert_allclose(reached[~at_limit], q, atol=1e-9)
        assert (side * reached[at_limit] >= side * q).all()


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
def test_quantile_inverts_the_cdf_or_is_the_limit(rng, q):
    m, v, theta = 2 * rng.normal(size=50), rng.exponential(size=50), 0.7
    y = TOBIT.quantile(q, m, v, theta)
    cdf = stats.norm.cdf(y, m, np.sqrt(v + 1 / theta))
    np.testing.assert_allclose(cdf[y > 0], q, rtol=1e-10)
    assert (cdf[y == 0] >= q).all()


def test_censored_at_gives_the_units_of_y(rng):
    record, m, v, theta = censored_at(-2.5), rng.normal(size=9), rng.exponential(size=9), np.full(9, 3.0)
    np.testing.assert_allclose(record.predict(m, v, theta)[0], TOBIT.predict(m, v, theta)[0] - 2.5, rtol=1e-13)
    np.testing.assert_array_equal(record.predict(m, v, theta)[1], TOBIT.predict(m, v, theta)[1])
    np.testing.assert_allclose(record.quantile(0.9, m, v, theta), TOBIT.quantile(0.9, m, v, theta) - 2.5, rtol=1e-13)
    a, b = (r.sample(np.random.default_rng(1), m, theta) for r in (record, TOBIT))
    np.testing.assert_allclose(a, b - 2.5, rtol=1e-13)
    np.testing.assert_array_equal(record.check_y([-2.5, -9.0, 0.0]), [0.0, 0.0, 2.5])


def test_an_upper_limit_mirrors_a_lower_one(rng):
    """Every part of it is that of -y at -f."""
    n = 40
    y, m, v, theta = (
        np.maximum(rng.normal(size=n), 0.0),
        2 * rng.normal(size=n),
        rng.exponential(size=n),
        1 + rng.random(n),
    )
    logz, alpha, beta = tilted_moments(TOBIT.tilted, y, m, v, theta)
    for part, wanted in zip(tilted_moments(ABOVE.tilted, -y, -m, v, theta), (logz, -alpha, beta), strict=True):
        np.testing.assert_array_equal(part, wanted)
    below, above = np.empty((3, n)), np.empty((3, n))
    TOBIT.loglik(y, m, theta, *below)
    ABOVE.loglik(-y, -m, theta, *above)
    np.testing.assert_array_equal(above, below * [[1.0], [-1.0], [1.0]])
    below, above = np.empty((4, n)), np.empty((4, n))
    TOBIT.normal.expected(y, m, m * m, theta, *below)
    ABOVE.normal.expected(-y, -m, m * m, theta, *above)
    np.testing.assert_array_equal(above, below * [[1.0], [-1.0], [1.0], [1.0]])
    np.testing.assert_array_equal(ABOVE.normal.hides(-y), TOBIT.normal.hides(y))
    mean, variance = ABOVE.predict(-m, v, theta)
    np.testing.assert_array_equal((-mean, variance), TOBIT.predict(m, v, theta))
    np.testing.assert_allclose(ABOVE.quantile(0.3, -m, v, theta), -TOBIT.quantile(0.7, m, v, theta), rtol=1e-12)
    np.testing.assert_array_equal(ABOVE.tails(-y, -m, v, theta), TOBIT.tails(y, m, v, theta)[::-1])
    np.testing.assert_array_equal(ABOVE.logpdf(-y, -m, v, theta), TOBIT.logpdf(y, m, v, theta))
    draws = ABOVE.sample(np.random.default_rng(0), np.repeat(-m, 4000), np.repeat(theta, 4000)).reshape(n, -1)
    mean, variance = ABOVE.predict(-m, np.zeros(n), theta)
    assert (np.abs(draws.mean(axis=1) - mean) < 6 * np.sqrt(variance / 4000) + 0.01).all()
    assert draws.max() == 0.0


def test_an_upper_limit_has_the_units_of_y():
    record = censored_at(3.0, UPPER)
    np.testing.assert_array_equal(record.check_y([3.0, 9.0, 1.0]), [0.0, 0.0, -2.0])
    mean, _ = record.predict([-100.0, 100.0], [0.0, 0.0], [1.0, 1.0])
    np.testing.assert_allclose(mean, [-97.0, 3.0])
