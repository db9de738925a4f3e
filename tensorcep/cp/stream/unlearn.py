"""`forget_entries` and `forget_rows`: of a fit that kept its messages, or that is done again, and of a stream.

A stream that is beginning keeps every entry, and fits those that are left together, as it would have. Later a reservoir
(``revisit=``) holds entries with their messages: decremental ADF. The posterior is prior x messages, so that those of
the entries to forget are divided out; what is left of the reservoir is then learned again, as with any batch that
revisits it. Where the reservoir holds every entry, that is CEP on the entries that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_flag, check_not_empty, fail_value
from tensorcep.cp.fit.outcome import Dropped, entries_of_fit, moved_up, refit_without, rows_left
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import coords_to_predict, lines_among, mode_of, names_of, rows_of, rows_of_column
from tensorcep.cp.inputs.side_information import lost_knowledge, word_of
from tensorcep.cp.stream import cold_start
from tensorcep.cp.stream.adf import absorb
from tensorcep.cp.stream.cold_start import Beginning, Commit
from tensorcep.cp.stream.learn import engine_of, learn_batch, stream_result
from tensorcep.cp.stream.reservoir import Stream, revisit, without_entries, without_rows
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_frame
from tensorcep.priors.graph import Net


def forget_entries(model: FittedModel, X: Any, data: Any, y: Any, partly: bool, commit: Commit) -> None:
    """Remove entries, by their cells, from a fit or a stream, and commit the result."""
    labels, names = model.fit.labels, names_of(model.fit.labels)

    def gone_of(coords: np.ndarray) -> np.ndarray:
        table = as_frame(X)
        if not isinstance(table, pd.DataFrame):
            return lines_among(coords, coords_to_predict(table, labels))
        modes = [j for j, name in enumerate(names) if name in table.columns]
        if not modes:
            columns, wanted = (", ".join(map(repr, listed)) for listed in (table.columns, names))
            fail_value(f"X must have a column of at least one of the modes {wanted}; got {columns}.")
        cells = np.stack([rows_of_column(labels, j, table[names[j]]) for j in modes], axis=1)
        return lines_among(coords[:, modes], cells)

    _forget(model, gone_of, {"rows": {}}, None, data, y, partly, commit)


def forget_rows(model: FittedModel, mode: Any, rows: Any, data: Any, y: Any, partly: bool, commit: Commit) -> None:
    """Remove rows of a mode with all their entries, and commit the result."""
    fit, name = model.fit, names_of(model.fit.labels)
    k = mode_of(fit.labels, mode)
    if fit.features and fit.features[k] is not None:
        fail_value(
            f"forget_rows cannot drop rows of mode {name[k]!r}, which has features; take them out of its Features and "
            "of the entries, and fit again."
        )
    coupled = fit.series[k] if fit.series else None
    if coupled is not None:
        where = "of its Graph and of the entries" if isinstance(coupled, Net) else "of the entries"
        fail_value(
            f"forget_rows cannot drop rows of mode {name[k]!r}, which is {word_of(coupled)}; take them out {where}, "
            "and fit again."
        )
    dropped = np.unique(rows_of(fit.labels, fit.shape, k, rows))
    check_not_empty(fit.shape[k] - len(dropped), f"mode {name[k]!r} without these rows")
    known = fit.labels[k]
    listed = dropped.tolist() if known is None else known.index[dropped].astype(str).tolist()
    said: dict[str, Any] = {"rows": {str(name[k]): listed}}
    _forget(model, lambda at: np.isin(at[:, k], dropped), said, (k, dropped), data, y, partly, commit)


def _forget(
    model: FittedModel,
    gone_of: Callable[[np.ndarray], np.ndarray],
    said: dict[str, Any],
    dropped: Dropped | None,
    data: Any,
    y: Any,
    partly: bool,
    commit: Commit,
) -> None:
    """Remove entries, which `gone_of` tells by their coordinates, and rows of a mode, and commit the result."""
    (fit, spec), stream = model, model.fit.stream if data is None else None
    if check_flag("partly", partly) and stream is None:
        fail_value("partly=True is for streams without data=; leave it out.")
    if stream is None:
        held = entries_of_fit(model, data, y)
        result, warn_of_end = refit_without(model, held, gone_of(held.coords), said, dropped)
        commit.put(result)
        warn_of_end()
        return
    cold_start.check_stream(spec, fit)
    if stream.reservoir is not None and not cold_start.leaves_choice(spec):  # it has messages that can be divided out
        stream = stream._replace(kept=None)
    if stream.kept is None and stream.reservoir is None and (any(stream.state.maps) or any(stream.state.chains)):
        known = next((own for own in stream.state.clocks if own is not None), None)
        what = "Features" if known is None else word_of(known)
        fail_value(f"a stream with {what} keeps no entries: pass them as data=, from which the model is fitted again.")
    if stream.kept is None and stream.reservoir is None:
        fail_value(
            "the stream kept no entries: set revisit= before the first batch, so that it holds them with their "
            "messages, or pass the entries as data=, from which the model is fitted again."
        )
    coords, n = (stream.kept or stream.reservoir.sample).coords, int(fit.n_samples_seen)
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
    if stream.kept is None:
        commit.put(_divide_out(model, stream, gone, dropped, whole, record))
        return
    lost = lost_knowledge(spec.prior, fit.features, fit.series)
    if lost is not None:
        fail_value(lost)
    kept, (shape, labels) = stream.kept.at(~gone), rows_left(fit, dropped)
    kept = kept if dropped is None else kept._replace(coords=moved_up(kept.coords, *dropped))
    rate = fit.observation.facts.get("_sampled_rate")
    source = None if rate is None else SparseTensor(kept.coords[:0], kept.values[:0], shape, zero_rate=rate)
    first = Beginning(kept, shape, labels, source)
    cold_start.begin_again(spec, first, stream.state.time, commit, fit, stream.standing, record=record)


def _divide_out(
    model: FittedModel, stream: Stream, gone: np.ndarray, dropped: Dropped | None, whole: bool, record: dict[str, Any]
) -> FitResult:
    """The result with messages divided out, and what is left of the reservoir learned again."""
    held: Any = stream.reservoir
    (fit, spec), fields = model, dict[str, Any]()
    keep, engine = 1.0 - spec.forget, engine_of(spec, fit)
    state, reservoir, reset = without_entries(stream.state, held, gone, keep, whole)
    stream = stream._replace(state=state, reservoir=reservoir, watched=None)
    stream = stream if dropped is None else without_rows(stream, *dropped)
    state, held = stream.state, stream.reservoir
    left = held.sample
    how: dict[str, Any] = {"capacity": len(left.y), "keep": keep, "time": state.time, "seed": stream.seed}
    if len(left.y):
        visit = revisit(state, held, left.coords[:0], left.y[:0], likelihood=fit.likelihood, **how)
        stream = stream._replace(reservoir=visit.reservoir)
        if len(visit.held):
            learned = learn_batch(engine, visit.batch, visit)
            run, state = learned.run, absorb(state, visit.batch, learned.posterior)
            stream = stream._replace(state=state, reservoir=learned.reservoir)
            fields = {"converged": run.converged, "n_iter": run.n_iter, "trace": cold_start.without_seconds(run.trace)}
    record |= {"how": "messages divided out", "sweeps": fields.get("n_iter", 0), "rows_reset": reset}
    fields |= {"shape": state.sizes, "n_samples_seen": record["entries_left"], "forgotten": (*fit.forgotten, record)}
    return stream_result(spec, fit, stream, **fields)
