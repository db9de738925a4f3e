"""One wild value in a stream: it is left out and said so, and values like it are learned once they are common."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPClassifier, CPCountRegressor, CPRegressor, simulate_cp
from tensorcep.cp.stream.adf import CERTAIN, change_after
from tensorcep.cp.targets.base import deciding, outweighing

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@cache
def entries(likelihood="gaussian", n=200, seed=0):
    shape = (10, 8, 7) if n <= 500 else (20, 15, 12)
    noise = {"noise_precision": 120.0} if likelihood == "gaussian" else {}
    tensor = simulate_cp(shape, 2, n, likelihood=likelihood, prior_mean=0.3, random_state=seed, **noise).tensor
    return tensor.coords, tensor.values


def rmse(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def begun(X, y, new=CPRegressor, **params):
    return new(2, **{"prior": "fixed", "random_state": 0, **params}).partial_fit(X, y)


WAYS = [{"method": "cep"}, {"method": "vmp"}, {"prior": "auto"}, {"revisit": 1000}, {"forget": 0.01}]


@each("params", WAYS)
@each("wild", [5.0, -1e3, 1e9])
def test_a_batch_of_one_wild_value_moves_nothing_and_is_told(params, wild):
    X, y = entries()
    model = begun(X, y, **params)
    before, cell = rmse(model, X[1:], y[1:]), model.predict(X[:1])[0]
    with pytest.warns(UserWarning, match=r"of the cell \(4, 0, 0\) was taken for an error"):
        model.partial_fit(X[:1], [wild])
    mean, sd = model.predict(X, return_std=True)
    assert rmse(model, X[1:], y[1:]) < 1.05 * before
    assert mean[0] == pytest.approx(cell, abs=0.05)
    assert sd.mean() < 0.3
    assert (model.n_samples_seen_, model.n_batches_) == (200, 2)


@each("params", WAYS)
def test_a_value_in_reach_is_learned_and_its_pull_is_bounded(params):
    X, y = entries()
    for value in (0.5, 3.0):
        model = begun(X, y, **params)
        before, cell = rmse(model, X[1:], y[1:]), model.predict(X[:1])[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.partial_fit(X[:1], [value])
        assert rmse(model, X[1:], y[1:]) < 2.0 * before
        assert cell <= model.predict(X[:1])[0] < value


@each("size", [100, 500])
@each("place", [5, 1005])  # of the first batch, which nothing predicts, and of a later one
@each("wild", [-1e3, 1e9])
def test_a_wild_value_in_a_batch_is_left_out_alone(size, place, wild):
    X, y = entries(n=2000, seed=1)
    out, z = np.arange(2000) != place, y.copy()
    z[place] = wild
    model, same = (CPRegressor(2, prior="fixed", random_state=0) for _ in range(2))
    with pytest.warns(UserWarning, match="was taken for an error") as told:
        model.stream((X[a : a + size], z[a : a + size]) for a in range(0, 2000, size))
    same.stream((X[a : a + size][out[a : a + size]], y[a : a + size][out[a : a + size]]) for a in range(0, 2000, size))
    assert len([one for one in told if one.category is UserWarning]) == 1
    np.testing.assert_array_equal(model.posterior_.eta, same.posterior_.eta)


@each("likelihood", ["poisson", "negbinomial"])
@each("size", [1, 100])
def test_a_wild_count_moves_nothing(likelihood, size):
    X, y = entries("poisson", 300)
    model, same = (begun(X[:200], y[:200], CPCountRegressor, likelihood=likelihood) for _ in range(2))
    some = np.append(1e6, y[201 : 200 + size])
    with pytest.warns(UserWarning, match=r"value 1e\+06 of the cell"):
        model.partial_fit(X[200 : 200 + size], some)
    if size > 1:
        same.partial_fit(X[201 : 200 + size], some[1:])
    np.testing.assert_array_equal(model.posterior_.eta, same.posterior_.eta)
    assert model.n_samples_seen_ == 200 + size - 1


@each("count", [30.0, 100.0, 300.0])
def test_a_step_never_predicts_its_counts_worse_than_before(count):
    X, y = entries("poisson", 300)
    model = begun(X, y, CPCountRegressor, likelihood="poisson")
    before = model.predict(X[:1])[0]
    model.partial_fit(X[:1], [count])
    assert abs(model.predict(X[:1])[0] - count) <= abs(before - count)


def test_new_rows_do_not_go_far_beyond_their_first_value():
    X, y = entries()
    model = begun(X, y)
    model.partial_fit([[10, 8, 7]], [20.0])
    assert abs(model.predict([[10, 8, 7]])[0] - 20.0) < 19.0


def test_a_label_that_nobody_expected_is_learned():
    X, y = entries("probit", 400)
    model = begun(X, y, CPClassifier)
    least = int(np.argmin(model.predict_proba(X)[:, 1]))
    before = model.predict_proba(X[least : least + 1])[0, 1]
    model.partial_fit(X[least : least + 1], [1])
    assert before < model.predict_proba(X[least : least + 1])[0, 1]
    assert model.n_samples_seen_ == 401


@pytest.mark.slow
def test_a_change_of_scale_is_learned():
    """More entries again, a thousand times as large: the default fits all of them, and finds what there is."""
    X, y = entries(n=1400, seed=1)
    y = np.concatenate([y[:400], 1000.0 * y[400:]])
    model = CPRegressor(2, random_state=0)
    for a in (0, 400, 900):
        model.partial_fit(X[a : a + 500][: 400 if a == 0 else None], y[a : a + 500][: 400 if a == 0 else None])
    assert rmse(model, X[-300:], y[-300:]) < 0.4 * y[-300:].std()
    assert model.n_samples_seen_ == 1400


@each("new", [CPRegressor, CPCountRegressor])
def test_values_that_come_one_by_one_after_a_change_are_learned(new):
    X, y = entries("gaussian" if new is CPRegressor else "poisson", 240)
    model = begun(X[:200], y[:200], new, **({} if new is CPRegressor else {"likelihood": "poisson"}))
    one_by_one = ((X[i : i + 1], 1e4 * (1.0 + y[i : i + 1])) for i in range(200, 220))
    with pytest.warns(UserWarning, match="taken for an error") as told:
        model.stream(one_by_one)
    left_out = len([one for one in told if one.category is UserWarning])
    assert left_out <= 6
    assert model.n_samples_seen_ == 220 - left_out
    assert np.isfinite(model.predict(X)).all()


def test_five_wild_values_in_a_row_are_a_change_and_an_ordinary_one_ends_it():
    state, wild = 0.0, np.ones(1, dtype=bool)
    for _ in range(4):
        state = change_after(state, wild)
        assert state < CERTAIN
    assert change_after(state, wild) == CERTAIN
    assert change_after(CERTAIN, ~wild) < CERTAIN
    assert change_after(0.0, np.arange(500) < 50) == 0.0
    assert change_after(0.0, np.arange(500) < 200) == CERTAIN


def test_values_that_outweigh_all_others_are_found_together(rng):
    size = rng.random(100)
    assert not outweighing(size).any()
    size[[3, 7, 50]] = 1e3, 1e3, 1e6
    assert np.flatnonzero(outweighing(size)).tolist() == [3, 7, 50]
    values = rng.standard_normal(200)
    values[[1, 2]] = 1e4, -1e4
    assert np.flatnonzero(deciding(values, counts=False)).tolist() == [1, 2]
    assert not deciding(np.append(np.zeros(199), 1.0), counts=False).any()  # equal values have no scale
    assert not any(deciding(rng.standard_t(3, 100), counts=False).any() for _ in range(200))
    assert not any(deciding(rng.negative_binomial(0.1, 0.01, 100).astype(float), counts=True).any() for _ in range(200))


def test_the_warning_names_labels_and_what_was_expected():
    X, y = entries()
    table = pd.DataFrame({name: [f"{name}{i}" for i in at] for name, at in zip("uvw", X.T, strict=True)})
    model = CPRegressor(2, prior="fixed", random_state=0).partial_fit(table, y)
    with pytest.warns(UserWarning, match=r"1000 of the cell \(u4, v0, w0\).*: -0\.2\d+ with a"):
        model.partial_fit(table[:1], [1000.0])
    with pytest.warns(UserWarning, match=r"of the cell \(new, v0, w0\)"):
        model.partial_fit(pd.DataFrame({"u": ["new"], "v": ["v0"], "w": ["w0"]}), [1e7])
    assert model.shape_ == (10, 8, 7)
    assert model.partial_fit(table[1:2], y[1:2]).n_samples_seen_ == 201


@each("method", ["cep", "vmp", "gibbs"])
def test_a_fit_to_a_value_that_can_decide_it_says_so(method):
    X, y = entries()
    y = np.append(1000.0, y[1:])
    with pytest.warns(UserWarning, match=r"a value of 200 \(1000 is the farthest\) outweigh"):
        CPRegressor(2, method=method, random_state=0, max_iter=20).fit(X, y)


def test_a_fit_that_goes_on_as_a_stream_leaves_wild_values_out():
    X, y = entries()
    model = CPRegressor(2, method="vmp", random_state=0).fit(X, y)
    before = rmse(model, X, y)
    with pytest.warns(UserWarning, match="taken for an error"):
        model.partial_fit(X[:1], [1e5])
    assert rmse(model, X, y) == before
