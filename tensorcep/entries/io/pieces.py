"""Pieces of text files: the entries of some lines at a time, in the order of the file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.layout import Reading, fail_promise, layout_of
from tensorcep.entries.io.lines import filled
from tensorcep.entries.io.one_line import entry_in
from tensorcep.entries.io.text import read_lines

# Takes a malformed line: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]

FEW = 250  # lines that are read one by one in less time than a call of pandas takes
MANY = 1 << 16  # lines given to pandas at a time


def batch_of(entries: Sequence[Sequence[Any]], names: tuple[Any, ...], base: int, position: Position) -> Batch:
    """Return a batch of entries with the value last; modes without a name have indices that count from `base`."""
    *columns, values = zip(*entries, strict=True) if entries else [()] * (len(names) + 1)
    coords = np.zeros((len(entries), len(names)), dtype=np.int64)
    for k, name in enumerate(names):
        if name is None:
            coords[:, k] = columns[k]
            coords[:, k] -= base
    keys = tuple(None if name is None else list(column) for name, column in zip(names, columns, strict=True))
    return Batch(coords, keys, names, np.array(values, dtype=np.float64), position=position)


class TextLines:
    """The entries of a .tns or csv file from a position on, taken some lines at a time.

    pandas' parser is asked first. It names no lines and takes what is no entry, so lines that are anything but one good
    entry each are read again, one by one.

    Attributes
    ----------
    mode_names : tuple
        Names of the modes, None where there are indices.
    """

    def __init__(
        self, path: str, kind: str, lines: Iterator[str], how: Reading, start: Position, bad_line: BadLine
    ) -> None:
        head: list[str] = []
        layout = layout_of(path, kind, _noted(lines, head), how)
        self._layout = layout
        self._bad_line = bad_line
        self.mode_names = layout.mode_names
        self._position = Position(start.file, max(start.line, layout.skip))
        self._lines = itertools.chain(head, lines)
        self._n_filled = 0  # only counted where the header promises a number
        for _ in range(layout.skip):
            next(self._lines)
        self._next_lines(self._position.line - layout.skip)

    def _next_lines(self, count: int) -> list[str]:
        lines = list(itertools.islice(self._lines, count))
        promised = self._layout.n_entries
        if promised is not None:
            self._n_filled += sum(1 for _ in filled(lines, self._layout.comment))
            if self._n_filled > promised or (len(lines) < count and self._n_filled < promised):
                fail_promise(self._layout, self._n_filled)
        return lines

    def take(self, count: int) -> Batch | None:
        """Return the entries of the next `count` lines or fewer, or None at the end."""
        lines = self._next_lines(min(count, MANY))
        first = self._position.line + 1
        self._position = Position(self._position.file, self._position.line + len(lines))
        together = read_lines(lines, self._layout) if len(lines) > FEW else None
        if together is not None:
            coords, keys, values = together
            return Batch(coords, keys, self.mode_names, values, position=self._position)
        entries = []
        for number, text in enumerate(lines, first):
            entry = entry_in(text, self._layout)
            if isinstance(entry, str):
                self._bad_line(self._layout.path, number, entry, text)
            elif entry is not None:
                entries.append(entry)
        return batch_of(entries, self.mode_names, 0, self._position) if lines else None


def _noted(lines: Iterator[str], head: list[str]) -> Iterator[str]:
    """Yield lines and keep those that were taken, since standard input cannot be read twice."""
    for line in lines:
        head.append(line)
        yield line
