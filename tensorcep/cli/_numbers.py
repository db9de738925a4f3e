"""Numbers, and words in their place, as options of the shell give them."""

from __future__ import annotations

import argparse


def limit_of(text: str) -> float | str | None:
    """A number, auto, or None for none."""
    found = _number_or(text, "auto", "none")
    return None if found == "none" else found


def damping_of(text: str) -> float | str:
    """A number, auto or adaptive."""
    return _number_or(text, "auto", "adaptive")


def number_or_auto(text: str) -> float | str:
    """A number, or auto."""
    return _number_or(text, "auto")


def whole_or_auto(text: str) -> int | str:
    """An integer, or auto."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"an integer or auto is expected; got {text!r}") from None


def _number_or(text: str, *words: str) -> float | str:
    if text in words:
        return text
    try:
        return float(text)
    except ValueError:
        allowed = " or ".join(", ".join(("a number", *words)).rsplit(", ", 1))
        raise argparse.ArgumentTypeError(f"{allowed} is expected; got {text!r}") from None


def threads_of(text: str) -> int:
    """A number of threads."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"an integer >= 1 is expected; got {text!r}")
    return int(text)
