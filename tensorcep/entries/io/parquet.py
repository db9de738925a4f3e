"""Entries from parquet files, whole or some rows at a time.

`pyarrow.parquet` decodes the pages of a row group as they are needed; `pyarrow.dataset` decodes the group.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import INT64_MAX, optional_module, reason_of
from tensorcep.entries.io.lines import number_in
from tensorcep.entries.io.schema import (
    MISSING,
    MOST_ROWS,
    TOO_MANY,
    BadLine,
    Chunk,
    ChunkReader,
    Position,
    Schema,
    as_objects,
    chosen_columns,
    chunk_of,
    rows_of,
)

ROWS, OF_STREAM = 1 << 17, 4  # decoded at a time; streams decode a part of it


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    arrow = optional_module("pyarrow", "reading parquet files", "'tensorcep[parquet]'")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = reason_of(error)
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
            parquet = optional_module("pyarrow.parquet", "reading parquet files", "'tensorcep[parquet]'")
            self._data = parquet.ParquetFile(path)
            self.names = list(_flat(self._data.schema_arrow.empty_table().to_pandas()).columns)

    def frames(
        self, columns: Sequence[Any] | None = None, rows: int | None = None, skip: int = 0
    ) -> Iterator[pd.DataFrame]:
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


class ParquetReader(ChunkReader):
    """The entries of a parquet file from a position on."""

    def __init__(self, path: str, how: Schema, start: Position, bad_line: BadLine, rows: int | None = None) -> None:
        super().__init__(start)
        self._path, self._bad_line, self._how = path, bad_line, how
        file = ParquetFile(path)
        modes, self.value_name = chosen_columns(path, file.names, how)
        self._columns = [*modes, *how.extras, *([] if self.value_name is None else [self.value_name])]
        self.mode_names = tuple(None if how.labels is False else name for name in modes)
        self._frames = file.frames(self._columns, rows, start.line)
        self._names, self.is_log = modes, self.value_name is None
        self._rows: Iterator[tuple[Any, ...]] = iter(())  # that are looked at one by one

    def _load(self, count: int | None) -> bool:
        frame = next(self._frames, None)
        if frame is None:
            return False
        chunk = self._chunk_of(frame, count is not None)
        if chunk is None:
            self._rows = zip(*(frame[name].tolist() for name in self._columns), strict=True)
        else:
            self._set(chunk, len(frame))
        return True

    def _chunk_of(self, frame: pd.DataFrame, objects: bool) -> Chunk | None:
        """Return the entries of some rows; None where some must be looked at one by one."""
        how, lines = self._how, None
        if how.drop_missing and self.value_name is not None:
            known = frame[self.value_name].notna().to_numpy()
            if not known.all():
                frame, lines = frame[known].reset_index(drop=True), np.flatnonzero(known)
        codes: list[Any] = [None] * len(self._names)
        keys: list[Any] = [None] * len(self._names)
        for k, (name, label) in enumerate(zip(self._names, self.mode_names, strict=True)):
            column = frame[name]
            if label is not None:
                if column.isna().any():
                    return None
                if column.dtype == object and not all(isinstance(cell, Hashable) for cell in column):
                    return None
                keys[k] = as_objects(column) if objects else column
                continue
            found = column.to_numpy()
            if found.dtype.kind not in "iu" or (len(found) and not how.index_base <= int(found.min())):
                return None
            if len(found) and int(found.max()) - how.index_base >= MOST_ROWS:
                return None
            codes[k] = rows_of(found, how.index_base)
        values: Any = np.ones(len(frame)) if self.value_name is None else frame[self.value_name].to_numpy()
        extras = {name: frame[name].to_numpy() for name in how.extras}
        if how.words and self.value_name is not None:
            if values.dtype != object or not all(isinstance(cell, str) and cell not in MISSING for cell in values):
                return None
            numbers = list(extras.values())
        else:
            numbers = [*extras.values(), values]
        if not all(found.dtype.kind in "iufb" and np.isfinite(found).all() for found in numbers):
            return None
        extras = {name: np.asarray(found, dtype=np.float64) for name, found in extras.items()}
        values = values if how.words else np.asarray(values, dtype=np.float64)
        return Chunk(tuple(codes), tuple(keys), values, extras, lines=lines)

    def _one_by_one(self, count: int | None) -> Chunk | None:
        rows = list(self._rows if count is None else itertools.islice(self._rows, count))
        if not rows:
            return None
        how, (file, line) = self._how, self._position
        self._position = Position(file, line + len(rows))
        n_modes, n_extras = len(self._names), len(how.extras)
        entries = list[list[Any]]()
        for number, row in enumerate(rows, line + 1):
            modes, extras, value = row[:n_modes], row[n_modes : n_modes + n_extras], 1.0
            if self.value_name is not None:
                value = row[-1]
                if how.drop_missing and (pd.isna(value) or (how.words and value in MISSING)):
                    continue
            problem = _label_problem(modes, self.mode_names, how.index_base) or next(
                filter(None, map(_value_problem, extras)), None
            )
            if problem is None and not how.words:
                problem = _value_problem(value)
            elif problem is None and (not isinstance(value, str) or value in MISSING):
                problem = f"has the value {value!r}, which is no word as in other lines; mend it"
            if problem is None:
                base = [0 if name is not None else how.index_base for name in self.mode_names]
                codes = [cell - at if at else cell for cell, at in zip(modes, base, strict=True)]
                entries.append([*codes, *map(float, extras), value if how.words else float(value)])
            else:
                self._bad_line(self._path, number, problem, ",".join(map(str, row)) + "\n")
        return chunk_of(entries, self.mode_names, how, self._position)


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
        if cell - base >= INT64_MAX:
            return f"has the index {cell!r}, which is larger than 64 bits hold; mend it"
        if cell - base >= MOST_ROWS:
            return f"has the index {cell!r}; {TOO_MANY}"
    return None


def _value_problem(cell: Any) -> str | None:
    value = number_in(cell) if isinstance(cell, str) else cell
    if not isinstance(value, (int, float, Decimal)) or not math.isfinite(value):
        return f"has the value {cell!r}, which is not a finite number; mend it"
    return None
