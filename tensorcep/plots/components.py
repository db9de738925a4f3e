"""Figures of components, for tensors and matrices alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.core.fitted import Part
from tensorcep.cp.inputs.coordinates import mode_of, names_of
from tensorcep.entries.labels import Labels
from tensorcep.plots.style import ACCENT, GUIDE, MAIN, axes_of, finish, log_if_wide, point_look, pyplot, shown, text_of


class Panel(NamedTuple):
    """The weights of the rows of a mode, of an entity or of a matrix's columns."""

    name: Any
    weights: pd.DataFrame  # a column of rows first; then at least component, mean, lower and upper
    labels: Labels | None


class ShownComponents(NamedTuple):
    """The components that are worth a figure: their numbers, the largest first, their shares (n,), and panels."""

    components: list[int]
    shares: list[float]
    panels: list[Panel]


def components_of(model: Any) -> ShownComponents:
    """The components of several modes of a CP model, or those of a factor model, with the weights of all rows."""
    parts, table = model.parts_, model.variance_explained()
    known = {name: own for part in parts for name, own in zip(part.modes, part.labels, strict=True)}
    if hasattr(model, "column_modes_"):
        table = table[[len(model.column_modes_[r]) > 1 for r in table["component"]]]
        if table.empty:
            fail_value("the figure needs a component of several modes; the model has main effects alone.")
        panels = [Panel(name, model.components(name), own) for name, own in known.items()]
        return ShownComponents(table["component"].tolist(), table["share"].tolist(), panels)
    if hasattr(model, "scores_"):  # one matrix, or views of the same rows
        names = ["columns"] if len(parts) == 1 else [part.name for part in parts]
        panels = [Panel("rows", model.scores_frame(0), parts[0].labels[0])]
        panels += [Panel(names[m], model.components(m), part.labels[1]) for m, part in enumerate(parts)]
    else:
        panels = [Panel(name, model.scores_frame(name), own) for name, own in known.items()]
    shares = table.mean(axis=0).to_numpy()
    order = np.argsort(-shares, kind="stable")
    return ShownComponents(order.tolist(), shares[order].tolist(), panels)


def part_of(model: Any, part: Any) -> Part:
    """The part that is drawn, by its name or position."""
    parts: Sequence[Part] = model.parts_
    names = [one.name for one in parts]
    if isinstance(part, str):
        return parts[names.index(check_choice("matrix", part, names))]
    return parts[check_int("matrix", part, 0, len(parts) - 1)]


def position(part: Part, mode: Any) -> int:
    """Which mode a name or a position is."""
    if mode in part.modes and not isinstance(mode, bool):
        return part.modes.index(mode)
    return mode_of(part.labels, mode)


CROWDED = 20  # rows of a component from which on their labels are small, so that they do not touch


def plot_component(
    model: Any, mode: Any, component: int = 0, *, coverage: float = 0.9, max_rows: int = 30, sort: str | None = None,
    ax: Any = None,
) -> Any:  # fmt: skip
    """Draw one component of one mode: the posterior mean of every row's weight, with its interval.

    Weights are those of ``model.components(mode)``, of norm 1 in every mode.

    Parameters
    ----------
    model : fitted CP estimator
    mode : name or position
    component : int, default=0
        Its column in `factors_`.
    coverage : float, default=0.9
        Of the central intervals.
    max_rows : int, default=30
        Where the mode has more rows, those of the largest weights are drawn, and the title says so.
    sort : {"value"}, optional
        Order by weight; default: the order of the rows.
    ax : matplotlib Axes, optional

    Raises
    ------
    ValueError
        If there is no such mode or component, or the component is held at 1 in this mode.

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> plots.plot_component(model, 1, 3).get_title()
    'mode_1, component 3'
    """
    check_is_fitted(model, "posterior_")
    if not hasattr(model, "column_modes_"):
        got = f"plot_component is for CP models; got {type(model).__name__}"
        fail_value(f"{got}; use plot_components or plot_top_rows.")
    name = names_of(model.labels_)[mode_of(model.labels_, mode)]
    component = check_int("component", component, 0, model.posterior_.rank - 1)
    if sort is not None:
        check_choice("sort", sort, ("value",))
    table = model.components(mode, coverage)
    own = table[table["component"] == component]
    if not len(own):
        there = sorted({int(r) for r in table["component"]})
        fail_value(f"component must be one of {there}, the columns that {name} has a part in; got {component}.")
    weight, labels = own["mean"].to_numpy(), own.iloc[:, 0].array
    half = own["upper"].to_numpy() - weight
    rows = np.sort(np.argsort(-np.abs(weight), kind="stable")[: check_int("max_rows", max_rows)])
    if sort is not None:
        rows = rows[np.argsort(-weight[rows], kind="stable")]
    ax = axes_of(ax)
    at = np.arange(rows.size)
    ax.axvline(0.0, color=GUIDE, linewidth=1)
    ax.errorbar(weight[rows], at, xerr=half[rows], fmt="o", color=MAIN, markersize=4, linewidth=1.2)
    ax.set_yticks(at, [shown(labels[row]) for row in rows], fontsize=None if rows.size <= CROWDED else "small")
    ax.set_ylim(rows.size - 0.4, -0.6)
    part = "" if rows.size == weight.size else f", {rows.size} largest of {weight.size}"
    return finish(ax, f"{name}, component {component}{part}", f"weight, {100 * coverage:g} % interval", "")


# Text labels that count as ordered: one number each, the same text around it.
ONE_NUMBER = re.compile(r"^(\D*?)(-?\d+(?:\.\d+)?)(\D*)$")


def places_in_order(labels: Any) -> np.ndarray | None:
    """Where rows lie on a line if their mode is ordered (numbers, times, "6h" and "12h"); None if it is not."""
    if labels is None:
        return None
    index = labels.index
    if isinstance(index, pd.PeriodIndex):
        return np.asarray(index.to_timestamp())
    if isinstance(index, pd.IntervalIndex):
        return np.asarray(index.mid)
    if pd.api.types.is_numeric_dtype(index.dtype) or pd.api.types.is_datetime64_any_dtype(index.dtype):
        return np.asarray(index)
    found = [ONE_NUMBER.match(item) if isinstance(item, str) else None for item in index.tolist()]
    texts = {(item.group(1), item.group(3)) for item in found if item is not None}
    if None in found or len(texts) != 1 or not next(iter(texts))[1].strip():
        return None  # "u1", "u2" are names, "6h", "12h" are times
    return np.array([float(item.group(2)) for item in found if item is not None])


def plot_components(
    model: Any, *, n_components: int = 4, max_rows: int = 12, ordered: Sequence[Any] = (), figure: Any = None
) -> Any:
    """Draw a grid: a row for each of the largest components, a column per mode, with 90 % intervals.

    Over an ordered mode (numbers, times, "6h" and "12h") weights are a line with a ribbon, otherwise dots of the rows
    of the largest weights. Of a CP model the components of all modes are drawn; of a factor model a column holds the
    scores of its rows, one the loadings of each matrix (of a collective factorisation one each entity).

    Parameters
    ----------
    model : fitted CP estimator or factor model
    n_components : int, default=4
    max_rows : int, default=12
        Dots in a panel.
    ordered : modes, optional
        Further modes (by name or position) to draw as lines, in the order of their rows.
    figure : matplotlib Figure, optional
        Default: a new one; it is returned.

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> len(plots.plot_components(model, n_components=1).axes)
    3
    """
    found, n = components_of(model), check_int("n_components", n_components)
    chosen, panels = found.components[:n], found.panels
    names = [panel.name for panel in panels]
    named = [mode in names and not isinstance(mode, bool) for mode in ordered]
    lines = {names.index(mode) if known else check_int("ordered", mode, 0, len(names) - 1)
             for mode, known in zip(ordered, named, strict=True)}  # fmt: skip
    if figure is None:
        figure = pyplot().figure(figsize=(3.2 * len(panels), 0.6 + 1.9 * len(chosen)), layout="constrained")
    grid = figure.subplots(len(chosen), len(panels), squeeze=False)
    for r, share, axes in zip(chosen, found.shares, grid, strict=False):
        for k, (panel, ax) in enumerate(zip(panels, axes, strict=True)):
            own = panel.weights[panel.weights["component"] == r]
            if own.empty:
                ax.set_axis_off()
                continue
            places = places_in_order(panel.labels)
            if places is None and k in lines:
                places = np.arange(len(own))
            _weights(ax, own, places, max_rows)
            title = f"{panel.name}" if k else f"component {r}, {100 * share:.0f} %: {panel.name}"
            ax.set_title(shown(title), fontsize="medium", loc="left")
    return figure


def _weights(ax: Any, own: pd.DataFrame, places: np.ndarray | None, max_rows: int) -> None:
    """One panel of weights with their intervals."""
    ax.spines[["top", "right"]].set_visible(False)
    if places is not None:
        order = np.argsort(places, kind="stable")  # rows that joined later may lie between others
        own, places = own.iloc[order], places[order]
        ax.axhline(0.0, color=GUIDE, linewidth=1)
        ax.fill_between(places, own["lower"], own["upper"], color=MAIN, alpha=0.25, linewidth=0)
        ax.plot(places, own["mean"], "o-", color=MAIN, markersize=3, linewidth=1.2)
        ax.tick_params(axis="x", labelrotation=30 if places.dtype.kind == "M" else 0)
        log_if_wide(ax, places)
        return
    rows = np.sort(np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:max_rows])
    part, at = own.iloc[rows], np.arange(len(rows))
    ax.axvline(0.0, color=GUIDE, linewidth=1)
    ax.hlines(at, part["lower"], part["upper"], color=MAIN, linewidth=1.2)
    ax.plot(part["mean"], at, "o", color=MAIN, markersize=3.5)
    ax.set_yticks(at, [text_of(label) for label in part.iloc[:, 0]], fontsize="small")
    ax.set_ylim(len(rows) - 0.5, -0.5)


def plot_top_rows(model: Any, mode: Any, *, n_rows: int = 20, n_components: int = 8, ax: Any = None) -> Any:
    """Draw a heat map of the weights of a mode's most telling rows in the largest components.

    Parameters
    ----------
    model : fitted CP estimator or factor model
    mode : name or position
        Of a factor model the matrix, whose columns are drawn.
    n_rows : int, default=20
        Rows, those with the largest weight in any of the components.
    n_components : int, default=8
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> plots.plot_top_rows(model, 1).get_title()
    'Largest weights of mode_1'
    """
    table = model.components(mode)
    name, chosen = table.columns[0], table["component"].unique()[: check_int("n_components", n_components)]
    unit = "weight (norm 1)" if "weight" in table else "loading"
    rows = table[name].unique()
    wide = np.stack([table.loc[table["component"] == r, "mean"].to_numpy() for r in chosen], axis=1)
    kept = np.sort(np.argsort(-np.abs(wide).max(axis=1), kind="stable")[: check_int("n_rows", n_rows)])
    ax, largest = axes_of(ax), float(np.abs(wide).max())
    image = ax.imshow(wide[kept], cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    ax.set_yticks(np.arange(len(kept)), [text_of(rows[i]) for i in kept], fontsize="small")
    ax.set_xticks(np.arange(len(chosen)), [str(r) for r in chosen])
    ax.figure.colorbar(image, ax=ax, label=unit, shrink=0.8)
    return finish(ax, f"Largest weights of {name}", "component", "")


def plot_variance_explained(explained: Any, *, kind: str = "bars", max_components: int = 20, ax: Any = None) -> Any:
    """Draw what components explain: a bar each, or a scree with the sum; of several views a heat map.

    Parameters
    ----------
    explained : DataFrame
        What ``model.variance_explained()`` returns: of a factor model a row per matrix and a column per component.
    kind : {"bars", "scree"}, default="bars"
        Of several views the bars are a heat map; a scree has a line for each.
    max_components : int, default=20
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> plots.plot_variance_explained(model.variance_explained()).get_title()
    'Variance explained'
    """
    check_choice("kind", kind, ("bars", "scree"))
    if "share" not in explained.columns:
        table = explained.iloc[:, : check_int("max_components", max_components)]
        if kind == "scree":
            return _scree_of_views(table, axes_of(ax))
        if len(table) > 1:
            return _views(table, axes_of(ax))
        values, what = 100 * table.iloc[0].to_numpy(dtype=float), "variance"
        names, colours = list(table.columns), [MAIN] * len(values)
    else:
        table = explained.head(check_int("max_components", max_components))
        gain = "r2" if "r2" in table else "share"
        values, what = 100 * table[gain].to_numpy(), "variance of the data" if gain == "r2" else "latent variance"
        names = [f"{r}: {part}" for r, part in zip(table["component"], table["part"], strict=True)]
        colours = [MAIN if " x " in part or part == "all modes" else GUIDE for part in table["part"]]
    at, ax = np.arange(len(values)), axes_of(ax)
    if kind == "scree":
        ax.plot(at + 1, values, "o-", color=MAIN, markersize=4, label="each")
        ax.plot(at + 1, np.cumsum(values), "s--", color=ACCENT, markersize=4, label="together")
        ax.legend(frameon=False)
        ax.set_ylim(bottom=0.0)
        ax.xaxis.get_major_locator().set_params(integer=True)
        return finish(ax, "Scree", "components, the largest first", f"% of the {what}")
    ax.barh(at, values, color=colours)
    ax.set_yticks(at, [shown(name) for name in names])
    ax.invert_yaxis()
    return finish(ax, "Variance explained", f"% of the {what}", "component")


def _views(table: pd.DataFrame, ax: Any) -> Any:
    """A heat map with a row per view."""
    values = 100 * table.to_numpy(dtype=float)
    image = ax.imshow(values, cmap="Blues", vmin=0.0, aspect="auto")
    ax.set_yticks(np.arange(len(table)), [shown(view) for view in table.index])
    ax.set_xticks(np.arange(values.shape[1]), [shown(column) for column in table.columns])
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            colour = "white" if value > 0.6 * values.max() else "black"
            ax.text(j, i, f"{value:.0f}", ha="center", va="center", color=colour)
    ax.figure.colorbar(image, ax=ax, label="% of the view's variance", shrink=0.8)
    return finish(ax, "Variance explained by view", "component", "")


def _scree_of_views(table: pd.DataFrame, ax: Any) -> Any:
    """What the components of each view explain together, the largest first."""
    at = np.arange(1, table.shape[1] + 1)
    for place, (name, row) in enumerate(table.iterrows()):
        each = np.sort(100 * row.to_numpy(dtype=float))[::-1]
        look = {**point_look(place), "markersize": 4}
        ax.plot(at, each, "-", label=shown(name), **look)
        ax.plot(at, np.cumsum(each), "--", **look)
    ax.plot([], [], "--", color=GUIDE, label="together")
    ax.legend(frameon=False)
    ax.set_ylim(bottom=0.0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return finish(ax, "Scree", "components, the largest of the view first", "% of the view's variance")


def plot_scores(
    scores: Any, color: Any = None, *, columns: tuple[int, int] = (0, 1), name: str = "", ax: Any = None
) -> Any:
    """Draw two columns of scores against each other, coloured by a covariate of the rows.

    Parameters
    ----------
    scores : array-like of shape (n, R)
        Such as what `transform` of a factor model returns, or ``model.factors_[k]``.
    color : array-like of shape (n,), optional
        Numbers, shown as a scale, or anything else, shown as groups.
    columns : tuple of two int, default=(0, 1)
    name : str, optional
        What `color` is called.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import plots
    >>> plots.plot_scores(np.eye(3, 2), ["a", "b", "a"]).get_xlabel()
    'component 0'
    """
    values = np.asarray(scores, dtype=float)
    a, b = (check_int("columns", c, 0, values.shape[1] - 1) for c in columns)
    ax = axes_of(ax)
    ax.axhline(0.0, color=GUIDE, linewidth=0.6)
    ax.axvline(0.0, color=GUIDE, linewidth=0.6)
    given = None if color is None else pd.Series(color).reset_index(drop=True)
    if given is not None and len(given) != len(values):
        fail_value(f"color must hold one value for each of the {len(values)} rows; got {len(given)}.")
    if given is None:
        ax.scatter(values[:, a], values[:, b], s=18, color=MAIN)
    elif pd.api.types.is_numeric_dtype(given.dtype):
        drawn = ax.scatter(values[:, a], values[:, b], s=18, c=given, cmap="viridis")
        ax.figure.colorbar(drawn, ax=ax, label=shown(name), shrink=0.8)
    else:
        for place, (group, own) in enumerate(given.groupby(given, sort=True, observed=True)):
            ax.scatter(values[own.index, a], values[own.index, b], s=18, label=shown(group), **point_look(place))
        ax.legend(frameon=False, title=shown(name) or None)
    return finish(ax, "Scores", f"component {a}", f"component {b}")
