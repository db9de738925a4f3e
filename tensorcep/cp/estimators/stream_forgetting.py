"""`forget_entries` and `forget_rows` of a model that learns from a stream: from the entries that the stream keeps.

A stream that is beginning keeps every entry, and fits those that are left together, as it would have. Later a reservoir
(``revisit=``) holds entries with their messages, which are divided out (`tensorcep.cp.stream.forgetting`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.cp.estimators.batches import engine_of, learned_by
from tensorcep.cp.estimators.beginning import begin_with, leaves_choice
from tensorcep.cp.estimators.row_features import lost_knowledge, word_of
from tensorcep.cp.estimators.streamable import check_stream
from tensorcep.cp.stream.adf import Stream, absorbed
from tensorcep.cp.stream.forgetting import kept_without, moved_up, positions_of, without_entries, without_rows
from tensorcep.cp.stream.reservoir import Reservoir
from tensorcep.cp.stream.revisit import revisit
from tensorcep.entries.labels import Labels
from tensorcep.entries.tensor import SparseTensor

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

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
