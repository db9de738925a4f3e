"""One batch of a stream: what learning it takes, decided and checked before anything changes, and undone if need be.

It is predicted before it is learned (`prequential`), learned no farther than it is predicted better for it
(`learn_no_worse`), and its scores go where the user wants them (`watching`); `learn_arrival` is all of it together.
"""

from __future__ import annotations

import contextlib
import os
import time as clock
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.belief import GammaNoise, Posterior, Result, first_member
from tensorcep.core.checks import check_random_state, check_range, check_sizes, fail_value, warn_user
from tensorcep.core.components import Components
from tensorcep.core.loop import AnyMethod, Run
from tensorcep.core.settings import Settings
from tensorcep.cp.fit.outcome import NOTHING, result_of, unseen_moments, warn_of_no_convergence
from tensorcep.cp.fit.refit import gaussian_fit, must_be_summed_up
from tensorcep.cp.fitted.anomaly import scored, with_scores
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FitResult, FittedModel, FittedRows, rows_of_posterior
from tensorcep.cp.fitted.predict import BLOCK_CELLS, given_at
from tensorcep.cp.inputs.coordinates import names_of_modes
from tensorcep.cp.inputs.outliers import deciding
from tensorcep.cp.inputs.side_information import lost_knowledge, warn_of_new_rows
from tensorcep.cp.inputs.weights import WHOLE_REVISITED, check_power
from tensorcep.cp.methods import get_method
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.parameters import with_parameter
from tensorcep.cp.plan.auto import with_numbers
from tensorcep.cp.plan.spec import FitSpec, RunOptions, checked_options, given_int
from tensorcep.cp.settings.registry import settings_for
from tensorcep.cp.stream.adf import (
    BatchProblem,
    Stream,
    StreamState,
    absorbed,
    batch_of,
    begin,
    grown,
    keys_of,
    posterior_of,
    uniform_means,
)
from tensorcep.cp.stream.arrivals import rows_of_keys, training_rows
from tensorcep.cp.stream.attempts import learn, may_be_bold
from tensorcep.cp.stream.chained import chain_of, with_chains, with_new_rows
from tensorcep.cp.stream.checks import check_stream
from tensorcep.cp.stream.cold_start import (
    PLAIN_REVISITED,
    Begun,
    begin_with,
    chooses_prior,
    compared,
    due,
    kept_with,
    leaves_choice,
    watched_with,
)
from tensorcep.cp.stream.constant import is_judged_by_score
from tensorcep.cp.stream.deviating import told_of_others, with_deviations, with_new_pairs
from tensorcep.cp.stream.drifting import modes_of
from tensorcep.cp.stream.featured import with_maps
from tensorcep.cp.stream.noise import told_messages, untold, with_told
from tensorcep.cp.stream.reservoir import Reservoir, empty_reservoir, with_new
from tensorcep.cp.stream.revisit import Revisit, revisit, revisited, with_messages
from tensorcep.cp.stream.standing import Predicted, Standing, warn_of_no_gain
from tensorcep.cp.stream.wild import CERTAIN, SURPRISING, change_after, warn_of_wild, wild_values, without
from tensorcep.entries.batch import Batch
from tensorcep.entries.interop import column_names
from tensorcep.entries.labels import Labels
from tensorcep.entries.tables import split_given, split_observed
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior, natural_prior
from tensorcep.priors.record import per_row


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
    spec: FitSpec, begun: Begun, coords: np.ndarray, values: np.ndarray, time: float, before: Reservoir | None = None
) -> Stream:
    """The stream after its first entries were fitted together; `before` is the reservoir so far, for its counts."""
    plan, problem, result, posterior = begun.plan, begun.plan.problem, begun.run, begun.run.posterior
    if not isinstance(posterior, Posterior):
        raise TypeError(f"a stream goes on from a Gaussian posterior; got {type(posterior).__name__}.")
    Lam, eta = (per_row(part, problem.shape) for part in (problem.prior.Lam, problem.prior.eta))
    if posterior.mode_prior is not None:  # what the first batch says of the prior stays
        Lam, eta = _mean_prior(posterior, *unseen_moments(posterior, plan.facts.prior))
    too_much = untold(problem, posterior)
    state = begin(with_told(problem, posterior, too_much), Lam, eta, problem.noise_prior, time)
    known = plan.facts.decided
    state = with_maps(state, posterior.mode_prior, known["_features"], known["_expected"], problem.every_free)
    about = known["_expected"], problem.every_free, posterior.sites
    state = with_chains(state, posterior.mode_prior, known["_series"], *about)
    state = with_deviations(state, posterior.deviations, *about[:2])
    drawn = known["prior_"] == "fixed" and spec.prior_mean == "uniform" and problem.free is None
    keys, names = keys_of(plan.facts.labels)
    stream = Stream(
        state, keys, names, problem.seed, drawn, standing=begun.standing, kept=begun.kept, watched=begun.watched
    )
    if not spec.revisit:
        return stream
    y = spec.target.checked(values, problem.likelihood)
    how: dict[str, Any] = {"seed": stream.seed, "capacity": spec.revisit, "free": problem.free}
    empty = empty_reservoir(len(problem.shape), state.rank)
    if before is not None:
        again = 0 if leaves_choice(spec) else len(before.sample.y)  # as revisits would have, in one fit
        empty = empty._replace(revisited=before.revisited + again, skipped=before.skipped)
    sent = told_messages(result.state.messages, posterior, too_much)
    return stream._replace(reservoir=with_new(empty, (coords, y, time), problem.entries.permutation, sent, **how))


def continued_stream(spec: FitSpec, fit: FitResult) -> Stream:
    """The stream so far; that of a model that was fitted, or loaded, begins with its posterior."""
    if fit.stream is not None:
        known: Stream = fit.stream
        return known
    posterior: Any = first_member(fit.posterior)
    Lam, eta = _mean_prior(fit.posterior, fit.unseen_mean, fit.unseen_cov)
    seed = int(check_random_state(spec.random_state).integers(2**63))
    noise = posterior.noise  # of a fit the first prior is not kept: forgetting leaves the noise as it is
    state = begin(posterior, Lam, eta, noise, float(fit.n_batches - 1))
    keys, names = keys_of(fit.labels)
    free = free_columns(fit.interactions, len(keys))
    state = with_maps(state, posterior.mode_prior, fit.features, fit.expected, free)
    state = with_chains(state, posterior.mode_prior, fit.series, fit.expected, free, posterior.sites)
    state = with_deviations(state, posterior.deviations, fit.expected, free)
    drawn = fit.prior == "fixed" and spec.prior_mean == "uniform" and bool(free.all())
    return Stream(state, keys, names, seed, drawn)


def _mean_prior(posterior: Any, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of every row's prior where that is the same for all rows of a mode."""
    prior = Prior(list(mean), [np.linalg.inv(item) for item in cov])
    return natural_prior(prior, posterior.shape, posterior.rank)


def plan_batch(spec: FitSpec, fit: FitResult, arrival: Batch) -> BatchPlan:
    """Decide all of learning one more batch. The stream is not changed.

    Raises
    ------
    ValueError, TypeError
        If a parameter or the batch is not allowed.
    """
    likelihood, engine = fit.likelihood, engine_of(spec, fit)
    y = spec.target.checked(arrival.values, likelihood)
    stream = continued_stream(spec, fit)
    time = _checked_time(arrival.time, stream.state.time, fit.n_batches)
    coords, added = rows_of_keys(arrival, stream.keys, stream.names, spec.shape)
    sizes, names = stream.state.sizes, column_names(stream.names, None)
    seen = [mode.seen[:n] for mode, n in zip(stream.state.modes, sizes, strict=True)]
    warn_of_new_rows(stream.state.designs, seen, coords, names)
    n_entries = fit.n_samples_seen + len(coords)
    check_sizes([int(n) + 1 for n in coords.max(axis=0)], n_entries, given=spec.shape is not None)
    state = grown(stream.state, coords.max(axis=0) + 1, lambda *rows: _prior_of_new(fit, stream, *rows))
    new = [None if own is None else list(own) for own in added]
    state = with_new_rows(state, sizes, new, names)
    state = with_new_pairs(state, coords)
    how: dict[str, Any] = {"likelihood": likelihood, "keep": 1.0 - spec.forget, "time": time, "seed": stream.seed}
    visit, batch = None, batch_of(state, coords, y, power=arrival.weights, extent=arrival.extents, **how)
    if arrival.weights is not None:
        check_power(engine.method.name, batch.problem)
    if spec.revisit and arrival.weights is not None:
        fail_value(WHOLE_REVISITED)
    if spec.revisit and arrival.extents is not None:
        fail_value(PLAIN_REVISITED)
    if spec.revisit:
        before = stream.reservoir or empty_reservoir(len(stream.keys), state.rank)
        visit = revisit(state, before, coords, y, capacity=spec.revisit, **how)
    return BatchPlan(stream, state, added, batch, visit, engine, y, coords, arrival.extents)


def engine_of(spec: FitSpec, fit: FitResult) -> BatchEngine:
    """What learns a batch, by the parameters.

    Raises
    ------
    ValueError, TypeError
        If one of them is not allowed.
    """
    max_iter = given_int("max_iter", spec.max_iter, fit.max_iter)
    likelihood, options = fit.likelihood, checked_options(spec)
    method = get_method(fit.method, likelihood)
    settings = settings_for(spec.method, method.name)
    numbers = with_numbers(settings, likelihood.name, fit.prior == "learned", max_iter)
    return BatchEngine(method, numbers, options, max_iter, may_be_bold(settings))


def _checked_time(time: float | None, last: float, n_batches: int) -> float:
    time = float(n_batches) if time is None else check_range("time", time)
    if time < last:
        fail_value(f"time must not go back: the last batch was at {last:g}; got {time:g}.")
    return time


def _prior_of_new(fit: FitResult, stream: Stream, k: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the prior of the rows first:last of mode k."""
    rank, mean, cov = stream.state.rank, fit.unseen_mean[k], fit.unseen_cov[k]
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
    how = {"bold": engine.bold, **options._asdict(), "max_iter": engine.max_iter}
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
        m, v, theta = given_at(likelihood, parameter, belief, rows, plan.extent, part)
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


# The step that a batch of a stream takes: no farther than it is predicted better for it.
#
# Messages to the rows of several modes explain the same surprise, each as if the others stayed: together they may go
# far beyond it, most of all where one entry alone is learned. Each of them is right about the direction, so that a step
# short enough predicts the batch better than none.

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


def sifted(
    spec: FitSpec, fit: FitResult, plan: BatchPlan, arrival: Batch, before: Predicted
) -> tuple[Sifted, np.ndarray]:
    """The batch without values that nothing so far lets be, and which these are (N,) bool; neither is changed."""
    kind, standing = plan.batch.problem.likelihood.observes, plan.stream.standing
    wild = np.zeros(len(arrival.values), dtype=bool)
    if kind in OPEN:
        surprise = _surprises(plan, arrival.values, before)
        wild = wild_values(arrival.values, surprise, fit.n_samples_seen, standing, kind == "counts")
        standing = standing._replace(change=change_after(standing.change, wild))
    if not wild.any() or standing.change >= CERTAIN:
        return Sifted(arrival, plan, before, standing), np.zeros_like(wild)
    left = without(arrival, wild)
    return Sifted(left, None if wild.all() else plan_batch(spec, fit, left), before.at(~wild), standing), wild


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


def first_sifted(spec: FitSpec, arrival: Batch) -> tuple[Batch, np.ndarray]:
    """A first batch without values each of which outweighs all others, and which these are (N,) bool."""
    kind = spec.asked.observes
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


def scores_of_batch(likelihood: Likelihood, plan: BatchPlan, arrival: Batch) -> pd.DataFrame:
    """The anomaly scores of the entries of a batch that is planned and not learned yet."""
    frame, batch = cells_of_batch(arrival), plan.batch
    numbers = scored(likelihood, belief_before(plan), batch.rows, plan.y, plan.extent)
    seen = [mode.seen[rows] for mode, rows in zip(plan.state.modes, plan.coords.T, strict=True)]
    return with_scores(frame, (arrival.values, *numbers, ~np.all(seen, axis=0)))


def scores_of_first(arrival: Batch) -> pd.DataFrame:
    """The same of a first batch, which nothing predicts: its scores are missing."""
    n = len(arrival.values)
    return with_scores(cells_of_batch(arrival), (arrival.values, *np.full((5, n), np.nan), np.ones(n, dtype=bool)))


def cells_of_batch(arrival: Batch) -> pd.DataFrame:
    """The modes of the entries of a batch, as they came."""
    names = [k if name is None else name for k, name in enumerate(arrival.names)]
    keys = zip(arrival.keys, arrival.coords.T, strict=True)
    columns = dict(zip(names, (at if own is None else own for own, at in keys), strict=True))
    return pd.DataFrame(columns)


# What is told of the entries of a batch, predicted before it was learned.
Watch = Callable[[pd.DataFrame], Any]


class Commit(NamedTuple):
    """How a result takes the place of the one before it (`put`), and which one is there (`now`)."""

    put: Callable[[FitResult], None]
    now: Callable[[], FitResult | None]


class StreamRows:
    """The rows of a stream, made when somebody asks for them: their cost grows with the tensor."""

    def __init__(self, stream: Stream, keep: float, unseen: tuple[np.ndarray, np.ndarray]):
        self._stream, self._keep, self._unseen = stream, keep, unseen

    @cached_property
    def _made(self) -> FittedRows:
        stream = self._stream
        posterior = posterior_of(stream.state, self._keep)
        if any(stream.state.chains):
            posterior = posterior._replace(mode_prior=modes_of(stream.state.chains, *self._unseen))
        labels = tuple(
            None if rows is None else Labels(list(rows), name=name)
            for rows, name in zip(stream.keys, stream.names, strict=True)
        )
        return rows_of_posterior(posterior, labels, *self._unseen)

    @property
    def posterior(self) -> Result:
        """The posterior of all rows."""
        return self._made.posterior

    @property
    def belief(self) -> Components:
        """The same as predictions take it."""
        return self._made.belief

    @property
    def labels(self) -> tuple[Labels | None, ...]:
        """The labels of the rows so far."""
        return self._made.labels


def learn_arrival(
    spec: FitSpec, fit: FitResult | None, arrival: Batch, commit: Commit, watch: Watch | None = None
) -> dict[str, float]:
    """Learn one batch, commit the result, and return what `stream` reports of it.

    `watch` is told of the entries of the batch when it is learned. A batch that is refused or interrupted changes
    nothing.
    """
    begin_seconds = clock.perf_counter()
    check_stream(spec, fit)
    scores = {"log_score": np.nan, "rmse": np.nan}
    arrival, about = spec.target.batch_in_units(arrival, None if fit is None else fit.observation)
    if fit is None:
        learned = _learn_first(spec, arrival, {**about, **spec.target.of_batch(arrival)}, commit)
        if watch is not None:
            watch(scores_of_first(arrival))
    else:
        if must_be_summed_up(fit):
            fit = gaussian_fit(fit, spec.max_iter)
        more, learned = _learn_next(spec, fit, arrival, watch, about, commit)
        scores |= more
    seconds = clock.perf_counter() - begin_seconds
    return {"n_samples_seen": learned.n_samples_seen, **scores, "n_iter": learned.n_iter, "seconds": seconds}


def _learn_first(spec: FitSpec, arrival: Batch, about: dict[str, Any], commit: Commit) -> FitResult:
    given = arrival
    arrival, out = first_sifted(spec, given)
    coords, shape, labels = training_rows(arrival, spec.shape)
    time = 0.0 if arrival.time is None else arrival.time
    beside: dict[str, Any] = {"power": arrival.weights, "extent": arrival.extents}
    begun = begin_with(spec, (coords, arrival.values, shape, labels), arrival.tensor, **beside)
    learned = begin_again(spec, begun, coords, arrival.values, time, commit, coding=about)
    if out.any():
        size = np.abs(given.values - np.median(arrival.values))
        warn_of_wild(given, out, size, f"it outweighs the other {len(arrival.values)} of the batch together")
    return learned


def _learn_next(
    spec: FitSpec, fit: FitResult, arrival: Batch, watch: Watch | None, about: dict[str, Any], commit: Commit
) -> tuple[dict[str, float], FitResult]:
    """Learn a batch after others: its scores before it was learned, and the result."""
    coding = {**spec.target.of_source(arrival.tensor, fit.observation), **about}
    plan = plan_batch(spec, fit, arrival)
    stream = plan.stream
    predicted = prequential(plan)
    told = None
    if watch is not None:
        told = scores_of_batch(FittedModel(fit, spec).likelihood_of_new, plan, arrival)
    rest, wild = sifted(spec, fit, plan, arrival, predicted)
    if rest.plan is None:
        learned = streamed(spec, fit, stream._replace(standing=rest.standing), n_batches=fit.n_batches + 1)
        commit.put(learned)
    else:
        learned = _learn_rest(spec, fit, rest, coding, commit)
    likelihood, shown = plan.batch.problem.likelihood, predicted
    if chooses_prior(spec):
        shown = stream.standing.mixed(likelihood, arrival.values, predicted)
    if watch is not None and told is not None:
        watch(told)
    warn_of_sifted(arrival, wild, predicted)
    squares, weights = (arrival.values - shown.mean) ** 2, arrival.weights
    rmse = float(np.sqrt(np.average(squares, weights=weights)))
    return {"log_score": float(np.average(shown.score, weights=weights)), "rmse": rmse}, learned


def _learn_rest(spec: FitSpec, fit: FitResult, rest: Sifted, coding: dict[str, Any], commit: Commit) -> FitResult:
    """Learn a batch of which something was predicted: with all entries so far, or alone."""
    plan: Any = rest.plan
    arrival, stream = rest.arrival, plan.stream
    standing = rest.standing.after(
        plan.batch.problem.likelihood, arrival.values, rest.before, plan.extent, arrival.weights
    )
    batch = plan.coords, arrival.values, arrival.weights, plan.extent
    kept, watched = kept_with(spec, stream.kept, batch), stream.watched
    is_due = kept is not None and due(kept, plan.state.sizes, plan.state.rank)
    lost = lost_knowledge(spec.prior, fit.features, fit.series) if is_due else None
    if lost is not None:
        warn_user(f"the first entries are not fitted again together: {lost}", UserWarning)
        kept = None
    if kept is None or not is_due:
        learned = learn_no_worse(plan, arrival.values, rest.before)
        if watched is not None:
            watched = watched_with(watched, batch, rest.before.score)
            watched, standing = compared(spec, watched, plan.state, plan.labels, arrival.tensor, standing)
        return _go_on(spec, fit, plan, learned, coding, standing, {"kept": kept, "watched": watched}, commit)
    known = (kept.coords, kept.values, plan.state.sizes, plan.labels)
    has_main = fit.interactions.get("main", 0) > 0
    begun = begin_with(spec, known, arrival.tensor, standing, kept.prior, kept.power, kept.extent, has_main)
    return begin_again(
        spec,
        begun,
        *known[:2],
        plan.batch.time,
        commit,
        stream.reservoir,
        coding,
        fit.observation.facts,
        n_batches=fit.n_batches + 1,
        forgotten=fit.forgotten,
    )


def begin_again(
    spec: FitSpec,
    begun: Begun,
    coords: np.ndarray,
    values: np.ndarray,
    time: float,
    commit: Commit,
    before: Reservoir | None = None,
    coding: Mapping[str, Any] = NOTHING,
    earlier: Mapping[str, Any] = NOTHING,
    **fields: Any,
) -> FitResult:
    """Commit the result after all entries so far were fitted together."""
    run, (standing, is_due) = begun.run, begun.standing.told()
    begun = begun._replace(standing=standing)
    found = result_of(begun.plan, run, spec.target, coding, earlier)
    made = {
        "converged": run.converged and not standing.is_doubtful,
        "trace": _without_seconds(run.trace),
        "stream": first_stream(spec, begun, coords, values, time, before),
        "diagnostics": _health(found.method, run, standing, begun.plan.problem.likelihood),
    }
    found = found.changed(**{**made, **fields})
    commit.put(found)
    warn_of_no_convergence(begun.plan, run)
    if is_due:
        warn_of_no_gain(standing)
    return found


def _go_on(
    spec: FitSpec,
    fit: FitResult,
    plan: BatchPlan,
    learned: Learned,
    coding: dict[str, Any],
    standing: Standing,
    held: dict[str, Any],
    commit: Commit,
) -> FitResult:
    """Commit the result after one more batch was learned, the posterior so far being its prior."""
    run, posterior, reservoir, batch = learned
    standing, is_due = standing.told()
    before = commit.now()
    with all_or_nothing(plan, lambda: commit.now() is not before):
        for known, new in zip(plan.stream.keys, plan.added, strict=True):
            if known is not None and new is not None:
                known.update(new)
        state = absorbed(plan.state, batch, posterior)
        changed: dict[str, Any] = {"state": state, "reservoir": reservoir, "standing": standing, **held}
        unseen = unseen_by_laws(state, fit.unseen_mean, fit.unseen_cov)
        observation = fit.observation.with_facts(coding)
        found = streamed(
            spec,
            fit,
            plan.stream._replace(**changed),
            observation=observation,
            shape=state.sizes,
            n_iter=run.n_iter,
            converged=run.converged and not standing.is_doubtful,
            trace=_without_seconds(run.trace),
            n_samples_seen=fit.n_samples_seen + len(plan.y),
            n_batches=fit.n_batches + 1,
            unseen_mean=unseen[0],
            unseen_cov=unseen[1],
            series=state.clocks if any(state.chains) else fit.series,
            diagnostics=_health(fit.method, run, standing, batch.problem.likelihood),
        )
        commit.put(found)
    if is_due:
        warn_of_no_gain(standing)
    return found


def streamed(spec: FitSpec, fit: FitResult, stream: Stream, **fields: Any) -> FitResult:
    """The result of a stream that has gone on; its rows are made when somebody asks for them."""
    unseen = fields.get("unseen_mean", fit.unseen_mean), fields.get("unseen_cov", fit.unseen_cov)
    forgotten = fit.forgotten if fit.stream is not None else ()
    gone: dict[str, Any] = {"cells": None, "sampled": None, "kept": None, "apart": (), "diagnostics": None}
    rows = StreamRows(stream, 1.0 - spec.forget, unseen)
    return fit.changed(**{**gone, "forgotten": forgotten, "rows": rows, "stream": stream, **fields})


def _health(method: str, run: Run, standing: Standing, likelihood: Likelihood) -> Diagnostics | None:
    """What a stream that was found to gain nothing tells of it."""
    return standing.diagnostics(method, run.n_iter, is_judged_by_score(likelihood))


def _without_seconds(trace: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A trace that is the same whenever the same stream is learned, and so is the file of the model."""
    return {name: values for name, values in trace.items() if name != "seconds"}


def unseen_by_laws(state: StreamState, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a row of each mode that is not known, where its features, or its drift, tell of such."""
    if not any(state.maps) and not any(state.chains):
        return mean, cov
    mean, cov = mean.copy(), cov.copy()
    for laws in (state.maps, state.chains):
        for k, known in enumerate(laws):
            if known is not None:
                precision = known.precision if known.precision.ndim == 2 else np.diag(known.precision)
                mean[k, known.free] = known.mean
                cov[k][np.ix_(known.free, known.free)] = np.linalg.inv(precision)
    return mean, cov


def split_batch(fit: FitResult | None, X: Any, y: Any, modes: Any, value: Any) -> tuple[Any, Any]:
    """Cells and values of a batch, whose modes are those of the model if it has learned any."""
    if fit is None:
        return split_given(X, y, modes, value)
    known = fit.stream.names if fit.stream is not None else names_of_modes(fit.labels)
    names = [k if name is None else name for k, name in enumerate(known)]
    X, values = split_observed(names, X, y, modes, value)
    return X, None if isinstance(X, SparseTensor) and y is None else values
