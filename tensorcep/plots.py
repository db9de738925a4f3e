"""Figures: predictions with their uncertainty, convergence, calibration and factors.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes. They need matplotlib
(``pip install 'tensorcep[plots]'``), which is imported when the first of them is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import (
    check_choice,
    check_fraction,
    check_int,
    check_not_empty,
    check_positive,
    check_range,
    check_vectors,
    fail_value,
)
from tensorcep.entries.interop import optional_module
from tensorcep.metrics import Bins, reliability_curve
from tensorcep.metrics import coverage as covered_share

# Two colours that stay apart in grey and for colour-blind readers, and a quiet one for what is only a guide.
MAIN, ACCENT, GUIDE = "#1f5a96", "#d1662a", "#8a8a8a"
# Rows of a component from which on their labels are small, so that they do not touch.
CROWDED = 20


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    pyplot = optional_module("matplotlib.pyplot", "tensorcep.plots", "'tensorcep[plots]'")
    return pyplot.subplots(layout="constrained")[1]


def _finish(ax: Any, title: str, x: str, y: str) -> Any:
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_predictions(
    y: ArrayLike, mean: ArrayLike, sd: ArrayLike, *, coverage: float = 0.9, n_bars: int = 40, ax: Any = None
) -> Any:
    """Draw predicted against observed values, with the interval of some of them.

    Parameters
    ----------
    y, mean, sd : (N,) array-like
        Observed values, and mean and standard deviation of their Gaussian predictions; `sd` > 0.
    coverage : float, default=0.9
        Of the central intervals. The share of all N values that lies inside theirs stands in the figure.
    n_bars : int, default=40
        Intervals drawn, for entries spread evenly over the observed values; more would hide each other.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    y, mean, sd = check_vectors(y=y, mean=mean, sd=sd)
    check_positive("sd", sd)
    half = ndtri(0.5 + 0.5 * check_fraction("coverage", coverage)) * sd
    n_bars = min(check_int("n_bars", n_bars, 0), y.size)
    ax = _axes(ax)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, color=GUIDE, linewidth=1, label="predicted = observed")
    alpha = float(np.clip(1500.0 / y.size, 0.08, 0.8))  # a cloud shows its density
    ax.scatter(y, mean, s=7, color=MAIN, alpha=alpha, linewidths=0, rasterized=True)
    shown = np.argsort(y, kind="stable")[np.linspace(0, y.size - 1, n_bars).astype(int)]
    ax.errorbar(
        y[shown],
        mean[shown],
        yerr=half[shown],
        fmt="o",
        markersize=3,
        linewidth=1,
        color=ACCENT,
        label=f"{100 * coverage:g} % interval, drawn for {n_bars} of {y.size:,}",
    )
    share = covered_share(y, mean - half, mean + half)
    ax.legend(loc="upper left", frameon=False)
    text = f"{100 * share:.1f} % of all {y.size:,} intervals\nhold the observed value"
    ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", color=ACCENT)
    return _finish(ax, "Predictions", "observed", "predicted")


def plot_convergence(trace: Mapping[str, ArrayLike], *, tol: float | None = None, ax: Any = None) -> Any:
    """Draw the relative change of the latent means in every sweep, on a log scale.

    Parameters
    ----------
    trace : mapping
        The `trace_` of a fitted estimator.
    tol : float, optional
        The tolerance, drawn as a line.
    ax : matplotlib Axes, optional
    """
    if "change" not in trace:
        fail_value(f"trace must hold 'change', as an estimator's trace_ does; got {sorted(trace)}.")
    (change,) = check_vectors(change=trace["change"])
    if tol is not None:
        check_range("tol", tol, 0.0, include_low=False)
    ax = _axes(ax)
    sweeps = np.arange(1, change.size + 1)
    # A change of exactly 0 has no place on a log scale.
    ax.plot(sweeps, np.where(change > 0.0, change, np.nan), "o-", color=MAIN, markersize=4)
    if tol is not None:
        ax.axhline(tol, color=GUIDE, linestyle="--", linewidth=1, label=f"tolerance {tol:g}")
        ax.legend(loc="upper right", frameon=False)
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _finish(ax, "Convergence", "sweep", "relative change of the latent means")


def plot_reliability(y: ArrayLike, p: ArrayLike, *, n_bins: int = 10, bins: Bins = "uniform", ax: Any = None) -> Any:
    """Draw the share of ones against the predicted probability.

    A bar spans the middle 90 % of shares that a perfectly calibrated model would give with as many entries as the bin
    holds: points outside their bars are more than chance. Source: Broecker and Smith (2007), Increasing the
    reliability of reliability diagrams.

    Parameters
    ----------
    y : (N,) array-like
        Labels 0 or 1.
    p : (N,) array-like
        Probabilities of a one.
    n_bins : int, default=10
    bins : {"uniform", "quantile"}, default="uniform"
        Bins of equal width over [0, 1], or, for rare ones, of about as many entries each, on log scales.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    curve = reliability_curve(y, p, n_bins=n_bins, bins=bins)
    ax = _axes(ax)
    n = curve.weight.astype(int)
    low, high = (binom.ppf(q, n, curve.predicted) / n for q in (0.05, 0.95))
    lowest, highest = -0.03, 1.12
    if bins == "quantile":
        found = np.concatenate([curve.predicted, curve.observed, high])
        lowest, highest = 0.5 * found[found > 0.0].min(initial=1.0), min(1.3, 2.0 * found.max() + 1e-3)
        ax.set(xscale="log", yscale="log")
        sizes = f"{n.min():,}" if n.min() == n.max() else f"{n.min():,} to {n.max():,}"
        ax.text(0.98, 0.06, f"{sizes} entries per bin", transform=ax.transAxes, ha="right")
    ends = [max(lowest, 0.0), 1.0]
    ax.plot(ends, ends, color=GUIDE, linewidth=1, label="perfectly calibrated")
    bars = np.maximum(low, lowest), np.maximum(high, lowest)
    ax.vlines(curve.predicted, *bars, color=GUIDE, linewidth=5, alpha=0.35, label="90 % range of chance")
    ax.plot(curve.predicted, curve.observed, "o", color=MAIN, markersize=5, label="observed")
    if bins == "quantile":
        none = curve.predicted[curve.observed == 0.0]  # 0 has no place on a log scale
        ax.plot(none, np.full(none.size, lowest), "v", color=MAIN, markersize=6, clip_on=False, label="no ones")
    else:
        for x, top, size in zip(curve.predicted, np.maximum(high, curve.observed), n, strict=True):
            ax.annotate(f"{size:,}", (x, top), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=7)
    ax.set(xlim=(lowest, min(highest, 1.03)), ylim=(lowest, highest), aspect="equal")
    ax.legend(loc="upper left", frameon=False, bbox_to_anchor=(0.0, 0.95))
    return _finish(ax, "Calibration", "predicted probability", "share of ones")


def plot_coverage(y: ArrayLike, intervals: Mapping[float, ArrayLike], *, ax: Any = None) -> Any:
    """Draw the share of observed values inside their intervals against the level of the intervals.

    A bar spans the middle 90 % of shares that intervals of exactly this level would give with as many entries.

    Parameters
    ----------
    y : (N,) array-like
        Observed values.
    intervals : mapping
        Level, such as 0.8, to the ends (N, 2) of the intervals, as ``predict_interval(X, 0.8)`` gives them.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    (y,) = check_vectors(y=y)
    check_not_empty(len(intervals), "intervals")
    levels = np.array(sorted(check_fraction("a level of intervals", level) for level in intervals))
    shares = []
    for level in levels:
        ends = np.asarray(intervals[level], dtype=np.float64)
        if ends.shape != (y.size, 2):
            fail_value(f"intervals[{level:g}] must have shape ({y.size}, 2); got {ends.shape}.")
        shares.append(covered_share(y, ends[:, 0], ends[:, 1]))
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], color=GUIDE, linewidth=1, label="nominal")
    low, high = (binom.ppf(q, y.size, levels) / y.size for q in (0.05, 0.95))
    ax.vlines(levels, low, high, color=GUIDE, linewidth=5, alpha=0.35, label="90 % range of chance")
    ax.plot(levels, shares, "o", color=MAIN, markersize=5, label="observed")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02), aspect="equal")
    ax.legend(loc="upper left", frameon=False)
    ax.text(0.98, 0.03, f"{y.size:,} entries", transform=ax.transAxes, ha="right")
    return _finish(ax, "Coverage of intervals", "level of the interval", "share of values inside")


def plot_component(
    model: Any,
    mode: int | str,
    component: int = 0,
    *,
    coverage: float = 0.9,
    max_rows: int = 30,
    sort: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw one component of one mode: the posterior mean of every row's weight, with its interval.

    Means and signs are those of ``model.components_frame(mode)``. Scales of the modes can be exchanged without a change
    of the model, and so can the signs of two of them.

    Parameters
    ----------
    model : fitted CP estimator
    mode : int or str
        Its position, or the name of its labels.
    component : int, default=0
        Its column in `factors_`.
    coverage : float, default=0.9
        Of the central intervals.
    max_rows : int, default=30
        Where the mode has more rows, those of the largest weights are drawn, and the title says so.
    sort : {"value"}, optional
        Order by weight; default: the order of the rows.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no such mode or component, or the component is held at 1 in this mode.
    """
    check_is_fitted(model, "factors_")
    mode, name = _mode_of(model, mode)
    component = check_int("component", component, 0, model.posterior_.rank - 1)
    z = ndtri(0.5 + 0.5 * check_fraction("coverage", coverage))
    if sort is not None:
        check_choice("sort", sort, ("value",))
    table = model.components_frame(mode)
    if component not in table.columns.get_level_values(0):
        there = sorted(set(table.columns.get_level_values(0)))
        fail_value(f"component must be one of {there}, the columns that {name} has a part in; got {component}.")
    weight, half = table[component]["mean"].to_numpy(), z * table[component]["sd"].to_numpy()
    rows = np.sort(np.argsort(-np.abs(weight), kind="stable")[: check_int("max_rows", max_rows)])
    if sort is not None:
        rows = rows[np.argsort(-weight[rows], kind="stable")]
    ax = _axes(ax)
    at = np.arange(rows.size)
    ax.axvline(0.0, color=GUIDE, linewidth=1)
    ax.errorbar(weight[rows], at, xerr=half[rows], fmt="o", color=MAIN, markersize=4, linewidth=1.2)
    ax.set_yticks(at, [str(table.index[row]) for row in rows], fontsize=None if rows.size <= CROWDED else "small")
    ax.set_ylim(rows.size - 0.4, -0.6)
    part = "" if rows.size == weight.size else f", {rows.size} largest of {weight.size}"
    return _finish(ax, f"{name}, component {component}{part}", f"weight, {100 * coverage:g} % interval", "")


def plot_comparison(table: Any, *, y: str | None = None, ax: Any = None) -> Any:
    """Draw what every method needs, in seconds, against what it reaches.

    Parameters
    ----------
    table : DataFrame
        What `tensorcep.compare` returned.
    y : str, optional
        The column to draw; default: the first one, the accuracy.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    columns = list(getattr(table, "columns", ()))
    if "seconds" not in columns:
        fail_value(f"table must be what tensorcep.compare returns; got {type(table).__name__}.")
    y = columns[0] if y is None else check_choice("y", y, columns)
    drawn = table[np.isfinite(table[y])]
    check_not_empty(len(drawn), f"the column {y!r}")
    ax = _axes(ax)
    ax.scatter(drawn["seconds"], drawn[y], s=36, color=MAIN)
    for name, seconds, value in zip(drawn.index, drawn["seconds"], drawn[y], strict=True):
        ax.annotate(name, (seconds, value), xytext=(6, 4), textcoords="offset points")
    ax.set_xscale("log")
    ax.margins(0.15)
    return _finish(ax, "Comparison of methods", "seconds of the fit", y.replace("_", " "))


def _mode_of(model: Any, mode: int | str) -> tuple[int, str]:
    """Position and name of a mode."""
    given = [None if labels is None else labels.name for labels in model.labels_]
    names = [f"mode {k}" if name is None else str(name) for k, name in enumerate(given)]
    if isinstance(mode, str):
        mode = names.index(check_choice("mode", mode, names))
    mode = check_int("mode", mode, 0, len(names) - 1)
    return mode, names[mode]


def plot_rank_scores(selection: Any, *, ax: Any = None) -> Any:
    """Draw the held-out log score of every rank: each fold, the mean, and what one standard error of the loss allows.

    The bar of a rank is the standard error of its difference to the best rank: a rank is as good as the best one by
    the one-standard-error rule if its bar reaches the dashed line, the best mean.

    Parameters
    ----------
    selection : RankSelection
        What `tensorcep.select_rank` returned.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if not hasattr(selection, "best_rank"):
        fail_value(f"selection must be what tensorcep.select_rank returns; got {type(selection).__name__}.")
    frame, ranks = selection.frame, selection.ranks
    ax = _axes(ax)
    ax.plot(ranks, selection.scores, color=GUIDE, linewidth=0.8, alpha=0.6)
    ax.axhline(frame["mean"].max(), color=GUIDE, linestyle="--", linewidth=1)
    ax.errorbar(ranks, frame["mean"], yerr=frame["loss_error"], fmt="o-", color=MAIN, markersize=4, linewidth=1.2)
    ax.plot([selection.rank], [frame.loc[selection.rank, "mean"]], "o", color=ACCENT, markersize=8, zorder=3)
    ax.set_xticks(ranks)
    title = f"Rank {selection.rank} of the data, best {selection.best_rank}"
    return _finish(ax, title, "rank", "log score of a held-out entry")
