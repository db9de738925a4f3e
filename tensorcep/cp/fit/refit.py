"""Fits that go on from an earlier one: warm starts, rows that stay, Gaussians of draws, entries divided out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import offsets, pack
from tensorcep.cp.fit.run import MultiStart
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fitted.alignment import CHUNK, Aligned, aligned_rows, layout_of
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.fitted.predict import latent
from tensorcep.cp.inputs.coordinates import Entries, Read, matching_modes, mode_of, names_of, names_of_modes
from tensorcep.cp.inputs.side_information import check_no_deviations, described, is_local
from tensorcep.cp.messages.engine import Messages, MessageState, latent_values, with_noise_messages
from tensorcep.cp.methods import methods_with, refuse_unable
from tensorcep.cp.model.columns import CLAMPED, free_columns, free_problem
from tensorcep.cp.model.problem import FixedRows
from tensorcep.cp.model.rows import initial_prior, refresh_rows, rows_at_prior, with_seen_rows
from tensorcep.cp.plan.auto import SWEEPS
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.spec import FitSpec, given_int, is_auto
from tensorcep.cp.posterior import (
    Components,
    Dispersion,
    Draws,
    GammaNoise,
    PointEstimate,
    Posterior,
    draw_rows,
    first_member,
)
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.base import conditional_of_modes, of_rows, per_row

# Cells at which Gaussians are compared with the draws, and the share of the variance there that they may miss.
COMPARED, MOST_LEFT = 2000, 0.1


def gaussian_fit(fit: FitResult, max_iter: Any, what: str = "partial_fit") -> FitResult:
    """A result that goes on as a stream by CEP, from Gaussians that it is or comes to; `what` goes on, in errors."""
    fit = fit.changed()  # what is made of the factors here is not the model's
    result = first_member(fit.posterior)
    if isinstance(result, PointEstimate):
        refuse_unable(fit.method, "streams", f"gives a point estimate, and {what} needs a posterior", fit.likelihood)
    found: tuple[Any, ...] = result, fit.unseen_mean, fit.unseen_cov
    posterior, mean, cov = _gaussians_of(fit, result, what) if isinstance(result, Draws) else found
    known = {"method": "cep", "max_iter": given_int("max_iter", max_iter, SWEEPS)}
    without = {"diagnostics": None, "cells": None, "sampled": None, "kept": None, "apart": (), "forgotten": ()}
    return fit.with_posterior(posterior, unseen_mean=mean, unseen_cov=cov, **known, **without)


def _gaussians_of(fit: FitResult, draws: Draws, what: str) -> tuple[Posterior, np.ndarray, np.ndarray]:
    """A Gaussian of every row that says what draws say; mean (K, R) and covariance (K, R, R) of unknown rows."""
    free = free_columns(fit.interactions, len(fit.shape))
    if fit.likelihood.levels is not None:  # thresholds are learned anew
        draws = draws._replace(theta=None, n_thresholds=0)
    noise = dispersion = None
    if draws.theta is not None:  # Gamma laws with the moments of the draws; none knows more than the entries tell
        theta, most_shape = draws.theta.reshape(-1, draws.theta.shape[-1]), 0.5 * fit.n_samples_seen + 1.0
        size = theta.mean(axis=0)
        a = np.minimum(size**2 / np.maximum(theta.var(axis=0), size**2 / most_shape), most_shape)
        if fit.likelihood.learns_precision:
            noise = GammaNoise(float(a[0]), float(a[0] / size[0]))
        else:
            dispersion = Dispersion(draws.theta_mode, a, a / size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how well draws agree is judged here by what they predict
        found, covs = fit.aligned, fit.factor_covs
    # each row gets the mean and covariance of the aligned draws that have the same components
    n, unknown = int(found.like.sum()), _unknown_rows(draws, fit.belief, found, free)
    each = zip(fit.layout.rows, covs, free, strict=True)
    parts = [_natural(found.mean[own], cov, columns, n) for own, cov, columns in each]
    Lam, eta = (np.concatenate(part) for part in zip(*parts, strict=True))
    posterior = Posterior(draws.shape, draws.rank, Lam, eta, noise, draws.seen, dispersion)
    # cells spread over all of the fit; of all rows with entries, where these are not known
    first, layout, rng = offsets(fit.shape)[:-1], fit.layout, np.random.default_rng(0)
    if fit.cells is not None and len(fit.cells):
        cells = np.asarray(fit.cells[:: -(-len(fit.cells) // COMPARED)], dtype=np.int64) + first
    else:
        cells = np.stack([rng.choice(seen, COMPARED) for seen in layout.seen], axis=1)
    said, variance = latent(fit.belief, cells)
    apart = said - latent(posterior.components(), cells)[0]
    left = float(np.mean(apart**2) / max(float(np.var(said) + np.mean(variance)), np.finfo(float).tiny))
    if left > MOST_LEFT:
        fail_value(
            f"the draws of {fit.method!r} do not agree on the components: Gaussians of the rows, from "
            f"which {what} goes on, miss {100 * left:.0f} % of what the draws predict; fit with one of the methods "
            f"{methods_with('streams', likelihood=fit.likelihood)}, from which it always does."
        )
    mean = unknown.mean(axis=0)
    centred = unknown - mean
    of_unknown = np.einsum("dki,dkj->kij", centred, centred) / max(1, n - 1)
    of_unknown = np.stack([_proper(one[None], n)[0] for one in of_unknown])
    # clamped columns vary as little as they may, and with no other
    of_unknown = np.where(free[:, :, None] & free[:, None, :], of_unknown, 0.0)
    of_unknown += np.where(free, 0.0, 1.0 / CLAMPED)[:, :, None] * np.eye(free.shape[1])
    return posterior, np.where(free, mean, 1.0), of_unknown


def _unknown_rows(draws: Draws, belief: Components, found: Aligned, free: np.ndarray) -> np.ndarray:
    """Draws (n, K, R) of one more row of each mode, in the columns of the aligned ones."""
    ends, total = offsets(draws.shape)[1:], sum(draws.shape)
    modes = [tuple(np.flatnonzero(column).tolist()) for column in free.T]
    longer = layout_of([size + 1 for size in draws.shape], modes, np.insert(draws.seen, ends, False))
    reference, places = np.insert(found.reference, ends, 0.0, axis=0), ends + np.arange(len(ends))
    like, size = np.flatnonzero(found.like), max(1, CHUNK // max(1, reference.size))
    result = []
    for a in range(0, len(like), size):
        part = belief.mean[like[a : a + size]].astype(np.float64)
        both = np.insert(part[:, :total], ends, part[:, total:], axis=1)
        result.append(aligned_rows(both, reference, longer)[:, places])
    return np.concatenate(result)


def _proper(cov: np.ndarray, n_draws: int) -> np.ndarray:
    """Covariances (n, d, d) of few draws made positive definite, no variance below that of a clamped column."""
    d, variance = cov.shape[1], np.maximum(np.diagonal(cov, axis1=1, axis2=2), 1.0 / CLAMPED)
    cov = cov * (max(0, n_draws - 1) / (max(0, n_draws - 1) + d))
    cov[:, np.arange(d), np.arange(d)] = variance
    return cov


def _natural(mean: np.ndarray, cov: np.ndarray, free: np.ndarray, n_draws: int) -> Natural:
    """Natural parameters of rows with these moments, (n, R) and (n, R, R), in all columns."""
    f = np.flatnonzero(free)
    cov = _proper(cov[:, f[:, None], f[None, :]], n_draws)
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    scale = sd[:, :, None] * sd[:, None, :]
    Lam = np.linalg.inv(cov / scale) / scale
    Lam = 0.5 * (Lam + Lam.swapaxes(1, 2))
    return in_all(Natural(pack(Lam), np.einsum("nij,nj->ni", Lam, mean[:, f])), free)


# Forgetting entries whose messages were kept: they are divided out, and the rest settles again.
#
# The posterior is prior x messages, so that taking an entry's messages out is what removes it (decremental EP); the
# others were computed beside it, and some more sweeps bring them to the fixed point of the entries that are left. What
# the fit decided by all its values (level, scales) is decided anew by those.


class Kept(NamedTuple):
    """What a fit by ``CEP(keep_messages=True)`` keeps; of others, what is passed again."""

    coords: np.ndarray  # (N, K) int64, of the entries in the order of the lanes
    values: np.ndarray  # (N,) float64, as they were given, labels coded
    source: Any  # what the fit was given, which may know more than the entries
    state: MessageState | None  # at the end of the fit


@dataclass(frozen=True)
class FromMessages(MultiStart):
    """The messages of a fit, of which those of some entries are divided out, and sweeps over the others."""

    kept: Any = None  # `Kept`
    left: Any = None  # (N,) bool, the entries that are left

    def run(self, plan: Plan) -> Run:
        old, (method, settings) = self.kept.state, plan.engine
        problem, in_free = plan.problem, with_seen_rows(free_problem(plan.problem))
        with threads_of(plan.options.n_threads) as executor:
            new: MessageState = method.init(problem, settings, executor)
            places = np.flatnonzero(self.left)
            parts = zip(old.own.messages, new.own.messages, strict=True)
            messages = Messages(*(_chosen(part, places, like) for part, like in parts))
            prior, modes = initial_prior(in_free), old.hyper.now.modes
            if modes is not None:
                prior = conditional_of_modes(modes, prior.seen)
                prior = prior._replace(eta=of_rows(prior.eta, in_free.prior, modes, problem.shape, natural=True))
            rows, n = rows_at_prior(in_free), len(places)
            to = problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[:n].ravel()
            for line, part, sent in ((prior.Lam, rows.Lam, messages.Lam), (prior.eta, rows.eta, messages.eta)):
                part[:] = per_row(line, problem.shape)
                np.add.at(part, to, _by_entry(sent)[:n].reshape(len(to), -1))
            refresh_rows(rows, 0, len(rows.good), executor)
            hyper = new.hyper._replace(now=prior, max_variance=old.hyper.max_variance)
            told = float(messages.a.sum()), float(messages.b.sum())
            laws = with_noise_messages(new.own.parameters, old.parameters, *told)
            state = MessageState(rows, hyper, laws, new.own, old.sweeps)
            state = state.put(messages=messages, f=latent_values(rows.mean, problem, executor))
        return run(method, problem, settings, state=state, done=state.sweeps, **plan.options._asdict())


def _by_entry(part: np.ndarray) -> np.ndarray:
    """Messages of all lanes, one after the other: (n_blocks * LANES, K, W)."""
    return np.moveaxis(part, -1, 1).reshape(-1, *part.shape[1:-1])


def _chosen(part: np.ndarray, places: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The messages at some places in the lanes, as messages of the shape of `like`."""
    if not like.size:
        return like
    new, (block, lane) = lane_zeros(like.shape, like.dtype), np.divmod(np.arange(len(places)), LANES)
    new[block, ..., lane] = _by_entry(part)[places]
    return new


def from_earlier(plan: Plan, rows: np.ndarray, free: np.ndarray) -> Plan:
    """The plan from rows (n_rows, R) of an earlier fit; anew where its columns are not those of these rows."""
    return plan.from_rows(rows) if np.array_equal(plan.problem.every_free, free) else plan


# Draws of rows that stay, for a sampler.
MOST_DRAWS = 200


def fixed_fit(spec: FitSpec, before: FitResult | None, read: Read, fixed_modes: Any) -> tuple[Entries, Plan, Plan]:
    """The entries in the model's rows, the plan of a fit to them, and the one to run, in which rows of modes stay."""
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
    as_fitted: dict[str, Any] = {"rank": fit.rank, "interactions": fit.interactions, "shape": None}
    as_fitted |= {name: getattr(fit, name) for name in ("method", "prior") if is_auto(getattr(spec, name))}
    plan = plan_fit(spec.knowing(facts)._replace(**as_fitted), entries, read.source, **how)
    cannot = "learns all rows, and fixed_modes keeps some"
    refuse_unable(plan.engine.settings, "fixes_rows", cannot, fit.likelihood)
    posterior: Any = gaussian.posterior
    which = tuple(k in modes for k in range(len(fit.shape)))
    of_modes = [places_of(fit, entries[2], entries[3], k, same) for k, same in enumerate(which)]
    each = zip(of_modes, offsets(fit.shape)[:-1], strict=True)
    # the earlier packed row of every packed row of the fit, -1 for new ones
    places = np.concatenate([np.where(place >= 0, place + first, -1) for place, first in each])
    at, is_sampler = np.maximum(places, 0), plan.engine.method.capabilities.sampler
    draws = _draws_of(fit, gaussian)[:, at] if is_sampler else np.zeros((0, len(places), posterior.rank))
    rows = FixedRows(which, posterior.seen[at], posterior.Lam[at], posterior.eta[at], draws)
    begin, known = plan.problem.start, gaussian.aligned.mean[at]
    start = known if begin is None else np.where(places[:, None] >= 0, known, begin)
    return entries, plan, plan.with_problem(fixed=rows).from_rows(start)


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
