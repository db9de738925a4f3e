"""Sums over entries, updates and draws of rows on workers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster, Running
from tensorcep.core.futures import Call, Held, TaskReport
from tensorcep.core.shared_memory import Given as NearbyArray
from tensorcep.core.shared_memory import Left, Sheet, put, rows_of
from tensorcep.cp.meanfield.row_update import ROWS_AT_A_TIME, Update, update_natural
from tensorcep.cp.model.entries import EntriesByRow, sum_products
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.partitions import RowPartition, close_part, open_part
from tensorcep.cp.workers.row_cache import HeldRows, RowFiles, SentRows, Sources, digest_of
from tensorcep.cp.workers.row_store import Order
from tensorcep.cp.workers.tasks import Drawn, DrawTask, Range, RowInputs, Sites, draw_ranges, own_sites, sum_ranges
from tensorcep.kernels.rows import row_divergences, row_moments, second_moments

# Draws of the rows of one mode after the other on workers, which have the rows from each other.
#
# The draws of all modes of a sweep are given at once. Those of a mode begin when the rows of the mode before are there,
# and these come back here meanwhile.


class RowsTarget(NamedTuple):
    """Where new rows go: to the mode of the factors (n_rows, R) that begins at `offset`, and what they leave to `fit`.

    `kind` is what they are called.
    """

    kind: str
    mode: int
    offset: int
    factors: np.ndarray
    fit: np.ndarray

    def take(self, drawn: Drawn) -> int:
        """Put rows in place; gives their bytes."""
        first, n = drawn.first, drawn.rows.shape[0]
        put(drawn.rows, self.factors[self.offset + first : self.offset + first + n])
        put(drawn.squares, self.fit[first : first + n])
        return drawn.rows.nbytes + drawn.squares.nbytes


class Waiting(NamedTuple):
    """Draws that have not come back."""

    running: Running
    rows: HeldRows
    room: RowsTarget


class Drawing:
    """The draws of rows on the workers of a cluster, those of every thread by themselves."""

    def __init__(self, cluster: Cluster, rows: SentRows):
        self._cluster, self._rows, self._own = cluster, rows, threading.local()

    def draw(
        self,
        room: RowsTarget,
        draw: DrawTask,
        shares: list[list[Range]],
        rest: Callable[[int], tuple[Any, ...]],
        at: int | None,
    ) -> None:
        """Have the rows of a mode drawn, each share of its ranges by a task, with the rest of its arguments."""
        waiting = self._waiting()
        if not waiting:
            self._rows.look(room.kind, room.factors)

        rows = self._rows.coming(room.kind, room.mode)

        def call(i: int, *given: Any) -> Call:
            return shares[i], draw, *given, *rest(i), rows.files.new_path()

        read, what = self._read(room, draw.columns.order), f"rows-of-mode-{room.mode}"
        running = self._rows.begin_tasks(draw_ranges, read, len(shares), call, what, at)
        self._rows.follow(room.kind, room.mode, rows, running.futures)
        waiting.append(Waiting(running, rows, room))

    def settle(self) -> None:
        """Put the rows of this thread's draws in place."""
        waiting = self._waiting()
        try:
            while waiting:
                running, rows, room = waiting.pop(0)
                self._cluster.received += sum(room.take(one) for one in self._rows.end_tasks(running))
                rows.know()
                if running.again:  # what follows was given what was lost
                    rows.future = None
                    for later in waiting:
                        later.running.restart()
        finally:
            waiting.clear()

    def _waiting(self) -> list[Waiting]:
        """In the order in which they were given."""
        found: list[Waiting] = self._own.__dict__.setdefault("waiting", [])
        return found

    def _read(self, room: RowsTarget, order: np.ndarray) -> Sources:
        """What a draw reads: the rows of the other modes in its order, and those of its own as they are."""
        others = [k for k in self._rows.modes if k != room.mode]
        own, (n, width) = self._rows.source(room.kind, [room.mode]), room.factors.shape
        if np.array_equal(order, np.arange(width)):
            return self._rows.source(room.kind, others) + own
        return self._rows.source(room.kind, others, f"mode {room.mode}", [Order(0, n, order)]) + own


# Sums of the rows of a mode that workers make, and rows that follow from them, which workers have from each other.
#
# All of it comes back here: rows, the sums, and how far the rows are from their prior.


class ModeRanges(NamedTuple):
    """A mode, its first packed row, the ranges that each task has, and what their entries say."""

    mode: int
    offset: int
    shares: list[list[Range]]
    sites: list[list[Held | None]]


class Divergences(NamedTuple):
    """How far rows are from their prior (n,); digests of their means, and of the lines of the prior."""

    of_rows: np.ndarray
    means: int
    lines: tuple[int, int]


class Summing:
    """Sums and rows from the workers of a cluster.

    Parameters
    ----------
    cluster : Cluster
    rows : SentRows
    """

    def __init__(self, cluster: Cluster, rows: SentRows):
        self._cluster, self._rows = cluster, rows
        self._coming: dict[int, list[HeldRows]] = {}
        self._divergences: dict[int, Divergences] = {}

    def close(self) -> None:
        """Forget the rows."""
        self._coming, self._divergences = {}, {}

    def sums(self, place: ModeRanges, read: Sources, out: tuple[np.ndarray, ...]) -> None:
        """The sums of all rows, in place."""

        def call(i: int, *rows: Any) -> Call:
            return place.shares[i], *rows, place.sites[i], self._rows.desk.new_path()

        told = self._rows.run(sum_ranges, read, len(place.shares), call, f"sums-of-mode-{place.mode}")
        ranges = itertools.chain.from_iterable(place.shares)
        for one, found in zip(ranges, itertools.chain.from_iterable(told), strict=True):
            for whole, some in zip(out, found, strict=True):
                self._take(some, whole[place.offset + one.first : place.offset + one.last])
            self._rows.discard(sorted({some.path for some in found if isinstance(some, Left)}))

    def update(
        self,
        place: ModeRanges,
        read: Sources,
        out: tuple[np.ndarray, ...],
        update: Update,
        rows: RowState,
        lines: list[np.ndarray | Held],
    ) -> None:
        """The sums and all rows, in place; `lines` are those of the update as tasks take them."""
        files, mode = RowFiles(self._rows.desk), place.mode
        coming = {one.kind: self._rows.coming(one.kind, mode, files) for one in read.sources}
        how, sizes = (update.precision, update.n_clamped), (rows.Lam.shape[1], rows.eta.shape[1])

        def call(i: int, *given: Any) -> Call:
            paths = (files.new_path(), self._rows.desk.new_path())
            return place.shares[i], *given, place.sites[i], how, lines, sizes, paths

        running = self._rows.begin_tasks(update_ranges, read, len(place.shares), call, f"rows-of-mode-{mode}")
        futures = running.futures
        if self._rows.desk.folder is None:
            futures = self._cluster.after(rows_alone, futures) or None
        for kind, held in coming.items():
            self._rows.follow(kind, mode, held, futures)
        told: list[Made] = self._rows.end_tasks(running)
        divergence = np.empty(sum(one.n for one in told))
        for one in told:
            mine = slice(place.offset + one.first, place.offset + one.first + one.n)
            given = (one.mean, one.cov, one.sum_Z2, one.sum_yz, one.good)
            for some, whole in zip(given, (rows.mean, rows.cov, *out, rows.good), strict=True):
                self._take(some, whole[mine])
            self._take(one.divergence, divergence[one.first : one.first + one.n])
            own = update.of(one.first, one.first + one.n)
            update_natural(own, *(whole[mine] for whole in (*out, rows.Lam, rows.eta)))
            self._rows.discard([one.sum_Z2.path] if isinstance(one.sum_Z2, Left) else [])
        if running.again:  # what follows was given what was lost
            for held in coming.values():
                held.future = None
        self._coming[place.offset] = list(coming.values())
        means = rows.mean[place.offset : place.offset + len(divergence)]
        lines_of = digest_of(update.Lam), digest_of(update.mean)
        self._divergences[place.offset] = Divergences(divergence, digest_of(means), lines_of)

    def are_there(self, offset: int) -> None:
        """The numbers of the rows that were made last are as workers have them, from now on."""
        for held in self._coming.pop(offset, []):
            held.know()

    def knows(self, kernel: Any, first: int, last: int, record: tuple[Any, ...]) -> bool:
        """Put what a kernel would compute in place, if workers have told it: divergences of the rows of a mode."""
        known = self._divergences.get(first) if kernel is row_divergences else None
        if known is None or len(known.of_rows) != last - first:
            return False
        rows, Lam, mean, out = record
        lines = tuple(digest_of(one if len(one) == 1 else one[first:last]) for one in (Lam, mean))
        if known.lines != lines or known.means != digest_of(rows.mean[first:last]):
            return False
        out[first:last] = known.of_rows
        return True

    def _take(self, given: Any, out: np.ndarray) -> None:
        put(given, out)
        self._cluster.received += given.nbytes


# What workers do for rows that follow from their sums: sums over entries, natural parameters and moments at once.
#
# Rows are made some at a time, so that a worker never holds the sums of all.


class Made(NamedTuple):
    """Rows of a mode from `first` on, or where they are.

    Attributes
    ----------
    mean, cov : (n, Q), (n, P)
    sum_Z2, sum_yz : (n, W), (n, Q + C)
        The sums that they follow from.
    good, divergence : (n,)
        As `row_moments` and `row_divergences` give them.
    """

    first: int
    mean: NearbyArray
    cov: NearbyArray
    sum_Z2: NearbyArray
    sum_yz: NearbyArray
    good: NearbyArray
    divergence: NearbyArray

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.mean.shape[0]

    def width(self, kind: str) -> tuple[int, ...]:
        """As `Piece.width`."""
        Q, P = self.mean.shape[1], self.cov.shape[1]
        return ({"means": Q, "seconds": P, "numbers": P + Q + 1}[kind],)

    def fill(self, kind: str, out: np.ndarray) -> None:
        """As `Piece.fill`, of means, second moments, or numbers: these, means and 1 (`MeanFieldState.numbers`)."""
        Q, P = self.mean.shape[1], self.cov.shape[1]
        if kind == "means":
            put(self.mean, out)
            return
        means, covs = np.empty((ROWS_AT_A_TIME, Q)), np.empty((ROWS_AT_A_TIME, P))
        for a, b in pieces(self.n):
            mean, cov, own = means[: b - a], covs[: b - a], out[a:b]
            put(rows_of(self.mean, a, b), mean)
            put(rows_of(self.cov, a, b), cov)
            second_moments(0, b - a, mean, cov, own)
            if kind == "numbers":
                own[:, P:-1], own[:, -1] = mean, 1.0


def rows_alone(told: TaskReport) -> TaskReport:
    """What other workers need of rows that one has made: where results are sent, they would be sent the sums, too."""
    none = np.empty(0)
    if told.lacks:
        return told
    return told._replace(value=told.value._replace(sum_Z2=none, sum_yz=none, good=none, divergence=none))


def pieces(n: int) -> Iterator[tuple[int, int]]:
    """Where n rows are cut."""
    for a in range(0, n, ROWS_AT_A_TIME):
        yield a, min(n, a + ROWS_AT_A_TIME)


def update_ranges(
    ranges: list[Range],
    given: RowInputs,
    blocks: list[Any],
    store: Any,
    sites: list[Sites | None],
    how: tuple[float, int],
    lines: list[np.ndarray],
    sizes: tuple[int, int],
    paths: tuple[str | None, str | None],
) -> Made:
    """New rows of ranges that follow each other, from `sum_products` of two sources over their entries.

    `how` has the numbers of an `Update`, `lines` its lines, for all rows of the mode or one; `sizes` are P and Q. Rows
    are left at the first of the paths, what else is told of them at the second.
    """
    first, n = ranges[0].first, ranges[-1].last - ranges[0].first
    update = Update(how[0], lines[0], lines[1], lines[2], how[1])
    with given.read(blocks, store) as sources:
        widths = [source.shape[1] for source in sources]
        room = _room(min(n, ROWS_AT_A_TIME), widths, sizes)
        rows, told = (
            Sheet(path, [(n, *array.shape[1:]) for array in arrays])
            for path, arrays in zip(paths, room.results, strict=True)
        )
        try:
            for one, own in zip(ranges, sites, strict=True):
                for a, b in _sums(one, sources, own, room.sums):
                    at, used = one.first - first + a, room.of(b - a)
                    _make(update.of(one.first + a, one.first + b), used)
                    for sheet, arrays in zip((rows, told), used.results, strict=True):
                        for k, array in enumerate(arrays):
                            sheet.put(k, at, array)
                close_part(one.path)
            return Made(first, *rows.done(), *told.done())
        finally:
            rows.drop()
            told.drop()


class _Room(NamedTuple):
    """Some rows, their sums, and their divergences from the prior; made once, as to get memory takes its time."""

    rows: RowState
    sums: list[np.ndarray]
    divergence: np.ndarray

    @property
    def results(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What others are told, and what the client is told."""
        return [self.rows.mean, self.rows.cov], [*self.sums, self.rows.good, self.divergence]

    def of(self, n: int) -> _Room:
        """The first n rows."""
        return _Room(RowState(*(array[:n] for array in self.rows)), [one[:n] for one in self.sums], self.divergence[:n])


def _room(n: int, widths: list[int], sizes: tuple[int, int]) -> _Room:
    P, Q = sizes
    rows = RowState(np.empty((n, P)), np.empty((n, Q)), np.empty((n, Q)), np.empty((n, P)), np.empty(n))
    return _Room(rows, [np.empty((n, width)) for width in widths], np.empty(n))


def _make(update: Update, room: _Room) -> None:
    """Rows and their divergences from the prior, in place, from the sums."""
    n, rows = len(room.divergence), room.rows
    update_natural(update, room.sums[0], room.sums[1], rows.Lam, rows.eta)
    row_moments(0, n, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
    row_divergences(0, n, rows, np.array(update.Lam), np.array(update.mean), room.divergence)


def _sums(
    where: Range, sources: list[np.ndarray], sites: Sites | None, out: list[np.ndarray]
) -> Iterator[tuple[int, int]]:
    """The sums of some rows of a range after the other, with weights and with values; which rows they are of."""
    part, none = open_part(where.path, RowPartition), np.zeros(0, dtype=np.int64)
    weight, target = own_sites(sites, part)
    cuts = [(a, b, int(part.start[a]), int(part.start[b])) for a, b in pieces(where.last - where.first)]
    most = max((last - begin for _, _, begin, last in cuts), default=0)
    entry, ones = np.arange(most, dtype=np.int32), np.ones(most if weight is None else 0)
    for a, b, begin, last in cuts:
        start = part.start[a : b + 1] - begin
        lists = start, start[1:], entry[: last - begin], np.empty(0), part.others[begin:last]
        by_row = EntriesByRow(*lists, (none,))
        numbers = ones if weight is None else weight[begin:last], target[begin:last]
        for source, own, sums in zip(sources, numbers, out, strict=True):
            sum_products(0, b - a, by_row, own, source, sums, np.empty(source.shape[1]))
        yield a, b
