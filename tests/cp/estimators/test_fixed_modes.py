"""Fits that leave the rows of some modes as an earlier fit left them, and learn the others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.alignment import aligned_rows
from tensorcep.methods import CEP, PGVB, VMP, WOPT, Gibbs, Laplace, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
FAST = {"random_state": 0, "max_iter": 60, "n_jobs": 1}
PARTS = {"main": 1, "pair": 1, "cp": 2}
MODES = ["user", "item", "month"]


def parts(seed=0, likelihood="gaussian", n=1200, **how):
    """Entries of some users, of others, and of these again: frames."""
    tensor = tc.simulate_cp((24, 15, 6), 2, n, likelihood=likelihood, random_state=seed, **how).tensor
    labels = [[f"{name}{i}" for i in at] for name, at in zip("uim", tensor.coords.T, strict=True)]
    df = pd.DataFrame({**dict(zip(MODES, labels, strict=True)), "y": tensor.values})
    old = tensor.coords[:, 0] < 16
    half = np.arange(n) % 2 == 0
    return df[old], df[~old & half], df[~old & ~half]


@pytest.mark.parametrize("method", ["vmp", CEP(n_ensemble=1), CEP(n_ensemble=1, schedule="parallel")])
@each("interactions", [PARTS, "cp"])
def test_rows_that_stay_keep_their_bits_and_others_are_learned(method, interactions):
    first, second, test = parts(noise_precision=20)
    model = tc.CPRegressor(2, method=method, interactions=interactions, prior="learned", **FAST).fit(first, value="y")
    before = model.posterior_
    labels = model.labels_
    level = model.level_
    model.fit(second, value="y", fixed_modes=["item", "month"])
    after, users = model.posterior_, len(model.labels_[0])
    assert (model.shape_[1:], model.level_, model.labels_[1]) == ((15, 6), level, labels[1])
    np.testing.assert_array_equal(after.Lam[users:], before.Lam[16:])
    np.testing.assert_array_equal(after.eta[users:], before.eta[16:])
    assert model.score(test) > 0.7


def test_learned_rows_are_the_conditional_posterior():
    """With one mode to learn, and its prior given, the fit is what `transform` gives the rows of new labels."""
    first, second, _ = parts(noise_precision=20)
    model = tc.CPRegressor(2, method="vmp", interactions="cp", prior="fixed", prior_mean=0.0, prior_scale=1.0, **FAST)
    model.set_params(init="random", fit_intercept=False, noise_prior=(1e7, 1e7 / 20.0)).fit(first, value="y")
    rows = model.transform(second, mode="user", value="y")
    model.set_params(tol=1e-10).fit(second, value="y", fixed_modes=["item", "month"])
    n = len(rows)
    assert list(model.labels_[0]) == list(rows.labels)
    np.testing.assert_allclose(model.posterior_.eta[:n], rows.parts[0].eta, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(pack(unpack(model.posterior_.Lam[:n], 2)), rows.parts[0].Lam, rtol=1e-4)


@each(
    ("cls", "likelihood", "method"),
    [
        (tc.CPRegressor, "gaussian", CEP(messages="averaged")),
        (tc.CPRegressor, "gaussian", CEP(order=2, n_ensemble=2)),
        (tc.CPClassifier, "probit", Laplace()),
        (tc.CPClassifier, "probit", PGVB()),
        (tc.CPCountRegressor, "poisson", VMP()),
        (tc.CPCountRegressor, "poisson", CEP(message_precision=0.1, n_ensemble=1)),
    ],
)
def test_every_gaussian_method_can(cls, likelihood, method):
    first, second, test = parts(1, likelihood, prior_mean=0.8, prior_sd=0.5)
    how = {"likelihood": "poisson"} if likelihood == "poisson" else {}
    model = cls(2, method=method, interactions="cp", prior="fixed", **FAST, **how).fit(first, value="y")
    posterior = getattr(model.posterior_, "members", (model.posterior_,))[0]
    folded = model.with_rows(model.transform(second, mode="user", value="y"))
    model.fit(second, value="y", fixed_modes=["item", "month"])
    np.testing.assert_array_equal(model.posterior_.eta[-21:], posterior.eta[-21:])
    assert model.log_score(test, test["y"]).mean() > folded.log_score(test, test["y"]).mean() - 0.05


@pytest.mark.parametrize(
    ("cls", "likelihood", "engine"),
    [(tc.CPRegressor, "gaussian", Gibbs), (tc.CPClassifier, "probit", PGGibbs)],
    ids=["gibbs", "pg-gibbs"],
)
def test_samplers_take_the_earlier_draws(cls, likelihood, engine):
    first, second, test = parts(1, likelihood, prior_mean=0.8, prior_sd=0.5)
    model = cls(2, method=engine(n_chains=2, weights="equal"), interactions="cp", **FAST).fit(first, value="y")
    earlier = aligned_rows(model._result.belief.mean[:, :37], model._result.aligned.reference, model._result.layout)[
        :, -21:
    ]
    model.fit(second, value="y", fixed_modes=["item", "month"])
    assert model.method_ == engine.name
    drawn = model.posterior_.rows.reshape(-1, *model.posterior_.rows.shape[2:])[:, -21:]
    apart = np.abs(drawn[:, None] - earlier[None]).max(axis=(2, 3))
    assert (apart.min(axis=1) < 1e-4).all()
    assert len(np.unique(apart.argmin(axis=1))) > 5
    assert model.score(test) > 0.3


def test_one_method_goes_on_from_the_rows_of_another():
    first, second, test = parts(noise_precision=20)
    model = tc.CPRegressor(2, method=Gibbs(n_chains=2), interactions="cp", **FAST).fit(first, value="y")
    for method in ("vmp", "gibbs"):
        model.set_params(method=method).fit(second, value="y", fixed_modes="item")
        assert model.score(test) > 0.7


def test_what_cannot_stay_is_refused_and_nothing_changes():
    first, second, _ = parts()
    model = tc.CPRegressor(2, method="vmp", interactions="cp", **FAST)
    with pytest.raises(ValueError, match="it is not fitted; fit it first"):
        model.fit(first, value="y", fixed_modes=["item"])
    model.fit(first, value="y")
    before = dict(vars(model))
    wrong = {
        "leave at least one mode to learn": MODES,
        "mode must be one of 'user', 'item', 'month'; got 'place'": "place",
        "entries are of others; leave them out, or fold them in": ["user"],
    }
    for message, modes in wrong.items():
        with pytest.raises(ValueError, match=message):
            model.fit(second, value="y", fixed_modes=modes)
    with pytest.raises(
        ValueError, match="method 'wopt' learns all rows, and fixed_modes keeps some; use one .*'cep', 'laplace', 'vmp'"
    ):
        model.set_params(method=WOPT(), prior="fixed").fit(second, value="y", fixed_modes="item")
    model.set_params(method="vmp", prior="auto")
    assert all(before[name] is value for name, value in vars(model).items() if name[-1] == "_")
