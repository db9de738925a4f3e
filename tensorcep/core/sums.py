"""Sums over long arrays piece by piece: the additions that numpy makes over the whole, in its order, to its bits.

numpy adds a contiguous array by halves (pairwise). Where the pieces are its halves of halves, the sum of a function of
the numbers needs no array of that function's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

# Numbers that are added up at a time.
LEAF = 1 << 18
# A half has a multiple of so many numbers, and numpy adds so few of them without halving.
UNROLLED = 8
# Lines that are copied at a time.
LINES = 1 << 11


def leaves(n: int, most: int = LEAF) -> Iterator[tuple[int, int]]:
    """Where numpy's halves of halves of n numbers begin and end, of at most so many numbers each, in order."""
    stack = [(0, n)]
    while stack:
        first, size = stack.pop()
        if size <= most:
            yield first, first + size
            continue
        half = _half(size)
        stack += [(first + half, size - half), (first, half)]


def joined(sums: Iterator[float], n: int, most: int = LEAF) -> float:
    """The sum of n numbers from the sums of their leaves, in order."""
    if n <= most:
        return float(next(sums))
    half = _half(n)
    return joined(sums, half, most) + joined(sums, n - half, most)


def _half(size: int) -> int:
    return size // 2 - size // 2 % UNROLLED


def total(n: int, part: Callable[[slice], np.ndarray]) -> float:
    """The sum of n numbers, of which `part` gives those of a slice."""
    return joined((np.add.reduce(part(slice(a, b))) for a, b in leaves(n)), n)


def sum_of_lines(lines: np.ndarray, which: np.ndarray) -> np.ndarray:
    """``lines[which].sum(axis=0)`` of some lines (n,) bool of an array (n, P), of which few are copied at a time.

    numpy adds one line after the other, unless they are of one number.
    """
    if lines.shape[1] == 1:
        return np.asarray(lines[which].sum(axis=0))
    if which.all():
        return np.asarray(lines.sum(axis=0))
    places, found = np.flatnonzero(which), np.zeros((0, lines.shape[1]))
    for first in range(0, len(places), LINES):
        found = np.concatenate([found, lines[places[first : first + LINES]]]).sum(axis=0, keepdims=True)
    return found[0] if len(found) else np.zeros(lines.shape[1])


def weighted_mean(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The mean of (N,) values, by weights (N,) if these are given."""
    return float(np.mean(values) if weight is None else np.average(values, weights=weight))


def mean_square(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """``np.mean(values ** 2)`` of (N,) values, by weights (N,) if these are given."""
    if weight is not None:
        return weighted_mean(values**2, weight)
    return total(len(values), lambda at: values[at] ** 2) / len(values)


def variance(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """``np.var(values)`` of (N,) values, by weights (N,) if these are given."""
    if weight is not None:
        return weighted_mean((values - weighted_mean(values, weight)) ** 2, weight)
    centre = total(len(values), lambda at: values[at]) / len(values)
    return total(len(values), lambda at: (values[at] - centre) ** 2) / len(values)


class Running:
    """The sum of n numbers that come in order, some at a time, to the bits of numpy's over all of them."""

    def __init__(self, n: int) -> None:
        self._n, self._ends = n, [b for _, b in leaves(n)]
        self._sums: list[float] = []
        self._room, self._filled, self._taken = np.empty(min(n, LEAF)), 0, 0

    def add(self, values: np.ndarray) -> None:
        """Take the next numbers."""
        while len(values):
            missing = self._ends[len(self._sums)] - self._taken
            part, values = values[:missing], values[missing:]
            self._room[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            self._taken += len(part)
            if self._taken == self._ends[len(self._sums)]:
                self._sums.append(float(np.add.reduce(self._room[: self._filled])))
                self._filled = 0

    @property
    def sum(self) -> float:
        """Of all n numbers, once they have come."""
        return joined(iter(self._sums), self._n) if self._n else 0.0
