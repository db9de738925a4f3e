"""Tilted moments of every likelihood: oracles, derivative identities, extremes, symmetry, smoothness."""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from helpers.cases import each
from helpers.likelihood_cases import CASES
from oracles import tilted as oracle
from scipy.special import gammaln, logsumexp

from tensorcep.core.compile import LOGLIK_SIGNATURE, TILTED_SIGNATURE, address_of, call_at, kernel
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "tilted.json").read_text())
EVERY = each("name", CASES)
SOME_OR_ALL = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])  # of the points, by time
VARIANCES = [1e-8, 1e-4, 0.03, 0.4, 1.0, 3.0, 12.0, 100.0]


def moments(name, y, m, v, theta=1.0):
    return tilted_moments(get_likelihood(name).tilted, y, m, v, theta)


def worst_errors(name, points, theta=1.0):
    """Largest relative error of logz, alpha and beta; alpha relative to its size or to that of one cavity sd."""
    y, m, v = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    found = moments(name, y, m, v, theta)
    worst = np.zeros(3)
    extra = () if get_likelihood(name).parameter is None else (theta,)
    for n in range(len(points)):
        wanted = getattr(oracle, name)(float(y[n]), float(m[n]), float(v[n]), *extra)
        scales = (abs(wanted[0]), max(abs(wanted[1]), wanted[2] * mp.sqrt(v[n])), wanted[2])
        for k in range(3):
            worst[k] = max(worst[k], float(abs(mp.mpf(float(found[k][n])) - wanted[k]) / scales[k]))
    return worst


def label_points(rng, n):
    fixed = [(1.0, m, v) for m, v in [(-30, 1e-8), (-30, 100), (30, 1e-8), (30, 9), (30, 100), (0, 100), (-12, 20)]]
    v = rng.choice(VARIANCES, n)
    return fixed + list(zip(rng.choice([-1.0, 1.0], n), rng.uniform(-30, 30, n), v, strict=True))


def test_tilted_gaussian_equals_closed_form(rng):
    points = list(zip(rng.normal(size=40), rng.normal(size=40), np.exp(rng.normal(size=40) * 4), strict=True))
    assert (worst_errors("gaussian", points, theta=2.7) < [1e-12, 1e-14, 1e-14]).all()


def test_tilted_probit_equals_mpmath(rng):
    assert (worst_errors("probit", label_points(rng, 120)) < 1e-13).all()


def test_tilted_tobit_equals_mpmath(rng):
    y, v = np.maximum(rng.normal(size=80), 0.0), rng.choice(VARIANCES, 80)
    points = [*zip(y, rng.uniform(-15, 15, 80), v, strict=True), (0.0, 40.0, 0.1), (0.0, -12.0, 0.1), (-1.0, 9.0, 20.0)]
    assert (worst_errors("tobit", points, theta=2.7) < 1e-12).all()


@each("z", [-40.0, -38.5, -20.0, -5.0, 5.0, 20.0, 37.0])
def test_tilted_probit_keeps_twelve_digits_in_the_tails(z):
    assert (worst_errors("probit", [(1.0, z * np.sqrt(3.0), 2.0), (-1.0, -z * np.sqrt(3.0), 2.0)]) < 1e-12).all()


@SOME_OR_ALL
def test_tilted_logit_equals_quadrature_with_40_digits(rng, every):
    assert (worst_errors("logit", label_points(rng, 25 // every)) < 2e-13).all()


@SOME_OR_ALL
@each("y", [0, 1, 2, 5, 16, 200, 100_000])
def test_tilted_poisson_equals_quadrature_with_40_digits(rng, every, y):
    points = [(y, rng.uniform(-30, 30), v) for v in VARIANCES] + [(y, np.log(y + 0.5), v) for v in (0.01, 1.0, 30.0)]
    assert (worst_errors("poisson", points[::every]) < 2e-13).all()


def test_tilted_poisson_zero_equals_quadrature_where_zero_is_expected():
    points = [(0, m, v) for m, v in [(-30, 1.0), (-30, 100.0), (-8, 1e-8), (-3, 1.0), (-12, 60.0), (-1.5, 0.1)]]
    assert (worst_errors("poisson", points) < 2e-13).all()


@SOME_OR_ALL
@each(("y", "r"), [(0, 0.3), (0, 40.0), (1, 1.0), (5, 2.5), (200, 0.8), (3000, 150.0)])
def test_tilted_negbinomial_equals_quadrature_with_40_digits(rng, every, y, r):
    points = [(y, rng.uniform(-12, 12), v) for v in VARIANCES] + [(y, np.log((y + 0.5) / r), v) for v in (0.01, 30.0)]
    assert (worst_errors("negbinomial", points[::every], theta=r) < 1e-10).all()


@each("name", ["probit", "logit"])
def test_tilted_equals_stored_moments(name):
    for row in STORED["moments"]:
        found = np.concatenate(moments(name, 1.0, row["m"], row["v"]))
        np.testing.assert_allclose(found, list(row[name].values()), rtol=2e-12)


def test_tilted_probit_gives_stored_posteriors():
    for row in STORED["probit_posterior"]:
        v = row["sigma"] ** 2
        logz, alpha, beta = np.concatenate(moments("probit", row["y"], row["mu"], v))
        found = [logz, row["mu"] + v * alpha, np.sqrt(v - v * v * beta)]
        np.testing.assert_allclose(found, [row["logZ"], row["mean"], row["sd_EP"]], rtol=1e-12)


def random_entries(name, rng, n=200):
    return CASES[name].observed(rng, n), rng.normal(size=n), rng.choice([0.05, 0.6, 3.0, 20.0], n)


@EVERY
def test_tilted_equals_its_slow_version(name, rng):
    y, m, v = random_entries(name, rng, 4)
    assert (worst_errors(name, list(zip(y, 2 * m, v, strict=True)), theta=1.5) < 1e-10).all()


@EVERY
def test_tilted_derivatives_in_mean_and_variance(name, rng):
    y, m, v = random_entries(name, rng)
    h = 1e-3

    def slope(k, dm, dv):
        """Fourth-order central difference of result k along (dm, dv)."""
        at = [moments(name, y, m + j * h * dm, v * (1 + j * h * dv), 1.5)[k] for j in (-2, -1, 1, 2)]
        return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)

    _, alpha, beta = moments(name, y, m, v, 1.5)
    np.testing.assert_allclose(slope(0, 1, 0), alpha, atol=3e-9)
    np.testing.assert_allclose(-slope(1, 1, 0), beta, atol=3e-9)
    np.testing.assert_allclose(slope(0, 0, 1) / v, (alpha**2 - beta) / 2, atol=3e-9)


@EVERY
def test_tilted_beta_keeps_the_new_variance_inside_the_cavity(name, rng):
    y, m, v = random_entries(name, rng)
    beta = moments(name, y, 8 * m, v)[2]
    assert (beta > 0).all()
    assert (v * beta < 1).all()


@each("name", ["probit", "logit"])
def test_tilted_labels_are_symmetric(name, rng):
    m, v = 5 * rng.normal(size=100), np.exp(rng.normal(size=100))
    logz, alpha, beta = moments(name, 1.0, m, v)
    mirrored = moments(name, -1.0, -m, v)
    np.testing.assert_array_equal(mirrored, [logz, -alpha, beta])
    np.testing.assert_allclose(np.exp(logz) + np.exp(moments(name, -1.0, m, v)[0]), 1.0, rtol=1e-14)


@each(
    ("name", "y", "low", "high", "v"),
    [
        ("probit", 1.0, -0.1, 0.1, 0.5),
        ("logit", 1.0, -0.5, 0.5, 0.3),  # the two forms meet at m = -v / 2, the two logarithms at 0
        ("logit", 1.0, -6.0, -4.0, 10.0),
        ("logit", -1.0, -3.0, 3.0, 1.0),  # number of nodes changes
        ("poisson", 0.0, -2.3, -1.7, 0.81),  # zeros where expected begin at m = -1 - s
        ("poisson", 3.0, -2.0, 4.0, 0.5),  # the two forms meet where the posterior has half the variance
        ("poisson", 1.0, -3.0, 3.0, 4.0),
    ],
)
def test_tilted_has_no_steps_along_the_mean(name, y, low, high, v):
    m = np.linspace(low, high, 4001)
    for value in moments(name, y, m, v):
        # A fifth difference leaves rounding (times at most 32) and any step; smooth change is below 1e-14.
        steps = np.abs(np.diff(value, 5)) / 32
        assert steps.max() < 1e-13 * np.abs(value).max()


@each(("name", "y"), [("logit", 1.0), ("poisson", 0.0), ("poisson", 2.0), ("poisson", 20.0)])
def test_tilted_has_no_steps_along_the_variance(name, y):
    v = np.linspace(0.08, 2.0, 20001)
    for value in moments(name, y, -1.5, v):
        assert np.abs(np.diff(value, 5)).max() / 32 < 1e-13 * np.abs(value).max()


@EVERY
def test_tilted_point_cavity_gives_the_log_likelihood(name, rng):
    y, m, _ = random_entries(name, rng)
    value, d1, d2 = np.empty_like(m), np.empty_like(m), np.empty_like(m)
    get_likelihood(name).loglik(y, m, np.full_like(m, 1.5), value, d1, d2)
    for v in (0.0, 1e-14):
        np.testing.assert_allclose(moments(name, y, m, v, 1.5), [value, d1, -d2], rtol=1e-11)


@EVERY
def test_tilted_nan_or_negative_variance_is_not_hidden(name):
    for m, v in ((np.nan, 1.0), (0.3, np.nan), (0.3, -4.0)):
        found = np.concatenate(moments(name, 1.0, m, v))
        assert np.isnan(found[0])
        if name not in (
            "gaussian",
            "tobit",
        ):  # whose beta does not depend on m, nor whose alpha on the sign of the variance
            assert np.isnan(found).all()


@EVERY
@each("m", [-1e3, -200.0, 200.0, 600.0])
def test_tilted_far_means_stay_finite(name, m):
    for y in CASES[name].few:
        logz, alpha, beta = np.concatenate(moments(name, y, m, 0.7))
        assert np.isfinite([logz, alpha, beta]).all()
        assert logz <= 0
        assert beta >= 0


def test_tilted_logit_far_tail_is_the_exponential():
    logz, alpha, beta = np.concatenate(moments("logit", 1.0, -900.0, 2.0))  # q = e^f there
    np.testing.assert_allclose([logz, alpha], [-899.0, 1.0], rtol=1e-14)
    assert 0 <= beta < 1e-300


@kernel
def _through_address(address, y, m, v, theta, logz, alpha, beta):
    call_at(address, y, m, v, theta, logz, alpha, beta)


@EVERY
def test_tilted_and_loglik_are_callable_by_address(name):
    record = get_likelihood(name)
    y, m, v, theta = (np.full(3, x) for x in (1.0, 0.2, 0.5, 2.0))
    found = [np.empty(3) for _ in range(3)]
    _through_address(address_of(record.tilted, TILTED_SIGNATURE), y, m, v, theta, *found)
    np.testing.assert_array_equal(found, tilted_moments(record.tilted, y, m, v, theta))
    assert address_of(record.loglik, LOGLIK_SIGNATURE) != 0


def test_tilted_negbinomial_where_the_count_is_what_the_cavity_expects():
    """The mode is the cavity's mean to rounding, which is an end of its own bracket."""
    for y, r in [(300.0, 2.0), (300.0, 80.0), (300.0, 1e4), (1e5, 2.0)]:
        points = [(y, np.log(y / r), v) for v in (1e-3, 0.05, 1.0, 5.0)]
        assert (worst_errors("negbinomial", points, theta=r) < 1e-9).all()


@each(
    ("y", "m", "v", "r"),
    [
        (478.0, -3.0680991879829436, 0.05617576511693446, 0.03733383645241194),
        (17511.0, -2.7902666720790443, 0.0023822788928882965, 19.623101884807514),
        (101008.0, -6.038154095503021, 0.00011861747576076015, 0.043586081346673015),
        (4.0, 7.066404940477926, 0.005789062990461109, 2090.406873422883),
    ],
)
def test_negbinomial_mass_where_plain_newton_steps_go_back_and_forth(y, m, v, r):
    """Their ends are on either side of 0, where the logistic function is flat; the mass was infinite."""
    f = np.linspace(m - r * v - 12.0 * np.sqrt(v), m + y * v + 12.0 * np.sqrt(v), 2_000_001)
    log_w = y * f - (y + r) * np.logaddexp(0.0, f) - 0.5 * (f - m) ** 2 / v - 0.5 * np.log(2.0 * np.pi * v)
    wanted = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) + logsumexp(log_w) + np.log(f[1] - f[0])
    found = get_likelihood("negbinomial").logpdf([y], [m], [v], [r])
    np.testing.assert_allclose(found, [wanted], rtol=1e-9)
