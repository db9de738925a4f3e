"""Modes and rows as users name them, and columns of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_choice, check_coords, check_int, fail_value
from tensorcep.entries.interop import column_names
from tensorcep.entries.labels import Labels

AllLabels = Sequence[Labels | None]


def names_of(labels: AllLabels) -> list[Any]:
    """What the columns of the modes are called: by their labels, else mode_0, mode_1, ..."""
    return column_names([None if found is None else found.name for found in labels], None)


def mode_of(labels: AllLabels, mode: Any) -> int:
    """Return the position of a mode that is given by position or by name.

    Raises
    ------
    ValueError, TypeError
        If there is no such mode.
    """
    names = names_of(labels)
    if mode in names and not isinstance(mode, bool):
        return names.index(mode)
    if isinstance(mode, (int, np.integer)):
        return check_int("mode", mode, 0, len(names) - 1)
    check_choice("mode", mode, names)
    return names.index(mode)


def are_several(given: Any) -> bool:
    """Whether rows are given as a list, not as one label or index."""
    return isinstance(given, (list, np.ndarray, pd.Series, pd.Index, set, range))


def listed_rows(given: Any) -> list[Any]:
    """One label or index, or a list of them, as a list."""
    return list(given) if are_several(given) else [given]


def rows_of(labels: AllLabels, shape: Sequence[int], k: int, given: Any) -> np.ndarray:
    """Return the rows (n,) of one label or index of mode k, or of a list of them.

    Raises
    ------
    ValueError, TypeError
        If one is not known.
    """
    known, listed = labels[k], listed_rows(given)
    if known is None:
        name = f"a row of mode {names_of(labels)[k]!r}"
        return np.array([check_int(name, item, 0, shape[k] - 1) for item in listed], dtype=np.int64)
    rows = known.rows(pd.Index(listed, tupleize_cols=False), unknown="ignore")
    if (rows < 0).any():
        missing = [item for item, row in zip(listed, rows, strict=True) if row < 0]
        fail_value(
            f"label {missing[0]!r} is not among the {len(known)} labels of mode {names_of(labels)[k]!r} "
            f"({len(missing)} unknown in all); name rows of the fit, or add new ones by transform and with_rows."
        )
    return rows


def rows_of_column(labels: AllLabels, k: int, column: pd.Series) -> np.ndarray:
    """Return the rows (n,) of mode k in a column of a table: of labels, -1 where there is none, or whole numbers.

    Raises
    ------
    ValueError, TypeError
        If the mode has no labels, and one is no index.
    """
    known = labels[k]
    if known is not None:
        return known.rows(column, unknown="ignore")
    column = column.infer_objects()
    if pd.api.types.is_integer_dtype(column.dtype) and not column.hasnans:
        column = column.astype(np.int64)  # of numbers of pandas' own kinds numpy makes objects
    return check_coords(np.stack([column, column], axis=1), name=f"column {names_of(labels)[k]!r}")[:, 0]


def labels_at(labels: AllLabels, k: int, rows: np.ndarray) -> Any:
    """Return the labels of rows of mode k; the rows themselves where it has none."""
    known = labels[k]
    return rows if known is None else known.index.take(rows)


def by_mode(labels: AllLabels, given: Mapping[Any, Any] | None) -> dict[int, Any]:
    """Return what is given per mode name or position, by position.

    Raises
    ------
    ValueError, TypeError
        If a mode is not known or given twice.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"given must be a dict of modes and their rows, or None; got {type(given).__name__}.")
    found: dict[int, Any] = {}
    for name, value in (given or {}).items():
        k = mode_of(labels, name)
        if k in found:
            fail_value(f"mode {name!r} is given twice.")
        found[k] = value
    return found


def column_of(X: Any, labels: AllLabels, k: int) -> Any:
    """Return the labels of mode k of the entries X, a DataFrame or a SparseTensor."""
    names = names_of(labels)
    if isinstance(X, pd.DataFrame):
        return X[names[k]] if set(names) <= set(X.columns) else X.iloc[:, k]
    theirs = names_of(X.labels)
    place = theirs.index(names[k]) if names[k] in theirs else k
    return pd.Series(X.labels[place].index.take(X.coords[:, place]))
