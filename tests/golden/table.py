"""The table of cases, each a function without arguments that returns arrays by name, and how records become arrays."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

Arrays = dict[str, Any]
CASES: dict[str, Callable[[], Arrays]] = {}
# The module that each case is of.
HOMES: dict[str, str] = {}


def case(name: str, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Arrays]], Callable[..., Arrays]]:
    """Add a function, with these arguments, to the table."""

    def add(make: Callable[..., Arrays]) -> Callable[..., Arrays]:
        if name in CASES:
            raise ValueError(f"there are two cases called {name!r}")
        CASES[name], HOMES[name] = functools.partial(make, *args, **kwargs), make.__module__
        return make

    return add


def flat(item: Any) -> Iterator[np.ndarray]:
    """The arrays of numbers in a record, in their order."""
    if isinstance(item, np.ndarray) and item.dtype.kind in "fiub":
        yield item.ravel().astype(float)
    elif isinstance(item, (bool, int, float, np.generic)):
        yield np.array([float(item)])
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from flat(part)
    elif isinstance(item, dict):
        for part in item.values():
            yield from flat(part)


def joined(items: Any) -> np.ndarray:
    """All numbers in a record."""
    found = list(flat(items))
    return np.concatenate(found) if found else np.zeros(0)


def lines(text: Any) -> np.ndarray:
    """The lines of a text, without the seconds and sizes in it."""
    return np.array(re.sub(r"\d[\d.e+-]* (s|[kMG]B)\b", "some", str(text)).splitlines())


def frame(found: pd.DataFrame, name: str) -> Arrays:
    """Numbers and text of a table."""
    numbers = found.select_dtypes("number")
    text = found.select_dtypes(exclude="number").astype(str)
    arrays = {f"{name} numbers": numbers.to_numpy(float), f"{name} columns": np.array([str(c) for c in found.columns])}
    return {**arrays, f"{name} text": text.to_numpy(str)} if text.shape[1] else arrays
