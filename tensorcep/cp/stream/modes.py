"""What a stream knows: rows of every mode, and their priors that batches teach, by features, series and graphs.

**Features.** The law of the map from features to prior means, given the rows, needs sums over the rows with entries
alone (`priors.regression`). A batch takes what its rows said before out of them and puts what they say now in, so that
it costs no more than its rows and the cube of the number of features. A row's prior is replaced by what its features
say when the row is next looked at: its messages stay. Rows without entries are as unsure as the map, too.

**Series and graphs.** What all entries so far say of a row is kept, as natural parameters beside those of its prior
(`ModeRows`): the row's posterior less its prior. With the law of the drift they give the moments of all rows of the
mode at once, by Kalman smoothing (`priors.solvers.chain`), linear in their number; of a graph from a sparse Cholesky
factor, rows that it does not name being rows without edges. A batch begins with these moments as the prior of its rows,
those that it brings being forecast; what its entries say is added, the law is learned on from the moments of all rows
with entries, and rows are smoothed again. Where a batch touches several rows of a mode, it is learned a second time
with what the others of its rows were told, since in between they count as independent.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.packing import offsets, pack, row_dims, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.cp.fit.deviations import deviations_of, expected_size
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import Dispersion, GammaNoise, Posterior, first_member
from tensorcep.priors.base import Drift, ModeParameters, ModePrior, RowSites, moments_of
from tensorcep.priors.coupled import Chain, Known
from tensorcep.priors.deviations import Deviations
from tensorcep.priors.features import Design
from tensorcep.priors.graph import Net
from tensorcep.priors.normal_wishart import Expected
from tensorcep.priors.regression import MapOfFeatures, map_of_fit
from tensorcep.priors.series import Clock

# Room for rows is made in steps of this factor, so that growing costs no more than the rows themselves.
GROWTH = 1.5
# Shares of messages that are tried, until all rows together are a Gaussian.
SHARES = (1.0, 0.5, 0.25, 0.0)


class ModeRows(NamedTuple):
    """Rows of one mode, with room for more; those in use come first."""

    Lam: Annotated[np.ndarray, Sized("room P")]  # natural parameters of the posterior
    eta: Annotated[np.ndarray, Sized("room R")]
    prior_Lam: Annotated[np.ndarray, Sized("room P")]  # of the prior that forgetting returns to; of a series or a graph
    prior_eta: Annotated[np.ndarray, Sized("room R")]  # what the other rows say
    seen: Annotated[np.ndarray, Sized("room", "b")]  # whether an entry has touched a row
    time: Annotated[np.ndarray, Sized("room")]  # of its last update

    def at(self, rows: Any, keep: float, time: float, prior: Natural | None = None) -> Natural:
        """Rows at a time, w = keep^(time since the last update): posterior^w prior^(1 - w), by this prior or theirs."""
        if keep == 1.0 and prior is None:
            return Natural(self.Lam.take(rows, axis=0), self.eta.take(rows, axis=0))
        old = Natural(self.prior_Lam[rows], self.prior_eta[rows])
        new, weight = prior or old, keep ** np.maximum(0.0, time - self.time[rows])[:, None]
        return Natural(new.Lam + weight * (self.Lam[rows] - old.Lam), new.eta + weight * (self.eta[rows] - old.eta))

    def sites(self, n: int) -> Natural:
        """What the entries say of the first n rows."""
        return Natural(self.Lam[:n] - self.prior_Lam[:n], self.eta[:n] - self.prior_eta[:n])


def sound_prior(new: Natural, before: Natural, rows: Natural) -> Natural:
    """The new prior of rows whose prior was `before`; that where a row would be no Gaussian with the other one."""
    moved = Natural(rows.Lam + (new.Lam - before.Lam), rows.eta + (new.eta - before.eta))
    keep = (moments_of(*moved)[2] > 0.0)[:, None]
    return Natural(*(np.where(keep, one, old) for one, old in zip(new, before, strict=True)))


def prior_now(known: MapOfFeatures, design: Design, mode: ModeRows, rows: np.ndarray) -> Natural:
    """The prior that features give some rows of a mode by now."""
    before, own = Natural(mode.prior_Lam[rows], mode.prior_eta[rows]), Natural(mode.Lam[rows], mode.eta[rows])
    return sound_prior(in_all(Natural(*known.prior_of(design.at(rows), mode.seen[rows])), known.free), before, own)


def map_after(known: MapOfFeatures, design: Design, mode: ModeRows, rows: np.ndarray, new: Natural) -> MapOfFeatures:
    """The map after some rows of a mode, which holds what they were, got new natural parameters."""
    seen = mode.seen[rows]
    for some, is_seen in ((rows[seen], True), (rows[~seen], False)):
        own = new.Lam[seen == is_seen], new.eta[seen == is_seen]
        old = (mode.Lam[some], mode.eta[some]) if is_seen else None
        known = known.with_rows(design.at(some), own, old) if len(some) else known
    return known.learn(design)


def first_map(
    design: Design, expected: Expected, k: int, free: np.ndarray, prior: ModePrior, mode: ModeRows
) -> MapOfFeatures:
    """The map of mode k that a fit has found, of columns `free` (R,) bool; its rows get the prior by it in place."""
    seen, before = mode.seen, (expected.mean[k], expected.scale[k], expected.strength)
    rows, found = np.arange(len(seen)), ModeParameters(prior.mean[k], prior.precision[k], prior.slopes[k])
    known = map_of_fit(free, before, found, design.n_features)
    known = known.with_rows(design.at(rows[seen]), (mode.Lam[seen], mode.eta[seen]), None).with_root()
    mode.prior_Lam[:], mode.prior_eta[:] = in_all(Natural(*known.prior_of(design.at(rows), seen)), free)
    mode.Lam[~seen], mode.eta[~seen] = mode.prior_Lam[~seen], mode.prior_eta[~seen]
    return known


def first_chain(
    clock: Known, expected: Expected, k: int, free: np.ndarray, prior: ModePrior, mode: ModeRows, own: RowSites | None
) -> Chain:
    """What a fit has found of mode k, `free` (R,) bool its columns; `own`, what entries say, is taken off its prior."""
    if own is not None:
        said = in_all(Natural(own.Lam, own.eta), free, 0.0)
        mode.prior_Lam[:], mode.prior_eta[:] = mode.Lam, mode.eta
        mode.prior_Lam[own.place] -= said.Lam
        mode.prior_eta[own.place] -= said.eta
    else:  # rows that were not learned together
        mode.prior_Lam[~mode.seen], mode.prior_eta[~mode.seen] = mode.Lam[~mode.seen], mode.eta[~mode.seen]
    drift, D = prior.drifts[k] if prior.drifts else None, int(free.sum())
    phases = len(clock.phases) if isinstance(clock, Clock) and clock.seasonal else 0
    return Chain(
        free=free,
        centre=expected.mean[k, free],
        width=expected.scale[k, free],
        weight=expected.strength,
        mean=prior.mean[k, free],
        precision=np.diagonal(prior.precision[k])[free].copy(),
        length=np.zeros(D) if drift is None else drift.length[free],
        season=np.zeros((phases, D)) if drift is None else drift.season[:, free],
    )


def rows_together(known: Chain, clock: Known, sites: Natural) -> Natural:
    """The posterior (n, P), (n, R) of all rows of a mode, of which the entries say `sites`, row by row."""
    return in_all(Natural(*known.rows(clock, *sites)), known.free)


def messages_to(rows: Natural, before: Natural, free: np.ndarray) -> Natural:
    """What a batch said of the free columns (R,) bool of its rows, which had a prior `before`; the others are 1."""
    Lam, eta = unpack(rows.Lam - before.Lam, len(free)), rows.eta - before.eta
    return Natural(pack(Lam * np.outer(free, free)), (eta - Lam[:, :, ~free].sum(axis=2)) * free)


def with_messages(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, more: Natural
) -> tuple[Natural, Natural]:
    """What entries say of all rows after messages to some, and the rows then; of unsound messages a share counts."""
    for share in SHARES:  # each row of a batch is a Gaussian with its messages; all together need not be
        told = Natural(*(part.copy() for part in sites))
        for part, new in zip(told, more, strict=True):
            part[rows] += share * new
        with contextlib.suppress(FloatingPointError):
            return told, rows_together(known, clock, told)
    raise FloatingPointError("the rows of a series are no Gaussian any more; use a tighter prior.")


def prior_by_others(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, before: Natural
) -> Natural:
    """The prior of rows of a series, `before`, with what new messages, beside earlier `sites`, tell of each other."""
    told, together = with_messages(known, clock, sites, rows, new)
    said = (site[rows] - old[rows] for site, old in zip(told, sites, strict=True))
    return sound_prior(Natural(*(part[rows] - more for part, more in zip(together, said, strict=True))), before, before)


def smooth(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, seen: np.ndarray
) -> tuple[Chain, Natural, Natural]:
    """A series after new messages to some rows, beside earlier `sites`; what entries say of all rows, and the rows."""
    told, together = with_messages(known, clock, sites, rows, new)
    with contextlib.suppress(FloatingPointError):  # under the law so far they are sound
        later = known.after(clock, seen, *told)
        known, together = later, rows_together(later, clock, told)
    return known, told, together


def with_new_rows(
    known: Chain, clock: Known, mode: ModeRows, first: int, last: int, labels: Sequence[Any] | None, name: Any
) -> tuple[Chain, Known]:
    """A series whose new rows are forecast in place, and its axis; labels without a place there are refused."""
    if isinstance(clock, Net):
        clock = clock._replace(n=last)
    elif labels is None:
        clock = clock.with_times(np.arange(first, last) / clock.step, range(first, last), f"Series of mode {name!r}")
    else:
        times = clock.times_of(pd.Index(labels, tupleize_cols=False))
        clock = clock.with_times(times, labels, f"Series of mode {name!r}")
    # of new phases no season is known
    more = len(clock.phases) - len(known.season) if isinstance(clock, Clock) and clock.seasonal else 0
    known = known._replace(season=np.append(known.season, np.zeros((more, len(known.mean))), 0)) if more else known
    sites = mode.sites(last)
    for part in sites:
        part[first:] = 0.0
    forecast = Natural(*(part[first:] for part in rows_together(known, clock, sites)))
    for Lam, eta in ((mode.Lam, mode.eta), (mode.prior_Lam, mode.prior_eta)):
        Lam[first:last], eta[first:last] = forecast
    return known, clock


def modes_of(chains: Sequence[Chain | None], mean: np.ndarray, cov: np.ndarray) -> ModePrior:
    """The laws of chains as those of a fit; `mean` (K, R), `cov` (K, R, R) are those of a row that is not known."""
    drifts: list[Drift | None] = [None] * len(chains)
    for k, known in enumerate(chains):
        if known is not None:
            drifts[k] = drift = Drift(np.zeros(len(known.free)), np.zeros((len(known.season), len(known.free))))
            drift.length[known.free], drift.season[:, known.free] = known.length, known.season
    return ModePrior(mean, np.linalg.inv(cov), (), tuple(drifts))


# Rows that deviate along the axis of another mode, each by itself (`Series(local=)`).
#
# In a batch the pairs of a row and a time are the rows of one more mode, whose only free column is one that all other
# modes have clamped to 1. What all entries so far say of a pair is kept, and the pairs of each row follow each other as
# the rows of a series do: those that a batch brings are forecast from the row's others, and after it all are smoothed,
# and the law of their scale and length is learned on.


class PairRows(NamedTuple):
    """What is known of the pairs so far, in the order of their rows and times."""

    modes: tuple[int, int]  # the mode whose rows deviate, and the one that is a series
    row: Annotated[np.ndarray, Sized("p", "i")]  # of the first of the modes
    along: Annotated[np.ndarray, Sized("p", "i")]  # of the second
    Lam: Annotated[np.ndarray, Sized("p")]  # natural parameters of the posterior
    eta: Annotated[np.ndarray, Sized("p")]
    told_Lam: Annotated[np.ndarray, Sized("p")]  # of these what the entries say
    told_eta: Annotated[np.ndarray, Sized("p")]
    width: float  # the standard deviation that was expected
    weight: float  # how many times as much as by default that counts
    precision: float  # these two: of the process
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
        times = clock.times[self.along]
        return clock._replace(times=times, groups=self.row, period=0.0, phases=np.zeros(1), order=())

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

    def prior_by_other_rows(
        self, clock: Clock, used: np.ndarray, problem: Problem, posterior: Posterior
    ) -> tuple[Natural, bool]:
        """The prior of the pairs of a batch with what those of one row tell of each other, and whether any do."""
        n = sum(problem.shape[:-1])
        before = Natural(problem.prior.Lam[n:, -1:], problem.prior.eta[n:, -1:])
        if len(np.unique(self.row[used])) == len(used):
            return before, False
        new = messages_to_pairs(problem, posterior)
        return prior_by_others(self.chain, self.clock(clock), self.told, used, new, before), True

    def after(self, clock: Clock, used: np.ndarray, problem: Problem, posterior: Posterior) -> PairRows:
        """The pairs after a batch of those used."""
        seen, new = np.ones(len(self.row), dtype=bool), messages_to_pairs(problem, posterior)
        known, told, rows = smooth(self.chain, self.clock(clock), self.told, used, new, seen)
        Lam, eta, told_Lam, told_eta = (part[:, 0].copy() for part in (*rows, *told))
        precision, length = float(known.precision[0]), float(known.length[0])
        return self._replace(Lam=Lam, eta=eta, told_Lam=told_Lam, told_eta=told_eta, precision=precision, length=length)

    def deviations(self, clock: Clock, sizes: Sequence[int]) -> Deviations:
        """As the deviations of a fit, to modes of these sizes."""
        pairs = {"row": self.row, "time": clock.times[self.along], "times": clock.times}
        law = {"precision": np.array([self.precision]), "length": np.array([self.length])}
        moments = {"mean": (self.eta / self.Lam)[None], "variance": (1.0 / self.Lam)[None]}
        told = np.stack([self.told_Lam, self.told_eta])
        return deviations_of(self.modes, sizes, **pairs, **law, **moments, told=told)


def first_pairs(of: Any, clock: Clock, expected: Any, free: np.ndarray) -> PairRows:
    """The pairs of a fit that deviate along this axis, `free` (K, R) bool its free columns."""
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


def with_pairs(rows: Natural, pairs: Natural) -> Natural:
    """Rows in one more column, clamped to 1, and after them pairs (q, 1), whose only free column that is."""
    last = np.arange(rows.eta.shape[1] + 1) == rows.eta.shape[1]
    both = zip(in_all(rows, ~last), in_all(pairs, last), strict=True)
    return Natural(*(np.concatenate(parts) for parts in both))


def messages_to_pairs(problem: Problem, posterior: Posterior) -> Natural:
    """What a batch with this posterior said of its pairs, (q, 1) each."""
    n, R, before = sum(problem.shape[:-1]), problem.rank - 1, problem.prior
    Lam, P = posterior.Lam[n:] - before.Lam[n:], R * (R + 1) // 2
    eta = posterior.eta[n:, -1:] - before.eta[n:, -1:]
    return Natural(Lam[:, -1:], eta - Lam[:, P:-1].sum(axis=1, keepdims=True))


# All modes together, with what is known of the noise and a dispersion.


class StreamState(NamedTuple):
    """What is known after the batches so far; files hold features and axes with the model."""

    rank: int
    sizes: tuple[int, ...]  # the rows in use of each mode
    modes: tuple[ModeRows, ...]
    noise: GammaNoise | None
    noise_prior: GammaNoise | None  # the first one
    time: float  # of the last batch
    dispersion: Dispersion | None = None
    maps: tuple[MapOfFeatures | None, ...] = ()  # per mode what is known of the map from its features to prior means
    designs: tuple[Any, ...] = ()  # these features
    chains: tuple[Chain | None, ...] = ()  # of modes that are series or graphs: `ModeRows` have what other rows say
    clocks: tuple[Any, ...] = ()  # as their prior; the axes of these
    pairs: PairRows | None = None  # of rows that deviate along the axis of another mode

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays, which must have room for the rows in use."""
        if any(len(mode.seen) < n for mode, n in zip(self.modes, self.sizes, strict=True)):
            raise ValueError("the arrays of the stream do not fit its shape")
        return {name: size for name, size in row_dims(self.sizes, self.rank).items() if name in "KRP"}

    @property
    def clock_of_pairs(self) -> Any:
        """The axis along which rows deviate; None where they do not."""
        return None if self.pairs is None else self.clocks[self.pairs.modes[1]]

    def rows_at(self, k: int, rows: np.ndarray, keep: float, time: float) -> Natural:
        """Some rows of mode k at a time, with the prior that their features give them by now."""
        known, mode = self.maps[k] if self.maps else None, self.modes[k]
        return mode.at(rows, keep, time, None if known is None else prior_now(known, self.designs[k], mode, rows))


def begin(
    posterior: Posterior, prior_Lam: np.ndarray, prior_eta: np.ndarray, noise_prior: GammaNoise | None, time: float
) -> StreamState:
    """The state after a first batch, of which the packed posterior and prior are given."""
    packed = (posterior.Lam, posterior.eta, prior_Lam, prior_eta, posterior.seen, np.full(len(prior_eta), time))
    first = offsets(posterior.shape)
    modes = tuple(ModeRows(*(array[a:b].copy() for array in packed)) for a, b in itertools.pairwise(first))
    return StreamState(posterior.rank, posterior.shape, modes, posterior.noise, noise_prior, time, posterior.dispersion)


def with_laws(state: StreamState, fit: FitResult, free: np.ndarray) -> StreamState:
    """The state that goes on with the laws of a fit's rows, of its `free` (K, R) columns; rows are changed in place."""
    posterior: Any = first_member(fit.posterior)
    prior, of, expected, clocks = posterior.mode_prior, posterior.deviations, fit.expected, fit.series
    if prior is not None and expected is not None and any(prior.slopes):
        maps = tuple(
            None if design is None or not own.any() else first_map(design, expected, k, own, prior, mode)
            for k, (design, own, mode) in enumerate(zip(fit.features, free, state.modes, strict=True))
        )
        state = state._replace(maps=maps, designs=fit.features)
    if prior is not None and expected is not None and any(clock is not None for clock in clocks):
        sites = posterior.sites or (None,) * len(clocks)
        chains = tuple(
            None if clock is None or not own.any() else first_chain(clock, expected, k, own, prior, mode, sites[k])
            for k, (clock, own, mode) in enumerate(zip(clocks, free, state.modes, strict=True))
        )
        state = state._replace(chains=chains, clocks=tuple(clocks))
    return state if of is None else state._replace(pairs=first_pairs(of, state.clocks[of.modes[1]], expected, free))


def with_rows(
    state: StreamState, sizes: Sequence[int], prior_of: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]
) -> StreamState:
    """The state with at least `sizes[k]` rows of mode k; ``prior_of(k, first, last)`` is the prior of new rows."""
    modes, sizes = list(state.modes), tuple(max(int(n), old) for n, old in zip(sizes, state.sizes, strict=True))
    for k, (old, new) in enumerate(zip(state.sizes, sizes, strict=True)):
        if new == old:
            continue
        if new > len(modes[k].seen):
            room = max(new, int(GROWTH * old)) - old
            each = ((own[:old], np.zeros((room, *own.shape[1:]), dtype=own.dtype)) for own in modes[k])
            modes[k] = ModeRows(*map(np.concatenate, each))
        Lam, eta = prior_of(k, old, new)
        for array, value in zip(modes[k], (Lam, eta, Lam, eta, False, state.time), strict=True):
            array[old:new] = value
    return state._replace(modes=tuple(modes), sizes=sizes)


def forecast(
    state: StreamState, before: Sequence[int], coords: np.ndarray, labels: Sequence[Any], names: Sequence[Any]
) -> StreamState:
    """The state whose new rows of series, from `before` on, and pairs of entries (n, K) are forecast from others."""
    # only their lines are changed in place; of modes without labels these are None
    clocks, chains = list(state.clocks), list(state.chains)
    for k, known in enumerate(state.chains):
        first, n = before[k], state.sizes[k]
        if known is not None and n > first:
            new = known, clocks[k], state.modes[k], first, n, labels[k], names[k]
            chains[k], clocks[k] = with_new_rows(*new)
    state = state._replace(clocks=tuple(clocks), chains=tuple(chains))
    return state if state.pairs is None else state._replace(pairs=state.pairs.with_new(state.clock_of_pairs, coords))


def posterior_of(state: StreamState, keep: float) -> Posterior:
    """The posterior of all rows at the time of the last batch, packed."""
    parts = [state.rows_at(k, np.arange(n), keep, state.time) for k, n in enumerate(state.sizes)]
    Lam, eta = (np.concatenate(part) for part in zip(*parts, strict=True))
    seen = np.concatenate([mode.seen[:n] for mode, n in zip(state.modes, state.sizes, strict=True)])
    pairs = None if state.pairs is None else state.pairs.deviations(state.clock_of_pairs, state.sizes)
    return Posterior(state.sizes, state.rank, Lam, eta, state.noise, seen, state.dispersion, deviations=pairs)
