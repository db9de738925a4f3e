"""Futures of tasks on workers: what they need and give, and when they are given up with a sentence."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from tensorcep import __version__

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


# What tasks on workers need and give: kept here and sent as futures, so that it can be sent again.

Call = tuple[Any, ...]


class LackingError(Exception):
    """What a task raises that was not given something, because its worker should have it; it is given all then."""


class UnknownError(KeyError):
    """Something that was lost on workers is not known here, yet."""


class Held:
    """Something that tasks need: here, and, as a future, or a list of those of its pieces, on the workers.

    With a `make`, which gives the future, it is made there.
    """

    def __init__(self, value: Any, name: str, make: Callable[[], Any] | None = None):
        self._value, self.name, self.make = value, name, make
        self.future: Any = None

    @property
    def value(self) -> Any:
        """What is sent.

        Raises
        ------
        UnknownError
            If it is the result of tasks that are not done.
        """
        return self._value

    @property
    def is_there(self) -> bool:
        """Whether workers have it, or will."""
        futures = self.future if isinstance(self.future, list) else [self.future]
        return all(one is not None and one.status not in ("cancelled", "lost", "error") for one in futures)


class TaskReport(NamedTuple):
    """What a task gave, the warnings that it gave (text and category), its seconds, and whether it lacked something."""

    value: Any
    warnings: list[tuple[str, type[Warning]]]
    seconds: float
    lacks: bool = False


def held_by(calls: Sequence[Call]) -> Iterator[Held]:
    """What these calls need of what is kept here."""
    for item in itertools.chain(*calls):
        for held in item if isinstance(item, (list, tuple)) else (item,):
            if isinstance(held, Held):
                yield held


def futures_of(item: Any) -> Any:
    """What a task is given for an argument: futures for what is held."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, Held) for part in item):
        return [futures_of(part) for part in item]
    return item.future if isinstance(item, Held) else item


def told_by(version: str, function: Callable[..., Any], *args: Any) -> TaskReport:
    """Do a task on a worker."""
    if version != __version__:
        raise ClusterError(f"a worker has tensorcep {__version__}, the client has {version}; install the same.")
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = function(*args)
        except LackingError:
            return TaskReport(None, [], time.perf_counter() - begin, True)
    return TaskReport(value, [(str(one.message), one.category) for one in caught], time.perf_counter() - begin)
