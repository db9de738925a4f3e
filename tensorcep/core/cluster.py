"""Pure tasks on the workers of a Dask client: done again when a worker is lost, and never waited for in vain.

What several tasks need is kept here and sent to the workers (`Cluster.put`). When a worker dies with it, it is sent
again, and the tasks that were waiting for it are given again: a task depends on its arguments alone, so its result is
the same wherever and however often it is done.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tensorcep import __version__
from tensorcep.core.checks import check_range, warn_user
from tensorcep.core.watch import LOOK, Watch
from tensorcep.core.watch import ClusterError as ClusterError

# Seconds without any progress after which a run of tasks is given up.
TIMEOUT = 300.0
INSTALL = "pip install 'tensorcep[dask]'"

Call = tuple[Any, ...]


class Held:
    """Something that tasks need: here, and, as a future, on the workers."""

    def __init__(self, value: Any, name: str):
        self.value, self.name = value, name
        self.future: Any = None

    @property
    def is_there(self) -> bool:
        """Whether workers have it."""
        return self.future is not None and self.future.status not in ("cancelled", "lost")


class Told(NamedTuple):
    """What a task gave, the warnings that it gave (text and category), and its seconds."""

    value: Any
    warnings: list[tuple[str, type[Warning]]]
    seconds: float


def dask_module(needed_for: str) -> Any:
    """`distributed`; the ImportError says what needs it and how to install it."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        text = f"{needed_for} needs dask.distributed, which is not installed; {INSTALL}."
        raise ImportError(text) from error


def checked_client(client: Any, needed_for: str = "client=") -> Any:
    """The client of a Dask cluster.

    Raises
    ------
    ImportError
        If Dask is not installed.
    TypeError
        If it is no client.
    """
    dask = dask_module(needed_for)
    if not isinstance(client, dask.Client) or client.asynchronous:
        raise TypeError(f"client must be a distributed.Client that is not asynchronous; got {client!r}.")
    return client


class Cluster:
    """The workers of a client.

    Parameters
    ----------
    client : distributed.Client
    timeout : float
        Seconds without progress after which the work is given up with a sentence.
    """

    def __init__(self, client: Any, timeout: float = TIMEOUT):
        self._dask = dask_module("client=")
        self.client = checked_client(client)
        self.address = getattr(client.scheduler, "address", "no address")
        self.timeout = check_range("timeout", timeout, 0.0, include_low=False)
        self._numbers = itertools.count()
        self._run = secrets.token_hex(4)
        self._workers: list[str] = []
        self._direct = True  # whether workers can be reached from here
        self.sent = self.received = 0  # bytes of arrays, as far as those count them who send and receive

    def put(self, value: Any) -> Held:
        """Keep what tasks need, so that it can be sent to workers whenever they need it."""
        return Held(value, f"{self._run}-{next(self._numbers)}")

    def run(
        self,
        function: Callable[..., Any],
        calls: Sequence[Call],
        what: str,
        patient: bool = False,
        spread: bool = False,
        at: int | None = None,
    ) -> list[Told]:
        """What the function gives for each of these arguments, in their order; its warnings are given here, too.

        Parameters
        ----------
        function : callable
            Of a module, so that workers find it by its name; pure.
        calls : sequence of tuples
            Its arguments; those that are `Held` it gets as values.
        what : str
            What a task is called.
        patient : bool
            Whether a task that is being done may take any time.
        spread : bool
            Whether tasks are alike, and each goes to the same worker in every run, as long as it is there.
        at : int, optional
            With `spread`, of which worker all of them are, counted round and round.

        Raises
        ------
        ClusterError
            If there is no progress, or the scheduler is gone, or a task ends its workers.
        """
        futures: dict[int, Any] = {}
        found: dict[int, Told] = {}
        watch = Watch(self, what, patient)
        workers = self._known_addresses() if spread else []
        while len(found) < len(calls):
            watch.look(len(found), [f for i, f in futures.items() if i not in found])
            try:
                missing = [i for i in range(len(calls)) if i not in found and i not in futures]
                self._send([calls[i] for i in missing])
                for i in missing:
                    turn = i * len(workers) // len(calls) if at is None else at % max(1, len(workers))
                    where = workers[turn] if workers else None
                    futures[i] = self._submit(function, calls[i], f"{what}-{i}", where)
                self._wait([f for i, f in futures.items() if i not in found])
                done = [i for i, f in futures.items() if i not in found and f.status == "finished"]
                for i, told in zip(done, self.client.gather([futures[i] for i in done], direct=True), strict=True):
                    found[i] = told
            except self._lost():
                done = []
                watch.again()
            lost = [i for i, f in futures.items() if i not in found and f.status in ("cancelled", "lost", "error")]
            if any([self._is_lost(futures[i], what) for i in lost]) or (lost and not done):
                self._forget([call for i, call in enumerate(calls) if i not in found])
                futures = {i: f for i, f in futures.items() if i in found}
                self._workers, workers = [], []  # Dask chooses among those that are left
                watch.again()
        results = [found[i] for i in range(len(calls))]
        for told in results:
            for text, category in told.warnings:
                warn_user(text, category)
        return results

    def results(self, delayed: Sequence[Any], what: str) -> list[Any]:
        """What delayed values of Dask come to, which it makes again itself where a worker is lost with them."""
        futures = self.client.compute(list(delayed))
        watch = Watch(self, what, True, {str(key) for one in delayed for key in one.__dask_graph__()})
        while True:
            left = [future for future in futures if future.status != "finished"]
            for future in left:
                if future.status in ("error", "cancelled", "lost"):
                    self._is_lost(future, what)
                    raise ClusterError(f"a task of {what!r} was lost with its worker; run it again.")
            if not left:
                return list(self.client.gather(futures))
            watch.look(len(futures) - len(left), left)
            self._wait(left)

    def _lost(self) -> tuple[type[BaseException], ...]:
        """What Dask raises when a worker is gone with what was on it, or cannot be reached."""
        comm = self._dask.comm.core.CommClosedError
        return (self._dask.CancelledError, self._dask.TimeoutError, TimeoutError, comm, OSError, KeyError)

    def _is_lost(self, future: Any, what: str) -> bool:
        """Whether a task was lost; what it raised itself is raised."""
        if future.status != "error":
            return True
        error = future.exception()
        if isinstance(error, self._dask.scheduler.KilledWorker):
            raise ClusterError(
                f"{error.allowed_failures + 1} workers ended while they did a task of {what!r}, perhaps for lack of "
                "memory; give workers more memory, or fewer threads each."
            ) from None
        raise error

    def _forget(self, calls: Sequence[Call]) -> None:
        """Send again what is left to do needs."""
        for held in _held_by(calls):
            held.future = None

    def _send(self, calls: Sequence[Call]) -> None:
        """Send all that is not on workers at once: sending one array takes as long as a small task."""
        missing = {id(held): held for held in _held_by(calls) if not held.is_there}
        if missing:
            sent = self._scattered([held.value for held in missing.values()])
            for held, future in zip(missing.values(), sent, strict=True):
                held.future = future

    def _scattered(self, values: list[Any]) -> Any:
        """These values on workers, straight from here; by the scheduler, which is another way to go, if need be."""
        if self._direct:
            try:
                return self.client.scatter(values, hash=False, direct=True)
            except self._lost():
                self._direct = False
        return self.client.scatter(values, hash=False)

    def _submit(self, function: Callable[..., Any], call: Call, name: str, worker: str | None) -> Any:
        sent = [_future(item) for item in call]
        how: dict[str, Any] = {"key": f"{name}-{self._run}-{next(self._numbers)}", "pure": False}
        if worker is not None:
            how |= {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(_told, __version__, function, *sent, **how)

    def _known_addresses(self) -> list[str]:
        """The workers that there were when it was last looked."""
        workers = self._workers or sorted(self.client.scheduler_info(n_workers=-1)["workers"])
        self._workers = workers
        return workers

    @property
    def n_workers(self) -> int:
        """How many workers there were then."""
        return len(self._known_addresses())

    def _wait(self, futures: list[Any]) -> None:
        with contextlib.suppress(TimeoutError, self._dask.TimeoutError):
            self._dask.wait(futures, timeout=LOOK)


def _held_by(calls: Sequence[Call]) -> Iterator[Held]:
    """What these calls need of what is kept here."""
    for item in itertools.chain(*calls):
        for held in item if isinstance(item, (list, tuple)) else (item,):
            if isinstance(held, Held):
                yield held


def _future(item: Any) -> Any:
    """What a task is given for an argument: futures for what is held."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, Held) for part in item):
        return [_future(part) for part in item]
    return item.future if isinstance(item, Held) else item


def cluster_of(client: Any) -> Cluster | None:
    """The cluster of a client; None without one."""
    return None if client is None else Cluster(client)


def _told(version: str, function: Callable[..., Any], *args: Any) -> Told:
    """Do a task on a worker."""
    if version != __version__:
        raise ClusterError(f"a worker has tensorcep {__version__}, the client has {version}; install the same.")
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function(*args)
    return Told(value, [(str(one.message), one.category) for one in caught], time.perf_counter() - begin)
