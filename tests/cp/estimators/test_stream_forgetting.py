"""Streams forget: from their reservoir, or while they are beginning; the model is the stream of the entries left."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import entries, new

import tensorcep as tc
from tensorcep.core.packing import offsets
from tensorcep.cp.methods import get_method
from tensorcep.cp.posterior import Posterior
from tensorcep.cp.stream import adf
from tensorcep.cp.stream.adf import learn
from tensorcep.cp.stream.learn import engine_of
from tensorcep.cp.stream.modes import begin, posterior_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["a", "b", "c"]


RIGHT = {"regressor": {"likelihood": "gaussian", "noise_precision": 2.0}, "classifier": {"likelihood": "probit"}}
RIGHT["counts"] = {"likelihood": "poisson"}


def told(name):
    """Coordinates and values of which sweeps come to an end, the scales being told by the prior."""
    how = {"prior_mean": 1.0, "prior_sd": 0.4, "random_state": 3, **RIGHT[name]}
    tensor = tc.simulate_cp((10, 9, 6), 1, 300, **how).tensor
    return tensor.coords, tensor.values


def streamed(name, revisit=600, data=entries, **params):
    """A model with labels that learned its entries in parts, and its entries as a frame."""
    X, y = data(name)
    frame = pd.DataFrame({mode: [f"{mode}{i}" for i in at] for mode, at in zip(MODES, X.T, strict=True)})
    model = new(name, revisit=revisit, **params)
    for a in range(0, len(y), 150):
        model.partial_fit(frame[a : a + 150], y[a : a + 150])
    return model, frame.assign(y=y)


def same(one, other, tol):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def replayed(model):
    """Latent moments at the entries left, of CEP on all of them together from the first prior."""
    state, sample = model._result.stream.state, model._result.stream.reservoir.sample
    Lam, eta = (np.concatenate([getattr(mode, f"prior_{name}") for mode in state.modes]) for name in ("Lam", "eta"))
    nothing = Posterior(state.sizes, state.rank, Lam, eta, state.noise_prior, np.zeros(len(eta), dtype=bool))
    fresh = begin(nothing, Lam, eta, state.noise_prior, 0.0)
    record = model._result.likelihood
    batch = adf.batch_of(fresh, sample.coords, sample.y, record, keep=1.0, time=0.0, seed=0)
    batch = batch._replace(problem=batch.problem._replace(start=rows_at(model, batch)))
    settings = engine_of(model._spec(), model._result).settings
    result = learn(get_method("cep", record), batch.problem, settings, max_iter=300, tol=1e-9)
    return posterior_of(adf.absorb(fresh, batch, result.posterior), 1.0)


def rows_at(model, batch):
    means = model.posterior_.components().mean[0]
    first = offsets(model.shape_)[:-1]
    return np.concatenate([means[a + used] for a, used in zip(first, batch.used, strict=True)])


@each(("name", "tol"), [("regressor", 1e-6), ("classifier", 1e-6), ("counts", 1e-2)])
def test_a_whole_reservoir_forgets_to_the_replay_of_what_is_left(name, tol):
    """CEP of counts comes near its fixed point and goes round it; the others reach theirs."""
    model, frame = streamed(name, data=told, rank=1, prior_scale=0.4, prior_mean=1.0)
    model.set_params(tol=1e-9, max_iter=300)
    before = model.predict_latent(frame[MODES])
    model.forget_entries(pd.DataFrame({"a": ["a1"], "c": ["c2"]})).forget_entries(frame.loc[frame["b"] == "b3", MODES])
    record = model.forgotten_[1]
    assert (record["how"], record["whole"]) == ("messages divided out", True)
    left = frame[~((frame["a"] == "a1") & (frame["c"] == "c2")) & (frame["b"] != "b3")]
    assert model.n_samples_seen_ == record["entries_left"] == len(left) == len(model._result.stream.reservoir.sample.y)
    found, other = model.posterior_.components(), replayed(model).components()
    seen = model.posterior_.seen
    same((found.mean[0][seen], found.cov[0][seen]), (other.mean[0][seen], other.cov[0][seen]), tol)
    gone = model.labels_[1].rows(["b3"])[0] + model.shape_[0]
    assert not model.posterior_.seen[gone]
    assert np.abs(before[0] - model.predict_latent(frame[MODES])[0]).max() > 0.01


def test_a_stream_forgets_a_row_goes_on_and_keeps_the_record(tmp_path):
    model, frame = streamed("classifier")
    model.forget_rows("a", ["a1", "a4"])
    assert model.shape_[0] == frame["a"].nunique() - 2
    assert "a1" not in model.labels_[0]
    assert model.forgotten_[0]["rows"] == {"a": ["a1", "a4"]}
    sample = model._result.stream.reservoir.sample
    rest = frame[~frame["a"].isin(["a1", "a4"])].reset_index(drop=True)
    named = [[model.labels_[k].index[i] for i in sample.coords[:, k]] for k in range(3)]
    cells = pd.MultiIndex.from_arrays(named).sort_values()
    assert cells.equals(pd.MultiIndex.from_frame(rest[MODES]).sort_values().set_names([None] * 3))
    np.testing.assert_array_equal(model.predict(frame[:5][MODES]).shape, (5,))
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    for one in (model, again):
        one.partial_fit(frame[:50][MODES], frame["y"][:50])
        assert len(one.forgotten_) == 1
        assert set(one.labels_[0]) == set(frame["a"])
    np.testing.assert_array_equal(model.posterior_.Lam, again.posterior_.Lam)


def test_a_stream_that_is_beginning_fits_the_entries_left_together():
    X, y = entries("regressor")
    how = {"rank": 2, "random_state": 0, "max_iter": 60, "method": "cep"}
    model = tc.CPRegressor(**how)
    for part in (slice(0, 80), slice(80, 130)):
        model.partial_fit(X[part], y[part])
    assert model._result.stream.kept is not None
    model.forget_rows(0, 2)
    left = X[:130, 0] != 2
    moved = X[:130][left] - np.stack([X[:130][left, 0] > 2, *np.zeros((2, left.sum()))], axis=1).astype(int)
    fresh = tc.CPRegressor(**how).partial_fit(moved, y[:130][left])
    np.testing.assert_allclose(model.predict(moved), fresh.predict(moved), rtol=1e-6)
    assert (model.n_samples_seen_, model.n_batches_) == (left.sum(), 2)
    assert model.forgotten_[0]["how"] == "fitted again"
    model.partial_fit(moved[:5], y[:5])
    assert model.n_samples_seen_ == left.sum() + 5


@each("params", [{}, {"forget": 0.1}])
def test_a_reservoir_of_some_entries_forgets_them_where_that_is_asked_for(params):
    model, frame = streamed("classifier", revisit=200, **params)
    with pytest.raises(ValueError, match="the stream holds 200 of the 600 entries that it learned"):
        model.forget_rows("a", "a1")
    held = int((model._result.stream.reservoir.sample.coords[:, 0] == model.labels_[0].rows(["a1"])[0]).sum())
    before = model.predict_latent(frame[MODES])
    model.forget_rows("a", "a1", partly=True)
    record = model.forgotten_[0]
    assert (record["entries"], record["whole"], record["entries_left"]) == (held, False, 600 - held)
    after = model.predict_latent(frame[MODES])
    assert np.isfinite(after).all()
    assert np.corrcoef(before[0], after[0])[0, 1] > 0.9
    assert model._result.stream.reservoir.seen == 600 - held


def test_streams_refuse_in_one_sentence_and_stay_as_they_were():
    model, frame = streamed("classifier", revisit=0)
    with pytest.raises(ValueError, match="the stream kept no entries: set revisit= before the first batch"):
        model.forget_rows("a", "a1")
    with pytest.raises(ValueError, match="partly=True is for streams"):
        model.forget_rows("a", "a1", data=frame[MODES], y=frame["y"], partly=True)
    model, frame = streamed("classifier")
    before = model.posterior_.Lam.copy()
    with pytest.raises(ValueError, match="none of these cells is among the 600 entries"):
        model.forget_entries(pd.DataFrame({"a": ["a99"]}))
    with pytest.raises(ValueError, match="these are all entries of the stream"):
        model.forget_entries(frame[MODES])
    model.callbacks = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        model.forget_rows("a", "a1")
    np.testing.assert_array_equal(model.posterior_.Lam, before)
    assert model.forgotten_ == []
    assert "a1" in model._result.stream.keys[0]


def interrupt(*_):
    raise KeyboardInterrupt
