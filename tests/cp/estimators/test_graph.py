"""Graphs in the estimators: rows without entries, files, other likelihoods, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from sklearn.base import clone

import tensorcep as tc
from tensorcep.model_selection.compare import Tensors

SIDE, M = 6, 9
N = SIDE * SIDE
QUICK = {"max_iter": 40, "random_state": 0, "rank": 2}
GIBBS = {**QUICK, "method": tc.Gibbs(n_chains=2)}
VMP = {**QUICK, "method": "vmp"}


class Sensors:
    """Sensors on a square, whose values go together with those nearby; some never report."""

    def __init__(self):
        rng, number = np.random.default_rng(3), np.arange(N).reshape(SIDE, SIDE)
        ends = [np.append(number[:-1], number.T[:-1]), np.append(number[1:], number.T[1:])]
        self.names = np.array([f"s{n:02d}" for n in range(N)])
        self.edges = pd.DataFrame({"a": self.names[ends[0]], "b": self.names[ends[1]]})
        place = np.stack(np.divmod(np.arange(N), SIDE), axis=1)
        apart = ((place[:, None] - place) ** 2).sum(axis=-1)
        root = np.linalg.cholesky(np.exp(-apart / 12.0) + 1e-6 * np.eye(N))
        i, j = (part.ravel() for part in np.indices((N, M)))
        self.f = (root @ rng.standard_normal((N, 2)))[i, 0] * rng.standard_normal(M)[j]
        self.f = self.f + 1.5 * (root @ rng.standard_normal(N))[i]
        y = self.f + 0.3 * rng.standard_normal(len(i))
        table = pd.DataFrame({"sensor": self.names[i], "hour": j, "y": y})
        self.silent = np.isin(i, [7, 10, 20, 21, 22, 35])
        self.train = table[(rng.random(len(i)) < 0.5) & ~self.silent]
        self.cold = table[self.silent]
        self.X = self.train[["sensor", "hour"]]
        self.prior = {"sensor": tc.Graph(self.edges)}

    def fit(self, prior=None, model=tc.CPRegressor, y=None, **how):
        target = self.train["y"] if y is None else pd.Series(y)[self.train.index]
        return model(prior=prior or self.prior, **(how or VMP)).fit(self.X, target)


def cells(table):
    return table[["sensor", "hour"]]


@pytest.fixture(scope="module")
def data():
    return Sensors()


@pytest.fixture(scope="module")
def fitted(data):
    return data.fit(**GIBBS)


@pytest.fixture(scope="module")
def smooth(data):
    return data.fit()


def test_rows_without_entries_are_predicted_from_their_neighbours(data, fitted, smooth):
    plain = data.fit("auto")
    with pytest.warns(UserWarning, match="their prior is used"):
        without = np.sqrt(np.mean((plain.predict(cells(data.cold)) - data.cold["y"]) ** 2))
    for model in (fitted, smooth):
        assert model.shape_ == (N, M)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of rows of the graph there is nothing to warn of
            mean, sd = model.predict(cells(data.cold), return_std=True)
        assert np.sqrt(np.mean((mean - data.cold["y"]) ** 2)) < 0.6 * without
        known = model.predict(data.X, return_std=True)[1]
        assert sd.mean() > 1.1 * known.mean()
        lower, upper = model.predict_interval(cells(data.cold)).T
        assert np.mean((lower < data.cold["y"]) & (data.cold["y"] < upper)) > 0.7


@each("method", [tc.CEP(n_ensemble=1), "laplace"])
def test_passed_messages_take_a_graph(data, smooth, method, tmp_path):
    model = data.fit(**{**QUICK, "max_iter": 100, "method": method})
    cold = cells(data.cold)
    both = [np.sqrt(np.mean((one.predict(cold) - data.cold["y"]) ** 2)) for one in (model, smooth)]
    assert both[0] < 1.1 * both[1]
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(tc.load(tmp_path / "model.npz").predict(cold), model.predict(cold))


def test_names_of_rows_do_not_matter(data, smooth):
    renamed, edges = data.X.assign(sensor="z" + data.X["sensor"]), "z" + data.edges
    model = tc.CPRegressor(prior={"sensor": tc.Graph(edges[::-1])}, **VMP).fit(renamed, data.train["y"])
    cold = cells(data.cold)
    found = model.predict(cold.assign(sensor="z" + cold["sensor"]))
    np.testing.assert_allclose(found, smooth.predict(cold), rtol=1e-6)


def test_model_with_a_graph_is_saved_and_cloned(data, fitted, smooth, tmp_path):
    for model in (fitted, smooth):
        model.save(tmp_path / "model.npz")
        again = tc.load(tmp_path / "model.npz")
        np.testing.assert_array_equal(again.predict(cells(data.cold)), model.predict(cells(data.cold)))
        with pytest.raises(ValueError, match="transform cannot add rows to mode 'sensor', which is a Graph; fit with"):
            again.transform(cells(data.cold), data.cold["y"], mode="sensor")
    assert "prior={'sensor': Graph(60 edges)}" in repr(clone(fitted))
    with pytest.raises(ValueError, match="the Graph of the fit is no longer among the parameters"):
        again.set_params(prior="auto").forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])


def test_model_with_a_graph_forgets_and_starts_warm(data):
    model = data.fit()
    before = model.predict(cells(data.cold))
    model.fit(data.X, data.train["y"], warm_start=True)
    np.testing.assert_allclose(model.predict(cells(data.cold)), before, atol=0.5)
    model.forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])
    assert model.n_samples_seen_ == len(data.X) - 5
    with pytest.raises(ValueError, match="forget_rows cannot drop rows of mode 'sensor', which is a Graph; take them"):
        model.forget_rows("sensor", "s00", data=data.X, y=data.train["y"])


@pytest.mark.parametrize("beside", [{"hour": tc.Series()}, {"hour": tc.Features(pd.DataFrame({"n": range(M)}))}])
def test_a_series_or_features_beside_and_groups_as_rows(data, beside):
    blocks = [(name, f"block {n // 12}") for n, name in enumerate(data.names)]
    model = data.fit({"sensor": tc.Graph(blocks), **beside})
    assert model.shape_ == (N + 3, M)
    assert np.isfinite(model.predict(pd.DataFrame({"sensor": ["block 1"], "hour": [0]}))).all()


def test_vmp_with_a_graph_never_lowers_its_bound(data):
    how = {**QUICK, "method": tc.VMP(anneal=0), "init": "random", "tol": 0.0, "lower_limit": None}
    with pytest.warns(UserWarning, match="stopped after"):
        bound = data.fit(**how).trace_["lower_bound"]
    assert (np.diff(bound) > -1e-7 * np.abs(bound[1:])).all()


KINDS = [
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": tc.PGGibbs(n_chains=1), "max_iter": 20}),
    (tc.CPClassifier, lambda f: (f > 0.5).astype(int), {"method": "pg-vb", "link": "logit"}),
    (tc.CPCountRegressor, lambda f: np.rint(np.exp(f)), {}),
    (tc.CPOrdinalClassifier, lambda f: np.clip(np.rint(f), -1, 2), {"max_iter": 20}),
]


@pytest.mark.filterwarnings("ignore:.*was cut short")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each(("model", "values", "how"), KINDS)
def test_labels_levels_and_counts_take_a_graph(data, model, values, how):
    found = data.fit(None, model, values(data.f), **{**QUICK, **how})
    f = found.predict_latent(cells(data.cold))[0]
    assert np.corrcoef(f, data.f[data.silent])[0, 1] > 0.5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", [tc.Gibbs(n_chains=1), tc.VMP(n_starts=1)])
def test_a_graph_gives_the_same_bits_on_any_number_of_threads(method):
    rng = np.random.default_rng(0)
    X = np.unique(rng.integers(0, (60, 200), (9000, 2)), axis=0)
    y, how = rng.standard_normal(len(X)), {"rank": 30, "max_iter": 3, "random_state": 0, "init": "random"}
    prior = {1: tc.Graph([(i, i + step) for step in (1, 20) for i in range(200 - step)])}
    one, two = (tc.CPRegressor(prior=prior, method=method, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@each(
    ("how", "sentence"),
    [
        ({"method": tc.CEP(order=2)}, "'cep' with order=2 takes no Graph of 'gaussian' entries; use order=1, or one"),
        ({"method": "wopt"}, "method 'wopt' cannot take a Graph"),
        ({"noise": "entry"}, "cannot be used beside a Graph; use noise='one', or leave the Graph out"),
        ({"prior": {"sensor": tc.Graph([("a", "b")])}}, "Graph of mode 'sensor' must be indexed by its labels"),
        ({"prior": {"sensor": "grid"}}, "a tensorcep.Series, a tensorcep.Graph, or one of"),
    ],
)
def test_what_cannot_be_done_is_refused(data, how, sentence):
    model = tc.CPRegressor(**{"prior": data.prior, **QUICK, **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.fit(data.X, data.train["y"])
    assert vars(model) == before


def test_compare_leaves_out_methods_that_know_no_graph(data):
    train = tc.SparseTensor.from_pandas(data.train, modes=["sensor", "hour"], value="y")
    assert set(Tensors(train, train).methods(tc.CPRegressor(prior=data.prior), None)) == {
        "cep",
        "laplace",
        "vmp",
        "gibbs",
    }
