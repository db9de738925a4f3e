"""Warnings where columns that were taken for the value or for modes, as nobody said which are, look like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorcep.core.checks import warn_user
from tensorcep.entries.convert import are_epochs
from tensorcep.entries.io.layout import LAST, Reading

TIMES = ("timestamp", "time", "date", "datetime", "day", "month", "year", "hour", "ts")
CURE = "name the one that is meant by value= and those of the modes by modes="
FEW = 20  # entries in which every one may well have a row of its own


def check_defaults(
    path: str, how: Reading, modes: Sequence[Any], value: Any, values: Any, shape: Sequence[int] = ()
) -> None:
    """Warn where the last column, taken for the value, looks like a time, or a mode by default has no row twice."""
    if how.value == LAST and value is not None:
        named = str(value).lower() in TIMES
        if named or are_epochs(values):
            looks = "is called like a time" if named else "has values like times since 1970"
            last = f"the last column of '{path}'" + (f", {value!r}," if how.header else "")
            warn_user(f"{last} is taken for the value and {looks}; {CURE}.", UserWarning)
    n = 0 if values is None else len(values)
    if how.modes is None and n >= FEW and len(modes) > 2:
        alone = [name for name, size in zip(modes, shape, strict=False) if size == n]
        if alone:
            warn_user(
                f"the mode {alone[0]!r} of '{path}' has a row of its own for each of the {n} entries, so that nothing "
                "can be learned of it; name the columns that are meant by modes= and value=.",
                UserWarning,
            )
