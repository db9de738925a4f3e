"""PCA and factor analysis of rows as they come: what is known of the columns adds up from batch to batch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.linalg import subspace_angles
from sklearn.base import clone

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.core.packing import unpack
from tensorcep.factor_models.online import _turn, _turned, _turned_sites, sums_of_rows, told_by
from tensorcep.likelihoods.parameters.base import gammas, shape_and_rate

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(rng, n=300, missing=0.2):
    """Rows of two components with noise of 0.5, some cells missing, and the columns' loadings."""
    V = rng.normal(size=(8, 2)) * [2.0, 1.0]
    X = rng.normal(size=(n, 2)) @ V.T + 0.5 * rng.normal(size=(n, 8)) + np.arange(8)
    X[rng.random(X.shape) < missing] = np.nan
    return X, V


def in_batches(model, X, size=50):
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size])
    return model


def test_one_batch_is_a_fit_and_many_are_nearly_one(rng):
    X, V = rows(rng)
    whole = tc.BayesianPCA(2, random_state=0).fit(X)
    np.testing.assert_array_equal(tc.BayesianPCA(2, random_state=0).partial_fit(X).components_, whole.components_)
    online = in_batches(tc.BayesianPCA(2, random_state=0), X, 75)
    assert online.n_samples_seen_ == 300
    assert subspace_angles(online.components_.T, V).max() < 0.1
    np.testing.assert_allclose(online.noise_variance_.mean(), whole.noise_variance_.mean(), rtol=0.15)
    np.testing.assert_allclose(online.mean_, whole.mean_, atol=0.25)
    new = rng.normal(size=(300, 2)) @ V.T + 0.5 * rng.normal(size=(300, 8)) + np.arange(8)
    gaps = np.where(rng.random(new.shape) < 0.3, np.nan, new)
    hidden = np.isnan(gaps)
    error, best, first = (
        np.sqrt(np.mean((model.predict_missing(gaps) - new)[hidden] ** 2))
        for model in (online, whole, tc.BayesianPCA(2, random_state=0).fit(X[:75]))
    )
    assert best < error < first
    assert error < 1.05 * best


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "negbinomial"])
@each("bias", ["column", "both", "none"])
def test_turned_columns_say_what_all_batches_said(likelihood, bias, rng, tmp_path):
    """Latent values of the batch are those before the turn; all rows have mean 0 and covariance I; a file goes on."""
    X, _ = rows(rng, 120)
    X = X if likelihood == "gaussian" else np.where(np.isnan(X), np.nan, X > 3.5)
    model = tc.BayesianPCA(2, likelihood, bias=bias, random_state=0, ard=False).partial_fit(X[:60])
    layout, before = model._where, told_by(model.posterior_.moments[1], model.posterior_.precisions[1], model._where[1])
    model.partial_fit(X[60:])
    posterior = model.posterior_
    mean_square = model._sums_of_rows / 120
    np.testing.assert_allclose(mean_square[:2, :2], np.eye(2), atol=1e-8)
    if layout[0].one >= 0:
        np.testing.assert_allclose(mean_square[:2, layout[0].one], 0.0, atol=1e-8)
    after = told_by(posterior.moments[1], posterior.precisions[1], layout[1])
    size = after.eta.shape[1]
    more = np.linalg.slogdet(unpack(after.Lam, size) + 1e-3 * np.eye(size))[1]
    assert (more > np.linalg.slogdet(unpack(before.Lam, size) + 1e-3 * np.eye(size))[1]).all()
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    assert again.n_samples_seen_ == 120
    extra = X[:30]
    np.testing.assert_array_equal(again.partial_fit(extra).components_, model.partial_fit(extra).components_)


def test_a_turn_changes_no_latent_value_and_no_site(rng):
    X, _ = rows(rng, 80)
    model = tc.BayesianPCA(2, random_state=0).fit(X)
    (u, v), where = model.posterior_.moments, model._where
    T, back = _turn(sums_of_rows(model.posterior_) / 80, v, where)
    told = _turned_sites(told_by(v, model.posterior_.precisions[1], where[1]), back)
    shifted = v.mean @ np.linalg.inv(back).T
    np.testing.assert_allclose(_turned(u, T).mean @ shifted.T, u.mean @ v.mean.T, atol=1e-9)
    plain = told_by(v, model.posterior_.precisions[1], where[1])
    for point in rng.normal(size=(3, 3)):  # log sites of the same column in both coordinates
        there = np.linalg.solve(back, point)
        values = []
        for own, at in ((plain, point), (told, there)):
            Lam = np.broadcast_to(unpack(own.Lam, 3), (8, 3, 3))
            values.append(own.eta @ at - 0.5 * np.einsum("i,nij,j->n", at, Lam, at))
        np.testing.assert_allclose(*values, rtol=1e-9)


def test_a_fit_goes_on_by_name_and_keeps_what_it_knows(rng):
    X, V = rows(rng, 200)
    frame = pd.DataFrame(X, [f"r{i}" for i in range(200)]).add_prefix("g")
    model = tc.BayesianFactorAnalysis(2, random_state=0).fit(frame[:150])
    sd = model.components()["sd"].mean()
    model.partial_fit(frame[150:])
    assert model.components()["feature"].tolist()[:2] == ["g0", "g1"]
    assert model.scores_frame()["row"].tolist()[:2] == ["r150", "r151"]
    assert model.components()["sd"].mean() < sd
    assert subspace_angles(model.components_.T, V).max() < 0.15
    few = model.components_.copy()
    model.partial_fit(frame[:1].rename(index=str.upper))
    np.testing.assert_allclose(model.components_, few, atol=0.2)
    assert np.isnan(model.lower_bound_)


def test_rows_that_cannot_be_learned_are_refused_and_nothing_changes(rng):
    X, _ = rows(rng, 60)
    model = tc.BayesianPCA(2, random_state=0).fit(X)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="8 features"):
        model.partial_fit(X[:, :5])
    model.set_params(method="gibbs")
    with pytest.raises(ValueError, match="partial_fit is for method='vb'; got 'gibbs'"):
        model.partial_fit(X)
    model.set_params(method="vb")
    assert vars(model) == before
    other = tc.BayesianPCA(2, method="vb-factorized", random_state=0).fit(X).set_params(method="vb")
    with pytest.raises(ValueError, match="goes on from a fit by method='vb'"):
        other.partial_fit(X)


@each("model", [tc.BayesianPCA(2, random_state=0), tc.BayesianFactorAnalysis(2, random_state=0)])
@each("constant", [0.0, 3.0])
def test_column_that_is_constant_at_first_is_learned_later_as_by_one_fit(model, constant, rng):
    X, _ = rows(rng, 400, missing=0.0)
    X[:50, 3] = constant
    online, whole = in_batches(clone(model), X), clone(model).fit(X)
    sizes = [np.linalg.norm(one.components_[:, 3]) for one in (online, whole)]
    assert 0.85 < sizes[0] / sizes[1] < 1.1
    assert abs(online.mean_[3] - whole.mean_[3]) < 0.1 * np.std(X[:, 3])
    assert online.noise_variance_[3] < 2.0 * whole.noise_variance_[3]


def test_first_batch_of_few_rows_is_warned_of_and_learned_from(rng):
    X, _ = rows(rng, 402, missing=0.0)
    model = tc.BayesianPCA(2, random_state=0)
    with pytest.warns(UserWarning, match="the first batch decides .* fewer than 10 rows, here 2, later ones"):
        model.partial_fit(X[:2])
    gaps = np.where(rng.random(X.shape) < 0.3, np.nan, X)[2:]
    errors = []
    for start in (2, 202):
        errors.append(np.nanstd(np.where(np.isnan(gaps), model.predict_missing(gaps) - X[2:], np.nan)))
        model.partial_fit(X[start : start + 200])
    assert errors[1] < errors[0]


def test_row_without_a_value_gets_what_the_prior_says(rng):
    X, _ = rows(rng, 60)
    for model in (tc.BayesianPCA(2, random_state=0), tc.BayesianFactorAnalysis(2, random_state=0)):
        model.fit(X)
        for empty in (np.full((1, 8), np.nan), sparse.csr_array((1, 8))):
            mean, cov = model.transform(empty, return_cov=True)
            np.testing.assert_allclose(mean, np.zeros((1, 2)))
            np.testing.assert_allclose(cov, np.eye(2)[np.newaxis])
            np.testing.assert_allclose(model.predict_missing(empty), model.mean_[np.newaxis])
        with pytest.raises(ValueError, match="at least one observed cell"):
            model.partial_fit(np.full((1, 8), np.nan))


def test_shapes_and_rates_follow_from_the_means(rng):
    a, b = rng.gamma(1.0, 5.0, 50) + 1e-2, rng.gamma(1.0, 3.0, 50)
    found = shape_and_rate(gammas(a, b, 1.0, 1.0))
    np.testing.assert_allclose(found[0], a, rtol=1e-6)
    np.testing.assert_allclose(found[1], b, rtol=1e-6)
    large = shape_and_rate(gammas(np.array([1e6]), np.array([2.0]), 1.0, 1.0))
    np.testing.assert_allclose(large[0], 1e6, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:the first batch decides")
def test_shell_streams_rows(rng, tmp_path, capsys):
    X, V = rows(rng, 200)
    frame = pd.DataFrame(X, [f"r{i:03d}" for i in range(200)]).add_prefix("g")
    long = frame.rename_axis("row").reset_index().melt("row", var_name="gene", value_name="level").dropna()
    long.sort_values("row", kind="stable").to_csv(tmp_path / "rows.csv", index=False)
    path, file = str(tmp_path / "m.npz"), str(tmp_path / "rows.csv")
    how = ["--model", "pca", "--rank", "2", "--first-batch", "700", "--batch-size", "201"]
    assert main(["stream", file, "-o", path, *how]) == 0
    assert "200 rows in 5 batches" in capsys.readouterr().out
    model = tc.load(path)
    assert model.n_samples_seen_ == 200
    assert model.components()["feature"].unique().tolist() == list(frame.columns)
    assert subspace_angles(model.components_.T, V).max() < 0.15
    assert main(["transform", path, file, "-o", str(tmp_path / "t.csv")]) == 0
    long.to_csv(file, index=False)
    assert main(["stream", file, "-o", path, *how]) == 1
    assert "the entries of a row must follow each other" in capsys.readouterr().err
    assert main(["stream", file, "-o", path, *how, "--forget", "0.1"]) == 1
    assert "--forget is for --model cp; got pca" in capsys.readouterr().err
    long.sort_values(["row", "gene"]).to_csv(file, index=False)
    assert main(["stream", file, "-o", path, "--model", "fa", "--rank", "1", "--batch-size", "3"]) == 1
    assert "the first batch must have all columns" in capsys.readouterr().err


@each("model", [tc.BayesianPCA(2, random_state=0), tc.BayesianFactorAnalysis(2, random_state=0)])
def test_column_whose_first_values_come_later_has_their_level(model, rng):
    X, V = rows(rng)
    X[:, 3] += 20.0
    first = X[:60].copy()
    first[:, 3] = np.nan
    with pytest.warns(UserWarning, match="1 of 8 columns of the matrix have no values"):
        model.partial_fit(first)
    model.partial_fit(X[60:80] * np.where(np.arange(8) == 3, np.nan, 1.0)).partial_fit(X[80:])
    assert abs(model.mean_[3] - np.nanmean(X[:, 3])) < 0.5
    assert subspace_angles(model.components_.T, V).max() < 0.15
