"""Figures: what is drawn where, and the same axes handed back."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.models import paper
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF

from tensorcep import CPRegressor, GaussianProcessClassifier, metrics, plots
from tensorcep.cli.main import main
from tensorcep.cp.simulate import simulate_cp
from tensorcep.entries.io import write_tensor
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.methods import Gibbs
from tensorcep.model_selection.select_rank import select_rank
from tensorcep.priors.series import Series

figures = pytest.importorskip("matplotlib.figure")


@pytest.fixture
def ax() -> Iterator[Any]:
    """Axes of a figure that needs no display and that pyplot does not keep."""
    figure = figures.Figure()
    yield figure.subplots()
    figure.canvas.draw()  # what was drawn can be rendered


@pytest.fixture(scope="module")
def model() -> CPRegressor:
    tensor = simulate_cp((9, 40, 3), 2, 500, random_state=1).tensor
    labels = [Labels([f"row {i}" for i in range(9)], name="place"), None, Labels([10, 20, 30])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it finds nothing, which is drawn all the same
        return paper(CPRegressor, 2, random_state=0).fit(
            SparseTensor.from_coo(tensor.coords, tensor.values, (9, 40, 3), labels=labels)
        )


def bars(container: Any) -> np.ndarray:
    """Ends of the error bars, (n, 2, 2): two points each."""
    return np.array(container.lines[2][0].get_segments())


def test_plots_draw_on_the_axes_given_and_return_them(ax: Any, model: CPRegressor) -> None:
    y, p = np.array([0, 1, 1, 0]), np.array([0.1, 0.8, 0.6, 0.3])
    assert plots.plot_predictions(y, p, np.ones(4), ax=ax) is ax
    ax.clear()
    assert plots.plot_convergence(model, diagnostics=model.diagnostics_, ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.trace_["change"])
    assert ax.texts[0].get_text() == str(model.diagnostics_)
    ax.clear()
    assert plots.plot_reliability(y, p, ax=ax) is ax
    ax.clear()
    assert plots.plot_component(model, 0, ax=ax) is ax


def test_plots_without_axes_make_a_figure() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    pyplot.switch_backend("agg")
    ax = plots.plot_convergence({"change": [1.0, 0.1]})
    try:
        assert len(pyplot.get_fignums()) == len(before) + 1
        assert ax.get_xlabel() == "sweep"
    finally:
        pyplot.close(ax.figure)


def test_plots_without_matplotlib_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'tensorcep\[plots\]'"):
        plots.plot_convergence({"change": [1.0]})


def test_plot_predictions_bars_span_the_interval_and_share_counts_all(ax: Any, rng: np.random.Generator) -> None:
    y, mean, sd = rng.normal(size=300), rng.normal(size=300), rng.uniform(0.5, 2.0, 300)
    plots.plot_predictions(y, mean, sd, coverage=0.8, n_bars=25, ax=ax)
    points = ax.collections[0].get_offsets()
    np.testing.assert_allclose(points, np.stack([y, mean], axis=1))
    segments = bars(ax.containers[0])
    assert len(segments) == 25
    shown = np.array([np.flatnonzero(y == x)[0] for x in segments[:, 0, 0]])
    assert y[shown].min() == y.min() and y[shown].max() == y.max()  # noqa: PT018
    half = ndtri(0.9) * sd[shown]
    np.testing.assert_allclose(segments[:, 0, 1], mean[shown] - half)
    np.testing.assert_allclose(segments[:, 1, 1], mean[shown] + half)
    share = 100 * metrics.coverage(y, mean - ndtri(0.9) * sd, mean + ndtri(0.9) * sd)
    assert ax.texts[0].get_text().startswith(f"{share:.1f} % of all 300")


def test_plot_predictions_draws_the_intervals_it_is_given(ax: Any, rng: np.random.Generator) -> None:
    y, mean = rng.normal(size=50), rng.normal(size=50)
    ends = np.stack([mean + 0.1, mean + rng.uniform(0.5, 2.0, 50)], axis=1)  # skewed: no mean is inside its own
    plots.plot_predictions(y, mean, intervals=ends, coverage=0.5, n_bars=50, ax=ax)
    np.testing.assert_allclose(bars(ax.containers[0])[:, :, 1], ends[np.argsort(y)])
    assert ax.texts[0].get_text().startswith(f"{100 * metrics.coverage(y, *ends.T):.1f} % of all 50")
    assert ax.get_legend_handles_labels()[1][-1].startswith("50 % interval")


def test_plot_predictions_takes_few_values(ax: Any) -> None:
    for n_bars in (0, 3, 99):
        ax.clear()
        plots.plot_predictions([1.0, 1.0, 2.0], [1.0, 1.5, 2.0], [0.1, 0.1, 0.1], n_bars=n_bars, ax=ax)
        assert len(bars(ax.containers[0])) == min(n_bars, 3), n_bars


def test_plot_predictions_refuses(ax: Any) -> None:
    refused: list[Any] = [
        (([1.0], [1.0], [0.0]), "sd must be > 0; got 0"),
        (([1.0], [1.0, 2.0], [1.0, 1.0]), "mean must be as long as y, 1; got 2"),
        (([1.0], [np.nan], [1.0]), "mean must be finite"),
        (([], [], []), "y holds no entries"),
        (([1.0], [1.0]), "sd is needed where no intervals are given"),
    ]
    for arguments, message in refused:
        with pytest.raises(ValueError, match=message):
            plots.plot_predictions(*arguments, ax=ax)


def test_plot_predictions_refuses_intervals_of_another_shape(ax: Any) -> None:
    with pytest.raises(ValueError, match=r"intervals must have shape \(2, 2\); got \(2, 3\)"):
        plots.plot_predictions([1.0, 2.0], [1.0, 2.0], intervals=np.zeros((2, 3)), ax=ax)


def test_plot_convergence_draws_the_changes_and_the_tolerance(ax: Any) -> None:
    plots.plot_convergence({"change": np.array([1.0, 0.1, 0.0, 0.02])}, tol=0.05, ax=ax)
    line, tolerance = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 0.1, np.nan, 0.02])  # 0 has no place on a log scale
    assert set(tolerance.get_ydata()) == {0.05}
    assert ax.get_yscale() == "log"


def test_plot_convergence_refuses(ax: Any) -> None:
    refused: list[Any] = [
        ({}, None, r"trace must be a fitted estimator or hold 'change', as its trace_ does; got \[\]"),
        ([1.0, 0.1], None, "trace must be a fitted estimator or hold 'change', as its trace_ does; got list"),
        (CPRegressor(), None, "not fitted"),
        ({"change": []}, None, "change holds no entries"),
        ({"change": [1.0]}, 0.0, "tol must be a number > 0; got 0.0"),
    ]
    for trace, tol, message in refused:
        with pytest.raises(ValueError, match=message):
            plots.plot_convergence(trace, tol=tol, ax=ax)


def test_plot_reliability_shows_the_curve_and_the_range_of_chance(ax: Any, rng: np.random.Generator) -> None:
    p = rng.random(4000)
    y = (rng.random(4000) < p).astype(float)
    plots.plot_reliability(y, p, n_bins=8, ax=ax)
    curve = metrics.reliability_curve(y, p, n_bins=8)
    np.testing.assert_allclose(ax.lines[1].get_xdata(), curve.predicted)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), curve.observed)
    assert [text.get_text() for text in ax.texts] == [f"{int(n):,}" for n in curve.weight]
    low, high = np.array(ax.collections[0].get_segments())[:, :, 1].T
    spread = np.sqrt(curve.predicted * (1 - curve.predicted) / curve.weight)
    np.testing.assert_allclose((high - low) / spread, 2 * 1.645, rtol=0.1)  # normal limit
    assert ((low <= curve.observed) & (curve.observed <= high)).mean() >= 6 / 8


def test_plot_reliability_shows_overconfidence_outside_the_range(ax: Any, rng: np.random.Generator) -> None:
    p = np.repeat([0.05, 0.95], 2000)
    y = (rng.random(4000) < np.repeat([0.2, 0.8], 2000)).astype(float)
    plots.plot_reliability(y, p, ax=ax)
    low, high = np.array(ax.collections[0].get_segments())[:, :, 1].T
    observed = ax.lines[1].get_ydata()
    assert observed[0] > high[0]
    assert observed[1] < low[1]


def test_plot_reliability_of_rare_ones_is_on_log_scales(ax: Any, rng: np.random.Generator) -> None:
    p = np.exp(rng.uniform(-9.0, -1.0, 5000))
    y = (rng.random(5000) < p).astype(float)
    plots.plot_reliability(y, p, n_bins=8, bins="quantile", ax=ax)
    curve = metrics.reliability_curve(y, p, n_bins=8, bins="quantile")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(ax.lines[1].get_ydata(), curve.observed)
    none = ax.lines[2]
    np.testing.assert_allclose(none.get_xdata(), curve.predicted[curve.observed == 0.0])
    assert len(none.get_xdata()) > 0
    assert set(none.get_ydata()) == {ax.get_ylim()[0]}
    assert ax.texts[0].get_text() == "625 entries per bin"


def test_plot_reliability_takes_zeros_alone(ax: Any) -> None:
    plots.plot_reliability([0, 0, 0], [0.0, 0.0, 0.0], bins="quantile", ax=ax)


def test_plot_coverage_shows_shares_and_the_range_of_chance(ax: Any, rng: np.random.Generator) -> None:
    y, levels = rng.normal(size=2000), (0.9, 0.5)
    half = {level: ndtri(0.5 + 0.5 * level) for level in levels}
    intervals = {level: np.tile([-h, 1.3 * h], (2000, 1)) for level, h in half.items()}
    assert plots.plot_coverage(y, intervals, ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [0.5, 0.9])
    expected = [metrics.coverage(y, *intervals[level].T) for level in (0.5, 0.9)]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), expected)
    low, high = np.array(ax.collections[0].get_segments())[:, :, 1].T
    np.testing.assert_allclose(high - low, 2 * 1.645 * np.sqrt([0.25 / 2000, 0.09 / 2000]), rtol=0.1)
    assert expected[0] > high[0]  # intervals that are too wide
    assert ax.texts[0].get_text() == "2,000 entries"


def test_plot_coverage_refuses(ax: Any) -> None:
    refused: list[Any] = [
        ({}, "intervals holds no entries"),
        ({1.5: [[0, 1]]}, r"a level of intervals must be a number in \(0, 1\); got 1.5"),
        ({0.5: [0, 1]}, r"intervals\[0.5\] must have shape \(1, 2\); got \(2,\)"),
    ]
    for intervals, message in refused:
        with pytest.raises(ValueError, match=message):
            plots.plot_coverage([0.5], intervals, ax=ax)


def test_plot_component_of_a_column_held_at_one_names_the_others(ax: Any) -> None:
    tensor = simulate_cp((9, 8, 7), 1, 200, random_state=1).tensor
    model = paper(CPRegressor, 1, interactions="main+cp", max_iter=2, tol=10.0, random_state=0).fit(tensor)
    plots.plot_component(model, 1, 1, ax=ax)
    with pytest.raises(
        ValueError, match=r"component must be one of \[1, 3\], the columns that mode_1 has a part in; got 0"
    ):
        plots.plot_component(model, 1, 0, ax=ax)


def test_plot_component_shows_means_intervals_and_labels(ax: Any, model: CPRegressor) -> None:
    plots.plot_component(model, "place", 1, coverage=0.5, ax=ax)
    segments = bars(ax.containers[0])
    mean, sd = model.components("place").query("component == 1")[["mean", "sd"]].to_numpy().T
    np.testing.assert_allclose(np.abs(mean / mean[0]), np.abs(model.factors_[0][:, 1] / model.factors_[0][0, 1]))
    half = ndtri(0.75) * sd
    np.testing.assert_allclose(segments[:, 0, 0], mean - half)
    np.testing.assert_allclose(segments[:, 1, 0], mean + half)
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"row {i}" for i in range(9)]
    assert ax.get_title() == "place, component 1"
    assert ax.yaxis_inverted()  # the first row is at the top


def test_plot_component_of_many_rows_keeps_the_largest_and_says_so(ax: Any, model: CPRegressor) -> None:
    plots.plot_component(model, 1, 0, max_rows=5, sort="value", ax=ax)
    weight = model.components(1).query("component == 0")["mean"].to_numpy()
    expected = sorted(np.argsort(-np.abs(weight))[:5], key=lambda row: -weight[row])
    assert [text.get_text() for text in ax.get_yticklabels()] == [str(row) for row in expected]
    assert ax.get_title() == "mode_1, component 0, 5 largest of 40"


def test_plot_component_unnamed_labels_are_shown(ax: Any, model: CPRegressor) -> None:
    plots.plot_component(model, 2, ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["10", "20", "30"]


def test_plot_component_refuses(model: CPRegressor, ax: Any) -> None:
    refused: list[Any] = [
        ({"mode": "who"}, "mode must be one of 'place', 'mode_1', 'mode_2'; got 'who'"),
        ({"mode": 3}, "mode must be an integer from 0 to 2; got 3"),
        ({"mode": 0, "component": 2}, "component must be an integer from 0 to 1; got 2"),
        ({"mode": 0, "coverage": 1.0}, "coverage must be a number in"),
        ({"mode": 0, "max_rows": 0}, "max_rows must be an integer >= 1; got 0"),
        ({"mode": 0, "sort": "name"}, "sort must be one of 'value'; got 'name'"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            plots.plot_component(model, **options, ax=ax)


def test_plot_component_needs_a_fitted_model(ax: Any) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        plots.plot_component(paper(CPRegressor), 0, ax=ax)


def test_plot_comparison_shows_every_method_that_has_the_score(ax: Any) -> None:
    columns = {"rmse": [0.9, 0.8, 0.7], "coverage": [0.9, 0.85, np.nan], "seconds": [0.1, 2.0, 0.5]}
    table = pd.DataFrame(columns, index=["vmp", "cep", "wopt"])
    assert plots.plot_comparison(table, ax=ax) is ax
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0.1, 0.9], [2.0, 0.8], [0.5, 0.7]])
    assert [text.get_text() for text in ax.texts] == ["vmp", "cep", "wopt"]
    assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "rmse")
    ax.clear()
    plots.plot_comparison(table, y="coverage", ax=ax)
    assert [text.get_text() for text in ax.texts] == ["vmp", "cep"]


def test_plot_comparison_refuses(ax: Any) -> None:
    refused: list[Any] = [
        ({"rmse": [1.0]}, None, "table must be what tensorcep.compare returns; got dict"),
        (pd.DataFrame({"seconds": [1.0]}), "auc", "y must be one of 'seconds'; got 'auc'"),
        (pd.DataFrame({"coverage": [np.nan], "seconds": [1.0]}), None, "the column 'coverage' holds no entries"),
    ]
    for table, y, message in refused:
        with pytest.raises(ValueError, match=message):
            plots.plot_comparison(table, y=y, ax=ax)


def test_plot_rank_scores_marks_the_choice_and_its_bars(ax: Any) -> None:
    simulated = simulate_cp((12, 10, 8), 2, 500, noise_precision=10.0, latent_sd=1.0, random_state=0).tensor
    estimator = paper(CPRegressor, method="vmp", random_state=0, max_iter=500)
    found = select_rank(estimator, simulated, ranks=[1, 2, 3], cv=3, random_state=0)
    assert plots.plot_rank_scores(found, ax=ax) is ax
    folds = np.stack([line.get_ydata() for line in ax.lines[:3]], axis=1)
    np.testing.assert_array_equal(folds, found.scores)
    x, y = ax.lines[-1].get_data()
    assert (x[0], y[0]) == (found.rank, found.frame.loc[found.rank, "mean"])
    with pytest.raises(ValueError, match=r"what tensorcep\.select_rank returns; got dict"):
        plots.plot_rank_scores({}, ax=ax)


def test_plot_decision_and_rate_draw_gaussian_processes(ax: Any, rng: np.random.Generator) -> None:
    from tensorcep import GaussianProcessClassifier, GaussianProcessCountRegressor

    X = rng.normal(size=(25, 2))
    model = GaussianProcessClassifier(optimizer=None, tol=1e-3).fit(pd.DataFrame(X, columns=["u", "v"]), X[:, 0] > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the grid has no names of features
        assert plots.plot_decision(model, X, X[:, 0] > 0, n_grid=12, ax=ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("u", "v")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["False", "True"]
    with pytest.raises(ValueError, match="X must have two features, and the model two classes; got 1 and 2"):
        plots.plot_decision(model, X[:, :1], X[:, 0] > 0, ax=ax)
    with pytest.raises(NotFittedError):
        plots.plot_decision(GaussianProcessClassifier(), X, X[:, 0] > 0, ax=ax)
    with pytest.raises(NotFittedError):
        plots.plot_rate(GaussianProcessCountRegressor(), X[:, :1], X[:, 0] > 0, ax=ax)
    ax.clear()
    counts = rng.poisson(3.0, 25)
    rate = GaussianProcessCountRegressor(optimizer=None, tol=1e-3).fit(X[:, :1], counts)
    assert plots.plot_rate(rate, X[:, :1], counts, n_grid=20, ax=ax) is ax
    line = ax.lines[0]
    np.testing.assert_allclose(line.get_ydata(), rate.predict(line.get_xdata()[:, None]))
    with pytest.raises(ValueError, match="y must hold one count for each of the 25 rows"):
        plots.plot_rate(rate, X[:, :1], counts[:3], ax=ax)


def test_plot_components_is_a_grid_with_lines_over_ordered_modes() -> None:
    tensor = simulate_cp((7, 6, 5), 2, 150, random_state=1).tensor
    hours = Labels([f"{6 * i}h" for i in range(5)], name="hour")
    labels = [None, Labels([f"g{i}" for i in range(6)], name="gene"), hours]
    model = paper(CPRegressor, 2, max_iter=30, tol=0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(SparseTensor(tensor.coords, tensor.values, labels=labels, shape=(7, 6, 5)))
    figure = plots.plot_components(model, n_components=2, figure=figures.Figure())
    grid = np.array(figure.axes).reshape(2, 3)
    figure.canvas.draw()
    assert [ax.get_title(loc="left") for ax in grid[1][1:]] == ["gene", "hour"]
    line = grid[0][2].lines[-1]
    np.testing.assert_array_equal(line.get_xdata(), [0, 6, 12, 18, 24])
    own = model.components("hour").query(f"component == {model.variance_explained()['component'][0]}")
    np.testing.assert_allclose(line.get_ydata(), own["mean"])
    assert len(grid[0][1].get_yticks()) == 6


def test_plots_of_what_was_found_and_of_where_it_fails(ax: Any, model: CPRegressor) -> None:
    plots.plot_top_rows(model, "place", n_rows=4, ax=ax)
    assert len(ax.get_yticks()) == 4
    ax.clear()
    explained = model.variance_explained()
    plots.plot_variance_explained(explained, ax=ax)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], 100 * explained["share"])
    ax.clear()
    plots.plot_variance_explained(explained, kind="scree", ax=ax)
    np.testing.assert_allclose(ax.lines[1].get_ydata()[-1], 100.0)
    ax.clear()
    plots.plot_variance_explained(pd.DataFrame([[0.5, 0.1], [0.0, 0.3]], index=["a", "b"]), ax=ax)
    assert [text.get_text() for text in ax.texts] == ["50", "10", "0", "30"]
    ax.clear()
    plots.plot_scores(model.factors_[0], ["x"] * 4 + ["y"] * 5, name="arm", ax=ax)
    assert [len(part.get_offsets()) for part in ax.collections] == [4, 5]
    ax.clear()
    cells = simulate_cp((9, 40, 3), 2, 60, random_state=4).tensor
    tensor = SparseTensor(cells.coords, cells.values, (9, 40, 3), labels=model.labels_)
    plots.plot_gaps(tensor, ("place", 1), ax=ax)
    assert np.nansum(ax.images[0].get_array()) == 60
    ax.clear()
    plots.plot_residuals(model, tensor, mode="place", max_rows=5, ax=ax)
    assert len(ax.get_yticks()) == 5
    ax.clear()
    given = {"place": "row 2", 1: 5}
    plots.plot_forecast(model, 2, given, X=tensor, ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [10, 20, 30])


def test_plot_trace_draws_the_chains_and_their_ranks(ax: Any) -> None:
    tensor = simulate_cp((5, 4), 1, 18, random_state=1).tensor
    model = CPRegressor(1, method=Gibbs(n_chains=2, burn_in=5, weights="equal"), max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(tensor)
    plots.plot_trace(model, tensor.coords[:1], ax=ax)
    assert [len(line.get_xdata()) for line in ax.lines] == [25, 25]
    ax.clear()
    plots.plot_trace(model, tensor.coords[:1], kind="ranks", ax=ax)
    np.testing.assert_array_equal(np.sum([patch.get_data().values for patch in ax.patches]), 50)


def test_plot_convergence_shades_the_annealed_sweeps_of_every_fit(ax: Any) -> None:
    plots.plot_convergence({"change": np.ones(8), "member": [0, 0, 0, 0, 1, 1, 1, 1]}, anneal=2, ax=ax)
    paths = [patch.get_path().transformed(patch.get_patch_transform()) for patch in ax.patches]
    assert [tuple(path.get_extents().intervalx) for path in paths] == [(0.5, 2.5), (4.5, 6.5)]


def test_report_is_one_page_with_its_figures(model: CPRegressor, tmp_path: Any) -> None:
    cells = simulate_cp((9, 40, 3), 2, 60, random_state=4).tensor
    tensor = SparseTensor(cells.coords, cells.values, (9, 40, 3), labels=model.labels_)
    write_tensor(tensor, tmp_path / "data.npz")
    model.save(tmp_path / "m.npz")
    files = [str(tmp_path / name) for name in ("m.npz", "r.html", "data.npz")]
    assert main(["report", files[0], "-o", files[1], "--data", files[2]]) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("data:image/png;base64,") == 6
    assert "http:" not in page  # four letters alone a picture may spell
    assert "https:" not in page


# Labels that are no formulas, or bad ones; and signs that no font has.
ODD = ["$x^{$", "100% $\\n$", "6$ $", "a_$ b_$", r"\$", "\x1b[2J", "$$", "ok"]


def texts_of(figure: Any) -> set[str]:
    """What a figure says, as it is drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a sign without a glyph is told so
        figure.canvas.draw()
    found = figure.findobj(match=lambda item: hasattr(item, "_preprocess_math"))
    drawn = [text._preprocess_math(text.get_text()) for text in found]
    assert not any(math for _, math in drawn)
    return {text for text, _ in drawn}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_labels_are_drawn_as_they_are_not_as_formulas() -> None:
    cells = [(a, b, n * m / 9.0) for n, a in enumerate(ODD) for m, b in enumerate(ODD)]
    table = pd.DataFrame(cells, columns=["m_$ x^{$", "i$ $", "y$ $"])
    model = CPRegressor(1, method="vmp", interactions="cp", random_state=0).fit(table, value="y$ $")
    X, y = table.iloc[:, :2], table["y$ $"]
    tensor = SparseTensor.from_pandas(table, list(X), "y$ $")
    shown = {text.replace("\x1b", "\\x1b") for text in ODD}

    def drawn(name: str, /, *args: Any, **how: Any) -> set[str]:
        return texts_of(getattr(plots, name)(*args, **how, ax=figures.Figure().subplots()).figure)

    assert shown <= texts_of(plots.plot_components(model, figure=figures.Figure()))
    assert shown | {"Largest weights of i$ $"} <= drawn("plot_top_rows", model, "i$ $")
    assert shown <= drawn("plot_component", model, "i$ $", 0)
    assert shown | {"Residuals by i$ $"} <= drawn("plot_residuals", model, X, y, mode="i$ $")
    assert shown | {"$x^{$", "i$ $"} <= drawn("plot_forecast", model, "i$ $", {"m_$ x^{$": "$x^{$"}, X=X, y=y)
    assert "row of m_$ x^{$" in drawn("plot_gaps", tensor)
    assert shown <= drawn("plot_scores", np.ones((len(ODD), 2)), ODD, name="$x^{$")
    assert "$x^{$" in drawn("plot_scores", np.ones((len(ODD), 2)), np.arange(len(ODD)), name="$x^{$")
    assert shown <= drawn("plot_comparison", pd.DataFrame({"a_$ $": 1.0, "seconds": 1.0}, index=ODD))
    views = pd.DataFrame(np.full((len(ODD), 2), 0.5), index=ODD, columns=["$x^{$", "b"])
    assert shown | {"$x^{$"} <= drawn("plot_variance_explained", views)
    assert shown <= drawn("plot_variance_explained", views, kind="scree")
    assert {f"{text} (2)" for text in shown} <= drawn("plot_gaps", dict.fromkeys(ODD, np.eye(3, 2)))
    days = pd.DataFrame({"a_$ $": np.arange(6) % 2, "d$ $": np.arange(6), "y": np.arange(6.0)})
    over = CPRegressor(1, method="vmp", interactions="cp", random_state=0).fit(days, value="y")
    assert {"d$ $", "Component 0 over d$ $"} <= drawn("plot_series", over, "d$ $")
    points = pd.DataFrame([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]], columns=["$x^{$", "a_$ b_$"])
    classes = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(points, ["6$ $", "$x^{$", "6$ $"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the figure asks for points without names
        decided = drawn("plot_decision", classes, points, ["6$ $", "$x^{$", "6$ $"], n_grid=4)
    assert {"$x^{$", "a_$ b_$", "6$ $", "probability of 6$ $"} <= decided
    assert plots.report(model, tensor).count("data:image/png") == 6


def test_every_figure_draws_on_given_axes() -> None:
    named = [name for name in dir(plots) if name.startswith("plot_")]
    assert len(named) > 15
    for name in named:
        parameters = inspect.signature(getattr(plots, name)).parameters
        given = parameters.get("ax", parameters.get("figure"))  # a grid of several axes has a figure
        assert given is not None, name
        assert given.default is None, name


def test_plot_series_draws_a_component_over_an_ordered_mode(ax: Any) -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=20, freq="D")
    i, j = (part.ravel() for part in np.indices((20, 5)))
    table = pd.DataFrame({"day": days[i], "who": [f"w{n}" for n in j], "y": np.sin(i / 3.0) * (1 + j)})
    table["y"] += 0.1 * rng.standard_normal(len(table))
    tensor = SparseTensor.from_pandas(table, modes=["day", "who"], value="y")
    shown = tensor.select(tensor.coords[:, 0] != 7)
    model = CPRegressor(1, prior={"day": Series()}, method="vmp", random_state=0).fit(shown)
    drawn = plots.plot_series(model, "day", ax=ax)
    assert drawn is ax
    mean, gaps = ax.lines[1], ax.lines[2]
    assert len(mean.get_xdata()) == 20
    assert len(gaps.get_xdata()) == 1
    assert "over day" in ax.get_title()
    with pytest.raises(ValueError, match="have no order"):
        plots.plot_series(model, "who")
    with pytest.raises(ValueError, match="component must be one of"):
        plots.plot_series(model, "day", component=9)


def test_long_labels_leave_place_for_the_figure():
    from tensorcep.plots.style import LONGEST, text_of

    names = [f"{'a name that goes on ' * 5}{k}" for k in range(12)]
    assert [len(text_of(name)) for name in names] == [LONGEST] * 12
    assert len({text_of(name) for name in names}) == 12
    assert (text_of("short"), text_of(0.123456)) == ("short", "0.1235")
