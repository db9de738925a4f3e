"""Tables of factor models: names are kept, and what components explain is a share of the variance of the columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def views(rng):
    shared, own = rng.normal(size=(80, 1)), rng.normal(size=(80, 1))
    rna = shared @ np.array([[1.0, -1.0, 1.0, 1.0]]) + 0.3 * rng.normal(size=(80, 4))
    atac = 5 * (np.hstack([shared, own]) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(80, 6)))
    return {"rna": pd.DataFrame(rna, columns=list("abcd")), "atac": pd.DataFrame(atac).add_prefix("peak")}


def test_views_keep_their_names_and_features(rng, tmp_path):
    given = views(rng)
    model = tc.GroupFactorAnalysis(3, random_state=0, tol=1e-4).fit(given)
    table = model.variance_explained()
    assert table.index.tolist() == model.matrix_names_ == ["rna", "atac"]
    for m, view in enumerate(given.values()):
        rest = np.asarray(view - view.mean(axis=0)) - model.scores_ @ model.loadings_[m].T
        r2 = np.mean(1 - (rest**2).sum(axis=0) / ((view - view.mean(axis=0)) ** 2).sum(axis=0))
        np.testing.assert_allclose(table.iloc[m].sum(), r2, atol=0.1)
    loadings = model.components("atac")
    assert loadings["feature"].unique().tolist() == [f"peak{j}" for j in range(6)]
    np.testing.assert_allclose(loadings["mean"], model.loadings_[1].T.ravel())
    assert (loadings["sd"] > 0).all()
    some = model.transform({"atac": given["atac"][:5]})
    np.testing.assert_array_equal(some, model.transform([None, given["atac"][:5]]))
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    np.testing.assert_allclose(again.variance_explained(), table)
    assert again.components("rna")["feature"].unique().tolist() == [*"abcd"]
    text = str(model.summary())
    assert "rna 80 x 4, atac 80 x 6" in text
    assert "Largest loadings of atac" in text
    assert "rna sd 0." in text
    assert f"sweeps       {model.n_iter_}, converged" in text
    assert "health       lower bound" in text
    assert "<table" in model.summary().to_html()
    with pytest.raises(ValueError, match="matrix must be one of 'rna', 'atac'; got 'dna'"):
        model.components("dna")
    assert tc.GroupFactorAnalysis(1, random_state=0).fit(list(given.values())).matrix_names_ == ["view 0", "view 1"]


def test_one_matrix_and_relations_have_tables_too(rng):
    given = views(rng)
    model = tc.BayesianPCA(2, random_state=0).fit(given["rna"])
    assert model.components()["feature"].tolist() == [*"abcd"] * 2
    np.testing.assert_allclose(model.components()["mean"], model.components_.ravel())
    assert 0.8 < model.variance_explained().to_numpy().sum() < 1.05
    labels = tc.BayesianPCA(1, "bernoulli", random_state=0).fit((given["rna"] > 0).astype(float))
    np.testing.assert_allclose(labels.variance_explained().to_numpy().sum(), 1.0)
    relations = [("samples", "genes", "gaussian"), ("samples", "peaks", "gaussian")]
    joint = tc.CollectiveMatrixFactorization(relations, 2, random_state=0).fit(list(given.values()))
    assert joint.variance_explained().index.tolist() == ["samples x genes", "samples x peaks"]
    assert joint.components("samples x peaks")["feature"].tolist()[:2] == ["peak0", "peak1"]


def test_weights_give_the_components_back_and_a_sampler_says_how_it_mixed(rng):
    given = views(rng)
    model = tc.BayesianPCA(2, random_state=0).fit(given["rna"])
    u, v = (x / np.linalg.norm(x, axis=0) for x in (model.scores_, model.components_.T))
    np.testing.assert_allclose((u * model.weights_) @ v.T, model.scores_ @ model.components_)
    joint = tc.GroupFactorAnalysis(2, random_state=0, tol=1e-3).fit(given)
    np.testing.assert_allclose(
        joint.weights_[1], np.linalg.norm(joint.scores_, axis=0) * np.linalg.norm(joint.loadings_[1], axis=0)
    )
    sampled = tc.BayesianPCA(2, "negbinomial", method="gibbs", max_iter=230, random_state=0)
    sampled.fit(np.random.default_rng(0).poisson(3.0, (20, 6)).astype(float))
    text = str(sampled.summary())
    assert "dispersion   X r " in text
    assert "health       largest R-hat " in text
    assert "effective draws" in text


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_summary_of_a_model_without_changes_says_what_it_knows(rng):
    """As in a file whose trace was cut to nothing, which `tensorcep info` ended on with an IndexError."""
    model = tc.BayesianPCA(1, max_iter=2, random_state=0).fit(rng.standard_normal((20, 4)))
    assert not model.converged_
    assert "the last sweep changed 0." in str(model.summary())
    model.trace_ = {name: column[:0] for name, column in model.trace_.items()}
    assert "the last sweep changed" not in str(model.summary())
    assert "health       lower bound" in str(model.summary())
