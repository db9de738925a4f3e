"""Chunks of files and batches of streams: consecutive entries, and where in their files the next ones begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import fail_value
from tensorcep.entries.sparse_tensor import SparseTensor

# Takes a malformed line: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]


def refuse(path: str, number: int, problem: str, text: str) -> None:
    """Raise ValueError for a malformed line."""
    fail_value(f"line {number} of '{path}' {problem}.")


class Position(NamedTuple):
    """How far files have been read: `file` of them whole, and `line` lines (of parquet, rows) of the next one."""

    file: int = 0
    line: int = 0


START = Position()


class Batch(NamedTuple):
    """N entries that are learned together.

    Attributes
    ----------
    coords : (N, K) int64
        Rows counted from 0; zeros in modes with keys.
    keys : tuple of list or None
        Per mode the label of each entry, or None where the mode has indices.
    names : tuple
        Names of the modes, None where there is none.
    values : (N,) float64
    time : float or None
        When it was observed, if that is known.
    tensor : SparseTensor or None
        What the batch came as, if it was one: its shape and order of labels are those that `fit` would take.
    position : Position or None
        Of a batch from files: where the next one begins.
    classes : list or None
        The two labels that the values 0 and 1 stand for, if they do.
    weights : (N,) float64 or None
        How much each entry counts; None where all count once.
    extents : (N,) float64 or None
        Exposures or numbers of trials of the entries; None where they have none.
    column : str or None
        The column that these came from, if there was one.
    """

    coords: NDArray[np.int64]
    keys: tuple[list[Any] | None, ...]
    names: tuple[Any, ...]
    values: NDArray[np.float64]
    time: float | None = None
    tensor: SparseTensor | None = None
    position: Position | None = None
    classes: list[Any] | None = None
    weights: NDArray[np.float64] | None = None
    extents: NDArray[np.float64] | None = None
    column: str | None = None


class Chunk(NamedTuple):
    """N entries of a file, column by column.

    Attributes
    ----------
    codes : tuple of (N,) int32 or None
        Per mode the rows, counted from 0; None where it has labels.
    keys : tuple of (N,) array or None
        Per mode the labels: of text files text, of parquet what the column holds; None where it has indices.
    values : (N,) float64, or object where they are words
    extras : dict of (N,) float64
        Further numbers, by their columns.
    position : Position
        Where the next chunk begins.
    lines : (N,) int or None
        Which of the lines that were read each entry was on, from 0; None where each was one.
    """

    codes: tuple[Any, ...]
    keys: tuple[Any, ...]
    values: Any
    extras: dict[Any, NDArray[np.float64]]
    position: Position = Position()
    lines: NDArray[np.int64] | None = None

    def part(self, first: int, last: int) -> Chunk:
        """Return the entries of the lines from one to before another."""
        if self.lines is not None:
            first, last = np.searchsorted(self.lines, (first, last)).tolist()
        at = slice(first, last)
        codes, keys = (tuple(None if item is None else item[at] for item in each) for each in (self.codes, self.keys))
        return Chunk(codes, keys, self.values[at], {name: found[at] for name, found in self.extras.items()})


def chunk_of(entries: list[list[Any]], names: tuple[Any, ...], how: Any, position: Position, raw: bool) -> Chunk:
    """Return entries, each the row or label of every mode, then its extras and its value, as a chunk.

    `names` are those of the modes, None where there are rows; `how` says which extras there are, and whether values are
    words; `raw` wants indices as the file has them.
    """
    columns = list(zip(*entries, strict=True)) or [()] * (len(names) + len(how.extras) + 1)
    codes: list[Any] = [None] * len(names)
    keys: list[Any] = [None] * len(names)
    for k, name in enumerate(names):
        if name is None:
            codes[k] = np.array(columns[k], dtype=np.int64) + how.index_base if raw else np.array(columns[k], np.int32)
        else:
            keys[k] = np.fromiter(columns[k], dtype=object, count=len(columns[k]))
    extras = {name: np.array(columns[len(names) + j], dtype=np.float64) for j, name in enumerate(how.extras)}
    values = np.array(columns[-1], dtype=object if how.words else np.float64)
    return Chunk(tuple(codes), tuple(keys), values, extras, position)


class ChunkReader:
    """Takes the entries of one file some lines at a time: blocks of good lines together, others one by one.

    Attributes
    ----------
    mode_names : tuple
        Names of the modes, None where there are indices.
    value_name : object
    shape : tuple of int or None
        Of the modes, where the caller or the file says it.
    is_log : bool
        Whether lines hold no value: each is an event.
    is_text : bool
        Whether labels are text, some of which may be spellings of numbers.
    """

    mode_names: tuple[Any, ...]
    value_name: Any = None
    shape: tuple[int, ...] | None = None
    is_log: bool = False
    base: int = 0
    is_text: bool = False

    def __init__(self, position: Position) -> None:
        self._position = position
        self._block: Chunk | None = None
        self._n_lines, self._n_taken = 0, 0  # of the block

    def take(self, count: int | None) -> Chunk | None:
        """Return the entries of the next `count` lines or fewer (None: as many as are read together); None at the end.

        Labels are objects and rows count from 0, but where `count` is None: then both are as pandas has read them, and
        indices count from `base`.
        """
        while True:
            if self._block is not None:
                return self._part(self._block, self._n_lines if count is None else count)
            chunk = self._one_by_one(count)
            if chunk is not None:
                return chunk
            if not self._load(count):
                return None

    def _part(self, block: Chunk, count: int) -> Chunk:
        first, last = self._n_taken, min(self._n_taken + count, self._n_lines)
        self._n_taken, self._block = last, None if last == self._n_lines else block
        self._position = self._position._replace(line=self._position.line + last - first)
        part = block if last - first == self._n_lines else block.part(first, last)
        return part._replace(position=self._position)

    def _one_by_one(self, count: int | None) -> Chunk | None:
        """Return the entries of the next lines that are looked at one by one; None where there are none such."""
        return None

    def _load(self, count: int | None) -> bool:
        """Read a block, or lines to be looked at one by one, of which so many are wanted; False at the end."""
        raise NotImplementedError

    def _set(self, block: Chunk, n_lines: int) -> None:
        self._block, self._n_lines, self._n_taken = block, n_lines, 0


def rows_of(indices: NDArray[Any], base: int) -> NDArray[np.int32]:
    """Indices that count from `base`, of which there are fewer than 2**31, as rows that count from 0."""
    rows = indices.astype(np.int32)
    if base:
        rows -= base
    return rows


def as_objects(column: Any) -> NDArray[Any]:
    """Labels as an array whose `tolist` gives those of Python; each text is made once."""
    if isinstance(column, pd.Series):
        if isinstance(column.dtype, pd.StringDtype):
            codes, distinct = pd.factorize(column)
            return distinct.to_numpy(dtype=object)[codes] if len(distinct) else np.empty(0, dtype=object)
        is_plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufbO"
        return column.to_numpy() if is_plain else column.astype(object).to_numpy()
    return np.asarray(column)


def as_texts(column: Any) -> Any:
    """Integers that were read of text as that text; other labels as they are."""
    if getattr(column, "dtype", None) != np.int64:
        return column
    codes, distinct = pd.factorize(np.asarray(column))
    return np.array(list(map(str, distinct.tolist())), dtype=object)[codes]
