"""The inlined special functions against mpmath and scipy."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from oracles.tilted import normal_cdf

from tensorcep.core.compile import kernel
from tensorcep.kernels import special


@kernel
def _over(function, x, result):
    for n in range(x.shape[0]):
        result[n] = function(x[n])


@kernel
def _exp_parts(x, value, excess):
    for n in range(x.shape[0]):
        value[n], excess[n] = special.exp_parts(x[n])


def apply(function, x):
    result = np.empty_like(x)
    _over(function, x, result)
    return result


def worst(found, wanted):
    return max(abs(float(mp.mpf(float(a)) / b - 1)) for a, b in zip(found, wanted, strict=True))


@pytest.fixture
def spread(rng):
    return np.concatenate([rng.uniform(-700, 700, 300), rng.normal(size=200), 1e-5 * rng.normal(size=100)])


def test_exp_equals_mpmath(spread):
    assert worst(apply(special.exp, spread), [mp.exp(float(x)) for x in spread]) < 3e-16


def test_exp_holds_its_ends_and_keeps_nan():
    found = apply(special.exp, np.array([-1e9, -np.inf, np.inf, np.nan, 0.0]))
    assert (found[:2] < 4e-308).all()
    assert found[2] > 8e307
    assert np.isnan(found[3])
    assert found[4] == 1.0


def test_exp_parts_second_does_not_cancel(spread):
    value, excess = np.empty_like(spread), np.empty_like(spread)
    _exp_parts(spread, value, excess)
    assert worst(value, [mp.exp(float(x)) for x in spread]) < 4e-16
    assert worst(excess, [mp.exp(float(x)) - 1 - mp.mpf(float(x)) for x in spread]) < 3e-15


def test_exp_parts_second_stays_linear_below_the_clamp():
    x = np.array([-1e4, -800.0])
    value, excess = np.empty_like(x), np.empty_like(x)
    _exp_parts(x, value, excess)
    np.testing.assert_allclose(excess, -1.0 - x, rtol=1e-15)


def test_log_equals_mpmath(spread):
    x = np.exp(spread)
    assert worst(apply(special.log, x[x != 1.0]), [mp.log(float(t)) for t in x[x != 1.0]]) < 5e-16


def test_log_special_values():
    found = apply(special.log, np.array([0.0, np.inf, -1.0, np.nan, 1.0]))
    np.testing.assert_array_equal(found, [-np.inf, np.inf, np.nan, np.nan, 0.0])


def test_log1p_unit_equals_mpmath(rng):
    x = np.concatenate([rng.uniform(-0.5, 1.0, 200), 1e-12 * rng.normal(size=50)])
    assert worst(apply(special.log1p_unit, x), [mp.log1p(float(t)) for t in x]) < 4e-16


def test_mills_excess_gives_erfcx():
    x = np.concatenate([np.linspace(0.0, 30.0, 500), np.geomspace(30.0, 1e12, 60)])
    ratio = x + apply(special.mills_excess, x)
    np.testing.assert_allclose(np.sqrt(2 / np.pi) / ratio, scipy.special.erfcx(x / np.sqrt(2)), rtol=1e-15)


def test_normal_cdf_parts_equal_mpmath_far_into_both_tails():
    z = np.concatenate([np.linspace(-40.0, 37.0, 309), -np.geomspace(41.0, 1e6, 30), [-1e-9, 0.0, 1e-9]])
    excess, log_cdf, ratio = z.copy(), np.empty_like(z), np.empty_like(z)
    special.normal_cdf_parts(excess, log_cdf, ratio)
    wanted = [normal_cdf(float(t)) for t in z]
    for found, k in ((log_cdf, 0), (ratio, 1), (excess, 2)):
        assert worst(found, [w[k] for w in wanted]) < 2e-13
        left = z < 0
        assert worst(found[left], [w[k] for w, keep in zip(wanted, left, strict=True) if keep]) < 2e-15


def test_normal_cdf_parts_has_no_step_at_zero():
    z = np.linspace(-1e-6, 1e-6, 2001)
    excess, log_cdf, ratio = z.copy(), np.empty_like(z), np.empty_like(z)
    special.normal_cdf_parts(excess, log_cdf, ratio)
    for value in (log_cdf, ratio, excess):
        np.testing.assert_allclose(np.diff(value, 2), 0.0, atol=4e-15)


def test_log_two_cosh_half_is_that_of_the_definition():
    c = np.array([0.0, 1e-9, 0.3, 3.0, 40.0])
    np.testing.assert_allclose(special.log_two_cosh_half(c), np.log(2.0 * np.cosh(0.5 * c)), rtol=1e-15)
    assert special.log_two_cosh_half(np.array([5e3])) == 2500.0
