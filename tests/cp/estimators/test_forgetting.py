"""Forgetting: the model is what a fit without the entries would be, and says what it forgot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.models import paper
from sklearn.base import clone

import tensorcep as tc
from tensorcep.methods import CEP

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["user", "item", "week"]


def frame(likelihood="gaussian"):
    noise = {"noise_precision": 2.0} if likelihood == "gaussian" else {}
    how = {"likelihood": likelihood, "prior_mean": 1.0, "prior_sd": 0.5, "random_state": 3}
    simulated = tc.simulate_cp((10, 9, 5), 1, 300, **how, **noise)
    columns = {mode: [f"{mode[0]}{i}" for i in at] for mode, at in zip(MODES, simulated.tensor.coords.T, strict=True)}
    return pd.DataFrame({**columns, "y": simulated.tensor.values})


def model(cls=tc.CPRegressor, **params):
    """With a prior that tells scales, so that sweeps come to an end."""
    method = CEP(keep_messages=True, n_starts=1)
    how = {"method": method, "prior": "fixed", "prior_mean": 1.0, "prior_scale": 0.4, "interactions": "cp"}
    return cls(1, **{**how, "tol": 1e-9, "max_iter": 400, "random_state": 0, **params})


def tensor_of(df, labels=None):
    return tc.SparseTensor.from_pandas(df, MODES, "y", labels=labels)


@each("cls", [tc.CPRegressor, tc.CPClassifier])
def test_forgetting_entries_is_a_fit_without_them(cls):
    df = frame("gaussian" if cls is tc.CPRegressor else "probit")
    gone = (df["week"] == "w2") & df["user"].isin(["u1", "u2", "u3"])
    params = {} if cls is tc.CPRegressor else {"link": "probit"}
    fitted = model(cls, **params).fit(tensor_of(df))
    before = fitted.predict_latent(df)[0]
    whole = tensor_of(df)
    without = model(cls, **params).fit(tensor_of(df[~gone], whole.labels))
    fitted.forget_entries(df.loc[gone, MODES])
    for mine, other in zip(fitted.predict_latent(df), without.predict_latent(df), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert np.abs(before - without.predict_latent(df)[0]).max() > 0.05
    assert fitted.n_samples_seen_ == (~gone).sum()
    assert fitted.shape_ == whole.shape
    (record,) = fitted.forgotten_
    assert (record["entries"], record["how"]) == (gone.sum(), "messages divided out")


def test_forgetting_a_row_takes_its_label_too(tmp_path):
    df = frame()
    fitted = model().fit(tensor_of(df))
    fitted.forget_rows("user", ["u1", "u7"])
    rest = df[~df["user"].isin(["u1", "u7"])]
    without = model().fit(tensor_of(rest))
    assert "u1" not in fitted.labels_[0]
    assert fitted.shape_ == without.shape_
    np.testing.assert_allclose(fitted.predict(rest), without.predict(rest), rtol=1e-5, atol=1e-6)
    assert fitted.forgotten_[0]["rows"] == {"user": ["u1", "u7"]}
    fitted.forget_entries(pd.DataFrame({"item": ["i3"]}))
    assert [record["entries_left"] for record in fitted.forgotten_] == [len(rest), (rest["item"] != "i3").sum()]
    fitted.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    assert again.forgotten_ == fitted.forgotten_
    with pytest.raises(ValueError, match="kept neither entries nor messages"):
        again.forget_rows("user", "u2")
    assert fitted.fit(tensor_of(df)).forgotten_ == []


def test_other_methods_are_fitted_again_from_their_factors():
    df = frame()
    fitted = model(method="vmp", tol=1e-7).fit(tensor_of(df))
    fitted.forget_rows("user", "u4", data=tensor_of(df))
    rest = df[df["user"] != "u4"]
    without = clone(fitted).fit(tensor_of(rest))
    np.testing.assert_allclose(fitted.predict(rest), without.predict(rest), atol=1e-4)
    assert fitted.forgotten_[0]["how"] == "fitted again from the factors"
    assert fitted.n_iter_ < without.n_iter_


def test_forgetting_refuses_and_leaves_the_model_as_it_was():
    df = frame()
    fitted = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(tensor_of(df))
    with pytest.raises(ValueError, match=r"fit with method=CEP\(keep_messages=True\), or pass the entries"):
        fitted.forget_entries(df[:3])
    fitted = model(max_iter=5).fit(tensor_of(df))
    before = fitted.predict(df)
    with pytest.raises(ValueError, match="none of these cells is among the entries"):
        fitted.forget_entries(pd.DataFrame({"user": ["u99"]}))
    with pytest.raises(ValueError, match="these are all entries of the fit"):
        fitted.forget_entries(df[MODES])
    with pytest.raises(ValueError, match="at least one of the modes 'user', 'item', 'week'; got 'name'"):
        fitted.forget_entries(pd.DataFrame({"name": ["u1"]}))
    np.testing.assert_array_equal(fitted.predict(df), before)
    with pytest.raises(ValueError, match="keep_messages needs a message of every entry"):
        CEP(keep_messages=True, messages="averaged")


def test_warm_start_goes_on_from_the_earlier_fit():
    df = frame()
    part = df[df["user"] != "u4"]
    warm = model(method="vmp", tol=1e-7).fit(tensor_of(part))
    warm.fit(tensor_of(df), warm_start=True)
    cold = model(method="vmp", tol=1e-7).fit(tensor_of(df))
    np.testing.assert_allclose(warm.predict(df), cold.predict(df), atol=1e-4)
    assert warm.trace_["train_score"][0] > cold.trace_["train_score"][0]
    with pytest.raises(ValueError, match="warm_start must be True or False"):
        model().fit(tensor_of(df), warm_start="yes")


@each("bad", [[1.7], ["3"], [np.nan], [-1]])
def test_rows_without_labels_are_whole_numbers(bad):
    tensor = tc.simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    fitted = model(max_iter=5).fit(tensor)
    before = fitted.predict(tensor.coords)
    for call in (fitted.forget_entries, lambda X: fitted.recommend("mode_0", given={1: 0, 2: 0}, exclude=X)):
        with pytest.raises((ValueError, TypeError), match="column 'mode_0' must"):
            call(pd.DataFrame({"mode_0": bad}))
    np.testing.assert_array_equal(fitted.predict(tensor.coords), before)
    n = (tensor.coords[:, 0] == 3).sum() + (tensor.coords[:, 0] == 1).sum()
    for kind in ("Int64", object, float):
        again = model(max_iter=5).fit(tensor).forget_entries(pd.DataFrame({"mode_0": pd.Series([3, 1], dtype=kind)}))
        assert again.forgotten_[0]["entries"] == n


def test_what_a_fit_had_beside_its_entries_is_not_lost(tmp_path):
    df = frame()
    weight = np.linspace(0.5, 1.5, len(df))
    fitted = model(method="vmp", max_iter=5).fit(df, value="y", sample_weight=weight)
    held = model(method="vmp", max_iter=5).fit(df, value="y").fit(df[:200], value="y", fixed_modes=["user"])
    for known, name in ((fitted, "sample_weight"), (held, "fixed_modes")):
        known.save(tmp_path / "m.npz")
        before = known.predict(df)
        for each_model in (known, tc.load(tmp_path / "m.npz")):
            with pytest.raises(ValueError, match=f"the fit had {name}=, .*; fit the others, with {name}="):
                each_model.forget_entries(df[:1], data=df[MODES], y=df["y"])
        np.testing.assert_array_equal(known.predict(df), before)
    again = fitted.fit(df, value="y").forget_entries(df[:1], data=df[MODES], y=df["y"])  # a fit without weights
    assert again.forgotten_[0]["entries_left"] == len(df) - 1


def test_data_that_are_not_those_of_the_fit_are_refused():
    df = frame()
    times = np.where(np.arange(len(df)) % 3 == 0, 2, 1)
    repeated = df.loc[df.index.repeat(times)]
    fitted = model(method="vmp", max_iter=5).fit(df, value="y", sample_weight=times)
    before = fitted.predict(df)
    for data, message in (
        (df, f"data= must hold the entries of the fit, .*, {len(repeated)} in all, .* got {len(df)}; pass these"),
        (df[:50], "got 0 entries of other cells, and none of"),
        (repeated.assign(week="w0"), "entries of other cells"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.forget_rows("user", "u1", data=data[MODES], y=data["y"])
    np.testing.assert_array_equal(fitted.predict(df), before)
    fitted.forget_rows("user", "u1", data=repeated[MODES], y=repeated["y"])
    left = repeated[repeated["user"] != "u1"]
    assert fitted.forgotten_[0]["entries_left"] == len(left)
    fitted.forget_rows("user", "u2", data=repeated[MODES], y=repeated["y"])  # the entries of u1 are of no row any more
    fitted.forget_entries(left[left["user"] == "u3"], data=left[MODES], y=left["y"])
    with pytest.raises(ValueError, match="without those that were forgotten since; got .* entries of other cells"):
        fitted.forget_entries(left[left["user"] == "u4"], data=left[MODES], y=left["y"])
