"""Series in the estimators: gaps, forecasts, seasons, circles, files, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from sklearn.base import clone

import tensorcep as tc
from tensorcep.model_selection.compare import Tensors

N, M, END = 50, 8, 43
QUICK = {"max_iter": 40, "random_state": 0, "rank": 2}
GIBBS = {**QUICK, "method": tc.Gibbs(n_chains=2)}
VMP = {**QUICK, "method": "vmp"}
SERIES = {"day": tc.Series(period="7D")}


class Parks:
    """Days that drift, with weekends; some days without entries, and a week to forecast."""

    def __init__(self):
        rng = np.random.default_rng(0)
        days = pd.date_range("2024-01-01", periods=N, freq="D")
        weekend = 2.0 * (np.arange(N) % 7 >= 5)
        u, v = rng.standard_normal((N, 2)).cumsum(axis=0) * 0.3 + weekend[:, None], rng.standard_normal((M, 2))
        i, j = (part.ravel() for part in np.indices((N, M)))
        self.f = (u[i] * v[j]).sum(axis=1) + np.sin(i / 5.0)
        y = self.f + 0.3 * rng.standard_normal(len(i))
        table = pd.DataFrame({"day": days[i], "park": [f"p{n}" for n in j], "y": y})
        gone = i % 9 == 4
        self.train = table[(rng.random(len(i)) < 0.6) & (i < END) & ~gone]
        self.ahead, self.gaps = table[i >= END], table[gone & (i < END)]
        self.late = table[(i == END) | (i == N - 1)]
        self.X = self.train[["day", "park"]]

    def fit(self, prior=SERIES, model=tc.CPRegressor, y=None, **how):
        return model(prior=prior, **(how or VMP)).fit(self.X, self.train["y"] if y is None else y[self.train.index])


def cells(table):
    return table[["day", "park"]]


def rmse(model, table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of times there is nothing to warn of
        return float(np.sqrt(np.mean((model.predict(cells(table)) - table["y"]) ** 2)))


@pytest.fixture(scope="module")
def data():
    return Parks()


@pytest.fixture(scope="module")
def fitted(data):
    return data.fit(**GIBBS)


@pytest.fixture(scope="module")
def smooth(data):
    return data.fit()


def test_gaps_and_later_days_are_predicted(data, fitted, smooth):
    plain = data.fit("auto")
    with pytest.warns(UserWarning, match="their prior is used"):
        without = np.sqrt(np.mean((plain.predict(cells(data.ahead)) - data.ahead["y"]) ** 2))
    for model in (fitted, smooth):
        assert rmse(model, data.gaps) < 1.0
        assert rmse(model, data.ahead) < 0.9 * without
        # one week is one path: its days are all within their intervals or not
        lower, upper = model.predict_interval(cells(data.ahead)).T
        assert 0.5 < np.mean((lower < data.ahead["y"]) & (data.ahead["y"] < upper)) <= 1.0
        _, sd = model.predict(cells(data.late), return_std=True)
        assert sd[M:].mean() > 1.1 * sd[:M].mean()  # a week later less is known
        assert model.prior_ == "learned"


@each("model", ["fitted", "smooth"])
def test_a_forecast_does_not_depend_on_what_else_is_asked_for(data, model, request):
    model = request.getfixturevalue(model)
    together = model.predict(cells(data.ahead))
    np.testing.assert_array_equal(model.predict(cells(data.ahead.iloc[::-1]))[::-1], together)
    np.testing.assert_allclose(model.predict(cells(data.ahead.iloc[-3:])), together[-3:], rtol=1e-12)
    known = model.predict(cells(data.train))
    both = model.predict(cells(pd.concat([data.train, data.ahead])))
    np.testing.assert_allclose(both[: len(known)], known, rtol=1e-12)


def test_draws_of_later_days_go_together(data, fitted):
    X = cells(data.ahead.iloc[::M])
    f = fitted.sample_posterior(400, X, random_state=0)
    corr = np.corrcoef(f.T)
    assert corr[0, 1] > corr[0, -1]
    assert f.shape == (400, N - END)
    assert fitted.sample_y(X, 3, random_state=0).shape == (3, N - END)


def test_model_with_a_series_is_saved_and_cloned(data, fitted, smooth, tmp_path):
    for model in (fitted, smooth):
        model.save(tmp_path / "model.npz")
        again = tc.load(tmp_path / "model.npz")
        np.testing.assert_array_equal(again.predict(cells(data.ahead)), model.predict(cells(data.ahead)))
        assert repr(again.prior) == repr(fitted.prior)
    with pytest.raises(
        ValueError,
        match=r"partial_fit cannot go on with a Series; use .* one of the methods \['cep', 'laplace', 'vmp'\]",
    ):
        fitted.partial_fit(data.X, data.train["y"])
    assert clone(fitted).get_params()["prior"]["day"].period == "7D"
    assert "prior={'day': Series(period='7D')}" in repr(fitted)
    with pytest.raises(ValueError, match="Series of the fit is no longer among the parameters"):
        again.set_params(prior="auto").forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])


def test_model_with_a_series_forgets_and_starts_warm(data):
    model = data.fit()
    before = model.predict(cells(data.gaps))
    model.fit(data.X, data.train["y"], warm_start=True)
    np.testing.assert_allclose(model.predict(cells(data.gaps)), before, atol=0.5)
    model.forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])
    assert model.n_samples_seen_ == len(data.X) - 5
    with pytest.raises(ValueError, match="forget_rows cannot drop rows of mode 'day', which is a Series"):
        model.forget_rows("day", data.X["day"].iloc[0], data=data.X, y=data.train["y"])
    with pytest.raises(ValueError, match="transform cannot add rows to mode 'day', which is a Series"):
        model.transform(cells(data.ahead), data.ahead["y"], mode="day")


@pytest.mark.parametrize("method", [tc.CEP(n_ensemble=1), tc.CEP(messages="averaged", n_ensemble=1), "laplace"])
def test_passed_messages_take_a_series(data, smooth, method, tmp_path):
    model = data.fit(**{**QUICK, "max_iter": 100, "method": method})
    assert model.converged_
    assert rmse(model, data.gaps) < rmse(smooth, data.gaps) + 0.1
    assert rmse(model, data.ahead) < 1.1 * rmse(smooth, data.ahead)
    _, sd = model.predict(cells(data.late), return_std=True)
    assert sd[M:].mean() > 1.1 * sd[:M].mean()
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(cells(data.ahead)), model.predict(cells(data.ahead)))


def test_messages_of_a_fit_with_a_series_are_divided_out(data):
    kept = tc.CEP(keep_messages=True, n_ensemble=1, n_starts=1)
    model = data.fit(**{**QUICK, "max_iter": 300, "method": kept})
    before = rmse(model, data.gaps)
    model.forget_entries(data.X.iloc[:10])
    assert model.forgotten_[-1]["how"] == "messages divided out"
    assert rmse(model, data.gaps) < before + 0.05


@each("how", [{"kind": "rw"}, {"kind": "ou"}])
def test_other_kinds_and_features_beside(data, how):
    parks = pd.DataFrame({"size": np.arange(M, dtype=float)}, index=[f"p{n}" for n in range(M)])
    model = data.fit({"day": tc.Series(period="7D", **how), "park": tc.Features(parks)})
    assert rmse(model, data.gaps) < 1.0
    assert len(model.feature_effects_)


def test_vmp_with_a_series_never_lowers_its_bound(data):
    how = {**QUICK, "method": tc.VMP(anneal=0), "init": "random", "tol": 0.0, "lower_limit": None}
    with pytest.warns(UserWarning, match="stopped after"):
        bound = data.fit(**how).trace_["lower_bound"]
    assert (np.diff(bound) > -1e-7 * np.abs(bound[1:])).all()


KINDS = [
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": tc.PGGibbs(n_chains=1), "max_iter": 20}),
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": "pg-vb", "link": "logit"}),
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": "cep", "link": "logit"}),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {"method": "cep", "likelihood": "poisson"}),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {"method": "laplace", "likelihood": "negbinomial"}),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {}),
]


@pytest.mark.filterwarnings("ignore:.*was cut short")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each(("model", "values", "how"), KINDS)
def test_labels_and_counts_take_a_series(data, model, values, how):
    found = data.fit(SERIES, model, pd.Series(values(data.f)), **{**QUICK, **how})
    f = found.predict_latent(cells(data.gaps))[0]
    assert np.corrcoef(f, data.f[data.gaps.index])[0, 1] > 0.5


def test_hours_are_a_circle_and_rows_may_be_counted():
    rng = np.random.default_rng(1)
    hour, who = (part.ravel() for part in np.indices((24, 6)))
    y = np.cos(2 * np.pi * hour / 24) * (1 + who) + 0.2 * rng.standard_normal(len(hour))
    X, used = np.stack([hour, who], axis=1), ~np.isin(hour, [0, 1, 12])
    model = tc.CPRegressor(prior={0: tc.Series(cyclic=True, period=24)}, shape=(24, 6), **VMP).fit(X[used], y[used])
    assert np.sqrt(np.mean((model.predict(X[~used]) - y[~used]) ** 2)) < 0.6
    np.testing.assert_allclose(model.predict([[27, 2]]), model.predict([[3, 2]]), atol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", [tc.Gibbs(n_chains=1), tc.VMP(n_starts=1), tc.CEP(messages="averaged", n_starts=1, anneal=0)])
def test_a_series_gives_the_same_bits_on_any_number_of_threads(method):
    rng = np.random.default_rng(0)
    X = np.unique(rng.integers(0, (60, 200), (9000, 2)), axis=0)
    y, how = rng.standard_normal(len(X)), {"rank": 30, "max_iter": 3, "random_state": 0, "init": "random"}
    prior = {1: tc.Series()}
    one, two = (tc.CPRegressor(prior=prior, method=method, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@each(
    ("how", "sentence"),
    [
        ({"method": tc.CEP(order=2)}, "'cep' with order=2 takes no Series of 'gaussian' entries; use order=1, or one"),
        (
            {"method": tc.CEP(positive=False)},
            "with positive=False takes no Series of 'gaussian' entries; use positive=True",
        ),
        (
            {"method": "wopt"},
            r"method 'wopt' cannot take a Series as a prior; use one of the .*\['cep', 'laplace', 'vmp', 'gibbs'\]",
        ),
        ({"prior": {"park": tc.Series()}}, "Series of mode 'park' needs labels that are numbers"),
        ({"prior": {"day": "drift"}}, "prior of mode 'day' must be a tensorcep.Features, a tensorcep.Series"),
        ({"prior": tc.Series()}, "a dict of Features by mode, or Series"),
    ],
)
def test_what_cannot_be_done_is_refused(data, how, sentence):
    model = tc.CPRegressor(**{"prior": SERIES, **QUICK, **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.fit(data.X, data.train["y"])
    assert vars(model) == before


def test_compare_leaves_out_methods_without_series(data):
    train = tc.SparseTensor.from_pandas(data.train, modes=["day", "park"], value="y")
    assert set(Tensors(train, train).methods(tc.CPRegressor(prior=SERIES), None)) == {"cep", "laplace", "vmp", "gibbs"}


def test_days_to_recommend_and_anomalies_know_the_series(data, smooth):
    late = data.ahead.assign(y=data.ahead["y"] + 100.0)
    found = smooth.anomaly_score(late, value="y")
    assert (found["surprise"] > 10.0).all()
    assert not found["unseen"].any()


ZONED = ("Europe/Berlin", None)


@each("known, given", [ZONED, ZONED[::-1]])
@each("prior", [{"day": tc.Series()}, "auto"])
def test_times_with_and_without_a_zone_are_never_mixed(known, given, prior, data):
    """A model of days in a zone takes no days without one, nor the other way round; other zones are the same days."""
    table = data.train.assign(day=data.train["day"].dt.tz_localize(known))
    other = data.train.assign(day=data.train["day"].dt.tz_localize(given))
    how = {"rank": 1, "method": "vmp", "prior": prior, "max_iter": 3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tc.CPRegressor(**how).fit(cells(table), table["y"])
    day, X = other["day"].iloc[0], cells(other)
    before = model.predict(cells(table))
    for call in (
        lambda: model.predict(X),
        lambda: model.predict(X.astype({"day": object})),
        lambda: model.predict(tc.SparseTensor.from_pandas(other, ["day", "park"], "y")),
        lambda: model.score(X, other["y"]),
        lambda: model.transform(other.assign(park="new"), mode="park", value="y"),
        lambda: model.partial_fit(X, other["y"]),
        lambda: model.recommend("park", given={"day": day}, exclude=None),
    ):
        with pytest.raises(ValueError, match="are times with.* time zone, such as .*; got some with.*tz_localize") as e:
            call()
        assert "'day'" in str(e.value)
    np.testing.assert_array_equal(model.predict(cells(table)), before)
    if known is not None:
        abroad = table.assign(day=table["day"].dt.tz_convert("Asia/Tokyo"))
        np.testing.assert_array_equal(model.predict(cells(abroad)), before)
