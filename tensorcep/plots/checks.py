"""How a fit went and where it fails: traces and ranks of chains, gaps of the data, residuals, forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_choice, check_fraction, check_int, fail_value
from tensorcep.cp.inputs.coordinates import by_mode, labels_at, mode_of, names_of, rows_of
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.factor_models.results import observed_cells
from tensorcep.plots.components import CROWDED, part_of, places_in_order, position
from tensorcep.plots.style import ACCENT, GUIDE, MAIN, axes_of, finish, line_look, log_if_wide, shown, text_of

RANK_BINS = 20


def plot_trace(model: Any, X: Any, *, kind: str = "trace", matrix: Any = 0, ax: Any = None) -> Any:
    """Draw the chains of a sampler's fit: the latent value of one cell from draw to draw, or the ranks of its draws.

    Chains that agree cross each other all the time, and their ranks are spread evenly.

    Parameters
    ----------
    model : CP estimator or factor model fitted by a sampler
    X : one entry, as in `predict` (of a factor model as in `predict_cells`)
    kind : {"trace", "ranks"}, default="trace"
    matrix : name or position, default=0
        Of a factor model of several: the matrix that the cell is of.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, Gibbs, plots, simulate_cp
    >>> tensor = simulate_cp((6, 5), 1, 30, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method=Gibbs(n_chains=2), interactions="cp", max_iter=150, random_state=0).fit(tensor)
    >>> plots.plot_trace(model, tensor.coords[:1]).get_title()
    'Trace'
    """
    check_choice("kind", kind, ("trace", "ranks"))
    draws = model.latent_draws(X, matrix)
    if draws.shape[2] != 1:
        fail_value(f"X must be one entry; got {draws.shape[2]}.")
    draws = np.asarray(draws[:, :, 0])
    ax, legend = axes_of(ax), {"frameon": False, "ncols": min(4, len(draws)), "fontsize": "small"}
    looks = [{**line_look(c), "label": f"chain {c}"} for c in range(len(draws))]
    if kind == "trace":
        for chain, look in zip(draws, looks, strict=True):
            ax.plot(np.arange(1, len(chain) + 1), chain, linewidth=0.9, alpha=0.8, **look)
        ax.legend(**legend)
        return finish(ax, "Trace", "draw", "latent value")
    ranks = draws.ravel().argsort().argsort().reshape(draws.shape)
    edges = np.linspace(0, draws.size, RANK_BINS + 1)
    for chain, look in zip(ranks, looks, strict=True):
        ax.stairs(np.histogram(chain, edges)[0], edges, **look)
    ax.axhline(draws.shape[1] / RANK_BINS, color=GUIDE, linestyle="--", linewidth=1)
    ax.set_ylim(bottom=0.0)
    ax.legend(**legend)
    return finish(ax, "Ranks of the draws", "rank among all chains", "draws")


def plot_gaps(tensor: Any, modes: tuple[Any, Any] = (0, 1), *, max_rows: int = 400, ax: Any = None) -> Any:
    """Draw how many entries each pair of rows of two modes has; white pairs have none.

    Parameters
    ----------
    tensor : SparseTensor, matrix with gaps, or dict of matrices of the same rows
        A matrix is a frame or an array with NaN, or sparse. Of views by name the share of a row's cells that each view
        has is drawn.
    modes : two modes, by name or position, default=(0, 1)
    max_rows : int, default=400
        Larger modes are drawn in as many bins of neighbouring rows.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import SparseTensor, plots
    >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0]], [1.0, 2.0, 3.0])
    >>> plots.plot_gaps(tensor).get_title()
    '75 % of the pairs have entries'
    """
    if isinstance(tensor, Mapping):  # a line per view and a column per row of all
        cells, ax = {name: observed_cells(view) for name, view in tensor.items()}, axes_of(ax)
        n = max(one.shape[0] for one in cells.values())
        shares = np.stack([np.bincount(one.coords[:, 0], minlength=n) / one.shape[1] for one in cells.values()])
        percent = np.where(shares > 0.0, 100 * shares, np.nan)
        image = ax.imshow(percent, cmap="viridis", vmin=0.0, vmax=100.0, aspect="auto", interpolation="nearest")
        ax.set_yticks(np.arange(len(cells)), [shown(f"{name} ({one.shape[1]})") for name, one in cells.items()])
        ax.figure.colorbar(image, ax=ax, label="% of the row's cells", shrink=0.8)
        return finish(ax, f"{np.count_nonzero((shares > 0).all(axis=0))} of {n} rows are in all views", "row", "")
    is_matrix = not isinstance(tensor, SparseTensor)
    tensor = observed_cells(tensor) if is_matrix else tensor
    names = ["matrix", "matrix"] if is_matrix else names_of(tensor.labels)
    a, b = (mode_of(tensor.labels, mode) for mode in modes)
    most = check_int("max_rows", max_rows)
    sizes = [min(tensor.shape[k], most) for k in (a, b)]
    edges = [np.linspace(0, tensor.shape[k], size + 1) for k, size in zip((a, b), sizes, strict=True)]
    counts, _, _ = np.histogram2d(tensor.coords[:, a], tensor.coords[:, b], bins=edges)
    ax = axes_of(ax)
    image = ax.imshow(np.where(counts > 0.0, counts, np.nan), cmap="viridis", aspect="auto", interpolation="nearest",
                      extent=(0, tensor.shape[b], tensor.shape[a], 0))  # fmt: skip
    if counts.max() > 1.0:
        ax.figure.colorbar(image, ax=ax, label="entries", shrink=0.8)
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    share, along = np.count_nonzero(counts) / counts.size, "column" if is_matrix else "row"
    return finish(ax, f"{100 * share:.3g} % of the pairs have entries", f"{along} of {names[b]}", f"row of {names[a]}")


def _scores(model: Any, X: Any, y: Any, matrix: Any) -> Any:
    """Observations with what is predicted of them: a table with columns of the modes, value, mean, sd."""
    return model.anomaly_score(X, y, **({"part": matrix} if matrix != 0 else {}))


def plot_residuals(
    model: Any, X: Any, y: Any = None, *, mode: Any = 0, max_rows: int = 40, matrix: Any = 0, ax: Any = None
) -> Any:
    """Draw standardised residuals by the rows of a mode: rows that the model does not fit stand out.

    Parameters
    ----------
    model : CPRegressor, CPCountRegressor or factor model
    X, y : entries and their values; a SparseTensor brings its own
        Of a factor model the matrix that it was fitted to, or a SparseTensor of some of its cells.
    mode : name or position, default=0
        Of a factor model 0 are the rows, 1 the columns of the matrix.
    max_rows : int, default=40
        Where the mode has more rows, those with the largest mean square of residuals are drawn.
    matrix : name or position, default=0
        Of a factor model of several.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
    >>> plots.plot_residuals(model, tensor).get_title()
    'Residuals by mode_0'
    """
    part = part_of(model, matrix)
    scores, k = _scores(model, X, y, matrix), position(part, mode)
    name = part.modes[k]
    z = ((scores["value"] - scores["mean"]) / scores["sd"]).to_numpy()
    groups = pd.Series(z).groupby(scores.iloc[:, k].to_numpy(), sort=True)
    size = groups.apply(lambda own: float(np.mean(own**2)))
    kept = size.sort_values(ascending=False).index[: check_int("max_rows", max_rows)]
    rows = {label: row for row, label in enumerate(labels_at(part.labels, k, np.arange(part.shape[k])))}
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
    crowded = "small" if len(order) > CROWDED else None
    ax.set_yticks(np.arange(len(order)), [text_of(label) for label in order], fontsize=crowded)
    ax.invert_yaxis()
    title = f"Residuals by {name}" + ("" if len(order) == len(size) else f", {len(order)} worst of {len(size)}")
    return finish(ax, title, "(observed - predicted) / standard deviation", "")


def plot_forecast(
    model: Any, mode: Any, given: Any, *, X: Any = None, y: Any = None, coverage: float = 0.9, matrix: Any = 0,
    ax: Any = None,
) -> Any:  # fmt: skip
    """Draw the predictions of one entity over all rows of an ordered mode, with intervals, and what was observed.

    Parameters
    ----------
    model : CPRegressor, CPCountRegressor or factor model
    mode : name or position
        The mode to go along; of a factor model the rows (0) or the columns (1) of the matrix.
    given : dict
        The row of every other mode.
    X, y : entries and their values, optional
        Those of the same entity are drawn.
    coverage : float, default=0.9
        Of the intervals of a new observation.
    matrix : name or position, default=0
        Of a factor model of several.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> plots.plot_forecast(model, 1, {0: 5, 2: 0}).get_xlabel()
    'mode_1'
    """
    part, level = part_of(model, matrix), check_fraction("coverage", coverage)
    k = position(part, mode)
    fixed = by_mode(part.labels, {position(part, name): row for name, row in given.items()})
    missing = [part.modes[j] for j in range(len(part.modes)) if j not in fixed and j != k]
    if missing:
        fail_value(f"given must name a row of every other mode; there is none of {', '.join(map(repr, missing))}.")
    known, n = part.labels[k], part.shape[k]
    rows = [np.arange(n) if j == k else np.repeat(rows_of(part.labels, part.shape, j, fixed[j]), n)
            for j in range(len(part.shape))]  # fmt: skip
    cells: Any = np.stack(rows, axis=1)
    if any(own is not None for own in part.labels):
        cells = pd.DataFrame({name: labels_at(part.labels, j, rows[j]) for j, name in enumerate(part.modes)})
    labels, places = labels_at(part.labels, k, np.arange(n)), places_in_order(known)
    at = np.arange(n) if places is None else places
    order = np.argsort(at, kind="stable")
    law = model.predictive(cells, matrix)
    mean, interval = law.mean[order], law.interval(level)[order]
    ax = axes_of(ax)
    ax.fill_between(at[order], *interval.T, color=MAIN, alpha=0.2, linewidth=0, label=f"{100 * level:g} % interval")
    ax.plot(at[order], mean, "o-", color=MAIN, markersize=3, label="predicted")
    if X is not None:
        seen = _scores(model, X, y, matrix)
        own = np.ones(len(seen), dtype=bool)
        for j, value in fixed.items():
            own &= (seen.iloc[:, j] == value).to_numpy()
        place = dict(zip(labels, at, strict=True))
        ax.plot([place[label] for label in seen.loc[own].iloc[:, k]], seen.loc[own, "value"], "o", color=ACCENT,
                markersize=4, label="observed")  # fmt: skip
    if places is None:
        ax.set_xticks(at, [text_of(label) for label in labels], rotation=30, ha="right")
    else:
        ax.tick_params(axis="x", labelrotation=30 if at.dtype.kind == "M" else 0)
        log_if_wide(ax, at)
    ax.legend(frameon=False)
    return finish(ax, ", ".join(str(value) for value in fixed.values()), str(part.modes[k]), "value")
