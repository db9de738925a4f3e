"""A component over an ordered mode: how the rows of a series drift."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.packing import offsets
from tensorcep.cp.inputs.coordinates import mode_of, names_of
from tensorcep.plots.axes import ACCENT, GUIDE, MAIN, axes_of, finish
from tensorcep.plots.components import places_in_order


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
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import CPRegressor, plots
    >>> cells = [(s, d, d % 4 + 0.1 * (s < "b")) for s in "abc" for d in range(12)]
    >>> days = pd.DataFrame(cells, columns=["shop", "day", "sold"])
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(days, value="sold")
    >>> plots.plot_series(model, "day", ax=Figure().subplots()).get_xlabel()
    'day'
    """
    check_is_fitted(model, "posterior_")
    k = mode_of(model.labels_, mode)
    places, name = _places(model, k), names_of(model.labels_)[k]
    if places is None:
        fail_value(f"plot_series needs an ordered mode; the labels of mode {name!r} have no order.")
    table = model.components(mode, coverage)
    chosen = int(table["component"].iloc[0]) if component is None else check_int("component", component, 0)
    own = table[table["component"] == chosen]
    if own.empty:
        fail_value(f"component must be one of {table['component'].unique().tolist()}, of mode {name!r}; got {chosen}.")
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


def _places(model: Any, k: int) -> np.ndarray | None:
    """Where the rows of a mode lie; None where it is not ordered."""
    labels, clock = model.labels_[k], model._result.series[k] if model._result.series else None
    if labels is None:
        return np.arange(model.shape_[k])
    found = places_in_order(labels)
    return getattr(clock, "times", None) if found is None else found
