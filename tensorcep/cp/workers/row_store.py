"""The rows of all modes as a worker keeps them from one task to the next, in the order in which sums read them.

Tasks are given the rows that are new to their worker, and put them in place; so each is sent, and put in order, once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.futures import LackingError, TaskReport
from tensorcep.core.shared_memory import Given, put, remove_after
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import lane_zeros


class Order(NamedTuple):
    """How sums over the entries find their numbers in the rows of the packed rows first:last: `arrange`'s order."""

    first: int
    last: int
    places: np.ndarray


class Source(NamedTuple):
    """Numbers of rows in the order of a sum.

    Attributes
    ----------
    what : str
        Which sum they are for: what is put in order for one is kept until it is for another.
    kind : str
        What the rows hold.
    names : tuple of str or None
        Of the rows of every mode; None where they are not read.
    orders : list of Order, or None
        None where numbers are in order.
    """

    what: str
    kind: str
    names: tuple[str | None, ...]
    orders: list[Order] | None = None


class Piece(NamedTuple):
    """Rows of a mode from `first` on, or where they are."""

    first: int
    rows: Given

    @property
    def n(self) -> int:
        """How many rows it has."""
        return self.rows.shape[0]

    def width(self, _: str) -> tuple[int, ...]:
        """The shape of a row of this kind."""
        return self.rows.shape[1:]

    def fill(self, _: str, out: np.ndarray) -> None:
        """Put the rows of this kind in place."""
        put(self.rows, out)


class Block(NamedTuple):
    """What is given of the rows of a mode: their kind, the mode, and their name."""

    kind: str
    mode: int
    name: str


class _Rows:
    """All rows, those of each mode as of some name, and how many tasks are reading them."""

    def __init__(self, array: np.ndarray, n_modes: int):
        self.array, self.readers = array, 0
        self.names: list[Any] = [None] * n_modes


class Store:
    """Rows that a worker keeps, by their kind; empty when it is sent.

    Dask lets go of it when nobody needs it any more, and with it of the folder of the process `owner` if that is gone.
    """

    def __init__(self, folder: str | None = None, owner: int = 0) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Rows] = {}
        if folder is not None:
            remove_after(self, folder, owner)

    def __reduce__(self) -> Any:
        return Store, ()

    @contextlib.contextmanager
    def reading(
        self, sources: Sequence[Source], first: tuple[int, ...], given: Sequence[Block], blocks: Sequence[Any]
    ) -> Iterator[list[np.ndarray]]:
        """The rows of some sources, which stay as they are within the block.

        `first` is the first packed row of every mode. What is given of rows is kept for later tasks.

        Raises
        ------
        LackingError
            If there are others than the sources need.
        """
        with self._lock:
            for block, pieces in zip(given, blocks, strict=True):
                self._take(block, pieces, first)
            found = [self._found(source, first) for source in sources]
            for rows in found:
                rows.readers += 1
        try:
            yield [rows.array for rows in found]
        finally:
            with self._lock:
                for rows in found:
                    rows.readers -= 1

    def _take(self, block: Block, given: Any, first: tuple[int, ...]) -> None:
        """Keep the rows of a mode, which are pieces, or what tasks told."""
        known = self._kept.get(block.kind)
        if known is not None and known.names[block.mode] == block.name:
            return
        if any(isinstance(one, TaskReport) and one.lacks for one in given):
            raise LackingError
        pieces = [one.value if isinstance(one, TaskReport) else one for one in given]
        rows = self._to_write(block.kind, first, pieces[0].width(block.kind))
        rows.names[block.mode] = None
        for piece in pieces:
            begin = first[block.mode] + piece.first
            try:
                piece.fill(block.kind, rows.array[begin : begin + piece.n])
            except FileNotFoundError:
                raise LackingError from None
        rows.names[block.mode] = block.name

    def _to_write(self, key: str, first: tuple[int, ...], shape: tuple[int, ...]) -> _Rows:
        """Rows that nobody is reading: where an old task is, it keeps those that it reads."""
        rows = self._kept.get(key)
        if rows is None or rows.array.shape[1:] != shape:
            rows = self._kept[key] = _Rows(lane_zeros((first[-1], *shape)), len(first) - 1)
        elif rows.readers:
            names, array = rows.names, rows.array.copy()
            rows = self._kept[key] = _Rows(array, len(names))
            rows.names = list(names)
        return rows

    def _found(self, source: Source, first: tuple[int, ...]) -> _Rows:
        raw = self._kept.get(source.kind)
        needed = [(k, name) for k, name in enumerate(source.names) if name is not None]
        if raw is None or any(raw.names[k] != name for k, name in needed):
            raise LackingError
        if source.orders is None:
            return raw
        key, width = f"{source.kind} for {source.what}", len(source.orders[0].places)
        ordered = self._kept.get(key)
        as_known = tuple((one.first, one.last, one.places.tobytes()) for one in source.orders)
        wanted = [(k, (name, as_known)) for k, name in needed]
        if ordered is None or any(ordered.names[k] != name for k, name in wanted):
            ordered = self._to_write(key, first, (width,))
            bounds = list(itertools.pairwise(first))
            for k, name in wanted:
                if ordered.names[k] != name:
                    _arrange(raw.array, source.orders, bounds[k], ordered.array)
                    ordered.names[k] = name
        return ordered


def _arrange(rows: np.ndarray, orders: list[Order], mode: tuple[int, int], out: np.ndarray) -> None:
    """The packed rows of a mode in these orders."""
    for order in orders:
        begin, end = max(order.first, mode[0]), min(order.last, mode[1])
        if begin < end:
            arrange(begin, end, rows, np.array(order.places), out)
