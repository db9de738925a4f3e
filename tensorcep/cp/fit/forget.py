"""A fit without some of its entries, and rows of a mode: from the messages that it kept, or fitted again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.cp.fit.outcome import Ready, run_ready
from tensorcep.cp.fit.refit import of_entries_left
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import Read, coords_to_predict, lines_among
from tensorcep.cp.inputs.side_information import lost_knowledge
from tensorcep.cp.model.columns import free_columns
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_frame

# A mode, and rows of it that go with their entries.
Dropped = tuple[int, np.ndarray]


def moved_up(coords: np.ndarray, k: int, dropped: np.ndarray) -> np.ndarray:
    """Coordinates (N, K) after rows of mode k, sorted, were dropped: those that follow have moved up."""
    coords = coords.copy()
    coords[:, k] -= np.searchsorted(dropped, coords[:, k])
    return coords


def rows_left(fit: FitResult, dropped: Dropped | None) -> tuple[tuple[int, ...], tuple[Labels | None, ...]]:
    """The shape and the labels of a model without some rows of a mode."""
    shape, labels = list(fit.shape), list(fit.labels)
    if dropped is not None:
        k, rows = dropped
        shape[k], known = shape[k] - len(rows), labels[k]
        labels[k] = None if known is None else Labels(known.index.delete(rows), name=known.name)
    return tuple(shape), tuple(labels)


class FitEntries(NamedTuple):
    """The entries of a fit, as far as rows are known, what it kept, and what it was given."""

    coords: np.ndarray
    values: np.ndarray
    kept: Any
    source: Any


def entries_of_fit(model: FittedModel, data: Any, y: Any) -> FitEntries:
    """The entries of the fit."""
    if model.fit.observation.has_extents:
        fail_value("entries of a fit with exposure= or n_trials= cannot be forgotten; fit the others, with theirs.")
    if model.fit.apart:
        had = " and ".join(f"{name}=" for name in model.fit.apart)
        fail_value(f"the fit had {had}, which a fit without some entries would lose; fit the others, with {had}.")
    if model.fit.kept is not None and data is None:
        kept = model.fit.kept
        return FitEntries(kept.coords, kept.values, kept, kept.source)
    if data is None:
        fail_value(
            "the fit kept neither entries nor messages: fit with method=CEP(keep_messages=True), or pass the "
            "entries of the fit as data=, from which the model is then fitted again."
        )
    table = as_frame(data)
    values = data.values if y is None and isinstance(data, SparseTensor) else y
    if values is None:
        fail_value("data= needs the values of its entries: pass y, or a SparseTensor.")
    coords = coords_to_predict(table, model.fit.labels)
    known = ((coords >= 0) & (coords < model.fit.shape)).all(axis=1)
    _check_entries(model, coords[known])
    coded = np.asarray(model.fit.observation.coded(values), dtype=np.float64)
    return FitEntries(coords[known], coded[known], None, data)


def _check_entries(model: FittedModel, coords: np.ndarray) -> None:
    """Refuse entries that are none of the fit's, by their cells and their number, as far as these are known."""
    n, cells = int(model.fit.n_samples_seen), model.fit.cells
    if model.fit.stream is not None:
        return
    what = "data= must hold the entries of the fit, without those that were forgotten since"
    if cells is not None:
        others, lost = ~lines_among(coords, cells), ~lines_among(cells, coords)
        if others.any() or lost.any():
            fail_value(
                f"{what}; got {int(others.sum())} entries of other cells, and none of {int(lost.sum())} of the "
                f"{len(cells)} cells of the fit; pass these, or fit again."
            )
    if len(coords) != n and (cells is None or len(cells) <= n):  # rows that with_rows added are not counted
        fail_value(
            f"{what}, {n} in all, each as often as its sample_weight said; got {len(coords)}; pass these, or fit again."
        )


def refit_without(
    model: FittedModel,
    held: FitEntries,
    gone: np.ndarray,
    said: dict[str, Any],
    dropped: Dropped | None,
    put: Callable[[FitResult], None],
) -> None:
    """Fit the entries that are left, from what the model knows, and `put` the result."""
    fit, spec = model
    if not gone.any() and dropped is None:
        fail_value("none of these cells is among the entries of the fit; nothing was forgotten.")
    if gone.all():
        fail_value("these are all entries of the fit; there must be one left.")
    lost = lost_knowledge(spec.prior, fit.features, fit.series)
    if lost is not None:
        fail_value(lost)
    coords, start, zeros = held.coords[~gone], fit.aligned.mean, fit.sampled
    if dropped is not None:
        k, rows = dropped
        coords, start = moved_up(coords, k, rows), np.delete(start, fit.layout.rows[k].start + rows, axis=0)
        zeros = None if zeros is None else moved_up(zeros[~np.isin(zeros[:, k], rows)], k, rows)
    free, earlier = free_columns(fit.interactions, len(fit.shape)), fit.observation.facts
    left = Read((coords, held.values[~gone], *rows_left(fit, dropped)), None, None, {}, held.source)
    plan = plan_fit(spec.knowing(earlier), left.entries, held.source)
    begin = of_entries_left(plan, held.kept, ~gone, start, free)
    found = run_ready(spec, Ready(left, plan, begin, True), earlier, sampled=zeros)
    how = "messages divided out" if held.kept is not None else "fitted again from the factors"
    record = {"entries": int(gone.sum()), **said, "how": how, "sweeps": int(found.result.n_iter)}
    record["entries_left"] = int((~gone).sum())
    put(found.result.changed(forgotten=(*fit.forgotten, record)))
    found.tell()
