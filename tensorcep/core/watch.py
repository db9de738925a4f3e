"""Tasks on workers that make no progress are given up with a sentence: nobody waits in vain."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

# Seconds between two looks at tasks.
LOOK = 0.5
# How often tasks are given again without one of them getting done.
TRIES = 20


class ClusterError(RuntimeError):
    """The workers cannot do what they were given; nothing that was stored before is lost."""


class Watch:
    """Ends a run of tasks that makes no progress, and says which task waits for what; `keys`: of those before them."""

    def __init__(self, cluster: Any, what: str, patient: bool, keys: Collection[str] = ()):
        self._cluster, self._what, self._patient, self._keys = cluster, what, patient, keys
        self._since, self._done, self._tries, self._idle = time.monotonic(), 0, 0, False

    def again(self) -> None:
        """Tasks are given again."""
        self._tries += 1
        if self._tries > TRIES:
            raise ClusterError(f"tasks of {self._what!r} were lost {self._tries} times; look at the workers' logs.")
        time.sleep(min(LOOK, 0.05 * self._tries))

    def look(self, done: int, futures: list[Any]) -> None:
        """Look at the tasks that are not done.

        Raises
        ------
        ClusterError
            If the scheduler is gone, or nothing has happened for too long.
        """
        client = self._cluster.client
        if done > self._done:
            self._since, self._done, self._tries = time.monotonic(), done, 0
        seconds = time.monotonic() - self._since
        if client.status in ("closed", "closing", "newly-created") or (client.status != "running" and seconds > 5.0):
            where = self._cluster.address
            raise ClusterError(f"the scheduler at {where} is gone; start it again, and the same call goes on.")
        if seconds < self._cluster.timeout:
            return
        workers = client.scheduler_info(n_workers=-1)["workers"]
        busy = {str(task): address for address, tasks in client.processing().items() for task in tasks}
        keys = [str(future.key) for future in futures]
        if self._patient:
            if any(key in busy for key in (*keys, *self._keys)):
                self._since, self._idle = time.monotonic(), False
                return
            if not self._idle:  # what the scheduler has done may be on its way to the client: only twice is enough
                self._idle = True
                return
        waiting = "; ".join(
            f"{key} waits for {'worker ' + busy[key] if key in busy else 'a worker'}" for key in keys[:3]
        )
        raise ClusterError(
            f"no task of {self._what!r} got done in {seconds:.0f} s, with {len(workers)} workers: {waiting}; look at "
            "them, or give a larger timeout."
        )
