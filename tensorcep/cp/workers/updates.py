"""What workers do for rows that follow from their sums: sums over entries, natural parameters and moments at once.

Rows are made some at a time, so that a worker never holds the sums of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.held import Told
from tensorcep.core.nearby import Given as Numbers
from tensorcep.core.nearby import Sheet, put, rows_of
from tensorcep.cp.meanfield.update import ROWS_AT_A_TIME, Update, update_natural
from tensorcep.cp.model.entries import EntriesByRow, sum_products
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.parts import Part, close_part, open_part
from tensorcep.cp.workers.tasks import Given, Range, Sites, own_sites
from tensorcep.kernels.rows import row_divergences, row_moments, second_moments


class Made(NamedTuple):
    """Rows of a mode from `first` on, or where they are.

    Attributes
    ----------
    mean, cov : (n, Q), (n, P)
    sum_Z2, sum_yz : (n, W), (n, Q + C)
        The sums that they follow from.
    good, divergence : (n,)
        As `row_moments` and `row_divergences` give them.
    """

    first: int
    mean: Numbers
    cov: Numbers
    sum_Z2: Numbers
    sum_yz: Numbers
    good: Numbers
    divergence: Numbers

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.mean.shape[0]

    def width(self, kind: str) -> tuple[int, ...]:
        """As `Piece.width`."""
        Q, P = self.mean.shape[1], self.cov.shape[1]
        return ({"means": Q, "seconds": P, "numbers": P + Q + 1}[kind],)

    def fill(self, kind: str, out: np.ndarray) -> None:
        """As `Piece.fill`, of means, second moments, or numbers: these, means and 1 (`MeanFieldState.numbers`)."""
        Q, P = self.mean.shape[1], self.cov.shape[1]
        if kind == "means":
            put(self.mean, out)
            return
        means, covs = np.empty((ROWS_AT_A_TIME, Q)), np.empty((ROWS_AT_A_TIME, P))
        for a, b in pieces(self.n):
            mean, cov, own = means[: b - a], covs[: b - a], out[a:b]
            put(rows_of(self.mean, a, b), mean)
            put(rows_of(self.cov, a, b), cov)
            second_moments(0, b - a, mean, cov, own)
            if kind == "numbers":
                own[:, P:-1], own[:, -1] = mean, 1.0


def rows_alone(told: Told) -> Told:
    """What other workers need of rows that one has made: where results are sent, they would be sent the sums, too."""
    none = np.empty(0)
    if told.lacks:
        return told
    return told._replace(value=told.value._replace(sum_Z2=none, sum_yz=none, good=none, divergence=none))


def pieces(n: int) -> Iterator[tuple[int, int]]:
    """Where n rows are cut."""
    for a in range(0, n, ROWS_AT_A_TIME):
        yield a, min(n, a + ROWS_AT_A_TIME)


def update_ranges(
    ranges: list[Range],
    given: Given,
    blocks: list[Any],
    store: Any,
    sites: list[Sites | None],
    how: tuple[float, int],
    lines: list[np.ndarray],
    sizes: tuple[int, int],
    paths: tuple[str | None, str | None],
) -> Made:
    """New rows of ranges that follow each other, from `sum_products` of two sources over their entries.

    `how` has the numbers of an `Update`, `lines` its lines, for all rows of the mode or one; `sizes` are P and Q. Rows
    are left at the first of the paths, what else is told of them at the second.
    """
    first, n = ranges[0].first, ranges[-1].last - ranges[0].first
    update = Update(how[0], lines[0], lines[1], lines[2], how[1])
    with given.read(blocks, store) as sources:
        widths = [source.shape[1] for source in sources]
        room = _room(min(n, ROWS_AT_A_TIME), widths, sizes)
        rows, told = (
            Sheet(path, [(n, *array.shape[1:]) for array in arrays])
            for path, arrays in zip(paths, room.results, strict=True)
        )
        try:
            for one, own in zip(ranges, sites, strict=True):
                for a, b in _sums(one, sources, own, room.sums):
                    at, used = one.first - first + a, room.of(b - a)
                    _make(update.of(one.first + a, one.first + b), used)
                    for sheet, arrays in zip((rows, told), used.results, strict=True):
                        for k, array in enumerate(arrays):
                            sheet.put(k, at, array)
                close_part(one.path)
            return Made(first, *rows.done(), *told.done())
        finally:
            rows.drop()
            told.drop()


class _Room(NamedTuple):
    """Some rows, their sums, and their divergences from the prior; made once, as to get memory takes its time."""

    rows: RowState
    sums: list[np.ndarray]
    divergence: np.ndarray

    @property
    def results(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What others are told, and what the client is told."""
        return [self.rows.mean, self.rows.cov], [*self.sums, self.rows.good, self.divergence]

    def of(self, n: int) -> _Room:
        """The first n rows."""
        return _Room(RowState(*(array[:n] for array in self.rows)), [one[:n] for one in self.sums], self.divergence[:n])


def _room(n: int, widths: list[int], sizes: tuple[int, int]) -> _Room:
    P, Q = sizes
    rows = RowState(np.empty((n, P)), np.empty((n, Q)), np.empty((n, Q)), np.empty((n, P)), np.empty(n))
    return _Room(rows, [np.empty((n, width)) for width in widths], np.empty(n))


def _make(update: Update, room: _Room) -> None:
    """Rows and their divergences from the prior, in place, from the sums."""
    n, rows = len(room.divergence), room.rows
    update_natural(update, room.sums[0], room.sums[1], rows.Lam, rows.eta)
    row_moments(0, n, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
    row_divergences(0, n, rows, np.array(update.Lam), np.array(update.mean), room.divergence)


def _sums(
    where: Range, sources: list[np.ndarray], sites: Sites | None, out: list[np.ndarray]
) -> Iterator[tuple[int, int]]:
    """The sums of some rows of a range after the other, with weights and with values; which rows they are of."""
    part, none = open_part(where.path, Part), np.zeros(0, dtype=np.int64)
    weight, target = own_sites(sites, part)
    cuts = [(a, b, int(part.start[a]), int(part.start[b])) for a, b in pieces(where.last - where.first)]
    most = max((last - begin for _, _, begin, last in cuts), default=0)
    entry, ones = np.arange(most, dtype=np.int32), np.ones(most if weight is None else 0)
    for a, b, begin, last in cuts:
        start = part.start[a : b + 1] - begin
        lists = start, start[1:], entry[: last - begin], np.empty(0), part.others[begin:last]
        by_row = EntriesByRow(*lists, (none,))
        numbers = ones if weight is None else weight[begin:last], target[begin:last]
        for source, own, sums in zip(sources, numbers, out, strict=True):
            sum_products(0, b - a, by_row, own, source, sums, np.empty(source.shape[1]))
        yield a, b
