"""The rows of every mode as workers have them: what they have is known here, and they are given what is new to them.

Rows are sent as they are here when they are needed; a digest of what was sent tells whether they have changed
since.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster, Running
from tensorcep.core.futures import Call, Held, UnknownError
from tensorcep.core.shared_memory import Desk, Left, leave, remove
from tensorcep.cp.workers.row_store import Block, Order, Piece, Source, Store
from tensorcep.cp.workers.tasks import RowInputs
from tensorcep.kernels.sorting import digest


class RowFiles:
    """Files that rows of some kinds are in; they go when all of these are let go of, or forgotten."""

    def __init__(self, desk: Desk):
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


class HeldRows(Held):
    """The rows of a mode: here, or not yet."""

    def __init__(self, name: str, rows: np.ndarray, cluster: Cluster, files: RowFiles):
        super().__init__(None, name)
        self.rows, self._cluster, self.is_known, self.digest, self.files = rows, cluster, False, 0, files
        files.needed.add(name)

    def know(self) -> None:
        """The rows are those here, from now on."""
        self.is_known, self.digest = True, digest_of(self.rows)

    def is_of(self, rows: np.ndarray) -> bool:
        """Whether these have the same bits."""
        return self.is_known and self.rows.shape == rows.shape and self.digest == digest_of(rows)

    @property
    def value(self) -> list[Piece]:
        """As `Held.value`."""
        if not self.is_known:
            raise UnknownError(self.name)
        (given,) = leave(self.files.new_path(), (self.rows,))
        self._cluster.sent += 0 if isinstance(given, Left) else self.rows.nbytes
        return [Piece(0, given)]

    def let_go(self) -> list[str]:
        """Nobody needs them any more than what is here; gives the files that nobody needs either."""
        self.future = None
        return self.files.let_go(self.name)


def digest_of(rows: np.ndarray) -> int:
    return int(digest(np.ascontiguousarray(rows).reshape(-1).view(np.uint64)))


class Sources(NamedTuple):
    """What tasks read of rows, and the rows."""

    sources: tuple[Source, ...]
    rows: dict[tuple[str, int], HeldRows]

    def __add__(self, other: Any) -> Sources:
        return Sources((*self.sources, *other.sources), {**self.rows, **other.rows})


class SentRows:
    """The rows that the workers of a cluster have, by their kind."""

    def __init__(self, cluster: Cluster):
        self._cluster, self._first, self.desk = cluster, tuple[int, ...](), Desk(cluster.client)
        self._rows: dict[str, list[HeldRows]] = {}
        self._has: dict[str, dict[tuple[str, int], str]] = {}
        self._stores: dict[str | None, Held] = {}
        self._begun: set[Running] = set()
        self._gone: list[str] = []

    def begin(self, first: np.ndarray) -> None:
        """From now on rows are those of a problem, whose modes begin there."""
        self.close()
        self.desk.open()
        self._first = tuple(first.tolist())

    @property
    def modes(self) -> range:
        """All modes."""
        return range(len(self._first) - 1)

    def close(self) -> None:
        """Let workers forget the rows."""
        self._rows, self._has, self._stores, self._begun, self._gone = {}, {}, {}, set(), []
        self.desk.close()

    def look(self, kind: str, rows: np.ndarray, but: int | None = None) -> None:
        """See which modes' rows, but those of one, have changed."""
        known = self._rows.setdefault(kind, [])
        for k, (a, b) in enumerate(itertools.pairwise(self._first)):
            if k == but and k < len(known):
                continue
            if k < len(known) and known[k].is_of(rows[a:b]):
                known[k].rows = rows[a:b]
                continue
            held = HeldRows(self._cluster.new_name(), rows[a:b], self._cluster, RowFiles(self.desk))
            held.know()
            known[k:] = [held, *known[k + 1 :]]

    def source(self, kind: str, modes: Sequence[int], what: str = "", orders: list[Order] | None = None) -> Sources:
        """What a task reads of the rows of some modes, as they were when they were looked at."""
        known = self._rows[kind]
        names = tuple(one.name if k in modes else None for k, one in enumerate(known))
        return Sources((Source(what, kind, names, orders),), {(kind, k): known[k] for k in modes})

    def coming(self, kind: str, mode: int, files: RowFiles | None = None) -> HeldRows:
        """Rows of a mode that tasks are going to make; they are here as soon as they are known."""
        files = RowFiles(self.desk) if files is None else files
        return HeldRows(self._cluster.new_name(), self._rows[kind][mode].rows, self._cluster, files)

    def follow(self, kind: str, mode: int, held: HeldRows, futures: list[Any] | None) -> None:
        """From now on the rows of a mode are those that these tasks make."""
        held.future, self._rows[kind][mode] = futures, held

    def begin_tasks(
        self,
        function: Callable[..., Any],
        sources: Sources,
        n: int,
        call: Callable[[int, RowInputs, list[Held], Held], Call],
        what: str,
        at: int | None = None,
    ) -> Running:
        """Begin n tasks that read these rows; `call` makes the arguments of one from what it is given of them."""
        where, (gone, self._gone) = self._cluster.turns(n, at), (self._gone, [])

        def given(i: int, whole: bool) -> Call:
            told, blocks, store = self._given(sources, where[i], whole)
            return call(i, told._replace(gone=tuple(gone[i::n])), blocks, store)

        calls = [given(i, False) for i in range(n)]
        running = self._cluster.begin(function, calls, what, where=where, whole=partial(given, whole=True))
        self._begun.add(running)
        for worker in where:
            self._now_has(sources, worker)
        return running

    def end_tasks(self, running: Running) -> list[Any]:
        """What they give."""
        told = running.finish()
        if running.again:
            self._has = {}  # nobody knows what workers have; they are given all
            self._stores = {name: store for name, store in self._stores.items() if name in self._cluster.workers}
        self._begun.discard(running)
        if not self._begun:  # others may not have taken yet what they were given
            self._let_go()
        return [one.value for one in told]

    def run(self, *tasks: Any) -> list[Any]:
        """As `begin_tasks`, and waited for."""
        return self.end_tasks(self.begin_tasks(*tasks))

    def _given(self, sources: Sources, worker: str | None, whole: bool) -> tuple[RowInputs, list[Held], Held]:
        """What the tasks of a worker are given: which rows, these, and what it keeps them in.

        That is what is new to it; if it is `whole`, or nobody knows which worker it is, all.
        """
        if whole:
            self.desk.give_up()
        has = {} if whole or worker is None else self._has.setdefault(worker, {})
        new = [(place, rows) for place, rows in sources.rows.items() if has.get(place) != rows.name]
        store = self._stores.get(worker)
        if store is None:
            make = partial(Store, self.desk.folder, os.getpid())
            store = self._stores[worker] = self._cluster.made_at(make, worker)
        blocks = tuple(Block(*place, rows.name) for place, rows in new)
        return RowInputs(sources.sources, self._first, blocks), [rows for _, rows in new], store

    def _now_has(self, sources: Sources, worker: str | None) -> None:
        """The tasks of a worker have been given what they read."""
        if worker is not None:
            self._has.setdefault(worker, {}).update({place: rows.name for place, rows in sources.rows.items()})

    def _let_go(self) -> None:
        """What all workers keep needs to be nowhere else."""
        every = [self._has.get(worker, {}) for worker in self._cluster.workers]
        for kind, known in self._rows.items():
            for k, rows in enumerate(known):
                if rows.is_known and all(has.get((kind, k)) == rows.name for has in every):
                    self.discard(rows.let_go())

    def discard(self, paths: list[str]) -> None:
        """Have files removed by the tasks that are next."""
        self._gone += paths
