"""Fits that go on from an earlier one: warm starts, rows that stay, Gaussians of draws, entries divided out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import offsets
from tensorcep.cp.fit.run import MultiStart
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fitted.alignment import aligned_rows
from tensorcep.cp.fitted.from_draws import MOST_LEFT, GaussianSummary, laws_of, left_over, summary_of
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.inputs.coordinates import Entries, Read, matching_modes, mode_of, names_of, names_of_modes
from tensorcep.cp.inputs.side_information import check_no_deviations, described, is_local
from tensorcep.cp.messages.engine import Messages, MessageState, latent_values, with_noise_messages
from tensorcep.cp.methods import METHODS, methods_with, refuse_unable
from tensorcep.cp.model.columns import free_columns, free_problem
from tensorcep.cp.model.problem import FixedRows
from tensorcep.cp.model.rows import initial_prior, refresh_rows, rows_at_prior, with_seen_rows
from tensorcep.cp.plan.auto import SWEEPS
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.spec import FitSpec, given_int, is_auto
from tensorcep.cp.posterior.belief import Draws, PointEstimate, first_member
from tensorcep.cp.posterior.components import draw_rows
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.base import conditional_of_modes, of_rows, per_row

# Cells at which a summary is compared with the draws.
COMPARED = 2000


def must_be_summed_up(fit: FitResult) -> bool:
    """Whether a model was fitted by a method that learns no streams."""
    return fit.stream is None and not METHODS[fit.method].capabilities.streams


def gaussian_fit(fit: FitResult, max_iter: Any, what: str = "partial_fit") -> FitResult:
    """A result that goes on as a stream by CEP, from the Gaussians that a result is or comes to.

    `max_iter` is the parameter; `what` goes on from it, for the error.

    Raises
    ------
    ValueError
        If there are no Gaussians of the rows that say what the result says.
    """
    fit = fit.changed()  # what is made of the factors here is not the model's
    result = first_member(fit.posterior)
    if isinstance(result, PointEstimate):
        refuse_unable(fit.method, "streams", f"gives a point estimate, and {what} needs a posterior", fit.likelihood)
    mean, cov = fit.unseen_mean, fit.unseen_cov
    posterior: Any = result
    if isinstance(result, Draws):
        posterior, mean, cov = _summary(fit, result, what)
    known = {"method": "cep", "max_iter": given_int("max_iter", max_iter, SWEEPS)}
    without = {"diagnostics": None, "cells": None, "sampled": None, "kept": None, "apart": (), "forgotten": ()}
    return fit.with_posterior(posterior, unseen_mean=mean, unseen_cov=cov, **known, **without)


def _summary(fit: FitResult, draws: Draws, what: str) -> GaussianSummary:
    """The summary of a sampler's draws.

    Raises
    ------
    ValueError
        If it misses much of what they say.
    """
    free = free_columns(fit.interactions, len(fit.shape))
    if fit.likelihood.levels is not None:  # thresholds are learned anew
        draws = draws._replace(theta=None, n_thresholds=0)
    laws = laws_of(draws, fit.likelihood.learns_precision, fit.n_samples_seen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how well draws agree is judged here by what they predict
        found, covs = fit.aligned, fit.factor_covs
    summary = summary_of(draws, fit.belief, found, covs, fit.layout, free, laws)
    left = left_over(fit.belief, summary, _some_cells(fit) + offsets(fit.shape)[:-1])
    if left > MOST_LEFT:
        fail_value(
            f"the draws of {fit.method!r} do not agree on the components: Gaussians of the rows, from "
            f"which {what} goes on, miss {100 * left:.0f} % of what the draws predict; fit with one of the methods "
            f"{methods_with('streams', likelihood=fit.likelihood)}, from which it always does."
        )
    return summary


def _some_cells(fit: FitResult) -> np.ndarray:
    """Cells (n, K) of the fit, spread over all; of all rows with entries, where these are not known."""
    if fit.cells is not None and len(fit.cells):
        return np.asarray(fit.cells[:: -(-len(fit.cells) // COMPARED)], dtype=np.int64)
    rng, layout = np.random.default_rng(0), fit.layout
    each = zip(layout.rows, layout.seen, strict=True)
    return np.stack([rng.choice(seen, COMPARED) - own.start for own, seen in each], axis=1)


# Forgetting entries whose messages were kept: they are divided out, and the rest settles again.
#
# The posterior is prior x messages, so that taking an entry's messages out is what removes it (decremental EP); the
# others were computed beside it, and some more sweeps bring them to the fixed point of the entries that are left. What
# the fit decided by all its values (level, scales) is decided anew by those.


class Kept(NamedTuple):
    """What a fit by ``CEP(keep_messages=True)`` keeps.

    Attributes
    ----------
    coords, values : (N, K) int64, (N,) float64
        The entries in the order of the lanes; values as they were given, labels coded.
    source : object
        What the fit was given, which may know more than the entries.
    state : MessageState
        At the end of the fit.
    """

    coords: np.ndarray
    values: np.ndarray
    source: Any
    state: MessageState


@dataclass(frozen=True)
class FromMessages(MultiStart):
    """The messages of a fit, of which those of some entries are divided out, and sweeps over the others.

    Attributes
    ----------
    kept : Kept
    left : (N,) bool
        The entries that are left.
    """

    kept: Kept | None = None
    left: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def run(self, plan: Plan) -> Run:
        """Run a plan for the entries that are left."""
        kept: Any = self.kept
        with threads_of(plan.options.n_threads) as executor:
            state = _state_without(kept.state, self.left, plan, executor)
        method, settings = plan.engine
        return run(method, plan.problem, settings, state=state, done=state.sweeps, **plan.options._asdict())


def _state_without(old: MessageState, left: np.ndarray, plan: Plan, executor: Any) -> MessageState:
    problem, in_free = plan.problem, with_seen_rows(free_problem(plan.problem))
    new: MessageState = plan.engine.method.init(problem, plan.engine.settings, executor)
    places = np.flatnonzero(left)
    messages = Messages(*(_chosen(part, places, like) for part, like in zip(old.messages, new.messages, strict=True)))
    prior = initial_prior(in_free)
    modes = old.hyper.now.modes
    if modes is not None:
        prior = conditional_of_modes(modes, prior.seen)
        eta = of_rows(prior.eta, in_free.prior, modes, problem.shape, natural=True)
        prior = prior._replace(eta=eta)
    rows, n = rows_at_prior(in_free), len(places)
    to = problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[:n].ravel()
    for line, part, sent in ((prior.Lam, rows.Lam, messages.Lam), (prior.eta, rows.eta, messages.eta)):
        part[:] = per_row(line, problem.shape)
        np.add.at(part, to, _by_entry(sent)[:n].reshape(len(to), -1))
    refresh_rows(rows, 0, len(rows.good), executor)
    hyper = new.hyper._replace(now=prior, max_variance=old.hyper.max_variance)
    laws = with_noise_messages(new.own.parameters, old.parameters, float(messages.a.sum()), float(messages.b.sum()))
    state = MessageState(rows, hyper, laws, new.own, old.sweeps)
    return state.put(messages=messages, f=latent_values(rows.mean, problem, executor))


def _by_entry(part: np.ndarray) -> np.ndarray:
    """Messages of all lanes, one after the other: (n_blocks * LANES, K, W)."""
    return np.moveaxis(part, -1, 1).reshape(-1, *part.shape[1:-1])


def _chosen(part: np.ndarray, places: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The messages at some places in the lanes, as messages of the shape of `like`."""
    if not like.size:
        return like
    new = lane_zeros(like.shape, like.dtype)
    padded = np.zeros((len(like) * LANES, *like.shape[1:-1]), dtype=like.dtype)
    padded[: len(places)] = _by_entry(part)[places]
    new[:] = np.moveaxis(padded.reshape(len(like), LANES, *like.shape[1:-1]), 1, -1)
    return new


def of_entries_left(plan: Plan, kept: Kept | None, left: np.ndarray, rows: np.ndarray, free: np.ndarray) -> Plan:
    """The plan of the entries that are left, (N,) bool: from the messages, or the rows where there are none, or anew.

    `rows` (n_rows, R) are of columns that are `free` (K, R) in some modes.
    """
    if kept is None:
        return from_earlier(plan, rows, free)
    if free_problem(plan.problem).rank != kept.state.rows.eta.shape[1]:  # it has not the columns of the messages
        return plan
    return plan._replace(policy=FromMessages(plan.policy.starts, kept=kept, left=left))


def from_earlier(plan: Plan, rows: np.ndarray, free: np.ndarray) -> Plan:
    """The plan from rows (n_rows, R) of an earlier fit; anew where its columns are not those of these rows."""
    return plan.from_rows(rows) if np.array_equal(plan.problem.every_free, free) else plan


# Draws of rows that stay, for a sampler.
MOST_DRAWS = 200


def fixed_fit(spec: FitSpec, before: FitResult | None, read: Read, fixed_modes: Any) -> tuple[Entries, Plan, Plan]:
    """Plan a fit to entries that learns all rows but those of the fixed modes.

    Returns
    -------
    entries : Entries
        In the model's rows.
    plan, start : Plan
        Of all rows, and the one to run, in which some stay.

    Raises
    ------
    ValueError
        If there is no earlier fit, it has no posterior, the method cannot leave rows, or a row that is to stay is not
        known.
    """
    if before is None:
        fail_value("fixed_modes names modes of an earlier fit of this estimator, but it is not fitted; fit it first.")
    if is_local(spec.prior):
        fail_value("fixed_modes cannot hold rows beside a Series with local=; fit all modes, or leave local= out.")
    check_no_deviations(before.belief, "fixed_modes")
    fit = before.changed()  # what is made of the factors here is not the model's
    given = fixed_modes if isinstance(fixed_modes, (list, tuple)) else [fixed_modes]
    modes = sorted({mode_of(fit.labels, mode) for mode in given})
    if not 0 < len(modes) < len(fit.shape):
        fail_value(f"fixed_modes must leave at least one mode to learn, and name one; got {fixed_modes!r}.")
    facts, coding = fit.observation.facts, read.coding
    if "_classes" in coding and list(coding["_classes"]) != list(facts["_classes"]):
        known = list(facts["_classes"])
        fail_value(f"y must hold the labels of the earlier fit, {known}, with fixed_modes; got {coding['_classes']}.")
    gaussian = gaussian_fit(fit, spec.max_iter, "fixed_modes")
    entries = _in_known_rows(fit, read.entries, modes)
    how: dict[str, Any] = {"decided": (fit.likelihood, facts), "extent": read.extent, "power": read.power}
    plan = plan_fit(_as_fitted(spec.knowing(facts), fit), entries, read.source, **how)
    cannot = "learns all rows, and fixed_modes keeps some"
    refuse_unable(plan.engine.settings, "fixes_rows", cannot, fit.likelihood)
    places = _places(fit, entries, modes)
    rows = _fixed_rows(fit, gaussian, places, modes, plan)
    begin, known = plan.problem.start, gaussian.aligned.mean[np.maximum(places, 0)]
    start = known if begin is None else np.where(places[:, None] >= 0, known, begin)
    return entries, plan, plan.with_problem(fixed=rows).from_rows(start)


def _as_fitted(spec: FitSpec, fit: FitResult) -> FitSpec:
    """The parameters with what was decided for the earlier fit in place of "auto"."""
    method = fit.method if is_auto(spec.method) else spec.method
    prior = fit.prior if is_auto(spec.prior) else spec.prior
    return spec._replace(method=method, prior=prior, rank=fit.rank, interactions=fit.interactions, shape=None)


def _in_known_rows(fit: FitResult, entries: Entries, modes: list[int]) -> Entries:
    """The entries with the model's order of modes, and its rows in the modes that stay."""
    coords, values, shape, labels = entries
    order = matching_modes(names_of_modes(fit.labels), names_of_modes(labels))
    coords, sizes, found = coords[:, order].copy(), [shape[k] for k in order], [labels[k] for k in order]
    for k in modes:
        known, theirs, name = fit.labels[k], found[k], names_of(fit.labels)[k]
        if (known is None) != (theirs is None):
            fail_value(f"mode {name!r} must have labels in both fits, or indices in both, to stay as it is.")
        if known is not None and theirs is not None:
            coords[:, k] = known.rows(theirs.index, unknown="ignore")[coords[:, k]]
        new = (coords[:, k] < 0) | (coords[:, k] >= fit.shape[k])
        if new.any():
            fail_value(
                f"mode {name!r} stays as it is, so that all its rows must be known; {int(new.sum())} entries are of "
                "others; leave them out, or fold them in first by transform and with_rows."
            )
        sizes[k], found[k] = fit.shape[k], known
    return coords, values, tuple(sizes), tuple(found)


def places_of(fit: FitResult, shape: Sequence[int], labels: Sequence[Any], k: int, same: bool = False) -> np.ndarray:
    """The earlier row of mode k of every row of other entries with these labels, -1 of new ones; or by numbers."""
    known, theirs = fit.labels[k], labels[k]
    if known is not None and theirs is not None and not same:
        return np.asarray(known.rows(theirs.index, unknown="ignore"))
    return np.where(np.arange(shape[k]) < fit.shape[k], np.arange(shape[k]), -1)


def _places(fit: FitResult, entries: Entries, modes: list[int]) -> np.ndarray:
    """The earlier packed row of every packed row of the fit, -1 for new ones."""
    first, parts = offsets(fit.shape), []
    for k in range(len(fit.shape)):
        place = places_of(fit, entries[2], entries[3], k, same=k in modes)
        parts.append(np.where(place >= 0, place + first[k], -1))
    return np.concatenate(parts)


def _fixed_rows(fit: FitResult, gaussian: FitResult, places: np.ndarray, modes: list[int], plan: Plan) -> FixedRows:
    posterior: Any = gaussian.posterior
    at = np.maximum(places, 0)
    draws = np.zeros((0, len(places), posterior.rank))
    if plan.engine.method.capabilities.sampler:
        draws = _draws_of(fit, gaussian)[:, at]
    which = tuple(k in modes for k in range(len(fit.shape)))
    return FixedRows(which, posterior.seen[at], posterior.Lam[at], posterior.eta[at], draws)


def _draws_of(fit: FitResult, gaussian: FitResult) -> np.ndarray:
    """Draws (D, n_rows, R) of all earlier rows, next to each other."""
    belief, n = fit.belief, sum(fit.shape)
    if isinstance(fit.posterior, Draws):
        like = np.flatnonzero(fit.aligned.like)
        some = like[np.unique(np.linspace(0, len(like) - 1, min(MOST_DRAWS, len(like))).astype(int))]
        return aligned_rows(belief.mean[some, :n], fit.aligned.reference, fit.layout)
    belief = gaussian.belief
    draws = draw_rows(belief.mean[0, :n], belief.cov[0, :n], MOST_DRAWS, np.random.default_rng(0))  # type: ignore[index]
    free = np.repeat(free_columns(fit.interactions, len(fit.shape)), fit.shape, axis=0)
    return np.where(free, draws, 1.0)


def warm_start(spec: FitSpec, before: FitResult, entries: Entries, plan: Plan) -> Plan:
    """The plan of a fit to entries from the factors of an earlier one."""
    shape, labels, *_ = described(spec.prior, entries[2], entries[3])
    mean, free, parts = before.aligned.mean, free_columns(before.interactions, len(before.shape)), []
    for k, own in enumerate(before.layout.rows):
        place = places_of(before, shape, labels, k)
        parts.append(np.where(place[:, None] >= 0, mean[own][place], before.unseen_mean[k]))
    return from_earlier(plan, np.concatenate(parts), free)
