"""Main effects and interactions as CP components: which modes each column of the factors belongs to.

A component that is active in some modes only has the factor 1 in the others: active in one mode it is a main effect
(one number per row), in two a pairwise term, in all the full CP component.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tensorcep.core.checks import check_choice, check_int, fail_value

PRESETS = ("cp", "main+cp", "pairwise", "all")
PARTS = ("main", "pair", "cp")
# Prior precision of a clamped element: it moves by less than the rounding of single precision.
CLAMPED = 1e12


def parts_of(interactions: Any, rank: int) -> dict[str, int]:
    """Number of columns of each part: per mode ("main"), per pair of modes ("pair"), of all modes ("cp").

    Raises
    ------
    ValueError, TypeError
        If `interactions` is neither a known word nor a dict of explicit ranks.
    """
    if isinstance(interactions, dict):
        for name in interactions:
            check_choice("a key of interactions", name, PARTS)
        given = {name: check_int(f"interactions[{name!r}]", interactions.get(name, 0), 0) for name in PARTS}
        if not any(given.values()):
            fail_value(f"interactions must give at least one part of {PARTS} a rank above 0; got {interactions!r}.")
        return given
    if not isinstance(interactions, str) or interactions not in PRESETS:
        fail_value(
            f"interactions must be one of {('auto', *PRESETS)}, or a dict of ranks for {PARTS}; got {interactions!r}."
        )
    return {
        "main": int(interactions != "cp"),
        "pair": rank if interactions in ("pairwise", "all") else 0,
        "cp": 0 if interactions == "pairwise" else rank,
    }


def free_columns(parts: dict[str, int], order: int) -> np.ndarray:
    """Whether column r is free (not clamped to 1) in mode k, (K, R) bool: main effects first, then pairs, then CP."""
    modes = range(order)
    sets: list[tuple[int, ...]] = [(k,) for k in modes for _ in range(parts["main"])]
    sets += [pair for pair in itertools.combinations(modes, 2) for _ in range(parts["pair"])]
    sets += [tuple(modes)] * parts["cp"]
    return np.array([[k in active for active in sets] for k in modes])


def columns_within(parts: dict[str, int], whole: dict[str, int], order: int) -> np.ndarray:
    """The columns of `whole` (see `free_columns`) that are those of `parts`, of which it has no fewer."""
    pairs = order * (order - 1) // 2
    groups = [name for name, n in zip(PARTS, (order, pairs, 1), strict=True) for _ in range(n)]
    return np.flatnonzero(np.concatenate([np.arange(whole[name]) < parts[name] for name in groups]))


def modes_of_columns(free: np.ndarray) -> list[tuple[int, ...]]:
    """The modes that each column belongs to."""
    return [tuple(int(k) for k in np.flatnonzero(column)) for column in free.T]
