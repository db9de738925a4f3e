"""What "auto" comes to in the parameters of the CP estimators, and fits with everything left to it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import CLASSES, NAMES, entries
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

import tensorcep as tc
from tensorcep.cp.plan import auto as _defaults
from tensorcep.cp.plan.auto import choose

SHAPE = (12, 10, 8)
# So few sweeps and draws that a fit by a sampler takes a moment, and says that it was cut short.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FEW = {"max_iter": 12, "random_state": 0}
FITTED = ("method_", "rank_", "prior_", "interactions_", "max_iter_")
LOGIT = {"link": "logit"}
NEGBINOMIAL = {"likelihood": "negbinomial"}
POINT = {"method": "wopt"}


def chosen(name="regressor", n=600, shape=SHAPE, streaming=False, **params):
    return choose(CLASSES[name](**params)._spec(), n, shape, streaming)


def values(order, n=60, seed=0):
    """Distinct cells of a small tensor of any order, values of real size, and its shape."""
    rng, shape = np.random.default_rng(seed), (6, 5, 4, 3)[:order]
    flat = rng.choice(int(np.prod(shape)), min(n, int(np.prod(shape))), replace=False)
    return np.stack(np.unravel_index(flat, shape), axis=1), 3.0 + rng.standard_normal(len(flat)), shape


@each(
    ("n", "shape", "rank"),
    [
        (10, SHAPE, 3),
        (0, SHAPE, 3),
        (210, SHAPE, 7),
        (239, SHAPE, 7),
        (600, SHAPE, 10),  # the rows of the second largest mode
        (10**6, (100, 100), 20),
        (10**6, (100, 2, 2), 2),
        (10**6, (100, 1), 1),
    ],
)
def test_rank_is_the_number_of_entries_per_row_within_bounds(n, shape, rank):
    assert chosen(n=n, shape=shape).rank == rank


@each(
    ("rank", "shape", "parts"),
    [
        (3, (9, 9), {"main": 1, "pair": 0, "cp": 3}),
        (3, (9, 9, 9), {"main": 1, "pair": 2, "cp": 3}),
        (20, (9, 9, 9), {"main": 1, "pair": 8, "cp": 20}),
        (20, (9, 4, 9), {"main": 1, "pair": 4, "cp": 20}),  # the rows of the smallest mode
        (20, (9, 9, 9, 9), {"main": 1, "pair": 7, "cp": 20}),
        (1, (9, 9, 9, 9), {"main": 1, "pair": 1, "cp": 1}),
    ],
)
def test_interactions_are_all_with_fewer_columns_for_pairs(rank, shape, parts):
    assert chosen(rank=rank, shape=shape).parts == parts


@each(("n", "sweeps"), [(10, 1000), (1330, 1000), (8000, 1000), (40_000, 200), (10**6, 150)])
def test_sweeps_of_samplers_are_fewer_of_many_entries(n, sweeps):
    assert chosen(n=n).max_iter == sweeps


@each(("n", "sweeps"), [(10, 600), (8000, 600), (40_000, 200), (10**6, 150)])
def test_labels_have_fewer_sweeps_where_they_are_few(n, sweeps):
    assert chosen("classifier", n=n).max_iter == sweeps


def test_counts_have_fewer_chains_and_sweeps_where_they_are_many():
    few, many = chosen("counts", n=20_000), chosen("counts", n=69_315)
    assert (few.settings.n_chains, few.max_iter) == (4, 400)
    assert (many.settings.n_chains, many.max_iter) == (2, 115)
    assert chosen("counts", n=100_000).max_iter == chosen("counts", n=10**6, method="gibbs").max_iter == 100
    assert chosen("counts", n=10).max_iter == 400


@each(("n", "chains"), [(10, 4), (499_999, 4), (500_000, 2), (10**7, 2)])
def test_samplers_of_many_entries_have_fewer_chains_unless_they_are_named(n, chains):
    for name, params, method in (("regressor", {}, "gibbs"), ("classifier", LOGIT, "pg-gibbs")):
        assert chosen(name, n=n, **params).method == method
        assert chosen(name, n=n, **params).settings.n_chains == chains
        assert chosen(name, n=n, method=method, **params).settings.n_chains == 4
    assert chosen("counts", n=n).method == ("gibbs" if n <= 100_000 else "vmp")
    assert chosen(n=n, method="cep").max_iter == _defaults.SWEEPS == 200
    assert chosen(n=n, max_iter=7).max_iter == 7


@each(
    ("name", "params", "method"),
    [
        ("regressor", {}, "gibbs"),
        ("classifier", {}, "pg-gibbs"),
        ("classifier", {"link": "probit"}, "gibbs"),
        ("classifier", LOGIT, "pg-gibbs"),
        ("counts", {}, "gibbs"),
        ("counts", NEGBINOMIAL, "gibbs"),
        ("counts", {"n": 100_000}, "gibbs"),
        ("counts", {"n": 100_001}, "vmp"),
        ("counts", {"n": 100_001, **NEGBINOMIAL}, "vmp"),
        ("counts", {"streaming": True}, "cep"),
        ("regressor", {"streaming": True}, "cep"),
        ("regressor", {"method": tc.CEP(order=2)}, "cep"),
        ("regressor", {"revisit": 10}, "cep"),
        ("regressor", {"method": tc.VMP(), "streaming": True}, "vmp"),
        ("regressor", {"shape": (50_000, 50_000, 50_000)}, "vmp"),  # draws would take too much memory
        ("regressor", {"prior": "ard", "rank": 2, "max_iter": 5, "tol": 0.1}, "gibbs"),
    ],
)
def test_method_is_a_sampler_where_it_can_be_and_another_elsewhere(name, params, method):
    assert chosen(name, **params).method == method


@each(
    ("name", "params", "prior", "interactions"),
    [
        ("regressor", {}, "learned", "all"),
        ("regressor", {"method": "cep"}, "learned", "cp"),
        ("regressor", {"method": "vmp"}, "learned", "main+cp"),
        ("regressor", {"method": "laplace"}, "learned", "main+cp"),
        ("classifier", {"method": "cep"}, "learned", "pairwise"),
        ("classifier", {"method": "cep", **LOGIT}, "learned", "pairwise"),
        ("classifier", {"method": "pg-vb", **LOGIT}, "learned", "main+cp"),
        ("counts", {}, "learned", "all"),
        ("counts", {"method": "vmp"}, "learned", "main+cp"),
        ("counts", {"method": "pg-gibbs", **NEGBINOMIAL}, "learned", "all"),
        ("regressor", POINT, "fixed", "all"),
        ("regressor", {"prior": "fixed"}, "fixed", "all"),
        ("regressor", {"prior": "ard", "interactions": "cp"}, "ard", "cp"),
        ("regressor", {"prior": tc.Prior([0.0] * 3, [1.0] * 3)}, "given", "cp"),
        ("regressor", {"init": "prior", "prior_mean": 1.0}, "learned", "cp"),
    ],
)
def test_prior_and_interactions_are_what_the_method_can(name, params, prior, interactions):
    found = chosen(name, n=120, **params)  # four entries per row
    assert found.prior_name == prior
    assert (
        found.parts
        == {
            "all": {"main": 1, "pair": 2, "cp": 4},
            "main+cp": {"main": 1, "pair": 0, "cp": 4},
            "pairwise": {"main": 1, "pair": 4, "cp": 0},
            "cp": {"main": 0, "pair": 0, "cp": 4},
        }[interactions]
    )


@each(
    ("n", "params", "members"),
    [
        (10, {}, 4),
        (40_000, {}, 2),
        (10**6, {}, 1),
        (10, {"method": tc.CEP(n_ensemble=2)}, 2),
        (10, {"method": "gibbs"}, 1),
        (10, {"prior": "fixed"}, 1),
        (10, {"streaming": True}, 1),
        (10, {"init": "prior", "prior_mean": 1.0}, 1),
    ],
)
def test_cep_mixes_fewer_fits_the_more_entries_there_are(n, params, members):
    assert chosen(n=n, **{"method": "cep", **params}).members == members


@each(
    ("params", "words"),
    [
        ({"rank": "all"}, "rank must be 'auto' or an integer >= 1; got 'all'"),
        ({"rank": None}, "rank must be 'auto' or an integer >= 1; got None"),
        ({"max_iter": "many"}, "max_iter must be 'auto' or an integer >= 1; got 'many'"),
        ({"method": "best"}, r"method must be one of .*'auto'.*; got 'best'"),
        ({"method": None}, "method must be one of"),
        (
            {"prior": None},
            "a tensorcep.Prior, or a dict of Features by mode, or Series, or Graph; got None",
        ),
        ({"prior": "none"}, "prior must be one of 'auto', 'fixed', 'learned', 'ard'; got 'none'"),
        ({"interactions": "none"}, r"interactions must be one of \('auto', 'cp', .*; got 'none'"),
        ({"interactions": None}, "interactions must be one of"),
        ({"prior": "learned", "method": "wopt"}, "method 'wopt' cannot learn the prior; use prior='fixed'"),
    ],
)
def test_what_is_not_allowed_is_refused_in_a_sentence(params, words):
    X, y = entries("regressor")
    with pytest.raises(ValueError, match=words):
        tc.CPRegressor(**params).fit(X, y)


@each("order", [2, 3, 4])
@pytest.mark.parametrize("method", ["auto", "cep", "wopt"])
def test_defaults_fit_tensors_of_any_order(order, method):
    X, y, shape = values(order)
    model = tc.CPRegressor(method=method, tol=1e9, shape=shape, **FEW).fit(X, y)
    rank = {2: 3, 3: 4, 4: 3}[order]
    assert model.rank_ == rank
    pairs = {2: 0, 3: 2, 4: 1}[order] if method != "cep" else 0
    main = int(method != "cep" or order == 2)
    assert model.interactions_ == {"main": main, "pair": pairs, "cp": rank}
    assert len(model.column_modes_) == model.posterior_.rank
    assert np.isfinite(model.predict(X)).all()


@each(
    ("name", "params", "method", "prior"),
    [
        ("regressor", {}, "gibbs", "learned"),
        ("classifier", {}, "pg-gibbs", "learned"),
        ("classifier", {"method": "cep"}, "cep", "learned"),
        ("regressor", {"method": "vmp"}, "vmp", "learned"),
        ("regressor", {"method": "laplace"}, "laplace", "learned"),
        ("regressor", {"method": "wopt"}, "wopt", "fixed"),
        ("regressor", {"rank": 2}, "gibbs", "learned"),
    ],
)
def test_fit_says_what_auto_came_to_and_a_file_keeps_it(name, params, method, prior, tmp_path):
    X, y = (part[:590] for part in entries(name))  # with 20 entries a row twice the components would be tried
    model = CLASSES[name](tol=1e9, **params, **FEW).fit(X, y)
    rank = params.get("rank", 10)
    pairs = {"vmp": 0, "laplace": 0, "cep": 8}.get(method, rank // 2)
    parts = {"main": 1, "pair": pairs, "cp": 0 if method == "cep" else rank}
    assert [getattr(model, item) for item in FITTED] == [method, rank, prior, parts, 12]
    assert model.get_params()["method"] == params.get("method", "auto")
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert [getattr(again, item) for item in FITTED] == [method, rank, prior, parts, 12]
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_latent(X)[0], model.predict_latent(X)[0])
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))


def test_a_bare_estimator_recovers_effects_and_products():
    rng, shape = np.random.default_rng(0), (10, 8, 6)
    X = np.stack(np.unravel_index(rng.permutation(480)[:400], shape), axis=1)
    a, b, c = (rng.standard_normal(n)[column] for n, column in zip(shape, X.T, strict=True))
    f = 20.0 + a + 2.0 * b + a * c
    model = tc.CPRegressor(random_state=0, rank=2).fit(X[:320], f[:320] + 0.1 * rng.standard_normal(320))
    assert (model.method_, model.max_iter_) == ("gibbs", 1000)
    mean, sd = model.predict(X[320:], return_std=True)
    assert np.sqrt(np.mean((mean - f[320:]) ** 2)) < 0.15
    assert (sd < 0.5).all()


@each("name", NAMES)
def test_streams_are_learned_by_cep_and_keep_what_they_began_with_but_the_prior_and_columns(name, tmp_path):
    X, y = entries(name)
    model = CLASSES[name](method=tc.CEP(anneal=0), tol=0.5, shape=SHAPE, random_state=0)
    model.partial_fit(X[:19], y[:19])
    began = [getattr(model, item) for item in FITTED]
    assert began == ["cep", 8, "fixed", {"main": 0, "pair": 0, "cp": 8}, 200]
    model.partial_fit(X[19:], y[19:])  # by now there are enough entries to choose prior and columns by
    assert model.prior_ in ("fixed", "learned")
    parts = {"main": 1, "pair": 4, "cp": 8} if model.interactions_["main"] else began[3]
    assert [getattr(model, item) for item in FITTED if item != "prior_"] == [*began[:2], parts, began[4]]
    chose = [getattr(model, item) for item in FITTED]
    model.save(tmp_path / "stream.npz")
    again = tc.load(tmp_path / "stream.npz")
    np.testing.assert_array_equal(again.predict_latent(X)[0], model.predict_latent(X)[0])
    again.partial_fit(X[:50], y[:50])
    assert [getattr(again, item) for item in FITTED] == chose


def test_partial_fit_goes_on_from_a_fit_that_came_to_cep():
    X, y = entries("regressor")
    model = tc.CPRegressor(1, method=tc.CEP(moments="posterior"), tol=0.5, random_state=0).fit(X[:400], y[:400])
    assert model.method_ == "cep"
    assert model.partial_fit(X[400:], y[400:]).n_samples_seen_ == 600


@each("name", NAMES)
def test_parameters_stay_as_given(name):
    model = CLASSES[name](**FEW)
    before = model.get_params()
    assert [before[item.rstrip("_")] for item in FITTED] == ["auto", "auto", "auto", "auto", 12]
    X, y = entries(name)
    model.set_params(tol=1e9).fit(X, y)
    assert model.get_params() == {**before, "tol": 1e9}
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "method_")


def test_grid_search_over_the_rank():
    X, y = (part[:590] for part in entries("regressor"))
    grid = {"rank": [1, "auto"], "method": ["auto", "vmp"]}
    search = GridSearchCV(tc.CPRegressor(tol=1e9, shape=SHAPE, **FEW), grid, cv=KFold(2), error_score="raise")
    search.fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.rank_ == (10 if search.best_params_["rank"] == "auto" else 1)


@pytest.mark.slow
def test_compare_and_select_rank_take_estimators_as_they_come():
    X, y = entries("regressor")
    train, test = (tc.SparseTensor.from_coo(X[part], y[part], SHAPE) for part in (slice(0, 500), slice(500, 600)))
    quick = tc.CPRegressor(tol=1e9, **FEW)
    table = tc.compare(train, test, estimator=quick)
    assert set(table.index) == {"cep", "laplace", "vmp", "wopt", "gibbs"}
    assert np.isfinite(table["rmse"]).all()
    found = tc.select_rank(quick, X, y, ranks=[1, 2], cv=2, random_state=0)
    assert found.estimator.method_ == "gibbs"
    assert found.estimator.rank_ == found.rank
    assert np.isfinite(found.scores).all()


@each(
    ("params", "method", "link"),
    [
        ({}, "pg-gibbs", "logit"),
        ({"method": "gibbs"}, "gibbs", "probit"),
        ({"method": "vmp"}, "vmp", "probit"),
        ({"method": "pg-vb"}, "pg-vb", "logit"),
        ({"method": tc.CEP(damping=0.5)}, "cep", "probit"),
        ({"link": "probit"}, "gibbs", "probit"),
        ({"link": "logit", "method": "cep"}, "cep", "logit"),
    ],
)
def test_the_link_is_that_of_the_method(params, method, link, tmp_path):
    X, y = entries("classifier")
    model = tc.CPClassifier(tol=1e9, **params, **FEW).fit(X, y)
    assert (model.method_, model.link_) == (method, link)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.link_ == link
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_stream_of_labels_is_of_the_probit():
    X, y = entries("classifier")
    model = tc.CPClassifier(2, random_state=0, max_iter=20, tol=1e9).partial_fit(X, y)
    assert (model.method_, model.link_) == ("cep", "probit")


def test_compare_takes_the_link_that_a_method_needs():
    X, y = entries("classifier")
    data = tc.SparseTensor.from_coo(X, y)
    table = tc.compare(data, data, ["vmp", "pg-vb"], estimator=tc.CPClassifier(2, tol=1e9, **FEW))
    assert np.isfinite(table.loc[["vmp", "pg-vb"], "log_score"]).all()
