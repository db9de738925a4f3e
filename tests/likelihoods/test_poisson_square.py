"""The square-link Poisson: moments, predictions, quantiles, and what Laplace and VB need of likelihoods."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy import integrate
from scipy.stats import norm, poisson

from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import log_density, tilted_moments

SQUARE = get_likelihood("poisson_square")


@each(("y", "m", "v"), [(0.0, 0.3, 2.0), (1.0, -1.2, 0.4), (7.0, 0.0, 1.0), (40.0, 6.0, 0.09)])
def test_square_link_moments_equal_integrals(y, m, v):
    def mean_of(power):
        def density(f):
            return f**power * poisson.pmf(y, f * f) * norm.pdf(f, m, np.sqrt(v))

        return integrate.quad(density, -15, 15, points=[0.0, m], limit=400, epsabs=1e-13, epsrel=1e-11)[0]

    z, first, second = (mean_of(power) for power in (0, 1, 2))
    logz, alpha, beta = (a[0] for a in tilted_moments(SQUARE.tilted, y, m, v, 1.0))
    np.testing.assert_allclose(logz, np.log(z), rtol=1e-9)
    np.testing.assert_allclose(m + v * alpha, first / z, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(v - v * v * beta, second / z - (first / z) ** 2, rtol=1e-7)


def test_square_link_keeps_digits_for_large_counts_and_small_variances():
    m = np.array([1000.0, 30.0, 1.0])
    y = m**2
    for v in (1e-6, 1e-2):
        _, alpha, beta = tilted_moments(SQUARE.tilted, y, m, v, 1.0)
        _, slope, curve = log_density(SQUARE.loglik, y, m, 1.0)
        np.testing.assert_allclose(slope, 0.0, atol=1e-9)
        np.testing.assert_allclose(beta, -curve / (1.0 - v * curve), rtol=0.05)
        assert (np.abs(alpha) < 0.1).all()
    assert np.isnan(tilted_moments(SQUARE.tilted, 1.0, 0.3, -1.0, 1.0)).all()


def test_square_link_predicts_draws_and_quantiles(rng):
    m, v = np.array([0.2, 1.5, 4.0]), np.array([1.0, 0.3, 0.02])
    mass = np.exp([SQUARE.logpdf(float(k), m, v, 1.0) for k in range(80)])
    mean, variance = SQUARE.predict(m, v, 1.0)
    k = np.arange(80.0)[:, None]
    np.testing.assert_allclose(mass.sum(axis=0), 1.0)
    np.testing.assert_allclose((k * mass).sum(axis=0), mean)
    np.testing.assert_allclose((k**2 * mass).sum(axis=0) - mean**2, variance)
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_array_equal(SQUARE.quantile(q, m, v, 1.0), (np.cumsum(mass, axis=0) < q).sum(axis=0))
    f = m + np.sqrt(v) * rng.standard_normal((20_000, 3))
    draws = SQUARE.sample(rng, f.ravel(), 1.0).reshape(f.shape)
    assert (np.abs(draws.mean(axis=0) - mean) < 6.0 * np.sqrt(variance / 20_000)).all()


@each("name", ["probit", "logit", "poisson", "poisson_square"])
def test_third_derivative_is_that_of_the_second(name):
    record, f = get_likelihood(name), np.array([-2.3, -0.4, 0.7, 1.9])
    y = np.array([1.0, -1.0, 1.0, -1.0]) if name in ("probit", "logit") else np.array([0.0, 3.0, 1.0, 5.0])
    ends = [log_density(record.loglik, y, f + side * 1e-5, 1.0)[2] for side in (-1.0, 1.0)]
    np.testing.assert_allclose(record.third(y, f, 1.0), (ends[1] - ends[0]) / 2e-5, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["poisson", "poisson_square"])
def test_averaged_density_is_the_mean_and_its_derivatives(name):
    record, y = get_likelihood(name), np.array([0.0, 1.0, 4.0, 2.0])
    m, v = np.array([0.4, 1.1, -2.0, 3.0]), np.array([0.5, 0.1, 0.7, 0.02])
    value, slope, curve = record.averaged(y, m, v, 1.0)
    for i in range(4):

        def integrand(u, i=i):
            return norm.pdf(u) * log_density(record.loglik, y[i], m[i] + np.sqrt(v[i]) * u, 1.0)[0][0]

        zero = [-m[i] / np.sqrt(v[i])] if abs(m[i]) < 8.0 * np.sqrt(v[i]) else None
        wanted = integrate.quad(integrand, -8.3, 8.3, points=zero, limit=200)[0]
        np.testing.assert_allclose(value[i], wanted, rtol=1e-8)
    h = 1e-5
    up, down = record.averaged(y, m + h, v, 1.0), record.averaged(y, m - h, v, 1.0)
    np.testing.assert_allclose(slope, (up[0] - down[0]) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(curve, (up[1] - down[1]) / (2 * h), rtol=1e-6)
    far = record.averaged(np.ones(2), np.array([11.99, 12.01]) * np.sqrt(2.0), np.ones(2), 1.0)
    assert np.isfinite(far).all()
