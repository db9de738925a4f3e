"""Several fits whose mixture is the posterior: every prediction is that of a mixture."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, new
from scipy.special import logsumexp
from scipy.stats import norm

import tensorcep as tc
from tensorcep.cp.fit.outcome import unseen_moments
from tensorcep.cp.posterior import Mixture, Posterior

EVERY = each("name", NAMES)
QUICK = {"method": "cep", "interactions": "cp", "max_iter": 25, "tol": 0.3, "anneal": 3, "n_starts": 1}


@pytest.fixture(autouse=True)
def every_fit_counts(monkeypatch):
    """Few sweeps of little data: none is left out."""
    monkeypatch.setattr("tensorcep.cp.fit.run.overfit", lambda problem: np.inf)


@cache
def ensemble(name):
    return new(name, n_ensemble=3, prior="learned", **QUICK).fit(*entries(name))


def alone(name, c):
    """A model with the posterior of one member."""
    model = new(name, prior="learned", **QUICK).fit(*entries(name))
    return with_posterior(model, ensemble(name).posterior_.members[c])


def with_posterior(model, posterior):
    mean, cov = unseen_moments(posterior, None)
    model._set(model._result.with_posterior(posterior, unseen_mean=mean, unseen_cov=cov))
    return model


@EVERY
def test_predictions_are_those_of_the_mixture(name):
    model, (X, y) = ensemble(name), entries(name)
    assert isinstance(model.posterior_, Mixture)
    members = [alone(name, c) for c in range(3)]
    f, v = np.array([m.predict_latent(X) for m in members]).swapaxes(0, 1)
    mean, variance = model.predict_latent(X)
    np.testing.assert_allclose(mean, f.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(variance, v.mean(axis=0) + f.var(axis=0), atol=1e-12)
    scores = np.array([m.log_score(X, y) for m in members])
    np.testing.assert_allclose(model.log_score(X, y), logsumexp(scores, axis=0) - np.log(3), atol=1e-10)
    if name == "classifier":
        p = np.array([m.predict_proba(X)[:, 1] for m in members])
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], p.mean(axis=0), atol=1e-12)
    assert np.ptp(f, axis=0).max() > 1e-3, "the members are one"


@EVERY
def test_factors_are_those_of_the_best_member(name):
    model = ensemble(name)
    for one, other in zip(model.factors_, alone(name, 0).factors_, strict=True):
        np.testing.assert_array_equal(one, other)
    last = [model.trace_["train_score"][model.trace_["member"] == c][-1] for c in range(3)]
    assert last == sorted(last, reverse=True)
    assert len(model.trace_["member"]) == model.n_iter_
    assert len(model.components(1)) == model.shape_[1] * model.posterior_.rank


def test_interval_bounds_are_quantiles_of_the_mixture():
    model, (X, _) = ensemble("regressor"), entries("regressor")
    members = [alone("regressor", c) for c in range(3)]
    low, high = model.predict_interval(X, 0.8).T
    for bound, q in ((low, 0.1), (high, 0.9)):
        below = [norm.cdf(bound, *m.predict(X, return_std=True)) for m in members]
        np.testing.assert_allclose(np.mean(below, axis=0), q, atol=5e-3)


def test_draws_have_the_moments_of_the_mixture():
    model, (X, _) = ensemble("regressor"), entries("regressor")
    n = 4000
    draws = model.sample_posterior(n, X[:40], random_state=1)
    mean, variance = model.predict_latent(X[:40])
    assert np.abs(draws.mean(axis=0) - mean).max() < 6 * np.sqrt(variance.max() / n)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.3)
    assert model.sample_y(X[:5], 7, 0).shape == (7, 5)


@EVERY
def test_unknown_rows_have_every_members_own_prior(name):
    cell = [[99, 0, 0]]
    with pytest.warns(UserWarning, match="prior is used"):
        found = [model.predict_latent(cell)[0] for model in (ensemble(name), *(alone(name, c) for c in range(3)))]
    np.testing.assert_allclose(found[0], np.mean(found[1:], axis=0), atol=1e-12)
    with pytest.warns(UserWarning, match="prior is used"):
        assert ensemble(name).sample_posterior(3, cell, random_state=0).shape == (3, 1)


@EVERY
def test_saved_ensembles_give_the_same_bits(name, tmp_path):
    model, (X, y) = ensemble(name), entries(name)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert len(again.posterior_.members) == 3
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))
    np.testing.assert_array_equal(again.sample_y(X[:9], 4, 0), model.sample_y(X[:9], 4, 0))
    pd.testing.assert_frame_equal(again.components(0), model.components(0))


def test_streams_go_on_from_the_best_member():
    X, y = entries("regressor")
    model = new("regressor", n_ensemble=2, prior="learned", **QUICK).fit(X[:400], y[:400])
    best = model.posterior_.members[0]
    model.partial_fit(X[400:500], y[400:500])
    assert isinstance(model.posterior_, Posterior)
    single = new("regressor", prior="learned", **QUICK).fit(X[:400], y[:400])
    with_posterior(single, best)
    np.testing.assert_allclose(single.partial_fit(X[400:500], y[400:500]).factors_[0], model.factors_[0], rtol=1e-9)
    first = new("regressor", n_ensemble=2, **QUICK).partial_fit(X, y)
    np.testing.assert_array_equal(first.factors_[1], new("regressor", **QUICK).partial_fit(X, y).factors_[1])


def test_threads_do_not_change_the_mixture():
    X, y = entries("regressor")
    one, two = (new("regressor", n_ensemble=2, n_jobs=jobs, **QUICK).fit(X, y) for jobs in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_a_callback_that_stops_ends_the_ensemble():
    X, y = entries("regressor")
    model = new("regressor", n_ensemble=4, callbacks=lambda *_: True, **QUICK).fit(X, y)
    assert model.n_iter_ == 1


def test_members_must_differ_in_their_start():
    init = [np.ones((n, 2)) for n in (12, 10, 8)]
    with pytest.raises(ValueError, match="n_ensemble must be 1 without init='auto' or 'random'"):
        new("regressor", n_ensemble=2, method="cep", init=init).fit(*entries("regressor"))
    with pytest.raises(ValueError, match="n_ensemble"):
        tc.CEP(n_ensemble=0)
