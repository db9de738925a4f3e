"""Work in a process of its own, whose time and memory are limited and whose end ends nothing else."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

GRACE = 1.5  # times the CPU seconds, plus a minute: what a child may take by the clock


class Outcome(NamedTuple):
    """What a child hands back, or why it did not: "ok", "time limit", "crash: signal 11", "error: ValueError: ..."."""

    status: str
    value: Any = None


def limit(seconds: float, gigabytes: float) -> None:
    """Limit the CPU time and the address space of this process, for good."""
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, int(seconds)), max(1, int(seconds)) + 5))
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def in_child(
    work: Callable[..., Any], arguments: Sequence[Any], seconds: float, gigabytes: float, preload: Sequence[str] = ()
) -> Outcome:
    """Call a function of a module in a child; modules of `preload` are imported once for all children."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*preload])
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(there, work, tuple(arguments), seconds, gigabytes))
    child.start()
    there.close()
    try:
        value = here.recv() if here.poll(GRACE * seconds + 60.0) else Outcome("time limit")
    except EOFError:
        value = None
    child.join(1.0)
    if child.is_alive():
        child.kill()
        child.join()
    return Outcome(_end_of(child.exitcode)) if value is None else value


def _end_of(code: int | None) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "time limit" if code == -signal.SIGXCPU else "killed (time or memory)"
    return f"crash: signal {-code}" if code is not None and code < 0 else f"crash: exit code {code}"


def _call(answer: Connection, work: Callable[..., Any], arguments: tuple[Any, ...], *limits: float) -> None:
    limit(*limits)
    try:
        answer.send(Outcome("ok", work(*arguments)))
    except Exception as error:
        sentence = " ".join(str(error).split())
        answer.send(Outcome(f"error: {type(error).__name__}: {sentence[:300]}"))
        if not isinstance(error, (ValueError, TypeError, OSError, ArithmeticError, MemoryError)):
            raise  # with its traceback: it may be the study's own
