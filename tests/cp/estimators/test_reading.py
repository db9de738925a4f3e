"""What a model tells of itself: tidy components, variance explained, a summary; and how alike factors are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.data import fitted, simulated
from helpers.models import paper

import tensorcep as tc
from tensorcep.methods import Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["dose", "gene", "hour"]


def frame():
    tensor = tc.simulate_cp((8, 7, 5), 2, 250, noise_precision=25, random_state=2).tensor
    d, g, h = tensor.coords.T
    columns = {"dose": [f"{2**i} nM" for i in d], "gene": [f"g{i}" for i in g], "hour": [f"{6 * i}h" for i in h]}
    return pd.DataFrame({**columns, "y": tensor.values})


@pytest.fixture(scope="module", params=["vmp", Gibbs(n_chains=2, burn_in=30, weights="equal")], ids=["vmp", "gibbs"])
def model(request):
    how = {"interactions": {"main": 1, "cp": 2}, "prior": "learned", "random_state": 0, "init": "random"}
    return tc.CPRegressor(2, method=request.param, max_iter=90, **how).fit(frame(), value="y")


def test_components_are_tidy_of_norm_one_and_in_the_order_of_variance(model):
    table = model.components("hour")
    assert list(table.columns) == ["hour", "component", "part", "weight", "mean", "sd", "lower", "upper"]
    assert table["hour"].tolist()[:5] == ["0h", "6h", "12h", "18h", "24h"]
    norms = table.groupby("component")["mean"].apply(np.linalg.norm)
    np.testing.assert_allclose(norms, 1.0)
    order = model.variance_explained()["component"]
    assert table["component"].unique().tolist() == [r for r in order if 2 in model.column_modes_[r]]
    assert (table["lower"] < table["upper"]).all()
    rebuilt = np.ones((8, 7, 5))
    (r,) = [r for r in order if len(model.column_modes_[r]) == 3][:1]
    for k, mode in enumerate(MODES):
        own = model.components(mode).query(f"component == {r}")
        rebuilt = rebuilt * own["mean"].to_numpy().reshape([-1 if j == k else 1 for j in range(3)])
        weight = own["weight"].iloc[0]
    expected = np.einsum("i,j,k->ijk", *(factor[:, r] for factor in model.factors_))
    np.testing.assert_allclose(weight * rebuilt, expected, atol=1e-10)


def test_variance_explained_adds_up_in_the_data(model):
    df = frame()
    table = model.variance_explained(df, value="y")
    assert table["share"].is_monotonic_decreasing
    np.testing.assert_allclose(table["share"].sum(), 1.0)
    np.testing.assert_allclose(table["cumulative"], table["r2"].cumsum())
    r2 = 1 - np.var(df["y"] - model.predict(df)) / np.var(df["y"])
    np.testing.assert_allclose(table["cumulative"].iloc[-1], r2, atol=0.02)
    assert (table["share_of_all"] < table["share"]).all()


def test_summary_says_what_was_fitted_as_text_and_html(model):
    text, page = str(model.summary()), model.summary().to_html()
    for said in (f"{model.method_}, rank 2", "250 of 8 dose x 7 gene x 5 hour", "Largest weights of gene", "sweeps"):
        assert said in text
    assert "<table" in page
    assert "Variance explained" in page
    assert model.summary()._repr_html_() == page
    assert "CPClassifier" in str(fitted("classifier").summary())


def test_factor_match_score_knows_no_order_signs_and_scales(rng):
    a = [rng.standard_normal((n, 3)) for n in (5, 6, 4)]
    b = [factor[:, [2, 0, 1]] for factor in a]
    b = [-b[0], -2.0 * b[1], 0.5 * b[2]]
    np.testing.assert_allclose(tc.factor_match_score(a, b), 1.0)
    np.testing.assert_allclose(tc.factor_match_score(a, [f[:, :2] for f in a]), 2 / 3)
    heavy = [a[0] * [1.0, 1.0, 2.0], a[1], a[2]]
    np.testing.assert_allclose(tc.factor_match_score(a, heavy), 1 - 0.5 / 3)
    np.testing.assert_allclose(tc.factor_match_score(a, heavy, weights=False), 1.0)
    with pytest.raises(ValueError, match="as many rows in every mode"):
        tc.factor_match_score(a, b[::-1])
    truth = simulated("regressor").factors
    assert tc.factor_match_score(fitted("regressor"), truth) > 0.8


def test_replicability_compares_seeds_and_halves():
    tensor = tc.SparseTensor.from_pandas(frame(), MODES)
    model = paper(tc.CPRegressor, 2, max_iter=30, tol=1e-2)
    seeds = tc.replicability(model, tensor, n_repeats=3)
    assert seeds[["first", "second"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    halves = tc.replicability(model, tensor, by="halves", n_repeats=1)
    assert len(halves) == 1
    assert ((pd.concat([seeds, halves])["score"] >= 0) & (pd.concat([seeds, halves])["score"] <= 1)).all()
