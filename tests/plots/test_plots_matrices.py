"""Figures and pages of factor models: the same functions, the weights of rows and of columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc
from tensorcep import plots
from tensorcep.cli.main import main
from tensorcep.factor_models.settings import Gibbs

figures = pytest.importorskip("matplotlib.figure")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ROWS = [f"s{i}" for i in range(40)]


def frames() -> dict[str, pd.DataFrame]:
    """Two views of the same rows, the columns of the second over hours; with gaps."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, 2))
    rna = pd.DataFrame(z @ rng.normal(size=(2, 7)) + 0.3 * rng.normal(size=(40, 7)), ROWS).add_prefix("g")
    hours = pd.DataFrame(z[:, :1] @ rng.normal(size=(1, 5)) + 0.3 * rng.normal(size=(40, 5)), ROWS)
    rna.iloc[2:5, 3] = np.nan
    return {"rna": rna, "hours": hours.set_axis([f"{6 * j}h" for j in range(5)], axis=1)}


def fitted(kind: str) -> tuple[Any, Any]:
    """A model, and what it was fitted to."""
    views = frames()
    relations = [("samples", "genes", "gaussian"), ("samples", "times", "gaussian")]
    models: dict[str, Any] = {
        "pca": tc.BayesianPCA(2, random_state=0),
        "fa": tc.BayesianFactorAnalysis(2, random_state=0),
        "gfa": tc.GroupFactorAnalysis(2, random_state=0, tol=1e-3),
        "cca": tc.BayesianCCA(2, random_state=0, tol=1e-3),
        "cmf": tc.CollectiveMatrixFactorization(relations, 2, random_state=0, tol=1e-3),
        "gibbs": tc.BayesianPCA(2, method=Gibbs(burn_in=10), max_iter=60, random_state=0),
    }
    given = views if kind in ("gfa", "cca") else list(views.values()) if kind == "cmf" else views["rna"]
    return models[kind].fit(given), given


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("pca", "fa", "cca", "cmf", "gibbs")]


@pytest.mark.parametrize("kind", ["gfa", *SLOW])
def test_components_and_page_of_every_factor_model(kind: str) -> None:
    model, given = fitted(kind)
    grid = plots.plot_components(model, n_components=2, figure=figures.Figure())
    n = 2 if kind in ("pca", "fa", "gibbs") else 3
    assert len(grid.axes) == 2 * n
    names = {"pca": "columns", "fa": "columns", "gibbs": "columns", "cmf": "genes"}
    assert grid.axes[1].get_title(loc="left") == names.get(kind, "rna")
    if n == 3:
        np.testing.assert_array_equal(grid.axes[2].lines[-1].get_xdata(), [0, 6, 12, 18, 24])
    page = plots.report(model, given)
    assert page.count("data:image/png;base64,") == 6 + (kind != "cmf")
    assert "http:" not in page  # four letters alone a picture may spell
    assert "https:" not in page
    assert page.count("<figure>") == plots.report(model).count("<figure>") + 2


def test_figures_of_one_matrix_of_several() -> None:
    model, given = fitted("gfa")
    ax = figures.Figure().subplots()
    plots.plot_forecast(model, "column", {"row": "s5"}, X=given["hours"], matrix="hours", ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 6, 12, 18, 24])
    cells = pd.DataFrame({"row": ["s5"] * 5, "col": given["hours"].columns})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict_cells(cells, "hours"))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), given["hours"].loc["s5"])
    ax.clear()
    plots.plot_residuals(model, given["rna"], mode=1, ax=ax)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(given["rna"].columns)
    ax.clear()
    plots.plot_gaps(given, ax=ax)
    assert ax.get_title() == "40 of 40 rows are in all views"
    np.testing.assert_allclose(ax.images[0].get_array()[0, :6], [100, 100, 600 / 7, 600 / 7, 600 / 7, 100])
    ax.clear()
    plots.plot_variance_explained(model.variance_explained(), kind="scree", ax=ax)
    np.testing.assert_allclose(ax.lines[1].get_ydata()[-1], 100 * model.variance_explained().loc["rna"].sum())
    with pytest.raises(ValueError, match="of shape \\(40, 7\\); got \\(40, 5\\)"):
        plots.plot_residuals(model, given["hours"], ax=ax)
    with pytest.raises(ValueError, match="use plot_components or plot_top_rows"):
        plots.plot_component(model, 0, ax=ax)


def test_figures_of_one_matrix() -> None:
    model, given = fitted("gibbs")
    ax = figures.Figure().subplots()
    plots.plot_gaps(given, ax=ax)
    assert (ax.get_xlabel(), np.nansum(ax.images[0].get_array())) == ("column of matrix", 277)
    ax.clear()
    explained = model.variance_explained()
    plots.plot_variance_explained(explained, ax=ax)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], 100 * explained.to_numpy()[0])
    ax.clear()
    plots.plot_trace(model, [[3, 2]], ax=ax)
    draws = model.posterior_.draws.rows
    f = model.latent_draws([[3, 2]])[0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), f[:, 0])
    assert len(f) == len(draws[0])
    np.testing.assert_allclose(f.mean(), model.reconstruct()[3, 2], rtol=1e-9)
    with pytest.raises(ValueError, match="method 'vb' draws none"):
        plots.plot_trace(fitted("pca")[0], [[0, 0]], ax=ax)


@pytest.mark.slow
def test_shell_reports_models_of_matrices(tmp_path: Any) -> None:
    views = frames()
    for name, frame in views.items():
        long = frame.rename_axis("sample").reset_index().melt("sample", var_name=name, value_name="value").dropna()
        long.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / name) for name in ("rna.csv", "hours.csv", "m.npz", "r.html")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["fit", files[0], "-o", files[2], "--model", "gfa", "--rank", "2", "--also", files[1]]) == 0
    assert main(["report", files[2], "-o", files[3], "--data", files[0], "--data", files[1]]) == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count("<figure>") == 7
    assert main(["report", files[2], "-o", files[3], "--data", files[0]]) == 1


def test_factors_match_across_seeds_and_halves_of_matrices() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 2)) * [4.0, 1.0]
    X, Y = (z @ rng.normal(size=(2, n)) + 0.2 * rng.normal(size=(200, n)) for n in (8, 6))
    views = tc.GroupFactorAnalysis(2, random_state=0, max_iter=30)
    assert 0.0 < tc.replicability(views, {"a": X, "b": Y}, n_repeats=2)["score"][0] <= 1.0
    table = tc.replicability(tc.BayesianPCA(2), X, by="halves", n_repeats=1)
    assert 0.8 < table["score"][0] < 1.0
    one, other = (tc.BayesianPCA(2, random_state=0).fit(X) for _ in range(2))
    np.testing.assert_allclose(tc.factor_match_score(one, other), 1.0)
    swapped = [one.scores_[:, ::-1], -one.components_.T[:, ::-1]]
    with pytest.raises(ValueError, match="as many rows in every mode"):
        tc.factor_match_score(one, swapped[::-1])
    assert tc.factor_match_score(one, swapped, weights=False) > 0.9
