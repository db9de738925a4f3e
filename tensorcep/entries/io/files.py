"""Whole files: read and written by their kind."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from tensorcep.core.checks import (
    check_choice,
    check_file,
    check_shape,
    check_sizes,
    fail_value,
    optional_module,
    reason_of,
    warn_user,
)
from tensorcep.core.persist.archive import atomic_write, read_archive, write_archive
from tensorcep.entries.convert import column_names
from tensorcep.entries.coo import check_counting
from tensorcep.entries.io.doubts import check_defaults
from tensorcep.entries.io.formats import format_of, written_format
from tensorcep.entries.io.layout import (
    LAST,
    VALUES,
    Reading,
    TextLayout,
    check_reading,
    chosen_columns,
    csv_layout,
    csv_names,
    layout_of,
    tns_layout,
)
from tensorcep.entries.io.lines import check_seekable, number_in, on_disk, open_lines, rows
from tensorcep.entries.io.matrix_market import read_matrix
from tensorcep.entries.io.parquet import columns_of_parquet, read_parquet
from tensorcep.entries.io.text import read_entries, read_frame
from tensorcep.entries.labels import pack_labels, unpack_labels
from tensorcep.entries.sparse_tensor import SparseTensor

# Tensors in npz archives: plain arrays and a JSON header, nothing pickled.

KIND = "tensorcep.tensor"
VERSION = 1
# What labels, shapes and arrays that make no sense end in, here and in pandas.
WRONG = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, MemoryError)


def write_npz(tensor: SparseTensor, path: str | os.PathLike[str]) -> None:
    """Write entries, shape, labels and what is known of sampled zeros; indices in the smallest integer type."""
    small = np.min_scalar_type(max(tensor.shape) - 1)
    arrays: dict[str, NDArray[Any]] = {"coords": tensor.coords.astype(small), "values": tensor.values}
    if tensor.sampled is not None:
        arrays["sampled"] = tensor.sampled
    labels = [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(tensor.labels)]
    rate = {} if tensor.zero_rate == 1.0 else {"zero_rate": tensor.zero_rate}
    write_archive(path, KIND, VERSION, {"shape": list(tensor.shape), "labels": labels, **rate}, arrays)


def read_npz(path: str, shape: Any = None) -> SparseTensor:
    """Read what `write_npz` wrote; a given `shape` must be the stored one."""
    header, arrays = read_archive(path, KIND, VERSION)
    if shape is not None and check_shape(shape) != tuple(header.get("shape", ())):
        fail_value(f"shape must be left out or be that of '{path}', {tuple(header['shape'])}; got {tuple(shape)}.")
    try:
        described = header["labels"]
        labels = [None if item is None else unpack_labels(item, k, arrays) for k, item in enumerate(described)]
        return SparseTensor(
            arrays["coords"],
            arrays["values"],
            header["shape"],
            labels,  # type: ignore[arg-type]
            zero_rate=header.get("zero_rate", 1.0),
            sampled=arrays.get("sampled"),
        )
    except WRONG as error:
        raise ValueError(f"'{path}' is damaged ({reason_of(error)}); write it again.") from error


# Files of entries, written.

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


# Files of entries, read whole.


def read_tensor(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    shape: Sequence[int] | None = None,
    index_base: int = 1,
    header: bool = True,
    labels: bool | None = None,
    modes: Sequence[Any] | None = None,
    value: Any = LAST,
    duplicates: str = "error",
    sep: str | None = None,
    decimal: str = ".",
    encoding: str | None = None,
    drop_missing: bool = False,
    verbose: int = 0,
) -> SparseTensor:
    """Read a SparseTensor from a file.

    Parameters
    ----------
    path : path
        Its extension says what it is, unless `format` does. What comes out of a pipe is first put into a temporary
        file. A .tns (FROSTT) file has one entry per line: indices, then
        the value, separated by blanks; "#" starts a comment; two header lines (order and number of entries, then the
        sizes), or those of Tensor Toolbox ("sptensor", order, sizes, number of entries), may come first. A csv (.csv,
        .tsv, .txt, .dat, .data) or parquet file has one line per entry; lines of a csv file that begin with "#" are
        comments at its beginning, unless they have as many fields as the others. A .mtx (MatrixMarket) file holds a
        matrix. An npz file is one of `write_tensor`. Files of text may be packed (.gz, .bz2, .xz, or .zip with one
        file in it).
    format : {"tns", "csv", "parquet", "npz", "mtx"}, optional
    shape : sequence of K ints, optional
        Sizes of the modes; default: the header's, or the largest indices, so that empty rows at the end are lost. For
        columns of indices only, as are the sizes of labelled modes those of their labels.
    index_base : {1, 0}, default=1
        What columns of indices count from. No effect on labels and npz files.
    header : bool, default=True
        Whether the first line of a csv file names its columns.
    labels : bool, optional
        Whether the mode columns of a csv or parquet file hold labels (numbers, text, dates) and not indices. Default:
        True, but False for a csv file without header. Labels in a csv file are numbers where the whole column is
        written as Python writes numbers, and else text: 007 is not 7. To models the number 7 and the text "7" are the
        same label.
    modes : K columns, optional
        Their names, or their positions from 0 in a csv file without header. Default: all but the value.
    value : column or None, default="last column"
        None for a log, of which each line is an event: the value of a cell is the number of its lines.
    duplicates : {"error", "mean", "sum", "last"}, default="error"
        What to do with a cell that occurs more than once. "sum" of a last column that is not called y, value or count
        needs that column to be named as the `value`, since it may be a mode of a log.
    sep : str, optional
        What stands between the fields of a csv file. Default: the comma, tab, ";", "|" or "::" that the first line has,
        or blanks where it has none of them.
    decimal : {".", ","}, default="."
        The decimal point of values in text.
    encoding : str, optional
        Of the text; default: UTF-8, or what a byte-order mark says.
    drop_missing : bool, default=False
        Whether lines whose value is missing (empty, NA, nan, null, ...) are left out; they are refused otherwise.
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

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tensorcep import read_tensor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("user,item,stars\\nu1,i1,4\\nu2,i1,5\\n")
    ...     tensor = read_tensor(path)
    ...
    >>> tensor.shape, tensor.labels[0].name
    ((2, 1), 'user')
    """
    text = check_file(path)
    kind = format_of(text, format)
    how = check_reading(
        Reading(index_base, header, labels, modes, value, shape, sep, decimal, encoding, bool(drop_missing))
    )
    if kind in ("npz", "parquet"):
        check_seekable(text, kind)
        return read_npz(text, shape) if kind == "npz" else _from_parquet(text, how, duplicates)
    with on_disk(text) as copy:
        if kind == "mtx":
            return read_matrix(text, copy, how, duplicates)
        with open_lines(copy, text, how.coding) as lines:
            layout = layout_of(text, kind, lines, how)._replace(copy=copy)
        _check_sum(how, layout.value_name, duplicates)
        if layout.labelled:
            frame = read_frame(layout, verbose)
            return _from_frame(text, frame, layout.mode_names, layout.value_name, how, duplicates)
        coords, values, sizes = read_entries(layout, verbose)
    if kind == "csv":
        check_defaults(text, how, layout.mode_names, layout.value_name, values)
    if layout.shape is None:
        check_sizes(sizes, len(values))
    if layout.value is None:
        values, duplicates = np.ones(len(values)), check_counting(duplicates)
    return SparseTensor.from_checked(coords, values, sizes, duplicates)


def _from_parquet(path: str, how: Reading, duplicates: str) -> SparseTensor:
    frame = read_parquet(path)
    modes, value = chosen_columns(path, list(frame.columns), how.modes, how.value)
    _check_sum(how, value, duplicates)
    if how.drop_missing and value is not None:
        frame = frame[frame[value].notna()]
    return _from_frame(path, frame, modes, value, how, duplicates)


def columns_of(path: str, format: str | None, how: Reading) -> list[Any] | None:
    """Return the names of the columns of a csv or parquet file, None for other files and for files without names."""
    kind = format_of(path, format)
    if kind == "parquet":
        return columns_of_parquet(path)
    if kind != "csv" or not how.header or not os.path.isfile(path):
        return None
    return list(cells_layout(path, path, how).names)


def value_name_of(path: str, format: str | None, how: Reading) -> Any:
    """Return the name of the column of a file that is its value, None where it has none."""
    names = columns_of(path, format, how)
    return None if names is None else chosen_columns(path, names, how.modes, how.value)[1]


def read_cells(path: str, kind: str, n_modes: int, how: Reading, *, with_values: bool = True) -> pd.DataFrame:
    """Read all columns of a .tns, csv, mtx or parquet file as they stand, repeated cells too.

    Unlike `read_tensor` this takes files without a value, and leaves it to the caller what the columns are: those of a
    csv file are text, those of a .tns file the indices of the `n_modes` modes and, if there are any or `with_values`
    asks for them, the values.

    Raises
    ------
    ValueError
        On a malformed line or a damaged file.
    """
    check_reading(how)
    if kind == "parquet":
        return read_parquet(path)
    with on_disk(path) as copy:
        if kind == "csv":
            return read_frame(cells_layout(path, copy, how))
        if kind == "mtx":
            tensor = read_matrix(path, copy, how, "error")
            return pd.DataFrame(tensor.coords + how.index_base).assign(value=tensor.values)
        return _tns_cells(path, copy, n_modes, how, with_values)


def cells_layout(path: str, copy: str, how: Reading) -> TextLayout:
    """Return the layout of a csv file of whose columns none is a mode or the value yet."""
    comment = None if (how.header if how.labels is None else how.labels) else "#"  # as where entries are read
    with open_lines(copy, path, how.coding) as lines:
        separator, skip, names = csv_names(path, lines, how, comment)
    found = csv_layout(path, separator, how)
    return found._replace(names=tuple(names), skip=skip, copy=copy, comment=comment)


def _tns_cells(path: str, copy: str, n_modes: int, how: Reading, with_values: bool) -> pd.DataFrame:
    with open_lines(copy, path, how.coding) as lines:  # two fields may be a header: the third line tells
        first = [fields for _, fields in itertools.islice(rows(lines, None, "#"), 5)]
    widths = [len(fields) for fields in first[:3]] if first[:1] != [["sptensor"]] else [len(first[-1])]
    if widths and widths[-1] == n_modes and not with_values:
        fields = tuple(range(n_modes))
        layout = TextLayout(path, None, "#", (None,) * n_modes, fields, None, base=how.index_base, copy=copy)
        return pd.DataFrame(read_entries(layout._replace(coding=how.coding))[0] + how.index_base)
    if widths and widths[-1] != n_modes + 1:
        wanted = f"{n_modes} indices and a value" if with_values else f"{n_modes} indices, with or without a value"
        fail_value(f"a line of '{path}' must hold {wanted} for this model; got {widths[-1]} fields.")
    with open_lines(copy, path, how.coding) as lines:
        layout = tns_layout(path, lines, how._replace(shape=None, value=LAST))
        coords, values, _ = read_entries(layout._replace(copy=copy))
    return pd.DataFrame(coords + how.index_base).assign(value=values)


def _check_sum(how: Reading, value: Any, duplicates: str) -> None:
    """Refuse to add up a last column that nobody said is the value, and that may be a mode of a log."""
    if duplicates == "sum" and how.value == LAST and how.header and value not in (None, *VALUES):
        fail_value(
            f"duplicates='sum' would add up the last column, {value!r}; pass value={value!r} if it is the value, or "
            "value=None if every line is an event to be counted."
        )


def _from_frame(path: str, frame: pd.DataFrame, modes: Any, value: Any, how: Reading, duplicates: str) -> SparseTensor:
    tensor = _tensor_of(frame, modes, value, how, duplicates)
    check_defaults(path, how, modes, value, tensor.values, tensor.shape)
    return tensor


def _tensor_of(frame: pd.DataFrame, modes: Any, value: Any, how: Reading, duplicates: str) -> SparseTensor:
    if how.labels is not False:
        if how.shape is not None:
            fail_value("shape is only for columns of indices, and these columns hold labels; pass labels=False.")
        return SparseTensor.from_pandas(frame, modes, value, duplicates=duplicates)
    tensor = _from_integers(frame, modes, value, how, duplicates)
    if tensor is not None:
        return tensor
    coords = frame[list(modes)].to_numpy()
    base = how.index_base
    if coords.dtype.kind == "u":
        coords = coords.astype(np.int64)  # one below an unsigned 0 is no negative number
    if coords.dtype.kind in "iuf":
        if base == 1 and (coords == 0).any():
            fail_value(
                "the file has an index 0, but indices count from 1; pass index_base=0 if this file counts from 0."
            )
        coords = coords - base
    values, policy = frame[value].to_numpy(), duplicates
    if value is None:
        values, policy = np.ones(len(frame)), check_counting(duplicates)
    return SparseTensor.from_coo(coords, values, how.shape, duplicates=policy)


def _from_integers(frame: pd.DataFrame, modes: Any, value: Any, how: Reading, duplicates: str) -> SparseTensor | None:
    """The tensor of good columns of integers, looked at one by one; None where a longer look must say what is wrong."""
    columns = [frame[name].to_numpy() for name in modes]
    if value is None or not len(frame) or any(column.dtype != np.int64 for column in columns):
        return None
    ends = [(int(column.min()) - how.index_base, int(column.max()) - how.index_base + 1) for column in columns]
    sizes = tuple(last for _, last in ends)
    values = frame[value].to_numpy()
    if min(first for first, _ in ends) < 0 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        return None
    shape = sizes if how.shape is None else check_shape(how.shape, len(modes))
    check_sizes(shape, len(frame), how.shape is not None)
    if any(last > size for last, size in zip(sizes, shape, strict=True)):
        return None
    coords = np.empty((len(frame), len(columns)), dtype=np.int64)
    for k, column in enumerate(columns):
        np.subtract(column, how.index_base, out=coords[:, k])
    return SparseTensor.from_checked(coords, np.ascontiguousarray(values, dtype=np.float64), shape, duplicates)
