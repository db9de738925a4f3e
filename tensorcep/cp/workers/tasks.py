"""What workers do for a fit: the rows, or the sums, of a range of rows of one mode. All of it is pure.

Rows of the other modes come in blocks, one for each mode, which have names: as long as these stay the same, a worker
puts them together once for all of its ranges.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.cp.gibbs.sites import NOTHING
from tensorcep.cp.gibbs.sweep import ModeColumns, draw_rows, room_for
from tensorcep.cp.model import EntriesByRow, sum_products
from tensorcep.cp.workers.parts import Part, open_part
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import lane_zeros


class Range(NamedTuple):
    """Where the entries of a range are, its first row in the mode and the one after its last, and its mode."""

    path: str
    first: int
    last: int
    mode: int


class Order(NamedTuple):
    """How sums over the entries find their numbers in the rows of the packed rows first:last: `arrange`'s order."""

    first: int
    last: int
    places: np.ndarray


class Source(NamedTuple):
    """Numbers of all rows in the order of a sum.

    Attributes
    ----------
    what : str
        Which sum they are for.
    kind : str
        What the blocks hold.
    names : tuple of str
        Of the blocks.
    orders : list of Order, or None
        None where numbers are in order.
    first : int
        Where in the list of all blocks theirs begin.
    """

    what: str
    kind: str
    names: tuple[str, ...]
    orders: list[Order] | None
    first: int = 0


_MADE: dict[str, tuple[Any, np.ndarray]] = {}
_LOCK = threading.Lock()


def _kept(what: str, key: Any, make: Callable[[], np.ndarray]) -> np.ndarray:
    """What was made last of its kind, if it was made with this key; else it is made and kept."""
    with _LOCK:
        found = _MADE.get(what)
        if found is None or found[0] != key:
            found = _MADE[what] = (key, make())
        return found[1]


def all_rows(source: Source, blocks: list[np.ndarray]) -> np.ndarray:
    """All rows, of which those of a mode are a block each, in the order of the source."""
    own = blocks[source.first : source.first + len(source.names)]
    if source.orders is None:
        return _kept(f"rows of {source.kind}", source.names, lambda: np.concatenate(own))
    # the order of a mode tells it from the others
    key = (source.names, tuple((order.first, order.places.tobytes()) for order in source.orders))
    return _kept(source.what, key, lambda: _arranged(own, source.orders or []))


def _arranged(blocks: list[np.ndarray], orders: list[Order]) -> np.ndarray:
    """The rows of all blocks in these orders, each block by itself: putting them together would copy all of them."""
    ends = np.cumsum([0, *map(len, blocks)]).tolist()
    out = lane_zeros((ends[-1], len(orders[0].places)))
    for order in orders:
        for block, (a, b) in zip(blocks, itertools.pairwise(ends), strict=True):
            first, last = max(order.first, a), min(order.last, b)
            if first < last:
                arrange(first - a, last - a, np.asarray(block), np.array(order.places), out[a:b])
    return out


# Weights of the entries of a range, in the order of its rows, None where all are 1, and their targets.
Sites = tuple[np.ndarray | None, np.ndarray]


class Draw(NamedTuple):
    """What the draws of all ranges of a mode have in common.

    Attributes
    ----------
    columns : ModeColumns
    precision : (1,) float64
    key : tuple of int
        As `draw_rows` takes it.
    names : tuple of str
        Of the blocks.
    """

    columns: ModeColumns
    precision: np.ndarray
    key: tuple[int, int, int]
    names: tuple[str, ...]


def _own(sites: Sites | None, part: Part) -> Sites:
    """Weights and targets in arrays that may be written: for others kernels would compile again."""
    if sites is None:
        return None, part.value
    return (None if sites[0] is None else np.array(sites[0])), np.array(sites[1])


def draw_range(
    where: Range,
    draw: Draw,
    blocks: list[np.ndarray],
    Lam: np.ndarray,
    eta: np.ndarray,
    sizes: np.ndarray | None,
    sites: Sites | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """New rows of a range (n, R) and the squares that they leave (n,): see `draw_rows`.

    Lam and eta have a line for each row of the mode, or one for all. `sizes` says how many entries of each row of the
    mode count, the first ones; None: all.
    """
    part, (first, last) = open_part(where.path, Part), (where.first, where.last)
    columns = ModeColumns(*(np.array(one) for one in draw.columns))
    everything = Order(0, sum(len(block) for block in blocks), columns.order)
    source = all_rows(Source("factors", "factors", draw.names, [everything]), blocks)
    rows, fit = np.array(blocks[where.mode][first:last]), np.zeros(last)
    end = part.start[1:] if sizes is None else part.start[:-1] + sizes[first:last]
    prior = (np.array(lines[:last]) for lines in (Lam, eta))
    room, at = room_for(len(columns.free), columns)
    weight, target = _own(sites, part)
    given = (
        source,
        columns,
        (0, NOTHING if weight is None else weight, target),
        *prior,
        np.array(draw.precision),
        draw.key,
        fit,
        rows,
    )
    draw_rows(first, last, -first, (part.start, end, part.others), *given, room, at)
    return rows, fit[first:]


def sum_range(
    where: Range, sources: tuple[Source, Source], blocks: list[np.ndarray], sites: Sites | None = None
) -> list[np.ndarray]:
    """`sum_products` of two sources over the entries of the range: with weights, and with values."""
    part, n = open_part(where.path, Part), where.last - where.first
    N, none = len(part.others), np.zeros(0, dtype=np.int64)
    weight, target = _own(sites, part)
    lists = part.start, part.start[1:], np.arange(N, dtype=np.int32), np.empty(0), part.others
    by_row = EntriesByRow(*lists, (none,) * (part.others.shape[1] + 1))
    sums = []
    for each, numbers in zip(sources, (np.ones(N) if weight is None else weight, target), strict=True):
        source = all_rows(each, blocks)
        sums.append(np.zeros((n, source.shape[1])))
        sum_products(0, n, by_row, numbers, source, sums[-1], np.empty(source.shape[1]))
    return sums
