"""`fit(fixed_modes=)` of the CP estimators: the rows of some modes stay as an earlier fit left them.

How a stream goes on from a fit by a method that learns no streams: by CEP, from a Gaussian of every row.

Forgetting entries whose messages were kept: they are divided out, and the rest settles again.

The posterior is prior x messages, so that taking an entry's messages out is what removes it (decremental EP); the
others were computed beside it, and some more sweeps bring them to the fixed point of the entries that are left. What
the fit decided by all its values (level, scales) is decided anew by those.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from tensorcep.core.belief import Draws, PointEstimate, first_member
from tensorcep.core.checks import check_fraction, check_int, fail_value
from tensorcep.core.components import draw_rows
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import offsets
from tensorcep.cp.fit.outcome import moment_attributes
from tensorcep.cp.fit.run import run_plan
from tensorcep.cp.fitted.alignment import aligned_rows
from tensorcep.cp.init.residual import strengths
from tensorcep.cp.inputs.coordinates import Entries, matching_modes, mode_of, names_of, names_of_modes
from tensorcep.cp.inputs.side_information import check_no_deviations, is_local
from tensorcep.cp.messages.sent import Messages
from tensorcep.cp.messages.state import MessageState, latent_values
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.active_columns import free_problem
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.memmap import Columns, pieces
from tensorcep.cp.model.problem import FixedRows, Problem
from tensorcep.cp.model.rows import initial_prior, learning, refresh_rows, rows_at_prior
from tensorcep.cp.model.subsets import chosen_by_hash
from tensorcep.cp.plan.auto import SWEEPS, choose, given_int
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.resolve import FitPlan, plan_fit
from tensorcep.cp.posterior.from_draws import MOST_LEFT, Summary, laws_of, left_over, summary_of
from tensorcep.cp.stream.adf import STREAMING
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.record import conditional_of_modes, of_rows, per_row

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Cells at which a summary is compared with the draws.
COMPARED = 2000
OTHERWISE = "fit with method='cep' or method='vmp', from which it always does."


def must_be_summed_up(model: BaseCP) -> bool:
    """Whether a model was fitted by a method that learns no streams."""
    return "_stream" not in vars(model) and "posterior_" in vars(model) and model.method_ not in STREAMING


def gaussian_model(model: BaseCP, what: str = "partial_fit") -> BaseCP:
    """A copy of a fitted model that goes on as a stream by CEP, from the Gaussians that its result is or comes to.

    `what` goes on from it, for the error.

    Raises
    ------
    ValueError
        If there are no Gaussians of the rows that say what the result says.
    """
    model = copy.copy(model)  # what is made of the factors here is not the model's
    result = first_member(model.posterior_)
    if isinstance(result, PointEstimate):
        fail_value(f"{what} needs a posterior, but method {model.method_!r} gives a point estimate; {OTHERWISE}")
    mean, cov = model._unseen_mean, model._unseen_cov
    posterior: Any = result
    if isinstance(result, Draws):
        posterior, mean, cov = _summary(model, result, what)
    sweeps = given_int("max_iter", model.max_iter, SWEEPS)
    changed = {
        "labels_": model.labels_,
        "method_": "cep",
        "max_iter_": sweeps,
        "_unseen_mean": mean,
        "_unseen_cov": cov,
    }
    new = copy.copy(model)
    new._assign({**changed, **moment_attributes(posterior, mean, cov)})
    return new


def _summary(model: BaseCP, draws: Draws, what: str) -> Summary:
    """The summary of a sampler's draws.

    Raises
    ------
    ValueError
        If it misses much of what they say.
    """
    free = free_columns(model.interactions_, len(model.shape_))
    parameter = model._likelihood().parameter
    if model._likelihood().levels is not None:  # thresholds are learned anew
        draws = draws._replace(theta=None, n_thresholds=0)
    laws = laws_of(draws, parameter is not None and parameter.is_precision, model.n_samples_seen_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how well draws agree is judged here by what they predict
        found, covs = model._aligned, model.factor_covs_
    belief = model._fitted_belief()
    summary = summary_of(draws, belief, found, covs, model._layout(), free, laws)
    left = left_over(belief, summary, _some_cells(model) + offsets(model.shape_)[:-1])
    if left > MOST_LEFT:
        fail_value(
            f"the draws of {model.method_!r} do not agree on the components: Gaussians of the rows, from "
            f"which {what} goes on, miss {100 * left:.0f} % of what the draws predict; {OTHERWISE}"
        )
    return summary


def _some_cells(model: BaseCP) -> np.ndarray:
    """Cells (n, K) of the fit, spread over all; of all rows with entries, where these are not known."""
    if model._cells is not None and len(model._cells):
        return np.asarray(model._cells[:: -(-len(model._cells) // COMPARED)], dtype=np.int64)
    rng, layout = np.random.default_rng(0), model._layout()
    each = zip(layout.rows, layout.seen, strict=True)
    return np.stack([rng.choice(seen, COMPARED) - own.start for own, seen in each], axis=1)


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


def fits(work: Plan, kept: Kept) -> bool:
    """Whether a plan for other entries has the columns that the kept messages are for."""
    return free_problem(work.problem).rank == kept.state.rows.eta.shape[1]


def run_without(kept: Kept, left: np.ndarray, work: Plan) -> Run:
    """Run a plan for the entries that are left, (N,) bool, from the messages that they had."""
    executor = ThreadExecutor(work.n_threads)
    try:
        state = _state_without(kept.state, left, work, executor)
    finally:
        executor.close()
    return run(work.method, work.problem, work.settings, state=state, done=state.sweeps, **work.how)


def _state_without(old: MessageState, left: np.ndarray, work: Plan, executor: Any) -> MessageState:
    problem, in_free = work.problem, learning(free_problem(work.problem))
    new: MessageState = work.method.init(problem, work.settings, executor)
    places = np.flatnonzero(left)
    messages = Messages(*(_chosen(part, places, like) for part, like in zip(old.messages, new.messages, strict=True)))
    prior = initial_prior(in_free)
    if old.prior.modes is not None:
        prior = conditional_of_modes(old.prior.modes, prior.seen)
        eta = of_rows(prior.eta, in_free.prior, old.prior.modes, problem.shape, natural=True)
        prior = prior._replace(eta=eta)
    rows, n = rows_at_prior(in_free), len(places)
    to = problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[:n].ravel()
    for line, part, sent in ((prior.Lam, rows.Lam, messages.Lam), (prior.eta, rows.eta, messages.eta)):
        part[:] = per_row(line, problem.shape)
        np.add.at(part, to, _by_entry(sent)[:n].reshape(len(to), -1))
    refresh_rows(rows, 0, len(rows.good), executor)
    noise = old.noise
    if problem.noise_prior is not None:
        noise = (problem.noise_prior.a + messages.a.sum(), problem.noise_prior.b + messages.b.sum())
    state = new._replace(messages=messages, rows=rows, prior=prior, noise=noise, law=old.law, sweeps=old.sweeps)
    state = state._replace(cut=old.cut)
    return state._replace(f=latent_values(rows.mean, problem, executor), max_variance=old.max_variance)


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


def run_from(rows: np.ndarray, work: Plan, runner: Any) -> Run:
    """Run a plan from these row means (n_rows, R), without pilots."""
    problem: Problem = work.problem._replace(start=rows)
    begun = work._replace(problem=problem, starts=(rows,), members=1, spectral=False, pilots=())
    result: Run = runner(begun)
    return result


def runner_of(kept: Kept | None, left: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None, run_plan: Any) -> Any:
    """What runs the plan without the entries that are forgotten.

    `known` are rows (n_rows, R) and their free columns (K, R) bool.

    Returns
    -------
    callable
        Of the plan: from the messages, from the rows where there are none, or anew.
    """
    if kept is not None:
        return lambda work: run_without(kept, left, work) if fits(work, kept) else run_plan(work)
    if known is not None:
        return partial(_from_rows_if_they_fit, *known, run_plan)
    return run_plan


def _from_rows_if_they_fit(rows: np.ndarray, free: np.ndarray, run_plan: Any, work: Plan) -> Run:
    if np.array_equal(work.problem.every_free, free):
        return run_from(rows, work, run_plan)
    for number, (other, _) in enumerate(work.paired, 1):
        if np.array_equal(other.problem.every_free, free):
            return run_from(rows, other, run_plan)._replace(stands_in=number)
    done: Run = run_plan(work)
    return done


# Methods that can leave rows as they are.
FIXING = tuple(name for name in METHODS if name != "wopt")
# Draws of rows that stay, for a sampler.
MOST_DRAWS = 200


class FixedFit(NamedTuple):
    """A fit that leaves some modes as they are: its entries in the model's rows, its plan, and what runs that."""

    entries: Entries
    plan: FitPlan
    runner: Callable[[Plan], Run]


def fixed_fit(
    model: BaseCP,
    entries: Entries,
    coding: dict[str, Any],
    source: Any,
    fixed_modes: Any,
    extent: np.ndarray | None = None,
    power: np.ndarray | None = None,
) -> FixedFit:
    """Plan a fit to entries that learns all rows but those of the fixed modes. The estimator is not changed.

    Raises
    ------
    ValueError
        If there is no earlier fit, it has no posterior, the method cannot leave rows, or a row that is to stay is not
        known.
    """
    if "posterior_" not in vars(model) and "_stream" not in vars(model):
        fail_value("fixed_modes names modes of an earlier fit of this estimator, but it is not fitted; fit it first.")
    if is_local(model.prior):
        fail_value("fixed_modes cannot hold rows beside a Series with local=; fit all modes, or leave local= out.")
    if "posterior_" in vars(model):
        check_no_deviations(model._fitted_belief(), "fixed_modes")
    model = copy.copy(model)  # what is made of the factors here is not the model's
    given = fixed_modes if isinstance(fixed_modes, (list, tuple)) else [fixed_modes]
    modes = sorted({mode_of(model.labels_, mode) for mode in given})
    if not 0 < len(modes) < len(model.shape_):
        fail_value(f"fixed_modes must leave at least one mode to learn, and name one; got {fixed_modes!r}.")
    if "_classes" in coding and coding["_classes"] != model._classes:
        known = model._classes
        fail_value(f"y must hold the labels of the earlier fit, {known}, with fixed_modes; got {coding['_classes']}.")
    gaussian = gaussian_model(model, "fixed_modes")
    entries = _in_known_rows(model, entries, modes)
    fitted = _as_fitted(model)
    own = {name: getattr(model, name) for name in model._own_attributes if name not in _DECIDED}
    plan = plan_fit(fitted, entries, source, decided=(model._likelihood(), own), extent=extent, power=power)
    if plan.work.method.name not in FIXING:
        fail_value(f"method {plan.work.method.name!r} learns all rows; fixed_modes works with {', '.join(FIXING)}.")
    places = _places(model, entries, modes)
    rows = _fixed_rows(model, gaussian, places, modes, plan.work)

    def runner(work: Plan) -> Run:
        begin = work.starts[0]
        known = gaussian._aligned.mean[np.maximum(places, 0)]
        start = known if begin is None else np.where(places[:, None] >= 0, known, begin)
        return run_from(start, work._replace(problem=work.problem._replace(fixed=rows)), run_plan)

    return FixedFit(entries, plan, runner)


# Own attributes that a plan decides, or that begin anew.
_DECIDED = ("method_", "rank_", "max_iter_", "prior_", "interactions_", "forgotten_")


def _as_fitted(model: BaseCP) -> BaseCP:
    """The estimator with what it decided for the earlier fit in place of "auto"."""
    fitted = copy.copy(model)
    for name in ("method", "prior"):
        if isinstance(getattr(model, name), str) and getattr(model, name) == "auto":
            setattr(fitted, name, getattr(model, f"{name}_"))
    fitted.rank, fitted.interactions, fitted.shape = model.rank_, model.interactions_, None
    return fitted


def _in_known_rows(model: BaseCP, entries: Entries, modes: list[int]) -> Entries:
    """The entries with the model's order of modes, and its rows in the modes that stay."""
    coords, values, shape, labels = entries
    order = matching_modes(names_of_modes(model.labels_), names_of_modes(labels))
    coords, sizes, found = coords[:, order].copy(), [shape[k] for k in order], [labels[k] for k in order]
    for k in modes:
        known, theirs, name = model.labels_[k], found[k], names_of(model.labels_)[k]
        if (known is None) != (theirs is None):
            fail_value(f"mode {name!r} must have labels in both fits, or indices in both, to stay as it is.")
        if known is not None and theirs is not None:
            coords[:, k] = known.rows(theirs.index, unknown="ignore")[coords[:, k]]
        new = (coords[:, k] < 0) | (coords[:, k] >= model.shape_[k])
        if new.any():
            fail_value(
                f"mode {name!r} stays as it is, so that all its rows must be known; {int(new.sum())} entries are of "
                "others; leave them out, or fold them in first by transform and with_rows."
            )
        sizes[k], found[k] = model.shape_[k], known
    return coords, values, tuple(sizes), tuple(found)


def _places(model: BaseCP, entries: Entries, modes: list[int]) -> np.ndarray:
    """The earlier packed row of every packed row of the fit, -1 for new ones."""
    first, parts = offsets(model.shape_), []
    for k, (size, theirs) in enumerate(zip(entries[2], entries[3], strict=True)):
        known = model.labels_[k]
        if known is not None and theirs is not None and k not in modes:
            place = known.rows(theirs.index, unknown="ignore")
        else:
            place = np.where(np.arange(size) < model.shape_[k], np.arange(size), -1)
        parts.append(np.where(place >= 0, place + first[k], -1))
    return np.concatenate(parts)


def _fixed_rows(model: BaseCP, gaussian: BaseCP, places: np.ndarray, modes: list[int], work: Plan) -> FixedRows:
    posterior: Any = gaussian.posterior_
    at = np.maximum(places, 0)
    draws = np.zeros((0, len(places), posterior.rank))
    if work.method.sampler:
        draws = _draws_of(model, gaussian)[:, at]
    which = tuple(k in modes for k in range(len(model.shape_)))
    return FixedRows(which, posterior.seen[at], posterior.Lam[at], posterior.eta[at], draws)


def _draws_of(model: BaseCP, gaussian: BaseCP) -> np.ndarray:
    """Draws (D, n_rows, R) of all earlier rows, next to each other."""
    belief, n = model._fitted_belief(), sum(model.shape_)
    if isinstance(model.posterior_, Draws):
        like = np.flatnonzero(model._aligned.like)
        some = like[np.unique(np.linspace(0, len(like) - 1, min(MOST_DRAWS, len(like))).astype(int))]
        return aligned_rows(belief.mean[some, :n], model._aligned.reference, model._layout())
    belief = gaussian._fitted_belief()
    draws = draw_rows(belief.mean[0, :n], belief.cov[0, :n], MOST_DRAWS, np.random.default_rng(0))  # type: ignore[index]
    free = np.repeat(free_columns(model.interactions_, len(model.shape_)), model.shape_, axis=0)
    return np.where(free, draws, 1.0)


# A column of less than this share of the strength that it started with was not shown by the first entries.
NEXT_TO_NOTHING = 0.1


def runner_from_some(
    model: BaseCP, entries: Entries, coding: dict[str, Any], source: Any, share: float, limit: float | None, runner: Any
) -> Any:
    """What runs a plan from the rows that a fit to a share of the entries finds, in the columns of the whole fit.

    Of a sampler that is a mean-field fit. The entries are chosen by a hash of their cells.
    """
    coords, values, shape, labels = entries
    chosen = choose(model, len(values), shape, False, limit=limit, stored=isinstance(coords, Columns))
    some = _some_entries(entries, check_fraction("warm_start_fraction", share))
    own: Any = clone(model) if not vars(model).get("callbacks") else clone(model).set_params(callbacks=None)
    method = chosen.method
    if METHODS[method].sampler:
        method = "vmp" if not METHODS["vmp"].lacks(model._asked_likelihood()) else "pg-vb"
    own.set_params(
        rank=chosen.rank, interactions=chosen.parts, method=method, random_state=deepcopy(model.random_state)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
        own._fit_entries(some, coding, source, runner)
    return partial(_run_from_some, own._rows_at(shape, labels), runner)


def _run_from_some(rows: np.ndarray, runner: Any, work: Plan) -> Run:
    """Run a plan from the rows that a share of the entries led to.

    Columns that these entries did not show, which hold next to nothing, start as they would without them: mean field
    does not leave zero.
    """
    start = work.starts[0]
    if start is not None:
        none = strengths(work.problem, rows) < NEXT_TO_NOTHING * strengths(work.problem, start)
        rows = np.where(none, start, rows)
    return run_from(rows, work, runner)


def _some_entries(entries: Entries, share: float) -> Entries:
    coords, values, shape, labels = entries
    columns = coords.columns if isinstance(coords, Columns) else tuple(coords.T)
    found = [
        at.start + np.flatnonzero(chosen_by_hash([c[at] for c in columns], share, 0)) for at in pieces(len(values))
    ]
    places = np.concatenate(found)
    check_int("warm_start_fraction times the number of entries", len(places), 1)
    return np.stack([column[places] for column in columns], axis=1).astype(np.int64), values[places], shape, labels
