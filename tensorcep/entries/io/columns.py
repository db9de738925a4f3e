"""Entries of files of any size as columns: read once, some lines at a time, labels numbered as they come.

What a label is numbered does not depend on where it stood: once all are known they are sorted, and the numbers changed
in place.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_sizes, check_values, fail_value
from tensorcep.entries.io.batches import read_batches
from tensorcep.entries.io.formats import format_of, is_of_entries
from tensorcep.entries.io.layout import Reading
from tensorcep.entries.io.one_line import MOST_ROWS
from tensorcep.entries.io.parquet import frames_of_parquet
from tensorcep.entries.labels import Labels, numbers_of

# Lines that are read at a time.
LINES = 1 << 17


class GrowingColumn(Protocol):
    """An array that grows at its end."""

    def append(self, values: np.ndarray) -> None: ...

    def finish(self) -> np.ndarray: ...


class GrowingInMemory:
    """One in memory."""

    def __init__(self, dtype: Any) -> None:
        self._parts, self._dtype = [np.empty(0, dtype)], dtype

    def append(self, values: np.ndarray) -> None:
        """Keep values."""
        self._parts.append(np.asarray(values, dtype=self._dtype))

    def finish(self) -> np.ndarray:
        """All values."""
        return np.concatenate(self._parts)


class Files(NamedTuple):
    """Files and how they are read; where `distinct`, no cell may occur twice."""

    source: Any
    how: Reading = Reading()
    format: str | None = None
    distinct: bool = False


class ColumnEntries(NamedTuple):
    """Entries as columns.

    Attributes
    ----------
    columns : tuple of (N,) int32
        Rows from 0, per mode.
    values : (N,) float64
    shape : tuple of int
    labels : tuple of Labels or None
    """

    columns: tuple[np.ndarray, ...]
    values: np.ndarray
    shape: tuple[int, ...]
    labels: tuple[Labels | None, ...]


def are_files(source: Any) -> bool:
    """Whether something names files: a path, or a list of paths."""
    if isinstance(source, Files):
        return True
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(item, (str, os.PathLike)) for item in source)
    return isinstance(source, (str, os.PathLike))


def files_of(source: Any) -> list[str]:
    """The files that a path, a folder, a pattern such as data/*.parquet, or a list of these names, in order of names.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    items = source if isinstance(source, (list, tuple)) else [source]
    found: list[str] = []
    for item in map(os.fspath, items):
        if os.path.isdir(item):
            names = sorted(name for name in os.listdir(item) if is_of_entries(name))
            found += [os.path.join(item, name) for name in names if not name.startswith(".")]
        elif os.path.exists(item):
            found.append(item)
        else:
            found += sorted(glob.glob(item))
    if not found:
        raise FileNotFoundError(f"there is no file {source!r}; check the path, the folder or the pattern.")
    return found


class _Numbers:
    """The numbers of the labels of one mode, in the order in which they came."""

    def __init__(self, name: Any) -> None:
        self._name, self._known = name, dict[Any, int]()
        self._dtype: Any = None

    def of(self, column: pd.Series) -> np.ndarray:
        """The number of each label of some lines."""
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(column.cat.categories.dtype)
        missing = column.isna().to_numpy()
        if missing.any():
            fail_value(
                f"column {self._name!r} has {int(missing.sum())} missing labels in {len(column)} lines; drop these."
            )
        self._dtype = column.dtype if self._dtype is None or self._dtype == column.dtype else object
        codes, distinct = pd.factorize(column)
        known = self._known
        own = np.array([known.setdefault(label, len(known)) for label in distinct.tolist()], dtype=np.int32)
        return own[codes]

    def sorted(self, texts: bool) -> tuple[Labels, np.ndarray]:
        """The labels in their order, and the row of each number; `texts` may be spellings of numbers."""
        column = pd.Series(list(self._known), dtype=self._dtype)
        labels, rows = Labels.from_column(numbers_of(column) if texts else column, name=self._name)
        return labels, rows.astype(np.int32)


def read_columns(given: Files, growing: Callable[[Any], GrowingColumn] = GrowingInMemory) -> ColumnEntries:
    """Read the entries of files as columns.

    Parameters
    ----------
    given : Files
        .tns, csv and parquet files of the same columns: a path, folder, pattern or list of them.
    growing : callable
        Makes an array of a dtype that grows, on scratch for instance.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        On a malformed or damaged file, or where a value is not a finite number.
    """
    files, how = files_of(given.source), given.how
    if how.value is None:
        fail_value("value=None, to count lines, needs all of them in memory; read_tensor counts them, or add a column.")
    texts, parts = _parts_of(files, how, given.format)
    values, columns, numbers, sizes = (
        growing(np.float64),
        list[GrowingColumn](),
        list[Any](),
        np.zeros(0, dtype=np.int64),
    )
    for names, keys, coords, y in parts:
        if not columns:
            columns = [growing(np.int32) for _ in names]
            numbers = [None if name is None else _Numbers(name) for name in names]
            sizes = np.zeros(len(names), dtype=np.int64)
        values.append(check_values(y, name="the values"))
        for k, (column, known) in enumerate(zip(columns, numbers, strict=True)):
            rows = coords[:, k] if known is None else known.of(keys[k])
            sizes[k] = max(sizes[k], int(rows.max(initial=-1)) + 1)
            if sizes[k] > MOST_ROWS:
                fail_value(f"there must be at most 2**31 rows in a mode; got the index {sizes[k] - 1} in mode {k}.")
            column.append(rows)
    finished, y = tuple(column.finish() for column in columns), values.finish()
    if not len(y):
        fail_value(f"{', '.join(files)}: no entries; at least one is needed.")
    labels = tuple(
        None if known is None else _in_order(column, known, texts)
        for column, known in zip(finished, numbers, strict=True)
    )
    check_sizes([int(n) for n in sizes], len(y), how.shape is not None)
    return ColumnEntries(finished, y, tuple(int(n) for n in sizes), labels)


def _in_order(column: np.ndarray, numbers: _Numbers, texts: bool) -> Labels:
    """The labels of a mode in their order; the numbers in its column are changed to their rows, in place."""
    labels, rows = numbers.sorted(texts)
    for first in range(0, len(column), LINES):
        part = slice(first, first + LINES)
        column[part] = rows[column[part]]
    return labels


# Names of the modes, labels (of modes with names), coordinates (of the others), and values of some lines.
Part = tuple[tuple[Any, ...], Sequence[Any], np.ndarray, Any]


def _parts_of(files: list[str], how: Reading, format: str | None) -> tuple[bool, Iterator[Part]]:
    """Whether labels are all text, as text files have them, and some lines of the files at a time."""
    kinds = {format_of(file, format) for file in files}
    if kinds == {"parquet"}:
        return False, _of_parquet(files, how)
    if len(kinds) > 1 and "parquet" in kinds:
        fail_value(f"the files must be of one kind; got {', '.join(sorted(kinds))}.")
    return True, _of_text(files, how, format)


def _of_parquet(files: list[str], how: Reading) -> Iterator[Part]:
    first: Any = None
    for frame, modes, value in frames_of_parquet(files, how, LINES):
        names = tuple(None if how.labels is False else name for name in modes)
        if first is not None and first != modes:
            fail_value(f"the files must have the same columns; got the modes {list(first)} and then {list(modes)}.")
        first = modes
        coords = np.zeros((len(frame), len(modes)), dtype=np.int64)
        for k, name in enumerate(names):
            if name is None:
                coords[:, k] = _indices(frame[modes[k]], how.index_base)
        yield names, [frame[name] for name in modes], coords, frame[value].to_numpy()


def _indices(column: pd.Series, base: int) -> np.ndarray:
    found = column.to_numpy()
    if found.dtype.kind not in "iu" or (len(found) and int(found.min()) < base):
        fail_value(f"column {column.name!r} must hold indices that count from {base}; got others; see index_base.")
    return np.asarray(found.astype(np.int64) - base)


def _of_text(files: list[str], how: Reading, format: str | None) -> Iterator[Part]:
    options = how._asdict()
    del options["shape"]
    for batch in read_batches(files, LINES, format=format, **options):
        keys = [None if own is None else pd.Series(own) for own in batch.keys]
        names = tuple(None if own is None else name for own, name in zip(batch.keys, batch.names, strict=True))
        yield names, keys, batch.coords, batch.values
