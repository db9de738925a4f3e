"""What a fitted model found: one component of one mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.cp.inputs.coordinates import mode_of, names_of
from tensorcep.plots.axes import GUIDE, MAIN, axes_of, finish, shown
from tensorcep.plots.subjects import is_of_matrices

# Rows of a component from which on their labels are small, so that they do not touch.
CROWDED = 20


def plot_component(
    model: Any,
    mode: Any,
    component: int = 0,
    *,
    coverage: float = 0.9,
    max_rows: int = 30,
    sort: str | None = None,
    ax: Any = None,
) -> Any:
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

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no such mode or component, or the component is held at 1 in this mode.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import CPRegressor, plots
    >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
    >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
    >>> plots.plot_component(model, "item", 1, ax=Figure().subplots()).get_title()
    'item, component 1'
    """
    check_is_fitted(model, "posterior_")
    if is_of_matrices(model):
        fail_value(
            f"plot_component is for CP models; got {type(model).__name__}; use plot_components or plot_top_rows."
        )
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
