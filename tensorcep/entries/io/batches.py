"""Streams of batches from files, with exposures and other columns beside the values."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorcep.core.checks import check_choice, check_file, check_int, fail_value
from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.doubts import check_defaults
from tensorcep.entries.io.formats import format_of
from tensorcep.entries.io.layout import LAST, Reading, check_reading
from tensorcep.entries.io.lines import STDIN, check_seekable
from tensorcep.entries.io.matrix_market import MatrixRows
from tensorcep.entries.io.parquet import ParquetRows
from tensorcep.entries.io.pieces import BadLine, FileLines, TextLines, open_text

# Batches of files with one more column of numbers: exposures of counts, or numbers of trials.


def batches_with_extents(
    paths: Any, extent: str, batch_size: int = 1000, *, modes: Any = None, value: Any = None, **reading: Any
) -> Iterator[Batch]:
    """As `read_batches`, of csv and parquet files whose column `extent` holds a number of each entry.

    The files are read twice side by side, so they are no pipe, and a malformed line is refused.

    Raises
    ------
    ValueError
        Where `read_batches` does, or if the modes or the value are not named, or lines are to be set aside.
    """
    if modes is None or value is None:
        fail_value(f"the column {extent!r} beside the value needs modes= and value= of files; name them.")
    if extent == value or extent in modes:
        fail_value(f"the column {extent!r} is a mode or the value already; name another one.")
    if STDIN in ([paths] if isinstance(paths, str) else list(paths)):
        fail_value(f"the column {extent!r} beside the value is read apart from it, which '-' cannot be; give a file.")
    if "bad_line" in reading:
        fail_value(f"malformed lines cannot be set aside with the column {extent!r} beside the value; mend them.")
    each = (read_batches(paths, batch_size, modes=modes, value=column, **reading) for column in (value, extent))
    for batch, beside in zip(*each, strict=True):
        if len(batch.values) != len(beside.values) or not np.array_equal(batch.coords, beside.coords):
            fail_value(f"the column {extent!r} has gaps; give a number in every line.")
        yield batch._replace(extents=beside.values, column=extent)


# Entries of files in batches: one pass, bounded memory, any number of files one after the other, from any position.


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
    sep: str | None = None,
    decimal: str = ".",
    encoding: str | None = None,
    drop_missing: bool = False,
    words: bool = False,
    bad_line: BadLine = refuse,
    start: Position | tuple[int, int] = (0, 0),
) -> Iterator[Batch]:
    """Read entries from files one after the other, in batches that may span files; a cell may come more than once.

    Parameters
    ----------
    paths : path or list of paths
        Files as `read_tensor` takes them, but npz; "-" is standard input, for which `format` says what it is.
    batch_size : int, default=1000
        Entries per batch; the last may have fewer.
    first_batch : int, optional
        Entries of the batch at the very beginning, if it is to be of another size.
    format, index_base, header, labels, modes, value, sep, decimal, encoding, drop_missing
        As in `read_tensor`, but None is the last column too, and labels of a csv file are text, since a later line may
        hold any.
    words : bool, default=False
        Whether the values are words, such as yes and no: those of batches are text then.
    bad_line : callable, optional
        Called as ``bad_line(path, number, problem, text)`` for a malformed line, which is then left out; by default a
        ValueError.
    start : Position, optional
        Where to begin, such as the `position` of a batch.

    Yields
    ------
    Batch

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        On an unknown extension, a damaged file, files of different columns, or (unless `bad_line` takes it) a
        malformed line.
    """
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    if not names:
        fail_value("paths must name at least one file; got none.")
    check_int("batch_size", batch_size)
    size = batch_size if first_batch is None else check_int("first_batch", first_batch)
    kinds = [_kind_of(name, format) for name in names]
    last = LAST if value is None else value
    how = check_reading(
        Reading(index_base, header, labels, modes, last, None, sep, decimal, encoding, bool(drop_missing), words)
    )
    start = Position(*start)
    size = size if start == (0, 0) else batch_size
    # No more lines are taken than entries are missing from the batch, so it ends with the last line that was read.
    pieces: list[Batch] = []
    missing, columns, any_entry = size, None, start != (0, 0)
    for file in range(start.file, len(names)):
        first = Position(file, start.line if file == start.file else 0)
        with _opened(names[file], kinds[file], how, first, bad_line) as source:
            columns = _same_columns(columns, source.mode_names)
            while (piece := source.take(missing)) is not None:
                if not any_entry:
                    check_defaults(names[file], how, (), source.value_name, piece.values)
                pieces.append(piece)
                missing -= piece.values.size
                any_entry |= piece.values.size > 0
                if missing == 0:
                    yield _joined(pieces)
                    pieces, missing = [], batch_size
    if any(piece.values.size for piece in pieces):
        yield _joined(pieces)
    if not any_entry:
        fail_value(f"{', '.join(names)}: no entries; at least one is needed.")


def _kind_of(path: str, format: str | None) -> str:
    if path == STDIN:
        return check_choice("format of standard input", format or "csv", ("csv", "tns"))
    kind = format_of(check_file(path), format)
    if kind == "npz":
        fail_value(f"'{path}' is an npz file, which cannot be read in pieces; convert it to csv, tns or parquet.")
    if kind == "parquet":
        check_seekable(path, kind)
    return kind


@contextlib.contextmanager
def _opened(
    path: str, kind: str, how: Reading, start: Position, bad_line: BadLine
) -> Iterator[TextLines | FileLines | ParquetRows | MatrixRows]:
    if kind == "parquet":
        yield ParquetRows(path, how, start, bad_line)
    elif kind == "mtx":
        yield MatrixRows(path, how, start)
    else:
        with open_text(path, kind, how, start, bad_line) as source:
            yield source


def _same_columns(columns: tuple[Any, ...] | None, of_next: tuple[Any, ...]) -> tuple[Any, ...]:
    if columns is not None and columns != of_next:
        fail_value(f"the files must have the same columns; got the modes {list(columns)} and then {list(of_next)}.")
    return of_next


def _joined(pieces: Sequence[Batch]) -> Batch:
    last = pieces[-1]
    if len(pieces) == 1:
        return last
    columns = zip(*(piece.keys for piece in pieces), strict=True)
    return last._replace(
        coords=np.concatenate([piece.coords for piece in pieces]),
        keys=tuple(None if parts[0] is None else list(itertools.chain(*parts)) for parts in columns),
        values=np.concatenate([piece.values for piece in pieces]),
    )
