"""What is known of f when f plus noise lies between two cuts: moments against mpmath, derivatives, draws."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers.cases import each
from scipy.integrate import quad
from scipy.special import expit, ndtr

from tensorcep.core.random import interval_normal, new_stream, start_stream
from tensorcep.likelihoods.base import log_density, tilted_moments
from tensorcep.likelihoods.binary import PROBIT
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.likelihoods.parameters import thresholds

INF = np.inf
CUTS = [(-1.0, 0.5), (0.0, INF), (-INF, 0.3), (2.0, 2.001), (-7.0, -6.5), (-3.0, 4.0), (-12.0, -2.0), (0.0, 1e-6)]
TILTED = {"normal": thresholds.normal_tilted, "logistic": thresholds.logistic_tilted}
LOGLIK = {"normal": thresholds.normal_loglik, "logistic": thresholds.logistic_loglik}
EVERY = pytest.mark.parametrize("noise", TILTED)


def normal_mass(a, b):
    """Log mass of a standard normal between the cuts and its first two derivatives in a shift of both, by mpmath."""
    with mp.workdps(60):
        a, b = mp.mpf(a), mp.mpf(b)
        a, b, sign = (-b, -a, -1) if a + b > 0 else (a, b, 1)
        mass = mp.ncdf(b) - mp.ncdf(a)
        at_a, at_b = mp.npdf(a) / mass, mp.npdf(b) / mass
        mean = at_a - at_b
        curved = (0 if a == -mp.inf else a * at_a) - (0 if b == mp.inf else b * at_b)
        return float(mp.log(mass)), float(sign * mean), float(mean**2 - curved)


@each("cuts", CUTS)
@each(("m", "v"), [(0.0, 1.0), (1.5, 0.1), (-4.0, 9.0), (11.0, 0.5), (0.2, 100.0)])
def test_normal_tilted_equals_mpmath(cuts, m, v):
    s = np.sqrt(1.0 + v)
    wanted = np.array(normal_mass(*((cut - m) / s for cut in cuts))) / [1.0, s, s * s]
    found = np.ravel(tilted_moments(TILTED["normal"], cuts[0], m, v, cuts[1]))
    scale = np.abs(wanted) + 1e-14
    assert (np.abs(found - wanted) / scale < 2e-9).all(), (found, wanted)


@each("cuts", [(-1.0, 0.5), (0.0, INF), (-INF, 0.3), (2.0, 2.01), (-7.0, -6.5), (-3.0, 4.0)])
@each(("m", "v"), [(0.0, 1.0), (1.5, 0.1), (-4.0, 9.0), (0.2, 50.0)])
def test_logistic_tilted_equals_quadrature(cuts, m, v):
    s = np.sqrt(v)

    def over(function):
        def weighted(f):
            return function(f) * (expit(cuts[1] - f) - expit(cuts[0] - f)) * np.exp(-0.5 * ((f - m) / s) ** 2)

        return quad(weighted, m - 12 * s, m + 12 * s, limit=400, epsabs=0, epsrel=1e-11)[0]

    mass = over(np.ones_like)
    mean = over(lambda f: f - m) / mass
    wanted = [np.log(mass / (s * np.sqrt(2 * np.pi))), mean / v]
    wanted.append((1.0 - over(lambda f: (f - m - mean) ** 2) / mass / v) / v)
    found = np.ravel(tilted_moments(TILTED["logistic"], cuts[0], m, v, cuts[1]))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@EVERY
def test_loglik_is_the_tilted_moment_without_variance_and_has_its_derivatives(noise, rng):
    low = np.array([-1.0, -INF, 0.4, 2.0])
    high = np.array([0.3, 0.1, INF, 2.5])
    f = rng.normal(size=4)
    value, d1, d2 = log_density(LOGLIK[noise], low, f, high)
    logz, alpha, beta = tilted_moments(TILTED[noise], low, f, 1e-12, high)
    np.testing.assert_allclose(np.stack([value, d1, -d2]), np.stack([logz, alpha, beta]), rtol=1e-8)
    h = 1e-5
    up, down = (log_density(LOGLIK[noise], low, f + d, high) for d in (h, -h))
    np.testing.assert_allclose((up[0] - down[0]) / (2 * h), d1, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * h), d2, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("noise", "record"), [("normal", PROBIT), ("logistic", LOGIT)])
def test_two_levels_are_labels(noise, record, rng):
    m, v = 4.0 * rng.normal(size=50), np.exp(2.0 * rng.normal(size=50))
    label = rng.choice([-1.0, 1.0], 50)
    low, high = np.where(label > 0, 0.0, -INF), np.where(label > 0, INF, 0.0)
    found = tilted_moments(TILTED[noise], low, m, v, high)
    np.testing.assert_allclose(found, tilted_moments(record.tilted, label, m, v, 1.0), rtol=1e-9, atol=1e-14)


@each("logistic", [False, True])
@each("cuts", [(-0.7, 0.4), (1.0, 1.2), (-INF, 0.3), (-0.2, INF)])
def test_slopes_in_the_cuts_are_those_of_differences(logistic, cuts):
    cdf = expit if logistic else ndtr
    a, b = cuts

    def log_mass(a, b):
        return np.log(cdf(b) - cdf(a))

    found = thresholds.cut_slopes(a, b, logistic)
    assert found[0] == pytest.approx(log_mass(a, b), rel=1e-12)
    h = 1e-4
    if np.isfinite(a):
        assert found[1] == pytest.approx((log_mass(a + h, b) - log_mass(a - h, b)) / (2 * h), rel=1e-5)
        second = (log_mass(a + h, b) - 2 * log_mass(a, b) + log_mass(a - h, b)) / h**2
        assert found[3] == pytest.approx(second, rel=1e-4)
    if np.isfinite(b):
        assert found[2] == pytest.approx((log_mass(a, b + h) - log_mass(a, b - h)) / (2 * h), rel=1e-5)
        second = (log_mass(a, b + h) - 2 * log_mass(a, b) + log_mass(a, b - h)) / h**2
        assert found[4] == pytest.approx(second, rel=1e-4)
    if np.isfinite(a) and np.isfinite(b):
        both = log_mass(a + h, b + h) - log_mass(a + h, b - h) - log_mass(a - h, b + h) + log_mass(a - h, b - h)
        assert found[5] == pytest.approx(both / (4 * h * h), rel=1e-4)
    else:
        assert found[5] == 0.0


@each("cuts", [(-1.0, 0.5), (0.2, 0.3), (3.0, 3.5), (3.0, 9.0), (-9.0, -3.0), (-2.0, 2.5), (0.1, INF)])
def test_draws_between_cuts_have_their_moments(cuts):
    s, n = new_stream(), 5000
    start_stream(s, 3, 1, 4)
    draws = np.array([interval_normal(s, *cuts) for _ in range(n)])
    assert ((draws > cuts[0]) & (draws < cuts[1])).all()
    _, mean, below_one = normal_mass(*cuts)
    sd = np.sqrt(1.0 - below_one)
    assert abs(draws.mean() - mean) < 6.0 * sd / np.sqrt(n)
    assert abs(draws.var() - sd**2) < 6.0 * sd**2 * np.sqrt(2.0 / n)


def test_expected_latent_normals_are_the_truncated_means():
    low, high, f = np.array([-1.0, 0.5, -INF]), np.array([0.0, INF, 0.2]), np.array([0.3, -0.5, 1.0])
    weight, target, spread, constant = (np.empty(3) for _ in range(4))
    thresholds.normal_expected(low, f, f * f, high, weight, target, spread, constant)
    each = [normal_mass(a - x, b - x) for a, b, x in zip(low, high, f, strict=True)]
    np.testing.assert_allclose(target, f + [mean for _, mean, _ in each], rtol=1e-12)
    np.testing.assert_allclose(constant + target * f - 0.5 * f * f, [logz for logz, _, _ in each], rtol=1e-12)
    np.testing.assert_array_equal(weight, 1.0)
