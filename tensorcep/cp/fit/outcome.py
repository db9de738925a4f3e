"""From a call of `fit` to what it leaves: read, plan, run, and what the end tells of it; and fits without some entries.

Entries lie in memory or on scratch. A fit on scratch has the bits of the same fit in memory, but for starts: of more
entries than a million on scratch, a start is found from a sample of so many, chosen by a hash of their cells.
Entries, and rows of a mode, are forgotten from the messages that a fit kept, or by another fit to what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.arrays import LEAF, Scratch, bytes_of, on_scratch
from tensorcep.core.checks import check_flag, check_shape, fail_value, warn_user
from tensorcep.core.loop import HOST, Run
from tensorcep.cp.fit.diagnostics import diagnose, with_calibrated
from tensorcep.cp.fit.refit import FromMessages, Kept, fixed_fit, from_earlier, warm_start
from tensorcep.cp.fit.run import last_change
from tensorcep.cp.fit.select import plan_fit, select
from tensorcep.cp.fitted.model import FitResult, FittedModel, rows_of_posterior
from tensorcep.cp.inputs.coordinates import Entries, Read, coords_to_predict, lines_among
from tensorcep.cp.inputs.side_information import lost_knowledge
from tensorcep.cp.inputs.weights import weighted_entries
from tensorcep.cp.methods import proposes_rows
from tensorcep.cp.model.columns import free_columns, free_problem
from tensorcep.cp.model.entries import all_coords
from tensorcep.cp.model.memmap import StoredColumns, scratch_bytes, spill
from tensorcep.cp.plan.auto import check_storable, choose, with_numbers
from tensorcep.cp.plan.memory import peak, room_for_draws, within
from tensorcep.cp.plan.plan import Plan, resolve
from tensorcep.cp.plan.spec import FitSpec
from tensorcep.cp.posterior import Result, first_member
from tensorcep.cp.settings import checked_method, size_of
from tensorcep.cp.targets.base import Target
from tensorcep.entries.coo import merge_duplicates
from tensorcep.entries.io.chunks import Files, GrowingInMemory, are_files, read_columns
from tensorcep.entries.io.schema import LAST, Schema
from tensorcep.entries.labels import Labels, why_not_stored
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID, as_frame, column_apart, split_given, warn_of_modes
from tensorcep.priors.fixed import Prior

Facts = Mapping[str, Any]  # how entries are coded
NOTHING: Facts = MappingProxyType({})
# What is said of a run that ended at its last sweep.
STOPPED = "stopped after max_iter="


def result_of(
    plan: Plan, run: Run, target: Target, coding: Facts = NOTHING, earlier: Facts = NOTHING, **fields: Any
) -> FitResult:
    """What a run of a plan, maybe from an earlier fit, leaves; FloatingPointError if it is not finite."""
    known, posterior, n = plan.decided, run.posterior, len(plan.problem.entries.permutation)
    mean, cov = unseen_moments(posterior, plan.prior)
    made = {name: known[f"{name}_"] for name in ("method", "rank", "max_iter", "prior", "interactions")}
    made |= {name: known[f"_{name}"] for name in ("features", "series", "expected")}
    made |= {"rows": rows_of_posterior(posterior, plan.labels, mean, cov), "unseen_mean": mean, "unseen_cov": cov}
    made |= {"observation": target.OBSERVATION.of({**earlier, **known, **coding}), "shape": posterior.shape}
    made |= {"n_iter": run.n_iter, "converged": run.converged, "trace": run.trace, "n_samples_seen": n}
    return FitResult(**{**made, **fields})


def read_call(
    spec: FitSpec,
    before: FitResult | None,
    X: Any,
    y: Any,
    modes: Any,
    value: Any,
    fixed_modes: Any,
    sample_weight: Any,
    scratch: Any,
    memory: Any,
    extents: Any,
) -> Read:
    """The entries of a call of `fit`, where they are to lie, with what they weigh, their exposures, and coding."""
    others = {"fixed_modes": fixed_modes, "sample_weight": sample_weight, **({} if scratch is None else extents)}
    if isinstance(sample_weight, str):
        X, sample_weight = column_apart(X, "sample_weight", sample_weight)
    X, extents, column = spec.target.split_extents(X, dict(extents))
    place = Place(None if scratch is None else Scratch(scratch), None if memory is None else bytes_of("memory", memory))
    if scratch is not None or memory is not None:
        check_alone("scratch=" if scratch is not None else "memory=", others)
    if place.room is not None:
        name, settings = checked_method(spec.method)
        noise = None if spec.target.noise == "one" else spec.target.noise
        check_storable(settings or name, noise, [spec.asked, *spec.target.likelihoods()])
    if are_files(X) and y is None:
        entries, coding = entries_of_files(spec, X, modes, value, place)
    else:
        X, y = split_given(X, y, modes, value)
        entries, coding = spec.target.entries(X, y, spec.shape)
        if modes is None and isinstance(X, pd.DataFrame):
            warn_of_modes(entries[3], len(entries[1]), spec.prior)
    extents = spec.target.checked_extents(extents, len(entries[1]))
    weighted = weighted_entries(laid(spec, entries, place), sample_weight, extents)
    entries, power, extents = weighted if extents is None else spec.target.summed(weighted)
    goes_on = None if fixed_modes is None or before is None else before.observation
    extent, about = spec.target.in_units(extents, column, goes_on, power)
    apart = ("sample_weight",) * (power is not None) + ("fixed_modes",) * (fixed_modes is not None)
    return Read(entries, power, extent, {**coding, **about, "apart": apart}, X, place)


def resolve_call(
    spec: FitSpec, before: FitResult | None, read: Read, warm: Any, fixed_modes: Any
) -> tuple[Read, Plan, Plan, bool]:
    """What `run_ready` takes of a fit to these entries: from the prior, an earlier one's factors, or with its rows."""
    warm = check_flag("warm_start", warm)
    if fixed_modes is not None:
        entries, plan, start = fixed_fit(spec, before, read, fixed_modes)
        return read._replace(entries=entries), plan, start, False
    is_plain = read.power is None and read.extent is None
    how: dict[str, Any] = {"extent": read.extent, "power": read.power, "limit": read.place.limit if is_plain else None}
    plan = select(resolve(spec.knowing(read.coding), read.entries, read.source, **how))
    start = warm_start(spec, before, read.entries, plan) if warm and before is not None else plan
    return read, plan, start, is_plain


def run_ready(
    spec: FitSpec, read: Read, plan: Plan, start: Plan, keeps: bool, earlier: Facts = NOTHING, **fields: Any
) -> tuple[FitResult, Callable[[], None]]:
    """The result of a fit that is decided, and what warns of its end once the result is in its place."""
    # `start` is the plan, or goes on from rows or messages of an earlier fit; `keeps`: messages may be kept
    coords, values, _, labels = read.entries
    for reason in (why_not_stored(found, k) for k, found in enumerate(labels)):
        if reason is not None:
            warn_user(f"{reason} Without that the fit goes on, but its model cannot be saved.", UserWarning)
    keeps = keeps and bool(getattr(plan.engine.settings, "keep_messages", False))
    if keeps:
        plan, start = plan.of_one_member(), start.of_one_member()
    host = HOST.get()
    if host is not None:
        host.check_plan(start)
    run = start.policy.run(start)
    found = result_of(plan, run, spec.target, read.coding, earlier, apart=read.coding.get("apart", ()))
    order = plan.problem.entries.permutation
    kept = Kept(coords[order], values[order], read.source, run.state) if keeps else None
    run = run._replace(state=plan.engine.method.ended(run.state))
    health = diagnose(spec.target, plan, run, found.belief)
    rows, health = with_calibrated(spec.target, plan, run, found.rows, health)
    run = run._replace(state=None)  # states hold all messages and draws

    def tell() -> None:
        warn_of_no_convergence(plan, run)
        for sentence in () if run.stopped else health.complaints(plan.options.max_iter):
            warn_user(sentence, ConvergenceWarning)

    known, source = {"cells": fitted_cells(plan), "sampled": None}, read.source
    if isinstance(source, SparseTensor) and source.sampled is not None:  # zeros that were drawn
        known["sampled"] = coords_to_predict(source.select(source.sampled), plan.labels).astype(np.int32)
    return found.changed(**{"rows": rows, "kept": kept, **known, "diagnostics": health, **fields}), tell


def fitted_cells(plan: Plan) -> np.ndarray | None:
    """The distinct cells of a fit, (n, K) int32, in order; None of entries on scratch, which are too many to keep."""
    entries = plan.problem.entries
    if on_scratch(entries.y):
        return None
    cells = all_coords(entries)
    new = np.ones(len(cells), dtype=bool)
    for first in range(1, len(cells), LEAF):
        last = min(len(cells), first + LEAF)
        moved = [column[first:last] != column[first - 1 : last - 1] for column in cells.T]
        new[first:last] = np.logical_or.reduce(moved)
    return cells if new.all() else cells[new]


def unseen_moments(posterior: Result, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Mean (K, R) and covariance (K, R, R) of a row of each mode that has no entries; the mean over the mode's rows."""
    learned, R = getattr(first_member(posterior), "mode_prior", None), posterior.rank
    if learned is not None:
        prior = Prior(learned.mean, learned.precision)
    means, precisions = ([np.asarray(own, dtype=float) for own in part] for part in (prior.mean, prior.precision))
    means = [m.mean(axis=0) if m.ndim > 1 else m for m in means]
    precisions = [p.mean(axis=0) if p.ndim > 2 else p if p.ndim == 2 else np.eye(R) * p for p in precisions]
    return np.stack([np.broadcast_to(m, (R,)) for m in means]), np.stack([np.linalg.inv(p) for p in precisions])


def warn_of_no_convergence(plan: Plan, result: Run) -> None:
    """Warn if a run ended at its last sweep and not at its tolerance."""
    method, settings = plan.engine
    if method.capabilities.sampler or result.converged or result.stopped:
        return
    last = last_change(result)
    cures = ", raise tol, or add damping" if "damping" in settings.get_params() else " or raise tol"
    warn_user(
        f"{method.name} {STOPPED}{plan.options.max_iter} sweeps with a relative change of {last:.2g} "
        f"> tol={plan.options.tol:g}; increase max_iter{cures}.",
        ConvergenceWarning,
    )


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


def entries_of_fit(model: FittedModel, data: Any, y: Any) -> Kept:
    """The entries of the fit, as far as rows are known, and what it kept."""
    if model.fit.observation.has_extents:
        fail_value("entries of a fit with exposure= or n_trials= cannot be forgotten; fit the others, with theirs.")
    if model.fit.apart:
        had = " and ".join(f"{name}=" for name in model.fit.apart)
        fail_value(f"the fit had {had}, which a fit without some entries would lose; fit the others, with {had}.")
    if model.fit.kept is not None and data is None:
        return model.fit.kept
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
    coords, n, cells = coords[known], int(model.fit.n_samples_seen), model.fit.cells
    what = "data= must hold the entries of the fit, without those that were forgotten since"
    if model.fit.stream is None and cells is not None:
        others, lost = ~lines_among(coords, cells), ~lines_among(cells, coords)
        if others.any() or lost.any():
            fail_value(
                f"{what}; got {int(others.sum())} entries of other cells, and none of {int(lost.sum())} of the "
                f"{len(cells)} cells of the fit; pass these, or fit again."
            )
    # rows that with_rows added are not counted
    if model.fit.stream is None and len(coords) != n and (cells is None or len(cells) <= n):
        fail_value(
            f"{what}, {n} in all, each as often as its sample_weight said; got {len(coords)}; pass these, or fit again."
        )
    return Kept(coords, np.asarray(model.fit.observation.coded(values), dtype=np.float64)[known], data, None)


def refit_without(
    model: FittedModel, held: Kept, gone: np.ndarray, said: dict[str, Any], dropped: Dropped | None
) -> tuple[FitResult, Callable[[], None]]:
    """The result of a fit to the entries that are left, from what the model knows, and what warns of its end."""
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
    if held.state is None:
        begin = from_earlier(plan, start, free)
    elif free_problem(plan.problem).rank != held.state.rows.eta.shape[1]:  # it has not the columns of the messages
        begin = plan
    else:
        begin = plan._replace(policy=FromMessages(plan.policy.starts, kept=held, left=~gone))
    result, tell = run_ready(spec, left, plan, begin, True, earlier, sampled=zeros)
    how = "messages divided out" if held.state is not None else "fitted again from the factors"
    record = {"entries": int(gone.sum()), **said, "how": how, "sweeps": int(result.n_iter)}
    record["entries_left"] = int((~gone).sum())
    return result.changed(forgotten=(*fit.forgotten, record)), tell


class Place(NamedTuple):
    """Scratch, if there is some, and how many bytes of memory a fit may take, if that is said."""

    room: Scratch | None
    limit: float | None

    def end(self) -> None:
        """Let go of what several runs have read."""
        if self.room is not None:
            self.room.tables.clear()


def check_alone(name: str, others: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    for other, value in others.items():
        if value is not None:
            fail_value(f"{name} does not go with {other}=; got both; leave one of them out.")


def entries_of_files(
    spec: FitSpec, source: Any, modes: Any, value: Any, place: Place
) -> tuple[Entries, dict[str, Any]]:
    """The entries in files, on scratch where there is some, and facts of how they are coded."""
    files, room = source, place.room
    if not isinstance(source, Files):
        files = Files(source, Schema(modes=modes, value=LAST if value is UNSAID else value))
    columns, values, shape, labels = read_columns(files, GrowingInMemory if room is None else room.growing)
    if spec.shape is not None:
        least, shape = shape, check_shape(spec.shape, len(shape))
        if not all(n == m if own else n >= m for own, n, m in zip(labels, shape, least, strict=True)):
            fail_value(f"shape must hold the rows of the files, {least}; got {shape}.")
    if room is not None:
        coding = spec.target.code_columns(values)
        return (StoredColumns(columns, files.distinct), values, shape, labels), coding  # type: ignore[return-value]
    cells = np.stack(columns, axis=1).astype(np.int64)
    if files.distinct:
        merge_duplicates(cells, values, shape, "error")
    (coords, values, *_), coding = spec.target.entries(cells, values, spec.shape)
    return (coords, values, shape, labels), coding


def laid(spec: FitSpec, entries: Entries, place: Place) -> Entries:
    """The entries where they are to lie in the fit: few counts, which chains read by entry, in memory."""
    coords: Any
    coords, values, shape, labels = entries
    n, stored = len(values), isinstance(coords, StoredColumns)
    few = place.room is not None and proposes_rows(choose(spec, n, shape, False).method, spec.asked)
    needed = 0.0 if place.limit is None else _bytes_in_memory(spec, n, shape, place.limit)
    if few or (place.limit is not None and needed <= place.limit):
        if not stored:
            return entries
        cells, values = np.stack(coords.columns, axis=1).astype(np.int64), np.array(values)
        if coords.distinct:
            merge_duplicates(cells, values, shape, "error")
        return cells, values, shape, labels
    if place.limit is not None and place.room is None:
        fail_value(
            f"the fit of {n} entries and {sum(shape)} rows takes about {needed / 1e9:.3g} GB in memory, of which "
            f"memory= allows {place.limit / 1e9:.3g} GB; allow more, or give a folder for files as scratch=."
        )
    if place.room is None:
        return entries
    place.room.check_free(scratch_bytes(n, len(shape), not spec.asked.is_gaussian))
    columns, values = (coords, values) if stored else spill(coords, values, place.room)
    return columns, values, shape, labels  # type: ignore[return-value]


def _bytes_in_memory(spec: FitSpec, n: int, shape: tuple[int, ...], limit: float) -> float:
    """The bytes of the fit that memory would see, at its peak."""
    chosen = choose(spec, n, shape, False, limit=limit)
    size = within(size_of(n, shape, chosen.parts), limit, False)
    most, learned = room_for_draws(chosen.settings, size), chosen.prior_name == "learned"
    settings = with_numbers(chosen.settings, spec.asked.name, learned, chosen.max_iter, most)
    return float(peak(settings, size, chosen.max_iter).total)
