"""How much memory this process holds, and held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes; where there is no /proc, the peak that getrusage knows."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def forget_peak() -> None:
    """Set the peak to the present value, where the system can."""
    control = Path("/proc/self/clear_refs")
    if control.exists():
        control.write_text("5", encoding="ascii")
