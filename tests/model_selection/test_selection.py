"""The number of components and the method of factor models, by cells that are held out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def matrix(rng, n=60, d=14, K=3, noise=0.3):
    X = rng.normal(size=(n, K)) @ rng.normal(size=(K, d)) + noise * rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def test_select_rank_finds_the_components_of_a_matrix(rng):
    X = matrix(rng)
    frame = pd.DataFrame(X, [f"r{i}" for i in range(60)], [f"c{j}" for j in range(14)])
    found = tc.select_rank(tc.BayesianPCA(random_state=0, ard=False), frame, ranks=[1, 2, 3, 4], cv=3, random_state=0)
    assert found.rank == found.best_rank == 3
    assert found.scores.shape == (4, 3)
    assert found.estimator.n_components_ == 3
    assert list(found.frame.columns[:2]) == ["mean", "standard_error"]
    listed = np.argwhere(~np.isnan(X))
    stored = sparse.coo_matrix((X[tuple(listed.T)], tuple(listed.T)), X.shape)
    again = tc.select_rank(tc.BayesianPCA(random_state=0, ard=False), stored, ranks=[1, 3], cv=3, random_state=0)
    assert again.rank == 3


@pytest.mark.parametrize("kind", ["gfa", "cmf"])
def test_select_rank_of_several_matrices(kind, rng):
    u = rng.normal(size=(60, 2))
    real = u @ rng.normal(size=(2, 10)) + 0.2 * rng.normal(size=(60, 10))
    binary = (u @ rng.normal(size=(2, 8)) > 0).astype(float)
    if kind == "gfa":
        model, X = (
            tc.GroupFactorAnalysis(likelihood=["gaussian", "bernoulli"], random_state=0),
            {"a": real, "b": binary},
        )
    else:
        relations = [("rows", "reals", "gaussian"), ("rows", "labels", "bernoulli")]
        model, X = tc.CollectiveMatrixFactorization(relations, random_state=0), [real, binary]
    model.set_params(max_iter=40)
    found = tc.select_rank(model, X, ranks=[1, 2], cv=2, rule="best", random_state=0)
    assert found.rank == 2
    assert found.estimator.matrix_names_[0] in ("a", "rows x reals")


def test_compare_puts_methods_of_factor_models_in_a_table(rng):
    tensor = tc.SparseTensor.from_dense(matrix(rng))
    train, test = tensor.train_test_split(0.2, 0)
    table = tc.compare(train, test, estimator=tc.BayesianPCA(3, random_state=0, max_iter=300))
    assert list(table.index) == ["vb-factorized", "vb", "gibbs"]
    assert (table["rmse"] < 0.7).all()
    assert ((table["coverage"] > 0.75) & (table["coverage"] <= 1.0)).all()
    assert (table["seconds"] > 0).all()
    counts = tc.SparseTensor.from_dense(rng.poisson(3.0, size=(30, 8)).astype(float))
    parts = counts.train_test_split(0.2, 0)
    line = tc.compare(*parts, ["vb"], estimator=tc.BayesianPCA(1, "negbinomial", random_state=0))
    assert np.isfinite(line.loc["vb", "log_score"])


def test_what_cannot_be_held_out_is_refused(rng):
    model = tc.BayesianPCA(absent="zero")
    with pytest.raises(ValueError, match="absent must be 'missing', so that cells can be held out; got 'zero'"):
        tc.select_rank(model, np.eye(4), ranks=[1])
    with pytest.raises(ValueError, match="ranks must hold at least one rank, each once"):
        tc.select_rank(tc.BayesianPCA(), np.eye(4), ranks=[2, 2])
    with pytest.raises(ValueError, match="a method must be one of"):
        tc.compare(tc.SparseTensor.from_dense(np.eye(4)), tc.SparseTensor.from_dense(np.eye(4)), ["cep"],
                   estimator=tc.BayesianPCA())  # fmt: skip
    with pytest.raises(TypeError, match="estimator must be CPRegressor"):
        tc.select_rank("no model", np.eye(4))


def points(rng, n=120):
    X = rng.normal(size=(n, 3))
    f = X @ np.array([1.5, -1.0, 0.0])
    return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * f)), "yes", "no"), rng.poisson(np.exp(0.5 * f))


@pytest.mark.parametrize(
    ("estimator", "methods", "wanted"),
    [
        (tc.BayesianLogisticRegression(), ["ep", "vb"], ["ep", "vb"]),
        (tc.BayesianProbitRegression(max_iter=50), None, None),
        (tc.BayesPointMachine(), None, ["ep"]),
        (tc.GaussianProcessClassifier(), ["ep", "laplace"], ["ep", "laplace"]),
        (tc.GaussianProcessCountRegressor(), ["laplace", "vb"], ["laplace", "vb"]),
    ],
    ids=["logistic", "probit", "bpm", "gpc", "gp counts"],
)
def test_compare_scores_models_of_points_by_held_out_ones(rng, estimator, methods, wanted):
    X, labels, counts = points(rng)
    y = counts if "Count" in type(estimator).__name__ else labels
    train, test = (X[:80], y[:80]), (X[80:], y[80:])
    table = tc.compare(train, test, methods, estimator=estimator)
    wanted = list(table.index) if wanted is None else wanted
    assert list(table.index) == wanted
    for name in wanted:
        own = estimator if not hasattr(estimator, "engines") else type(estimator)(
            **{**estimator.get_params(deep=False), "method": name}
        )  # fmt: skip
        own = own.fit(*train)
        if y is counts:
            score = own.log_score(*test).mean()
            assert 0.5 <= table.loc[name, "coverage"] <= 1.0
        else:
            p = own.predict_proba(test[0])
            score = np.log(p[np.arange(40), (test[1] == "yes").astype(int)]).mean()
            assert table.loc[name, "auc"] > 0.8
        np.testing.assert_allclose(table.loc[name, "log_score"], score, rtol=1e-6)
    assert (table["seconds"] > 0).all()
    assert list(table.columns)[1:] == ["log_score", "coverage", "calibration_error", "sweeps", "seconds", "peak_mb"]


def test_compare_of_points_refuses_in_one_sentence(rng):
    X, y, _ = points(rng)
    model = tc.BayesianLogisticRegression()
    with pytest.raises(TypeError, match=r"tensor_train must be a pair \(X, y\) for this estimator"):
        tc.compare(X, (X, y), estimator=model)
    with pytest.raises(ValueError, match="a method must be one of"):
        tc.compare((X, y), (X, y), ["gibbs"], estimator=model)
    with pytest.raises(ValueError, match="has one method, EP; leave methods out"):
        tc.compare((X, y), (X, y), ["ep"], estimator=tc.BayesPointMachine())
    with pytest.raises(ValueError, match="tensor_test must have labels of the training points; 'maybe' is none"):
        tc.compare((X, y), (X[:1], ["maybe"]), ["ep"], estimator=model)


def test_limits_and_probit_labels_are_scored_as_they_are(rng):
    u = rng.normal(size=(80, 2))
    real = np.maximum(u @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(80, 8)), 0.0)
    labels = (u @ rng.normal(size=(2, 8)) + rng.normal(size=(80, 8)) > 0).astype(float)
    how = {"likelihood": ["gaussian", "probit"], "random_state": 0, "max_iter": 60}
    views = [tc.SparseTensor.from_dense(view).train_test_split(0.2, 0) for view in (real, labels)]
    train, test = zip(*views, strict=True)
    right, plain = (
        tc.compare(list(train), list(test), ["vb"], estimator=tc.GroupFactorAnalysis(2, lower_limit=limit, **how))
        for limit in ([0.0, None], None)
    )
    assert right.loc["vb", "log_score"] > plain.loc["vb", "log_score"]
    assert right.loc["vb", "rmse"] < plain.loc["vb", "rmse"]
    assert 0.8 < right.loc["vb", "coverage"] <= 1.0
    found = tc.select_rank(
        tc.GroupFactorAnalysis(lower_limit=[0.0, None], **how), list(train), ranks=[1, 2], cv=2, random_state=0
    )
    assert found.best_rank == 2
