"""`python -m tensorcep` is the command `tensorcep`."""

from __future__ import annotations

from tensorcep.program import run

run()
