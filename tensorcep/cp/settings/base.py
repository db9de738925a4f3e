"""What the settings of engines share: checks, and the bytes of a fit, added up from sizes alone before any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorcep.core.checks import check_int, check_range, fail_value

# A setting that may be "auto" or None until a fit is planned; engines see the number.
Decided = Any
# Sets of main effects and interactions that have a name (`tensorcep.cp.model.columns`).
PRESETS = ("cp", "main+cp", "pairwise", "all")


def check_pair(name: str, value: Any) -> None:
    """Refuse what is no pair of positive numbers."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        fail_value(f"{name} must be a pair (a, b) of positive numbers; got {value!r}.")
    for i, item in enumerate(value):
        check_range(f"{name}[{i}]", item, 0.0, include_low=False)


def check_annealing(anneal: Any, power: Any) -> None:
    """Refuse numbers of annealed sweeps, and what an entry counts in them, that are not allowed."""
    if not (isinstance(anneal, str) and anneal == "auto"):
        check_int("anneal", anneal, 0, instead="'auto' or ")
    check_range("anneal_power", power, 1.0)


def check_starts(n_starts: Any, n_ensemble: Any) -> None:
    """Refuse numbers of starts and of mixed fits that are not allowed."""
    check_int("n_starts", n_starts)
    if n_ensemble != "auto":
        check_int("n_ensemble", n_ensemble)


class Size(NamedTuple):
    """The size of a fit."""

    n_entries: int
    shape: tuple[int, ...]
    Q: int  # columns that are free in a mode
    R: int  # all columns
    cp: int  # those that belong to all modes
    beside: int = 0  # bytes of what goes before, and of what is there whatever is fitted, where these are counted
    limit: float = float("inf")  # bytes that the user allows
    n_stored: int = 0  # entries on scratch, of which memory holds `n_entries`; 0 where there are none

    @property
    def n_rows(self) -> int:
        """Rows of all modes."""
        return sum(self.shape)

    @property
    def by_row(self) -> int:
        """Bytes per entry of the entries of every row, by their places (`tensorcep.cp.model.entries.EntriesByRow`)."""
        return 4 * len(self.shape) ** 2

    @property
    def packed_entries(self) -> int:
        """Bytes of the checked coordinates and values, and of the entries in lanes."""
        return self.n_entries * (12 * len(self.shape) + 36)

    @property
    def posterior(self) -> int:
        """Bytes of natural parameters or of moments of all rows in all columns."""
        return 8 * self.n_rows * (packed(self.R) + self.R)

    @property
    def spectral(self) -> int:
        """Bytes of a spectral start."""
        return self.n_entries * (24 * len(self.shape) + 16 * self.cp)


class Memory(NamedTuple):
    """Bytes of a method at its peak: what grows with entries, with rows, and with draws."""

    entries: int
    rows: int
    draws: int = 0

    @property
    def total(self) -> int:
        return sum(self)


def packed(R: int) -> int:
    """Numbers of a packed R x R matrix."""
    return R * (R + 1) // 2


def size_of(n_entries: int, shape: Sequence[int], parts: dict[str, int]) -> Size:
    """The size of a fit with the columns of these parts (`tensorcep.cp.model.columns`)."""
    K = len(shape)
    main, pair, cp = (int(parts[name]) for name in ("main", "pair", "cp"))
    Q = main + (K - 1) * pair + cp
    return Size(n_entries, tuple(int(n) for n in shape), Q, K * main + K * (K - 1) // 2 * pair + cp, cp)
