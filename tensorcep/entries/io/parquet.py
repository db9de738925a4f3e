"""Entries from parquet files, whole or some rows at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from tensorcep.core.checks import INT64_MAX, optional_module, reason_of
from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.layout import MISSING, Reading, chosen_columns
from tensorcep.entries.io.lines import number_in
from tensorcep.entries.io.one_line import MOST_ROWS, TOO_MANY
from tensorcep.entries.io.pieces import BadLine, batch_of

ROWS = 1 << 14  # decoded at a time


def read_parquet(path: str) -> pd.DataFrame:
    """Return all columns of a parquet file."""
    with _explained(path):
        return _flat(pd.read_parquet(path, engine="pyarrow"))


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the named levels of its index as columns, as its writer saw them.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a text is no text: pandas may decode it much later.
    """
    named = [name for name in frame.index.names if name is not None]
    frame = frame.reset_index(named) if named else frame
    for _, column in frame.items():
        if isinstance(column.dtype, pd.StringDtype) and column.dtype.storage == "pyarrow":
            optional_module("pyarrow", "reading parquet files").array(column).validate(full=True)
    return frame


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    arrow = optional_module("pyarrow", "reading parquet files", "'tensorcep[parquet]'")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = reason_of(error)
        raise ValueError(f"'{path}' is not a parquet file or is damaged ({reason}); write it again.") from error


def columns_of_parquet(path: str) -> list[Any]:
    """Return the names of the columns of a parquet file."""
    with _explained(path):
        from pyarrow.parquet import ParquetFile

        return list(_flat(ParquetFile(path).schema_arrow.empty_table().to_pandas()).columns)


def frames_of_parquet(
    files: Sequence[str], how: Reading | None, rows: int
) -> Iterator[tuple[pd.DataFrame, list[Any], Any]]:
    """Yield some rows at a time, with the columns of the modes and of the value; without `how` all columns.

    Raises
    ------
    ValueError
        If a file is damaged, or has no such columns.
    """
    for path in files:
        with _explained(path):
            from pyarrow.parquet import ParquetFile

            table = ParquetFile(path)
            names = list(_flat(table.schema_arrow.empty_table().to_pandas()).columns)
        modes, value = (names, None) if how is None else chosen_columns(path, names, how.modes, how.value)
        parts = table.iter_batches(rows, columns=None if how is None else [*modes, value])
        while True:
            with _explained(path):
                part = next(parts, None)
                if part is None:
                    break
                frame = _flat(part.to_pandas())
            yield frame, modes, value


class ParquetRows:
    """The entries of a parquet file from a position on, taken some rows at a time.

    Attributes
    ----------
    mode_names : tuple
        Names of the modes, None where there are indices.
    value_name : object
    """

    def __init__(self, path: str, how: Reading, start: Position, bad_line: BadLine) -> None:
        self.path, self._position = path, start
        self._base, self._bad_line, self._how = how.index_base, bad_line, how
        with _explained(path):
            from pyarrow.parquet import ParquetFile

            table = ParquetFile(path)
            names = list(_flat(table.schema_arrow.empty_table().to_pandas()).columns)
        modes, self.value_name = chosen_columns(path, names, how.modes, how.value)
        self._columns = [*modes, self.value_name]
        self.mode_names = tuple(None if how.labels is False else name for name in modes)
        self._rows = self._decoded(table, start.line)

    def _decoded(self, table: Any, skip: int) -> Iterator[tuple[Any, ...]]:
        parts, last = table.iter_batches(ROWS, columns=self._columns), 0
        while True:
            with _explained(self.path):
                part = next(parts, None)
            if part is None:
                return
            first, last = last, last + part.num_rows
            if last > skip:
                with _explained(self.path):
                    frame = _flat(part.to_pandas())
                    columns = [frame[name].tolist() for name in self._columns]
                yield from itertools.islice(zip(*columns, strict=True), max(skip - first, 0), None)

    def take(self, count: int) -> Batch | None:
        """Return the entries among the next `count` rows, or None at the end."""
        rows = list(itertools.islice(self._rows, count))
        file, line = self._position
        self._position = Position(file, line + len(rows))
        entries = []
        for number, row in enumerate(rows, line + 1):
            missing = pd.isna(row[-1]) or (self._how.words and row[-1] in MISSING)
            if missing and self._how.drop_missing:
                continue
            problem = _row_problem(row, self.mode_names, self._base, self._how.words)
            if problem is None:
                entries.append(row)
            else:
                self._bad_line(self.path, number, problem, ",".join(map(str, row)) + "\n")
        return batch_of(entries, self.mode_names, self._base, self._position, self._how.words) if rows else None


def _row_problem(row: Sequence[Any], names: Sequence[Any], base: int, words: bool) -> str | None:
    for cell, name in zip(row[:-1], names, strict=True):
        hashable: bool = isinstance(cell, Hashable)
        if not hashable:
            return f"has {cell!r} in column {name!r}, which is no label, such as a number, text or a date; mend it"
        if pd.isna(cell):
            return "has a missing label; drop it or fill it in"
        whole = isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer())
        if name is None and (not whole or cell < base):
            return f"has the index {cell!r}, but indices are integers that count from {base}; mend it"
        if name is None and cell - base >= INT64_MAX:
            return f"has the index {cell!r}, which is larger than 64 bits hold; mend it"
        if name is None and cell - base >= MOST_ROWS:
            return f"has the index {cell!r}; {TOO_MANY}"
    if words:
        is_one = isinstance(row[-1], str) and row[-1] not in MISSING
        return None if is_one else f"has the value {row[-1]!r}, which is no word as in other lines; mend it"
    value = number_in(row[-1]) if isinstance(row[-1], str) else row[-1]
    if not isinstance(value, (int, float, Decimal)) or not math.isfinite(value):
        return f"has the value {row[-1]!r}, which is not a finite number; mend it"
    return None
