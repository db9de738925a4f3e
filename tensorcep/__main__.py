"""The command `tensorcep`, which is `python -m tensorcep`, too."""

from __future__ import annotations

import contextlib
import sys
from typing import NoReturn

from tensorcep.cli import INTERRUPTED, begin_to_hear, die


def run() -> NoReturn:
    """Run the command line of this process and end the process.

    An interrupted program dies of SIGINT, which a shell reports as 130 and which also stops a loop around it. Exiting
    with 130 is not enough: CPython ends with the signal on its own when Ctrl-C came while it ran a string of code
    (as imports do now and then), so that the exit would depend on the moment.
    """
    begin_to_hear()
    from tensorcep.cli.main import main

    code = main()
    if code == INTERRUPTED:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        die()
    sys.exit(code)


if __name__ == "__main__":
    run()
