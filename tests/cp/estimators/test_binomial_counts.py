"""Successes of trials: the same as so many labels, in every method; tables, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy.special import expit, gammaln
from scipy.stats import binom

import tensorcep as tc
from tensorcep.methods import CEP, PGVB, VMP, WOPT, Gibbs, Laplace, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SHAPE = (9, 8, 5)
METHODS = {
    "cep": CEP(),
    "laplace": Laplace(),
    "vmp": VMP(),
    "gibbs": Gibbs(n_chains=2),
    "pg-vb": PGVB(),
    "pg-gibbs": PGGibbs(n_chains=2),
    "wopt": WOPT(),
}


def simulated(n=240, seed=1, most=12):
    """Coordinates, successes, trials and log odds."""
    rng = np.random.default_rng(seed)
    X = np.argwhere(np.ones(SHAPE))[rng.permutation(np.prod(SHAPE))[:n]]
    rows = [rng.normal(0.7, 0.7, (size, 2)) for size in SHAPE]
    f = np.prod([own[column] for own, column in zip(rows, X.T, strict=True)], axis=0).sum(axis=1)
    trials = rng.integers(1, most + 1, n).astype(float)
    return X, rng.binomial(trials.astype(int), expit(f)).astype(float), trials, f


def new(name, max_iter=60, **params):
    how = {"method": METHODS[name], "random_state": 0, "n_jobs": 1, "max_iter": max_iter, **params}
    return tc.CPCountRegressor(2, likelihood="binomial", **how)


def as_labels(X, y, trials):
    """One entry per trial."""
    labels = [np.repeat([1.0, 0.0], [int(k), int(n - k)]) for k, n in zip(y, trials, strict=True)]
    return np.repeat(X, trials.astype(int), axis=0), np.concatenate(labels)


@pytest.mark.parametrize("name", METHODS)
def test_log_odds_are_found(name):
    X, y, trials, f = simulated(most=60)
    model = new(name, max_iter=100 if name.endswith("gibbs") else 60).fit(X, y, n_trials=trials)
    found = model.predict_latent(X)[0]
    assert np.corrcoef(found, f)[0, 1] > 0.8
    share = model.predict(X)
    assert ((share > 0.0) & (share < 1.0)).all()
    np.testing.assert_allclose(model.predict(X, n_trials=trials), trials * share, rtol=1e-8)
    assert model.score(X, y, n_trials=trials) > 0.3
    assert model.log_score(X, y, n_trials=trials).mean() > binom.logpmf(y, trials, y.sum() / trials.sum()).mean()


@each("name", ["pg-vb", "vmp", "wopt"])
def test_trials_are_labels_given_so_many_times(name):
    X, y, trials, _ = simulated(n=150, most=5)
    init = [np.random.default_rng(k).normal(0.4, 0.3, (size, 2)) for k, size in enumerate(SHAPE)]
    prior = tc.Prior([0.3] * 3, [1.0] * 3)
    how = {"prior": prior, "init": init, "interactions": "cp", "shape": SHAPE, "tol": 1e-10, "max_iter": 400}
    one = new(name, **how).fit(X, y, n_trials=trials)
    if name == "vmp":  # the Gaussian matched to a surprising label is narrower than that of several together
        many = new(name, **how).fit(*as_labels(X, y, trials))
    else:
        labels = tc.CPClassifier(2, link="logit", method=METHODS[name], random_state=0, n_jobs=1, **how)
        many = labels.fit(*as_labels(X, y, trials))
    loose = {"wopt": 2e-3, "vmp": 0.2, "pg-vb": 1e-5}[name]
    np.testing.assert_allclose(one.predict_latent(X)[0], many.predict_latent(X)[0], atol=loose)
    if name == "pg-vb":
        np.testing.assert_allclose(one.predict_latent(X)[1], many.predict_latent(X)[1], rtol=1e-4)
        choices = (gammaln(trials + 1.0) - gammaln(y + 1.0) - gammaln(trials - y + 1.0)).sum()
        assert one.lower_bound_ == pytest.approx(many.lower_bound_ + choices, abs=1e-3)


def test_lower_bound_does_not_fall():
    X, y, trials, _ = simulated()
    model = new("pg-vb", method=PGVB(anneal=0)).fit(X, y, n_trials=trials)
    assert np.diff(model.trace_["lower_bound"]).min() > -1e-7 * abs(model.lower_bound_)


def test_one_trial_each_is_the_default_and_the_label_of_a_classifier():
    X, _, _, f = simulated()
    y = (np.random.default_rng(0).random(len(f)) < expit(f)).astype(float)
    left_out, given = new("pg-vb").fit(X, y), new("pg-vb").fit(X, y, n_trials=1)
    np.testing.assert_array_equal(left_out.predict(X), given.predict(X))
    assert left_out.score(X, y) == given.score(X, y)
    np.testing.assert_allclose(
        left_out.log_score(X, y), np.log(np.where(y > 0, left_out.predict(X), 1 - left_out.predict(X)))
    )


def test_default_method_intervals_tables_and_files(tmp_path):
    X, y, trials, _ = simulated()
    table = pd.DataFrame(X, columns=["site", "kind", "year"]).astype(str).assign(shots=trials, hits=y)
    model = tc.CPCountRegressor(2, likelihood="binomial", max_iter=60, random_state=0, n_jobs=1)
    model.fit(table, value="hits", n_trials="shots")
    assert model.method_ == "pg-gibbs"
    assert model.likelihood_ == "binomial"
    assert model.dispersion_ is None
    cells = table.drop(columns="hits")
    inside = model.predict_interval(cells, 0.9)
    assert 0.8 < np.mean((y >= inside[:, 0]) & (y <= inside[:, 1])) <= 1.0
    assert (inside <= np.stack([trials, trials], axis=1)).all()
    draws = model.sample_y(cells, 50, random_state=0)
    assert (draws <= trials).all()
    odd = model.anomaly_score(table, value="hits")
    np.testing.assert_allclose(odd["mean"], model.predict(cells))
    np.testing.assert_allclose(-odd["surprise"], model.log_score(cells, y))
    model.save(tmp_path / "m.npz")
    loaded = tc.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.predict(cells), model.predict(cells))
    np.testing.assert_array_equal(loaded.log_score(cells, y), model.log_score(cells, y))


def test_threads_and_weights():
    X, y, trials, _ = simulated()
    one = new("pg-gibbs", max_iter=20).fit(X, y, n_trials=trials)
    two = new("pg-gibbs", max_iter=20, n_jobs=2).fit(X, y, n_trials=trials)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    fixed = new("pg-vb", prior=tc.Prior([0.7] * 3, [2.0] * 3), tol=0.0)  # a prior chosen from counts sees no weights
    whole = fixed.fit(X, y, n_trials=trials).predict(X)
    half = fixed.fit(X, 2.0 * y, n_trials=2.0 * trials, sample_weight=np.full(len(y), 0.5)).predict(X)
    np.testing.assert_allclose(half, whole, rtol=1e-9)


def test_what_is_refused():
    X, y, trials, _ = simulated()
    model = new("vmp")
    with pytest.raises(ValueError, match="at most their number of trials"):
        model.fit(X, trials + 1.0, n_trials=trials)
    with pytest.raises(ValueError, match="at most their number of trials"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
        model.fit(X, y, n_trials=trials + 0.5)
    with pytest.raises(ValueError, match="exposure is for"):
        model.fit(X, y, exposure=trials)
    with pytest.raises(ValueError, match="n_trials is for"):
        tc.CPCountRegressor(2).fit(X, y, n_trials=trials)
