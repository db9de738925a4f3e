"""Main effects and interactions in the estimators: exact additive models, columns held at 1, scores, saving, errors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, new
from helpers.models import paper

import tensorcep as tc
from tensorcep.metrics import rmse

SHAPE = (20, 15, 10)
WORDS = each("interactions", ["main+cp", "pairwise", "all", {"main": 1, "pair": 2, "cp": 1}])


def cells(n, seed=0):
    flat = np.random.default_rng(seed).choice(int(np.prod(SHAPE)), n, replace=False)
    return np.stack(np.unravel_index(flat, SHAPE), axis=1)


def effects(seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n) for n in SHAPE]


def additive(n=1200):
    """Entries of an additive model around 30 with noise of sd 0.3."""
    X = cells(n)
    f = 30.0 + sum(effect[column] for effect, column in zip(effects(), X.T, strict=True))
    return X, f + 0.3 * np.random.default_rng(2).standard_normal(n), f


def pairs(n=1500):
    """Entries whose structure is a rank-one matrix of modes 0 and 2 beside main effects."""
    X, y, f = additive(n)
    a, _, b = effects(5)
    extra = 1.5 * a[X[:, 0]] * b[X[:, 2]]
    return X, y + extra, f + extra


def clamped_values(model):
    free = np.array([[k in modes for modes in model.column_modes_] for k in range(3)])
    return [factor[:, ~free[k]] for k, factor in enumerate(model.factors_)]


@each("method", ["cep", "laplace", "vmp"])
def test_main_effects_alone_are_bayesian_additive_regression(method):
    X, y, _ = additive(400)
    # moments of the posterior: with those of the cavity the fixed point is close to the exact mean, not equal
    how = {"prior_scale": 1.3, "moments": "posterior", "n_starts": 1, "random_state": 0, "tol": 1e-7, "max_iter": 500}
    model = paper(tc.CPRegressor, method=method, interactions={"main": 1}, noise_prior=(1e9, 1e8), **how).fit(X, y)
    # the exact posterior mean: one column per row, prior variance 1.3^2 around the mean of y on mode 0, precision 10
    design = np.zeros((len(y), sum(SHAPE)))
    for k, first in enumerate((0, 20, 35)):
        design[np.arange(len(y)), first + X[:, k]] = 1.0
    centre = np.concatenate([np.full(20, y.mean()), np.zeros(25)])
    precision = 10.0 * design.T @ design + np.eye(45) / 1.3**2
    exact = np.linalg.solve(precision, 10.0 * design.T @ y + centre / 1.3**2)
    np.testing.assert_allclose(model.predict(X), design @ exact, rtol=0, atol=1e-3)


def test_main_effects_by_pg_vb_are_those_of_jaakkola():
    X, y = entries("classifier")
    X, t = X[:300, :2], 2.0 * y[:300] - 1.0
    sizes = X.max(axis=0) + 1
    model = paper(
        tc.CPClassifier,
        method="pg-vb",
        link="logit",
        interactions={"main": 1},
        prior_scale=1.3,
        tol=1e-9,
        max_iter=500,
        random_state=0,
    ).fit(X, y[:300])
    m, v = [np.zeros(n) for n in sizes], [np.full(n, 1.69) for n in sizes]
    share = (y[:300].sum() + 0.5) / 301
    centre = [np.log(share / (1.0 - share)), 0.0]
    for _ in range(500):
        for k in range(2):
            other = m[1 - k][X[:, 1 - k]]
            f = m[k][X[:, k]] + other
            xi = np.sqrt(f**2 + v[k][X[:, k]] + v[1 - k][X[:, 1 - k]])
            omega = np.tanh(xi / 2) / (2 * xi)
            v[k] = 1.0 / (1.0 / 1.69 + np.bincount(X[:, k], omega, sizes[k]))
            m[k] = v[k] * (centre[k] / 1.69 + np.bincount(X[:, k], 0.5 * t - omega * other, sizes[k]))
    found, variance = model.predict_latent(X)
    np.testing.assert_allclose(found, m[0][X[:, 0]] + m[1][X[:, 1]], atol=1e-5)
    np.testing.assert_allclose(variance, v[0][X[:, 0]] + v[1][X[:, 1]], rtol=1e-5)


@each("name", NAMES)
@each("prior", ["fixed", "learned", "ard"])
def test_clamped_columns_stay_at_one(name, prior):
    X, y = entries(name)
    how = {"moments": "cavity", "damping": 0.8} if name == "counts" else {}
    model = new(name, prior=prior, interactions="all", tol=0.5, **how).fit(X, y)
    assert len(model.column_modes_) == model.posterior_.rank == 3 + 6 + 2
    for values in clamped_values(model):
        np.testing.assert_allclose(values, 1.0, rtol=0, atol=1e-6)
    for k, cov in enumerate(model.factor_covs_):
        free = np.array([k in modes for modes in model.column_modes_])
        assert np.abs(cov[:, ~free]).max() < 1e-6


@WORDS
def test_interactions_find_the_additive_part_at_once(interactions):
    X, y, f = additive()
    train = np.arange(len(y)) % 3 > 0
    model = paper(tc.CPRegressor, 2, interactions=interactions, prior="learned", random_state=0, tol=1e-2)
    model.fit(X[train], y[train])
    assert rmse(f[~train], model.predict_latent(X[~train])[0]) < 0.25


def test_pairwise_terms_find_what_main_effects_cannot():
    X, y, f = pairs()
    train = np.arange(len(y)) % 3 > 0
    errors = {}
    for interactions in ({"main": 1}, {"main": 1, "pair": 1}):
        model = paper(tc.CPRegressor, interactions=interactions, prior="learned", random_state=0).fit(
            X[train], y[train]
        )
        errors[tuple(interactions)] = rmse(f[~train], model.predict(X[~train]))
    assert errors["main", "pair"] < 0.3 < errors["main",]


def sampled(interactions, **given):
    few = {"n_chains": 2, "burn_in": 20, "thin": 2}
    return paper(
        tc.CPRegressor,
        1,
        method="gibbs",
        interactions=interactions,
        max_iter=60,
        random_state=0,
        **few,
        **given,
    )


@each("prior", ["fixed", "learned", "ard"])
def test_sampled_interactions_find_main_effects_and_pairs(prior):
    X, y, f = pairs()
    train = np.arange(len(y)) % 3 > 0
    model = sampled({"main": 1, "pair": 1}, prior=prior).fit(X[train], y[train])
    assert rmse(f[~train], model.predict(X[~train])) < 0.3


def test_sampled_interactions_predict_the_sum_of_their_parts_and_come_back_from_a_file(tmp_path):
    X, y, _ = additive(400)
    model = sampled("all", prior="learned").fit(X, y)
    for values in clamped_values(model):
        np.testing.assert_array_equal(values, 1.0)
    rows = model.posterior_.rows.reshape(-1, sum(SHAPE), model.posterior_.rank)
    parts = rows[:, X[:, 0]] * rows[:, 20 + X[:, 1]] * rows[:, 35 + X[:, 2]]
    np.testing.assert_allclose(model.predict(X), model.level_ + parts.sum(axis=2).mean(axis=0), rtol=1e-10)
    assert len(model.components(1)) == 15 * (1 + 2 + 1)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(tc.load(tmp_path / "model.npz").predict(X), model.predict(X))


def test_interactions_follow_the_units_of_the_data():
    X, y, _ = additive(600)
    one, scaled = (
        paper(tc.CPRegressor, 1, interactions="main+cp", prior="learned", random_state=0, tol=1e-2).fit(X, c * y)
        for c in (1.0, 1e3)
    )
    np.testing.assert_allclose(scaled.predict(X), 1e3 * one.predict(X), rtol=1e-4)


@each("how", [{"method": "cep", "tol": 1e-2}, {"method": "gibbs", "max_iter": 100}])
def test_unknown_rows_get_the_level_of_the_known_ones(how):
    X, y, _ = additive()
    model = paper(tc.CPRegressor, 1, interactions="main+cp", prior="learned", random_state=0, **how).fit(X, y)
    with pytest.warns(UserWarning, match="their prior is used"):
        mean, std = model.predict(np.array([[50, 50, 50]]), return_std=True)
    assert abs(mean[0] - y.mean()) < 1.0
    assert 0.5 * y.std() < std[0] < 3.0 * y.std()


@WORDS
def test_interactions_survive_a_file(interactions, tmp_path):
    X, y = entries("classifier")
    model = new("classifier", interactions=interactions, prior="learned", tol=5e-2).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.column_modes_ == model.column_modes_
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_cp_stays_the_default_to_the_bit():
    X, y = entries("regressor")
    one, other = new("regressor").fit(X, y), new("regressor", interactions={"cp": 2}).fit(X, y)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@each(
    ("params", "words"),
    [
        ({"interactions": "mains"}, "interactions must be one of"),
        ({"interactions": "all", "prior": tc.Prior([0.0] * 3, [1.0] * 3)}, "a Prior serves interactions='cp'"),
        ({"interactions": "all", "init": "prior"}, 'use init="random"'),
        ({"prior": "learned", "method": "wopt"}, r"cannot learn the prior; use prior='fixed', or one of .*'cep'"),
    ],
)
def test_interactions_refuse_what_does_not_fit(params, words):
    X, y = entries("regressor")
    with pytest.raises(ValueError, match=words):
        new("regressor", **params).fit(X, y)


@each("prior", ["fixed", "learned"])
@each("method", ["cep", "vmp"])
def test_a_stream_keeps_clamped_columns_and_the_learned_prior(prior, method):
    X, y, f = additive()
    order = np.argsort(X[:, 0] >= 15, kind="stable")  # the last rows of mode 0 arrive later
    X, y, f = X[order], y[order], f[order]
    how = {"method": method, "forget": 0.1, "random_state": 0, "tol": 1e-2}
    model = paper(tc.CPRegressor, 1, interactions="main+cp", prior=prior, **how)
    model.stream((X[a : a + 400], y[a : a + 400]) for a in range(0, 1200, 400))
    for values in clamped_values(model):
        np.testing.assert_allclose(values, 1.0, rtol=0, atol=1e-6)
    assert rmse(f, model.predict_latent(X)[0]) < 0.35
