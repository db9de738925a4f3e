"""Predictive distribution of values that are censored at a lower limit."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.censored import censored_at

TOBIT = get_likelihood("tobit")


def exact(m, v, theta):
    """Mean and variance of max(0, t) with 50 digits."""
    with mp.workdps(50):
        s, m = mp.sqrt(mp.mpf(v) + 1 / mp.mpf(theta)), mp.mpf(m)
        z = m / s
        above, density = mp.erfc(-z / mp.sqrt(2)) / 2, mp.npdf(z)
        mean = m * above + s * density
        square = (m * m + s * s) * above + m * s * density
        return float(mean), float(square - mean * mean)


@pytest.mark.parametrize("m", [-9.0, -3.0, -0.2, 0.0, 0.4, 5.0, 60.0, 1e6])
@pytest.mark.parametrize("v", [0.0, 0.7, 30.0])
def test_predict_equals_the_formula_with_50_digits(m, v):
    mean, variance = TOBIT.predict(m, v, 2.0)
    np.testing.assert_allclose((mean[0], variance[0]), exact(m, v, 2.0), rtol=1e-11)


def test_predict_is_finite_and_not_negative_far_below_the_limit():
    mean, variance = TOBIT.predict([-50.0, -1e3, -1e200], 0.3, 2.0)
    assert (mean >= 0).all()
    assert (variance >= 0).all()
    assert (mean < 1e-100).all()


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
