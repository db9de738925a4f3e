"""Errors and warnings where a check cannot be a function of its arguments."""

from __future__ import annotations

import sys
import warnings
from typing import NoReturn

import numpy as np

INFINITE = "are infinite: beyond the range of float64"
LONGEST_REASON, LONGEST = 300, 1600  # characters
# What stands between a warning and the line that led to it: this package, and what wraps its methods or calls them.
BETWEEN = {__name__.partition(".")[0], "sklearn", "joblib", "contextlib", "functools"}


def fail_value(message: str) -> NoReturn:
    """Raise ValueError, as a parser does that has found a bad line; of a very long label the middle is left out."""
    message = printable(message)
    half = LONGEST // 2
    raise ValueError(message if len(message) <= LONGEST else f"{message[:half]} ... {message[-half:]}")


def reason_of(error: BaseException) -> str:
    """What another library says is wrong, in one short line, for a sentence of ours to name it."""
    return (str(error).splitlines() or [type(error).__name__])[0][:LONGEST_REASON]


def printable(text: str) -> str:
    """Lines of text in which signs that nobody sees, those that command a terminal among them, are escaped.

    Labels and names of columns come from files of others.
    """
    return "".join(s if s.isprintable() or s == "\n" else s.encode("unicode_escape").decode() for s in text)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the user's line that led here: the first outside this package and scikit-learn."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message if message.isprintable() else printable(message), category, stacklevel=level)


def warn_of_infinite(mean: np.ndarray) -> None:
    """Warn of predicted means (n,) beyond the range of float64, as those of exp(f) are where f is hardly known."""
    infinite = np.isinf(mean)
    if infinite.any():
        which = f"{int(infinite.sum())} of {mean.size} predicted means (the first is entry {int(np.argmax(infinite))})"
        warn_user(f"{which} {INFINITE}; predict_interval tells what is likely there.", UserWarning)
