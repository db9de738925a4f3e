"""Threads that share calls with the thread that asks for them.

A sweep of few entries hands out thousands of calls, each of some microseconds. A pool of `concurrent.futures` takes as
long for a call (a future, its lock and condition, and one thread more that wakes up). Here whoever asks does calls
itself until none is left, and waits for the others alone.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any


class Team:
    """The calling thread and n - 1 others, which begin with the first calls."""

    def __init__(self, n: int):
        self.n = n
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, self._calls.put, None)

    def do(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What the function gives for each of the arguments, all done; one after the other when the threads have ended.

        Calls have the context (`contextvars`) of the caller, so that what `numpy.errstate` says holds in all threads.

        Raises
        ------
        BaseException
            The error of the first call that has one, once all calls have ended.
        """
        if not self._end.alive:
            return [function(*own) for own in arguments]
        if not self._threads:
            self._begin()
        ended: SimpleQueue[_Call] = SimpleQueue()
        calls = [_Call(function, own, ended) for own in arguments]
        for call in calls:
            self._calls.put(call)
        while (mine := self._next()) is not None:
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

    def _begin(self) -> None:
        self._threads = [threading.Thread(target=_work, args=(self._calls,), daemon=True) for _ in range(self.n - 1)]
        for thread in self._threads:
            thread.start()

    def _next(self) -> _Call | None:
        """A call that nobody has begun; None where there is none."""
        try:
            return self._calls.get_nowait()
        except Empty:
            return None


class _Call:
    """A call, and what came of it; as a context it keeps the error that ends its block."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: SimpleQueue[_Call]):
        self.function, self.arguments, self.ended = function, arguments, ended
        self.context = contextvars.copy_context()
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
