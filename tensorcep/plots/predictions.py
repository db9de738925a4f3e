"""Figures of predictions: against values, along a series, of Gaussian processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from tensorcep.core import checks
from tensorcep.core.packing import offsets
from tensorcep.cp.inputs.coordinates import mode_of, names_of
from tensorcep.metrics import Bins, reliability_curve
from tensorcep.metrics import coverage as covered_share
from tensorcep.plots.components import places_in_order
from tensorcep.plots.style import ACCENT, GUIDE, MAIN, axes_of, finish, shown


def plot_series(model: Any, mode: Any, *, component: int | None = None, coverage: float = 0.9, ax: Any = None) -> Any:
    """Draw a component's weights over an ordered mode, with their interval; rows without entries are marked.

    Parameters
    ----------
    model : fitted CP estimator
    mode : name or position
        A `Series`, or a mode whose labels are in order (numbers, times).
    component : int, optional
        A column of ``model.factors_``; default: the one that explains most of those that belong to the mode.
    coverage : float, default=0.9
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorcep import CPRegressor, plots
    >>> cells = [(s, d, d % 4 + 0.1 * (s < "b")) for s in "abc" for d in range(12)]
    >>> days = pd.DataFrame(cells, columns=["shop", "day", "sold"])
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(days, value="sold")
    >>> plots.plot_series(model, "day").get_xlabel()
    'day'
    """
    check_is_fitted(model, "posterior_")
    k = mode_of(model.labels_, mode)
    part, name = model.parts_[0], names_of(model.labels_)[k]
    places: Any = np.arange(part.shape[k]) if part.labels[k] is None else places_in_order(part.labels[k])
    places = part.times[k] if places is None else places
    if places is None:
        checks.fail_value(f"plot_series needs an ordered mode; the labels of mode {name!r} have no order.")
    table = model.components(mode, coverage)
    chosen = int(table["component"].iloc[0]) if component is None else checks.check_int("component", component, 0)
    own = table[table["component"] == chosen]
    if own.empty:
        there = table["component"].unique().tolist()
        checks.fail_value(f"component must be one of {there}, of mode {name!r}; got {chosen}.")
    seen, order = model.posterior_.seen[slice(*offsets(model.shape_)[k : k + 2])], np.argsort(places, kind="stable")
    mean, lower, upper = (own[column].to_numpy()[order] for column in ("mean", "lower", "upper"))
    x, seen, ax = places[order], seen[order], axes_of(ax)
    ax.axhline(0.0, color=GUIDE, linewidth=0.8)
    ax.fill_between(x, lower, upper, color=MAIN, alpha=0.25, linewidth=0, label=f"{100 * coverage:g} % interval")
    ax.plot(x, mean, "-", color=MAIN, linewidth=1.4, label="mean")
    if not seen.all():
        ax.plot(x[~seen], mean[~seen], "o", color=ACCENT, markersize=4, label="without entries")
    ax.legend(frameon=False)
    if x.dtype.kind == "M":
        ax.tick_params(axis="x", labelrotation=30)
    return finish(ax, f"Component {chosen} over {name}", str(name), "weight (norm 1)")


MARGIN = 0.1  # of the range of the points, drawn beyond them


def plot_decision(
    model: Any, X: ArrayLike, y: ArrayLike, *, coverage: float = 0.9, n_grid: int = 80, ax: Any = None
) -> Any:
    """Draw the probability of the second of two classes over two features, where it is sure, and the points.

    Lines are where the probability is a half, and where an end of its interval is: between the outer ones the data do
    not say which class is the more probable.

    Parameters
    ----------
    model : fitted GaussianProcessClassifier
        Of two classes and two features.
    X : array-like (n, 2)
    y : array-like (n,)
        Labels.
    coverage : float, default=0.9
        Of the intervals of the probability.
    n_grid : int, default=80
        Points of the map on each side.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from tensorcep import GaussianProcessClassifier, plots
    >>> X, y = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), [0, 1, 0]
    >>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
    >>> plots.plot_decision(model, X, y, n_grid=5).get_xlabel()
    'feature 0'
    """
    check_is_fitted(model)
    X, y = checks.check_matrix("X", X), np.asarray(y)
    checks.check_fraction("coverage", coverage)
    checks.check_int("n_grid", n_grid, 2)
    if X.shape[1] != 2 or len(model.classes_) != 2:
        got = f"got {X.shape[1]} and {len(model.classes_)}"
        checks.fail_value(f"X must have two features, and the model two classes; {got}.")
    if y.shape != (len(X),):
        checks.fail_value(f"y must hold one label for each of the {len(X)} rows of X; got shape {y.shape}.")
    low, high = X.min(axis=0), X.max(axis=0)
    edge = MARGIN * np.where(high > low, high - low, 1.0)
    sides = [np.linspace(a, b, n_grid) for a, b in zip(low - edge, high + edge, strict=True)]
    grid = np.stack([part.ravel() for part in np.meshgrid(*sides)], axis=1)
    p = model.predict_proba(grid)[:, 1].reshape(n_grid, n_grid)
    ends = model.predict_interval(grid, coverage).reshape(n_grid, n_grid, 2)
    ax = axes_of(ax)
    shade = ax.contourf(*sides, p, levels=np.linspace(0.0, 1.0, 21), cmap="PuOr", alpha=0.7)
    ax.figure.colorbar(shade, ax=ax, label=shown(f"probability of {model.classes_[1]}"), ticks=np.linspace(0.0, 1.0, 6))
    ax.contour(*sides, p, levels=[0.5], colors="black", linewidths=1.2)
    for k in (0, 1):
        ax.contour(*sides, ends[:, :, k], levels=[0.5], colors="black", linewidths=0.8, linestyles="dashed")
    for label, colour, marker in zip(model.classes_, (ACCENT, MAIN), "os", strict=True):
        at = X[y == label]
        ax.scatter(*at.T, s=18, c=colour, marker=marker, edgecolors="white", linewidths=0.5, label=shown(label))
    ax.legend(loc="upper left", framealpha=0.8)
    names = getattr(model, "feature_names_in_", ("feature 0", "feature 1"))
    return finish(ax, f"Decision, and its {100 * coverage:g} % band (dashed)", *(str(name) for name in names))


def plot_rate(
    model: Any, X: ArrayLike, y: ArrayLike | None = None, *, coverage: float = 0.9, n_grid: int = 200, ax: Any = None
) -> Any:
    """Draw the rate of counts over one feature with the band that its interval makes, and the counts.

    Parameters
    ----------
    model : fitted GaussianProcessCountRegressor
        Of one feature.
    X : array-like (n, 1)
        The range that is drawn.
    y : array-like (n,), optional
        Counts.
    coverage : float, default=0.9
        Of the intervals of the rate.
    n_grid : int, default=200
        Points of the line.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from tensorcep import GaussianProcessCountRegressor, plots
    >>> X, y = np.arange(6.0)[:, None], [2, 3, 1, 5, 8, 7]
    >>> model = GaussianProcessCountRegressor(RBF(2.0), optimizer=None).fit(X, y)
    >>> plots.plot_rate(model, X, y, n_grid=5).get_title()
    'Rate of counts'
    """
    X = checks.check_matrix("X", X)
    checks.check_fraction("coverage", coverage)
    checks.check_int("n_grid", n_grid, 2)
    if X.shape[1] != 1:
        checks.fail_value(f"X must have one feature to draw a rate over it; got {X.shape[1]}.")
    grid = np.linspace(X.min(), X.max(), n_grid)[:, None]
    band = model.predict_interval(grid, coverage, of="rate")
    ax = axes_of(ax)
    look = {"color": MAIN, "alpha": 0.25, "linewidth": 0, "label": f"{100 * coverage:g} % band"}
    ax.fill_between(grid[:, 0], *band.T, **look)
    ax.plot(grid[:, 0], model.predict(grid), color=MAIN, linewidth=1.5, label="rate")
    if y is not None:
        y = np.asarray(y, dtype=np.float64)
        if y.shape != (len(X),):
            checks.fail_value(f"y must hold one count for each of the {len(X)} rows of X; got shape {y.shape}.")
        ax.vlines(X[:, 0], 0.0, y, color=GUIDE, linewidth=0.8)
        ax.plot(X[:, 0], y, "o", color=ACCENT, markersize=3, label="counts")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return finish(ax, "Rate of counts", str(getattr(model, "feature_names_in_", ("x",))[0]), "count")


def plot_predictions(
    y: ArrayLike, mean: ArrayLike, sd: ArrayLike | None = None, *, coverage: float = 0.9,
    intervals: ArrayLike | None = None, n_bars: int = 40, ax: Any = None,
) -> Any:  # fmt: skip
    """Draw predicted against observed values, with the interval of some of them.

    Parameters
    ----------
    y, mean : (N,) array-like
        Observed values, and the means of their predictions.
    sd : (N,) array-like, optional
        Standard deviations of predictions that are Gaussian, > 0; not needed where `intervals` are given.
    coverage : float, default=0.9
        Of the central intervals. The share of all N values that lies inside theirs stands in the figure.
    intervals : (N, 2) array-like, optional
        Their ends, as ``predict_interval(X, coverage)`` gives them; default: those of Gaussian predictions.
    n_bars : int, default=40
        Intervals drawn, for entries spread evenly over the observed values; more would hide each other.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import plots
    >>> plots.plot_predictions([1.0, 2.0], [1.1, 1.8], [0.2, 0.2]).get_xlabel()
    'observed'
    """
    y, mean = checks.check_vectors(y=y, mean=mean)
    coverage = checks.check_fraction("coverage", coverage)
    if intervals is not None:
        lower, upper = _checked_ends("intervals", intervals, y).T
    elif sd is None:
        checks.fail_value("sd is needed where no intervals are given; pass one of the two.")
    else:
        _, sd = checks.check_vectors(y=y, sd=sd)
        half = ndtri(0.5 + 0.5 * coverage) * checks.check_all("sd", sd, sd > 0.0, "be > 0")
        lower, upper = mean - half, mean + half
    n_bars = min(checks.check_int("n_bars", n_bars, 0), y.size)
    ax = axes_of(ax)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, color=GUIDE, linewidth=1, label="predicted = observed")
    alpha = float(np.clip(1500.0 / y.size, 0.08, 0.8))  # a cloud shows its density
    ax.scatter(y, mean, s=7, color=MAIN, alpha=alpha, linewidths=0, rasterized=True)
    shown = np.argsort(y, kind="stable")[np.linspace(0, y.size - 1, n_bars).astype(int)]
    middle, half = 0.5 * (lower + upper)[shown], 0.5 * (upper - lower)[shown]  # a mean may lie outside its interval
    label = f"{100 * coverage:g} % interval, drawn for {n_bars} of {y.size:,}"
    ax.errorbar(y[shown], middle, yerr=half, fmt="none", linewidth=1, color=ACCENT, label=label)
    ax.plot(y[shown], mean[shown], "o", markersize=3, color=ACCENT)
    share = covered_share(y, lower, upper)
    ax.legend(loc="upper left", frameon=False)
    text = f"{100 * share:.1f} % of all {y.size:,} intervals\nhold the observed value"
    ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", color=ACCENT)
    return finish(ax, "Predictions", "observed", "predicted")


def _checked_ends(name: str, ends: ArrayLike, y: np.ndarray) -> np.ndarray:
    """Ends (N, 2) of the intervals of all values."""
    ends = np.asarray(ends, dtype=np.float64)
    if ends.shape != (y.size, 2):
        checks.fail_value(f"{name} must have shape ({y.size}, 2); got {ends.shape}.")
    return ends


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

    Examples
    --------
    >>> from tensorcep import plots
    >>> plots.plot_reliability([0, 1, 1], [0.2, 0.8, 0.9]).get_title()
    'Calibration'
    """
    curve = reliability_curve(y, p, n_bins=n_bins, bins=bins)
    ax = axes_of(ax)
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
    return finish(ax, "Calibration", "predicted probability", "share of ones")


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

    Examples
    --------
    >>> from tensorcep import plots
    >>> plots.plot_coverage([1.0, 2.0], {0.5: [[0.5, 1.5], [2.5, 3.5]]}).get_title()
    'Coverage of intervals'
    """
    (y,) = checks.check_vectors(y=y)
    checks.check_not_empty(len(intervals), "intervals")
    levels = np.array(sorted(checks.check_fraction("a level of intervals", level) for level in intervals))
    shares = []
    for level in levels:
        ends = _checked_ends(f"intervals[{level:g}]", intervals[level], y)
        shares.append(covered_share(y, ends[:, 0], ends[:, 1]))
    ax = axes_of(ax)
    ax.plot([0, 1], [0, 1], color=GUIDE, linewidth=1, label="nominal")
    low, high = (binom.ppf(q, y.size, levels) / y.size for q in (0.05, 0.95))
    ax.vlines(levels, low, high, color=GUIDE, linewidth=5, alpha=0.35, label="90 % range of chance")
    ax.plot(levels, shares, "o", color=MAIN, markersize=5, label="observed")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02), aspect="equal")
    ax.legend(loc="upper left", frameon=False)
    ax.text(0.98, 0.03, f"{y.size:,} entries", transform=ax.transAxes, ha="right")
    return finish(ax, "Coverage of intervals", "level of the interval", "share of values inside")
