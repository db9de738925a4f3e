"""Weights in streams: an entry's likelihood is taken to a power, in the first batch, in later ones, while beginning."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import SHAPE, entries, new
from helpers.problems import settings_of

import tensorcep as tc
from tensorcep.core.packing import unpack
from tensorcep.cp.methods import get_method
from tensorcep.cp.posterior import GammaNoise, Posterior
from tensorcep.cp.stream import adf
from tensorcep.cp.stream.adf import learn
from tensorcep.cp.stream.modes import begin, posterior_of
from tensorcep.likelihoods import get_likelihood
from tensorcep.methods import VMP
from tensorcep.priors.fixed import Prior, natural_prior

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")


@each("method", ["cep", "vmp"])
def test_a_power_of_a_gaussian_is_that_multiple_of_its_precision(method):
    """With the other mode and the noise known, a row is a weighted regression: closed form, batch after batch."""
    rng = np.random.default_rng(1)
    known, w = rng.standard_normal((9, 2)), rng.choice([0.25, 0.5, 1.0, 1.7, 3.0], 9)
    y = known @ np.array([1.0, -0.5]) + 0.5 * rng.standard_normal(9)
    noise, record = GammaNoise(4e14, 1e14), get_likelihood("gaussian")
    Lam, eta = natural_prior(Prior([np.array([0.3, -0.2]), known], [1.0, 1e16]), (1, 9), 2)
    state = begin(Posterior((1, 9), 2, Lam, eta, noise, np.zeros(10, dtype=bool)), Lam, eta, noise, 0.0)
    coords = np.stack([np.zeros(9, dtype=np.int64), np.arange(9)], axis=1)
    for part in (slice(0, 4), slice(4, 9)):
        batch = adf.batch_of(state, coords[part], y[part], record, keep=1.0, time=0.0, seed=0, power=w[part])
        result = learn(get_method(method, record), batch.problem, settings_of(method), max_iter=100, tol=1e-12)
        state = adf.absorb(state, batch, result.posterior)
    found = posterior_of(state, 1.0)
    np.testing.assert_allclose(unpack(found.Lam[:1], 2)[0], np.eye(2) + 4.0 * (known.T * w) @ known, rtol=1e-9)
    np.testing.assert_allclose(found.eta[0], [0.3, -0.2] + 4.0 * known.T @ (w * y), rtol=1e-9)


VMPS = [("regressor", {}), ("regressor", {"lower_limit": 0.5}), ("classifier", {"link": "probit"})]
VMPS += [("counts", {"likelihood": "poisson", "prior_scale": 0.3})]


@each(("name", "params"), VMPS)
def test_two_halves_are_one_entry(name, params):
    """In the first batch and in a later one, which has a row of its own too."""
    X, y = entries(name)
    how = {"interactions": "cp", "prior": "fixed", "method": VMP(n_starts=1), "random_state": 0, "max_iter": 12}
    how |= {
        "prior_scale": 1.0,
        "tol": 0.0,
        "n_jobs": 1,
        "init": [np.random.default_rng(3).random((n, 2)) for n in SHAPE],
    }
    models = []
    for k in (1, 2):
        model = type(new(name))(2, **(how | params))
        for part in (slice(0, 400), slice(400, 520)):
            half = None if k == 1 else np.full(2 * (part.stop - part.start), 0.5)
            at = X[part] if part.start == 0 else X[part] + [1, 0, 0]
            model.partial_fit(np.repeat(at, k, axis=0), np.repeat(y[part], k), sample_weight=half)
        models.append(model.predict_latent(X))
    for one, two in zip(*models, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-6, atol=1e-8)


CEPS = [("regressor", {}), ("classifier", {}), ("classifier", {"link": "logit"}), ("counts", {})]


@each(("name", "params"), CEPS)
def test_beside_a_fraction_whole_weights_are_entries_given_so_many_times_for_cep(name, params):
    X, y = entries(name)
    w = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    w[::7] = 0.3
    often = np.maximum(w, 1).astype(int)
    models = []
    for k, weight in ((np.ones(len(y), dtype=int), w), (often, np.repeat(np.where(w < 1, w, 1.0), often))):
        model = new(
            name, max_iter=10, tol=0.0, shape=SHAPE, **({"fit_intercept": False} if name == "regressor" else {})
        )
        first = int(k[:400].sum())
        at, of = np.repeat(X, k, axis=0), np.repeat(y, k)
        model.partial_fit(X[:400], y[:400])
        model.partial_fit(at[first:], of[first:], sample_weight=weight[first:])
        models.append(model)
    np.testing.assert_allclose(models[0].predict_latent(X), models[1].predict_latent(X), rtol=1e-6, atol=1e-6)
    plain = (
        new(name, max_iter=10, tol=0.0, shape=SHAPE, **params)
        .partial_fit(X[:400], y[:400])
        .partial_fit(X[400:], y[400:])
    )
    assert np.abs(plain.predict_latent(X)[0] - models[0].predict_latent(X)[0]).max() > 1e-2


def test_a_stream_that_is_beginning_keeps_weights_and_goes_on_from_a_file(tmp_path):
    X, y = entries("regressor")
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y, w=np.where(X[:, 0] < 4, 0.25, 1.5))
    model = tc.CPRegressor(2, method="cep", random_state=0, max_iter=30)
    model.stream(frame[:150], batch_size=50, modes=list("abc"), value="y", sample_weight="w")
    np.testing.assert_array_equal(model._result.stream.kept.power, frame["w"][:150])
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    for one in (model, again):
        one.stream(frame[150:320], batch_size=85, modes=list("abc"), value="y", sample_weight="w")
        one.forget_rows(0, 1)
    np.testing.assert_array_equal(model.predict(frame[:50]), again.predict(frame[:50]))
    kept = model._result.stream.kept
    assert kept is not None
    assert len(kept.power) == len(kept.values) == model.n_samples_seen_


def test_weights_of_streams_that_mean_nothing_are_refused(tmp_path):
    X, y = entries("counts")
    half = np.full(len(y), 0.5)
    counts = tc.CPCountRegressor(2, method="vmp", likelihood="negbinomial", max_iter=10)
    with pytest.raises(ValueError, match="whole numbers, .* where a dispersion is learned"):
        counts.partial_fit(X, y, sample_weight=half)
    model = new("counts", revisit=50, max_iter=10)
    for _ in range(2):
        with pytest.raises(ValueError, match="weights must be whole numbers with revisit="):
            model.partial_fit(X, y, sample_weight=half)
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="sample_weight names a column of a DataFrame"):
        new("counts").stream(tmp_path / "a.csv", sample_weight="w")
