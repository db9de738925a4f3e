"""Rows that deviate along the axis of another mode, each by itself, in a stream (`Series(local=)`).

In a batch the pairs of a row and a time are the rows of one more mode, whose only free column is one that all other
modes have clamped to 1. What all entries so far say of a pair is kept, and the pairs of each row follow each other as
the rows of a series do (`row_priors`): those that a batch brings are forecast from the row's others, and after it all
are smoothed, and the law of their scale and length is learned on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import offsets
from tensorcep.core.persist.records import Sized
from tensorcep.cp.fit.deviations import expected_size
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.stream.row_priors import prior_by_others, rows_together, smoothed
from tensorcep.priors.coupled import Chain
from tensorcep.priors.deviations import Deviations
from tensorcep.priors.normal_wishart import Expected
from tensorcep.priors.series import Clock


class PairRows(NamedTuple):
    """What is known of the pairs so far, in the order of their rows and times.

    Attributes
    ----------
    modes : (int, int)
        The mode whose rows deviate, and the one that is a series.
    row, along : (p,) int64
        The rows of both modes.
    Lam, eta : (p,) float64
        Natural parameters of the posterior.
    told_Lam, told_eta : (p,) float64
        Of them what the entries say.
    width, weight : float
        The standard deviation that was expected, and how many times as much as by default that counts.
    precision, length : float
        Of the process.
    """

    modes: tuple[int, int]
    row: Annotated[np.ndarray, Sized("p", "i")]
    along: Annotated[np.ndarray, Sized("p", "i")]
    Lam: Annotated[np.ndarray, Sized("p")]
    eta: Annotated[np.ndarray, Sized("p")]
    told_Lam: Annotated[np.ndarray, Sized("p")]
    told_eta: Annotated[np.ndarray, Sized("p")]
    width: float
    weight: float
    precision: float
    length: float

    @property
    def told(self) -> Natural:
        """What the entries say."""
        return Natural(self.told_Lam[:, None], self.told_eta[:, None])

    @property
    def chain(self) -> Chain:
        """The law of the process, about 0."""
        width, precision, length = (np.array([x]) for x in (self.width, self.precision, self.length))
        one, nothing = np.ones(1, dtype=bool), np.zeros(1)
        return Chain(one, nothing, width, self.weight, nothing, precision, length, np.zeros((0, 1)))

    def clock(self, clock: Clock) -> Clock:
        """The axis of the pairs, of the mode's that is a series."""
        own, one = clock.times[self.along], np.zeros(1)
        return clock._replace(times=own, groups=self.row, period=0.0, phases=one, order=())

    def fits(self, sizes: Sequence[int], clocks: Sequence[Any]) -> bool:
        """Whether these are pairs of rows of modes of such sizes, each once and in order, and numbers of a stream."""
        if not all(0 <= k < len(sizes) for k in self.modes) or not isinstance(clocks[self.modes[1]], Clock):
            return False
        (n, m), clock = (sizes[k] for k in self.modes), clocks[self.modes[1]]
        if not all(((own >= 0) & (own < size)).all() for own, size in ((self.row, n), (self.along, m))):
            return False
        time, numbers = clock.times[self.along], np.append(self.Lam, [self.width, self.weight, self.precision])
        later = (np.diff(self.row) > 0) | ((np.diff(self.row) == 0) & (np.diff(time) > 0.0))
        return bool(later.all() and (numbers > 0.0).all() and self.length >= 0.0)

    def with_new(self, clock: Clock, coords: np.ndarray) -> PairRows:
        """With the pairs of entries (n, K), on this axis of the mode; those that are new are forecast."""
        row, along = (coords[:, k] for k in self.modes)
        both = np.append(self.row, row), np.append(self.along, along)
        first = np.unique(both[0] * len(clock.times) + both[1], return_index=True)[1]
        first = first[np.lexsort((clock.times[both[1][first]], both[0][first]))]
        if len(first) == len(self.row):
            return self
        known = first < len(self.row)  # of equal pairs the first is the one that is known
        before = self.Lam, self.eta, self.told_Lam, self.told_eta
        Lam, eta, *told = (np.append(part, np.zeros(len(row)))[first] for part in before)
        new = self._replace(row=both[0][first], along=both[1][first], Lam=Lam, eta=eta)
        new = new._replace(told_Lam=told[0], told_eta=told[1])
        forecast = rows_together(new.chain, new.clock(clock), new.told)
        for own, line in zip((new.Lam, new.eta), forecast, strict=True):
            own[~known] = line[~known, 0]
        return new

    def places(self, n: int, coords: np.ndarray) -> np.ndarray:
        """Which of the pairs each entry (N, K) is of, (N,), where the series has n rows."""
        key = self.row * n + self.along
        order = np.argsort(key)
        row, along = (coords[:, k] for k in self.modes)
        return np.asarray(order[np.searchsorted(key[order], row * n + along)])

    def told_of_others(self, clock: Clock, used: np.ndarray, new: Natural, before: Natural) -> Natural | None:
        """The prior of the pairs of a batch, `before`, with what those of one row tell of each other, if any.

        `new` is what the batch said of them.
        """
        if len(np.unique(self.row[used])) == len(used):
            return None
        return prior_by_others(self.chain, self.clock(clock), self.told, used, new, before)

    def after(self, clock: Clock, used: np.ndarray, new: Natural) -> PairRows:
        """The pairs after a batch that said this of those used."""
        seen = np.ones(len(self.row), dtype=bool)
        known, told, rows = smoothed(self.chain, self.clock(clock), self.told, used, new, seen)
        Lam, eta, told_Lam, told_eta = (part[:, 0].copy() for part in (*rows, *told))
        precision, length = float(known.precision[0]), float(known.length[0])
        return self._replace(Lam=Lam, eta=eta, told_Lam=told_Lam, told_eta=told_eta, precision=precision, length=length)

    def deviations(self, clock: Clock, sizes: Sequence[int]) -> Deviations:
        """As the deviations of a fit, to modes of these sizes."""
        first = offsets(sizes)
        return Deviations(
            modes=self.modes,
            first=(int(first[self.modes[0]]), int(first[self.modes[1]])),
            size=sizes[self.modes[0]],
            row=self.row,
            time=clock.times[self.along],
            times=clock.times,
            mean=(self.eta / self.Lam)[None],
            variance=(1.0 / self.Lam)[None],
            precision=np.array([self.precision]),
            length=np.array([self.length]),
            told=np.stack([self.told_Lam, self.told_eta]),
        )


def first_pairs(of: Deviations, clock: Clock, expected: Expected | None, free: np.ndarray) -> PairRows:
    """The pairs of a fit that deviate along this axis, `free` (K, R) bool its free columns."""
    if of.told is None or of.variance is None or expected is None:
        raise TypeError("a stream goes on from deviations with what the entries said of them.")
    order, Lam = np.argsort(clock.times, kind="stable"), 1.0 / of.variance[0]
    return PairRows(
        modes=of.modes,
        row=of.row,
        along=order[np.searchsorted(clock.times[order], of.time)],
        Lam=Lam,
        eta=Lam * of.mean[0],
        told_Lam=of.told[0].copy(),
        told_eta=of.told[1].copy(),
        width=expected_size(expected.scale, free),
        weight=expected.strength,
        precision=float(of.precision[0]),
        length=float(of.length[0]),
    )


def joined(rows: Natural, pairs: Natural) -> Natural:
    """Rows in one more column, clamped to 1, and after them pairs (q, 1), whose only free column that is."""
    last = np.arange(rows.eta.shape[1] + 1) == rows.eta.shape[1]
    both = zip(in_all(rows, ~last), in_all(pairs, last), strict=True)
    return Natural(*(np.concatenate(parts) for parts in both))


def apart(lines: Natural, n: int) -> Natural:
    """The first n rows in all columns but the last, in which they are 1."""
    R = lines.eta.shape[1] - 1
    P = R * (R + 1) // 2
    return Natural(lines.Lam[:n, :P].copy(), lines.eta[:n, :R] - lines.Lam[:n, P : P + R])


def messages_to_pairs(lines: Natural, before: Natural, n: int) -> Natural:
    """What a batch, after which its rows are `lines`, said of the pairs (q, 1) after the first n rows."""
    R = lines.eta.shape[1] - 1
    Lam, P = lines.Lam[n:] - before.Lam[n:], R * (R + 1) // 2
    eta = lines.eta[n:, -1:] - before.eta[n:, -1:]
    return Natural(Lam[:, -1:], eta - Lam[:, P:-1].sum(axis=1, keepdims=True))
