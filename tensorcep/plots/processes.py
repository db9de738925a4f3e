"""Gaussian processes: a map of two features with its uncertainty, and a rate with its band."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.checks import check_fraction, check_int, check_matrix, fail_value
from tensorcep.plots.axes import ACCENT, GUIDE, MAIN, axes_of, finish, shown

# Of the range of the points, drawn beyond them.
MARGIN = 0.1


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
        Where to draw; they, or new ones, are returned.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from tensorcep import GaussianProcessClassifier, plots
    >>> X, y = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), [0, 1, 0]
    >>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
    >>> plots.plot_decision(model, X, y, n_grid=5, ax=Figure().subplots()).get_xlabel()
    'feature 0'
    """
    X, y = check_matrix("X", X), np.asarray(y)
    check_fraction("coverage", coverage)
    check_int("n_grid", n_grid, 2)
    if X.shape[1] != 2 or len(model.classes_) != 2:
        fail_value(f"X must have two features, and the model two classes; got {X.shape[1]} and {len(model.classes_)}.")
    if y.shape != (len(X),):
        fail_value(f"y must hold one label for each of the {len(X)} rows of X; got shape {y.shape}.")
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
        Where to draw; they, or new ones, are returned.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from matplotlib.figure import Figure
    >>> from tensorcep import GaussianProcessCountRegressor, plots
    >>> X, y = np.arange(6.0)[:, None], [2, 3, 1, 5, 8, 7]
    >>> model = GaussianProcessCountRegressor(RBF(2.0), optimizer=None).fit(X, y)
    >>> plots.plot_rate(model, X, y, n_grid=5, ax=Figure().subplots()).get_title()
    'Rate of counts'
    """
    X = check_matrix("X", X)
    check_fraction("coverage", coverage)
    check_int("n_grid", n_grid, 2)
    if X.shape[1] != 1:
        fail_value(f"X must have one feature to draw a rate over it; got {X.shape[1]}.")
    grid = np.linspace(X.min(), X.max(), n_grid)[:, None]
    band = model.predict_interval(grid, coverage, of="rate")
    ax = axes_of(ax)
    ax.fill_between(
        grid[:, 0], band[:, 0], band[:, 1], color=MAIN, alpha=0.25, linewidth=0, label=f"{100 * coverage:g} % band"
    )
    ax.plot(grid[:, 0], model.predict(grid), color=MAIN, linewidth=1.5, label="rate")
    if y is not None:
        y = np.asarray(y, dtype=np.float64)
        if y.shape != (len(X),):
            fail_value(f"y must hold one count for each of the {len(X)} rows of X; got shape {y.shape}.")
        ax.vlines(X[:, 0], 0.0, y, color=GUIDE, linewidth=0.8)
        ax.plot(X[:, 0], y, "o", color=ACCENT, markersize=3, label="counts")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    name = getattr(model, "feature_names_in_", ("x",))[0]
    return finish(ax, "Rate of counts", str(name), "count")
