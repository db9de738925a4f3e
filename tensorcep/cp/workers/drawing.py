"""Draws of the rows of one mode after the other on workers, which have the rows from each other.

The draws of all modes of a sweep are given at once. Those of a mode begin when the rows of the mode before are there,
and these come back here meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster
from tensorcep.core.held import Call
from tensorcep.core.nearby import put
from tensorcep.core.running import Running
from tensorcep.cp.workers.sent import HeldRows, SentRows, Sources
from tensorcep.cp.workers.store import Order
from tensorcep.cp.workers.tasks import Draw, Drawn, Range, draw_ranges


class Room(NamedTuple):
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
    room: Room


class Drawing:
    """The draws of rows on the workers of a cluster, those of every thread by themselves."""

    def __init__(self, cluster: Cluster, rows: SentRows):
        self._cluster, self._rows, self._own = cluster, rows, threading.local()

    def draw(
        self,
        room: Room,
        draw: Draw,
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

    def _read(self, room: Room, order: np.ndarray) -> Sources:
        """What a draw reads: the rows of the other modes in its order, and those of its own as they are."""
        others = [k for k in self._rows.modes if k != room.mode]
        own, (n, width) = self._rows.source(room.kind, [room.mode]), room.factors.shape
        if np.array_equal(order, np.arange(width)):
            return self._rows.source(room.kind, others) + own
        return self._rows.source(room.kind, others, f"mode {room.mode}", [Order(0, n, order)]) + own
