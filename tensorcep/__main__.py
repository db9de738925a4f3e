"""The command `tensorcep`, which is `python -m tensorcep`, too."""

from __future__ import annotations

from typing import NoReturn

from tensorcep.cli import begin_to_hear


def run() -> NoReturn:
    """Run the command line of this process and end the process."""
    begin_to_hear()
    from tensorcep.cli.main import run_as_program

    run_as_program()


if __name__ == "__main__":
    run()
