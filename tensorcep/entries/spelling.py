"""Text and numbers: which text is a number and nothing else, and the two spellings of one label."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pandas as pd


def number_of(text: str) -> int | float | bool | None:
    """Return the number or truth value that Python writes as this text; None for any other text.

    So 7 is a number, and 007, +7, 1e3 and 7.10 are names: as numbers they could no longer be told from 7, 1000 and 7.1.
    """
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            number = kind(text)
            if str(number) == text and text not in ("inf", "-inf", "nan"):
                return number
    return None


def numbers_of(column: pd.Series) -> Any:
    """Return a column of text as numbers (or truth values) where all of it are, no two of which are equal; else as is.

    Fractions and integers may be mixed, if no integer is too large to be told from the next one as a fraction.
    """
    codes, distinct = pd.factorize(column)
    numbers: list[Any] = [number_of(text) for text in distinct]
    kinds = {type(number) for number in numbers}
    if kinds == {int, float}:
        if any(float(number) != number for number in numbers):
            return column
        numbers, kinds = [float(number) for number in numbers], {float}
    fits = kinds != {int} or all(-(2**63) <= number < 2**63 for number in numbers)
    if len(kinds) != 1 or type(None) in kinds or not fits or len(set(numbers)) < len(numbers):
        return column
    return np.array(numbers)[codes]


def spelled_as(known: Any, labels: Any) -> list[Any]:
    """Return labels as `known` spells them: 7 and "7" are one label, that of a file read in two ways."""
    return [label if label in known else _respelled(known, label) for label in labels]


def _respelled(known: Any, label: Any) -> Any:
    """The other spelling of a label that is not known, where that one is."""
    others: tuple[Any, ...] = ()
    if isinstance(label, str):
        others = (number_of(label),)
    elif isinstance(label, int) or (isinstance(label, float) and math.isfinite(label)):  # no text is read as inf or nan
        others = (str(label), str(int(label))) if label == label // 1 and not isinstance(label, bool) else (str(label),)
    return next((other for other in others if other is not None and other in known), label)
