"""The command line, and how a process that runs it hears Ctrl-C: also while modules are still being imported."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

INTERRUPTED = 130  # what a shell reports for SIGINT
LAST_WORDS = "interrupted; no file was left half-written"


def begin_to_hear() -> None:
    """Have Ctrl-C end the process, until `hear_interrupts`: nothing can catch an exception in the midst of imports."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background of a shell it is ignored
        signal.signal(signal.SIGINT, _stop)


def hear_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> None:
    os.write(2, f"{LAST_WORDS}\n".encode())
    die()


def die() -> NoReturn:
    """End as an interrupted program does: of SIGINT, which a shell reports as 130 and which stops a loop around it."""
    if os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(INTERRUPTED)
