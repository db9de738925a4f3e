"""How much memory there is, and how much a user allows."""

from __future__ import annotations

import numbers
import os
import re
from typing import Any

from tensorcep.core.checks import fail_value

UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def memory_of_machine() -> int | None:
    """Bytes of physical memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def bytes_of(name: str, given: Any) -> float:
    """A number of bytes, such as 2e9, "8GB" or "500 MB".

    Raises
    ------
    ValueError
        If it is none.
    """
    found = 0.0
    if isinstance(given, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([KMGT]?i?B?)\s*", given, re.IGNORECASE)
        unit = "" if parts is None else parts[2].upper().replace("IB", "B")
        unit = unit + "B" if unit in ("K", "M", "G", "T") else unit
        found = 0.0 if parts is None else float(parts[1]) * UNITS[unit]
    elif isinstance(given, numbers.Real) and not isinstance(given, bool):
        found = float(given)
    if not 0.0 < found < float("inf"):
        fail_value(f"{name} must be a number of bytes, such as '8GB', '500 MB' or 2e9; got {given!r}.")
    return found
