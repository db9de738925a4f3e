"""Fits beside each other: sweeps, methods, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_not_empty, check_range, check_vectors, fail_value
from tensorcep.plots.style import ACCENT, GUIDE, MAIN, axes_of, finish, shown

DECADE = 10.0  # the ratio of the most to the fewest seconds from which on they lie on a log scale


def plot_convergence(
    trace: Any, *, tol: float | None = None, anneal: int | None = None, diagnostics: Any = None, ax: Any = None
) -> Any:
    """Draw the relative change of the latent means in every sweep, on a log scale.

    Parameters
    ----------
    trace : fitted estimator or mapping
        The estimator, or its `trace_`.
    tol : float, optional
        The tolerance, drawn as a line.
    anneal : int, optional
        Sweeps at the start in which messages count more, shaded: the change jumps at their end.
    diagnostics : Diagnostics, optional
        The `diagnostics_` of a fitted estimator, whose table is written below.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> plots.plot_convergence(model, tol=model.tol).get_xlabel()
    'sweep'
    """
    if hasattr(trace, "get_params"):
        check_is_fitted(trace)
    trace = getattr(trace, "trace_", trace)
    if not isinstance(trace, Mapping) or "change" not in trace:
        got = sorted(trace) if isinstance(trace, Mapping) else type(trace).__name__
        fail_value(f"trace must be a fitted estimator or hold 'change', as its trace_ does; got {got}.")
    (change,) = check_vectors(change=trace["change"])
    if tol is not None:
        check_range("tol", tol, 0.0, include_low=False)
    ax = axes_of(ax)
    # A change of exactly 0 has no place on a log scale.
    ax.plot(np.arange(1, change.size + 1), np.where(change > 0.0, change, np.nan), "o-", color=MAIN, markersize=4)
    if anneal:
        member = np.asarray(trace.get("member", np.zeros(change.size)))
        firsts = [0, *(np.flatnonzero(np.diff(member)) + 1)]  # fits of a mixture follow each other
        for place, first in enumerate(firsts):
            label = None if place else "annealed"
            ax.axvspan(first + 0.5, first + anneal + 0.5, color=GUIDE, alpha=0.15, linewidth=0, label=label)
    if tol is not None:
        ax.axhline(tol, color=GUIDE, linestyle="--", linewidth=1, label=f"tolerance {tol:g}")
    if anneal or tol is not None:
        ax.legend(loc="upper right", frameon=False)
    if diagnostics is not None:
        how = {"xycoords": "axes fraction", "va": "top", "family": "monospace", "fontsize": 6}
        ax.annotate(shown(diagnostics), (0.0, -0.2), annotation_clip=False, **how)
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return finish(ax, "Convergence", "sweep", "relative change of the latent means")


def plot_comparison(table: Any, *, y: str | None = None, ax: Any = None) -> Any:
    """Draw what every method needs, in seconds, against what it reaches.

    Parameters
    ----------
    table : DataFrame
        What `tensorcep.compare` returned.
    y : str, optional
        The column to draw; default: the first one, the accuracy.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorcep import plots
    >>> table = pd.DataFrame({"rmse": [0.5, 0.6], "seconds": [2.0, 0.1]}, index=["gibbs", "vmp"])
    >>> plots.plot_comparison(table).get_ylabel()
    'rmse'
    """
    columns = list(getattr(table, "columns", ()))
    if "seconds" not in columns:
        fail_value(f"table must be what tensorcep.compare returns; got {type(table).__name__}.")
    y = columns[0] if y is None else check_choice("y", y, columns)
    drawn = table[np.isfinite(table[y])]
    check_not_empty(len(drawn), f"the column {y!r}")
    ax = axes_of(ax)
    ax.scatter(drawn["seconds"], drawn[y], s=36, color=MAIN)
    for name, seconds, value in zip(drawn.index, drawn["seconds"], drawn[y], strict=True):
        ax.annotate(shown(name), (seconds, value), xytext=(6, 4), textcoords="offset points")
    if drawn["seconds"].min() > 0 and drawn["seconds"].max() >= DECADE * drawn["seconds"].min():
        ax.set_xscale("log")
    ax.margins(0.15)
    return finish(ax, "Comparison of methods", "seconds of the fit", y.replace("_", " "))


def plot_rank_scores(selection: Any, *, ax: Any = None) -> Any:
    """Draw the held-out log score of every rank: each fold, the mean, and what one standard error of the loss allows.

    The bar of a rank is the standard error of its difference to the best rank: a rank is as good as the best one by
    the one-standard-error rule if its bar reaches the dashed line, the best mean.

    Parameters
    ----------
    selection : RankSelection
        What `tensorcep.select_rank` returned.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, select_rank, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 150, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> found = select_rank(CPRegressor(method="vmp", interactions="cp"), tensor, ranks=[1, 2], cv=2, random_state=0)
    >>> plots.plot_rank_scores(found).get_xlabel()
    'rank'
    """
    if not hasattr(selection, "best_rank"):
        fail_value(f"selection must be what tensorcep.select_rank returns; got {type(selection).__name__}.")
    frame, ranks = selection.frame, selection.ranks
    ax = axes_of(ax)
    ax.plot(ranks, selection.scores, color=GUIDE, linewidth=0.8, alpha=0.6)
    ax.axhline(frame["mean"].max(), color=GUIDE, linestyle="--", linewidth=1)
    ax.errorbar(ranks, frame["mean"], yerr=frame["loss_error"], fmt="o-", color=MAIN, markersize=4, linewidth=1.2)
    ax.plot([selection.rank], [frame.loc[selection.rank, "mean"]], "o", color=ACCENT, markersize=8, zorder=3)
    ax.set_xticks(ranks)
    title = f"Rank {selection.rank} of the data, best {selection.best_rank}"
    return finish(ax, title, "rank", "log score of a held-out entry")
