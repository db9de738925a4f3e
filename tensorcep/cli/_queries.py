"""Cells to predict, with or without values, matched to the rows that a model knows.

Unlike `read_tensor` this takes files without a value column, keeps repeated cells and the order of the lines, and reads
a mode column as the model has it: its labels where the model knows labels, indices where it does not.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.cli._command import chosen_modes, chosen_value, reading_of
from tensorcep.cli._extents import given_extents, option_of, taken_extents
from tensorcep.cli._words import has_words
from tensorcep.core.checks import check_columns, check_file, check_mode_count, fail_value
from tensorcep.cp.inputs.coordinates import matching_modes, names_of_modes
from tensorcep.entries.io import MISSING, comma_hint, format_of, read_table, read_tensor
from tensorcep.entries.labels import Labels, number_of


class QueriedCells(NamedTuple):
    """Cells to predict.

    Attributes
    ----------
    X : (n, K) int64, or DataFrame of labels
        What the model's `predict` takes.
    y : (n,) float64, or words
        The values; None where they were not asked for and the file need not hold them.
    columns : DataFrame
        The mode columns as the file has them.
    extent : dict
        Exposures of counts, as `predict` takes them; nothing where none were asked for.
    """

    X: Any
    y: Any
    columns: pd.DataFrame
    extent: dict[str, Any]


def read_queries(path: str, args: argparse.Namespace, model: Any, with_values: bool) -> QueriedCells:
    """Read the cells of a file for a fitted model."""
    labelled = labelled_modes(args, model)
    kind = format_of(check_file(path), args.format)
    if kind in ("tns", "mtx") and any(labelled):
        fail_value(
            f"'{path}' holds indices, but the model knows its rows by labels; give a csv, parquet or npz file, or "
            "--no-labels if the indices are the model's row numbers."
        )
    if kind in ("npz", "tns", "mtx") and given_extents(args):
        fail_value(
            f"{option_of(next(iter(given_extents(args))))} names a column, which '{path}' has none of; give a csv file."
        )
    extent: dict[str, Any] = {}
    if kind == "npz":
        frame, y = _read_npz(path, args, model, labelled)
    else:
        frame, y, extent = _read_table(path, kind, args, model, with_values)
    return QueriedCells(matched_cells(path, frame, model, labelled, args.index_base), y, frame, extent)


def labelled_modes(args: argparse.Namespace, model: Any) -> list[bool]:
    labelled = [found is not None for found in model.labels_]
    if args.labels and not any(labelled):
        fail_value("the model was fitted to indices and knows no labels; leave out --labels.")
    return [False] * len(labelled) if args.labels is False else labelled


def _read_npz(path: str, args: argparse.Namespace, model: Any, labelled: list[bool]) -> tuple[pd.DataFrame, Any]:
    tensor = read_tensor(path, format="npz")
    check_mode_count(tensor.shape, len(labelled), f"'{path}' must have")
    chosen = list(range(len(labelled)))
    if any(labelled):
        chosen = matching_modes(names_of_modes(model.labels_), names_of_modes(tensor.labels), X=f"'{path}'")
    columns = tensor.to_pandas(value="value").drop(columns="value").iloc[:, chosen]
    for k, mine in zip(chosen, labelled, strict=True):
        theirs = tensor.labels[k]
        if mine and theirs is None:
            fail_value(f"mode {k} of '{path}' has no labels, but the model knows its rows by labels; add them.")
        if theirs is not None and not mine and args.labels is not False:
            fail_value(
                f"mode {k} of '{path}' has labels, but the model was fitted to indices; give --no-labels if the rows "
                "of both are in the same order."
            )
        if not mine:
            columns.isetitem(chosen.index(k), tensor.coords[:, k] + args.index_base)
    return columns, tensor.values


def _read_table(
    path: str, kind: str, args: argparse.Namespace, model: Any, with_values: bool
) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Return the mode columns, the values and the extents of a csv, parquet or tns file."""
    order = len(model.labels_)
    frame = read_table(path, reading_of(args), n_modes=order, with_values=with_values)
    if kind in ("tns", "mtx"):
        return frame.iloc[:, :order], frame["value"].to_numpy() if with_values else None, {}
    frame, extent = taken_extents(path, frame, args)
    modes, value = chosen_cells(path, list(frame.columns), args, model, with_values)
    if args.drop_missing and value is not None:
        kept = ~(frame[value].isna() | frame[value].isin(MISSING))
        frame, extent = frame[kept], {name: column[kept] for name, column in extent.items()}
    extent = {name: numbers_of(path, column, args.decimal) for name, column in extent.items()}
    if value is None or has_words(model):
        return frame[modes], None if value is None else frame[value].astype(object).to_numpy(), extent
    return frame[modes], numbers_of(path, frame[value], args.decimal), extent


def chosen_cells(
    path: str, names: list[Any], args: argparse.Namespace, model: Any, with_values: bool
) -> tuple[list[Any], Any]:
    """The mode columns, and the value column where values are wanted.

    Modes are the columns asked for, or those that carry the names of the model's modes; where it has no names, or the
    file has none or row numbers, all but the value.
    """
    order = len(model.labels_)
    value: Any = chosen_value(args)
    modes: list[Any] | None = chosen_modes(args)
    known = names_of_modes(model.labels_)
    if modes is None and None not in known and set(known) <= set(names):
        modes = list(known)
    elif modes is None and None not in known and args.header and args.labels is not False:
        columns, wanted = (", ".join(map(str, listed)) for listed in (names, known))
        fail_value(
            f"the columns {columns} of '{path}' are not the modes {wanted} of the model; rename them, or say with "
            "--modes which they are."
        )
    if modes is None:
        modes = [name for name in names if name != value]
        if value is None and len(modes) == order + 1:
            modes = modes[:-1]
    check_columns(names, [*modes, *([] if value is None else [value])], f"'{path}'")
    if len(modes) != order:  # as --modes has it
        fail_value(
            f"'{path}' must have {order} mode columns like the model{' and a value' if with_values else ''}; got the "
            f"columns {', '.join(map(str, names))}; name them with --modes."
        )
    if not with_values:
        return modes, None
    rest = [name for name in names if name not in modes]
    if value is None and not rest:
        fail_value(f"'{path}' has no column left for the value beside the modes {', '.join(map(str, modes))}.")
    return modes, rest[-1] if value is None else value


def numbers_of(path: str, column: pd.Series, decimal: str = ".") -> np.ndarray:
    if decimal != "." and pd.api.types.is_string_dtype(column.dtype):
        column = column.str.replace(decimal, ".", regex=False)
    found = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(found).all():
        n = int(np.argmin(np.isfinite(found)))
        where, hint = f"column {column.name!r} of '{path}'", comma_hint(column.iloc[n], decimal)
        fail_value(f"{where} must hold finite numbers; got {column.iloc[n]!r} in row {n + 1}; mend it{hint}.")
    return found


def matched_cells(path: str, columns: pd.DataFrame, model: Any, labelled: list[bool], base: int) -> Any:
    """What the model's predict takes: coordinates from 0, or a DataFrame where it knows labels."""
    matched: list[Any] = []
    for name, found, mine in zip(columns.columns, model.labels_, labelled, strict=True):
        column = columns[name]
        rows = None if mine else _as_rows(path, column, base)
        if rows is None or found is None:
            matched.append(_as_labels(column, found) if rows is None else rows)
        else:
            matched.append(_labels_at(rows, found))
    if all(found is None for found in model.labels_):
        return np.stack(matched, axis=1)
    names = names_of_modes(model.labels_)
    return pd.DataFrame(dict(enumerate(matched))).set_axis(range(len(names)) if None in names else names, axis=1)


def _labels_at(rows: np.ndarray, labels: Labels) -> pd.Series:
    """The labels of rows; None, which is no label, for rows that the model does not have."""
    known = rows < len(labels)
    return pd.Series(labels.index.take(np.where(known, rows, 0))).astype(object).where(known, None)


def _as_rows(path: str, column: pd.Series, base: int) -> np.ndarray:
    found = numbers_of(path, column)
    bad = (found != np.floor(found)) | (found < base)
    if bad.any():
        n = int(np.argmax(bad))
        fail_value(
            f"column {column.name!r} of '{path}' must hold indices that count from {base}; got {column.iloc[n]!r} in "
            f"row {n + 1}{'; give --index-base 0 if it counts from 0' if found[n] == 0 else ''}."
        )
    return found.astype(np.int64) - base


def _as_labels(column: pd.Series, labels: Labels) -> pd.Series:
    """A column as labels of the model's kind: text as times or as numbers, numbers as text.

    What is no time is a label that the model does not know. The rows may all be new, so that the column alone does not
    tell what its text means.
    """
    dtype, is_text = labels.index.dtype, pd.api.types.is_string_dtype(column.dtype)
    if is_text and pd.api.types.is_datetime64_any_dtype(dtype):
        return pd.to_datetime(column, errors="coerce", utc=isinstance(dtype, pd.DatetimeTZDtype))
    if is_text and pd.api.types.is_any_real_numeric_dtype(dtype):
        codes, distinct = pd.factorize(column)
        numbers = [number_of(text) for text in distinct]
        made = [text if number is None else number for text, number in zip(distinct, numbers, strict=True)]
        kinds = {type(label) for label in made}
        return pd.Series(np.array(made, dtype=None if len(kinds) == 1 else object)[codes], name=column.name)
    if pd.api.types.is_any_real_numeric_dtype(column.dtype) and pd.api.types.is_string_dtype(labels.index):
        return column.map(str)
    return column
