"""Pure tasks on the workers of a Dask cluster: done again when a worker is lost, and never waited for in vain.

What several tasks need is kept here and sent to the workers (`Cluster.put`). When a worker dies with it, it is sent
again, and the tasks that were waiting for it are given again: a task depends on its arguments alone, so its result is
the same wherever and however often it is done.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep import __version__
from tensorcep.core.checks import check_range, optional_module, warn_user

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
        """Look at the tasks that are not done: the scheduler may be gone, or nothing have happened for too long."""
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
        waits = "; ".join(f"{key} waits for {'worker ' + busy[key] if key in busy else 'a worker'}" for key in keys[:3])
        where = f"in {seconds:.0f} s, with {len(workers)} workers: {waits}"
        raise ClusterError(f"no task of {self._what!r} got done {where}; look at them, or give a larger timeout.")


Call = tuple[Any, ...]


class LackingError(Exception):
    """What a task raises that was not given something, because its worker should have it; it is given all then."""


class Broadcast:
    """What tasks need: here, and as a future, or those of its pieces, on the workers, perhaps made there (`make`)."""

    def __init__(self, value: Any, name: str, make: Callable[[], Any] | None = None):
        self._value, self.name, self.make = value, name, make
        self.future: Any = None

    @property
    def value(self) -> Any:
        """What is sent; a KeyError, as of what is lost, if it is the result of tasks that are not done."""
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


def broadcasts_in(calls: Sequence[Call]) -> Iterator[Broadcast]:
    """What these calls need of what is kept here."""
    for item in itertools.chain(*calls):
        for broadcast in item if isinstance(item, (list, tuple)) else (item,):
            if isinstance(broadcast, Broadcast):
                yield broadcast


def futures_of(item: Any) -> Any:
    """What a task is given for an argument: futures for what is kept here."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, Broadcast) for part in item):
        return [futures_of(part) for part in item]
    return item.future if isinstance(item, Broadcast) else item


def run_task(version: str, function: Callable[..., Any], *args: Any) -> TaskReport:
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


class TaskBatch:
    """A pure function of a module done by workers for each of some arguments; `again`: of some more than once."""

    def __init__(
        self,
        cluster: Any,
        function: Callable[..., Any],  # gets broadcasts as values
        calls: Sequence[Call],
        what: str,  # the name of a task
        patient: bool = False,  # one that is being done may take any time
        # The worker of each, which does it as long as it is there; without it Dask chooses
        where: Sequence[str | None] = (),
        # The arguments of a call with all that it needs, where `calls` leave out what workers should have
        whole: Callable[[int], Call] | None = None,
    ):
        self._cluster, self._function, self._calls, self._what = cluster, function, list(calls), what
        self._patient, self._where, self._whole, self.again = patient, list(where), whole, False
        self._futures: dict[int, Any] = {}
        self._found: dict[int, TaskReport] = {}
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

    def finish(self) -> list[TaskReport]:
        """What every task gave; its warnings are given here, too."""
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
                cluster.known_workers.clear()
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
            given, where = map(futures_of, self._calls[i]), self._where[i] if self._where else None
            task, what = (run_task, __version__, self._function), f"{self._what}-{i}"
            self._futures[i] = self._cluster.submit(*task, *given, what=what, worker=where)

    def _again(self, which: Sequence[int]) -> None:
        """Have these tasks given again, with all that they need, which is sent again."""
        self.again = True
        for i in which:
            self._futures.pop(i, None)
            if self._whole is not None:
                self._calls[i] = self._whole(i)
        for broadcast in broadcasts_in([self._calls[i] for i in which]):
            if broadcast.make is None or not broadcast.is_there:
                broadcast.future = None


# Seconds without any progress after which a run of tasks is given up.
TIMEOUT = 300.0


def dask_module(needed_for: str) -> Any:
    """`distributed`; the ImportError says what needs it and how to install it."""
    return optional_module("dask.distributed", needed_for, "'tensorcep[dask]'")


class Cluster:
    """The workers of a client; after `timeout` seconds without progress work is given up with a sentence."""

    def __init__(self, client: Any, timeout: float = TIMEOUT):
        self._dask = dask_module("client=")
        if not isinstance(client, self._dask.Client) or client.asynchronous:
            raise TypeError(f"client must be a distributed.Client that is not asynchronous; got {client!r}.")
        self.client = client
        self.address = getattr(client.scheduler, "address", "no address")
        self.timeout = check_range("timeout", timeout, 0.0, include_low=False)
        self._numbers = itertools.count()
        self._run = secrets.token_hex(4)
        self.known_workers: list[str] = []
        self._direct = True  # whether workers can be reached from here
        self.sent = 0  # bytes of arrays that tasks were given from here

    def put(self, value: Any) -> Broadcast:
        """Keep what tasks need, so that it can be sent to workers whenever they need it."""
        arrays = value if isinstance(value, tuple) else (value,)
        self.sent += sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))
        return Broadcast(value, self.new_name())

    def new_name(self) -> str:
        """A name that nothing else has."""
        return f"{self._run}-{next(self._numbers)}"

    def made_at(self, kind: Callable[[], Any], worker: str | None) -> Broadcast:
        """Something that a worker makes for itself."""
        return Broadcast(None, self.new_name(), lambda: self.submit(kind, what="made", worker=worker))

    def run(self, function: Callable[..., Any], calls: Sequence[Call], what: str, **how: Any) -> list[TaskReport]:
        """What the function gives for each of these arguments, in their order: a `TaskBatch` that is waited for."""
        return TaskBatch(self, function, calls, what, **how).finish()

    def results(self, delayed: Sequence[Any], what: str) -> list[Any]:
        """What delayed values of Dask come to, which it makes again itself where a worker is lost with them."""
        futures = self.client.compute(list(delayed))
        watch = Watch(self, what, True, {str(key) for one in delayed for key in one.__dask_graph__()})
        while True:
            left = [future for future in futures if future.status != "finished"]
            for future in left:
                if future.status in ("error", "cancelled", "lost"):
                    self.is_lost(future, what)
                    raise ClusterError(f"a task of {what!r} was lost with its worker; run it again.")
            if not left:
                found = list(self.client.gather(futures))
                for future in futures:  # else workers keep what they gave for as long as something here refers to it
                    future.release()
                return found
            watch.look(len(futures) - len(left), left)
            self.wait(left)

    def lost(self) -> tuple[type[BaseException], ...]:
        """What Dask raises when a worker is gone with what was on it, or cannot be reached."""
        closed = (self._dask.comm.core.CommClosedError, getattr(self._dask.client, "ClosedClientError", OSError))
        return (self._dask.CancelledError, self._dask.TimeoutError, TimeoutError, *closed, OSError, KeyError)

    def submit(self, function: Callable[..., Any], *args: Any, what: str, worker: str | None = None) -> Any:
        """The future of a call by a worker; an OSError where the scheduler was given up, of which Dask raises many."""
        if self.client.status in ("closed", "closing"):
            raise OSError(f"there is no connection to {self.address}")
        how: dict[str, Any] = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(function, *args, key=f"{what}-{self.new_name()}", pure=False, **how)

    def is_lost(self, future: Any, what: str) -> bool:
        """Whether a task was lost; what it raised itself is raised."""
        if future.status != "error":
            return True
        error = future.exception()
        if isinstance(error, self._dask.scheduler.KilledWorker):
            ended = f"{error.allowed_failures + 1} workers ended while they did a task of {what!r}"
            remedy = "give workers more memory, or fewer threads each"
            raise ClusterError(f"{ended}, perhaps for lack of memory; {remedy}.") from None
        raise error

    def send(self, calls: Sequence[Call]) -> None:
        """Send all that is not on workers at once: sending one array takes as long as a small task."""
        missing = {id(broadcast): broadcast for broadcast in broadcasts_in(calls) if not broadcast.is_there}
        for broadcast in missing.values():
            if broadcast.make is not None:
                broadcast.future = broadcast.make()
        sent = [broadcast for broadcast in missing.values() if broadcast.make is None]
        values, futures = [broadcast.value for broadcast in sent], None
        if sent and self._direct:  # straight from here; by the scheduler, which is another way to go, if need be
            try:
                futures = self.client.scatter(values, hash=False, direct=True)
            except self.lost():
                self._direct = False
        if sent and futures is None:
            if self.client.scheduler is None:  # Dask says nothing better of a scheduler that is gone
                raise OSError(f"there is no connection to {self.address}")
            futures = self.client.scatter(values, hash=False)
        for broadcast, future in zip(sent, futures or (), strict=True):
            broadcast.future = future

    def after(self, function: Callable[[Any], Any], futures: Sequence[Any] | None) -> list[Any] | None:
        """What a function makes of each of these results, where they are; None if that cannot be asked for."""
        try:
            return [self.submit(function, one, what=function.__name__) for one in futures or ()]
        except self.lost():
            return None

    def _known(self) -> list[str]:
        """The workers that there were when it was last looked, each as often as it has threads."""
        if not self.known_workers:
            found = self.client.scheduler_info(n_workers=-1)["workers"]
            self.known_workers = [name for name in sorted(found) for _ in range(max(1, found[name]["nthreads"]))]
        return self.known_workers

    @property
    def workers(self) -> list[str]:
        """The workers that there were then."""
        return sorted(set(self._known()))

    def turns(self, n: int | None = None, at: int | None = None) -> list[str | None]:
        """The workers of n tasks that are alike, in every run the same; by default one for each of their threads."""
        threads = self._known()
        if at is not None and threads:  # all are of this worker, counted round and round
            own = self.workers[at % len(self.workers)]
            threads = [name for name in threads if name == own]
        n = len(threads) if n is None else n
        return [threads[i * len(threads) // n] if threads else None for i in range(n)]

    def wait(self, futures: list[Any]) -> None:
        with contextlib.suppress(TimeoutError, self._dask.TimeoutError):
            self._dask.wait(futures, timeout=LOOK)
