"""Pieces of text files: the entries of some lines at a time, in the order of the file."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.ahead import Ahead, blocks_of, entries_in, lines_of
from tensorcep.entries.io.layout import Reading, TextLayout, fail_promise, layout_of
from tensorcep.entries.io.lines import filled, open_binary, open_lines, translated
from tensorcep.entries.io.one_line import entry_in
from tensorcep.entries.io.packed import UNIT
from tensorcep.entries.io.text import read_lines

# Takes a malformed line: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]

FEW = 250  # lines that are read one by one in less time than a call of pandas takes
MANY = 1 << 16  # lines given to pandas at a time
FIRST_LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)")
MOST_SPANNED = 1000  # lines of a quoted field


def batch_of(
    entries: Sequence[Sequence[Any]], names: tuple[Any, ...], base: int, position: Position, words: bool
) -> Batch:
    """Return a batch of entries with the value last; modes without a name have indices that count from `base`."""
    *columns, values = zip(*entries, strict=True) if entries else [()] * (len(names) + 1)
    coords = np.zeros((len(entries), len(names)), dtype=np.int64)
    for k, name in enumerate(names):
        if name is None:
            coords[:, k] = columns[k]
            coords[:, k] -= base
    keys = tuple(None if name is None else list(column) for name, column in zip(names, columns, strict=True))
    return Batch(coords, keys, names, np.array(values, dtype=object if words else np.float64), position=position)


class TextLines:
    """The entries of a .tns or csv file from a position on, taken some lines at a time as they arrive.

    pandas' parser is asked first. It names no lines and takes what is no entry, so lines that are anything but one good
    entry each are read again, one by one.

    Attributes
    ----------
    mode_names : tuple
        Names of the modes, None where there are indices.
    value_name : object
    """

    def __init__(
        self, layout: TextLayout, lines: Iterator[str], start: Position, bad_line: BadLine, rest: Any = None
    ) -> None:
        self._layout, self._rest = layout, rest or iter(())  # lines that only a quoted field that goes on asks for
        self._bad_line = bad_line
        self.mode_names, self.value_name = layout.mode_names, layout.value_name
        self._position = Position(start.file, max(start.line, layout.skip))
        self._lines = lines
        self._n_filled = 0  # only counted where the header promises a number

    def skip(self) -> None:
        """Move to the position."""
        for _ in range(self._layout.skip):
            next(self._lines)
        self._next_lines(self._position.line - self._layout.skip)

    def _next_lines(self, count: int) -> list[str]:
        lines = list(itertools.islice(self._lines, count))
        promised = self._layout.n_entries
        if promised is not None:
            self._n_filled += sum(1 for _ in filled(lines, self._layout.comment))
            if self._n_filled > promised or (len(lines) < count and self._n_filled < promised):
                fail_promise(self._layout, self._n_filled)
        return lines

    def _spanning(self, begun: list[str]) -> tuple[Any, int] | None:
        """Return the entry in the first of some lines and those that its quoted field goes on in, and their number.

        None where they hold no entry: then the first line is one of its own.
        """
        text, extra = begun[0], list[str]()
        for used in range(2, MOST_SPANNED):
            if used > len(begun):
                extra += itertools.islice(itertools.chain(self._lines, self._rest), 1)
                if used > len(begun) + len(extra):
                    break
            line = begun[used - 1] if used <= len(begun) else extra[-1]
            text += line
            if line.count('"') % 2:
                entry = entry_in(text, self._layout)
                if isinstance(entry, str):
                    break
                return entry, used
        self._lines = itertools.chain(extra, self._lines)
        return None

    def take(self, count: int) -> Batch | None:
        """Return the entries of the next `count` lines or a few more, or None at the end."""
        lines = self._next_lines(min(count, MANY))
        first = self._position.line + 1
        self._position = Position(self._position.file, self._position.line + len(lines))
        together = read_lines(lines, self._layout) if len(lines) > FEW else None
        if together is not None:
            coords, keys, values = together
            return Batch(coords, keys, self.mode_names, values, position=self._position)
        entries, mark, n = [], self._layout.coding.separator, 0
        while n < len(lines):
            text, number = lines[n], first + n
            entry, used = entry_in(text, self._layout), 1
            if isinstance(entry, str) and self._layout.separator is not None and text.count('"') % 2:
                entry, used = self._spanning(lines[n:]) or (entry, used)
            if isinstance(entry, str):
                text = text if mark is None else text.replace(UNIT, mark)
                self._bad_line(self._layout.path, number, entry, text)
            elif entry is not None:
                entries.append(entry)
            n += used
        self._position = self._position._replace(line=first - 1 + n)
        return batch_of(entries, self.mode_names, 0, self._position, self._layout.words) if lines else None


class FileLines:
    """As `TextLines`, of a file on disk, which is read ahead in blocks; those with other lines as `TextLines` does."""

    def __init__(self, layout: TextLayout, handle: BinaryIO, start: Position, bad_line: BadLine) -> None:
        self._layout, self._bad_line = layout, bad_line
        self.mode_names, self.value_name = layout.mode_names, layout.value_name
        self._blocks: Iterator[bytes] = blocks_of(handle)
        self._n_blocks = 0
        self._position = Position(start.file, 0)
        self._ahead: Ahead | None = None
        self._taken = 0  # of the entries read ahead
        self._slow: TextLines | None = None
        self._skip(max(start.line, layout.skip))

    def _skip(self, count: int) -> None:
        """Move behind so many lines."""
        for block in self._blocks:
            self._n_blocks += 1
            lines = block.count(b"\n") + (not block.endswith(b"\n"))
            plain = b"\r" not in block
            if plain and self._position.line + lines <= count:
                self._position = self._position._replace(line=self._position.line + lines)
                continue
            missing = count - self._position.line
            if plain:
                self._position = self._position._replace(line=count)
                self._load(b"\n".join(block.split(b"\n", missing)[missing:]), self._n_blocks == 1 and missing == 0)
                return
            kept = lines_of(block, self._n_blocks == 1)
            self._position = self._position._replace(line=self._position.line + min(len(kept), missing))
            if len(kept) > missing:
                self._read_slowly(kept[missing:])
                return

    def _load(self, block: bytes, first: bool) -> None:
        """Read a block ahead, or keep its lines."""
        self._ahead, self._taken = entries_in(block, self._layout), 0
        if self._ahead is None:
            self._read_slowly(lines_of(block, first))

    def _read_slowly(self, lines: list[str]) -> None:
        layout = self._layout._replace(skip=0)
        self._slow = TextLines(layout, iter(lines), self._position, self._bad_line, self._next_blocks_lines())

    def _next_blocks_lines(self) -> Iterator[str]:
        """Yield the lines of the next blocks, one by one, which these then lack."""
        while (block := next(self._blocks, None)) is not None:
            found = FIRST_LINE.match(block)
            end = len(block) if found is None else found.end()
            if end < len(block):
                self._blocks = itertools.chain([block[end:]], self._blocks)
            yield "".join(lines_of(block[:end], False))

    def take(self, count: int) -> Batch | None:
        """Return the entries of the next `count` lines or fewer, or None at the end."""
        while True:
            if self._ahead is not None and self._taken < len(self._ahead.values):
                return self._slice(count)
            piece = None if self._slow is None else self._slow.take(count)
            if piece is not None and piece.position is not None:
                self._position = piece.position
                return piece
            self._slow, block = None, next(self._blocks, None)
            if block is None:
                return None
            self._n_blocks += 1
            self._load(block, self._n_blocks == 1)

    def _slice(self, count: int) -> Batch:
        coords, keys, values = self._ahead  # type: ignore[misc]
        part = slice(self._taken, min(self._taken + count, len(values)))
        self._taken = part.stop
        self._position = self._position._replace(line=self._position.line + part.stop - part.start)
        lists = tuple(None if column is None else column[part].tolist() for column in keys)
        return Batch(coords[part], lists, self.mode_names, values[part], position=self._position)


@contextlib.contextmanager
def open_text(
    path: str, kind: str, how: Reading, start: Position, bad_line: BadLine
) -> Iterator[TextLines | FileLines]:
    """Yield the entries of a text file from a position on; what comes through a pipe is not read ahead of its use."""
    with open_lines(path, coding=how.coding) as lines:
        head: list[str] = []
        layout = layout_of(path, kind, _noted(lines, head), how)
        if not os.path.isfile(path) or layout.n_entries is not None:
            source = TextLines(layout, iter(translated(itertools.chain(head, lines), layout.coding)), start, bad_line)
            source.skip()
            yield source
            return
    with open_binary(path, coding=layout.coding) as (handle, *_):
        yield FileLines(layout, handle, start, bad_line)


def _noted(lines: Iterator[str], head: list[str]) -> Iterator[str]:
    """Yield lines and keep those that were taken, since standard input cannot be read twice."""
    for line in lines:
        head.append(line)
        yield line
