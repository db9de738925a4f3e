"""Entries that a stream keeps: those of its beginning, and a uniform sample of bounded size with their messages.

Entries of the sample, the reservoir, are learned again with every batch. The messages that an entry sent are taken out
of the rows' posterior, the entry joins the batch and sends new ones: a sweep of CEP over entries of the past, for which
the posterior of the stream serves as the rest of the data. So what the first batches said is corrected by what is known
now, as far as the reservoir reaches.

Source: Vitter, Random sampling with a reservoir, algorithm R; the cavity of Wang and Zhe, Conditional Expectation
Propagation, sec. 3, applied to whole batches. Where we differ: the draw of an entry follows from the seed and its
number alone, so that there is no random state to store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import diagonal
from tensorcep.core.persist.records import Sized
from tensorcep.cp.calibration.prequential import Standing
from tensorcep.cp.fit.outcome import moved_up
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.messages.engine import Messages
from tensorcep.cp.model.subsets import telling
from tensorcep.cp.posterior import GammaNoise, Posterior
from tensorcep.cp.stream.adf import BatchProblem, batch_of
from tensorcep.cp.stream.modes import ModeRows, StreamState
from tensorcep.kernels.slots import LANES
from tensorcep.priors.base import moments_of
from tensorcep.priors.features import Design
from tensorcep.priors.fixed import FixedPrior

# Keeps the draws apart from those of the prior means of new rows, which the same seed gives.
RESERVOIR_DRAWS = (0, 1)
# A row without the messages may be this many times as wide as the prior; beyond that the precision that is left is a
# difference without digits, or the rest of the messages is not a Gaussian by itself.
MAX_WIDENING = 10.0
# The same for the noise: the least share of (a, b) that may be left.
MIN_NOISE_SHARE = 1e-9


class Kept(NamedTuple):
    """The entries of a stream that is still beginning, or by which it is held against a fit."""

    coords: Annotated[np.ndarray, Sized("N K", "i")]
    values: Annotated[np.ndarray, Sized("N")]
    fitted: int  # those of the last joint fit, which come first, or those at the last comparison with one
    prior: str | None = None  # that of the stream when there is no more doubt of it
    power: Annotated[np.ndarray, Sized("N")] | None = None  # how much each counts (None: once)
    extent: Annotated[np.ndarray, Sized("N")] | None = None  # exposure, in the model's unit, or number of trials
    # of entries that are not learned again, the log score of each before it was learned, 0 in the first batch
    score: Annotated[np.ndarray, Sized("N")] | None = None

    def at(self, where: np.ndarray | slice) -> Kept:
        """Some of the entries."""
        parts: Any = (part[where] if isinstance(part, np.ndarray) else part for part in self)
        return Kept(*parts)

    def with_batch(self, new: Kept) -> Kept:
        """These entries and those of a batch; numbers beside them are 1 where only others have some."""
        both: dict[str, Any] = {}
        for name, *parts in zip(self._fields, self, new, strict=True):
            if any(isinstance(part, np.ndarray) for part in parts):
                own = zip(parts, (self, new), strict=True)
                both[name] = np.concatenate([np.ones(len(of.values)) if part is None else part for part, of in own])
        return self._replace(**both)

    @property
    def n_telling(self) -> int:
        """How many of them tell."""
        return len(self.values[telling(self.power)])


class Sample(NamedTuple):
    """M entries, and the messages that they sent."""

    coords: Annotated[np.ndarray, Sized("M K", "i")]
    y: Annotated[np.ndarray, Sized("M")]
    born: Annotated[np.ndarray, Sized("M")]  # the times of the batches that they came in
    Lam: Annotated[np.ndarray, Sized("M K P")]  # natural parameters of the message to the row of each mode, as they
    eta: Annotated[np.ndarray, Sized("M K R")]  # are part of the rows' posterior
    a: Annotated[np.ndarray, Sized("M")]  # messages to the noise, zero for likelihoods without one
    b: Annotated[np.ndarray, Sized("M")]

    def at(self, where: np.ndarray) -> Sample:
        """Some of the entries."""
        return Sample(*(values[where] for values in self))

    def scaled(self, share: float | np.ndarray, of_noise: float | np.ndarray) -> Sample:
        """With a share of the messages, one for all or (M,)."""
        each = np.reshape(share, (-1, 1, 1))
        return self._replace(Lam=each * self.Lam, eta=each * self.eta, a=of_noise * self.a, b=of_noise * self.b)

    def with_placed(self, new: Sample, slots: np.ndarray) -> Sample:
        """With other entries at some places, which may be beyond the last one."""
        more = max(0, int(slots.max(initial=-1)) + 1 - len(self.y))
        fields = [np.concatenate([old, np.zeros((more, *old.shape[1:]), dtype=old.dtype)]) for old in self]
        for field, values in zip(fields, new, strict=True):
            field[slots] = values
        return Sample(*fields)


class Reservoir(NamedTuple):
    """The sample, and counts: entries seen, revisits of an entry, and revisits that were skipped."""

    sample: Sample
    seen: int = 0
    revisited: int = 0
    skipped: int = 0

    @classmethod
    def empty(cls, K: int, rank: int) -> Reservoir:
        """A reservoir that has seen nothing."""
        none, coords, Lam = np.zeros(0), np.zeros((0, K), dtype=np.int64), np.zeros((0, K, rank * (rank + 1) // 2))
        return cls(Sample(coords, none, none, Lam, np.zeros((0, K, rank)), none, none))


def messages_at(sent: Messages, lanes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The fields Lam, eta, a, b of a Sample for the entries at these lanes, counted through all blocks."""
    block, lane = np.divmod(lanes, LANES)
    Lam, eta = (values[block, :, :, lane].astype(np.float64) for values in (sent.Lam, sent.eta))
    to_noise = (part[block, lane] if len(part) else np.zeros(len(lanes)) for part in (sent.a, sent.b))
    return Lam, eta, *to_noise


def slots_of_new(seed: int, seen: int, n: int, held: int, capacity: int) -> np.ndarray:
    """Place in the reservoir of each of n new entries, (n,); -1 for those that are not taken."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, *RESERVOIR_DRAWS]))
    generator.advance(seen)
    number = seen + 1 + np.arange(n)
    slots = (np.random.Generator(generator).random(n) * number).astype(np.int64)
    slots[slots >= capacity] = -1
    free = min(n, capacity - held)
    slots[:free] = held + np.arange(free)
    return slots


def with_new(
    reservoir: Reservoir,
    arrived: tuple[np.ndarray, np.ndarray, float],  # coordinates (n, K), values (n,), time: the first n of the batch
    permutation: np.ndarray,  # (N,), which entry of the batch each lane holds; draws are in this order, not the input's
    sent: Messages,
    *,
    seed: int,
    capacity: int,
    free: np.ndarray | None = None,  # (K, R) bool, the columns that the messages are for, where they are not for all
) -> Reservoir:
    """The reservoir after the new entries of a batch; those that give way leave their messages in the posterior."""
    coords, y, time = arrived
    sample, n = reservoir.sample, len(y)
    lanes = np.flatnonzero(permutation < n)
    slots = slots_of_new(seed, reservoir.seen, n, len(sample.y), capacity)
    taken = np.flatnonzero(slots >= 0)[::-1]
    slots, latest = np.unique(slots[taken], return_index=True)  # of those that want one place, the last has it
    lanes = lanes[taken[latest]]
    entry, (Lam, eta, a, b) = permutation[lanes], messages_at(sent, lanes)
    if free is not None:  # clamped columns get no messages
        of_modes = [Natural(Lam[:, k, : d * (d + 1) // 2], eta[:, k, :d]) for k, d in enumerate(free.sum(axis=1))]
        in_columns = (in_all(own, row, 0.0) for own, row in zip(of_modes, free, strict=True))
        Lam, eta = (np.stack(part, axis=1) for part in zip(*in_columns, strict=True))
    new = Sample(coords[entry], y[entry], np.full(len(entry), time), Lam, eta, a, b)
    return reservoir._replace(sample=sample.with_placed(new, slots), seen=reservoir.seen + n)


class Revisit(NamedTuple):
    """A batch that revisits entries."""

    batch: BatchProblem  # the `n` new entries first, then the revisited ones, whose messages the prior does not hold
    n: int
    rows: np.ndarray  # (m, K) int64, the packed rows of the revisited entries in the problem
    held: np.ndarray  # (m,) int64, where the reservoir holds the revisited entries
    reservoir: Reservoir  # before the batch, at the time of the batch
    limit: np.ndarray  # (n_rows, R), largest variance that a row of the batch may get when messages are taken out
    keep: float  # what remains of a row's information after one unit of time
    noise_forgets: bool  # whether the noise is forgotten, too
    seed: int
    capacity: int


def revisit(
    state: StreamState, reservoir: Reservoir, coords: np.ndarray, y: np.ndarray, *, capacity: int, **how: Any
) -> Revisit:
    """Join a batch, coords (n, K) and y (n,), with the reservoir; `how` is the rest that `adf.batch_of` takes."""
    keep, time, seed = (how[name] for name in ("keep", "time", "seed"))
    noise_forgets, weight = state.noise_prior is not None, keep ** max(0.0, time - state.time)
    index = np.arange(min(len(reservoir.sample.y), capacity))
    sample = reservoir.sample.at(index).scaled(weight, weight if noise_forgets else 1.0)  # as it does the rows
    while True:
        chosen = sample.at(index)
        both = np.concatenate([coords, chosen.coords]), np.concatenate([y, chosen.y])
        batch = batch_of(state, *both, **how)
        parts = [(mode.prior_Lam[at], mode.prior_eta[at]) for mode, at in zip(state.modes, batch.used, strict=True)]
        limit = widest(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        rows, prior, noise = batch.rows[len(y) :], batch.problem.prior, batch.problem.noise_prior
        Lam, eta = subtracted(prior.Lam, prior.eta, rows, chosen)
        left = noise_without(noise, chosen)
        # without whose messages a row would not be a Gaussian, or nearly none: these are not revisited
        needed = unsound(Lam, eta, limit)[rows].any(axis=1) | (not is_left(left, noise))
        if not needed.any():
            break
        index = index[~needed]
    n_skipped = len(sample.y) - len(index)
    counted = Reservoir(sample, reservoir.seen, reservoir.revisited + len(index), reservoir.skipped + n_skipped)
    if len(index):
        start = moments_of(prior.Lam, prior.eta)[0]  # where the rows were with the messages
        problem = batch.problem._replace(prior=FixedPrior(Lam, eta), noise_prior=left, start=start)
        batch = batch._replace(problem=problem)
    return Revisit(batch, len(y), rows, index, counted, limit, keep, noise_forgets, seed, capacity)


def after_revisit(
    made: Revisit, posterior: Posterior, sent: Messages, step: float = 1.0
) -> tuple[Posterior, Reservoir]:
    """The posterior, which went a `step` of the way to these messages of a batch, and the reservoir after it."""
    permutation, batch, n = made.batch.problem.entries.permutation, made.batch, made.n
    lanes, chosen = np.argsort(permutation)[n:], made.reservoir.sample.at(made.held)
    if step < 1.0:
        sent = Messages(*(step * part for part in sent))
    again = messages_at(sent, lanes)
    if step < 1.0:
        again = tuple((1.0 - step) * before + new for before, new in zip(chosen[3:], again, strict=True))
    chosen = Sample(chosen.coords, chosen.y, chosen.born, *again)
    if made.keep < 1.0 and len(lanes):  # a revisited entry sends again the share of its message that its age leaves
        lost = 1.0 - made.keep ** np.maximum(0.0, made.batch.time - chosen.born)
        while True:  # but for what a row cannot do without
            part = chosen.scaled(lost, lost if made.noise_forgets else 0.0)
            Lam, eta = subtracted(posterior.Lam, posterior.eta, made.rows, part)
            needed = unsound(Lam, eta, made.limit)[made.rows].any(axis=1) & (lost > 0.0)
            if not needed.any():
                break
            lost = np.where(needed, 0.0, lost)
        chosen = Sample(*chosen[:3], *(own - less for own, less in zip(chosen[3:], part[3:], strict=True)))
        posterior = posterior._replace(Lam=Lam, eta=eta, noise=noise_without(posterior.noise, part))
    reservoir = made.reservoir._replace(sample=made.reservoir.sample.with_placed(chosen, made.held))
    new = batch.coords[:n], batch.y[:n], batch.time
    return posterior, with_new(reservoir, new, permutation, sent, seed=made.seed, capacity=made.capacity)


def with_messages(made: Revisit) -> tuple[np.ndarray, np.ndarray, GammaNoise | None]:
    """What the rows of the batch, and the noise, were with the messages of the entries that it revisits."""
    problem, lost = made.batch.problem, made.reservoir.sample.at(made.held).scaled(-1.0, -1.0)
    lines = subtracted(problem.prior.Lam, problem.prior.eta, made.rows, lost)
    return *lines, noise_without(problem.noise_prior, lost)


def noise_without(noise: GammaNoise | None, sample: Sample) -> GammaNoise | None:
    """A noise, if there is one, without the messages of a sample."""
    return None if noise is None else GammaNoise(noise.a - float(sample.a.sum()), noise.b - float(sample.b.sum()))


def is_left(noise: GammaNoise | None, before: GammaNoise | None) -> bool:
    """Whether enough is left of a noise, if there is one."""
    return noise is None or before is None or min(noise.a / before.a, noise.b / before.b) > MIN_NOISE_SHARE


def subtracted(Lam: np.ndarray, eta: np.ndarray, rows: np.ndarray, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of packed rows without the messages of a sample, whose packed rows are rows (m, K)."""
    Lam, eta, to = Lam.copy(), eta.copy(), rows.ravel()
    np.subtract.at(Lam, to, sample.Lam.reshape(len(to), Lam.shape[1]))
    np.subtract.at(eta, to, sample.eta.reshape(len(to), eta.shape[1]))
    return Lam, eta


def unsound(Lam: np.ndarray, eta: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Whether a row is no Gaussian, or has a variance above its limit, (n_rows,) bool."""
    _, cov, good = moments_of(Lam, eta)
    return np.asarray((good <= 0.0) | (cov[:, diagonal(eta.shape[1])] > limit).any(axis=1))


def widest(prior_Lam: np.ndarray, prior_eta: np.ndarray) -> np.ndarray:
    """Largest variances (n_rows, R) that rows with these priors may get when messages are taken out."""
    return np.asarray(MAX_WIDENING * moments_of(prior_Lam, prior_eta)[1][:, diagonal(prior_eta.shape[1])])


# What a model that learns from a stream keeps, and what a file holds of it.


def without_entries(
    state: StreamState, reservoir: Reservoir, gone: np.ndarray, keep: float, whole: bool
) -> tuple[StreamState, Reservoir, int]:
    """The stream without the messages of entries that are `gone`, (M,) bool, and how many rows begin again."""
    sample = reservoir.sample
    lost, left = sample.at(gone), sample.at(~gone)
    found = [_mode_without(mode, k, lost, left, keep, state.time, whole) for k, mode in enumerate(state.modes)]
    noise = noise_without(state.noise, lost)
    noise = noise if is_left(noise, state.noise) else state.noise_prior
    dispersion = None if whole else state.dispersion  # it has no messages: it is to be learned anew
    state = state._replace(modes=tuple(mode for mode, _ in found), noise=noise, dispersion=dispersion)
    reservoir = reservoir._replace(sample=left, seen=reservoir.seen - int(gone.sum()))
    return state, reservoir, sum(reset for _, reset in found)


def _mode_without(
    mode: ModeRows, k: int, lost: Sample, left: Sample, keep: float, time: float, whole: bool
) -> tuple[ModeRows, int]:
    """One mode of `without_entries`, on its own arrays, and how many of its rows begin again."""
    # those that are no Gaussian without these entries, from their prior with the messages of entries that are left; if
    # the reservoir held the `whole` stream, rows that are without any entry are at their prior again, unseen
    rows = np.unique(lost.coords[:, k])
    prior = mode.prior_Lam[rows], mode.prior_eta[rows]
    Lam, eta = _summed(*mode.at(rows, keep, time), rows, lost, k, -1.0)
    again = unsound(Lam, eta, widest(*prior))
    empty = ~np.isin(rows, left.coords[:, k]) & whole
    begun = _summed(*prior, rows, left.at(np.isin(left.coords[:, k], rows)), k, 1.0)
    for part, base, anew in zip((Lam, eta), prior, begun, strict=True):
        part[again] = anew[again]
        part[empty] = base[empty]
    new = ModeRows(*(array.copy() for array in mode))
    new.Lam[rows], new.eta[rows], new.time[rows] = Lam, eta, time
    new.seen[rows[empty]] = False
    return new, int((again & ~empty).sum())


def _summed(
    Lam: np.ndarray, eta: np.ndarray, rows: np.ndarray, sample: Sample, k: int, sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of some rows of mode k with the messages of a sample, or (sign -1) without them."""
    one = sample._replace(Lam=-sign * sample.Lam[:, [k]], eta=-sign * sample.eta[:, [k]])
    return subtracted(Lam, eta, np.searchsorted(rows, sample.coords[:, [k]]), one)


def without_rows(stream: Stream, k: int, dropped: np.ndarray) -> Stream:
    """The stream without some rows of mode k, which no entry of its reservoir may refer to."""
    state, held, known = stream.state, stream.reservoir, stream.keys[k]
    mode = ModeRows(*(np.delete(array[: state.sizes[k]], dropped, axis=0) for array in state.modes[k]))
    modes = tuple(mode if j == k else own for j, own in enumerate(state.modes))
    sizes = tuple(size - len(dropped) * (j == k) for j, size in enumerate(state.sizes))
    if held is not None:
        held = held._replace(sample=held.sample._replace(coords=moved_up(held.sample.coords, k, dropped)))
    out, keys = set(dropped.tolist()), list(stream.keys)
    if known is not None:
        keys[k] = {key: at for at, key in enumerate(key for at, key in enumerate(known) if at not in out)}
    return stream._replace(state=state._replace(modes=modes, sizes=sizes), reservoir=held, keys=tuple(keys))


class Stream(NamedTuple):
    """What a model that learns from a stream keeps beside its parameters."""

    state: StreamState
    keys: tuple[dict[Any, int] | None, ...]  # per mode with labels the row of each label
    names: tuple[Any, ...]
    seed: int
    uniform: bool  # prior means of new rows are drawn, by the seed (prior_mean="uniform"), or the mode's average
    reservoir: Reservoir | None = None
    standing: Standing = Standing()  # how well the stream predicts
    kept: Kept | None = None  # its entries while it is beginning
    watched: Kept | None = None  # those by which it is held against a fit


class StoredStream(NamedTuple):
    """What a file holds of a `Stream`."""

    state: StreamState
    seed: int
    uniform: bool
    reservoir: Reservoir | None
    standing: Standing = Standing()
    kept: Kept | None = None
    watched: Kept | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        return self.state.dims()


def keys_of(labels: Sequence[Any]) -> tuple[tuple[dict[Any, int] | None, ...], tuple[Any, ...]]:
    """Per mode the row of each label, and the names of the modes; None where there are no labels."""
    keys = tuple(None if found is None else {key: i for i, key in enumerate(found)} for found in labels)
    return keys, tuple(None if found is None else found.name for found in labels)


def stored_stream(stream: Stream) -> StoredStream:
    """What a file holds of a stream: only the rows in use; its labels, features and axes are those of the model."""
    state = stream.state
    modes = (ModeRows(*(array[:n] for array in mode)) for mode, n in zip(state.modes, state.sizes, strict=True))
    shared = {name: getattr(stream, name) for name in StoredStream._fields}
    return StoredStream(**{**shared, "state": state._replace(modes=tuple(modes), designs=(), clocks=())})


def stream_of(
    stored: StoredStream, labels: Sequence[Any], designs: tuple[Design | None, ...] = (), clocks: tuple[Any, ...] = ()
) -> Stream:
    """The stream that a file holds, with what the model has of modes; deviations of other rows are refused."""
    state = stored.state
    if state.pairs is not None and not state.pairs.fits(state.sizes, clocks):
        raise ValueError("its deviations do not fit its stream")
    keys, names = keys_of(labels)
    state = state._replace(designs=designs if state.maps else state.designs)
    state = state._replace(clocks=clocks if state.chains else state.clocks)
    return Stream(keys=keys, names=names, **{**stored._asdict(), "state": state})
