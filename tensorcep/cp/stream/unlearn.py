"""`forget_entries` and `forget_rows` of a model that learns from a stream: from the entries that the stream keeps.

A stream that is beginning keeps every entry, and fits those that are left together, as it would have. Later a reservoir
(``revisit=``) holds entries with their messages, which are divided out (`tensorcep.cp.stream.unlearn`).

Taking entries of a stream's reservoir out of what the stream knows: decremental ADF.

The posterior is prior x messages, and the reservoir holds the messages of its entries. Those of the entries to forget
are divided out; what is left of the reservoir is then learned again, as with any batch that revisits it. Where the
reservoir holds every entry, that is CEP on the entries that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise
from tensorcep.core.checks import fail_value
from tensorcep.cp.inputs.side_information import lost_knowledge, word_of
from tensorcep.cp.stream.adf import ModeRows, Stream, StreamState, absorbed
from tensorcep.cp.stream.checks import check_stream
from tensorcep.cp.stream.cold_start import begin_with, leaves_choice
from tensorcep.cp.stream.featured import at_time
from tensorcep.cp.stream.learn import engine_of, learned_by
from tensorcep.cp.stream.reservoir import Reservoir, Sample
from tensorcep.cp.stream.revisit import MIN_NOISE_SHARE, revisit, subtracted, unsound, widest
from tensorcep.cp.stream.standing import Kept
from tensorcep.entries.labels import Labels
from tensorcep.entries.tensor import SparseTensor

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP


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


# Which entries are gone, (n,) bool, by their coordinates (n, K); and the rows of a mode that go with them.
GoneOf = Callable[[np.ndarray], np.ndarray]
Dropped = tuple[int, np.ndarray]


def forget_in_stream(
    model: BaseCP, gone_of: GoneOf, said: dict[str, Any], dropped: Dropped | None, partly: bool
) -> Any:
    """Take entries, and rows of a mode, out of a stream; the model is changed in one step at the end.

    Raises
    ------
    ValueError
        If the stream does not hold every entry and `partly` is not set, or nothing is to be forgotten or left.
    """
    check_stream(model)
    stream: Stream = model._stream
    if stream.reservoir is not None and not leaves_choice(model):  # it has messages that can be divided out
        stream = stream._replace(kept=None)
    coords, n = _held(stream), int(model.n_samples_seen_)
    gone, whole = gone_of(coords), len(coords) == n
    if not whole and not partly:
        fail_value(
            f"the stream holds {len(coords)} of the {n} entries that it learned, and what the others said cannot be "
            "told apart: set revisit= to their number before the first batch, pass the entries as data=, from which "
            "the model is fitted again, or partly=True to forget only as far as the stream reaches."
        )
    if not gone.any() and dropped is None:
        fail_value(f"none of these cells is among the {len(coords)} entries that the stream holds; nothing forgotten.")
    if whole and gone.all():
        fail_value("these are all entries of the stream; there must be one left.")
    record = {**said, "entries": int(gone.sum()), "whole": whole, "entries_left": n - int(gone.sum())}
    if stream.kept is not None:
        _begin_again(model, stream, gone, dropped, record)
    else:
        _divide_out(model, stream, gone, dropped, whole, record)
    return model


def _held(stream: Stream) -> np.ndarray:
    """The coordinates of the entries that a stream holds."""
    if stream.kept is not None:
        return stream.kept.coords
    if stream.reservoir is None and (any(stream.state.maps) or any(stream.state.chains)):
        known = next((own for own in stream.state.clocks if own is not None), None)
        what = "Features" if known is None else word_of(known)
        fail_value(f"a stream with {what} keeps no entries: pass them as data=, from which the model is fitted again.")
    if stream.reservoir is None:
        fail_value(
            "the stream kept no entries: set revisit= before the first batch, so that it holds them with their "
            "messages, or pass the entries as data=, from which the model is fitted again."
        )
    return stream.reservoir.sample.coords


def _begin_again(
    model: BaseCP, stream: Stream, gone: np.ndarray, dropped: Dropped | None, record: dict[str, Any]
) -> None:
    """Fit the entries that are left of a stream that is beginning, as it would."""
    if stream.kept is None:
        return
    lost = lost_knowledge(model)
    if lost is not None:
        fail_value(lost)
    kept, labels, sizes = kept_without(stream.kept, gone), list(model.labels_), list(stream.state.sizes)
    coords = kept.coords
    if dropped is not None:
        k, rows = dropped
        known = labels[k]
        coords, sizes[k] = moved_up(coords, k, rows), sizes[k] - len(rows)
        if known is not None:
            labels[k] = Labels(list(np.delete(known.index, rows)), name=known.name)
    rate = getattr(model, "_sampled_rate", None)
    source = None if rate is None else SparseTensor(coords[:0], kept.values[:0], tuple(sizes), zero_rate=rate)
    entries = (coords, kept.values, tuple(sizes), tuple(labels))
    begun = begin_with(model, entries, source, stream.standing, kept.prior, kept.power, kept.extent)
    record |= {"how": "fitted again", "sweeps": begun.run.n_iter}
    told = {"n_batches_": model.n_batches_, "forgotten_": [*model.forgotten_, record]}
    model._begin(begun, coords, kept.values, stream.state.time, stream.reservoir, **told)


def _divide_out(
    model: BaseCP, stream: Stream, gone: np.ndarray, dropped: Dropped | None, whole: bool, record: dict[str, Any]
) -> None:
    """Divide messages out, and learn what is left of the reservoir again."""
    if stream.reservoir is None:
        return
    keep, engine, likelihood = 1.0 - model.forget, engine_of(model), model._likelihood()
    state, reservoir, reset = without_entries(stream.state, stream.reservoir, gone, keep, whole)
    keys = list(stream.keys)
    if dropped is not None:
        k, rows = dropped
        known, sample = keys[k], reservoir.sample
        state, reservoir = without_rows(state, k, rows), _with_coords(reservoir, moved_up(sample.coords, k, rows))
        keys[k] = None if known is None else positions_of(list(known), rows)
    left, n_iter = reservoir.sample, 0
    how: dict[str, Any] = {"capacity": len(left.y), "keep": keep, "time": state.time, "seed": stream.seed}
    attributes: dict[str, Any] = {}
    if len(left.y):
        visit = revisit(state, reservoir, left.coords[:0], left.y[:0], likelihood=likelihood, **how)
        reservoir = visit.reservoir
    if len(left.y) and len(visit.held):
        result, posterior, learned, _ = learned_by(engine, visit.batch, visit)
        state, reservoir, n_iter = absorbed(state, visit.batch, posterior), learned or reservoir, result.n_iter
        trace = {name: values for name, values in result.trace.items() if name != "seconds"}
        attributes = {"converged_": result.converged, "n_iter_": n_iter, "trace_": trace}
    record |= {"how": "messages divided out", "sweeps": n_iter, "rows_reset": reset}
    changed: dict[str, Any] = {"state": state, "reservoir": reservoir, "keys": tuple(keys), "watched": None}
    model._assign(
        {
            **attributes,
            "_stream": stream._replace(**changed),
            "shape_": state.sizes,
            "n_samples_seen_": record["entries_left"],
            "forgotten_": [*model.forgotten_, record],
        }
    )


def _with_coords(reservoir: Reservoir, coords: np.ndarray) -> Reservoir:
    return reservoir._replace(sample=reservoir.sample._replace(coords=coords))
