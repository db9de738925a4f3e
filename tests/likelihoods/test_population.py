"""The likelihood of labels whose zeros were sampled: dense integrals, the logit's exact form, draws, extremes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit, log_ndtr, logsumexp

from tensorcep.likelihoods import binary as module
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.binary import for_population, log_odds

PROBIT, LOGIT = get_likelihood("probit"), get_likelihood("logit")


def dense(y, m, v, rate):
    """log P(y) by 60,001 equally spaced points over every place where the integrand can be large."""
    s, m, shift = np.sqrt(v), y * m, y * np.log(rate)
    top = max(m + 12.0 * s, 40.0) if s > 0.05 else m + (abs(m) + 45.0) * v + 12.0 * s
    u = np.linspace(-12.0, (top - m) / s, 60_001)
    odds = shift + log_ndtr(m + s * u) - log_ndtr(-m - s * u)
    return logsumexp(-np.logaddexp(0.0, -odds) - 0.5 * u * u) + np.log((u[1] - u[0]) / np.sqrt(2.0 * np.pi))


@each("rate", [0.9, 0.05, 1e-3, 1e-9])
def test_population_probit_equals_a_dense_integral(rate):
    likelihood = for_population(PROBIT, rate)
    for v in (1e-8, 0.1, 0.24, 0.26, 1.5, 9.0, 100.0):
        for m in (-30.0, -3.0, 0.0, 0.7, 5.0, 30.0):
            for y in (1.0, -1.0):
                found, expected = likelihood.logpdf(y, m, v, 1.0)[0], dense(y, m, v, rate)
                assert abs(found - expected) < 1e-11 * max(1.0, abs(expected)), (y, m, v)


def test_population_quadrature_equals_the_shifted_logit(rng):
    m, v = rng.uniform(-15, 15, 500), rng.choice([0.0, 1e-12, 0.1, 1.0, 5.0, 50.0], 500)
    y = rng.choice([-1.0, 1.0], 500)
    for rate in (0.5, 1e-2, 1e-6):
        centre = -np.log(rate)
        found = module._log_expected(LOGIT, y * m, v, -y * centre, y * centre)
        np.testing.assert_allclose(found, LOGIT.logpdf(y, m - centre, v, 1.0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("likelihood", [PROBIT, LOGIT], ids=lambda record: record.name)
def test_population_odds_are_those_of_the_sample_times_the_rate(likelihood):
    f, sure = np.linspace(-6.0, 4.0, 25), np.zeros(25)
    p, _ = likelihood.predict(f, sure, 1.0)
    found, variance = for_population(likelihood, 0.05).predict(f, sure, 1.0)
    np.testing.assert_allclose(found / (1.0 - found), 0.05 * p / (1.0 - p), rtol=1e-9)
    np.testing.assert_allclose(variance, found * (1.0 - found), rtol=1e-9)


@pytest.mark.parametrize("likelihood", [PROBIT, LOGIT], ids=lambda record: record.name)
def test_population_parts_agree(likelihood, rng):
    record = for_population(likelihood, 0.2)
    m, v = rng.normal(size=4), rng.gamma(2.0, 0.5, 4)
    one, _ = record.predict(m, v, 1.0)
    zero = np.exp(record.logpdf(-1.0, m, v, 1.0))
    np.testing.assert_allclose(one + zero, 1.0, rtol=1e-12)
    f = m[:, None] + np.sqrt(v)[:, None] * rng.standard_normal((4, 20_000))
    drawn = record.sample(rng, f, 1.0)
    assert (np.abs(drawn.mean(axis=1) - one) < 6.0 * np.sqrt(0.25 / 20_000)).all()
    np.testing.assert_array_equal(record.quantile(0.5, m, v, 1.0), zero < 0.5)
    np.testing.assert_array_equal(record.check_y([0, 1]), [-1.0, 1.0])


def test_population_of_all_zeros_is_the_likelihood_itself():
    assert for_population(PROBIT, 1.0) is PROBIT


def test_population_far_latent_values_stay_finite():
    record = for_population(PROBIT, 1e-6)
    m, v = np.array([-1e3, 1e3, -1e3, 1e3, 0.0]), np.array([0.0, 0.0, 1.0, 1.0, 1e8])
    for y in (1.0, -1.0):
        found = record.logpdf(y, m, v, 1.0)
        assert np.isfinite(found).all()
        assert (found <= 0.0).all()


def test_log_odds_keep_the_shape():
    f = np.array([[-2.0, 0.0], [1.0, 40.0]])
    np.testing.assert_allclose(log_odds(LOGIT, f), f, rtol=1e-14)
    np.testing.assert_allclose(expit(log_odds(PROBIT, f)), np.exp(log_ndtr(f)), rtol=1e-13)
