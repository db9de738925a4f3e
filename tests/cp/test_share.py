"""What predictions count beside a constant: the bets against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.stats import bernoulli

from tensorcep.cp.calibration.null_model import CONSTANT, CONSTANT_OF_LABELS, SHARES, evidence_of_shares, mean_share
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.binary import MixedLabels


def scores(rng, p, claimed, n):
    y = rng.random(n) < p
    return bernoulli(claimed).logpmf(y), bernoulli(0.5).logpmf(y)


def test_without_evidence_the_constant_counts_most():
    nothing = evidence_of_shares(np.zeros(0), np.zeros(0))
    assert np.all(nothing == 0.0)
    assert mean_share(nothing) == pytest.approx(0.375)
    assert mean_share(nothing, constant=CONSTANT_OF_LABELS) == pytest.approx(0.225)


@each(("claimed", "low", "high"), [(0.8, 0.97, 1.0), (0.2, 0.0, 0.01), (0.99, 0.3, 0.8)])
def test_share_is_that_of_the_best_mixture_when_scores_are_many(rng, claimed, low, high):
    model, constant = scores(rng, 0.8, claimed, 2000)
    evidence = evidence_of_shares(model, constant)
    share = mean_share(evidence)
    assert low <= share <= high
    assert share == pytest.approx(SHARES[np.argmax(evidence)], abs=0.04)
    assert mean_share(evidence, chosen=5.0) <= share


@each("prior", [CONSTANT, CONSTANT_OF_LABELS])
@each("claimed", [0.5, 0.6, 0.3, 0.95])
def test_bets_lose_little_against_the_best_share_in_hindsight(rng, claimed, prior):
    """Over all values as they come; they are a Bayesian's, whose score is the evidence."""
    model, constant = scores(rng, 0.6, claimed, 300)
    evidence, total = np.zeros(len(SHARES)), 0.0
    for m, c in zip(model[:, None], constant[:, None], strict=True):
        share = mean_share(evidence, constant=prior)
        total += float(np.log(share * np.exp(m - c) + 1.0 - share)[0])
        evidence += evidence_of_shares(m, c)
    assert total > evidence.max() - np.log(4.0 * len(SHARES))
    assert total > np.log(prior) - 1e-9


@each("name", ["probit", "logit"])
def test_labels_beside_a_constant_are_a_law(rng, name):
    plain = get_likelihood(name)
    mixed = MixedLabels("mixed", of=plain, share=0.7, one=0.1)
    m, v, theta = rng.standard_normal(20), rng.random(20), np.ones(20)
    one = np.exp(mixed.logpdf(np.ones(20), m, v, theta))
    np.testing.assert_allclose(one, 0.7 * plain.predict(m, v, theta)[0] + 0.03, rtol=1e-9)
    np.testing.assert_allclose(one + np.exp(mixed.logpdf(-np.ones(20), m, v, theta)), 1.0, rtol=1e-9)
    f = np.repeat(m[:2], 20_000)
    drawn = mixed.sample(rng, f, np.ones(len(f))).reshape(2, -1).mean(axis=1)
    np.testing.assert_allclose(drawn, 0.7 * plain.predict(m[:2], np.zeros(2), theta[:2])[0] + 0.03, atol=0.02)
