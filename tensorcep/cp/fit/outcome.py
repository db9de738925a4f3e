"""From a call of `fit` to what it leaves: read, plan, run, and what the end tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.arrays import LEAF, on_scratch
from tensorcep.core.checks import check_flag, warn_user
from tensorcep.core.loop import Run, current_host
from tensorcep.cp.fit.diagnose import diagnose, warn_of_health, with_calibrated
from tensorcep.cp.fit.refit import Kept, fixed_fit, warm_start
from tensorcep.cp.fit.select import select
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FitResult, rows_of_posterior
from tensorcep.cp.inputs.coordinates import Read, coords_to_predict, warn_of_labels
from tensorcep.cp.inputs.weights import weighted_entries
from tensorcep.cp.model.entries import all_coords
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.resolve import resolve
from tensorcep.cp.plan.spec import FitSpec
from tensorcep.cp.plan.storage import checked_place, entries_of_files, laid
from tensorcep.cp.posterior.belief import Result, first_member
from tensorcep.cp.targets.base import Target
from tensorcep.entries.io import are_files
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID, column_apart, split_given, warn_of_modes
from tensorcep.priors.fixed import Prior

NOTHING: Mapping[str, Any] = MappingProxyType({})
# What is said of a run that ended at its last sweep.
STOPPED = "stopped after max_iter="


def result_of(
    plan: Plan,
    run: Run,
    target: Target,
    coding: Mapping[str, Any] = NOTHING,
    earlier: Mapping[str, Any] = NOTHING,
    **fields: Any,
) -> FitResult:
    """What a run of a plan leaves.

    `coding` are facts of how entries are coded, beside those that the plan decided; `earlier` those of the fit that it
    goes on from, as far as neither says others.

    Raises
    ------
    FloatingPointError
        If it is not finite.
    """
    known, posterior = plan.facts.decided, run.posterior
    mean, cov = unseen_moments(posterior, plan.facts.prior)
    made: dict[str, Any] = {
        "rows": rows_of_posterior(posterior, plan.facts.labels, mean, cov),
        "observation": target.OBSERVATION.of({**earlier, **known, **coding}),
        "method": known["method_"],
        "rank": known["rank_"],
        "max_iter": known["max_iter_"],
        "prior": known["prior_"],
        "interactions": known["interactions_"],
        "features": known["_features"],
        "series": known["_series"],
        "expected": known["_expected"],
        "shape": posterior.shape,
        "unseen_mean": mean,
        "unseen_cov": cov,
        "n_iter": run.n_iter,
        "converged": run.converged,
        "trace": run.trace,
        "n_samples_seen": len(plan.problem.entries.permutation),
    }
    return FitResult(**{**made, **fields})


class FitCall(NamedTuple):
    """What a user passes to `fit` beside the parameters of the estimator (`FitSpec`)."""

    X: Any
    y: Any = None
    modes: Any = None
    value: Any = UNSAID
    warm_start: bool = False
    fixed_modes: Any = None
    sample_weight: Any = None
    scratch: Any = None
    memory: Any = None
    extents: Mapping[str, Any] = NOTHING


class Outcome(NamedTuple):
    """What a fit leaves, and what warns of it once that is in its place."""

    result: FitResult
    tell: Callable[[], None]


def read_call(spec: FitSpec, before: FitResult | None, call: FitCall) -> Read:
    """The entries of a call of `fit`, where they are to lie, with what they weigh, their exposures, and their coding.

    `before` is the result of an earlier fit, if there is one.

    Raises
    ------
    ValueError, TypeError
        On input that is not allowed.
    """
    alone = {"fixed_modes": call.fixed_modes, "sample_weight": call.sample_weight}
    others = alone if call.scratch is None else {**alone, **call.extents}
    X, y, sample_weight = call.X, call.y, call.sample_weight
    if isinstance(sample_weight, str):
        X, sample_weight = column_apart(X, "sample_weight", sample_weight)
    X, extents, column = spec.target.split_extents(X, dict(call.extents))
    place = checked_place(spec, call.scratch, call.memory, others)
    if are_files(X) and y is None:
        entries, coding = entries_of_files(spec, X, call.modes, call.value, place)
    else:
        X, y = split_given(X, y, call.modes, call.value)
        entries, coding = spec.target.entries(X, y, spec.shape)
        if call.modes is None and isinstance(X, pd.DataFrame):
            warn_of_modes(entries[3], len(entries[1]), spec.prior)
    extents = spec.target.checked_extents(extents, len(entries[1]))
    weighted = weighted_entries(laid(spec, entries, place), sample_weight, extents)
    entries, power, extents = weighted if extents is None else spec.target.summed(weighted)
    goes_on = None if call.fixed_modes is None or before is None else before.observation
    extent, about = spec.target.in_units(extents, column, goes_on, power)
    apart = ("sample_weight",) * (power is not None) + ("fixed_modes",) * (call.fixed_modes is not None)
    return Read(entries, power, extent, {**coding, **about, "apart": apart}, X, place)


class Ready(NamedTuple):
    """A fit that is decided.

    Attributes
    ----------
    read : Read
        Its entries.
    plan : Plan
    start : Plan
        The plan to run: the same, or from rows or messages of an earlier fit.
    keeps : bool
        Whether messages may be kept to be divided out.
    """

    read: Read
    plan: Plan
    start: Plan
    keeps: bool


def resolve_call(spec: FitSpec, before: FitResult | None, read: Read, call: FitCall) -> Ready:
    """Decide all of a fit to these entries: from the prior, from the factors of an earlier one, or with its rows.

    With weights or fixed modes messages mean nothing: none are kept.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    warm = check_flag("warm_start", call.warm_start)
    if call.fixed_modes is not None:
        entries, plan, start = fixed_fit(spec, before, read, call.fixed_modes)
        return Ready(read._replace(entries=entries), plan, start, False)
    how: dict[str, Any] = {"extent": read.extent, "power": read.power}
    is_plain = read.power is None and read.extent is None
    limit = read.limit if is_plain else None
    plan = select(resolve(spec.knowing(read.coding), read.entries, read.source, limit=limit, **how))
    start = warm_start(spec, before, read.entries, plan) if warm and before is not None else plan
    return Ready(read, plan, start, is_plain)


def run_ready(spec: FitSpec, ready: Ready, earlier: Mapping[str, Any] = NOTHING, **fields: Any) -> Outcome:
    """Run a fit that is decided, and make the result, with what its end tells of it.

    Raises
    ------
    FloatingPointError
        If the result is not finite.
    """
    (entries, coding, source), plan, start = (ready.read.entries, ready.read.coding, ready.read.source), *ready[1:3]
    warn_of_labels(entries[3])
    keeps = bool(getattr(plan.engine.settings, "keep_messages", False)) and ready.keeps
    if keeps:
        plan, start = plan.of_one_member(), start.of_one_member()
    host = current_host()
    if host is not None:
        host.check_plan(start)
    run = start.policy.run(start)
    found = result_of(plan, run, spec.target, coding, earlier, apart=coding.get("apart", ()))
    kept = None
    if keeps:
        order = plan.problem.entries.permutation
        kept = Kept(entries[0][order], entries[1][order], source, run.state)
    run = run._replace(state=plan.engine.method.ended(run.state))
    health = diagnose(spec.target, plan, run, found.belief)
    rows, health = with_calibrated(spec.target, plan, run, found.rows, health)
    run = run._replace(state=None)  # states hold all messages and draws
    drawn = isinstance(source, SparseTensor) and source.sampled is not None
    more = {
        "rows": rows,
        "kept": kept,
        "cells": fitted_cells(plan),
        "sampled": sampled_cells(source, plan.facts.labels) if drawn else None,
        "diagnostics": health,
    }
    return Outcome(found.changed(**{**more, **fields}), partial(tell_of_end, plan, run, health))


def tell_of_end(plan: Plan, run: Run, health: Diagnostics) -> None:
    """Warn of a run that ended too early, and of what a user should know of the fit."""
    warn_of_no_convergence(plan, run)
    warn_of_health(plan, run, health)


def fitted_cells(plan: Plan) -> np.ndarray | None:
    """The distinct cells of a fit, (n, K) int32, in order; None of entries on scratch, which are too many to keep."""
    entries = plan.problem.entries
    if on_scratch(entries.y):
        return None
    cells = all_coords(entries)
    n = len(cells)
    new = np.ones(n, dtype=bool)
    for first in range(1, n, LEAF):
        last = min(n, first + LEAF)
        moved = [column[first:last] != column[first - 1 : last - 1] for column in cells.T]
        new[first:last] = np.logical_or.reduce(moved)
    return cells if new.all() else cells[new]


def sampled_cells(source: SparseTensor, labels: tuple[Any, ...]) -> np.ndarray:
    """The cells (m, K), among rows with these labels, of a tensor that hold sampled zeros."""
    if source.sampled is None:
        return np.zeros((0, source.order), dtype=np.int32)
    return coords_to_predict(source.select(source.sampled), labels).astype(np.int32)


def unseen_moments(posterior: Result, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Mean (K, R) and covariance (K, R, R) of a row of each mode that has no entries; the mean over the mode's rows."""
    learned = getattr(first_member(posterior), "mode_prior", None)
    if learned is not None:
        prior = Prior(learned.mean, learned.precision)
    means = [np.asarray(m, dtype=float) for m in prior.mean]
    unseen_mean = np.stack([np.broadcast_to(_average(m, 1), (posterior.rank,)) for m in means])
    precision = [np.asarray(p, dtype=float) for p in prior.precision]
    unseen_cov = np.stack(
        [np.linalg.inv(np.eye(posterior.rank) * p if p.ndim < 2 else _average(p, 2)) for p in precision]
    )
    return unseen_mean, unseen_cov


def _average(values: np.ndarray, item_dims: int) -> np.ndarray:
    """Mean over rows of per-row values (item_dims dimensions each); shared values as they are."""
    return values.mean(axis=0) if values.ndim > item_dims else values


def warn_of_no_convergence(plan: Plan, result: Run) -> None:
    """Warn if a run ended at its last sweep and not at its tolerance."""
    method, settings = plan.engine
    if method.capabilities.sampler or result.converged or result.stopped:
        return
    member = result.trace.get("member", np.zeros(result.n_iter, dtype=int))
    ends = np.append(np.flatnonzero(np.diff(member)), result.n_iter - 1)
    last = max(result.trace["change"][ends])
    cures = ", raise tol, or add damping" if "damping" in settings.get_params() else " or raise tol"
    warn_user(
        f"{method.name} {STOPPED}{plan.options.max_iter} sweeps with a relative change of {last:.2g} "
        f"> tol={plan.options.tol:g}; increase max_iter{cures}.",
        ConvergenceWarning,
    )
