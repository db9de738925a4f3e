"""`python -m tensorcep` is the command `tensorcep`."""

from __future__ import annotations

import sys

from tensorcep.cli import main

sys.exit(main())
