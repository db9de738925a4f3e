"""The command `tensorcep`, which is `python -m tensorcep`, too."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import NoReturn

from tensorcep.cli import INTERRUPTED, die, stop


def run() -> NoReturn:
    """Run the command line of this process and end the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background of a shell it is ignored
        signal.signal(signal.SIGINT, stop)
    from tensorcep.cli.main import main

    code = main()
    # Exiting with 130 is not enough: CPython ends with the signal on its own when Ctrl-C came while it ran a string of
    # code (as imports do now and then), so that the exit would depend on the moment.
    if code == INTERRUPTED:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        die()
    sys.exit(code)


if __name__ == "__main__":
    run()
