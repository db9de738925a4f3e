"""Settings: words, numbers, seeds, and options that exclude each other."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

LONGEST = 300  # characters of what was given


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`; the error lists what exists."""
    known = tuple(allowed)
    if not isinstance(value, str) or value not in known:
        listed = ", ".join(repr(item) for item in known)
        got = repr(value)
        raise ValueError(
            f"{name} must be one of {listed}; got {got if len(got) <= LONGEST else got[:LONGEST] + '...'}."
        )
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, which numpy has, too."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def check_int(name: str, value: Any, minimum: int = 1, maximum: int | None = None, *, instead: str = "") -> int:
    """Return `value` as an int from `minimum` to `maximum`, both allowed; bool and float are refused.

    `instead` names what the caller would take in its place, for the error.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not whole or value < minimum or (maximum is not None and value > maximum):
        span = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise ValueError(f"{name} must be {instead}an integer {span}; got {value!r}.")
    return int(value)


def check_range(
    name: str,
    value: Any,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    include_low: bool = True,
    include_high: bool = True,
    instead: str = "",
) -> float:
    """Return `value` as a finite float inside an interval whose ends may be open or closed.

    `instead` names what the caller would take in its place, for the error.
    """
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) else np.nan
    good = (number >= low if include_low else number > low) and (number <= high if include_high else number < high)
    if not good or not np.isfinite(number):
        if np.isinf(high):
            span = "finite" if np.isinf(low) else f"{'>=' if include_low else '>'} {low:g}"
        else:
            span = f"in {'[' if include_low else '('}{low:g}, {high:g}{']' if include_high else ')'}"
        raise ValueError(f"{name} must be {instead}a number {span}; got {value!r}.")
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return check_range(name, value, 0.0, 1.0, include_low=False, include_high=False)


def word_or_range(name: str, value: Any, words: tuple[str, ...], low: float, high: float = np.inf, **ends: bool) -> Any:
    """Return the value if it is one of the words or a number in the range; the error names both."""
    if isinstance(value, str) and value in words:
        return value
    listed = " or ".join(repr(word) for word in words)
    return check_range(name, value, low, high, instead=f"{listed}, or ", **ends)


Seed: TypeAlias = "int | np.random.SeedSequence | np.random.RandomState | np.random.Generator | None"


def check_random_state(random_state: Any) -> np.random.Generator:
    """Return a Generator from None, an int >= 0, a SeedSequence, a RandomState or a Generator (returned as it is)."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if random_state is None or isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(random_state)
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(f"random_state must be None, an integer >= 0, a RandomState or a Generator; got {random_state!r}.")


def check_exactly_one(**options: Any) -> None:
    """Refuse alternatives of which none, or more than one, is given (is not None)."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"exactly one of {' and '.join(options)} must be given; got {' and '.join(given) or 'none'}.")


def check_only_for(name: str, value: Any, switch: str, chosen: str, allowed: Sequence[str]) -> None:
    """Refuse an option that the choice made elsewhere leaves without a meaning."""
    if value is not None and chosen not in allowed:
        raise ValueError(
            f"{name} has a meaning only with {switch}={' or '.join(map(repr, allowed))}; got {name}={value!r} with "
            f"{switch}={chosen!r}."
        )
