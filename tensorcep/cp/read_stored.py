"""Lists of entries on scratch, read some rows at a time, and the values in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.scratch import read_ahead
from tensorcep.cp.model import EntriesByRow, sum_products
from tensorcep.likelihoods.record import Likelihood

# Entries that are read at a time, or those of a row with more.
READ = 1 << 17


class StoredTargets(NamedTuple):
    """Values in the order of the rows: float64 as they are, or float32, from which a number is taken."""

    value: np.ndarray
    shift: float

    def at(self, first: int, last: int) -> np.ndarray:
        """The values first:last, float64."""
        part = self.value[first:last]
        return part if part.dtype == np.float64 else np.subtract(part, self.shift, dtype=np.float64)


def taken_off(likelihood: Likelihood) -> float:
    """What a likelihood of real values takes off them."""
    return -float(likelihood.check_y(np.zeros(1))[0])


def row_pieces(start: np.ndarray, first: int, last: int, offset: int = 0, align: int = 1) -> Iterator[tuple[int, int]]:
    """Cuts of the rows first:last, counted from `offset`, with about READ entries between them.

    They lie at multiples of `align`, counted from `offset` too.
    """
    a = first
    while a < last:
        b = int(np.searchsorted(start, start[offset + a] + READ, side="right")) - 1 - offset
        b = min(last, max(a + align, b // align * align))
        yield a, b
        a = b


def in_pieces(
    kernel: Callable[..., None],
    first: int,
    last: int,
    offset: int,
    lists: tuple[np.ndarray, ...],
    source: np.ndarray,
    columns: Any,
    entries: Any,
    *rest: Any,
    align: int = 1,
) -> None:
    """Call a kernel of rows for first:last; where `entries` are stored, for as many rows at a time as are read."""
    if not isinstance(entries, StoredTargets):
        kernel(first, last, offset, lists, source, columns, entries, *rest)
        return
    start, _, others = lists
    for a, b in row_pieces(start, first, last, offset, align):
        begin, end = int(start[offset + a]), int(start[offset + b])
        read_ahead(others, end, min(end + READ, int(start[offset + last])))
        read_ahead(entries.value, end, min(end + READ, int(start[offset + last])))
        known = (begin, np.zeros(0), entries.at(begin, end))
        kernel(a, b, offset, lists, source, columns, known, *rest)


def sum_stored(
    first: int,
    last: int,
    chunks: np.ndarray,
    by_row: EntriesByRow,
    sums: tuple[Any, ...],
    shift: float,
    scratch: np.ndarray,
) -> None:
    """As `tensorcep.cp.model.sum_chunks`, of lists on scratch; a weight of None is 1, True the entry's value."""
    start = by_row.start
    for a, b in row_pieces(start, int(chunks[first]), int(chunks[last])):
        begin, end = int(start[a]), int(start[b])
        read_ahead(by_row.others, end, min(end + READ, int(start[chunks[last]])))
        read_ahead(by_row.value, end, min(end + READ, int(start[chunks[last]])))
        piece = by_row._replace(
            start=start[a : b + 1] - begin,
            entry=np.arange(end - begin, dtype=np.int32),
            value=np.zeros(0),
            others=by_row.others[begin:end],
        )
        for of_values, source, out in sums:
            weight = StoredTargets(by_row.value, shift).at(begin, end) if of_values else np.ones(end - begin)
            sum_products(0, b - a, piece, weight, source, out[a:b], scratch)
