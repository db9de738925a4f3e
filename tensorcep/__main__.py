"""`python -m tensorcep` is the command `tensorcep`."""

from __future__ import annotations

from tensorcep._program import run

run()
