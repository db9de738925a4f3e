"""One batch of a stream: what learning it takes, decided and checked before anything changes, and undone if need be.

What a stream says of a batch before it is learned.

The step that a batch of a stream takes: no farther than it is predicted better for it.

Messages to the rows of several modes explain the same surprise, each as if the others stayed: together they may go far
beyond it, most of all where one entry alone is learned. Each of them is right about the direction, so that a step short
enough predicts the batch better than none.

Where the scores of a stream's entries go: to a csv file, or to what the user calls.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.belief import GammaNoise, Posterior, first_member
from tensorcep.core.checks import check_random_state, check_range, check_sizes, fail_value
from tensorcep.core.components import Components
from tensorcep.core.loop import AnyMethod, Run
from tensorcep.core.settings import Settings
from tensorcep.cp.fit.outcome import unseen_moments
from tensorcep.cp.fitted.predict import BLOCK_CELLS, extended, given_at
from tensorcep.cp.inputs.side_information import warn_of_new_rows
from tensorcep.cp.inputs.weights import WHOLE_REVISITED, check_power
from tensorcep.cp.methods import get_method
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.parameters import with_parameter
from tensorcep.cp.plan.auto import given_int
from tensorcep.cp.plan.spec import RunOptions, checked_options, with_numbers
from tensorcep.cp.settings.registry import settings_for
from tensorcep.cp.stream.adf import BatchProblem, Stream, StreamState, batch_of, begin, grown, keys_of, uniform_means
from tensorcep.cp.stream.arrivals import rows_of_keys
from tensorcep.cp.stream.attempts import learn, may_be_bold
from tensorcep.cp.stream.chained import chain_of, with_chains, with_new_rows
from tensorcep.cp.stream.cold_start import PLAIN_REVISITED, Begun, leaves_choice
from tensorcep.cp.stream.deviating import told_of_others, with_deviations, with_new_pairs
from tensorcep.cp.stream.featured import with_maps
from tensorcep.cp.stream.noise import told_messages, untold, with_told
from tensorcep.cp.stream.reservoir import Reservoir, empty_reservoir, with_new
from tensorcep.cp.stream.revisit import Revisit, revisit, revisited, with_messages
from tensorcep.cp.stream.standing import Predicted, Standing
from tensorcep.cp.stream.wild import CERTAIN, SURPRISING, change_after, deciding, warn_of_wild, wild_values, without
from tensorcep.entries.batch import Batch
from tensorcep.entries.interop import column_names
from tensorcep.entries.labels import Labels
from tensorcep.priors.fixed import Prior, natural_prior
from tensorcep.priors.record import per_row

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP


class BatchEngine(NamedTuple):
    """What learns a batch: a method, its settings, how it is run, its most sweeps, and whether boldly (`attempts`)."""

    method: AnyMethod
    settings: Settings
    options: RunOptions
    max_iter: int
    bold: bool


class BatchPlan(NamedTuple):
    """What learning one more batch takes.

    Attributes
    ----------
    stream : Stream
        As it is before the batch.
    state : StreamState
        With room for the rows that the batch brings.
    added : tuple of dict or None
        Per mode with labels, the rows of those that are new.
    batch : BatchProblem
    visit : Revisit or None
    engine : BatchEngine
    y : (N,) float64
        Values as the likelihood has them.
    coords : (N, K) int64
        Rows of the entries.
    extent : (N,) float64 or None
        Their exposures or numbers of trials.
    """

    stream: Stream
    state: StreamState
    added: tuple[dict[Any, int] | None, ...]
    batch: BatchProblem
    visit: Revisit | None
    engine: BatchEngine
    y: np.ndarray
    coords: np.ndarray
    extent: np.ndarray | None = None

    @property
    def joined(self) -> BatchProblem:
        """The batch, with the entries that are revisited."""
        return self.batch if self.visit is None else self.visit.batch

    @property
    def labels(self) -> tuple[Labels | None, ...]:
        """The labels of every mode, those that the batch brings included."""
        each = zip(self.stream.keys, self.added, self.stream.names, strict=True)
        return tuple(None if known is None else Labels([*known, *(new or {})], name=name) for known, new, name in each)


class Learned(NamedTuple):
    """What a batch, with the prior that its rows had, led to."""

    run: Run
    posterior: Posterior
    reservoir: Reservoir | None
    batch: BatchProblem


def first_stream(
    model: BaseCP, begun: Begun, coords: np.ndarray, values: np.ndarray, time: float, before: Reservoir | None = None
) -> Stream:
    """The stream after its first entries were fitted together; `before` is the reservoir so far, for its counts."""
    plan, problem, result, posterior = begun.plan, begun.plan.work.problem, begun.run, begun.run.posterior
    if not isinstance(posterior, Posterior):
        raise TypeError(f"a stream goes on from a Gaussian posterior; got {type(posterior).__name__}.")
    Lam, eta = (per_row(part, problem.shape) for part in (problem.prior.Lam, problem.prior.eta))
    if posterior.mode_prior is not None:  # what the first batch says of the prior stays
        Lam, eta = _mean_prior(posterior, *unseen_moments(posterior, plan.prior))
    too_much = untold(problem, posterior)
    state = begin(with_told(problem, posterior, too_much), Lam, eta, problem.noise_prior, time)
    known = plan.attributes
    state = with_maps(state, posterior.mode_prior, known["_features"], known["_expected"], problem.every_free)
    about = known["_expected"], problem.every_free, posterior.sites
    state = with_chains(state, posterior.mode_prior, known["_series"], *about)
    state = with_deviations(state, posterior.deviations, *about[:2])
    drawn = plan.attributes["prior_"] == "fixed" and model.prior_mean == "uniform" and problem.free is None
    keys, names = keys_of(plan.labels)
    stream = Stream(
        state, keys, names, problem.seed, drawn, standing=begun.standing, kept=begun.kept, watched=begun.watched
    )
    if not model.revisit:
        return stream
    y = model._checked_targets(values, problem.likelihood)
    how: dict[str, Any] = {"seed": stream.seed, "capacity": model.revisit, "free": problem.free}
    empty = empty_reservoir(len(problem.shape), state.rank)
    if before is not None:
        again = 0 if leaves_choice(model) else len(before.sample.y)  # as revisits would have, in one fit
        empty = empty._replace(revisited=before.revisited + again, skipped=before.skipped)
    sent = told_messages(result.state.messages, posterior, too_much)
    return stream._replace(reservoir=with_new(empty, (coords, y, time), problem.entries.permutation, sent, **how))


def continued_stream(model: BaseCP) -> Stream:
    """The stream so far; that of a model that was fitted, or loaded, begins with its posterior."""
    if "_stream" in vars(model):
        return model._stream
    posterior: Any = first_member(model.posterior_)
    Lam, eta = _mean_prior(model.posterior_, model._unseen_mean, model._unseen_cov)
    seed = int(check_random_state(model.random_state).integers(2**63))
    noise = posterior.noise  # of a fit the first prior is not kept: forgetting leaves the noise as it is
    state = begin(posterior, Lam, eta, noise, float(model.n_batches_ - 1))
    keys, names = keys_of(model.labels_)
    free = free_columns(model.interactions_, len(keys))
    state = with_maps(state, posterior.mode_prior, model._features, model._expected, free)
    state = with_chains(state, posterior.mode_prior, model._series, model._expected, free, posterior.sites)
    state = with_deviations(state, posterior.deviations, model._expected, free)
    drawn = model.prior_ == "fixed" and model.prior_mean == "uniform" and bool(free.all())
    return Stream(state, keys, names, seed, drawn)


def _mean_prior(posterior: Any, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of every row's prior where that is the same for all rows of a mode."""
    prior = Prior(list(mean), [np.linalg.inv(item) for item in cov])
    return natural_prior(prior, posterior.shape, posterior.rank)


def plan_batch(model: BaseCP, arrival: Batch) -> BatchPlan:
    """Decide all of learning one more batch. The estimator and its stream are not changed.

    Raises
    ------
    ValueError, TypeError
        If a parameter or the batch is not allowed.
    """
    likelihood, engine = model._likelihood(), engine_of(model)
    y = model._checked_targets(arrival.values, likelihood)
    stream = continued_stream(model)
    time = _checked_time(arrival.time, stream.state.time, model.n_batches_)
    coords, added = rows_of_keys(arrival, stream.keys, stream.names, model.shape)
    sizes, names = stream.state.sizes, column_names(stream.names, None)
    seen = [mode.seen[:n] for mode, n in zip(stream.state.modes, sizes, strict=True)]
    warn_of_new_rows(stream.state.designs, seen, coords, names)
    n_entries = model.n_samples_seen_ + len(coords)
    check_sizes([int(n) + 1 for n in coords.max(axis=0)], n_entries, given=model.shape is not None)
    state = grown(stream.state, coords.max(axis=0) + 1, lambda *rows: _prior_of_new(model, stream, *rows))
    new = [None if own is None else list(own) for own in added]
    state = with_new_rows(state, sizes, new, names)
    state = with_new_pairs(state, coords)
    how: dict[str, Any] = {"likelihood": likelihood, "keep": 1.0 - model.forget, "time": time, "seed": stream.seed}
    visit, batch = None, batch_of(state, coords, y, power=arrival.weights, extent=arrival.extents, **how)
    if arrival.weights is not None:
        check_power(engine.method.name, batch.problem)
    if model.revisit and arrival.weights is not None:
        fail_value(WHOLE_REVISITED)
    if model.revisit and arrival.extents is not None:
        fail_value(PLAIN_REVISITED)
    if model.revisit:
        before = stream.reservoir or empty_reservoir(len(stream.keys), state.rank)
        visit = revisit(state, before, coords, y, capacity=model.revisit, **how)
    return BatchPlan(stream, state, added, batch, visit, engine, y, coords, arrival.extents)


def engine_of(model: BaseCP) -> BatchEngine:
    """What learns a batch, by the model's parameters.

    Raises
    ------
    ValueError, TypeError
        If one of them is not allowed.
    """
    max_iter = given_int("max_iter", model.max_iter, model.max_iter_)
    likelihood, options = model._likelihood(), checked_options(model)
    method = get_method(model.method_, likelihood)
    settings = settings_for(model.method, method.name)
    numbers = with_numbers(settings, likelihood.name, model.prior_ == "learned", max_iter)
    return BatchEngine(method, numbers, options, max_iter, may_be_bold(settings))


def _checked_time(time: float | None, last: float, n_batches: int) -> float:
    time = float(n_batches) if time is None else check_range("time", time)
    if time < last:
        fail_value(f"time must not go back: the last batch was at {last:g}; got {time:g}.")
    return time


def _prior_of_new(model: BaseCP, stream: Stream, k: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the prior of the rows first:last of mode k."""
    rank, mean, cov = stream.state.rank, model._unseen_mean[k], model._unseen_cov[k]
    if stream.uniform:
        mean = np.sqrt(cov[0, 0]) * uniform_means(stream.seed, k, first, last, rank)
    return natural_prior(Prior([mean], [np.linalg.inv(cov)]), (last - first,), rank)


def learn_batch(plan: BatchPlan) -> Learned:
    """Learn a batch; the stream is not changed.

    Raises
    ------
    FloatingPointError
        If the result is not finite.
    """
    learned = learned_by(plan.engine, plan.joined, plan.visit)
    again = told_of_others(plan.state, plan.joined, learned.posterior) if plan.state.chains else None
    return learned if again is None else learned_by(plan.engine, again, plan.visit)


def learned_by(engine: BatchEngine, batch: BatchProblem, visit: Revisit | None) -> Learned:
    """What a batch leads to, its entries that were revisited among them."""
    options, problem = engine.options._replace(verbose=False), batch.problem
    how = {"bold": engine.bold, "max_iter": engine.max_iter, **options._asdict()}
    result = learn(engine.method, problem, engine.settings, **how)
    posterior: Any = result.posterior
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        raise FloatingPointError("the batch led to values that are not finite; add damping or a tighter prior.")
    too_much = untold(problem, posterior)
    told = with_told(problem, posterior, too_much)
    if visit is None:
        return Learned(result, told, None, batch)
    return Learned(result, *revisited(visit, told, told_messages(result.state.messages, posterior, too_much)), batch)


def part_of_the_way(plan: BatchPlan, learned: Learned, step: float) -> Learned:
    """What a batch leads to where rows and noise go but a step, from 0 to 1, from what they were to what it says.

    What it sends to them is scaled, so that posteriors stay products of a prior and of messages.
    """
    problem, visit = learned.batch.problem, plan.visit
    too_much = untold(problem, learned.run.posterior)
    reached = with_told(problem, learned.run.posterior, too_much)
    before = (problem.prior.Lam, problem.prior.eta, problem.noise_prior) if visit is None else with_messages(visit)
    Lam, eta = (old + step * (new - old) for old, new in zip(before[:2], (reached.Lam, reached.eta), strict=True))
    noise, known = reached.noise, before[2]
    if noise is not None and known is not None:
        noise = GammaNoise(*(old + step * (new - old) for old, new in zip(known, noise, strict=True)))
    told = reached._replace(Lam=Lam, eta=eta, noise=noise, dispersion=plan.state.dispersion)
    if visit is None:
        return learned._replace(posterior=told)
    sent = told_messages(learned.run.state.messages, reached, too_much)
    posterior, reservoir = revisited(visit, told, sent, step)
    return learned._replace(posterior=posterior, reservoir=reservoir)


@contextlib.contextmanager
def all_or_nothing(plan: BatchPlan, is_learned: Callable[[], bool]) -> Iterator[None]:
    """Give the rows that a batch changes, and the labels, back as they were unless the model has learned the batch.

    Rows are changed in place, since their number may be large; this keeps a copy of those of the batch, of a series of
    all; pairs of rows are made anew. An interrupt may come between the model's last step and the end of the block: the
    model says what was done.
    """
    whole = [
        slice(n) if chain_of(plan.state, k) else rows
        for k, (n, rows) in enumerate(zip(plan.state.sizes, plan.joined.used, strict=plan.state.pairs is None))
    ]
    rows_of_modes = list(zip(plan.state.modes, whole, strict=True))
    before = [[_copied(field, rows) for field in mode] for mode, rows in rows_of_modes]
    try:
        yield
    finally:
        if not is_learned():
            for (mode, rows), copies in zip(rows_of_modes, before, strict=True):
                for field, values in zip(mode, copies, strict=True):
                    field[rows] = values
            for known, new in zip(plan.stream.keys, plan.added, strict=True):
                if known is not None and new is not None:
                    for key in new:
                        known.pop(key, None)


def _copied(field: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
    """Some rows of an array; numpy takes numbered ones in a third of the time that indexing needs."""
    return field[rows].copy() if isinstance(rows, slice) else field.take(rows, axis=0)


def prequential(plan: BatchPlan) -> Predicted:
    """The predictions of a batch before it is learned."""
    return predictions(plan, belief_before(plan), plan.batch.rows)


def predictions(plan: BatchPlan, belief: Components, rows: np.ndarray, values: np.ndarray | None = None) -> Predicted:
    """What a belief says of the entries of a batch, which lie in these of its rows (n, K), or had they these values.

    It is one Gaussian, whose noise is the same everywhere.
    """
    likelihood, parameter = with_parameter(plan.batch.problem.likelihood, belief.theta)
    coded = plan.y if values is None else values
    mean, score, variance = np.empty((3, len(coded)))
    for first in range(0, len(score), BLOCK_CELLS):
        part = slice(first, first + BLOCK_CELLS)
        m, v, theta = extended(likelihood, given_at(parameter, belief, rows[part]), plan.extent, part)
        y, given = coded[part], (m[0], v[0], theta[0])
        score[part] = likelihood.logpdf(y, *given)
        if likelihood.observes == "labels":
            mean[part] = np.where(y > 0.0, np.exp(score[part]), -np.expm1(score[part]))
            variance[part] = mean[part] * (1.0 - mean[part])
        else:
            mean[part], variance[part] = likelihood.predict(*given)
    return Predicted(mean, score, variance)


def belief_before(plan: BatchPlan) -> Components:
    """What is known of the rows of a batch before it is learned, at its time."""
    known = plan.batch.problem
    none = np.zeros(len(known.prior.eta), dtype=bool)
    prior = Posterior(
        known.shape, known.rank, known.prior.Lam, known.prior.eta, known.noise_prior, none, plan.state.dispersion
    )
    return prior.components()


# The kinds of data whose values may be as far as they will; those of labels are bounded.
OPEN = ("values", "counts")
# Halvings after which a batch is not learned at all.
MAX_HALVINGS = 60


def learn_no_worse(plan: BatchPlan, values: np.ndarray, before: Predicted) -> Learned:
    """Learn a batch of these values and predictions by as long a step as it bears; the stream is not changed.

    Raises
    ------
    FloatingPointError
        If the result is not finite.
    """
    learned = learn_batch(plan)
    if plan.batch.problem.likelihood.observes not in OPEN:
        return learned
    found, step = learned, 1.0
    for _ in range(MAX_HALVINGS):
        if not _is_worse(plan, values, before, found):
            return found
        step *= 0.5
        found = part_of_the_way(plan, learned, step)
    return part_of_the_way(plan, learned, 0.0)


def _is_worse(plan: BatchPlan, values: np.ndarray, before: Predicted, found: Learned) -> bool:
    """Whether squared errors of a batch, each by its predicted variance, rose by more than that of an entry."""
    with np.errstate(over="ignore", invalid="ignore"):
        after = predictions(plan, found.posterior.components(), found.batch.rows[: len(values)])
        rise = ((values - after.mean) ** 2 - (values - before.mean) ** 2) / before.variance
    return not float(rise.sum()) <= 1.0


class Sifted(NamedTuple):
    """A batch without its errors: its entries, their plan (None where none are left), predictions and standing."""

    arrival: Batch
    plan: BatchPlan | None
    before: Predicted
    standing: Standing


def sifted(model: BaseCP, plan: BatchPlan, arrival: Batch, before: Predicted) -> tuple[Sifted, np.ndarray]:
    """The batch without values that nothing so far lets be, and which these are (N,) bool; neither is changed."""
    kind, standing = plan.batch.problem.likelihood.observes, plan.stream.standing
    wild = np.zeros(len(arrival.values), dtype=bool)
    if kind in OPEN:
        surprise = _surprises(plan, arrival.values, before)
        wild = wild_values(arrival.values, surprise, model.n_samples_seen_, standing, kind == "counts")
        standing = standing._replace(change=change_after(standing.change, wild))
    if not wild.any() or standing.change >= CERTAIN:
        return Sifted(arrival, plan, before, standing), np.zeros_like(wild)
    left = without(arrival, wild)
    return Sifted(left, None if wild.all() else plan_batch(model, left), before.at(~wild), standing), wild


def _surprises(plan: BatchPlan, values: np.ndarray, before: Predicted) -> np.ndarray:
    """What the values (N,) of a batch cost beside their means, in nats; what is no number costs all."""
    with np.errstate(all="ignore"):
        if plan.batch.problem.likelihood.observes == "values":
            found = 0.5 * (values - before.mean) ** 2 / before.variance
        else:
            found = -before.score
            if found.max() > SURPRISING:  # the mean costs something, too
                best = predictions(plan, belief_before(plan), plan.batch.rows, np.floor(before.mean)).score
                found = found + np.where(np.isfinite(best), best, 0.0)
    return np.where(np.isnan(found), np.inf, found)


def warn_of_sifted(arrival: Batch, wild: np.ndarray, before: Predicted) -> None:
    """Warn of the values of a batch that were left out, with what was predicted."""
    if wild.any() and before.variance is not None:
        far = np.abs(arrival.values - before.mean)
        place = int(np.argmax(np.where(wild, far, -np.inf)))
        sd = np.sqrt(before.variance)[place]
        warn_of_wild(arrival, wild, far, f"{before.mean[place]:.4g} with a standard deviation of {sd:.3g} was expected")


def first_sifted(model: BaseCP, arrival: Batch) -> tuple[Batch, np.ndarray]:
    """A first batch without values each of which outweighs all others, and which these are (N,) bool."""
    kind = model._asked_likelihood().observes
    out = np.zeros(len(arrival.values), dtype=bool)
    if kind in OPEN:
        out = deciding(arrival.values, kind == "counts")
    return (without(arrival, out) if out.any() else arrival), out


@contextlib.contextmanager
def watching(scores: Any) -> Iterator[Callable[[pd.DataFrame], Any] | None]:
    """What is called with the scores of every batch: None, what was given, or what writes them to a csv file.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if scores is None or callable(scores):
        yield scores
        return
    if not isinstance(scores, (str, os.PathLike)):
        raise TypeError(f"scores must be a path or callable; got {type(scores).__name__}.")
    with open(scores, "wb") as handle:
        yield lambda frame: write_scores(handle, frame)


def write_scores(handle: BinaryIO, frame: pd.DataFrame) -> None:
    """Write the scores of a batch to an open file, with the names of the columns if they are the first there."""
    names = [f"mode_{name}" if isinstance(name, int) else name for name in frame.columns]
    table = frame.set_axis(names, axis=1)
    text = table.to_csv(index=False, header=handle.tell() == 0, float_format="%.8g", lineterminator="\n")
    handle.write(text.encode())
