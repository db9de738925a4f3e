"""A uniform sample, of bounded size, of the entries that a stream has seen, with the messages that they sent.

Source: Vitter, Random sampling with a reservoir, algorithm R. Where we differ: the draw of an entry follows from the
seed and its number alone, so that there is no random state to store.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.records import Sized
from tensorcep.cp.messages.sent import Messages
from tensorcep.kernels.slots import LANES

# Keeps the draws apart from those of the prior means of new rows, which the same seed gives.
RESERVOIR_DRAWS = (0, 1)


class Sample(NamedTuple):
    """M entries and the messages that they sent.

    Attributes
    ----------
    coords : (M, K) int64
    y : (M,) float64
        Values as the likelihood has them.
    born : (M,) float64
        Time of the batch that they came in.
    Lam, eta : (M, K, P), (M, K, R) float64
        Natural parameters of the message to the row of each mode, as they are part of the rows' posterior.
    a, b : (M,) float64
        Messages to the noise; zero for likelihoods without one.
    """

    coords: Annotated[np.ndarray, Sized("M K", "i")]
    y: Annotated[np.ndarray, Sized("M")]
    born: Annotated[np.ndarray, Sized("M")]
    Lam: Annotated[np.ndarray, Sized("M K P")]
    eta: Annotated[np.ndarray, Sized("M K R")]
    a: Annotated[np.ndarray, Sized("M")]
    b: Annotated[np.ndarray, Sized("M")]

    def at(self, where: np.ndarray) -> Sample:
        """Some of the entries."""
        return Sample(*(values[where] for values in self))


class Reservoir(NamedTuple):
    """The sample, and counts: entries seen, revisits of an entry, and revisits that were skipped."""

    sample: Sample
    seen: int = 0
    revisited: int = 0
    skipped: int = 0


def empty_reservoir(K: int, rank: int) -> Reservoir:
    """A reservoir that has seen nothing."""
    P, none = rank * (rank + 1) // 2, np.zeros(0)
    coords = np.zeros((0, K), dtype=np.int64)
    return Reservoir(Sample(coords, none, none, np.zeros((0, K, P)), np.zeros((0, K, rank)), none, none))


def messages_at(sent: Messages, lanes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The fields Lam, eta, a, b of a Sample for the entries at these lanes, counted through all blocks."""
    block, lane = np.divmod(lanes, LANES)
    Lam, eta = (values[block, :, :, lane].astype(np.float64) for values in (sent.Lam, sent.eta))
    if len(sent.a) == 0:
        return Lam, eta, np.zeros(len(lanes)), np.zeros(len(lanes))
    return Lam, eta, sent.a[block, lane], sent.b[block, lane]


def in_all_columns(Lam: np.ndarray, eta: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Messages to the free columns (K, R) bool of each mode, as messages to all; clamped columns get none."""
    K, R = free.shape
    all_Lam, all_eta = np.zeros((len(Lam), K, R * (R + 1) // 2)), np.zeros((len(eta), K, R))
    for k, columns in enumerate(np.flatnonzero(row) for row in free):
        i, j = np.tril_indices(len(columns))
        all_Lam[:, k, columns[i] * (columns[i] + 1) // 2 + columns[j]] = Lam[:, k, : len(i)]
        all_eta[:, k, columns] = eta[:, k, : len(columns)]
    return all_Lam, all_eta


def aged(sample: Sample, weight: float, noise_weight: float) -> Sample:
    """The sample after forgetting, which scales messages as it does the rows' posterior."""
    if weight == 1.0:
        return sample
    scaled = {"Lam": weight * sample.Lam, "eta": weight * sample.eta}
    return sample._replace(**scaled, a=noise_weight * sample.a, b=noise_weight * sample.b)


def resized(reservoir: Reservoir, capacity: int) -> Reservoir:
    """The reservoir with no more entries than its capacity."""
    return reservoir._replace(sample=reservoir.sample.at(np.arange(min(len(reservoir.sample.y), capacity))))


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
    arrived: tuple[np.ndarray, np.ndarray, float],
    permutation: np.ndarray,
    sent: Messages,
    *,
    seed: int,
    capacity: int,
    free: np.ndarray | None = None,
) -> Reservoir:
    """The reservoir after the new entries of a batch; those that give way leave their messages in the posterior.

    Parameters
    ----------
    reservoir : Reservoir
    arrived : tuple of (n, K) int64, (n,) float64, float
        Coordinates, values and time of the new entries: the first n of the batch.
    permutation : (N,) int32 or int64
        Entry of the batch that each lane holds. Its order is that of the draws, so that the order of the input does
        not matter.
    sent : Messages
    seed, capacity : int
    free : (K, R) bool, optional
        Columns that the messages are for, where they are not for all.
    """
    coords, y, time = arrived
    sample, n = reservoir.sample, len(y)
    lanes = np.flatnonzero(permutation < n)
    slots = slots_of_new(seed, reservoir.seen, n, len(sample.y), capacity)
    taken = np.flatnonzero(slots >= 0)[::-1]
    slots, latest = np.unique(slots[taken], return_index=True)  # of those that want one place, the last has it
    lanes = lanes[taken[latest]]
    entry = permutation[lanes]
    Lam, eta, a, b = messages_at(sent, lanes)
    if free is not None:
        Lam, eta = in_all_columns(Lam, eta, free)
    new = Sample(coords[entry], y[entry], np.full(len(entry), time), Lam, eta, a, b)
    size = max(len(sample.y), int(slots.max(initial=-1)) + 1)
    return reservoir._replace(sample=_placed(sample, new, slots, size), seen=reservoir.seen + n)


def _placed(sample: Sample, new: Sample, slots: np.ndarray, size: int) -> Sample:
    fields = []
    for old, values in zip(sample, new, strict=True):
        field = np.zeros((size, *old.shape[1:]), dtype=old.dtype)
        field[: len(old)] = old
        field[slots] = values
        fields.append(field)
    return Sample(*fields)
