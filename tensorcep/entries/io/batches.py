"""Entries of files in batches: one pass, bounded memory, any number of files one after the other, from any position."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tensorcep.core.checks import INT64_MAX, check_choice, check_file, check_int, fail_value
from tensorcep.entries.interop import optional_module
from tensorcep.entries.io.columns import chosen_columns, csv_layout, format_of
from tensorcep.entries.io.lines import ENCODING, Layout, line_problem, number_in, open_binary

STDIN = "-"
PARQUET_ROWS = 1 << 14  # rows decoded at a time

# Takes a malformed line: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]


class Position(NamedTuple):
    """How far files have been read: `file` of them whole, and `line` lines (of parquet, rows) of the next one."""

    file: int = 0
    line: int = 0


class FileBatch(NamedTuple):
    """Consecutive entries of files.

    Attributes
    ----------
    coords : (N, K) int64
        Counted from 0; zeros in modes with labels.
    keys : tuple of list or None
        Per mode the labels of the entries, or None where there are indices.
    names : tuple
        Column names of the modes, None where there are indices.
    values : (N,) float64
    position : Position
        Where the next batch begins.
    """

    coords: np.ndarray
    keys: tuple[list[Any] | None, ...]
    names: tuple[Any, ...]
    values: np.ndarray
    position: Position


class _Reading(NamedTuple):
    """The options of `read_batches`."""

    format: str | None
    index_base: int
    header: bool
    labels: bool | None
    modes: Any
    value: Any
    bad_line: BadLine


class _Entry(NamedTuple):
    """One entry: indices from 0 or labels, its value, where it ended, and the names of labelled modes."""

    modes: list[Any]
    value: float
    position: Position
    names: tuple[Any, ...]


def refuse(path: str, number: int, problem: str, text: str) -> None:
    """Raise ValueError for a malformed line."""
    fail_value(f"line {number} of '{path}' {problem}.")


def read_batches(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    batch_size: int = 1000,
    *,
    first_batch: int | None = None,
    format: str | None = None,
    index_base: int = 1,
    header: bool = True,
    labels: bool | None = None,
    modes: Any = None,
    value: Any = None,
    bad_line: BadLine = refuse,
    start: Position | tuple[int, int] = (0, 0),
) -> Iterator[FileBatch]:
    """Read entries from files one after the other, in batches that may span files.

    Parameters
    ----------
    paths : path or list of paths
        .tns, csv (both also with .gz) and parquet files; "-" is standard input, for which `format` says what it is.
    batch_size : int, default=1000
        Entries per batch; the last may have fewer.
    first_batch : int, optional
        Entries of the batch at the very beginning, if it is to be of another size.
    format, index_base, header, labels, modes, value
        As in `read_tensor`. Labels of a csv file are text here, since a later line may hold any.
    bad_line : callable, optional
        Called as ``bad_line(path, number, problem, text)`` for a malformed line, which is then left out; by default a
        ValueError.
    start : Position, optional
        Where to begin, such as the `position` of a batch.

    Yields
    ------
    FileBatch

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        On an unknown extension, a damaged file, or (unless `bad_line` takes it) a malformed line.
    """
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    check_int("batch_size", batch_size)
    size = batch_size if first_batch is None else check_int("first_batch", first_batch)
    check_choice("index_base", str(index_base), ("0", "1"))
    kinds = [_kind_of(name, format) for name in names]
    reading = _Reading(format, index_base, header, labels, modes, value, bad_line)
    start = Position(*start)
    entries = itertools.chain.from_iterable(
        _entries(path, kind, reading, file, start.line if file == start.file else 0)
        for file, (path, kind) in enumerate(zip(names, kinds, strict=True))
        if file >= start.file
    )
    size = size if start == (0, 0) else batch_size
    while part := list(itertools.islice(entries, size)):
        size = batch_size
        yield _batch(part)


def _kind_of(path: str, format: str | None) -> str:
    if path == STDIN:
        return check_choice("format of standard input", format or "csv", ("csv", "tns"))
    kind = format_of(check_file(path), format)
    if kind == "npz":
        fail_value(f"'{path}' is an npz file, which cannot be read in pieces; convert it to csv, tns or parquet.")
    return kind


def _batch(part: list[_Entry]) -> FileBatch:
    names = part[0].names
    odd = next((entry for entry in part if entry.names != names), None)
    if odd is not None:
        fail_value(f"the files must have the same columns; got the modes {list(names)} and then {list(odd.names)}.")
    columns = list(zip(*(entry.modes for entry in part), strict=True))
    keys = tuple(None if name is None else list(column) for name, column in zip(names, columns, strict=True))
    coords = np.zeros((len(part), len(names)), dtype=np.int64)
    for k, column in enumerate(columns):
        if keys[k] is None:
            coords[:, k] = column
    return FileBatch(coords, keys, names, np.array([entry.value for entry in part]), part[-1].position)


def _entries(path: str, kind: str, reading: _Reading, file: int, skip: int) -> Iterator[_Entry]:
    if kind == "parquet":
        yield from _parquet_entries(path, reading, file, skip)
        return
    with _opened(path) as handle:
        numbered = enumerate(io.TextIOWrapper(handle, encoding=ENCODING, errors="replace"), 1)
        layout, names, lines = _text_layout(path, kind, reading, numbered)
        for number, text in lines:
            if number <= skip or number <= layout.skip:
                continue
            line = text if layout.comment is None else text.split(layout.comment, 1)[0]
            if not line.strip():
                continue
            fields = _split(line, layout)
            found = _parsed_indices(line, fields, layout) or _parsed(fields, layout)
            if isinstance(found, str):
                reading.bad_line(path, number, found, text)
            else:
                yield _Entry(found[:-1], found[-1], Position(file, number), names)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
    else:
        with open_binary(path) as (handle, _):
            yield handle


def _text_layout(
    path: str, kind: str, reading: _Reading, lines: Iterator[tuple[int, str]]
) -> tuple[Layout, tuple[Any, ...], Iterator[tuple[int, str]]]:
    """The layout of a text file from its first lines, the names of its labelled modes, and all its lines again."""
    head: list[tuple[int, str]] = []
    wanted = 1
    labelled = kind == "csv" and (reading.header if reading.labels is None else reading.labels)
    comment = None if labelled else "#"
    found: list[tuple[int, list[str], str]] = []
    for number, text in lines:
        head.append((number, text))
        line = text if comment is None else text.split(comment, 1)[0]
        if line.strip():
            found.append((number, line.split() if kind == "tns" else next(csv.reader([line])), text))
            wanted = 2 if kind == "tns" and len(found[0][1]) == 2 else 1
            if len(found) == wanted:
                break
    lines = itertools.chain(head, lines)
    if kind == "csv":
        layout, columns = csv_layout(
            path,
            found[0] if found else None,
            reading.header,
            labelled,
            reading.modes,
            reading.value,
            reading.index_base,
        )
        return layout, tuple(columns[j] if labelled else None for j in layout.modes), lines
    if len(found) < wanted:
        fail_value(f"'{path}' holds no entries; at least one line with indices and a value is needed.")
    # two fields in the first line begin an extended header: order and number of entries, then the sizes
    order = len(found[-1][1]) if wanted == 2 else len(found[0][1]) - 1
    skip = found[-1][0] if wanted == 2 else found[0][0] - 1
    if order < 2:
        fail_value(f"line {found[0][0]} of '{path}' must hold two indices or more, and a value; mend it.")
    layout = Layout(path, None, "#", order + 1, tuple(range(order)), order, skip, reading.index_base)
    return layout, (None,) * order, lines


def _split(line: str, layout: Layout) -> list[str]:
    if layout.separator is None:
        return line.split()
    if '"' in line:
        return next(csv.reader([line.rstrip("\r\n")], skipinitialspace=True))
    return [field.lstrip() for field in line.rstrip("\r\n").split(layout.separator)]


def _parsed_indices(line: str, fields: list[str], layout: Layout) -> list[Any] | None:
    """What `_parsed` returns for an ordinary line of indices, in a third of the time; None for any other."""
    if layout.labelled or "_" in line or len(fields) != layout.n_fields:
        return None
    try:
        found: list[Any] = [int(fields[j]) - layout.base for j in layout.modes]
        value = float(fields[layout.value])
    except ValueError:
        return None
    return [*found, value] if min(found) >= 0 and max(found) < INT64_MAX and math.isfinite(value) else None


def _parsed(fields: list[str], layout: Layout) -> list[Any] | str:
    """Indices from 0 or labels, then the value; or what is wrong with the line."""
    problem = line_problem(fields, layout)
    if problem is not None:
        return problem
    if not layout.labelled:
        found: list[Any] = [int(_number(fields[j])) - layout.base for j in layout.modes]
    else:
        found = [fields[j] for j in layout.modes]
        if "" in found:
            return "has an empty label; mend it"
    return [*found, float(_number(fields[layout.value]))]


def _number(text: str) -> int | float:
    number = number_in(text)
    return math.nan if number is None else number


def _parquet_entries(path: str, reading: _Reading, file: int, skip: int) -> Iterator[_Entry]:
    optional_module("pyarrow", "reading parquet files", "'tensorcep[parquet]'")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(path)
        modes, value = chosen_columns(path, list(table.schema_arrow.names), reading.modes, reading.value)
        names = tuple(None if reading.labels is False else name for name in modes)
        number = 0
        for part in table.iter_batches(PARQUET_ROWS, columns=[*modes, value]):
            if number + part.num_rows <= skip:
                number += part.num_rows
                continue
            frame = part.to_pandas()
            columns: Iterable[tuple[Any, ...]] = zip(*(frame[name].tolist() for name in [*modes, value]), strict=True)
            for found in columns:
                number += 1
                if number > skip:
                    problem = _row_problem(found, names, reading.index_base)
                    if problem is not None:
                        reading.bad_line(path, number, problem, ",".join(map(str, found)) + "\n")
                        continue
                    shift = [0 if name is not None else reading.index_base for name in names]
                    cells = [cell - s if s else cell for cell, s in zip(found[:-1], shift, strict=True)]
                    yield _Entry(cells, float(found[-1]), Position(file, number), names)
    except (ArrowException, OSError) as error:
        raise ValueError(f"'{path}' is not a parquet file or is damaged ({error}); write it again.") from error


def _row_problem(found: Sequence[Any], names: Sequence[Any], base: int) -> str | None:
    for cell, name in zip(found[:-1], names, strict=True):
        if cell is None or cell != cell:
            return "has a missing label; drop it or fill it in"
        if name is None and (not isinstance(cell, int) or cell < base):
            return f"has the index {cell!r}, but indices are integers that count from {base}; mend it"
    if not isinstance(found[-1], (int, float)) or not math.isfinite(found[-1]):
        return f"has the value {found[-1]!r}, which is not a finite number; mend it"
    return None
