"""Weights of entries: powers of their likelihoods; whole numbers are entries given so many times."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.data import NAMES, SHAPE, entries, new

import tensorcep as tc
from tensorcep.methods import PGVB, VMP, Gibbs, Laplace

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")


def weighted(name, seed=0):
    """Entries, whole weights, and the entries as often as these say."""
    X, y = entries(name)
    w = np.random.default_rng(seed).integers(0, 4, len(y))
    return X, y, w, (np.repeat(X, w, axis=0), np.repeat(y, w))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["cep", VMP(), Laplace()], ids=["cep", "vmp", "laplace"])
def test_whole_weights_are_entries_given_so_many_times(name, method):
    X, y, w, (many, values) = weighted(name)
    how = {"method": method, "shape": SHAPE, "max_iter": 10, "moments": "cavity", "damping": 0.5, "prior": "fixed"}
    how = how if method == "cep" else {k: how[k] for k in ("method", "shape", "max_iter", "prior")}
    make = new if method == "cep" else lambda name, **own: type(new(name))(2, random_state=0, n_jobs=1, **own)
    once, often = make(name, **how).fit(X, y, sample_weight=w), make(name, **how).fit(many, values)
    np.testing.assert_array_equal(once.posterior_.eta, often.posterior_.eta)
    assert once.n_samples_seen_ == w.sum()


def test_samplers_streams_tables_and_tensors_take_whole_weights():
    X, y, w, (many, values) = weighted("regressor")
    how = {"method": Gibbs(n_chains=1), "max_iter": 15, "random_state": 0, "interactions": "cp", "shape": SHAPE}
    pair = [tc.CPRegressor(2, **how).fit(X, y, sample_weight=w), tc.CPRegressor(2, **how).fit(many, values)]
    np.testing.assert_array_equal(*(model.predict(X) for model in pair))
    labels = pd.DataFrame(X).astype(str).set_axis(list("abc"), axis=1)
    tensor = tc.SparseTensor(X, y, SHAPE)
    for given, own in ((X, y), (labels, y), (tensor, None)):
        model = new("regressor", max_iter=20).partial_fit(given, own, sample_weight=w)
        assert model.n_samples_seen_ == w.sum()
        model.partial_fit(given, own, sample_weight=w)
        assert model.n_samples_seen_ == 2 * w.sum()


@pytest.mark.parametrize(
    ("name", "method", "params"),
    [
        ("regressor", VMP(), {}),
        ("regressor", VMP(), {"interactions": {"main": 1, "pair": 1, "cp": 2}, "prior": "learned"}),
        ("regressor", VMP(), {"lower_limit": 0.5}),
        ("classifier", VMP(), {"link": "probit"}),
        ("classifier", PGVB(), {}),
        ("counts", VMP(), {"likelihood": "poisson"}),
    ],
    ids=["gaussian", "parts", "limit", "probit", "logit", "poisson"],
)
def test_mean_field_takes_any_weights(name, method, params):
    """Every entry twice with half the weight is every entry once; the bound is that of this model."""
    X, y = entries(name)
    how = {"interactions": "cp", "prior": "fixed", "method": method, "random_state": 0, "max_iter": 15, "tol": 0.0}
    how |= {"prior_scale": 1.0, "shape": SHAPE, "n_jobs": 1, **params}
    start = [np.random.default_rng(3).random((n, 8 if "pair" in str(params) else 2)) for n in SHAPE]
    once = type(new(name))(2, init=start, **how).fit(X, y)
    half = np.full(2 * len(y), 0.5)
    twice = type(new(name))(2, init=start, **how).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), sample_weight=half)
    np.testing.assert_allclose(twice.predict_latent(X)[0], once.predict_latent(X)[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(twice.predict_latent(X)[1], once.predict_latent(X)[1], rtol=1e-6)
    bounds = once.trace_["lower_bound"]
    np.testing.assert_allclose(twice.trace_["lower_bound"], bounds, rtol=1e-8)
    if name == "regressor" and not params:
        np.testing.assert_allclose(twice.noise_precision_, once.noise_precision_, rtol=1e-9)
        assert (np.diff(bounds[np.isfinite(bounds)]) > -1e-8 * np.abs(bounds[-1])).all()


def test_weights_that_mean_nothing_are_refused():
    X, y = entries("regressor")
    wrong = {
        "method 'cep' takes whole numbers as weights": np.full(len(y), 0.5),
        "sample_weight must be >= 0 and not all 0; got a minimum of -1": np.full(len(y), -1),
        "sample_weight must": np.full(len(y), np.nan),
        "of which there may be": np.full(len(y), 1e9),
    }
    for message, w in wrong.items():
        with pytest.raises(ValueError, match=message):
            new("regressor").fit(X, y, sample_weight=w)
    with pytest.raises(ValueError, match="partial_fit takes whole numbers as weights"):
        new("regressor").partial_fit(X, y, sample_weight=np.full(len(y), 0.5))
    counts = tc.CPCountRegressor(2, method="vmp", likelihood="negbinomial")
    with pytest.raises(ValueError, match="whole numbers where a dispersion is learned"):
        counts.fit(*entries("counts"), sample_weight=np.full(len(y), 0.5))
