"""Files of entries, read whole."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_choice, check_file, fail_value
from tensorcep.entries.io.layout import Layout, Reading, chosen_columns, csv_names, format_of, layout_of, tns_layout
from tensorcep.entries.io.lines import open_lines, rows
from tensorcep.entries.io.npz import read_npz
from tensorcep.entries.io.parquet import read_parquet
from tensorcep.entries.io.text import read_entries, read_frame
from tensorcep.entries.tensor import SparseTensor


def read_tensor(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    shape: Sequence[int] | None = None,
    index_base: int = 1,
    header: bool = True,
    labels: bool | None = None,
    modes: Sequence[Any] | None = None,
    value: Any = None,
    duplicates: str = "error",
    verbose: int = 0,
) -> SparseTensor:
    """Read a SparseTensor from a file.

    Parameters
    ----------
    path : path
        Its extension says what it is, unless `format` does. A .tns (FROSTT) file has one entry per line: indices, then
        the value, separated by blanks; "#" starts a comment; two header lines (order and number of entries, then the
        sizes) may come first. A csv or parquet file has one line per entry. An npz file is one of `write_tensor`.
    format : {"tns", "csv", "parquet", "npz"}, optional
    shape : sequence of K ints, optional
        Sizes of the modes; default: the header's, or the largest indices, so that empty rows at the end are lost. For
        columns of indices only, as are the sizes of labelled modes those of their labels.
    index_base : {1, 0}, default=1
        What columns of indices count from. No effect on labels and npz files.
    header : bool, default=True
        Whether the first line of a csv file names its columns.
    labels : bool, optional
        Whether the mode columns of a csv or parquet file hold labels (numbers, text, dates) and not indices. Default:
        True, but False for a csv file without header. Labels in a csv file are numbers where the whole column is.
    modes, value : K columns, and one, optional
        Their names, or their positions from 0 in a csv file without header. Default: the value is the last column and
        every other column is a mode.
    duplicates : {"error", "mean", "sum", "last"}, default="error"
        What to do with a cell that occurs more than once.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    SparseTensor

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        On an unknown extension, a malformed line (with its number), a damaged file, a file without entries, indices
        that are not in the shape, or repeated cells.
    """
    text = check_file(path)
    kind = format_of(text, format)
    check_choice("index_base", str(index_base), ("0", "1"))
    if kind == "npz":
        return read_npz(text, shape)
    if kind == "parquet":
        frame = read_parquet(text)
        modes, value = chosen_columns(text, list(frame.columns), modes, value)
        return _from_frame(frame, modes, value, labels is not False, shape, index_base, duplicates)
    with open_lines(text) as lines:
        layout = layout_of(text, kind, lines, Reading(index_base, header, labels, modes, value, shape))
    if layout.labelled:
        frame = read_frame(layout, verbose)
        return _from_frame(frame, layout.mode_names, layout.value_name, True, shape, index_base, duplicates)
    coords, values, sizes = read_entries(layout, verbose)
    return SparseTensor.from_checked(coords, values, sizes, duplicates)


def read_cells(
    path: str, kind: str, n_modes: int, *, index_base: int = 1, header: bool = True, with_values: bool = True
) -> pd.DataFrame:
    """Read all columns of a .tns, csv or parquet file as they stand, repeated cells too.

    Unlike `read_tensor` this takes files without a value, and leaves it to the caller what the columns are: those of a
    csv file are text, those of a .tns file the indices of the `n_modes` modes and, if there are any or `with_values`
    asks for them, the values.

    Raises
    ------
    ValueError
        On a malformed line or a damaged file.
    """
    if kind == "parquet":
        return read_parquet(path)
    if kind == "csv":
        with open_lines(path) as lines:
            skip, names = csv_names(path, lines, header, None)
        return read_frame(Layout(path, ",", None, tuple(names), tuple(range(len(names))), None, skip, labelled=True))
    with open_lines(path) as lines:  # two fields may be a header: the third line tells
        widths = [len(fields) for _, fields in itertools.islice(rows(lines, None, "#"), 3)]
    if widths and widths[-1] == n_modes and not with_values:
        fields = tuple(range(n_modes))
        layout = Layout(path, None, "#", (None,) * n_modes, fields, None, base=index_base)
        return pd.DataFrame(read_entries(layout)[0] + index_base)
    if widths and widths[-1] != n_modes + 1:
        wanted = f"{n_modes} indices and a value" if with_values else f"{n_modes} indices, with or without a value"
        fail_value(f"a line of '{path}' must hold {wanted} for this model; got {widths[-1]} fields.")
    with open_lines(path) as lines:
        coords, values, _ = read_entries(tns_layout(path, lines, Reading(index_base)))
    return pd.DataFrame(coords + index_base).assign(value=values)


def _from_frame(
    frame: pd.DataFrame, modes: Any, value: Any, labelled: bool, shape: Any, base: int, duplicates: str
) -> SparseTensor:
    if labelled:
        if shape is not None:
            fail_value("shape is only for columns of indices, and these columns hold labels; pass labels=False.")
        return SparseTensor.from_pandas(frame, modes, value, duplicates=duplicates)
    coords = frame[list(modes)].to_numpy()
    if coords.dtype.kind == "u":
        coords = coords.astype(np.int64)  # one below an unsigned 0 is no negative number
    if coords.dtype.kind in "iuf":
        if base == 1 and (coords == 0).any():
            fail_value(
                "the file has an index 0, but indices count from 1; pass index_base=0 if this file counts from 0."
            )
        coords = coords - base
    return SparseTensor.from_coo(coords, frame[value].to_numpy(), shape, duplicates=duplicates)
