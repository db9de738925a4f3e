"""Who runs kernels over ranges of work: threads of this process now; any other must give the same bits."""

from __future__ import annotations

import contextlib
import itertools
import os
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.team import Team

Kernel = Callable[..., Any]
# More threads than any machine has use for; the system may refuse to make them in the middle of a fit.
MOST_THREADS = 4096


class Executor(Protocol):
    """Runs ``kernel(first, last, *record)`` on ranges that together cover the work.

    A kernel writes only what belongs to its own range, so that the result does not depend on how the work is cut.

    Attributes
    ----------
    keeps_state : bool
        Whether it keeps by itself what kernels know of every entry from one call to the next. Arrays of that have no
        blocks then.
    makes_sources : bool
        Whether it puts the rows that draws of a mode read in order by itself. Arrays of that have no rows then.
    updates_rows : bool
        Whether it best takes the sums of rows and what is made of them at once.
    """

    keeps_state: bool
    makes_sources: bool
    updates_rows: bool

    def run(
        self,
        kernel: Kernel,
        first: int,
        last: int,
        *record: Any,
        align: int = 1,
        scratch: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        """Run the kernel on ranges of first:last, cut at multiples of `align` from `first`.

        `scratch` makes the last arguments of each call: work space that no two calls may share.
        """

    def settle(self) -> None:
        """Wait until all rows that were drawn are in place; nothing else is run before they are."""

    def apart(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]:
        """What ``task(i, *args, executor)`` gives for every i < n, in any order; each writes only what is its own."""

    def close(self) -> None:
        """End what the executor has begun."""


class ThreadExecutor:
    """Threads of this process. Kernels release the interpreter lock, so plain threads are enough."""

    keeps_state = False
    makes_sources = False
    updates_rows = False

    def __init__(self, n: int):
        self.n = n
        self._team = Team(n) if n > 1 else None

    def run(
        self,
        kernel: Kernel,
        first: int,
        last: int,
        *record: Any,
        align: int = 1,
        scratch: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        """As `Executor.run`, on up to n contiguous ranges."""
        size = last - first
        parts = min(self.n, -(-size // align))
        if self._team is None or parts <= 1:
            kernel(first, last, *record, *(() if scratch is None else scratch()))
            return
        cuts = [first + min(size, align * (-(-size * t // (parts * align)))) for t in range(parts + 1)]
        self._team.do(_call, [(kernel, a, b, record, scratch) for a, b in itertools.pairwise(cuts) if b > a])

    def settle(self) -> None:
        """As `Executor.settle`; they are."""

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


# For work that nobody gave threads to.
ALONE = ThreadExecutor(1)


@contextlib.contextmanager
def threads_of(n_jobs: int | None) -> Iterator[ThreadExecutor]:
    """Yield an executor of so many threads (see `n_threads`), which end with the block."""
    executor = ThreadExecutor(n_threads(n_jobs))
    try:
        yield executor
    finally:
        executor.close()


class Rooms:
    """Work space that one run of a kernel after the other takes: to make it takes as long as a little of the work.

    A call of `start` says that none of it is in use.
    """

    def __init__(self, make: Callable[[], tuple[Any, ...]]):
        self.make = make
        self._made: list[tuple[Any, ...]] = []
        self._free: list[tuple[Any, ...]] = []

    def start(self) -> None:
        """All room is free again."""
        self._free = list(self._made)

    def __call__(self) -> tuple[Any, ...]:
        """Room that nobody else has."""
        try:
            return self._free.pop()
        except IndexError:
            made = self.make()
            self._made.append(made)
            return made


def _call(kernel: Kernel, first: int, last: int, record: tuple[Any, ...], scratch: Kernel | None) -> None:
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
    raise ValueError(
        f"n_jobs must be an integer >= 1, -1 for all processors, or None for one; got {reprlib.repr(n_jobs)}."
    )
