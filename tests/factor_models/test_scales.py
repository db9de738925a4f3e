"""Columns on their own scales: units do not matter, whatever the columns are; the number of components is found."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.cases import each
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import tensorcep
from tensorcep import (
    BayesianCCA,
    BayesianFactorAnalysis,
    BayesianPCA,
    CollectiveMatrixFactorization,
    GroupFactorAnalysis,
    SparseTensor,
    load,
)
from tensorcep.factor_models.cells import read_matrix
from tensorcep.factor_models.problem import units_of


def planted(rng, N=200, D=12, K=3, hidden=0.25):
    """A matrix of rank K with noise on columns of unlike scales, and its gaps."""
    scale = 10.0 ** rng.uniform(-2, 3, D)
    x = (rng.standard_normal((N, K)) @ rng.standard_normal((K, D)) + 0.5 * rng.standard_normal((N, D))) * scale
    return x, np.where(rng.random((N, D)) < hidden, np.nan, x)


def same(found, expected, rtol=1e-7):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.std(expected))


@each("bias", ["column", "both"])
@each("cls", [BayesianPCA, BayesianFactorAnalysis])
def test_units_of_columns_do_not_matter(rng, cls, bias):
    _, gaps = planted(rng, N=80, D=8)
    scale, shift = 10.0 ** rng.uniform(-3, 3, 8), rng.normal(0.0, 100.0, 8)
    plain = cls(2, bias=bias).fit(gaps)
    other = cls(2, bias=bias).fit(gaps * scale + shift * scale)
    for found, expected in zip(
        other.predict_missing(return_std=True), plain.predict_missing(return_std=True), strict=True
    ):
        move = 0.0 if expected.min() == 0.0 else shift
        same(found / scale - move, expected)
    same(other.mean_ / scale - shift, plain.mean_)
    same(other.noise_variance_ / scale**2, plain.noise_variance_)
    same(other.components_ / scale, plain.components_)
    same(other.transform(gaps * scale + shift * scale), plain.transform(gaps))
    seen = ~np.isnan(gaps)
    same(other.score_samples(gaps * scale + shift * scale), plain.score_samples(gaps) - seen @ np.log(scale))
    f, variance = plain.predict_latent()
    same(other.predict_latent()[0] / scale - shift, f)
    same(other.predict_latent()[1] / scale**2, variance)


def test_units_of_views_and_relations_do_not_matter(rng):
    x, gaps = planted(rng, N=60, D=8)
    how = {"max_iter": 60, "tol": 0.0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        views = [BayesianCCA(2, **how).fit(c * gaps + c, c * x[:, :5] - c) for c in (1.0, 1e4)]
        relations = [("a", "b", "gaussian"), ("b", "c", "gaussian")]
        chains = [
            CollectiveMatrixFactorization(relations, 2, **how).fit([c * gaps + c, c * x[:8, :5] - c])
            for c in (1.0, 1e4)
        ]
    for one, other in (views, chains):
        for m in (0, 1):
            same(other.reconstruct(m), 1e4 * one.reconstruct(m))
    same(views[1].loadings_[1], 1e4 * views[0].loadings_[1])
    same(views[1].predict_view([None, 1e4 * x[:3, :5] - 1e4], 0), 1e4 * views[0].predict_view([None, x[:3, :5] - 1], 0))


def test_units_come_back_from_a_file(rng, tmp_path):
    _, gaps = planted(rng, N=40, D=6)
    model = BayesianPCA(2).fit(gaps)
    model.save(tmp_path / "m.npz")
    back = tensorcep.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(back.reconstruct(), model.reconstruct())
    np.testing.assert_array_equal(back.predict_missing(gaps), model.predict_missing(gaps))
    np.testing.assert_array_equal(back.components_, model.components_)
    np.testing.assert_array_equal(back.noise_variance_, model.noise_variance_)


def test_units_of_columns_that_say_little():
    x = np.array([[1.0, 5.0, np.nan, 0.0]] * 10 + [[3.0, 5.0, np.nan, 0.0]] * 10)
    x[0, 2] = 7.0
    units = units_of(read_matrix(x, lambda name, values: values, "missing"), True)
    np.testing.assert_allclose(units.centre, [2.0, 5.0, 7.0, 0.0])
    np.testing.assert_allclose(units.scale, [1.0, 10.0, 10.0, 10.0])
    same = np.full((4, 3), 8.0)
    assert units_of(read_matrix(same, lambda name, values: values, "missing"), True).scale.min() > 0.0


def test_columns_without_cells_are_on_the_typical_scale():
    x = np.array([[1.0, np.nan, 4.0]] * 10 + [[3.0, np.nan, 6.0]] * 10)
    units = units_of(read_matrix(x, lambda name, values: values, "missing"), True)
    np.testing.assert_allclose(units.scale, 1.0)


def test_constant_columns_and_columns_of_few_cells_have_finite_predictions(rng):
    _, gaps = planted(rng, N=100, D=10)
    gaps[:, 3], gaps[:, 4] = np.where(np.isnan(gaps[:, 3]), np.nan, 7.0), 0.0
    gaps[1:, 5] = gaps[2:, 6] = np.nan
    gaps[0, 5] = 2.0
    gaps[:, 7] = np.nan
    with pytest.warns(
        UserWarning, match=r"1 of 10 columns of the matrix have no values \(the first is column 7, from 0\)"
    ):
        model = BayesianPCA().fit(gaps)
    filled, sd = model.predict_missing(return_std=True)
    hidden = np.isnan(gaps)
    assert np.isfinite(filled).all()
    assert (sd[hidden] > 0.0).all()
    np.testing.assert_allclose(filled[:, 3], 7.0, atol=1.0)
    assert sd[:, 3].max() < np.median(np.nanstd(gaps[:, [0, 1, 2, 8, 9]], axis=0))


EMPTY = {
    "pca": lambda X: BayesianPCA(1, random_state=0).fit(X),
    "one noise": lambda X: BayesianPCA(1, random_state=0, noise="all").fit(X),
    "factorised": lambda X: BayesianPCA(1, random_state=0, method="vb-factorized").fit(X),
    "fa": lambda X: BayesianFactorAnalysis(1, random_state=0).fit(X),
    "own scale": lambda X: BayesianFactorAnalysis(1, random_state=0, standardize=False).fit(X),
    "gibbs": lambda X: BayesianFactorAnalysis(1, random_state=0, method="gibbs", max_iter=300).fit(X),
    "gfa": lambda X: GroupFactorAnalysis(1, random_state=0).fit([X, X[:, :2]]),
    "cmf": lambda X: CollectiveMatrixFactorization([("r", "c", "gaussian")], 1, random_state=0).fit([X]),
}


@each("name", EMPTY)
def test_columns_without_values_are_told_and_predicted_as_wide_as_all_values_are(name, tmp_path):
    rng = np.random.default_rng(0)
    X = 5.0 + 10.0 * rng.normal(size=(30, 1)) @ [[1.0, 2.0, -1.0, 0.5]] + 3.0 * rng.normal(size=(30, 4))
    X[:, 3], which = np.nan, "matrix 0" if name == "gfa" else "the matrix"
    with pytest.warns(UserWarning, match=f"1 of 4 columns of {which} have no values .* 3, from 0"):
        model = EMPTY[name](X)
    given = {"m": 0} if name in ("gfa", "cmf") else {}
    filled, sd = model.predict_missing(**given, return_std=True)
    assert sd[:, 3].min() > 0.9 * np.nanstd(X)
    assert sd[:, 3].min() > np.abs(filled[:, 3] - np.nanmean(X)).max()
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").reconstruct(**given), model.reconstruct(**given))


def test_items_that_another_matrix_tells_of_are_no_columns_without_values(rng):
    users, items, facts = rng.normal(size=(30, 1)), rng.normal(size=(12, 1)), rng.normal(size=(1, 6))
    ratings, known = users @ items.T, items @ facts + 0.1 * rng.normal(size=(12, 6))
    ratings[:, 4] = np.nan
    relations = [("user", "item", "gaussian"), ("item", "fact", "gaussian")]
    CollectiveMatrixFactorization(relations, 1, random_state=0).fit([ratings, known])  # which warns of nothing


@pytest.mark.parametrize("rank", [1, 3])
def test_auto_finds_the_planted_number_of_components(rng, rank):
    _, gaps = planted(rng, N=300, D=15, K=rank)
    model = BayesianPCA().fit(gaps)
    assert model.n_components_ == rank == len(model.components_)
    assert model.transform(gaps[:3]).shape == (3, rank)
    assert BayesianPCA(5).fit(gaps).n_components_ == 5


def test_auto_warns_of_data_without_structure(rng):
    with pytest.warns(UserWarning, match="the fit predicts no better than the means"):
        model = BayesianPCA(noise="all").fit(rng.standard_normal((200, 8)))
    assert model.n_components_ == 1


def test_sparse_tensors_are_matrices(rng):
    _, gaps = planted(rng, N=30, D=6)
    tensor = SparseTensor.from_dense(gaps, labels=[None, list("abcdef")])
    model = BayesianPCA(2).fit(tensor)
    np.testing.assert_array_equal(model.reconstruct(), BayesianPCA(2).fit(gaps).reconstruct())
    np.testing.assert_array_equal(model.predict_missing(tensor), model.predict_missing(gaps))
    assert list(model.labels_[1]) == list("abcdef")
    with pytest.raises(ValueError, match="must have the labels, in the order"):
        model.predict_missing(SparseTensor.from_dense(gaps, labels=[None, list("abcdfe")]))
    few = SparseTensor.from_dense(np.where(rng.random((300, 6)) < 0.85, np.nan, planted(rng, N=300, D=6)[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(BayesianPCA(1).fit(few).reconstruct(), BayesianPCA(1).fit(few.to_dense()).reconstruct())
    with pytest.raises(ValueError, match="must have 2 modes, rows and columns, to be a matrix; got 3"):
        model.fit(SparseTensor(np.zeros((1, 3), dtype=int), [1.0], shape=(2, 2, 2)))


def hidden_cells(data, seed):
    """Root mean square error, and coverage of 90 % intervals, of 30 % of the cells of real data by default settings."""
    hidden = np.random.default_rng(seed).random(data.shape) < 0.3
    filled, sd = BayesianPCA().fit(np.where(hidden, np.nan, data)).predict_missing(return_std=True)
    error = np.abs(filled - data)[hidden]
    return np.sqrt(np.mean(error**2)), np.mean(error <= 1.645 * sd[hidden])


@pytest.mark.slow
@pytest.mark.parametrize(("load", "limit"), [(load_digits, 2.80), (load_breast_cancer, 18.0), (load_diabetes, 0.042)])
def test_hidden_cells_of_real_data_by_default(load, limit):
    errors, coverages = np.transpose([hidden_cells(load().data, seed) for seed in range(3)])
    assert errors.mean() < limit
    assert 0.87 < coverages.mean() < 0.93  # of diabetes, 1,300 cells a seed, one seed alone is 0.931
