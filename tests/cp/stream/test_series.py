"""Series in streams as users meet them: forecasts, earlier days smoothed back, files, threads, refusals."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.core.packing import unpack
from tensorcep.cp.stream import cold_start
from tensorcep.cp.stream.modes import rows_together

HOW = {"rank": 1, "interactions": "main+cp", "random_state": 0, "max_iter": 60, "tol": 1e-4}


class Sales:
    """Shops whose days drift together; the days of the first batch, and then one at a time."""

    def __init__(self, likelihood="gaussian", n=12):
        rng, m = np.random.default_rng(0), 60
        shop, day = (part.ravel() for part in np.indices((n, m)))
        z = np.zeros(m)
        for t in range(1, m):
            z[t] = 0.95 * z[t - 1] + 0.3 * rng.standard_normal()
        f = rng.standard_normal(n)[shop] * z[day] + rng.standard_normal(n)[shop]
        y = f + 0.3 * rng.standard_normal(len(f)) if likelihood == "gaussian" else (f + rng.logistic(size=len(f)) > 0.0)
        self.days = pd.date_range("2024-01-01", periods=m + 30)
        table = pd.DataFrame({"shop": [f"s{i}" for i in shop], "day": self.days[day], "y": y, "t": day})
        table = table[rng.random(len(table)) < 0.6]
        self.parts = [part.drop(columns="t") for _, part in table.groupby(table["t"].clip(lower=19))]

    def model(self, n=None, prior=None, cls=tc.CPRegressor, **how):
        model = cls(**{"prior": {"day": tc.Series()} if prior is None else prior, **HOW, **how})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.stream(self.parts[:n], modes=["shop", "day"], value="y")

    def later(self, first, n=12):
        return pd.DataFrame({"shop": "s3", "day": self.days[first : first + n]})


@pytest.fixture(scope="module")
def sales():
    return Sales()


@each("method", [tc.CEP(n_ensemble=1), "vmp"])
def test_first_batch_is_the_fit(sales, method):
    whole = pd.concat(sales.parts[:3])
    prior = {"day": tc.Series(), "shop": "learned"}
    fit = tc.CPRegressor(**{**HOW, "interactions": "cp", "method": method}, prior=prior).fit(whole, value="y")
    one = tc.CPRegressor(**{**HOW, "interactions": "cp", "method": method}, prior=prior)
    one.partial_fit(whole[["shop", "day"]], whole["y"])
    X = pd.concat([whole[["shop", "day"]], sales.later(25)])
    np.testing.assert_allclose(one.predict(X), fit.predict(X), rtol=1e-9)
    np.testing.assert_allclose(one.predict(X, return_std=True)[1], fit.predict(X, return_std=True)[1], rtol=1e-3)
    known, state = one._result.stream.state.chains[1], one._result.stream.state
    again = rows_together(known, state.clocks[1], state.modes[1].sites(state.sizes[1]))
    mean = [np.linalg.solve(unpack(x.Lam, 1), x.eta[..., None]) for x in (again, state.modes[1])]
    np.testing.assert_allclose(*mean, atol=0.02 * np.std(mean[1]))  # one length in place of the expected one


@each("method", ["cep", "vmp"])
def test_days_of_a_stream_are_forecast_and_intervals_grow(sales, method):
    model = sales.model(method=method)
    plain = sales.model(method=method, prior="learned")
    scores = [one.stream_trace_["log_score"][1:].mean() for one in (model, plain)]
    errors = [one.stream_trace_["rmse"][1:].mean() for one in (model, plain)]
    assert scores[0] > scores[1] + 0.5
    assert errors[0] < 0.7 * errors[1]
    assert model.shape_[1] == 60
    sd = model.predict(sales.later(59), return_std=True)[1]
    assert (np.diff(sd[1:]) > 0.0).all()
    batch = tc.CPRegressor(**{**HOW, "method": method}, prior={"day": tc.Series()})
    batch.fit(pd.concat(sales.parts), value="y")
    X = pd.concat(sales.parts)[["shop", "day"]]
    (mean, sd), (mean_of_fit, sd_of_fit) = (one.predict(X, return_std=True) for one in (model, batch))
    assert np.sqrt(np.mean((mean - mean_of_fit) ** 2)) < 0.15
    assert 0.95 < np.mean(sd / sd_of_fit) < 1.1


def test_labels_are_learned_along_a_series():
    sales = Sales("logit", n=40)
    model = sales.model(cls=tc.CPClassifier, link="logit")
    plain = sales.model(cls=tc.CPClassifier, link="logit", prior="learned")
    scores = [one.stream_trace_["log_score"][1:].mean() for one in (model, plain)]
    assert scores[0] > scores[1]


def test_entries_of_earlier_days_are_smoothed_back(sales, monkeypatch):
    model = sales.model(20)
    day = sales.days[30]
    before, sd = model.predict(pd.DataFrame({"shop": ["s0"], "day": [day]}), return_std=True)
    new = pd.DataFrame({"shop": [f"s{i}" for i in range(12)], "day": sales.days[31]})
    monkeypatch.setattr(cold_start, "due", lambda *_: False)  # a joint fit would learn the levels of shops anew
    model.partial_fit(new, model.predict(new) + 0.3)
    after, sd_after = model.predict(pd.DataFrame({"shop": ["s0"], "day": [day]}), return_std=True)
    assert before != after
    assert sd_after < sd


@pytest.mark.parametrize("how", [{}, {"method": "vmp"}, {"prior": {1: tc.Series(period="7D")}}])
def test_stream_with_a_series_goes_on_after_save_and_load_with_the_same_bits(sales, how, tmp_path):
    model = sales.model(8, **how)
    model.save(tmp_path / "model.npz")
    again, straight = tc.load(tmp_path / "model.npz"), copy.deepcopy(model)
    two = copy.deepcopy(model).set_params(n_jobs=2)
    gap = pd.DataFrame({"shop": ["new", "new", "s1"], "day": sales.days[[40, 44, 10]], "y": [0.1, 0.2, 0.3]})
    for one in (again, straight, two):
        for part in (sales.parts[8], gap):
            one.partial_fit(part[["shop", "day"]], part["y"])
    again.set_params(prior=straight.prior)  # which a file holds where modes have names
    for one, name in ((again, "again"), (straight, "straight")):
        one.save(tmp_path / f"{name}.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "straight.npz").read_bytes()
    np.testing.assert_array_equal(two.posterior_.eta, straight.posterior_.eta)
    later = sales.later(45)
    np.testing.assert_array_equal(again.predict(later, return_std=True), straight.predict(later, return_std=True))
    assert isinstance(tc.load(tmp_path / "straight.npz").prior, (str if 1 in straight.prior else dict))


def test_batch_that_is_refused_or_fails_changes_nothing(sales, monkeypatch):
    model, later = sales.model(3), sales.later(20)
    before, part = model.predict(later), sales.parts[3]
    for bad, told in (
        (part.assign(y=np.nan), "nan"),
        (part.assign(day=part["day"].astype(str).str[:4] + "-x"), "needs labels that are times|kind"),
        (
            pd.DataFrame({"shop": "s1", "day": pd.to_datetime(["2024-01-03", "2024-02-30 00:00"], errors="coerce")}),
            "missing",
        ),
    ):
        with pytest.raises((ValueError, TypeError), match=told):
            model.partial_fit(bad[["shop", "day"]], bad["y"] if "y" in bad else np.zeros(2))
    with monkeypatch.context() as patch:
        patch.setattr(tc.CPRegressor, "_set", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.partial_fit(part[["shop", "day"]], part["y"])
    np.testing.assert_array_equal(model.predict(later), before)
    assert model.shape_[1] == 22


@each(
    ("how", "sentence"),
    [
        ({"forget": 0.1}, "rows of a Series forget as its law says; got forget=0.1; set forget=0"),
        ({"revisit": 10}, "not one moved by a Series; set revisit=0"),
        ({"method": "laplace"}, "learns no streams"),
    ],
)
def test_what_a_stream_cannot_do_with_series_is_refused(sales, how, sentence):
    part = sales.parts[0]
    model = tc.CPRegressor(**{**HOW, "prior": {"day": tc.Series()}, **how})
    with pytest.raises(ValueError, match=sentence):
        model.partial_fit(part[["shop", "day"]], part["y"])
    assert not hasattr(model, "n_batches_")


def test_streams_without_a_series_get_none_and_those_with_one_keep_their_first_entries(sales, monkeypatch):
    part = sales.parts[0]
    X, y = part[["shop", "day"]], part["y"]
    plain = tc.CPRegressor(**{**HOW, "prior": "learned"}).partial_fit(X, y).set_params(prior={"day": tc.Series()})
    with pytest.raises(ValueError, match="learns a Series from the first batch or fit on, and this one was without"):
        plain.partial_fit(X, y)
    model = sales.model(2)
    n, sentence = model.n_samples_seen_, "stream with a Series keeps no entries: pass them as data="
    assert len(model._result.stream.kept.values) == n
    assert model.forget_entries(X.iloc[:2]).n_samples_seen_ == n - 2
    monkeypatch.setattr(cold_start, "MOST_KEPT", 100)
    with pytest.raises(ValueError, match=sentence):
        sales.model(2).forget_entries(X.iloc[:2])


def test_stream_with_a_series_is_fitted_again_with_the_main_effects_that_its_entries_show(sales):
    """Before, its first batch chose the components alone, and no later one could add to them."""
    how = {"prior": {"day": tc.Series()}, "rank": 1, "random_state": 0, "max_iter": 60}
    table = pd.concat(sales.parts).assign(y=lambda t: t["y"] + 3.0 * (t["shop"] < "s4"))
    model = tc.CPRegressor(**how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(table[:15], modes=["shop", "day"], value="y")
        for first in (15, 60, 240):
            model.partial_fit(table[first : 4 * first], modes=["shop", "day"], value="y")
    assert model.interactions_["main"] == 1
    assert np.sqrt(np.mean((model.predict(table) - table["y"]) ** 2)) < 0.4
