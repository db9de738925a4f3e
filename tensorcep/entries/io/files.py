"""Whole files: tensors and tables read of them, and tensors written."""

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

from tensorcep.core import checks
from tensorcep.core.arrays import concatenated
from tensorcep.core.persist.archive import atomic_write, read_archive, write_archive
from tensorcep.entries.coo import check_counting, merge_duplicates
from tensorcep.entries.io import schema
from tensorcep.entries.io.chunks import LINES, ParquetFile, open_chunks
from tensorcep.entries.io.lines import check_seekable, number_in, open_lines, rows
from tensorcep.entries.labels import Labels, StoredLabels, mode_names, numbers_of, stored_labels
from tensorcep.entries.sparse_tensor import SparseTensor, frame_of

# Tensors in npz archives: plain arrays and a JSON header, nothing pickled.

KIND = "tensorcep.tensor"
VERSION = 1
# What labels, shapes and arrays that make no sense end in, here and in pandas.
WRONG = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, MemoryError)


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
    ...     (Path(folder) / "x.tns").read_text().split()
    ...
    ['1', '2', '0.5', '3', '1', '1.5']
    """
    text = os.fspath(path)
    kind = schema.format_of(text, format, written=True)
    checks.check_choice("index_base", str(index_base), ("0", "1"))
    if kind == "npz":  # indices in the smallest integer type
        small = np.min_scalar_type(max(tensor.shape) - 1)
        stored = stored_labels(tensor.labels)
        sampled = {} if tensor.sampled is None else {"sampled": tensor.sampled}
        arrays = {"coords": tensor.coords.astype(small), "values": tensor.values, **stored.arrays, **sampled}
        rate = {} if tensor.zero_rate == 1.0 else {"zero_rate": tensor.zero_rate}
        facts = {"shape": list(tensor.shape), "labels": list(stored.described), **rate}
        return write_archive(text, KIND, VERSION, facts, arrays)
    if kind == "tns" and any(found is not None for found in tensor.labels):
        checks.warn_user("a .tns file holds no labels; write .npz, .csv or .parquet to keep them.", UserWarning)
    empty = [k for k, found in enumerate(tensor.labels) if found is not None and "" in found.index]
    if kind == "csv" and empty:
        label = "the empty label '', which a csv file cannot hold"
        checks.fail_value(f"mode {empty[0]} has {label}; write .npz or .parquet.")
    names = mode_names(tensor.labels)
    if kind == "parquet":
        checks.optional_module("pyarrow", "writing parquet files")
        with atomic_write(text) as handle:
            frame = frame_of(tensor, names, value, base=index_base)
            frame.set_axis([str(name) for name in frame.columns], axis=1).to_parquet(handle, index=False)
        return
    is_csv = kind == "csv"
    bar = tqdm(total=tensor.nnz, desc="write", unit="entry", unit_scale=True, disable=not verbose)
    with text_file(text) as handle, bar:
        if extended and not is_csv:
            sizes = " ".join(map(str, tensor.shape))
            handle.write(f"# extended FROSTT format\n{tensor.order} {tensor.nnz}\n{sizes}\n".encode())
        for start in range(0, max(tensor.nnz, 1), CHUNK):
            frame = frame_of(tensor, names, value, slice(start, start + CHUNK), index_base, is_csv)
            frame = escaped(frame) if safe_csv and is_csv else frame
            named = is_csv and header and start == 0
            frame.to_csv(handle, sep="," if is_csv else " ", header=named, index=False, lineterminator="\n", mode="wb")
            bar.update(len(frame))


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
    value: Any = schema.LAST,
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
        Its extension says what it is, unless `format` does. A .tns (FROSTT) file has one entry per line: indices, then
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
    how = schema.Schema(index_base, header, labels, modes, value, shape, sep, decimal, encoding, bool(drop_missing))
    return read_entries(path, how._replace(format=format), duplicates, verbose)[0]


def read_entries(
    path: str | os.PathLike[str], how: schema.Schema, duplicates: str = "error", verbose: int = 0
) -> tuple[SparseTensor, dict[str, NDArray[np.float64]]]:
    """The entries of a file, and its extras, merged alike; parameters and errors are those of `read_tensor`."""
    text, how = checks.check_file(path), schema.check_schema(how)
    if schema.format_of(text, how.format) == "npz":
        check_seekable(text, "npz")
        if how.extras:
            checks.fail_value(f"'{text}' has no column {how.extras[0]!r}: an npz file holds a tensor; give a csv file.")
        header, arrays = read_archive(text, KIND, VERSION)
        if how.shape is not None and checks.check_shape(how.shape) != tuple(header.get("shape", ())):
            kept, got = tuple(header["shape"]), tuple(how.shape)
            checks.fail_value(f"shape must be left out or be that of '{text}', {kept}; got {got}.")
        try:
            stored = StoredLabels(header["labels"], arrays)
            known = {"zero_rate": header.get("zero_rate", 1.0), "sampled": arrays.get("sampled")}
            return SparseTensor(arrays["coords"], arrays["values"], header["shape"], stored.labels(), **known), {}
        except WRONG as error:
            raise ValueError(f"'{text}' is damaged ({checks.reason_of(error)}); write it again.") from error
    with open_chunks(text, how, verbose=verbose, whole=True) as reader:
        last = reader.value_name
        if duplicates == "sum" and how.value == schema.LAST and how.header and last not in (None, *schema.VALUES):
            cure = f"value={last!r} if it is the value, or value=None if every line is an event to be counted"
            checks.fail_value(f"duplicates='sum' would add up the last column, {last!r}; pass {cure}.")
        chunks = list(iter(lambda: reader.take(None), None))
    if not sum(len(chunk.values) for chunk in chunks):
        checks.fail_value(f"'{text}' {schema.EMPTY}")
    values = concatenated([chunk.values for chunk in chunks])
    extras = {name: np.concatenate([chunk.extras[name] for chunk in chunks]) for name in how.extras}
    columns = [[chunk.columns[k] for chunk in chunks] for k in range(len(reader.mode_names))]
    chunks.clear()
    coords = np.empty((len(values), len(columns)), dtype=np.int64)
    labels: list[Labels | None] = [None] * len(columns)
    for k, name in enumerate(reader.mode_names):
        if name is None:
            np.concatenate(columns[k], out=coords[:, k])
        else:
            labels[k], coords[:, k] = Labels.from_column(_labels_of_parts(columns[k], reader.is_text), name)
        columns[k].clear()
    counted = [int(coords[:, k].max()) + 1 if found is None else len(found) for k, found in enumerate(labels)]
    if how.shape is not None and any(found is not None for found in labels):
        checks.fail_value("shape is only for columns of indices, and these columns hold labels; pass labels=False.")
    shape = reader.shape if how.shape is None else checks.check_shape(how.shape, len(columns))
    if shape is None:
        checks.check_sizes(counted, len(values))
        shape = tuple(counted)
    elif any(n > size for n, size in zip(counted, shape, strict=True)):
        checks.check_coords(coords, shape)
    policy = check_counting(duplicates) if reader.is_log else duplicates
    merged = {name: merge_duplicates(coords, found, shape, policy)[1] for name, found in extras.items()}
    tensor = SparseTensor.from_checked(coords, values, shape, policy, tuple(labels))
    schema.check_defaults(text, how, reader.mode_names, reader.value_name, tensor.values, tensor.shape)
    return tensor, merged


def _labels_of_parts(parts: list[Any], is_text: bool) -> Any:
    """Return the labels of a mode of all chunks: those of text as numbers where nothing is lost by it."""
    if not is_text:
        found = [part if isinstance(part, pd.Series) else pd.Series(part.tolist()) for part in parts]
        return found[0] if len(found) == 1 else pd.concat(found)
    if all(getattr(part, "dtype", None) == np.int64 for part in parts):
        return pd.Series(np.concatenate(parts))
    if all(isinstance(getattr(part, "dtype", None), pd.StringDtype) for part in parts):
        return numbers_of(pd.concat(parts, ignore_index=True))
    return numbers_of(pd.Series(np.concatenate([schema.as_objects(part, texts=True) for part in parts]).tolist()))


# Tables: all columns of a file as they stand.


def read_tables(
    path: str, how: schema.Schema, *, lines: int | None = LINES, n_modes: int = 0, with_values: bool = True
) -> Iterator[pd.DataFrame]:
    """Yield so many lines at a time (None: all) of a .tns, csv, mtx or parquet file, repeated cells and gaps too."""
    # Unlike `read_tensor` this leaves it to the caller what the columns are: those of a csv file are text, those of a
    # .tns file the indices of the `n_modes` modes and, if there are any or `with_values` asks for them, the values.
    how = schema.check_schema(how)._replace(shape=None, drop_missing=False)
    kind = schema.format_of(path, how.format)
    if kind == "parquet":
        yield from ParquetFile(path).frames(None, lines)
        return

    def layout(lines: Iterator[str]) -> schema.TextLayout:
        if kind == "csv":
            columns = schema.csv_columns(path, lines, how)
            return columns._replace(modes=tuple(range(len(columns.names))), labelled=True, as_text=True)
        head = list(itertools.islice(lines, schema.MOST_COMMENTS))
        first = [fields for _, fields in itertools.islice(rows(head, None, "#"), 5)]
        # of three lines, two may be a header
        widths = [len(fields) for fields in first[:3]] if first[:1] != [["sptensor"]] else [len(first[-1])]
        if widths and widths[-1] == n_modes and not with_values:
            return schema.TextLayout(path, how, None, "#", (None,) * n_modes, tuple(range(n_modes)), None)
        if widths and widths[-1] != n_modes + 1:
            wanted = f"{n_modes} indices and a value" if with_values else f"{n_modes} indices, with or without a value"
            checks.fail_value(f"a line of '{path}' must hold {wanted} for this model; got {widths[-1]} fields.")
        return schema.layout_of(path, "tns", itertools.chain(head, lines), how._replace(value=schema.LAST))

    def frame_of_chunk(chunk: schema.Chunk) -> pd.DataFrame:  # with indices as the file has them
        if reader.mode_names[0] is not None:
            return pd.DataFrame(dict(zip(reader.mode_names, chunk.columns, strict=True)))
        frame = pd.DataFrame({k: codes.astype(np.int64) + how.index_base for k, codes in enumerate(chunk.columns)})
        return frame if reader.is_log else frame.assign(value=chunk.values)

    with open_chunks(path, how, layout_in=layout, whole=lines is None) as reader:
        frames = map(frame_of_chunk, iter(lambda: reader.take(lines), None))
        first = next(frames, None)
        if first is None:
            checks.fail_value(f"'{path}' {schema.EMPTY}")
        yield first if lines is not None else pd.concat([first, *frames], ignore_index=True)
        yield from frames


def read_table(path: str, how: schema.Schema, *, n_modes: int = 0, with_values: bool = True) -> pd.DataFrame:
    """Return all lines of a file as `read_tables` does."""
    (frame,) = read_tables(path, how, lines=None, n_modes=n_modes, with_values=with_values)
    return frame


def columns_of(path: str, how: schema.Schema) -> list[Any] | None:
    """Return the names of the columns of a csv or parquet file, None for other files and for files without names."""
    kind = schema.format_of(path, how.format)
    if kind == "parquet":
        return ParquetFile(path).names
    if kind != "csv" or not how.header or not os.path.isfile(path):
        return None
    with open_lines(path, how.encoding) as lines:
        return list(schema.csv_columns(path, lines, how).names)


def value_name_of(path: str, how: schema.Schema) -> Any:
    """Return the name of the column of a file that is its value, None where it has none."""
    names = columns_of(path, how)
    return None if names is None else schema.chosen_columns(path, names, how)[1]


def separator_of(path: str, how: schema.Schema) -> str:
    """Return what stands between the fields of a csv file, where that is one character, else a comma."""
    with open_lines(path, how.encoding) as lines:
        found = schema.csv_columns(path, lines, how)
    return "," if found.mark or found.separator is None else found.separator
