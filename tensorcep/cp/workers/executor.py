"""An executor whose sums over entries are made on the workers of a cluster; all else runs on threads here.

Rows are here. Of each mode they go to the workers when they have changed, and the new rows, or the sums, of every range
of rows come back. Rows that workers draw (`Drawing`) or update (`Summing`) they have from each other. What entries say
where that changes (auxiliary variables) is here, too: its draws and the squares that it follows from are made by the
workers, and each range of rows gets its own, in its order. Kernels, entries and orders of additions are those of one
process, and so are the bits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster
from tensorcep.core.executor import Kernel, ThreadExecutor
from tensorcep.core.futures import Call, Held
from tensorcep.core.packing import offsets
from tensorcep.core.random import CHAINS
from tensorcep.cp.gibbs.chains import draw_parts
from tensorcep.cp.gibbs.row_draw import NOTHING
from tensorcep.cp.meanfield.row_update import update_chunks
from tensorcep.cp.model.entries import sum_chunks, sum_squares
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.workers.ep_pass import Passing
from tensorcep.cp.workers.partitions import shared
from tensorcep.cp.workers.row_cache import SentRows, Sources
from tensorcep.cp.workers.row_pass import Drawing, ModeRanges, RowsTarget, Summing
from tensorcep.cp.workers.row_store import Order
from tensorcep.cp.workers.site_files import Shelf
from tensorcep.cp.workers.tasks import (
    DrawTask,
    KernelName,
    Range,
    blocks_of,
    cut,
    draw_blocks,
    name_of_kernel,
    ranges_of_mode,
    square_blocks,
    unless_one,
)
from tensorcep.kernels.rows import arrange, second_moments

# Sources that were arranged last: those of one update at most.
ARRANGED = 4


class Arranged(NamedTuple):
    """A source that `arrange` has made here, of the numbers of which rows, in which orders."""

    out: np.ndarray
    numbers: np.ndarray
    orders: list[Order] | None


class ClusterExecutor:
    """Runs the row updates of Gibbs sampling and mean field on workers, and what takes long of every entry.

    Parameters
    ----------
    cluster : Cluster
    folder : Path
        Of the parts, which workers see, too.
    n_threads : int
        Of this process.
    shelf : Shelf
        Of the messages of methods that send them.
    """

    keeps_state = True

    def __init__(self, cluster: Cluster, folder: Path, n_threads: int, shelf: Shelf):
        self._cluster, self._folder, self._n_parts = cluster, folder, 1
        self._rows = SentRows(cluster)
        self._passing, self._drawing = Passing(cluster, folder, shelf, self._rows), Drawing(cluster, self._rows)
        self._summing, self._local = Summing(cluster, self._rows), ThreadExecutor(n_threads)
        self._first: np.ndarray | None = None
        self._problem: Problem | None = None
        self._ranges: dict[int, tuple[Any, list[list[Range]]]] = {}
        self._blocks: dict[tuple[str, int], Held] = {}
        self._arranged: list[Arranged] = []
        self._drawn: list[tuple[Any, KernelName, bool]] = []
        self._entries: dict[tuple[int, int], tuple[np.ndarray, Held]] = {}
        self.makes_sources = self.updates_rows = self._own_workers = False
        self._lock = threading.Lock()

    def begin(self, problem: Problem, n_parts: int) -> None:
        """Run on workers from now on: modes, and entries, are cut into so many ranges."""
        self._problem, self._first, self._n_parts = problem, offsets(problem.shape), n_parts
        self.makes_sources = self.updates_rows = True
        self._summing.close()
        self._passing.begin(problem)
        self._rows.begin(self._first)
        known = [one for one in (problem.likelihood.normal, problem.likelihood.pg) if one is not None]
        names = [(one.drawn, name_of_kernel(one.drawn), one.weighted) for one in known if one.drawn is not None]
        self._drawn = [(kernel, name, weighted) for kernel, name, weighted in names if name is not None]

    def close(self) -> None:
        """End the threads, and let the workers forget the rows."""
        self._local.close()
        self._passing.close()
        self._summing.close()
        self._rows.close()
        self._blocks.clear()
        self._entries.clear()

    def apart(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]:
        """As `Executor.apart`, at the same time; where all workers get as many of them, each has a worker of its own.

        Of chains rows then go to one worker instead of all.
        """
        if self._first is None or n == 1:
            return [task(i, *args, self) for i in range(n)]
        self._own_workers = n % max(1, len(self._cluster.workers)) == 0
        with ThreadPoolExecutor(n) as pool:
            futures = [pool.submit(task, i, *args, self) for i in range(n)]
            try:
                return [future.result() for future in futures]
            finally:
                self._own_workers = False

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
        if kernel is arrange and first == last:
            return
        if self._first is not None and kernel is draw_parts:
            self._draw(*record[1:])
            return
        self.settle()
        if self._passing.run(kernel, record, scratch) or self._summing.knows(kernel, first, last, record):
            return
        if self._first is not None and kernel in (sum_chunks, update_chunks):
            self._sum(*record)
        elif self._problem is not None and kernel is sum_squares and record[0] is self._problem.entries.rows:
            self._squares(*record)
        elif any(kernel is one for one, _, _ in self._drawn):
            self._draw_sites(kernel, *record)
        else:
            self._local.run(kernel, first, last, *record, align=align, scratch=scratch)
            if kernel is arrange:
                self._remember(first, last, *record)
            elif kernel is second_moments:
                self._summing.are_there(first)

    def _remember(self, first: int, last: int, numbers: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
        known = next((one for one in self._arranged if one.out is out), None)
        if known is None:
            known = Arranged(out, numbers, [])
            self._arranged = [*self._arranged[-ARRANGED + 1 :], known]
        if known.orders is not None:
            known.orders.append(Order(first, last, places))

    def settle(self) -> None:
        """As `Executor.settle`."""
        self._drawing.settle()

    def _draw(self, offset: int, lists: Any, source: Any, columns: Any, entries: Any, *rest: Any) -> None:
        """Have the rows of a mode drawn in place; the arguments are those of `draw_rows`."""
        Lam, eta, precision, key, fit, factors = rest
        start, end, others = lists
        base, weight, target = entries
        mode, n, stay = self._mode_at(offset), len(fit), len(target) == len(others)
        ranges = self._ranges_of(others, lambda: (start, others, target if stay else NOTHING))[mode]
        own = slice(offset, offset + n)
        chain = key[1] % CHAINS  # chains that are drawn at the same time have nothing in common on workers
        sizes = None if np.array_equal(end, start[1:]) else self._sent(f"sizes {chain}", mode, (end - start[:-1])[own])
        given = (("Lam", Lam), ("eta", eta))
        lines = [one if len(one) == 1 else self._sent(f"{name} {chain}", mode, one) for name, one in given]
        at = chain if self._own_workers else None
        shares = shared(ranges, self._cluster.turns(at=at))
        sites = []
        for share in shares:
            mine = [slice(*(int(start[offset + row]) - base for row in (one.first, one.last))) for one in share]
            sites.append(
                [None if stay else self._kept((weight[one] if len(weight) else None, target[one])) for one in mine]
            )
        rows, draw = RowsTarget(f"factors {chain}", mode, offset, factors, fit), DrawTask(columns, precision, key)
        self._drawing.draw(rows, draw, shares, lambda i: (*lines, sizes, sites[i]), at)
        self._arranged.clear()

    def _sum(self, chunks: np.ndarray, by_row: Any, sums: Any, *rows: Any) -> None:
        """Sums of the rows of a mode, and the rows, in place; the arguments are those of `update_chunks`."""
        (weight, seconds, out), (target, means, linear) = sums
        offset, stay = int(chunks[0]), self._stays(target)
        mode, start, entry = self._mode_at(offset), by_row.start, by_row.entry
        value = partial(np.take, target, entry) if stay else partial(np.copy, NOTHING)
        ranges = self._ranges_of(by_row.others, lambda: (start, by_row.others, value()))[mode]
        read = self._source("seconds", seconds, mode) + self._source("means", means, mode)
        shares, sites = shared(ranges, self._cluster.turns()), []
        for share in shares:
            mine = [entry[int(start[offset + one.first]) : int(start[offset + one.last])] for one in share]
            sites.append([None if stay else self._kept((unless_one(weight[one]), target[one])) for one in mine])
        place = ModeRanges(mode, offset, shares, sites)
        if rows:
            given = enumerate(rows[0].lines)
            lines = [one if len(one) == 1 else self._sent(f"line {n}", mode, one) for n, one in given]
            self._summing.update(place, read, (out, linear), rows[0], rows[1], lines)
        else:
            self._summing.sums(place, read, (out, linear))
        self._arranged.clear()

    def _stays(self, target: np.ndarray) -> bool:
        """Whether what the entries say is their values, each with the weight 1."""
        problem: Any = self._problem
        return problem.power is None and bool(np.may_share_memory(target, problem.entries.y))

    def _kept(self, sites: tuple[np.ndarray | None, np.ndarray]) -> Held:
        """What entries say, for one task."""
        self._cluster.sent += sum(0 if one is None else one.nbytes for one in sites)
        return self._cluster.put(sites)

    def _source(self, what: str, source: np.ndarray, but: int | None = None) -> Sources:
        """How workers make a source, of the rows of all modes but one, of what they have."""
        known = next((one for one in self._arranged if one.out is source), Arranged(source, source, None))
        kind = what if known.orders is None else "numbers"
        self._rows.look(kind, known.numbers, but)
        modes = [k for k in self._rows.modes if k != but]
        return self._rows.source(kind, modes, what, known.orders)

    def _draw_sites(
        self, kernel: Any, y: np.ndarray, used: np.ndarray, f: np.ndarray, theta: np.ndarray, *rest: Any
    ) -> None:
        """Draw the auxiliary variables in place; the arguments are those of `Augmentation.drawn`."""
        key, weight, target = rest
        _, name, weighted = next(one for one in self._drawn if one[0] is kernel)
        ranges = blocks_of(len(f), self._n_parts)
        calls = []
        for one in ranges:
            given = [
                cut(array, one, self._once if n == 2 else partial(self._same, n, one.first, array))
                for n, array in enumerate((y, used, f, theta))
            ]
            calls.append((one, name, key, weighted, given))
        told = self._cluster.run(draw_blocks, calls, "auxiliary-variables", where=self._cluster.turns(len(calls)))
        for one, found in zip(ranges, (each.value for each in told), strict=True):
            for whole, some in zip((target, weight), found, strict=False):
                whole[one.first : one.last] = some
                self._cluster.received += some.nbytes

    def _squares(self, rows: np.ndarray, second: np.ndarray, twice: np.ndarray, square: np.ndarray) -> None:
        """Squares of the entries in place; the arguments are those of `sum_squares`."""
        ranges = blocks_of(len(square), self._n_parts)
        known = self._source("seconds", second)
        read = known._replace(sources=tuple(one._replace(what="whole") for one in known.sources))
        own = [self._same(4, one.first, rows, rows[one.first : one.last]) for one in ranges]

        def call(i: int, *given: Any) -> Call:
            return ranges[i], own[i], *given, twice

        told = self._rows.run(square_blocks, read, len(ranges), call, "squares")
        self._arranged.clear()
        for one, found in zip(ranges, told, strict=True):
            square[one.first : one.last] = found
            self._cluster.received += found.nbytes

    def _once(self, part: np.ndarray) -> Held:
        """Numbers of some entries as workers have them, for this time."""
        self._cluster.sent += part.nbytes
        return self._cluster.put(part)

    def _same(self, number: int, first: int, array: np.ndarray, part: np.ndarray) -> Held:
        """The part from `first` on of an array of the problem, as workers have it: sent once, as long as it stays."""
        known = self._entries.get((number, first))
        if known is None or known[0] is not array:
            known = self._entries[number, first] = (array, self._once(part))
        return known[1]

    def _mode_at(self, offset: int) -> int:
        """The mode whose first packed row that is."""
        return int(np.flatnonzero(np.asarray(self._first)[:-1] == offset)[-1])

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
        with self._lock:
            known = self._ranges.get(id(others))
            if known is None:
                given = arrays()
                bounds = itertools.pairwise(np.asarray(self._first).tolist())
                ranges = [ranges_of_mode(self._folder, k, self._n_parts, own, given) for k, own in enumerate(bounds)]
                known = (others, ranges)
                self._ranges[id(others)] = known
            return known[1]
