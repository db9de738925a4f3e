"""The command line, and how a process that runs it hears Ctrl-C: also while modules are still being imported."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

INTERRUPTED = 130  # what a shell reports for SIGINT
LAST_WORDS = "interrupted; no file was left half-written"


def stop(*_: object) -> None:
    """What Ctrl-C does until `main` hears it as KeyboardInterrupt, which nothing can catch in the midst of imports."""
    os.write(2, f"{LAST_WORDS}\n".encode())
    die()


def die() -> NoReturn:
    """End as an interrupted program does: of SIGINT, which a shell reports as 130 and which stops a loop around it."""
    if os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(INTERRUPTED)
