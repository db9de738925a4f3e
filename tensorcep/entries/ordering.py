"""The order of labels: of text that of the numbers in it, so that "6h" comes before "12h"."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# A number at the very start may have a sign. A fraction has one point; 1.10.2 is three numbers.
NUMBER = re.compile(r"(^-?\d+(?:\.\d+)?(?![\d.])|(?<![\d.])\d+\.\d+(?![\d.])|\d+)")

# Integers are counted in a table where it has at most so many places for each of them.
DENSE = 4

Part = tuple[int, float, str]


def natural_key(text: str) -> tuple[tuple[Part, ...], str]:
    """Return what sorts text by the numbers in it; equal numbers in other spellings by their letters."""
    parts = NUMBER.split(text)
    key = tuple((0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts) if part)
    return key, text


def in_natural_order(codes: NDArray[np.int64], found: Any) -> tuple[NDArray[np.int64], Any]:
    """Return sorted labels and the place of each entry's, where text is sorted by the numbers in it.

    Parameters
    ----------
    codes : (N,) int64
    found : sequence of labels
        Distinct and sorted as pandas sorts.
    """
    labels = pd.Index(found, tupleize_cols=False)
    if not len(labels) or pd.api.types.infer_dtype(labels, skipna=False) != "string":
        return codes, found
    if labels.str.len().nunique() == 1 or not labels.str.contains(r"\d", regex=True).any():
        return codes, found  # numbers of as many digits are in order already
    texts = labels.tolist()
    order = _order_by_last_number(texts)
    if order is None:
        order = np.array(sorted(range(len(texts)), key=lambda i: natural_key(texts[i])), dtype=np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[codes], labels.take(order)


def _order_by_last_number(texts: list[str]) -> NDArray[np.int64] | None:
    """The order by `natural_key` of sorted texts that differ only in a number at their end; None for others."""
    common = re.split(r"\d", texts[0], maxsplit=1)[0]
    start = len(common)
    numbers = [text[start:] for text in texts]
    digits = "".join(numbers)
    if common == "-" or not texts[-1].startswith(common) or "" in numbers:  # those between begin alike
        return None
    if not (digits.isascii() and digits.isdecimal()):
        return None
    return np.argsort(np.array([float(number) for number in numbers]), kind="stable")


def dense_codes(index: pd.Index) -> tuple[NDArray[np.int64], pd.Index] | None:
    """Codes and sorted distinct labels of integers that are dense enough for a table; None for others."""
    if index.dtype != np.int64 or not len(index):
        return None
    values = index.to_numpy()
    low, high = int(values.min()), int(values.max())
    if high - low >= DENSE * len(values):
        return None
    places = values - low
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[places] = True
    found = np.flatnonzero(seen)
    return (np.cumsum(seen) - 1)[places], pd.Index(found + low, name=index.name)
