"""Augmentations: their bound touches the likelihood and lies below it, and the draws have its expectations."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import gammaln

from tensorcep.core.random import new_stream
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import get_likelihood

# name, part, values, theta
CASES = [
    ("tobit", "normal", [0.0, 1.3], 2.5),
    ("probit", "normal", [-1.0, 1.0], 1.0),
    ("logit", "pg", [-1.0, 1.0], 1.0),
    ("negbinomial", "pg", [0.0, 7.0], 2.5),
]
EVERY = each(("name", "part", "values", "theta"), CASES)
F = np.linspace(-4.0, 4.0, 9)


def expected(name, part, y, f, square, theta):
    """Weight, target, spread and constant."""
    y, f, square, theta = (np.ascontiguousarray(np.broadcast_to(x, (9,)), dtype=float) for x in (y, f, square, theta))
    results = [np.empty(9) for _ in range(4)]
    getattr(get_likelihood(name), part).expected(y, f, square, theta, *results)
    return results


def log_likelihood(name, y, f, theta):
    value, d1, d2 = np.empty(9), np.empty(9), np.empty(9)
    get_likelihood(name).loglik(np.full(9, y), f.copy(), np.full(9, theta), value, d1, d2)
    return value


def bound(name, part, y, f, at, theta):
    """The lower bound of log p(y | f) at known f, auxiliary variables being best for the values `at`."""
    weight, target, spread, constant = expected(name, part, y, at, at**2, theta)
    parameter = get_likelihood(name).parameter
    if parameter is not None and parameter.is_precision:
        squares = (target - f) ** 2 + spread
        return constant + 0.5 * np.log(theta / (2.0 * np.pi)) - 0.5 * theta * squares
    return constant + target * f - 0.5 * weight * f**2


@EVERY
def test_bound_touches_the_likelihood_where_it_is_best_and_is_below_it_elsewhere(name, part, values, theta):
    for y in values:
        exact = log_likelihood(name, y, F, theta)
        apart = exact - bound(name, part, y, F, F, theta)
        np.testing.assert_allclose(apart, apart[0], atol=1e-12)  # what f has no part in may be left out
        if part == "normal":
            assert apart[0] == pytest.approx(0.0, abs=1e-12)
        for at in (F + 0.5, 0.3 * F - 1.0):
            assert (exact - bound(name, part, y, F, at, theta) - apart > -1e-12).all()


@EVERY
def test_draws_have_the_expected_weight_and_target(name, part, values, theta):
    augmentation, blocks = getattr(get_likelihood(name), part), 4000
    for y, f in ((values[0], -0.7), (values[1], 1.1)):
        shape = (blocks, LANES)
        arrays = [np.full(shape, x, dtype=float) for x in (y, 1.0, f, theta)]
        weight, target = np.ones(shape), np.zeros(shape)
        augmentation.drawn(0, blocks, *arrays, (3, 5, 7), weight, target, new_stream())
        wanted = expected(name, part, y, f, f * f, theta)
        for draws, mean in ((weight, wanted[0][0]), (target, wanted[1][0])):
            assert abs(draws.mean() - mean) < 6.0 * draws.std() / np.sqrt(draws.size) + 1e-12
        if part == "normal":
            tolerance = 6.0 * ((target - target.mean()) ** 2).std() / np.sqrt(target.size) + 1e-12
            spread = wanted[2][0] if name == "tobit" else target.var()
            assert abs(target.var() - spread) < tolerance


@EVERY
def test_draws_leave_padding_alone(name, part, values, theta):
    shape = (2, LANES)
    y, used = np.full(shape, values[0]), np.zeros(shape)
    weight, target = np.full(shape, 3.0), np.full(shape, values[0])
    rest = np.zeros(shape), np.full(shape, theta), (1, 2, 3)
    getattr(get_likelihood(name), part).drawn(0, 2, y, used, *rest, weight, target, new_stream())
    assert (weight == 3.0).all()
    assert (target == values[0]).all()


def test_only_likelihoods_that_are_gaussian_in_f_need_no_auxiliary_variable():
    assert get_likelihood("gaussian").normal.expected is None
    assert get_likelihood("gaussian").normal.drawn is None
    np.testing.assert_array_equal(get_likelihood("tobit").normal.hides(np.array([0.0, 0.1, -1.0])), [True, False, True])
    for name in ("poisson", "step"):
        record = get_likelihood(name)
        assert record.normal is record.pg is None


@pytest.mark.parametrize(("name", "values", "theta"), [("poisson", [0.0, 3.0], 1.0), ("negbinomial", [0.0, 7.0], 2.5)])
def test_matched_gaussian_has_the_expected_slope_curvature_and_value(name, values, theta):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f, v = np.linspace(-1.0, 1.0, 9), 0.3
    for y in values:
        moments = np.zeros((3, 9))
        for node, share in zip(nodes, weights / weights.sum(), strict=True):
            out = np.empty((3, 9))
            get_likelihood(name).loglik(np.full(9, y), f + np.sqrt(v) * node, np.full(9, theta), *out)
            moments += share * out
        if name == "negbinomial":  # the dispersion's own part is left out
            moments[0] -= gammaln(y + theta) - gammaln(theta) - gammaln(y + 1.0)
        weight, target, spread, constant = expected(name, "matched", y, f, f**2 + v, theta)
        near = np.abs(moments[1]) < -2.0 * moments[2]  # elsewhere the weight is larger, so that no step is too long
        assert near.sum() > 2
        np.testing.assert_allclose(target - weight * f, moments[1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(weight[near], -moments[2][near], rtol=1e-3)
        assert (weight >= -moments[2] * 0.999).all()
        np.testing.assert_allclose(constant + target * f - 0.5 * weight * (f**2 + v), moments[0], rtol=1e-4, atol=1e-4)
        assert not spread.any()
