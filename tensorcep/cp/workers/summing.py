"""Sums of the rows of a mode that workers make, and rows that follow from them, which workers have from each other.

All of it comes back here: rows, the sums, and how far the rows are from their prior.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster
from tensorcep.core.held import Call, Held
from tensorcep.core.nearby import Left, put
from tensorcep.cp.meanfield.update import Update, update_natural
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.sent import Files, HeldRows, SentRows, Sources, digest_of
from tensorcep.cp.workers.tasks import Range, sum_ranges
from tensorcep.cp.workers.updates import Made, rows_alone, update_ranges
from tensorcep.kernels.rows import row_divergences


class Place(NamedTuple):
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

    def sums(self, place: Place, read: Sources, out: tuple[np.ndarray, ...]) -> None:
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
        place: Place,
        read: Sources,
        out: tuple[np.ndarray, ...],
        update: Update,
        rows: RowState,
        lines: list[np.ndarray | Held],
    ) -> None:
        """The sums and all rows, in place; `lines` are those of the update as tasks take them."""
        files, mode = Files(self._rows.desk), place.mode
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
