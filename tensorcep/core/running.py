"""Tasks that have been given to workers, and are given again when a worker is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from tensorcep.core.checks import warn_user
from tensorcep.core.held import Call, Told, held_by
from tensorcep.core.watch import Watch


class Running:
    """Tasks that have been given to workers; `tensorcep.core.cluster.Cluster.begin` says of what.

    Attributes
    ----------
    again : bool
        Whether some were given again.
    """

    def __init__(
        self,
        cluster: Any,
        function: Callable[..., Any],
        calls: list[Call],
        what: str,
        patient: bool,
        where: list[str | None],
        whole: Callable[[int], Call] | None,
    ):
        self._cluster, self._function, self._calls, self._what = cluster, function, calls, what
        self._patient, self._where, self._whole, self.again = patient, where, whole, False
        self._futures: dict[int, Any] = {}
        self._found: dict[int, Told] = {}
        with contextlib.suppress(*cluster.lost()):  # they are given again when they are waited for
            self._give()

    @property
    def futures(self) -> list[Any] | None:
        """Of all tasks; None if not all are given."""
        return list(self._futures.values()) if len(self._futures) == len(self._calls) else None

    def restart(self) -> None:
        """Give all tasks again, with all that they need: what they were given was lost."""
        self._futures, self._where = {}, []
        self._again(range(len(self._calls)))

    def finish(self) -> list[Told]:
        """What every task gave; its warnings are given here, too.

        Raises
        ------
        ClusterError
            If there is no progress, or the scheduler is gone, or a task ends its workers.
        """
        cluster, found, watch = self._cluster, self._found, Watch(self._cluster, self._what, self._patient)
        while len(found) < len(self._calls):
            watch.look(len(found), [f for i, f in self._futures.items() if i not in found])
            done, lacking, failed = [], [], False
            try:
                self._give()
                cluster.wait([f for i, f in self._futures.items() if i not in found])
                done = [i for i, f in self._futures.items() if i not in found and f.status == "finished"]
                given = cluster.client.gather([self._futures[i] for i in done], direct=True)
                lacking = [i for i, told in zip(done, given, strict=True) if told.lacks]
                found |= {i: told for i, told in zip(done, given, strict=True) if not told.lacks}
            except cluster.lost():
                done, failed = [], True
            left = [(i, f) for i, f in self._futures.items() if i not in found and i not in lacking]
            lost = [i for i, f in left if f.status in ("cancelled", "lost", "error")]
            if any([cluster.is_lost(self._futures[i], self._what) for i in lost]) or (lost and not done):
                self._futures = {i: f for i, f in self._futures.items() if i in found}
                self._where, failed = [], True  # Dask chooses among those that are left
                cluster.look_again()
                self._again([i for i in range(len(self._calls)) if i not in found])
            elif lacking:
                self._again(lacking)
            if failed or lacking:
                watch.again()
        results = [found[i] for i in range(len(self._calls))]
        for told in results:
            for text, category in told.warnings:
                warn_user(text, category)
        return results

    def _give(self) -> None:
        """Give the tasks that are not given."""
        missing = [i for i in range(len(self._calls)) if i not in self._futures]
        self._cluster.send([self._calls[i] for i in missing])
        for i in missing:
            where = self._where[i] if self._where else None
            self._futures[i] = self._cluster.submit(self._function, self._calls[i], f"{self._what}-{i}", where)

    def _again(self, which: Sequence[int]) -> None:
        """Have these tasks given again, with all that they need, which is sent again."""
        self.again = True
        for i in which:
            self._futures.pop(i, None)
            if self._whole is not None:
                self._calls[i] = self._whole(i)
        for held in held_by([self._calls[i] for i in which]):
            if held.make is None or not held.is_there:
                held.future = None
