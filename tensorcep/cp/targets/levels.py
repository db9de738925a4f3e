"""Ordered levels of any kind: their order, and the numbers 0, 1, ... in their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_unmasked, check_values, fail_value, warn_user
from tensorcep.likelihoods.ordinal import FEWEST, MOST


def classes_of(y: Any) -> list[Any]:
    """The levels of a fit in their order: all those of an ordered Categorical, otherwise those that occur, sorted.

    More than two texts without an order are taken in that of the alphabet, with a warning.

    Raises
    ------
    ValueError, TypeError
        If there are fewer than 2 or more than 20, or they are neither numbers nor text.
    """
    if _is_ordered(y):
        classes = _plain(y.dtype.categories.to_numpy()).tolist()
    else:
        classes = np.unique(_plain(y)).tolist()
    if not FEWEST <= len(classes) <= MOST:
        some = ", ".join(map(repr, classes[:3]))
        fail_value(
            f"y must hold {FEWEST} to {MOST} different levels; got {len(classes)}, such as {some}; use CPRegressor for "
            "values that are no levels."
        )
    if len(classes) > FEWEST and isinstance(classes[0], str) and not _is_ordered(y):
        warn_user(
            f"the levels are text without an order and are taken in that of the alphabet, {' < '.join(classes)}; give "
            "y as an ordered Categorical, or as numbers, for another.",
            UserWarning,
        )
    return list(classes)


def coded(y: Any, classes: list[Any]) -> np.ndarray:
    """Levels as float64 numbers 0, 1, ... in the order of the classes.

    Raises
    ------
    ValueError
        If one is of no class.
    """
    levels, place = _plain(y), {level: float(k) for k, level in enumerate(classes)}
    found = np.array([place.get(level, np.nan) for level in levels.ravel().tolist()]).reshape(levels.shape)
    if np.isnan(found).any():
        n = int(np.argmax(np.isnan(found.ravel())))
        fail_value(
            f"y must hold the levels {', '.join(map(repr, classes))}; got {levels.ravel()[n : n + 1].tolist()[0]!r} at "
            f"entry {n}."
        )
    return found


def worth_of(classes: list[Any]) -> list[float] | None:
    """What the levels are worth: themselves where they are growing numbers, otherwise nothing but their places."""
    if isinstance(classes[0], str) or not (np.diff(classes) > 0.0).all():
        return None
    return [float(level) for level in classes]


def _is_ordered(y: Any) -> bool:
    dtype = getattr(y, "dtype", None)
    return isinstance(dtype, pd.CategoricalDtype) and bool(dtype.ordered)


def _plain(y: Any) -> np.ndarray:
    """Levels as an array of text or of finite numbers."""
    levels = np.asarray(check_unmasked(y, "y"))
    if levels.dtype.kind in "UO" and levels.ndim == 1 and all(isinstance(level, str) for level in levels):
        return levels.astype(str)
    check_none_missing(levels)
    numbers = check_values(levels, name="y")
    return levels if levels.dtype.kind in "iu" else numbers


def check_none_missing(labels: np.ndarray) -> None:
    """Refuse words some of which are missing, as in a Categorical."""
    missing = pd.isna(labels)
    if labels.dtype.kind == "O" and missing.any() and any(isinstance(label, str) for label in labels.ravel()):
        n = int(np.argmax(missing))
        fail_value(
            f"y must have no missing labels; got {missing.sum()}, the first at entry {n}; leave such entries out."
        )
