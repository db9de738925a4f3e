"""Rows that deviate along the axis of another mode, each by itself, in a stream (`Series(local=)`).

In a batch the pairs of a row and a time are the rows of one more mode, whose only free column is one that all other
modes have clamped to 1. What all entries so far say of a pair is kept, and the pairs of each row follow each other as
the rows of a series do (`drifting`): those that a batch brings are forecast from the row's others, and after it all are
smoothed, and the law of their scale and length is learned on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.mode_laws import Deviations
from tensorcep.core.packing import offsets
from tensorcep.core.records import Sized
from tensorcep.cp.fit.deviations import expected_size
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.model.rows import diagonal
from tensorcep.cp.stream import chained
from tensorcep.cp.stream.drifting import Chain, rows_together
from tensorcep.priors.fixed import FixedPrior
from tensorcep.priors.learned import Expected
from tensorcep.priors.series import Clock

if TYPE_CHECKING:
    from tensorcep.cp.stream.adf import BatchProblem, StreamState

# Natural parameters of the rows of each mode.
Lines = Sequence[tuple[np.ndarray, np.ndarray]]
# The only column of pairs.
ONE = np.ones(1, dtype=bool)


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
        return Chain(ONE, np.zeros(1), width, self.weight, np.zeros(1), precision, length, np.zeros((0, 1)))

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

    def at(self, rows: Natural, told: Natural, known: Chain) -> PairRows:
        """The pairs with these natural parameters (p, 1) of which entries say so much, and this law."""
        Lam, eta, told_Lam, told_eta = (part[:, 0].copy() for part in (*rows, *told))
        precision, length = float(known.precision[0]), float(known.length[0])
        return self._replace(Lam=Lam, eta=eta, told_Lam=told_Lam, told_eta=told_eta, precision=precision, length=length)


def with_deviations(
    state: StreamState, of: Deviations | None, expected: Expected | None, free: np.ndarray
) -> StreamState:
    """The state that goes on with the deviations of a fit, `free` (K, R) bool its free columns."""
    if of is None:
        return state
    if of.told is None or of.variance is None or expected is None:
        raise TypeError("a stream goes on from deviations with what the entries said of them.")
    clock = state.clocks[of.modes[1]]
    order = np.argsort(clock.times, kind="stable")
    along = order[np.searchsorted(clock.times[order], of.time)]
    Lam = 1.0 / of.variance[0]
    pairs = PairRows(
        modes=of.modes,
        row=of.row,
        along=along,
        Lam=Lam,
        eta=Lam * of.mean[0],
        told_Lam=of.told[0].copy(),
        told_eta=of.told[1].copy(),
        width=expected_size(expected.scale, free),
        weight=expected.strength,
        precision=float(of.precision[0]),
        length=float(of.length[0]),
    )
    return state._replace(pairs=pairs)


def with_new_pairs(state: StreamState, coords: np.ndarray) -> StreamState:
    """The state with the pairs of entries (n, K); those that are new are forecast."""
    pairs = state.pairs
    if pairs is None:
        return state
    clock, (row, along) = state.clocks[pairs.modes[1]], (coords[:, k] for k in pairs.modes)
    both = np.append(pairs.row, row), np.append(pairs.along, along)
    n = len(clock.times)
    first = np.unique(both[0] * n + both[1], return_index=True)[1]
    first = first[np.lexsort((clock.times[both[1][first]], both[0][first]))]
    if len(first) == len(pairs.row):
        return state
    known = first < len(pairs.row)  # of equal pairs the first is the one that is known
    before = pairs.Lam, pairs.eta, pairs.told_Lam, pairs.told_eta
    Lam, eta, *told = (np.append(part, np.zeros(len(row)))[first] for part in before)
    pairs = pairs._replace(
        row=both[0][first], along=both[1][first], Lam=Lam, eta=eta, told_Lam=told[0], told_eta=told[1]
    )
    forecast = rows_together(pairs.chain, pairs.clock(clock), pairs.told)
    for own, line in zip((pairs.Lam, pairs.eta), forecast, strict=True):
        own[~known] = line[~known, 0]
    return state._replace(pairs=pairs)


def pairs_of_batch(state: StreamState, coords: np.ndarray) -> np.ndarray:
    """Which of the pairs each entry (n, K) is of, (n,)."""
    pairs: Any = state.pairs
    n = len(state.clocks[pairs.modes[1]].times)
    key = pairs.row * n + pairs.along
    order = np.argsort(key)
    row, along = (coords[:, k] for k in pairs.modes)
    return np.asarray(order[np.searchsorted(key[order], row * n + along)])


def with_pairs(parts: Lines, pairs: PairRows, used: np.ndarray) -> Lines:
    """Rows of every mode in one more column, clamped to 1, and those pairs that are used, whose only free one it is."""
    R = parts[0][1].shape[1]
    return [*(_wider(Natural(*part)) for part in parts), _pairs_in(R, pairs.Lam[used], pairs.eta[used])]


def _wider(rows: Natural) -> Natural:
    """Rows in one more column, clamped to 1."""
    n, R = rows.eta.shape
    lines = np.append(np.zeros(R), CLAMPED), np.array([CLAMPED])
    parts = zip(rows, lines, strict=True)
    return Natural(*(np.concatenate([part, np.tile(line, (n, 1))], axis=1) for part, line in parts))


def _pairs_in(R: int, Lam: np.ndarray, eta: np.ndarray) -> Natural:
    """Pairs (q,) as rows of R + 1 columns, the first R clamped to 1."""
    whole = Natural(np.zeros((len(Lam), (R + 1) * (R + 2) // 2)), np.full((len(eta), R + 1), CLAMPED))
    whole.Lam[:, diagonal(R + 1)] = CLAMPED
    whole.Lam[:, -1], whole.eta[:, -1] = Lam, eta
    return whole


def in_modes(batch: BatchProblem, posterior: Any) -> tuple[BatchProblem, Any]:
    """A batch and its posterior, or its prior, in the modes and columns that there are: the last column is 1."""
    problem, shape, R = batch.problem, batch.problem.shape[:-1], batch.problem.rank - 1
    n, P = sum(shape), R * (R + 1) // 2
    prior = FixedPrior(problem.prior.Lam[:n, :P].copy(), problem.prior.eta[:n, :R].copy())
    eta = posterior.eta[:n, :R] - posterior.Lam[:n, P : P + R]
    posterior = posterior._replace(
        shape=shape, rank=R, Lam=posterior.Lam[:n, :P].copy(), eta=eta, seen=posterior.seen[:n]
    )
    return batch._replace(problem=problem._replace(shape=shape, rank=R, prior=prior), used=batch.used[:-1]), posterior


def _messages(batch: BatchProblem, posterior: Any) -> Natural:
    """What a batch with this posterior said of its pairs, (q, 1) each."""
    first, R = int(offsets(batch.problem.shape)[-2]), batch.problem.rank - 1
    Lam, eta = posterior.Lam[first:] - batch.problem.prior.Lam[first:], posterior.eta[first:, -1:]
    P = R * (R + 1) // 2
    return Natural(Lam[:, -1:], eta - batch.problem.prior.eta[first:, -1:] - Lam[:, P:-1].sum(axis=1, keepdims=True))


def told_of_others(state: StreamState, batch: BatchProblem, posterior: Any) -> BatchProblem | None:
    """As `chained.told_of_others`, of pairs too: those of a batch that are of the same row tell of each other."""
    pairs = state.pairs
    if pairs is None:
        return chained.told_of_others(state, batch, posterior)
    clock, used = state.clocks[pairs.modes[1]], batch.used[-1]
    again = chained.told_of_others(state, *in_modes(batch, posterior))
    several = len(np.unique(pairs.row[used])) < len(used)
    if again is None and not several:
        return None
    R, prior = batch.problem.rank - 1, batch.problem.prior
    first = int(offsets(batch.problem.shape)[-2])
    lines = Natural(prior.Lam[first:, -1:], prior.eta[first:, -1:])
    if several:
        told = _messages(batch, posterior)
        lines = chained.lines_told(pairs.chain, pairs.clock(clock), pairs.told, used, told, lines)
    rows = Natural(prior.Lam[:first], prior.eta[:first])
    if again is not None:
        rows = _wider(Natural(again.problem.prior.Lam, again.problem.prior.eta))
    own = _pairs_in(R, lines.Lam[:, 0], lines.eta[:, 0])
    new = FixedPrior(np.concatenate([rows.Lam, own.Lam]), np.concatenate([rows.eta, own.eta]))
    return batch._replace(problem=batch.problem._replace(prior=new))


def pairs_after(state: StreamState, batch: BatchProblem, posterior: Any) -> PairRows:
    """The pairs after a batch with this posterior."""
    pairs: Any = state.pairs
    clock, seen = pairs.clock(state.clocks[pairs.modes[1]]), np.ones(len(pairs.row), dtype=bool)
    new = _messages(batch, posterior)
    known, told, rows = chained.learned_rows(pairs.chain, clock, pairs.told, batch.used[-1], new, seen)
    found: PairRows = pairs.at(rows, told, known)
    return found


def deviations_of(state: StreamState) -> Deviations | None:
    """The deviations as those of a fit; None where rows have none."""
    pairs = state.pairs
    if pairs is None:
        return None
    clock, first = state.clocks[pairs.modes[1]], offsets(state.sizes)
    return Deviations(
        modes=pairs.modes,
        first=(int(first[pairs.modes[0]]), int(first[pairs.modes[1]])),
        size=state.sizes[pairs.modes[0]],
        row=pairs.row,
        time=clock.times[pairs.along],
        times=clock.times,
        mean=(pairs.eta / pairs.Lam)[None],
        variance=(1.0 / pairs.Lam)[None],
        precision=np.array([pairs.precision]),
        length=np.array([pairs.length]),
        told=np.stack([pairs.told_Lam, pairs.told_eta]),
    )
