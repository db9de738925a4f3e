"""How a fit went and where it fails: traces and ranks of chains, gaps of the data, residuals, forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_fraction, check_int, fail_value
from tensorcep.cp.estimators.modes import by_mode, labels_at, mode_of, names_of, rows_of
from tensorcep.plots.axes import ACCENT, GUIDE, MAIN, axes_of, finish
from tensorcep.plots.components import places_in_order

RANK_BINS = 20


def plot_trace(model: Any, X: Any, *, kind: str = "trace", ax: Any = None) -> Any:
    """Draw the chains of a sampler's fit: the latent value of one cell from draw to draw, or the ranks of its draws.

    Chains that agree cross each other all the time, and their ranks are spread evenly.

    Parameters
    ----------
    model : CP estimator fitted by a sampler
    X : one entry, as in `predict`
    kind : {"trace", "ranks"}, default="trace"
    ax : matplotlib Axes, optional
    """
    check_choice("kind", kind, ("trace", "ranks"))
    n_chains = model._fitted_belief().n_chains
    if not n_chains:
        fail_value(f"plot_trace needs chains, but method {model.method_!r} draws none; use method='gibbs'.")
    draws = _chains(model, X)
    ax = axes_of(ax)
    if kind == "trace":
        for c, chain in enumerate(draws):
            ax.plot(np.arange(1, len(chain) + 1), chain, linewidth=0.8, alpha=0.8, color=f"C{c}", label=f"chain {c}")
        ax.legend(frameon=False, ncols=min(4, n_chains), fontsize="small")
        return finish(ax, "Trace", "draw", "latent value")
    ranks = draws.ravel().argsort().argsort().reshape(draws.shape)
    edges = np.linspace(0, draws.size, RANK_BINS + 1)
    for c, chain in enumerate(ranks):
        ax.stairs(np.histogram(chain, edges)[0], edges, color=f"C{c}", label=f"chain {c}")
    ax.axhline(draws.shape[1] / RANK_BINS, color=GUIDE, linestyle="--", linewidth=1)
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, ncols=min(4, n_chains), fontsize="small")
    return finish(ax, "Ranks of the draws", "rank among all chains", "draws")


def _chains(model: Any, X: Any) -> np.ndarray:
    """Draws (chains, draws) of the latent value of one entry."""
    draws = model._chain_draws(X)
    if draws.shape[2] != 1:
        fail_value(f"X must be one entry; got {draws.shape[2]}.")
    return np.asarray(draws[:, :, 0])


def plot_gaps(tensor: Any, modes: tuple[Any, Any] = (0, 1), *, max_rows: int = 400, ax: Any = None) -> Any:
    """Draw how many entries each pair of rows of two modes has; white pairs have none.

    Parameters
    ----------
    tensor : SparseTensor
    modes : two modes, by name or position, default=(0, 1)
    max_rows : int, default=400
        Larger modes are drawn in as many bins of neighbouring rows.
    ax : matplotlib Axes, optional
    """
    names = names_of(tensor.labels)
    a, b = (mode_of(tensor.labels, mode) for mode in modes)
    most = check_int("max_rows", max_rows)
    sizes = [min(tensor.shape[k], most) for k in (a, b)]
    edges = [np.linspace(0, tensor.shape[k], size + 1) for k, size in zip((a, b), sizes, strict=True)]
    counts, _, _ = np.histogram2d(tensor.coords[:, a], tensor.coords[:, b], bins=edges)
    ax = axes_of(ax)
    image = ax.imshow(np.where(counts > 0.0, counts, np.nan), cmap="viridis", aspect="auto", interpolation="nearest",
                      extent=(0, tensor.shape[b], tensor.shape[a], 0))  # fmt: skip
    ax.figure.colorbar(image, ax=ax, label="entries", shrink=0.8)
    share = np.count_nonzero(counts) / counts.size
    return finish(ax, f"{100 * share:.3g} % of the pairs have entries", f"row of {names[b]}", f"row of {names[a]}")


def plot_residuals(model: Any, X: Any, y: Any = None, *, mode: Any = 0, max_rows: int = 40, ax: Any = None) -> Any:
    """Draw standardised residuals by the rows of a mode: rows that the model does not fit stand out.

    Parameters
    ----------
    model : CPRegressor or CPCountRegressor
    X, y : entries and their values; a SparseTensor brings its own
    mode : name or position, default=0
    max_rows : int, default=40
        Where the mode has more rows, those with the largest mean square of residuals are drawn.
    ax : matplotlib Axes, optional
    """
    scores, k = model.anomaly_score(X, y), mode_of(model.labels_, mode)
    name = names_of(model.labels_)[k]
    z = ((scores["value"] - scores["mean"]) / scores["sd"]).to_numpy()
    groups = pd.Series(z).groupby(scores.iloc[:, k].to_numpy(), sort=True)
    size = groups.apply(lambda own: float(np.mean(own**2)))
    kept = size.sort_values(ascending=False).index[: check_int("max_rows", max_rows)]
    rows = {label: row for row, label in enumerate(labels_at(model.labels_, k, np.arange(model.shape_[k])))}
    order = sorted(kept, key=lambda label: rows.get(label, len(rows)))
    ax = axes_of(ax)
    for bound in (-2.0, 2.0):
        ax.axvline(bound, color=GUIDE, linestyle="--", linewidth=1)
    ax.axvline(0.0, color=GUIDE, linewidth=1)
    for place, label in enumerate(order):
        own = groups.get_group(label)
        odd = size[label] > 1.0 + 3.0 * np.sqrt(2.0 / len(own))
        alpha = float(np.clip(30.0 / len(own), 0.1, 0.8))
        ax.plot(own, np.full(len(own), place), "|", color=ACCENT if odd else MAIN, alpha=alpha, markersize=7)
    ax.set_yticks(np.arange(len(order)), [str(label) for label in order], fontsize="small" if len(order) > 20 else None)
    ax.invert_yaxis()
    title = f"Residuals by {name}" + ("" if len(order) == len(size) else f", {len(order)} worst of {len(size)}")
    return finish(ax, title, "(observed - predicted) / standard deviation", "")


def plot_forecast(
    model: Any, mode: Any, given: Any, *, X: Any = None, y: Any = None, coverage: float = 0.9, ax: Any = None
) -> Any:
    """Draw the predictions of one entity over all rows of an ordered mode, with intervals, and what was observed.

    Parameters
    ----------
    model : CPRegressor or CPCountRegressor
    mode : name or position
        The mode to go along.
    given : dict
        The row of every other mode.
    X, y : entries and their values, optional
        Those of the same entity are drawn.
    coverage : float, default=0.9
        Of the intervals of a new observation, and, darker, of the expected one.
    ax : matplotlib Axes, optional
    """
    check_is_fitted(model, "posterior_")
    k, fixed, names = mode_of(model.labels_, mode), by_mode(model.labels_, given), names_of(model.labels_)
    missing = [names[j] for j in range(len(names)) if j not in fixed and j != k]
    if missing:
        fail_value(f"given must name a row of every other mode; there is none of {', '.join(map(repr, missing))}.")
    n, level = model.shape_[k], check_fraction("coverage", coverage)
    rows = np.stack([np.arange(n) if j == k else np.repeat(rows_of(model.labels_, model.shape_, j, fixed[j]), n)
                     for j in range(len(names))], axis=1)  # fmt: skip
    cells: Any = rows
    if any(found is not None for found in model.labels_):
        cells = pd.DataFrame({names[j]: labels_at(model.labels_, j, rows[:, j]) for j in range(len(names))})
    places = places_in_order(model.labels_[k])
    at = np.arange(n) if places is None else places
    mean, interval = model.predict(cells), model.predict_interval(cells, level)
    ax = axes_of(ax)
    ax.fill_between(at, *interval.T, color=MAIN, alpha=0.2, linewidth=0, label=f"{100 * level:g} % of observations")
    ax.plot(at, mean, "o-", color=MAIN, markersize=3, label="predicted")
    if X is not None:
        seen = model.anomaly_score(X, y)
        own = np.ones(len(seen), dtype=bool)
        for j, value in fixed.items():
            own &= (seen.iloc[:, j] == value).to_numpy()
        place = dict(zip(labels_at(model.labels_, k, np.arange(n)), at, strict=True))
        ax.plot([place[label] for label in seen.loc[own].iloc[:, k]], seen.loc[own, "value"], "o", color=ACCENT,
                markersize=4, label="observed")  # fmt: skip
    if places is None:
        ax.set_xticks(at, [str(label) for label in labels_at(model.labels_, k, np.arange(n))], rotation=30, ha="right")
    elif at.dtype.kind == "M":
        ax.tick_params(axis="x", labelrotation=30)
    ax.legend(frameon=False)
    said = ", ".join(str(value) for value in fixed.values())
    return finish(ax, said, str(names[k]), "value")
