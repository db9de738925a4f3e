"""Predictions beside what was observed, and how well their uncertainty holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import binom

from tensorcep.core.checks import check_fraction, check_int, check_not_empty, check_positive, check_vectors, fail_value
from tensorcep.metrics import Bins, reliability_curve
from tensorcep.metrics import coverage as covered_share
from tensorcep.plots.axes import ACCENT, GUIDE, MAIN, axes_of, finish


def plot_predictions(
    y: ArrayLike,
    mean: ArrayLike,
    sd: ArrayLike | None = None,
    *,
    coverage: float = 0.9,
    intervals: ArrayLike | None = None,
    n_bars: int = 40,
    ax: Any = None,
) -> Any:
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
        Where to draw; they, or new ones, are returned.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import plots
    >>> plots.plot_predictions([1.0, 2.0], [1.1, 1.8], [0.2, 0.2], ax=Figure().subplots()).get_xlabel()
    'observed'
    """
    y, mean = check_vectors(y=y, mean=mean)
    coverage = check_fraction("coverage", coverage)
    ends_of = _gaussian_ends(y, mean, sd, coverage) if intervals is None else _checked_ends("intervals", intervals, y)
    lower, upper = ends_of.T
    n_bars = min(check_int("n_bars", n_bars, 0), y.size)
    ax = axes_of(ax)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, color=GUIDE, linewidth=1, label="predicted = observed")
    alpha = float(np.clip(1500.0 / y.size, 0.08, 0.8))  # a cloud shows its density
    ax.scatter(y, mean, s=7, color=MAIN, alpha=alpha, linewidths=0, rasterized=True)
    shown = np.argsort(y, kind="stable")[np.linspace(0, y.size - 1, n_bars).astype(int)]
    ax.errorbar(
        y[shown],
        0.5 * (lower + upper)[shown],  # a mean need not be in the middle of its interval, nor inside
        yerr=0.5 * (upper - lower)[shown],
        fmt="none",
        linewidth=1,
        color=ACCENT,
        label=f"{100 * coverage:g} % interval, drawn for {n_bars} of {y.size:,}",
    )
    ax.plot(y[shown], mean[shown], "o", markersize=3, color=ACCENT)
    share = covered_share(y, lower, upper)
    ax.legend(loc="upper left", frameon=False)
    text = f"{100 * share:.1f} % of all {y.size:,} intervals\nhold the observed value"
    ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", color=ACCENT)
    return finish(ax, "Predictions", "observed", "predicted")


def _gaussian_ends(y: np.ndarray, mean: np.ndarray, sd: ArrayLike | None, coverage: float) -> np.ndarray:
    """Ends (N, 2) of the central intervals of Gaussian predictions."""
    if sd is None:
        fail_value("sd is needed where no intervals are given; pass one of the two.")
    _, sd = check_vectors(y=y, sd=sd)
    check_positive("sd", sd)
    half = ndtri(0.5 + 0.5 * coverage) * sd
    return np.stack([mean - half, mean + half], axis=1)


def _checked_ends(name: str, ends: ArrayLike, y: np.ndarray) -> np.ndarray:
    """Ends (N, 2) of the intervals of all values."""
    ends = np.asarray(ends, dtype=np.float64)
    if ends.shape != (y.size, 2):
        fail_value(f"{name} must have shape ({y.size}, 2); got {ends.shape}.")
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
        Where to draw; they, or new ones, are returned.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import plots
    >>> plots.plot_reliability([0, 1, 1], [0.2, 0.8, 0.9], ax=Figure().subplots()).get_title()
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
        Where to draw; they, or new ones, are returned.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import plots
    >>> plots.plot_coverage([1.0, 2.0], {0.5: [[0.5, 1.5], [2.5, 3.5]]}, ax=Figure().subplots()).get_title()
    'Coverage of intervals'
    """
    (y,) = check_vectors(y=y)
    check_not_empty(len(intervals), "intervals")
    levels = np.array(sorted(check_fraction("a level of intervals", level) for level in intervals))
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
