"""Readers of parquet and MatrixMarket; batches and columns of files, from any position on, in bounded memory."""

from __future__ import annotations

import contextlib
import glob
import io
import itertools
import math
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.io import mmread

from tensorcep.core import checks
from tensorcep.core.arrays import concatenated, fill_by_parts
from tensorcep.entries.io import schema, text
from tensorcep.entries.io.lines import STDIN, UNDECODED, check_seekable, number_in, open_binary, open_lines, translated
from tensorcep.entries.io.schema import START, Position, Schema
from tensorcep.entries.io.text import TextReader
from tensorcep.entries.labels import Labels, numbers_of
from tensorcep.entries.sparse_tensor import SparseTensor

LINES = 1 << 17  # that are read at a time
MAX_THREADS = 8  # the parser works outside Python's lock, but what surrounds it does not

# Parquet files. `pyarrow.parquet` decodes the pages of a row group as they are needed; `pyarrow.dataset` the group.


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    arrow = checks.optional_module("pyarrow", "reading parquet files", "'tensorcep[parquet]'")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = checks.reason_of(error)
        raise ValueError(f"'{path}' is not a parquet file or is damaged ({reason}); write it again.") from error


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the named levels of its index as columns, as its writer saw them."""
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(named) if named else frame


class ParquetFile:
    """A parquet file: the names of its columns, and its rows as frames."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _explained(path):
            parquet = checks.optional_module("pyarrow.parquet", "reading parquet files", "'tensorcep[parquet]'")
            self._data = parquet.ParquetFile(path)
            self.names = list(_flat(self._data.schema_arrow.empty_table().to_pandas()).columns)

    def frames(self, columns: Sequence[Any] | None, rows: int | None, skip: int = 0) -> Iterator[pd.DataFrame]:
        """Yield all columns, or some, of so many rows at a time, or of all, without the first ones that `skip` says."""
        stored = columns is not None and set(columns) <= set(self._data.schema_arrow.names)
        chosen: Any = list(columns or ()) if stored else None  # others are levels of an index, which pandas restores
        parts = iter([self._data]) if rows is None else self._data.iter_batches(rows, columns=chosen)
        while True:
            with _explained(self._path):
                part = next(parts, None)
                if part is None:
                    return
                part = part.read(chosen) if rows is None else part
                part.validate(full=True)  # pandas may decode text much later
                frame = _flat(part.to_pandas(split_blocks=True))
            left, skip = frame.iloc[skip:], max(skip - len(frame), 0)
            if len(left) or rows is None:
                yield left


class ParquetReader(schema.ChunkReader):
    """The entries of a parquet file from a position on."""

    def __init__(self, path: str, how: Schema, start: Position, rows: int | None) -> None:
        super().__init__(start)
        self._path, self._how = path, how
        file = ParquetFile(path)
        modes, self.value_name = schema.chosen_columns(path, file.names, how)
        self._columns = [*modes, *how.extras, *([] if self.value_name is None else [self.value_name])]
        self.mode_names = tuple(None if how.labels is False else name for name in modes)
        self._source = file.frames(self._columns, rows, start.line)
        self._names, self.is_log = modes, self.value_name is None

    def _parts(self, piece: pd.DataFrame, step: int) -> list[pd.DataFrame]:
        return [piece.iloc[at : at + step] for at in range(0, len(piece), step)]

    def _together(self, frame: pd.DataFrame, count: int | None) -> tuple[schema.Chunk | None, int]:
        how, known, n = self._how, None, len(frame)
        if how.drop_missing and self.value_name is not None:
            known = frame[self.value_name].notna().to_numpy()
            frame = frame[known].reset_index(drop=True)
        columns = [self._column(frame[name], count) for name in self._names]
        is_bad = any(column is None for column in columns)
        return None if is_bad else schema.chunk_of_frame(frame, columns, self.value_name, how.extras, how, known), n

    def _column(self, column: pd.Series, count: int | None) -> Any:
        """The rows or labels of some lines; None where one may be bad."""
        if self._how.labels is False:
            found = column.to_numpy()
            return schema.rows_of(found, self._how.index_base) if found.dtype.kind in "iu" else None
        if column.isna().any() or (column.dtype == object and not all(isinstance(cell, Hashable) for cell in column)):
            return None
        return column if count is None else schema.as_objects(column)

    def _one_by_one(self, frame: pd.DataFrame) -> tuple[schema.Chunk, int]:
        how, rows = self._how, zip(*(frame[name].tolist() for name in self._columns), strict=True)
        n_modes, n_extras = len(self._names), len(how.extras)
        entries = list[list[Any]]()
        for number, row in enumerate(rows, self._position.line + 1):
            modes, extras, value = row[:n_modes], row[n_modes : n_modes + n_extras], 1.0 if self.is_log else row[-1]
            if how.drop_missing and (pd.isna(value) or (how.words and value in schema.MISSING)):
                continue
            found = map(_value_problem, extras if how.words else [*extras, value])
            problem = _label_problem(modes, self.mode_names, how.index_base) or next(filter(None, found), None)
            if problem is None and how.words and (not isinstance(value, str) or value in schema.MISSING):
                problem = f"has the value {value!r}, which is no word as in other lines; mend it"
            if problem is None:
                rows_or_labels = [cell - how.index_base for cell in modes] if how.labels is False else modes
                entries.append([*rows_or_labels, *map(float, extras), value if how.words else float(value)])
            else:
                how.bad_line(self._path, number, problem, ",".join(map(str, row)) + "\n")
        return schema.chunk_of(entries, self.mode_names, how), len(frame)


def _label_problem(cells: Sequence[Any], names: Sequence[Any], base: int) -> str | None:
    for cell, name in zip(cells, names, strict=True):
        if not isinstance(cell, Hashable):
            return f"has {cell!r} in column {name!r}, which is no label, such as a number, text or a date; mend it"
        if pd.isna(cell):  # type: ignore[call-overload]
            return "has a missing label; drop it or fill it in"
        if name is not None:
            continue
        if not (isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer())) or cell < min(base, 0):
            return f"has the index {cell!r}, but indices are integers that count from {base}; mend it"
        if cell < base:
            return "has the index 0, but indices count from 1; pass index_base=0 if this file counts from 0"
        if cell - base >= checks.INT64_MAX:
            return f"has the index {cell!r}, which is larger than 64 bits hold; mend it"
        if cell - base >= schema.MOST_ROWS:
            return f"has the index {cell!r}; {schema.TOO_MANY}"
    return None


def _value_problem(cell: Any) -> str | None:
    value = number_in(cell) if isinstance(cell, str) else cell
    if not isinstance(value, (int, float, Decimal)) or not math.isfinite(value):
        return f"has the value {cell!r}, which is not a finite number; mend it"
    return None


# Other files.


class MatrixReader(schema.ChunkReader):
    """The elements that a MatrixMarket file stores, both halves of a symmetric one, and ones for a pattern."""

    mode_names = (None, None)

    def __init__(self, path: str, how: Schema, start: Position) -> None:
        super().__init__(start)
        with open_binary(path, how.encoding) as handle:
            try:
                found = mmread(io.BufferedReader(handle))
            except (ValueError, OverflowError, TypeError, MemoryError) as error:
                problem = f"is not a MatrixMarket file or is damaged ({checks.reason_of(error)}); write it again."
                raise ValueError(f"'{path}' {problem}") from error
        if np.iscomplexobj(found):
            checks.fail_value(f"'{path}' holds complex numbers, which no likelihood has; give real ones.")
        self.shape = found.shape if how.shape is None else checks.check_shape(how.shape, 2)
        if sparse.issparse(found):
            coo = found.tocoo()
            rows, columns, values = coo.row, coo.col, coo.data
        else:
            (rows, columns), values = np.indices(found.shape).reshape(2, -1), found.ravel()
        if how.drop_missing:
            known = ~np.isnan(values)
            rows, columns, values = rows[known], columns[known], values[known]
        if not len(values):
            checks.fail_value(f"'{path}' holds no entries; at least one is needed.")
        chunk = schema.Chunk((rows.astype(np.int32), columns.astype(np.int32)), values.astype(np.float64), {})
        self._block, self._n_lines = chunk.part(start.line, len(values)), max(len(values) - start.line, 0)


@contextlib.contextmanager
def open_chunks(
    path: str, how: Schema, start: Position = START, layout_in: Any = None, verbose: int = 0, whole: bool = False
) -> Iterator[schema.ChunkReader]:
    """Yield the reader of a file; `whole` says that all of it is kept in memory."""
    kind = _kind_of(path, how.format)
    if kind == "parquet":
        yield ParquetReader(path, how, start, None if whole else LINES)
        return
    if kind == "mtx":
        yield MatrixReader(path, how, start)
        return
    with open_lines(path, how.encoding) as lines:
        first, again = itertools.tee(lines)  # a pipe cannot be read twice
        layout = schema.layout_of(path, kind, first, how) if layout_in is None else layout_in(first)
        del first  # which would keep all lines
        if not os.path.isfile(path):
            rest = iter(translated(again, layout.mark))  # of which nothing is read before it is needed

            def read(count: int | None) -> bytes:
                return "".join(itertools.islice(rest, count or LINES)).encode(errors=UNDECODED)

            yield TextReader(layout, read, start, pool=False)
            return
    # The parser makes text under Python's lock, so that threads only cost then.
    alone = not whole or layout.labelled or os.path.getsize(path) <= text.BLOCK
    threads = 1 if alone else min(os.cpu_count() or 1, MAX_THREADS)
    with open_binary(path, how.encoding, layout.mark, verbose) as handle, contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        # streams, which keep less in memory, take half a block at a time
        blocks = text.blocks_of(handle, text.BLOCK if whole else max(text.BLOCK // 2, 1))
        yield TextReader(layout, lambda _: next(blocks, b""), start, pool)


def _kind_of(path: str, format: str | None) -> str:
    if path == STDIN:
        return checks.check_choice("format of standard input", format or "csv", ("csv", "tns"))
    kind = schema.format_of(checks.check_file(path), format)
    if kind == "npz":
        cure = "convert it to csv, tns or parquet"
        checks.fail_value(f"'{path}' is an npz file, which cannot be read in pieces; {cure}.")
    if kind == "parquet":
        check_seekable(path, kind)
    return kind


def read_chunks(
    files: Sequence[str], how: Schema, count: Callable[[], int | None], start: Position = START
) -> Iterator[tuple[schema.Chunk, schema.ChunkReader, str]]:
    """Yield chunks of files from a position on, of as many lines as `count` says then, each with reader and file."""
    columns: tuple[Any, ...] | None = None
    for file in range(start.file, len(files)):
        first = Position(file, start.line if file == start.file else 0)
        with open_chunks(files[file], how, first) as reader:
            if columns is not None and columns != reader.mode_names:
                got = f"the modes {list(columns)} and then {list(reader.mode_names)}"
                checks.fail_value(f"the files must have the same columns; got {got}.")
            columns = reader.mode_names
            while (chunk := reader.take(count())) is not None:
                yield chunk, reader, files[file]


# Streams.


class Batch(NamedTuple):
    """N entries that are learned together."""

    coords: NDArray[np.int64]  # (N, K) rows counted from 0; zeros in modes with keys
    keys: tuple[list[Any] | None, ...]  # per mode the label of each entry, None where the mode has indices
    names: tuple[Any, ...]  # of the modes, None where there is none
    values: NDArray[np.float64]  # (N,)
    time: float | None = None  # when it was observed, if that is known
    tensor: SparseTensor | None = None  # what it came as, if it was one: `fit` would take its shape and order of labels
    position: Position | None = None  # of a batch from files: where the next one begins
    classes: list[Any] | None = None  # the two labels that the values 0 and 1 stand for, if they do
    weights: NDArray[np.float64] | None = None  # (N,) how much each entry counts; None where all count once
    extents: NDArray[np.float64] | None = None  # (N,) exposures or numbers of trials; None where there are none
    column: str | None = None  # that these came from, if there was one


def read_batches(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    batch_size: int = 1000,
    *,
    first_batch: int | None = None,
    extent: str | None = None,
    value: Any = None,
    bad_line: schema.BadLine = schema.refuse,
    start: Position | tuple[int, int] = (0, 0),
    **how: Any,
) -> Iterator[Batch]:
    """Read entries from files one after the other, in batches that may span files; a cell may come more than once.

    The files are those that `read_tensor` takes, but npz; "-" is standard input, of which `format` says what it is. The
    batch at the very beginning may be of another size, `first_batch`; `extent` is a column of exposures or numbers of
    trials; `start`, such as the `position` of a batch, is where to begin. A malformed line is left out where
    ``bad_line(path, number, problem, text)`` takes it. `how` has what `read_tensor` takes, with its errors: format,
    index_base, header, labels (those of a csv file are text, since a later line may hold any), modes, sep, decimal,
    encoding, drop_missing; and `words`, whether the values are words, such as yes and no.
    """
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    if not names:
        checks.fail_value("paths must name at least one file; got none.")
    checks.check_int("batch_size", batch_size)
    size = batch_size if first_batch is None else checks.check_int("first_batch", first_batch)
    how |= {"value": schema.LAST if value is None else value, "extras": () if extent is None else (extent,)}
    reading = schema.check_schema(Schema(bad_line=bad_line, **how))
    for name in names:
        _kind_of(name, reading.format)
    start = Position(*start)
    missing = [size if start == (0, 0) else batch_size]  # entries of the next batch
    # No more lines are taken than entries are missing from the batch, so it ends with the last line that was read.
    pieces: list[schema.Chunk] = []
    modes, any_entry = tuple[Any, ...](), start != (0, 0)
    for chunk, reader, name in read_chunks(names, reading, lambda: missing[0], start):
        if not any_entry:
            schema.check_defaults(name, reading, (), reader.value_name, chunk.values)
        modes, n = reader.mode_names, len(chunk.values)
        pieces.append(chunk)
        missing[0] -= n
        any_entry = any_entry or n > 0
        if not missing[0]:
            yield _batch_of(pieces, modes, extent)
            pieces, missing[0] = [], batch_size
    if any(len(piece.values) for piece in pieces):
        yield _batch_of(pieces, modes, extent)
    if not any_entry:
        checks.fail_value(f"{', '.join(names)}: no entries; at least one is needed.")


def _batch_of(pieces: Sequence[schema.Chunk], names: tuple[Any, ...], extent: Any) -> Batch:
    columns = [concatenated([piece.columns[k] for piece in pieces]) for k in range(len(names))]
    keys = tuple(None if name is None else column.tolist() for name, column in zip(names, columns, strict=True))
    rows = [column if own is None else np.zeros(len(own), np.int32) for column, own in zip(columns, keys, strict=True)]
    values = concatenated([piece.values for piece in pieces])
    extents = None if extent is None else concatenated([piece.extras[extent] for piece in pieces])
    coords, position = np.stack(rows, axis=1).astype(np.int64), pieces[-1].position
    return Batch(coords, keys, names, values, position=position, extents=extents, column=extent)


# Entries as columns: read once, some lines at a time, labels numbered as they come. What a label is numbered does not
# depend on where it stood: once all are known they are sorted, and the numbers changed in place.


class GrowingInMemory(list[np.ndarray]):
    """An array that grows at its end."""

    def __init__(self, dtype: Any) -> None:
        super().__init__([np.empty(0, dtype)])

    def finish(self) -> np.ndarray:
        return np.concatenate(self)


class Files(NamedTuple):
    """Files and how they are read; where `distinct`, no cell may occur twice."""

    source: Any
    how: Schema = Schema()
    distinct: bool = False


def are_files(source: Any) -> bool:
    """Whether something names files: a path, or a list of paths."""
    items = source if isinstance(source, (list, tuple)) and len(source) else [source]
    return isinstance(source, Files) or all(isinstance(item, (str, os.PathLike)) for item in items)


def files_of(source: Any) -> list[str]:
    """The files that a path, a folder, a pattern such as data/*.parquet, or a list of these names, sorted by names."""
    items = source if isinstance(source, (list, tuple)) else [source]
    found: list[str] = []
    for item in map(os.fspath, items):
        if os.path.isdir(item):
            names = sorted(name for name in os.listdir(item) if schema.kind_of(name) is not None and name[0] != ".")
            of_text = (".txt", ".txt.gz")  # which may be anything
            found += [os.path.join(item, name) for name in names if not name.lower().endswith(of_text)]
        elif os.path.exists(item):
            found.append(item)
        else:
            found += sorted(glob.glob(item))
    if not found:
        raise FileNotFoundError(f"there is no file {source!r}; check the path, the folder or the pattern.")
    return found


class _Numbers:
    """The numbers of the labels of one mode, in the order in which they came."""

    def __init__(self, name: Any, texts: bool) -> None:
        self._name, self._texts, self._known = name, texts, dict[Any, int]()
        self._dtype: Any = None

    def of(self, column: Any) -> np.ndarray:
        """The number of each label of some lines."""
        as_text = self._texts and column.dtype == np.int64
        column = pd.Series(schema.as_objects(column, texts=True) if as_text else column)
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(column.cat.categories.dtype)
        self._dtype = column.dtype if self._dtype is None or self._dtype == column.dtype else object
        codes, distinct = pd.factorize(column)
        known = self._known
        numbers = np.array([known.setdefault(label, len(known)) for label in distinct.tolist()], dtype=np.int32)
        if len(known) > schema.MOST_ROWS:
            checks.fail_value(f"there must be at most 2**31 rows in a mode; got {len(known)} labels in {self._name!r}.")
        return numbers[codes]

    def in_order(self, column: np.ndarray) -> Labels:
        """The labels in order, texts perhaps as numbers; the numbers in a column are changed to rows, in place."""
        known = pd.Series(list(self._known), dtype=None if self._texts else self._dtype)
        labels, found = Labels.from_column(numbers_of(known) if self._texts else known, name=self._name)
        rows = found.astype(np.int32)
        fill_by_parts(column, lambda at: rows[column[at]])
        return labels


def read_columns(
    given: Files, growing: Callable[[Any], Any] = GrowingInMemory
) -> tuple[tuple[np.ndarray, ...], np.ndarray, tuple[int, ...], tuple[Labels | None, ...]]:
    """Columns of rows (N,) int32 from 0, values (N,), shape and labels of files; `growing` makes arrays that grow."""
    files, how = files_of(given.source), schema.check_schema(given.how)
    if how.value is None:
        cure = "read_tensor counts them, or add a column"
        checks.fail_value(f"value=None, to count lines, needs all of them in memory; {cure}.")
    kinds = {schema.format_of(file, how.format) for file in files}
    if len(kinds) > 1 and "parquet" in kinds:
        checks.fail_value(f"the files must be of one kind; got {', '.join(sorted(kinds))}.")
    texts, values = kinds != {"parquet"}, growing(np.float64)
    columns, numbers, sizes = list[Any](), list[Any](), list[int]()
    for chunk, reader, name in read_chunks(files, how._replace(shape=None), lambda: None):
        if not columns:
            schema.check_defaults(name, how, (), reader.value_name, chunk.values)
            columns = [growing(np.int32) for _ in reader.mode_names]
            numbers = [None if mode is None else _Numbers(mode, texts) for mode in reader.mode_names]
            sizes = [0] * len(columns)
        values.append(chunk.values)
        for k, (column, known) in enumerate(zip(columns, numbers, strict=True)):
            rows = chunk.columns[k] if known is None else known.of(chunk.columns[k])
            sizes[k] = max(sizes[k], int(rows.max(initial=-1)) + 1)
            column.append(rows)
    finished, y = tuple(column.finish() for column in columns), values.finish()
    if not len(y):
        checks.fail_value(f"{', '.join(files)}: no entries; at least one is needed.")
    each = zip(finished, numbers, strict=True)
    labels = tuple(None if known is None else known.in_order(column) for column, known in each)
    checks.check_sizes(sizes, len(y), how.shape is not None)
    return finished, y, tuple(sizes), labels
