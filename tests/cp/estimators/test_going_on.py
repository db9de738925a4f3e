"""Streams that go on from a fit by a method that learns none: from Gaussians that say what the fit says, or not."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.models import paper

import tensorcep as tc
from tensorcep.cp.fit.refit import gaussian_fit
from tensorcep.methods import CEP, PGVB, WOPT, Gibbs, Laplace, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
FAST = {"random_state": 0, "max_iter": 60, "n_jobs": 1}


def halves(seed=0, likelihood="gaussian", n=1200, **how):
    """Two training sets and entries to predict, as frames."""
    tensor = tc.simulate_cp((24, 15, 6), 2, n, likelihood=likelihood, random_state=seed, **how).tensor
    labels = [[f"{name}{i}" for i in at] for name, at in zip("uim", tensor.coords.T, strict=True)]
    df = pd.DataFrame({**dict(zip(("user", "item", "month"), labels, strict=True)), "y": tensor.values})
    return df[: n // 2], df[n // 2 : 4 * n // 5], df[4 * n // 5 :]


def test_a_default_fit_goes_on_and_learns(tmp_path):
    first, second, test = halves(noise_precision=10)
    model = tc.CPRegressor(**FAST, interactions={"main": 1, "pair": 1, "cp": 3}).fit(first, value="y")
    assert model.method_ == "gibbs"
    model.save(tmp_path / "model.npz")
    before, n = model.score(test), model.n_samples_seen_
    gaussian = copy.copy(model)
    gaussian._set(gaussian_fit(model._result, model.max_iter))
    assert abs(gaussian.score(test) - before) < 0.02
    model.partial_fit(second[["user", "item", "month"]], second["y"])
    assert model.method_ == "cep"
    assert model.n_samples_seen_ == n + len(second)
    assert model.score(test) > before
    again = tc.load(tmp_path / "model.npz").partial_fit(second[["user", "item", "month"]], second["y"])
    np.testing.assert_array_equal(again.predict(test), model.predict(test))
    new = pd.DataFrame({"user": ["other"], "item": ["i3"], "month": ["m1"]})
    assert model.partial_fit(new, [1.0]).shape_ == (25, 15, 6)


@each(
    ("cls", "likelihood", "method"),
    [
        (tc.CPClassifier, "probit", PGGibbs(n_chains=1)),
        (tc.CPClassifier, "probit", PGVB()),
        (tc.CPClassifier, "probit", Laplace()),
        (tc.CPCountRegressor, "poisson", PGGibbs(n_chains=1)),
        (tc.CPRegressor, "gaussian", Gibbs(n_chains=2)),
        (tc.CPRegressor, "gaussian", CEP(n_ensemble=2)),
    ],
)
def test_every_posterior_goes_on(cls, likelihood, method):
    first, second, test = halves(1, likelihood, prior_mean=0.8, prior_sd=0.5)
    how = {"likelihood": "negbinomial"} if likelihood == "poisson" else {}
    model = cls(2, method=method, interactions="cp", prior="learned", **FAST, **how)
    model.set_params(prior="fixed" if isinstance(method, Laplace) else "learned").fit(first, value="y")
    before = model.log_score(test, test["y"]).mean()
    model.partial_fit(second[["user", "item", "month"]], second["y"])
    assert (model.method_, model.n_batches_) == ("cep", 2)
    assert model.log_score(test, test["y"]).mean() > before - 0.02
    third = second[:50]
    assert model.partial_fit(third[["user", "item", "month"]], third["y"]).n_batches_ == 3


def test_draws_that_do_not_agree_are_refused_and_nothing_changes():
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(n, size=200) for n in (30, 20, 8)], axis=1)
    y = np.sign(rng.standard_normal(200)) * rng.gamma(2.0, size=200)
    model = tc.CPRegressor(3, method=Gibbs(burn_in=20, weights="equal"), interactions="cp", **FAST)
    model.fit(X, y)
    before = dict(vars(model))
    with pytest.raises(
        ValueError, match=r"miss \d+ % of what the draws predict; fit with one of the methods \['cep', 'vmp'\]"
    ):
        model.partial_fit(X, y)
    assert all(before[name] is value for name, value in vars(model).items())


def test_what_has_no_posterior_does_not_go_on():
    first, second, _ = halves()
    model = tc.CPRegressor(2, method=WOPT(), **FAST).fit(first, value="y")
    with pytest.raises(
        ValueError, match=r"'wopt' gives a point estimate, and .* needs a posterior; use one .*\['cep', 'vmp'\]"
    ):
        model.partial_fit(second[["user", "item", "month"]], second["y"])
    with pytest.raises(
        ValueError, match=r"method 'gibbs' learns no streams .* use one of the methods \['cep', 'vmp'\]"
    ):
        paper(tc.CPRegressor, method="gibbs").partial_fit(first[["user", "item", "month"]], first["y"])
