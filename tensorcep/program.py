"""The command `tensorcep` as a program of its own, which hears Ctrl-C while its modules are still being imported."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

INTERRUPTED = 130  # what a shell reports for SIGINT
LAST_WORDS = "interrupted; no file was left half-written"


def run() -> NoReturn:
    """Run the command line of this process and end the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background of a shell it is ignored
        signal.signal(signal.SIGINT, stop)
    from tensorcep.cli import run_as_program

    run_as_program()


def hear_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop(*_: object) -> None:
    """End a process that has not begun its work: nothing can catch an exception in the midst of imports."""
    os.write(2, f"{LAST_WORDS}\n".encode())
    die()


def die() -> NoReturn:
    """End as an interrupted program does: of SIGINT, which a shell reports as 130 and which stops a loop around it."""
    if os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(INTERRUPTED)
