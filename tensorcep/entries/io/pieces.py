"""Pieces of text files: the entries of some lines at a time, in the order of the file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorcep.entries.io.layout import Reading, layout_of
from tensorcep.entries.io.one_line import entry_in
from tensorcep.entries.io.text import read_lines

# Takes a malformed line: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]

FEW = 250  # lines that are read one by one in less time than a call of pandas takes
MANY = 1 << 16  # lines given to pandas at a time


class Piece(NamedTuple):
    """Some entries: per mode a list of labels or an array of indices from 0, and the values."""

    columns: list[Any]
    values: NDArray[np.float64]


def piece_of(entries: Sequence[Sequence[Any]], names: Sequence[Any], base: int = 0) -> Piece:
    """Return a piece from entries with the value last; modes without a name have indices that count from `base`."""
    *columns, values = zip(*entries, strict=True) if entries else [()] * (len(names) + 1)
    modes = [
        np.array(column, dtype=np.int64) - base if name is None else list(column)
        for name, column in zip(names, columns, strict=True)
    ]
    return Piece(modes, np.array(values, dtype=np.float64))


class TextLines:
    """The entries of a .tns or csv file after the first `skip` lines, taken some lines at a time.

    pandas' parser is asked first. It names no lines and takes what is no entry, so lines that are anything but one good
    entry each are read again, one by one.

    Attributes
    ----------
    mode_names : tuple
        Names of the modes, None where there are indices.
    number : int
        Lines read.
    """

    def __init__(self, path: str, kind: str, lines: Iterator[str], how: Reading, skip: int, bad_line: BadLine) -> None:
        head: list[str] = []
        layout = layout_of(path, kind, _noted(lines, head), how)
        self._layout = layout._replace(shape=None)  # a stream may outgrow what the header promises
        self._bad_line = bad_line
        self.mode_names = layout.mode_names
        self.number = max(skip, layout.skip)
        self._lines = itertools.islice(itertools.chain(head, lines), self.number, None)

    def take(self, count: int) -> Piece | None:
        """Return the entries of the next `count` lines or fewer, or None at the end."""
        lines = list(itertools.islice(self._lines, min(count, MANY)))
        first, self.number = self.number + 1, self.number + len(lines)
        together = read_lines(lines, self._layout) if len(lines) > FEW else None
        if together is not None:
            return Piece(*together)
        entries = []
        for number, text in enumerate(lines, first):
            entry = entry_in(text, self._layout)
            if isinstance(entry, str):
                self._bad_line(self._layout.path, number, entry, text)
            elif entry is not None:
                entries.append(entry)
        return piece_of(entries, self.mode_names) if lines else None


def _noted(lines: Iterator[str], head: list[str]) -> Iterator[str]:
    """Yield lines and keep those that were taken, since standard input cannot be read twice."""
    for line in lines:
        head.append(line)
        yield line
