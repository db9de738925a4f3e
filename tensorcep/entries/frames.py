"""Data frames: which columns are the modes, and entries from their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import check_columns, check_mode_count, check_not_empty, check_values, fail_value
from tensorcep.entries.labels import Labels, check_labels

# Seconds since 1970 of about 1990 to 2100, as they are or in milli-, micro- or nanoseconds.
EPOCHS, UNITS = (6.3e8, 4.1e9), (1.0, 1e3, 1e6, 1e9)


def are_epochs(numbers: Any) -> bool:
    """Whether all of some numbers (N,) are whole and of the size of times since 1970."""
    found = np.asarray(numbers)
    if found.dtype.kind not in "iuf" or not found.size or not np.isfinite(found).all():
        return False
    low, high = float(found.min()), float(found.max())
    sized = any(EPOCHS[0] * unit <= low and high <= EPOCHS[1] * unit for unit in UNITS)
    return sized and bool((found == np.floor(found)).all())


def frame_entries(
    frame: pd.DataFrame, modes: Sequence[Any], value: Any, labels: Any
) -> tuple[NDArray[np.int64], NDArray[np.float64], tuple[Labels, ...]]:
    """Return coordinates, values and labels of the lines of a long frame; see `SparseTensor.from_pandas`.

    Raises
    ------
    ValueError
        If a column is missing or there twice, or is two modes, or a mode and the value; if there are no lines; if there
        is no label, or what cannot be one.
    """
    check_mode_count(modes)
    modes = check_mode_columns(list(frame.columns), modes, value, "the DataFrame")
    check_not_empty(len(frame), "the DataFrame")
    known = check_labels(labels, len(modes))
    found, rows = [], []
    for name, old in zip(modes, known, strict=True):
        new, at = labels_of_column(frame[name], name)
        if old is not None:
            old = old.extended(new)
            at, new = old.rows(new)[at], old
        found.append(new)
        rows.append(at)
    values = np.ones(len(frame)) if value is None else check_values(frame[value].to_numpy(), name=f"column {value!r}")
    return np.stack(rows, axis=1), values, tuple(found)


def labels_of_column(column: pd.Series, name: Any) -> tuple[Labels, NDArray[np.int64]]:
    """Return the labels of a column and the row of each line; refuse what cannot be a label."""
    try:
        return Labels.from_column(column, name=name)
    except TypeError as error:  # a list or a dict
        raise ValueError(f"column {name!r} must hold labels, such as numbers, text or dates ({error}).") from error


def check_names(columns: Sequence[Any], where: str) -> None:
    """Refuse columns that are named by a missing value, such as NaN, which equals no name that one could ask for."""
    unnamed = [at for at, name in enumerate(columns) if not isinstance(name, tuple) and pd.isna(name)]
    if unnamed:
        at = unnamed[0]
        fail_value(f"the columns of {where} must have names; got none for the column at position {at}; name it.")


def check_mode_columns(columns: Sequence[Any], modes: Sequence[Any], value: Any, where: str) -> list[Any]:
    """Return the modes as a list, if they and the value are different columns and each is there once."""
    check_mode_count(modes, what=f"{where} must have")
    chosen = list(modes)
    check_names(columns, where)
    wanted = chosen if value is None else [*chosen, value]
    check_columns(columns, wanted, where)
    twice = [name for name in wanted if list(columns).count(name) > 1]
    if twice:
        fail_value(f"{where} has more than one column {twice[0]!r}; rename one.")
    if len(set(wanted)) != len(wanted):
        fail_value(f"modes and value must be different columns; got {chosen} and {value!r}.")
    return chosen
