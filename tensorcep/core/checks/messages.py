"""Errors and warnings where a check cannot be a function of its arguments."""

from __future__ import annotations

import os
import sys
import warnings
from typing import NoReturn

import numpy as np

INFINITE = "are infinite: beyond the range of float64"
LONGEST_REASON = 300  # characters
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def fail_value(message: str) -> NoReturn:
    """Raise ValueError, as a parser does that has found a bad line."""
    raise ValueError(message)


def reason_of(error: BaseException) -> str:
    """What another library says is wrong, in one short line, for a sentence of ours to name it."""
    return (str(error).splitlines() or [type(error).__name__])[0][:LONGEST_REASON]


def printable(text: str) -> str:
    """Lines of text in which signs that nobody sees, those that command a terminal among them, are escaped.

    Labels and names of columns come from files of others.
    """
    return "".join(s if s.isprintable() or s == "\n" else s.encode("unicode_escape").decode() for s in text)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the line outside this package that led here."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_of_infinite(mean: np.ndarray) -> None:
    """Warn of predicted means (n,) beyond the range of float64, as those of exp(f) are where f is hardly known."""
    infinite = np.isinf(mean)
    if infinite.any():
        which = f"{int(infinite.sum())} of {mean.size} predicted means (the first is entry {int(np.argmax(infinite))})"
        warn_user(f"{which} {INFINITE}; predict_interval tells what is likely there.", UserWarning)
