"""An executor whose sums over entries are made on the workers of a cluster; all else runs on threads here.

Rows are here. Of each mode they go to the workers when they have changed, and the new rows, or the sums, of every range
of rows come back. Kernels, entries and orders of additions are those of one process, and so are the bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster, Held
from tensorcep.core.executor import Kernel, ThreadExecutor
from tensorcep.core.packing import offsets
from tensorcep.cp.gibbs.chains import draw_parts
from tensorcep.cp.gibbs.streams import CHAINS
from tensorcep.cp.model import sum_chunks
from tensorcep.cp.workers.parts import Part, cuts_of, write_part
from tensorcep.cp.workers.tasks import Draw, Order, Range, Source, draw_range, sum_range
from tensorcep.kernels.rows import arrange

# Sources that were arranged last: those of one update at most.
ARRANGED = 4


class Arranged(NamedTuple):
    """A source that `arrange` has made here, of the numbers of which rows, in which orders."""

    out: np.ndarray
    numbers: np.ndarray
    orders: list[Order] | None


class ClusterExecutor:
    """Runs the row updates of Gibbs sampling and mean field, of real values, on workers.

    Parameters
    ----------
    cluster : Cluster
    folder : Path
        Of the parts, which workers see, too.
    n_threads : int
        Of this process.
    """

    def __init__(self, cluster: Cluster, folder: Path, n_threads: int):
        self._cluster, self._folder, self._n_parts = cluster, folder, 1
        self._local = ThreadExecutor(n_threads)
        self._first: np.ndarray | None = None
        self._ranges: dict[int, tuple[Any, list[list[Range]]]] = {}
        self._blocks: dict[tuple[str, int], Held] = {}
        self._arranged: list[Arranged] = []

    def begin(self, shape: Sequence[int], n_parts: int) -> None:
        """Run on workers from now on: modes of these sizes are cut into so many ranges."""
        self._first, self._n_parts = offsets(shape), n_parts

    def close(self) -> None:
        """End the threads, and let the workers forget the rows."""
        self._local.close()
        self._blocks.clear()

    def run(
        self,
        kernel: Kernel,
        first: int,
        last: int,
        *record: Any,
        align: int = 1,
        scratch: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        """As `Executor.run`."""
        if self._first is not None and kernel is draw_parts:
            self._draw(*record[1:])
        elif self._first is not None and kernel is sum_chunks:
            self._sum(*record)
        else:
            self._local.run(kernel, first, last, *record, align=align, scratch=scratch)
            if kernel is arrange:
                self._remember(first, last, *record)

    def _remember(self, first: int, last: int, numbers: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
        known = next((one for one in self._arranged if one.out is out), None)
        if known is None:
            known = Arranged(out, numbers, [])
            self._arranged = [*self._arranged[-ARRANGED + 1 :], known]
        if known.orders is not None:
            known.orders.append(Order(first, last, places))

    def _draw(self, offset: int, lists: Any, source: Any, columns: Any, entries: Any, *rest: Any) -> None:
        """Draw the rows of a mode in place; the arguments are those of `draw_rows`."""
        Lam, eta, precision, key, fit, factors = rest
        start, end, others = lists
        mode, n = self._mode_at(offset), len(fit)
        ranges = self._ranges_of(others, lambda: (start, others, entries[2]))[mode]
        own = slice(offset, offset + n)
        sizes = None if np.array_equal(end, start[1:]) else self._sent("sizes", mode, (end - start[:-1])[own])
        lines = [one if len(one) == 1 else self._sent(name, mode, one) for name, one in (("Lam", Lam), ("eta", eta))]
        blocks = self._blocks_of("factors", key[1] % CHAINS, factors)
        draw = Draw(columns, precision, key, tuple(block.name for block in blocks))
        calls = [(one, draw, blocks, *lines, sizes) for one in ranges]
        self._arranged.clear()
        told = self._cluster.run(draw_range, calls, f"rows-of-mode-{mode}", spread=True)
        for one, (rows, squares) in zip(ranges, (each.value for each in told), strict=True):
            factors[offset + one.first : offset + one.last] = rows
            fit[one.first : one.last] = squares
            self._cluster.received += rows.nbytes + squares.nbytes

    def _sum(self, chunks: np.ndarray, by_row: Any, sums: Any) -> None:
        """Sums of the rows of a mode, in place; the arguments are those of `sum_chunks`."""
        (_, seconds, out), (target, means, linear) = sums
        offset = int(chunks[0])
        mode = self._mode_at(offset)
        in_order = partial(np.take, target, by_row.entry)
        ranges = self._ranges_of(by_row.others, lambda: (by_row.start, by_row.others, in_order()))[mode]
        sources: list[Source] = []
        every: list[Held] = []
        for what, source in (("seconds", seconds), ("means", means)):
            known = next((one for one in self._arranged if one.out is source), Arranged(source, source, None))
            kind = what if known.orders is None else "numbers"
            blocks = self._blocks_of(kind, 0, known.numbers)
            sources.append(Source(what, kind, tuple(block.name for block in blocks), known.orders, len(every)))
            every += blocks
        self._arranged.clear()
        told = self._cluster.run(
            sum_range, [(one, tuple(sources), every) for one in ranges], f"sums-of-mode-{mode}", spread=True
        )
        for one, found in zip(ranges, (each.value for each in told), strict=True):
            for whole, some in zip((out, linear), found, strict=True):
                whole[offset + one.first : offset + one.last] = some
                self._cluster.received += some.nbytes

    @property
    def _offsets(self) -> np.ndarray:
        """The first packed row of every mode."""
        return np.asarray(self._first)[:-1]

    def _mode_at(self, offset: int) -> int:
        """The mode whose first packed row that is."""
        return int(np.flatnonzero(self._offsets == offset)[-1])

    def _blocks_of(self, what: str, which: int, rows: np.ndarray) -> list[Held]:
        """The rows of every mode as workers have them."""
        bounds = itertools.pairwise(np.asarray(self._first).tolist())
        return [self._sent(f"{what} {which}", k, rows[a:b]) for k, (a, b) in enumerate(bounds)]

    def _sent(self, what: str, mode: int, array: np.ndarray) -> Held:
        """An array as workers have it, sent again where it has changed."""
        held = self._blocks.get((what, mode))
        if held is None or not np.array_equal(held.value, array):
            held = self._blocks[what, mode] = self._cluster.put(array.copy())
            self._cluster.sent += array.nbytes
        return held

    def _ranges_of(self, others: np.ndarray, arrays: Callable[[], tuple[np.ndarray, ...]]) -> list[list[Range]]:
        """The ranges of every mode, whose entries are written when they are first needed.

        `arrays` gives starts and other rows as `EntriesByRow` has them, and the values in their order.
        """
        known = self._ranges.get(id(others))
        if known is None:
            given = arrays()
            known = (others, [self._written(k, *given) for k in range(len(self._offsets))])
            self._ranges[id(others)] = known
        return known[1]

    def _written(self, k: int, start: np.ndarray, others: np.ndarray, value: np.ndarray) -> list[Range]:
        a, b = (int(row) for row in np.asarray(self._first)[k : k + 2])
        ranges = []
        for first, last in itertools.pairwise(cuts_of(start[a : b + 1], self._n_parts).tolist()):
            begin, end = int(start[a + first]), int(start[a + last])
            part = Part(start[a + first : a + last + 1] - begin, others[begin:end], value[begin:end])
            ranges.append(Range(write_part(self._folder, part), first, last, k))
        return ranges
