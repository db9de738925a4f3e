"""Taking entries of a stream's reservoir out of what the stream knows: decremental ADF.

The posterior is prior x messages, and the reservoir holds the messages of its entries. Those of the entries to forget
are divided out; what is left of the reservoir is then learned again, as with any batch that revisits it. Where the
reservoir holds every entry, that is CEP on the entries that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise
from tensorcep.cp.stream.adf import ModeRows, StreamState
from tensorcep.cp.stream.featured import at_time
from tensorcep.cp.stream.reservoir import Reservoir, Sample
from tensorcep.cp.stream.revisit import MIN_NOISE_SHARE, subtracted, unsound, widest
from tensorcep.cp.stream.standing import Kept


class Without(NamedTuple):
    """A stream without some entries of its reservoir, on arrays of its own.

    Attributes
    ----------
    state, reservoir : StreamState, Reservoir
    reset : int
        Rows that were no Gaussian without these entries: they begin again from their prior, with the messages of the
        entries that the reservoir still holds.
    """

    state: StreamState
    reservoir: Reservoir
    reset: int


def without_entries(state: StreamState, reservoir: Reservoir, gone: np.ndarray, keep: float, whole: bool) -> Without:
    """The stream without the messages of the entries of its reservoir that are `gone`, (M,) bool.

    `whole` says that the reservoir holds every entry: a row without any is then at its prior again, unseen, and a
    dispersion, which has no messages, is to be learned anew. Otherwise its law stays.
    """
    sample = reservoir.sample
    lost, left = sample.at(gone), sample.at(~gone)
    modes, reset = [], 0
    for k, mode in enumerate(state.modes):
        new, n = _mode_without(mode, k, (lost, left), keep, state.time, whole)
        modes.append(new)
        reset += n
    noise = state.noise
    if noise is not None:
        a, b = noise.a - float(lost.a.sum()), noise.b - float(lost.b.sum())
        noise = GammaNoise(a, b) if min(a / noise.a, b / noise.b) > MIN_NOISE_SHARE else state.noise_prior
    dispersion = None if whole else state.dispersion
    state = state._replace(modes=tuple(modes), noise=noise, dispersion=dispersion)
    return Without(state, reservoir._replace(sample=left, seen=reservoir.seen - int(gone.sum())), reset)


def _mode_without(
    mode: ModeRows, k: int, entries: tuple[Sample, Sample], keep: float, time: float, whole: bool
) -> tuple[ModeRows, int]:
    """One mode of `without_entries`, and how many of its rows begin again."""
    lost, left = entries
    rows = np.unique(lost.coords[:, k])
    prior = mode.prior_Lam[rows], mode.prior_eta[rows]
    Lam, eta = _summed(*at_time(mode, rows, keep, time), rows, lost, k, -1.0)
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


def without_rows(state: StreamState, k: int, dropped: np.ndarray) -> StreamState:
    """The state without some rows of mode k, which no entry may refer to."""
    n = state.sizes[k]
    mode = ModeRows(*(np.delete(array[:n], dropped, axis=0) for array in state.modes[k]))
    modes = tuple(mode if j == k else own for j, own in enumerate(state.modes))
    sizes = tuple(size - len(dropped) * (j == k) for j, size in enumerate(state.sizes))
    return state._replace(modes=modes, sizes=sizes)


def moved_up(coords: np.ndarray, k: int, dropped: np.ndarray) -> np.ndarray:
    """Coordinates (N, K) after rows of mode k, sorted, were dropped: those that follow have moved up."""
    coords = coords.copy()
    coords[:, k] -= np.searchsorted(dropped, coords[:, k])
    return coords


def kept_without(kept: Kept, gone: np.ndarray) -> Kept:
    """The entries of a stream that is beginning, without those that are gone (N,) bool."""
    power, extent = (None if part is None else part[~gone] for part in (kept.power, kept.extent))
    return kept._replace(coords=kept.coords[~gone], values=kept.values[~gone], power=power, extent=extent)


def positions_of(keys: Sequence[object], dropped: np.ndarray) -> dict[object, int]:
    """The rows of the labels that are left, in their order."""
    out = set(dropped.tolist())
    left = itertools.count()
    return {key: next(left) for at, key in enumerate(keys) if at not in out}
