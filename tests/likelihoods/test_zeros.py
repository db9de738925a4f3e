"""Structural zeros of counts: mass, moments, tails, quantiles and draws of the mixture; what mean field expects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from tensorcep.cp.posterior import EntryTheta, join_thetas
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.counts import Beta, ZeroInflation, presence, with_zeros, zero_inflated

R, SHARE, F = 1.7, 0.3, 0.8
KINDS = {"poisson": stats.poisson(np.exp(F)), "negbinomial": stats.nbinom(R, 1.0 / (1.0 + np.exp(F)))}
EVERY = pytest.mark.parametrize("name", KINDS)


def record(name, *lines):
    return zero_inflated(get_likelihood(name), ZeroInflation()).by_component(np.array(lines or [(R, SHARE)]))


@EVERY
def test_mass_is_that_of_the_mixture_at_a_known_rate(name):
    y = np.arange(60.0)
    mass = (1.0 - SHARE) * KINDS[name].pmf(y) + SHARE * (y == 0.0)
    given = np.full(60, F), np.zeros(60), np.zeros(60)
    np.testing.assert_allclose(np.exp(record(name).logpdf(y, *given)), mass, rtol=1e-9)
    value, d1, d2 = np.empty(60), np.empty(60), np.empty(60)
    record(name).loglik(y, given[0], given[2], value, d1, d2)
    np.testing.assert_allclose(np.exp(value), mass, rtol=1e-9)
    mean, variance = record(name).predict(*(part[:1] for part in given))
    assert mean[0] == pytest.approx(mass @ y, rel=1e-6)
    assert variance[0] == pytest.approx(mass @ y**2 - (mass @ y) ** 2, rel=1e-5)
    lower, upper = record(name).tails(y, *given)
    np.testing.assert_allclose(lower, np.cumsum(mass), rtol=1e-7)
    np.testing.assert_allclose(upper, 1.0 - np.cumsum(mass) + mass, atol=1e-7)
    for q in (0.1, SHARE, 0.5, 0.9, 0.99):
        assert record(name).quantile(q, *(part[:1] for part in given))[0] == np.searchsorted(np.cumsum(mass), q)


@EVERY
def test_quantile_of_components_is_that_of_their_mean_distribution(name):
    lines = [(R, 0.1), (2.0 * R, 0.6)]
    m, v, theta = (
        np.array([[1.0, 3.0], [2.0, 2.0]]),
        np.array([[0.3, 0.0], [0.1, 0.5]]),
        np.array([[0.0] * 2, [1.0] * 2]),
    )
    y, both = np.arange(400.0), record(name, *lines)
    for n in range(2):
        each = [both.tails(y, *(np.full(400, part[c, n]) for part in (m, v, theta)))[0] for c in range(2)]
        for q in (0.2, 0.4, 0.7, 0.95):
            found = both.mixture_quantile(q, m[:, n : n + 1], v[:, n : n + 1], theta[:, n : n + 1])
            assert found[0] == np.searchsorted(np.mean(each, axis=0), q)


@EVERY
def test_draws_have_the_mass(name):
    rng, n = np.random.default_rng(0), 40_000
    y = record(name).sample(rng, np.full(n, F), np.zeros(n))
    p = np.exp(record(name).logpdf(np.arange(3.0), np.full(3, F), np.zeros(3), np.zeros(3)))
    share = [np.mean(y == k) for k in range(3)]
    assert np.all(np.abs(share - p) < 6.0 * np.sqrt(p * (1.0 - p) / n))


def test_given_dispersion_is_kept_whatever_stands_beside_the_share():
    given = replace(get_likelihood("negbinomial"), default_theta=R, parameters=())
    found = zero_inflated(given, ZeroInflation()).by_component(np.array([[99.0, SHARE]]))
    np.testing.assert_array_equal(
        found.logpdf([0.0, 4.0], [F, F], [0.1, 0.1], [0.0, 0.0]),
        record("negbinomial").logpdf([0.0, 4.0], [F, F], [0.1, 0.1], [0.0, 0.0]),
    )


def test_presence_is_bayes_rule_and_the_bound_is_tight_at_a_known_share():
    y, log_mass = np.array([0.0, 0.0, 3.0]), np.log([0.5, 1e-3, 0.2])
    whole = np.exp(with_zeros(y, log_mass, SHARE))
    np.testing.assert_allclose(whole, (1.0 - SHARE) * np.exp(log_mass) + SHARE * (y == 0.0))
    present = (1.0 - SHARE) * np.exp(log_mass) / whole
    np.testing.assert_allclose(presence(y, log_mass, SHARE), present)
    # as much certainty as makes the law a number; f = 1, E[f^2] = 2: weight 0.4 and target 0.7 leave the constant
    parts = np.full(3, 0.4), np.full(3, 0.7), np.zeros(3), log_mass - 0.7 + 0.4
    law = Beta(1e9 * SHARE, 1e9 * (1.0 - SHARE))
    found = ZeroInflation().weigh_expected(law, y, (np.ones(3), np.full(3, 2.0)), parts)
    np.testing.assert_allclose(found, present, rtol=1e-6)
    np.testing.assert_allclose(parts[0], 0.4 * present, rtol=1e-6)
    np.testing.assert_allclose(parts[3] + parts[1] - parts[0], np.log(whole), rtol=1e-6)  # the log evidence of each


def test_beta_law_has_its_moments_and_divergence():
    law, prior = Beta(3.0, 5.0), (1.5, 2.0)
    own, other = stats.beta(*law), stats.beta(*prior)
    assert law.mean == pytest.approx(own.mean())
    assert law.variance == pytest.approx(own.var())
    assert law.log_means[0] == pytest.approx(quad(lambda p: own.pdf(p) * np.log(p), 0.0, 1.0)[0], rel=1e-6)
    assert law.log_means[1] == pytest.approx(quad(lambda p: own.pdf(p) * np.log1p(-p), 0.0, 1.0)[0], rel=1e-6)
    divergence = quad(lambda p: own.pdf(p) * (own.logpdf(p) - other.logpdf(p)), 0.0, 1.0)[0]
    assert law.divergence(prior) == pytest.approx(divergence, rel=1e-6)
    assert law.divergence((3.0, 5.0)) == pytest.approx(0.0, abs=1e-12)


def test_components_draw_dispersion_and_share_together():
    one = EntryTheta(np.array([[2.0]]), gamma=(np.array([[200.0]]), np.array([[100.0]]))).with_share(Beta(30.0, 70.0))
    both = join_thetas([one, one.with_share(Beta(1.0, 1.0))._replace(values=np.array([[2.0, 0.5]]))])
    assert both.values.tolist() == [[2.0, 0.3], [2.0, 0.5]]
    drawn = both.draws(np.zeros(4000, dtype=int), np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=0), [2.0, 0.3], atol=6.0 * 0.15 / np.sqrt(4000))
    alone = (
        EntryTheta(np.ones((1, 1))).with_share(Beta(30.0, 70.0)).draws(np.zeros(5, dtype=int), np.random.default_rng(0))
    )
    assert (alone[:, 0] == 1.0).all()
    assert np.ptp(alone[:, 1]) > 0.0
