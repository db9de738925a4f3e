"""Features of rows in the estimators: what they explain, cold starts, effects, files, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse
from sklearn.base import clone

import tensorcep as tc
from tensorcep.model_selection.compare import Tensors

N, M, KNOWN = 40, 30, 30
QUICK = {"max_iter": 60, "random_state": 0, "rank": 2}
GIBBS = {**QUICK, "method": tc.Gibbs(n_chains=2)}


class Ratings:
    """Items whose factor and main effect follow their features, and ten items that nobody has rated."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.items = pd.DataFrame({"age": rng.standard_normal(N)}, index=[f"i{n:02}" for n in range(N)])
        self.items["kind"], self.items["odd"] = rng.choice(["a", "b", "c"], N), np.arange(N) % 2 == 1
        u = self.items["age"].to_numpy() + 0.2 * rng.standard_normal(N)
        main = 1.5 * (self.items["kind"] == "a").to_numpy() + 0.2 * rng.standard_normal(N)
        i, j = (part.ravel() for part in np.indices((N, M)))
        self.f = u[i] * rng.standard_normal(M)[j] + main[i]
        table = {"item": self.items.index[i], "user": j, "y": self.f + 0.3 * rng.standard_normal(len(i))}
        self.table, used = pd.DataFrame(table), (rng.random(len(i)) < 0.4) & (i < KNOWN)
        self.train, self.cold = self.table[used], self.table[i >= KNOWN]
        self.X, self.Xc = self.train[["item", "user"]], self.cold[["item", "user"]]
        self.rows = self.table.assign(item=i)[["item", "user"]].to_numpy()[used]

    def fit(self, prior="auto", model=tc.CPRegressor, y=None, **how):
        return model(prior=prior, **(how or GIBBS)).fit(self.X, self.train["y"] if y is None else y[self.train.index])


@pytest.fixture(scope="module")
def data():
    return Ratings()


@pytest.fixture(scope="module")
def fitted(data):
    return data.fit({"item": tc.Features(data.items)})


def rmse(data, predicted):
    return float(np.sqrt(np.mean((predicted - data.cold["y"]) ** 2)))


def test_rows_without_entries_are_predicted_from_their_features(data, fitted):
    with pytest.warns(UserWarning, match="their prior is used"):
        without = rmse(data, data.fit().predict(data.Xc))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of rows with features there is nothing to warn of
        mean, sd = fitted.predict(data.Xc, return_std=True)
        lower, upper = fitted.predict_interval(data.Xc).T
    assert rmse(data, mean) < 0.5 < 1.0 < without
    assert 0.3 < sd.mean() < 0.7
    assert 0.82 < np.mean((lower < data.cold["y"]) & (data.cold["y"] < upper)) < 0.98
    assert fitted.shape_ == (N, M)
    assert fitted.prior_ == "learned"


def test_effects_are_sorted_and_name_what_matters(data, fitted):
    effects = fitted.feature_effects_
    assert list(effects.columns) == ["mode", "feature", "component", "mean", "sd"]
    assert len(effects) == 5 * 3  # of one main effect and two components
    ratio = effects["mean"].abs() / effects["sd"]
    assert ratio.is_monotonic_decreasing
    assert set(effects["mode"]) == {"item"}
    assert effects.loc[0, "feature"] == "age"
    of_main = effects[effects["component"] == 0].set_index("feature")["mean"]
    assert of_main["kind=a"] - of_main["kind=b"] == pytest.approx(1.5, abs=0.4)
    with pytest.raises(AttributeError, match="needs a fit with features"):
        _ = data.fit(**QUICK, method="vmp").feature_effects_


def test_model_with_features_is_saved_and_cloned(data, fitted, tmp_path):
    fitted.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(data.Xc), fitted.predict(data.Xc))
    pd.testing.assert_frame_equal(again.feature_effects_, fitted.feature_effects_)
    copied = clone(fitted)
    assert copied.get_params()["prior"]["item"].X.equals(data.items)
    assert "prior={'item': Features(40 x 3)}" in repr(fitted)
    with pytest.raises(ValueError, match="'gibbs' gives draws, from which partial_fit cannot go on with Features"):
        again.partial_fit(data.X, data.train["y"])


PASSING = [tc.CEP(n_ensemble=1), tc.CEP(messages="averaged", n_ensemble=1), "laplace"]


@pytest.mark.parametrize("method", ["vmp", "auto", *PASSING])
def test_other_fits_take_features(data, method):
    model = data.fit({"item": tc.Features(data.items), "user": "auto"}, **QUICK, method=method)
    mean, sd = model.predict(data.Xc, return_std=True)
    assert rmse(data, mean) < 0.55
    assert 0.3 < sd.mean() < 0.7


def test_passed_messages_with_features_are_saved_and_tell_effects(data, tmp_path):
    model = data.fit({"item": tc.Features(data.items)}, **QUICK, method=tc.CEP(n_ensemble=2))
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(data.Xc), model.predict(data.Xc))
    assert model.feature_effects_.loc[0, "feature"] == "age"
    new = pd.DataFrame({"item": ["new"] * 4, "user": [0, 1, 2, 3]})
    assert np.isfinite(again.transform(new, np.zeros(4), mode="item").mean).all()


def test_vmp_with_features_never_lowers_its_bound(data):
    how = {**QUICK, "method": tc.VMP(anneal=0), "init": "random", "tol": 0.0, "lower_limit": None}
    with pytest.warns(UserWarning, match="stopped after"):
        bound = data.fit({"item": tc.Features(data.items)}, **how).trace_["lower_bound"]
    assert (np.diff(bound) > -1e-7 * np.abs(bound[1:])).all()


KINDS = [
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": tc.PGGibbs(n_chains=2), "max_iter": 30}),
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": "vmp", "link": "probit"}),
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": "cep", "link": "probit"}),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {"method": "laplace", "likelihood": "poisson"}),
    (
        tc.CPCountRegressor,
        lambda f: np.rint(np.exp(f)),
        {"likelihood": "negbinomial", "method": tc.PGGibbs(n_chains=2)},
    ),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {}),
]


@pytest.mark.filterwarnings("ignore:.*was cut short")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each(("model", "values", "how"), KINDS)
def test_labels_and_counts_take_features(data, model, values, how):
    y = pd.Series(values(data.f))
    found = data.fit({"item": tc.Features(data.items)}, model, y, **{**QUICK, **how})
    f, cold = found.predict_latent(data.Xc)[0], data.f[data.cold.index]
    assert np.corrcoef(f, cold)[0, 1] > 0.6


@each("form", [np.asarray, sparse.csr_array])
def test_arrays_go_by_row_number(data, form):
    X = pd.get_dummies(data.items).to_numpy(dtype=float)
    model = tc.CPRegressor(prior={0: tc.Features(form(X))}, **QUICK, method="vmp")
    model.fit(data.rows, data.train["y"].to_numpy())
    cold = np.stack([data.cold["item"].str[1:].astype(int), data.cold["user"]], axis=1)
    assert rmse(data, model.predict(cold)) < 0.6
    assert set(model.feature_effects_["mode"]) == {"mode_0"}


def test_rows_may_lack_features(data):
    some = data.items.iloc[5:]
    with pytest.warns(UserWarning, match="5 of 30 rows with entries of mode 'item' have no features, such as 'i00'"):
        model = data.fit({"item": tc.Features(some)}, **QUICK, method="vmp")
    assert rmse(data, model.predict(data.Xc)) < 0.6
    shift = model.posterior_.mode_prior.slopes[0].coef
    assert shift.shape[0] == 5
    assert not model._result.features[0].described[:5].any()


def test_many_features_are_learned_by_conjugate_gradients(data, monkeypatch):
    for module in ("priors.regression", "cp.inputs.side_information"):
        monkeypatch.setattr(f"tensorcep.{module}.MOST_DIRECT", 4)
    model = data.fit({"item": tc.Features(data.items)})
    assert rmse(data, model.predict(data.Xc)) < 0.55
    with pytest.raises(
        ValueError, match=r"'vmp' takes at most 4 features of a mode; got 5; use one of the methods \['gibbs'\]"
    ):
        data.fit({"item": tc.Features(data.items)}, **QUICK, method="vmp")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", [tc.Gibbs(n_chains=1), tc.CEP(messages="averaged", n_starts=1, anneal=0)])
def test_features_give_the_same_bits_on_any_number_of_threads(method):
    rng = np.random.default_rng(0)
    X = np.unique(rng.integers(0, (60, 200), (9000, 2)), axis=0)
    y, items = rng.standard_normal(len(X)), tc.Features(rng.standard_normal((200, 3)))
    how = {"rank": 30, "max_iter": 4, "random_state": 0, "method": method, "init": "random"}
    one, two = (tc.CPRegressor(prior={1: items}, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@each(
    ("how", "sentence"),
    [
        (
            {"method": "wopt"},
            r"method 'wopt' cannot take Features as a prior; use one of the .*\['cep', 'laplace', 'vmp', 'gibbs'\]",
        ),
        ({"prior": {"item": "fixed"}}, "prior of mode 'item' must be a tensorcep.Features"),
        ({"prior": {"film": "features"}}, "mode must be one of"),
        ({"prior": tc.Features(np.ones((2, 2)))}, "a dict of Features by mode"),
    ],
)
def test_what_cannot_be_done_is_refused(data, how, sentence):
    features = tc.Features(data.items)
    prior = how.pop("prior", {"item": features}) if "prior" in how else {"item": features}
    if isinstance(prior, dict):
        prior = {name: features if own == "features" else own for name, own in prior.items()}
    model = tc.CPRegressor(prior=prior, **{**QUICK, **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.fit(data.X, data.train["y"])
    assert vars(model) == before


def test_model_with_features_forgets_and_starts_warm(data, fitted, tmp_path):
    prior = {"item": tc.Features(data.items)}
    model = data.fit(prior, **QUICK, method="vmp")
    before = model.predict(data.Xc)
    again = clone(model).set_params(prior=prior).fit(data.X, data.train["y"])
    again.fit(data.X, data.train["y"], warm_start=True)
    np.testing.assert_allclose(again.predict(data.Xc), before, atol=0.2)
    again.forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])
    assert again.n_samples_seen_ == len(data.X) - 5
    assert again.shape_ == (N, M)
    with pytest.raises(ValueError, match="forget_rows cannot drop rows of mode 'item', which has features"):
        model.forget_rows("item", "i00", data=data.X, y=data.train["y"])
    model.save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="features of the fit are no longer among the parameters"):
        tc.load(tmp_path / "model.npz").forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])


def test_messages_of_a_fit_with_features_are_divided_out(data):
    kept = tc.CEP(keep_messages=True, n_ensemble=1, n_starts=1)
    how = {**QUICK, "max_iter": 300, "tol": 1e-4, "method": kept}
    model = data.fit({"item": tc.Features(data.items)}, **how).forget_entries(data.X.iloc[:20])
    assert model.forgotten_[-1]["how"] == "messages divided out"
    left = tc.CPRegressor(prior={"item": tc.Features(data.items)}, **how).fit(
        data.X.iloc[20:], data.train["y"].iloc[20:]
    )
    np.testing.assert_allclose(model.predict(data.Xc), left.predict(data.Xc), atol=0.05)


def test_rows_without_entries_are_recommended(data, fitted):
    best = fitted.recommend("item", {"user": 0}, n=N)
    assert set(data.items.index[KNOWN:]) <= set(best["item"])


def test_compare_leaves_out_methods_without_features(data):
    train = tc.SparseTensor.from_pandas(data.train, modes=["item", "user"], value="y")
    methods = Tensors(train, train).methods(tc.CPRegressor(prior={"item": tc.Features(data.items)}), None)
    assert set(methods) == {"cep", "laplace", "vmp", "gibbs"}


def test_rank_is_selected_with_features_by_label(data):
    train = tc.SparseTensor.from_pandas(data.train, modes=["item", "user"], value="y")
    model = tc.CPRegressor(prior={"item": tc.Features(data.items)}, method="vmp", random_state=0)
    found = tc.select_rank(model, train, ranks=[1, 2], cv=2, random_state=0)
    assert np.isfinite(found.scores).all()
    assert found.estimator.shape_ == (N, M)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_and_batches_tell_of_rows_that_features_miss(data):
    misspelt = data.items.rename(index=lambda name: name.upper() if name < "i04" else name)
    words = "4 of 30 rows with entries of mode 'item' have no features, such as 'i00'.*; 14 rows with features have no"
    how = {"method": "vmp", "interactions": "cp", **QUICK, "rank": 1, "max_iter": 2}
    with pytest.warns(UserWarning, match=words):
        model = data.fit({"item": tc.Features(misspelt)}, **how)
    new = data.table[data.table["item"] >= "i37"].replace({"item": {"i38": "I38", "i39": "I39"}}).iloc[::7]
    with pytest.warns(UserWarning, match="2 of 3 new rows of mode 'item' have no features"):
        model.partial_fit(new[["item", "user"]], new["y"])
