"""How many bytes a fit is going to take, added up from sizes alone before any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Size(NamedTuple):
    """The size of a fit.

    Attributes
    ----------
    n_entries : int
    shape : tuple of int
    Q, R : int
        Columns that are free in a mode, and all of them.
    cp : int
        Columns that belong to all modes.
    beside : int
        Bytes of what goes before, and of what is there whatever is fitted, where these are counted.
    limit : float
        Bytes that the user allows.
    n_stored : int
        Entries on scratch, of which memory holds `n_entries`; 0 where there are none.
    """

    n_entries: int
    shape: tuple[int, ...]
    Q: int
    R: int
    cp: int
    beside: int = 0
    limit: float = float("inf")
    n_stored: int = 0

    @property
    def n_rows(self) -> int:
        """Rows of all modes."""
        return sum(self.shape)

    @property
    def sums(self) -> int:
        """Numbers that a row's entries add up to: those, and a line for every pair of a free and a clamped column."""
        return packed(self.Q) + self.Q * (self.R - self.Q)

    @property
    def by_row(self) -> int:
        """Bytes per entry of the entries of every row, by their places (`tensorcep.cp.model.EntriesByRow`)."""
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
    """The size of a fit with the columns of these parts (`tensorcep.cp.columns`)."""
    K = len(shape)
    main, pair, cp = (int(parts[name]) for name in ("main", "pair", "cp"))
    Q = main + (K - 1) * pair + cp
    return Size(n_entries, tuple(int(n) for n in shape), Q, K * main + K * (K - 1) // 2 * pair + cp, cp)
