"""Files of entries, written."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import pandas as pd
from tqdm.auto import tqdm

from tensorcep.core.checks import check_choice, fail_value, optional_module, warn_user
from tensorcep.core.persist.archive import atomic_write
from tensorcep.entries.interop import column_names
from tensorcep.entries.io.formats import written_format
from tensorcep.entries.io.lines import number_in
from tensorcep.entries.io.npz import write_npz
from tensorcep.entries.tensor import SparseTensor

CHUNK = 1 << 18  # lines formatted at a time
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet may run begins with one of these


def write_tensor(
    tensor: SparseTensor,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    index_base: int = 1,
    header: bool = True,
    extended: bool = False,
    verbose: int = 0,
    value: str = "y",
    safe_csv: bool = False,
) -> None:
    """Write a SparseTensor to a file, which appears under its name only when it is complete.

    Parameters
    ----------
    tensor : SparseTensor
    path : path
        The extension says what to write: .tns, .csv (both also with .gz), .parquet or .npz. Only npz keeps everything:
        the shape and the dtypes of the labels too. A .tns file has no labels, and a shape only with `extended`.
    format : {"tns", "csv", "parquet", "npz"}, optional
    index_base : {1, 0}, default=1
        What indices of modes without labels count from in .tns, csv and parquet files.
    header : bool, default=True
        Whether a csv file begins with a line of column names.
    extended : bool, default=False
        Whether a .tns file begins with the order, the number of entries and the sizes.
    verbose : int, default=0
        1 shows a progress bar.
    value : str, default="y"
        What the column of values of a csv or parquet file is called.
    safe_csv : bool, default=False
        Whether text of a csv file that a spreadsheet would run as a formula (it begins with =, +, -, @, tab or return)
        gets a ' before it. Such labels are others when the file is read again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tensorcep import SparseTensor, write_tensor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tensor(SparseTensor.from_coo([[0, 1], [2, 0]], [0.5, 1.5]), Path(folder) / "x.tns")
    ...     text = (Path(folder) / "x.tns").read_text()
    ...
    >>> text.split()
    ['1', '2', '0.5', '3', '1', '1.5']
    """
    text = os.fspath(path)
    kind = written_format(text, format)
    check_choice("index_base", str(index_base), ("0", "1"))
    if kind == "npz":
        write_npz(tensor, text)
        return
    if kind == "tns" and any(found is not None for found in tensor.labels):
        warn_user("a .tns file holds no labels; write .npz, .csv or .parquet to keep them.", UserWarning)
    empty = [k for k, found in enumerate(tensor.labels) if found is not None and "" in found.index]
    if kind == "csv" and empty:
        fail_value(f"mode {empty[0]} has the empty label '', which a csv file cannot hold; write .npz or .parquet.")
    if kind == "parquet":
        optional_module("pyarrow", "writing parquet files")
        with atomic_write(text) as handle:
            frame = _to_frame(tensor, slice(None), index_base, True, value)
            frame.set_axis([str(name) for name in frame.columns], axis=1).to_parquet(handle, index=False)
        return
    with text_file(text) as handle:
        _write_lines(tensor, handle, kind, index_base, header, extended, verbose, value, safe_csv)


@contextlib.contextmanager
def text_file(path: str) -> Iterator[BinaryIO]:
    """Yield a binary handle on a file that appears when it is complete, packed where its name ends in .gz."""
    with atomic_write(path) as handle:
        if path.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=handle, mode="wb", compresslevel=6, mtime=0) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield handle


def escaped(table: pd.DataFrame) -> pd.DataFrame:
    """A table in which text, and names of columns, that a spreadsheet would run as a formula begin with a '."""
    shown = table.copy()
    for k, dtype in enumerate(table.dtypes):
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_datetime64_any_dtype(dtype)):
            shown.isetitem(k, table.iloc[:, k].astype(object).map(_escaped).array)
    return shown.set_axis([_escaped(name) for name in table.columns], axis=1)


def _escaped(cell: Any) -> Any:
    is_formula = isinstance(cell, str) and cell.startswith(FORMULAS) and number_in(cell) is None
    return f"'{cell}" if is_formula else cell


def _to_frame(tensor: SparseTensor, part: slice, base: int, labelled: bool, value: str) -> pd.DataFrame:
    columns: dict[Any, Any] = {}
    names = column_names([None if found is None else found.name for found in tensor.labels], value)
    for k, name in enumerate(names):
        found = tensor.labels[k] if labelled else None
        at = tensor.coords[part, k]
        columns[name] = at + base if found is None else found.index.take(at)
    return pd.DataFrame({**columns, value: tensor.values[part]})


def _write_lines(
    tensor: SparseTensor,
    handle: BinaryIO,
    kind: str,
    base: int,
    header: bool,
    extended: bool,
    verbose: int,
    value: str,
    safe: bool,
) -> None:
    separator = " " if kind == "tns" else ","
    if kind == "tns" and extended:
        sizes = " ".join(map(str, tensor.shape))
        handle.write(f"# extended FROSTT format\n{tensor.order} {tensor.nnz}\n{sizes}\n".encode())
    named = kind == "csv" and header
    with tqdm(total=tensor.nnz, desc="write", unit="entry", unit_scale=True, disable=not verbose) as bar:
        for start in range(0, max(tensor.nnz, 1), CHUNK):
            frame = _to_frame(tensor, slice(start, start + CHUNK), base, kind == "csv", value)
            frame = escaped(frame) if safe and kind == "csv" else frame
            frame.to_csv(
                handle, sep=separator, header=named and start == 0, index=False, lineterminator="\n", mode="wb"
            )
            bar.update(len(frame))
