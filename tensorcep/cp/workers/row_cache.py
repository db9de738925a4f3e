"""Rows as workers keep them from one task to the next: the client knows what each has, and gives it what is new to it.

A digest tells whether rows have changed since they were sent. Rows that tasks make workers have from each other. Tasks
put what they are given in place, and in the order in which kernels read it; so each is sent, and put in order, once.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Broadcast, Call, Cluster, LackingError, TaskBatch, TaskReport
from tensorcep.core.shared_memory import Payload, SharedArray, SharedFolder, put, remove, remove_after, rows_of, share
from tensorcep.cp.model.rows import RowSource
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.kernels.sorting import digest

# Rows whose numbers are made at a time.
ROWS_AT_A_TIME = 64 * LANES


class Source(NamedTuple):
    """Rows of a kind, by the names of those of every mode (None where they are not read), as a kernel reads them."""

    kind: str
    names: tuple[str | None, ...]
    what: str = ""  # the argument for which they are put in order: what is, is kept until it is for another
    orders: tuple[np.ndarray | None, ...] | None = None  # the places of numbers in each mode, None: in order


class Block(NamedTuple):
    """What is given of the rows of a mode: their kind, the mode, their name, and the shape of a row."""

    kind: str
    mode: int
    name: str
    shape: tuple[int, ...]
    of: tuple[str, ...] = ()  # these two are those of `RowSource`
    by: Callable[..., None] | None = None


class Piece(NamedTuple):
    """Rows of a mode from `first` on: arrays with a line for each, or where these are, by name; "" are the rows."""

    first: int
    arrays: dict[str, Payload]
    told: dict[str, Payload]  # the client alone needs them

    @property
    def n(self) -> int:
        """How many rows there are."""
        return int(next(iter(self.arrays.values())).shape[0])

    def fill(self, block: Block, out: np.ndarray) -> None:
        """Put rows in place, or make them."""
        name = "" if "" in self.arrays else block.of[0]
        if not name or block.by is None:
            put(self.arrays[name], out)
            return
        of = [self.arrays[name] for name in block.of]
        for a, b in pieces(self.n, ROWS_AT_A_TIME):
            room = [np.empty((b - a, *one.shape[1:])) for one in of]
            for one, some in zip(of, room, strict=True):
                put(rows_of(one, a, b), some)
            block.by(0, b - a, *room, out[a:b])


def pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Where n rows are cut."""
    for a in range(0, n, size):
        yield a, min(n, a + size)


class RowInputs(NamedTuple):
    """What tasks read of rows, the first packed row of every mode, and what is given of them, in this order."""

    sources: tuple[Source, ...]
    first: tuple[int, ...]
    blocks: tuple[Block, ...]
    gone: tuple[str, ...] = ()  # files that nobody needs any more; to remove them takes about as long as to read them


class _Rows:
    """All rows, those of each mode as of some name, and how many tasks are reading them."""

    def __init__(self, array: np.ndarray, names: list[Any]):
        self.array, self.names, self.readers = array, names, 0


class Store:
    """Rows that a worker keeps, by their kind; empty when it is sent."""

    def __init__(self, folder: str | None = None, owner: int = 0) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Rows] = {}
        if folder is not None:  # Dask lets go of this when nobody needs it, and of the folder if its owner is gone
            remove_after(self, folder, owner)

    def __reduce__(self) -> Any:
        return Store, ()

    @contextlib.contextmanager
    def reading(self, inputs: RowInputs, blocks: Sequence[Any]) -> Iterator[list[np.ndarray]]:
        """The rows of all sources, which stay as they are within the block; a LackingError without those they need."""
        remove(inputs.gone)
        with self._lock:
            for block, made in zip(inputs.blocks, blocks, strict=True):
                self._take(block, made, inputs.first)
            found = [self._found(source, inputs.first) for source in inputs.sources]
            for rows in found:
                rows.readers += 1
        try:
            yield [rows.array for rows in found]
        finally:
            with self._lock:
                for rows in found:
                    rows.readers -= 1

    def _take(self, block: Block, made: Any, first: tuple[int, ...]) -> None:
        """Keep the rows of a mode, which are pieces, or what tasks told."""
        known = self._kept.get(block.kind)
        if known is not None and known.names[block.mode] == block.name:
            return
        if any(isinstance(one, TaskReport) and one.lacks for one in made):
            raise LackingError
        rows = self._to_write(block.kind, first, block.shape)
        rows.names[block.mode] = None
        for piece in (one.value if isinstance(one, TaskReport) else one for one in made):
            begin = first[block.mode] + piece.first
            try:
                piece.fill(block, rows.array[begin : begin + piece.n])
            except FileNotFoundError:
                raise LackingError from None
        rows.names[block.mode] = block.name

    def _to_write(self, key: str, first: tuple[int, ...], shape: tuple[int, ...]) -> _Rows:
        """Rows that nobody is reading: where an old task is, it keeps those that it reads."""
        rows = self._kept.get(key)
        if rows is None or rows.array.shape[1:] != shape:
            rows = self._kept[key] = _Rows(lane_zeros((first[-1], *shape)), [None] * (len(first) - 1))
        elif rows.readers:
            rows = self._kept[key] = _Rows(rows.array.copy(), list(rows.names))
        return rows

    def _found(self, source: Source, first: tuple[int, ...]) -> _Rows:
        raw, orders = self._kept.get(source.kind), source.orders
        needed = [(k, name) for k, name in enumerate(source.names) if name is not None]
        if raw is None or any(raw.names[k] != name for k, name in needed):
            raise LackingError
        if orders is None:
            return raw
        key, width = f"{source.kind} for {source.what}", max(len(one) for one in orders if one is not None)
        ordered, places = self._kept.get(key), [np.array(orders[k]) for k, _ in needed]
        wanted = [(k, (name, own.tobytes()), own) for (k, name), own in zip(needed, places, strict=True)]
        if ordered is None or any(ordered.names[k] != name for k, name, _ in wanted):
            ordered = self._to_write(key, first, (width,))
            for k, name, own in wanted:
                if ordered.names[k] != name:
                    arrange(first[k], first[k + 1], raw.array, own, ordered.array)
                    ordered.names[k] = name
        return ordered


# What the client knows of it.


class RowFiles:
    """Files that rows of some kinds are in; they go when all of these are let go of, or forgotten."""

    def __init__(self, desk: SharedFolder):
        self._desk, self._paths, self.needed = desk, list[str](), set[str]()
        weakref.finalize(self, remove, self._paths)

    def new_path(self) -> str | None:
        """Where these rows, or some of them, may be left; None where they are sent."""
        path = self._desk.new_path()
        if path is not None:
            self._paths.append(path)
        return path

    def let_go(self, name: str) -> list[str]:
        """Rows of this name need them no longer; gives the files that nobody needs."""
        self.needed.discard(name)
        gone = [] if self.needed else list(self._paths)
        if gone:
            self._paths.clear()
        return gone


class BroadcastRows(Broadcast):
    """The rows of a mode: here, or, without `digests`, not yet."""

    def __init__(self, source: RowSource, rows: slice, cluster: Cluster, files: RowFiles):
        super().__init__(None, cluster.new_name())
        self._cluster, self.digests, self.files = cluster, tuple[int, ...](), files
        self.source, self.rows = source, rows
        files.needed.add(self.name)

    def know(self) -> None:
        """The rows are those here, from now on."""
        self.digests = digests_of(self.source.of.values(), self.rows)

    def is_of(self, source: RowSource, rows: slice) -> bool:
        """Whether these have the same bits."""
        same = self.digests and self.source.here.shape == source.here.shape
        return bool(same) and self.digests == digests_of(source.of.values(), rows)

    @property
    def value(self) -> list[Piece]:
        if not self.digests:
            raise KeyError(self.name)
        rows = self.source.here[self.rows]
        (given,) = share(self.files.new_path(), (rows,))
        self._cluster.sent += 0 if isinstance(given, SharedArray) else rows.nbytes
        return [Piece(0, {"": given}, {})]


def digests_of(arrays: Any, rows: slice = slice(None)) -> tuple[int, ...]:
    """Numbers that tell some rows of arrays from others."""
    return tuple(int(digest(np.ascontiguousarray(one[rows]).reshape(-1).view(np.uint64))) for one in arrays)


class Reading(NamedTuple):
    """What tasks read of rows, and the rows."""

    sources: tuple[Source, ...]
    rows: dict[tuple[str, int], BroadcastRows]


class RowCache:
    """The rows that the workers of a cluster have, by their kind."""

    def __init__(self, cluster: Cluster):
        self._cluster, self._first, self.desk = cluster, tuple[int, ...](), SharedFolder(cluster.client)
        self.close()

    def begin(self, first: np.ndarray) -> None:
        """From now on rows are those of a problem, whose modes begin there."""
        self.close()
        self.desk.open()
        self._first = tuple(first.tolist())

    @property
    def modes(self) -> range:
        """All modes."""
        return range(len(self._first) - 1)

    def rows_of(self, mode: int) -> slice:
        """The packed rows of a mode."""
        return slice(*self._first[mode : mode + 2])

    def close(self) -> None:
        """Let workers forget the rows."""
        self._rows: dict[str, list[BroadcastRows]] = {}
        self._has: dict[str, dict[tuple[str, int], str]] = {}
        self._stores: dict[str | None, Broadcast] = {}
        self._begun, self._gone = set[TaskBatch](), list[str]()
        self.desk.close()

    def look(self, sources: Iterable[RowSource], but: int | None = None) -> None:
        """See which modes' rows, but those of one, have changed."""
        for source in {one.kind: one for one in sources}.values():
            known = self._rows.setdefault(source.kind, [])
            for k in self.modes:
                rows = self.rows_of(k)
                if k == but and k < len(known):
                    continue
                if k < len(known) and known[k].is_of(source, rows):
                    known[k].source = source
                    continue
                made = BroadcastRows(source, rows, self._cluster, RowFiles(self.desk))
                made.know()
                known[k:] = [made, *known[k + 1 :]]

    def reading(self, wanted: Iterable[tuple[str, RowSource, Sequence[int]]]) -> Reading:
        """What tasks read of the rows of some modes, as they were when they were looked at: for an argument, if any."""
        sources, rows = [], dict[tuple[str, int], BroadcastRows]()
        for what, source, modes in wanted:
            known, orders = self._rows[source.kind], None
            if what and source.order is not None:
                orders = (source.order,) * len(known) if isinstance(source.order, np.ndarray) else source.order
                width = np.arange(source.here.shape[1])
                orders = None if all(one is None or np.array_equal(one, width) for one in orders) else orders
            names = tuple(one.name if k in modes else None for k, one in enumerate(known))
            sources.append(Source(source.kind, names, what, orders))
            rows |= {(source.kind, k): known[k] for k in modes}
        return Reading(tuple(sources), rows)

    def follow(self, made: BroadcastRows, mode: int, futures: list[Any] | None) -> None:
        """From now on the rows of a mode are those that these tasks make."""
        made.future, self._rows[made.source.kind][mode] = futures, made

    def begin_tasks(
        self,
        function: Callable[..., Any],
        reading: Reading,
        n: int,
        call: Callable[[int, RowInputs, list[Broadcast], Broadcast], Call],
        what: str,
        at: int | None = None,
    ) -> TaskBatch:
        """Begin n tasks that read these rows; `call` makes the arguments of one from what it is given of them."""
        where, (gone, self._gone) = self._cluster.turns(n, at), (self._gone, [])

        def given(i: int, whole: bool) -> Call:
            told, blocks, store = self._given(reading, where[i], whole)
            return call(i, told._replace(gone=tuple(gone[i::n])), blocks, store)

        calls = [given(i, False) for i in range(n)]
        running = TaskBatch(self._cluster, function, calls, what, where=where, whole=partial(given, whole=True))
        self._begun.add(running)
        for worker in where:
            if worker is not None:  # its tasks have been given what they read
                names = {place: rows.name for place, rows in reading.rows.items()}
                self._has.setdefault(worker, {}).update(names)
        return running

    def end_tasks(self, running: TaskBatch) -> list[Any]:
        """What they give."""
        told = running.finish()
        if running.again:
            self._has = {}  # nobody knows what workers have; they are given all
            self._stores = {name: store for name, store in self._stores.items() if name in self._cluster.workers}
        self._begun.discard(running)
        if not self._begun:  # others may not have taken yet what they were given
            every = [self._has.get(worker, {}) for worker in self._cluster.workers]
            for kind, known in self._rows.items():
                for k, rows in enumerate(known):  # what all workers keep needs to be nowhere else
                    if rows.digests and all(has.get((kind, k)) == rows.name for has in every):
                        rows.future = None
                        self.discard(rows.files.let_go(rows.name))
        return [one.value for one in told]

    def run(self, *tasks: Any) -> list[Any]:
        """As `begin_tasks`, and waited for."""
        return self.end_tasks(self.begin_tasks(*tasks))

    def _given(self, reading: Reading, worker: str | None, whole: bool) -> tuple[RowInputs, list[Broadcast], Broadcast]:
        """What tasks of a worker get: which rows, those new to it (if `whole`, or it is unknown: all), its store."""
        if whole:
            self.desk.give_up()
        has = {} if whole or worker is None else self._has.setdefault(worker, {})
        new = [(place, rows) for place, rows in reading.rows.items() if has.get(place) != rows.name]
        store = self._stores.get(worker)
        if store is None:
            make = partial(Store, self.desk.folder, os.getpid())
            store = self._stores[worker] = self._cluster.made_at(make, worker)
        sources = [(place, rows.name, rows.source) for place, rows in new]
        blocks = tuple(Block(*place, name, one.here.shape[1:], tuple(one.of), one.by) for place, name, one in sources)
        return RowInputs(reading.sources, self._first, blocks), [rows for _, rows in new], store

    def discard(self, paths: list[str]) -> None:
        """Have files removed by the tasks that are next."""
        self._gone += paths
