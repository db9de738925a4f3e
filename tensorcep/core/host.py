"""Where runs take place and what is kept of them: in this process, or as the host of a call says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from tensorcep.core.executor import Executor


class Begun(NamedTuple):
    """A run up to its last stored sweep: the state, what its sweeps reported, their seconds, and whether it ended.

    `stopped` says whether a callback ended it.
    """

    state: Any
    sweeps: list[Any]
    seconds: list[float]
    ended: bool = False
    stopped: bool = False


class Host(Protocol):
    """Runs on other machines, or that are kept in files."""

    def check_plan(self, plan: Any) -> None:
        """Refuse a plan that cannot be run there, before any work."""

    def executor(self, n_threads: int) -> Executor:
        """Who runs the kernels of a run."""

    def begin(self, method: Any, problem: Any, state: Any, executor: Executor, kept: bool) -> Begun:
        """The next run of the call, from the state that it would begin with, or, if it is kept, from a later one."""

    def keep(self, run: Begun) -> None:
        """What the run has come to, after every sweep and at its end."""


_HOST: ContextVar[Host | None] = ContextVar("host", default=None)


def current_host() -> Host | None:
    """The host of the runs of this thread; None for this process."""
    return _HOST.get()


@contextlib.contextmanager
def hosted_by(host: Host) -> Iterator[None]:
    """Have the runs of the block take place there."""
    token = _HOST.set(host)
    try:
        yield
    finally:
        _HOST.reset(token)
