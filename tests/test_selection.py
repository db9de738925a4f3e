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
