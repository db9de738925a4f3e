"""Files of entries: .tns, csv, parquet and npz, read and written."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from tensorcep.core.checks import check_choice, check_file, fail_value
from tensorcep.core.files import atomic_write
from tensorcep.entries.interop import column_names, optional_module
from tensorcep.entries.io.batches import FileBatch, Position, read_batches
from tensorcep.entries.io.columns import chosen_columns, csv_layout, format_of
from tensorcep.entries.io.lines import rows, tns_layout
from tensorcep.entries.io.npz import read_npz, write_npz
from tensorcep.entries.io.text import read_entries, read_frame
from tensorcep.entries.tensor import SparseTensor

__all__ = ["FileBatch", "Position", "read_batches", "read_tensor", "write_tensor"]

CHUNK = 1 << 18  # lines formatted at a time


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
        frame, modes, value = _read_parquet(text, modes, value)
        return _from_frame(frame, modes, value, labels is not False, shape, index_base, duplicates)
    if kind == "tns":
        layout = tns_layout(text, index_base, shape)
    else:
        labelled = header if labels is None else labels
        first = next(rows(text, ",", None if labelled else "#"), None)
        layout, names = csv_layout(text, first, header, labelled, modes, value, index_base, shape)
        if layout.labelled:
            frame = read_frame(layout, verbose).rename(columns=dict(enumerate(names)))
            modes = [names[field] for field in layout.modes]
            return _from_frame(frame, modes, names[layout.value], True, shape, index_base, duplicates)
    coords, values, sizes = read_entries(layout, verbose)
    return SparseTensor.from_checked(coords, values, sizes, duplicates)


def write_tensor(
    tensor: SparseTensor,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    index_base: int = 1,
    header: bool = True,
    extended: bool = False,
    verbose: int = 0,
) -> None:
    """Write a SparseTensor to a file, which appears under its name only when it is complete.

    Parameters
    ----------
    tensor : SparseTensor
    path : path
        The extension says what to write, as in `read_tensor`. Only npz keeps everything: the shape and the dtypes of
        the labels too. A .tns file has no labels, and a shape only with `extended`.
    format : {"tns", "csv", "parquet", "npz"}, optional
    index_base : {1, 0}, default=1
        What indices of modes without labels count from in .tns, csv and parquet files.
    header : bool, default=True
        Whether a csv file begins with a line of column names.
    extended : bool, default=False
        Whether a .tns file begins with the order, the number of entries and the sizes.
    verbose : int, default=0
        1 shows a progress bar.
    """
    text = os.fspath(path)
    kind = format_of(text, format)
    check_choice("index_base", str(index_base), ("0", "1"))
    if kind == "npz":
        write_npz(tensor, text)
        return
    if kind == "tns" and any(found is not None for found in tensor.labels):
        warnings.warn("a .tns file holds no labels; write .npz, .csv or .parquet to keep them.", stacklevel=2)
    if kind == "parquet":
        optional_module("pyarrow", "writing parquet files")
        with atomic_write(text) as handle:
            frame = _to_frame(tensor, slice(None), index_base, labelled=True)
            frame.set_axis([str(name) for name in frame.columns], axis=1).to_parquet(handle, index=False)
        return
    with atomic_write(text) as handle:
        if text.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=handle, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_lines(tensor, cast("BinaryIO", packed), kind, index_base, header, extended, verbose)
        else:
            _write_lines(tensor, handle, kind, index_base, header, extended, verbose)


# csv and parquet


def _read_parquet(path: str, modes: Any, value: Any) -> tuple[pd.DataFrame, list[Any], Any]:
    arrow = optional_module("pyarrow", "reading parquet files", "tensorcep[parquet]")
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"'{path}' is not a parquet file or is damaged ({error}); write it again.") from error
    modes, value = chosen_columns(path, list(frame.columns), modes, value)
    return frame, modes, value


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


def _to_frame(tensor: SparseTensor, part: slice, base: int, labelled: bool) -> pd.DataFrame:
    columns: dict[Any, Any] = {}
    names = column_names([None if found is None else found.name for found in tensor.labels], "y")
    for k, name in enumerate(names):
        found = tensor.labels[k] if labelled else None
        at = tensor.coords[part, k]
        columns[name] = at + base if found is None else found.index.take(at)
    return pd.DataFrame({**columns, "y": tensor.values[part]})


def _write_lines(
    tensor: SparseTensor, handle: BinaryIO, kind: str, base: int, header: bool, extended: bool, verbose: int
) -> None:
    separator = " " if kind == "tns" else ","
    if kind == "tns" and extended:
        sizes = " ".join(map(str, tensor.shape))
        handle.write(f"# extended FROSTT format\n{tensor.order} {tensor.nnz}\n{sizes}\n".encode())
    named = kind == "csv" and header
    with tqdm(total=tensor.nnz, desc="write", unit="entry", unit_scale=True, disable=not verbose) as bar:
        for start in range(0, max(tensor.nnz, 1), CHUNK):
            frame = _to_frame(tensor, slice(start, start + CHUNK), base, labelled=kind == "csv")
            frame.to_csv(
                handle, sep=separator, header=named and start == 0, index=False, lineterminator="\n", mode="wb"
            )
            bar.update(len(frame))
