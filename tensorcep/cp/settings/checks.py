"""Checks that the settings of several engines share."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_int, check_range, fail_value, word_or_range

# A setting that may be "auto" or None until a fit is planned; engines see the number.
Decided = Any


def check_pair(name: str, value: Any) -> None:
    """Refuse what is no pair of positive numbers."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        fail_value(f"{name} must be a pair (a, b) of positive numbers; got {value!r}.")
    for i, item in enumerate(value):
        check_range(f"{name}[{i}]", item, 0.0, include_low=False)


def check_annealing(anneal: Any, power: Any) -> None:
    """Refuse numbers of annealed sweeps, and what an entry counts in them, that are not allowed."""
    if isinstance(anneal, str):
        if anneal != "auto":
            fail_value(f"anneal must be 'auto' or an integer >= 0; got {anneal!r}.")
    else:
        check_int("anneal", anneal, 0)
    check_range("anneal_power", power, 1.0)


def check_damping(damping: Any, *words: str) -> None:
    """Refuse what is neither one of the words nor a share of the old message that may be kept."""
    word_or_range("damping", damping, words, 0.0, 1.0, include_high=False)


def check_starts(n_starts: Any, n_ensemble: Any) -> None:
    """Refuse numbers of starts and of mixed fits that are not allowed."""
    check_int("n_starts", n_starts)
    if n_ensemble != "auto":
        check_int("n_ensemble", n_ensemble)
