"""Kernels over parts of rows or entries, on one thread or several, to the same bits."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import reprlib
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from tensorcep.core.checks import fail_value

# Threads that share calls with the thread that asks for them.
#
# A sweep of few entries hands out thousands of calls, each of some microseconds. A pool of `concurrent.futures` takes
# as long for a call (a future, its lock and condition, and one thread more that wakes up). Here whoever asks does calls
# itself until none is left, and waits for the others alone.


class Team:
    """The calling thread and n - 1 others, which begin with the first calls."""

    def __init__(self, n: int):
        self.n = n
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, self._calls.put, None)

    def do(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What the function gives for each of the arguments; the first error of one, once all calls have ended."""
        if not self._end.alive:
            return [function(*own) for own in arguments]
        if not self._threads:
            others = range(self.n - 1)
            self._threads = [threading.Thread(target=_work, args=(self._calls,), daemon=True) for _ in others]
            for thread in self._threads:
                thread.start()
        ended: SimpleQueue[_Call] = SimpleQueue()
        calls = [_Call(function, own, ended) for own in arguments]
        for call in calls:
            self._calls.put(call)
        with contextlib.suppress(Empty):
            while (mine := self._calls.get_nowait()) is not None:
                mine.make()
        for _ in calls:
            ended.get()
        for call in calls:
            if call.error is not None:
                raise call.error
        return [call.result for call in calls]

    def close(self) -> None:
        """End the threads."""
        self._end()
        for thread in self._threads:
            thread.join()


class _Call:
    """A call, and what came of it; as a context it keeps the error that ends its block."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: SimpleQueue[_Call]):
        self.function, self.arguments, self.ended = function, arguments, ended
        self.context = contextvars.copy_context()  # so that what `numpy.errstate` says holds in all threads
        self.result: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """Make the call."""
        with self:
            self.result = self.context.run(self.function, *self.arguments)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.error = error
        self.ended.put(self)
        return True


def _work(calls: SimpleQueue[_Call | None]) -> None:
    """Make calls until a None says that no more come, which the other threads get to see as well."""
    while (call := calls.get()) is not None:
        call.make()
        del call
    calls.put(None)


Kernel = Callable[..., Any]
Room = Callable[[], tuple[Any, ...]] | None  # makes work space of a kernel
# More threads than any machine has use for; the system may refuse to make them in the middle of a fit.
MOST_THREADS = 4096
# What `verbose` of a run may be.
MOST_VERBOSE = 1000


class Pass(NamedTuple):
    """A kernel that says what its arguments are: whoever runs it elsewhere takes there what it reads, and no more."""

    # Arguments have the names of the kernel's parameters; "rows.Lam" is the field Lam of the record `rows`. Those that
    # are not named are small, and the same for every part of the work.
    kernel: Kernel  # ``kernel(first, last, *record, *scratch)``, of a module
    # {"rows", "entries", "chunks"}: its work. "rows": the rows cuts[first]:cuts[last] of a mode, with arguments `cuts`,
    # `by_row` (the entries of each row) and `offset`: line offset + i of `by_row` and of what is written is row i of
    # the mode. Numbers of entries are in the order of `by_row` from the place `base` on, or, without one, in the lanes.
    # "entries": the blocks first:last of entries. "chunks": the chunks first:last of an argument `entries`.
    over: Literal["rows", "entries", "chunks"]
    modes: Sequence[int] = ()  # those of which it writes rows, or what their entries keep
    reads: tuple[str, ...] = ()  # rows of all modes, or what makes them (`made`)
    lines: tuple[str, ...] = ()  # of over="rows": a line for each row of the mode, or one for all
    # A number or more for every entry: those that stay the same from pass to pass, and those that do not
    entries: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    # What every entry has and nobody else needs: a record of arrays, which the first pass over it begins
    keeps: str = ""
    # What it writes of its rows, or of its entries; that which it writes in part, or reads before
    gives: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    # Sums over the entries of every chunk, a line each, (C, ...): those of three axes are of all rows
    sums: tuple[str, ...] = ()
    later: bool = False  # whether what it gives need not be there before `Executor.settle`
    also: Any = None  # (Pass, dict): a kernel of the same rows whose work it does, too, and its arguments' names here

    def of_mode(self, k: int, numbers: tuple[str, ...], stay: bool) -> Pass:
        """That over the rows of a mode, with these numbers of the entries, which may stay the same."""
        return self._replace(modes=(k,), entries=numbers if stay else (), changing=() if stay else numbers)


Work = Kernel | Pass


class Executor(Protocol):
    """Runs ``kernel(first, last, *record)``, which writes what belongs to its range alone, on ranges of the work."""

    keeps_state: bool  # whether it keeps what passes keep of every entry; arrays of that have no blocks then
    updates_rows: bool  # whether it best takes the sums of rows and what is made of them at once

    # Run a kernel, or a pass, on ranges of first:last, cut at multiples of `align` from `first`. Rows that a pass reads
    # and that have a ``made(executor)`` are what that gives. `scratch` makes the last arguments of each call: work
    # space that no two calls may share.
    def run(self, work: Work, first: int, last: int, *record: Any, align: int = 1, scratch: Room = None) -> None: ...
    # Wait until all that passes give later is in place; nothing but such passes is run before it is
    def settle(self) -> None: ...
    # What ``task(i, *args, executor)`` gives for every i < n, in any order; each writes only what is its own
    def apart(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]: ...
    def close(self) -> None: ...  # end what the executor has begun


class ThreadExecutor:
    """Threads of this process. Kernels release the interpreter lock, so plain threads are enough."""

    keeps_state = updates_rows = False

    def __init__(self, n: int):
        self.n = n
        self._team = Team(n) if n > 1 else None

    def run(self, work: Work, first: int, last: int, *record: Any, align: int = 1, scratch: Room = None) -> None:
        """As `Executor.run`, on up to n contiguous ranges."""
        kernel: Kernel = work  # type: ignore[assignment]
        if isinstance(work, Pass):
            kernel = work.kernel
            for place in _places_of_rows(kernel, work.reads):
                if not isinstance(record[place], np.ndarray):
                    record = (*record[:place], record[place].made(self), *record[place + 1 :])
        size = last - first
        parts = min(self.n, -(-size // align))
        if self._team is None or parts <= 1:
            kernel(first, last, *record, *(() if scratch is None else scratch()))
            return
        cuts = [first + min(size, align * (-(-size * t // (parts * align)))) for t in range(parts + 1)]
        self._team.do(_call, [(kernel, a, b, record, scratch) for a, b in itertools.pairwise(cuts) if b > a])

    def settle(self) -> None:
        """As `Executor.settle`; it is."""

    def apart(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]:
        """As `Executor.apart`, as many at once as there are threads; of the rest each has all threads for itself."""
        if self._team is None:
            return [task(i, *args, self) for i in range(n)]
        at_once, alone = n - n % self.n, ThreadExecutor(1)
        done = self._team.do(task, [(i, *args, alone) for i in range(at_once)])
        return done + [task(i, *args, self) for i in range(at_once, n)]

    def close(self) -> None:
        """End the threads."""
        if self._team is not None:
            self._team.close()


@functools.cache
def parameters_of(kernel: Kernel) -> tuple[str, ...]:
    """The names of the arguments of a kernel, but for the range of its work."""
    code = getattr(kernel, "py_func", kernel).__code__
    return tuple(code.co_varnames[2 : code.co_argcount])


@functools.cache
def _places_of_rows(kernel: Kernel, reads: tuple[str, ...]) -> tuple[int, ...]:
    """Where rows that a kernel reads, and that may have to be made, are among its arguments."""
    return tuple(parameters_of(kernel).index(name) for name in reads if "." not in name)


# For work that nobody gave threads to.
ALONE = ThreadExecutor(1)


def threads_of(n_jobs: int | None) -> AbstractContextManager[ThreadExecutor]:
    """An executor of so many threads (see `n_threads`), as a context: they end with the block."""
    return contextlib.closing(ThreadExecutor(n_threads(n_jobs)))


class Rooms:
    """Work space that one run of a kernel after the other takes; `start` says that none of it is in use."""

    def __init__(self, make: Callable[[], tuple[Any, ...]]):
        self.make, self._made, self._free = make, list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def start(self) -> None:
        """All room is free again."""
        self._free = list(self._made)

    def __call__(self) -> tuple[Any, ...]:
        """Room that nobody else has."""
        try:
            return self._free.pop()
        except IndexError:
            self._made.append(self.make())
            return self._made[-1]


def _call(kernel: Kernel, first: int, last: int, record: tuple[Any, ...], scratch: Room) -> None:
    kernel(first, last, *record, *(() if scratch is None else scratch()))


def n_threads(n_jobs: int | None) -> int:
    """Number of threads: None means 1, -1 all processors."""
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    if isinstance(n_jobs, (int, np.integer)) and not isinstance(n_jobs, bool) and n_jobs >= 1:
        if n_jobs > MOST_THREADS:
            fail_value(f"n_jobs must be at most {MOST_THREADS}; got {reprlib.repr(n_jobs)}; -1 takes all processors.")
        return int(n_jobs)
    must = "be an integer >= 1, -1 for all processors, or None for one"
    raise ValueError(f"n_jobs must {must}; got {reprlib.repr(n_jobs)}.")


@cache
def _pools() -> ThreadpoolController:
    """The pools of threads of the libraries; finding them takes milliseconds."""
    from scipy.linalg import get_blas_funcs

    get_blas_funcs("gemm")  # numpy's is loaded already, and now scipy's is
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which numpy's and scipy's BLAS run on one thread, so that their sums have one order."""
    return _pools().limit(limits=1, user_api="blas")
