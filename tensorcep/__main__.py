"""`python -m tensorcep` is the command `tensorcep`."""

from __future__ import annotations

from tensorcep.cli import run_as_program

run_as_program()
