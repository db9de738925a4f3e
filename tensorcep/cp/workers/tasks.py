"""The tasks that workers run."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.futures import Held
from tensorcep.core.random import new_stream
from tensorcep.core.shared_memory import Given as NearbyArray
from tensorcep.core.shared_memory import leave, put, remove
from tensorcep.cp.gibbs.row_draw import NOTHING, ModeColumns, draw_rows, room_for
from tensorcep.cp.model.entries import EntriesByRow, sum_products, sum_squares
from tensorcep.cp.model.rows import ALIGNED_BLOCKS
from tensorcep.cp.workers.partitions import RowPartition, close_part, cuts_of, open_part, write_part
from tensorcep.cp.workers.row_store import Block, Source, Store
from tensorcep.kernels.slots import LANES

# What workers do for a fit: the rows, or the sums, of ranges of rows of one mode. All of it is pure.
#
# Rows of the other modes come in blocks, one for each mode, which have names: a worker keeps them, and is given those
# alone that are new to it (`row_store`).


class Range(NamedTuple):
    """Where the entries of a range are, its first row in the mode and the one after its last, and its mode."""

    path: str
    first: int
    last: int
    mode: int


def ranges_of_mode(
    folder: Path, mode: int, n_parts: int, rows: tuple[int, int], lists: tuple[np.ndarray, ...]
) -> list[Range]:
    """The ranges of a mode, which has these packed rows, whose entries are written.

    `lists` has starts and other rows as `EntriesByRow` has them, and the values in their order.
    """
    (a, b), (start, others, value) = rows, lists
    ranges = []
    for first, last in itertools.pairwise(cuts_of(start[a : b + 1], n_parts).tolist()):
        begin, end = int(start[a + first]), int(start[a + last])
        part = RowPartition(start[a + first : a + last + 1] - begin, others[begin:end], value[begin:end])
        ranges.append(Range(write_part(folder, part), first, last, mode))
    return ranges


class RowInputs(NamedTuple):
    """What tasks read of rows, and which of them they are given.

    Attributes
    ----------
    sources : tuple of Source
    first : tuple of int
        The first packed row of every mode.
    blocks : tuple of Block
        What is given, in this order.
    gone : tuple of str
        Files that nobody needs any more, which the task removes: that takes about as long as to read them.
    """

    sources: tuple[Source, ...]
    first: tuple[int, ...]
    blocks: tuple[Block, ...]
    gone: tuple[str, ...] = ()

    def read(self, blocks: list[Any], store: Store) -> Any:
        """As `Store.reading`."""
        remove(self.gone)
        return store.reading(self.sources, self.first, self.blocks, blocks)


# Weights of the entries of a range, in the order of its rows, None where all are 1, and their targets.
Sites = tuple[np.ndarray | None, np.ndarray]


def unless_one(weight: np.ndarray) -> np.ndarray | None:
    """Weights as tasks take them."""
    return None if (weight == 1.0).all() else weight


class DrawTask(NamedTuple):
    """What the draws of all ranges of a mode have in common.

    Attributes
    ----------
    columns : ModeColumns
    precision : (1,) float64
    key : tuple of int
        As `draw_rows` takes it.
    """

    columns: ModeColumns
    precision: np.ndarray
    key: tuple[int, int, int]


class Drawn(NamedTuple):
    """Rows of a mode from `first` on, (n, R), and the squares that they leave, (n,), or where these are."""

    first: int
    rows: NearbyArray
    squares: NearbyArray

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.rows.shape[0]

    def width(self, _: str) -> tuple[int, ...]:
        """As `Piece.width`."""
        return self.rows.shape[1:]

    def fill(self, _: str, out: np.ndarray) -> None:
        """As `Piece.fill`."""
        put(self.rows, out)


def own_sites(sites: Sites | None, part: RowPartition) -> Sites:
    """Weights and targets in arrays that may be written: for others kernels would compile again."""
    if sites is None:
        return None, part.value
    return (None if sites[0] is None else np.array(sites[0])), np.array(sites[1])


def draw_ranges(
    ranges: list[Range],
    draw: DrawTask,
    given: RowInputs,
    blocks: list[Any],
    store: Store,
    Lam: np.ndarray,
    eta: np.ndarray,
    sizes: np.ndarray | None,
    sites: list[Sites | None],
    path: str | None = None,
) -> Drawn:
    """New rows of ranges that follow each other: see `draw_rows`.

    Lam and eta have a line for each row of the mode, or one for all. `sizes` says how many entries of each row of the
    mode count, the first ones; None: all. What is drawn is left at the path, if there is one.
    """
    columns = ModeColumns(*(np.array(one) for one in draw.columns))
    begin, finish, offset = ranges[0].first, ranges[-1].last, given.first[ranges[0].mode]
    room, at = room_for(len(columns.free), columns)
    precision, fit = np.array(draw.precision), np.zeros(finish)
    prior = tuple(np.array(lines[:finish]) for lines in (Lam, eta))
    with given.read(blocks, store) as (source, rows):
        drawn = rows[offset + begin : offset + finish].copy()
        for one, own in zip(ranges, sites, strict=True):
            part, first, last = open_part(one.path, RowPartition), one.first, one.last
            end = part.start[1:] if sizes is None else part.start[:-1] + sizes[first:last]
            weight, target = own_sites(own, part)
            entries = (0, NOTHING if weight is None else weight, target)
            record = (source, columns, entries, *prior, precision, draw.key, fit, drawn[first - begin : last - begin])
            draw_rows(first, last, -first, (part.start, end, part.others), *record, room, at)
            close_part(one.path)
    return Drawn(begin, *leave(path, (drawn, fit[begin:])))


def sum_ranges(
    ranges: list[Range],
    given: RowInputs,
    blocks: list[Any],
    store: Store,
    sites: list[Sites | None],
    path: str | None = None,
) -> list[list[NearbyArray]]:
    """Of every range `sum_products` of two sources over its entries: with weights, and with values.

    They are left beside the path, if there is one.
    """
    with given.read(blocks, store) as sources:
        return [
            leave(None if path is None else f"{path}-{n}", _sums(one, sources, own))
            for n, (one, own) in enumerate(zip(ranges, sites, strict=True))
        ]


def _sums(where: Range, sources: list[np.ndarray], sites: Sites | None) -> list[np.ndarray]:
    part, n = open_part(where.path, RowPartition), where.last - where.first
    N, none = len(part.others), np.zeros(0, dtype=np.int64)
    weight, target = own_sites(sites, part)
    lists = part.start, part.start[1:], np.arange(N, dtype=np.int32), np.empty(0), part.others
    by_row = EntriesByRow(*lists, (none,) * (part.others.shape[1] + 1))
    sums = []
    for source, numbers in zip(sources, (np.ones(N) if weight is None else weight, target), strict=True):
        sums.append(np.zeros((n, source.shape[1])))
        sum_products(0, n, by_row, numbers, source, sums[-1], np.empty(source.shape[1]))
    close_part(where.path)
    return sums


# What workers do for entries in blocks of lanes: draws of auxiliary variables, and squares. All of it is pure.
#
# A draw's stream is that of its block, counted through all blocks. So arrays are made as if they began at the first
# one; of what lies before a range nothing is ever touched, and the system gives no memory to it.

# An array of a range of blocks as workers have it, or the one number that it holds.
Numbers = np.ndarray | float


class BlockRange(NamedTuple):
    """A range of blocks."""

    first: int
    last: int


def blocks_of(n_blocks: int, n_parts: int) -> list[BlockRange]:
    """At most so many ranges of about as many blocks."""
    whole = -(-n_blocks // ALIGNED_BLOCKS)
    cuts = sorted({min(n_blocks, ALIGNED_BLOCKS * (whole * part // n_parts)) for part in range(n_parts + 1)})
    return [BlockRange(a, b) for a, b in itertools.pairwise(cuts)]


class KernelName(NamedTuple):
    """Where a worker finds a kernel."""

    module: str
    name: str

    def found(self) -> Callable[..., Any]:
        kernel: Callable[..., Any] = getattr(importlib.import_module(self.module), self.name)
        return kernel


def name_of_kernel(kernel: Any) -> KernelName | None:
    """The name of a kernel of a module; None where there is none by it."""
    python = getattr(kernel, "py_func", kernel)
    name = KernelName(str(getattr(python, "__module__", "")), str(getattr(python, "__name__", "")))
    module = importlib.import_module(name.module) if name.module.startswith("tensorcep.") else None
    return name if getattr(module, name.name, None) is kernel else None


def cut(array: np.ndarray, where: BlockRange, keep: Callable[[np.ndarray], Held]) -> Held | float:
    """The range of an array as tasks take it: kept for workers, or one number."""
    part = array[where.first : where.last]
    flat = part.ravel()
    return float(flat[0]) if part.strides[0] == 0 or (flat == flat[0]).all() else keep(part)


def _whole(where: BlockRange, given: Numbers) -> np.ndarray:
    out = np.empty((where.last, LANES))
    out[where.first :] = given
    return out


def draw_blocks(
    where: BlockRange, name: KernelName, key: tuple[int, int, int], weighted: bool, given: list[Numbers]
) -> tuple[np.ndarray, ...]:
    """Draws of the targets, and if they are `weighted` of the weights, of the entries of a range of blocks.

    `given` is y, used, f and theta of `Augmentation.drawn`.
    """
    weight, target, mine = _whole(where, 1.0), _whole(where, 0.0), slice(where.first, where.last)
    arrays = (_whole(where, one) for one in given)
    name.found()(where.first, where.last, *arrays, key, weight, target, new_stream())
    return (target[mine].copy(), weight[mine].copy()) if weighted else (target[mine].copy(),)


def square_blocks(
    where: BlockRange, rows: np.ndarray, given: RowInputs, blocks: list[Any], store: Store, twice: np.ndarray
) -> np.ndarray:
    """`sum_squares` of a range of blocks, whose packed rows are `rows`."""
    square = np.empty((len(rows), LANES))
    with given.read(blocks, store) as (second,):
        sum_squares(0, len(rows), np.array(rows), second, np.array(twice), square, np.empty(second.shape[1]))
    return square
