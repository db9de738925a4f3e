"""Peak memory of fits: by how much a process grows beyond what it held after a small fit that loads the code."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorcep as tc

from . import drawn, plain, shape_of


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes; where there is no /proc, the peak that getrusage knows."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def grown(work: Callable[[], Any]) -> int:
    """Bytes that a call needs at most."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is the present value again
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


class Fit:
    """Bytes per entry of a fit of a million entries: one start that no quick fit precedes, or the method's own."""

    params = (["gibbs", "vmp", "cep-averaged", "cep-float32", "cep"], ["one start", "own starts"])
    param_names = ("method", "starts")
    unit = "bytes per entry"
    timeout = 900

    def track_bytes(self, method: str, starts: str) -> float:
        coords, y = drawn("values", 1_000_000, shape_of(1_000_000))
        how = {"shape": shape_of(1_000_000)}
        if starts == "own starts":
            named: dict[str, Any] = {"cep-averaged": tc.methods.CEP(messages="averaged")}
            named["cep-float32"] = tc.methods.CEP(dtype="float32")
            how |= {"method": named.get(method, method), "init": "auto"}

        def fit(n: int) -> Any:
            return plain("values", method, 8, 2, coords[:n], y[:n], **how)

        fit(2000)
        return grown(lambda: fit(len(y))) / len(y)


class Rows:
    """Bytes per row of a fit by Gibbs sampling, in the default's columns, of 300,000 entries in 100,000 rows."""

    unit = "bytes per row"
    timeout = 900

    def track_bytes(self) -> float:
        shape = (40_000, 20_000, 40_000)
        coords, y = drawn("values", 300_000, shape)

        def fit(n: int) -> Any:
            return plain("values", "gibbs", 20, 2, coords[:n], y[:n], interactions="all", shape=shape)

        fit(2000)
        return grown(lambda: fit(len(y))) / sum(shape)
