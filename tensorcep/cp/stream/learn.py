"""One batch of a stream: what learning it takes, decided and checked before anything changes, and undone if need be.

It is predicted before it is learned, and learned no farther than it is predicted better for it (`learn_no_worse`);
`learn_arrival` is all of it together. What a stream cannot learn is refused (`check_stream`).

Entries are forgotten (`forget_entries`, `forget_rows`) from a fit that kept its messages, or that is done again, and
from a stream. One that is beginning keeps every entry, and fits those that are left together, as it would have. Later a
reservoir (``revisit=``) holds entries with their messages: decremental ADF. The posterior is prior x messages, so that
those of the entries to forget are divided out; what is left of the reservoir is then learned again, as with any batch
that revisits it. Where the reservoir holds every entry, that is CEP on the entries that are left.
"""

from __future__ import annotations

import contextlib
import os
import time as clock
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core import checks
from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.loop import AnyMethod, Run
from tensorcep.core.settings import Settings
from tensorcep.cp.calibration.prequential import LEAST_SCORE, Predicted, Standing, warn_of_no_gain
from tensorcep.cp.fit.outcome import Dropped, entries_of_fit, moved_up, refit_without, rows_left
from tensorcep.cp.fit.refit import gaussian_fit
from tensorcep.cp.fitted.model import FitResult, FittedModel, FittedRows, rows_of_posterior
from tensorcep.cp.fitted.predict import scored, with_scores
from tensorcep.cp.inputs import coordinates
from tensorcep.cp.inputs.batches import rows_of_keys, training_rows
from tensorcep.cp.inputs.side_information import lost_knowledge, warn_of_new_rows, word_of
from tensorcep.cp.inputs.weights import check_power
from tensorcep.cp.methods import METHODS, get_method
from tensorcep.cp.plan.auto import with_numbers
from tensorcep.cp.plan.spec import FitSpec, RunOptions, checked_options, given_int, is_auto
from tensorcep.cp.posterior import GammaNoise, Posterior
from tensorcep.cp.settings import settings_for
from tensorcep.cp.stream import adf, cold_start, reservoir
from tensorcep.cp.stream.cold_start import Beginning, Commit
from tensorcep.cp.stream.modes import StreamState, forecast, modes_of, posterior_of, with_rows
from tensorcep.cp.stream.reservoir import Kept, Reservoir, Revisit, Stream, with_messages
from tensorcep.cp.targets.base import deciding
from tensorcep.entries.io import Batch
from tensorcep.entries.labels import Labels, column_names
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_frame, split_given, split_observed
from tensorcep.priors.fixed import Prior, natural_prior
from tensorcep.priors.graph import Net

# The kinds of data whose values may be as far as they will; those of labels are bounded.
OPEN = ("values", "counts")
# Halvings of the step of a batch, after which it is not learned at all.
MAX_HALVINGS = 60


class BatchEngine(NamedTuple):
    """What learns a batch: a method, its settings, how it is run, and whether boldly (`adf.learn`)."""

    method: AnyMethod
    settings: Settings
    options: RunOptions
    bold: bool


class BatchPlan(NamedTuple):
    """What learning one more batch takes: the stream before it, and the state with room for the rows that it brings."""

    spec: FitSpec
    fit: FitResult
    arrival: Batch
    stream: Stream
    state: StreamState
    added: tuple[dict[Any, int] | None, ...]  # per mode with labels, the rows of those that are new
    batch: adf.BatchProblem
    visit: Revisit | None
    joined: adf.BatchProblem  # the batch with the entries that are revisited
    engine: BatchEngine

    @property
    def labels(self) -> tuple[Labels | None, ...]:
        """The labels of every mode, those that the batch brings included."""
        each = zip(self.stream.keys, self.added, self.stream.names, strict=True)
        return tuple(None if known is None else Labels([*known, *(new or {})], name=name) for known, new, name in each)


class LearnedBatch(NamedTuple):
    """What a batch, with the prior that its rows had, led to."""

    run: Run
    told: Posterior  # with the noise as sure as the entries make it (`adf.with_sure_noise`)
    too_much: np.ndarray
    batch: adf.BatchProblem
    posterior: Posterior  # this and the reservoir: as far as the batch is learned, and as revisited entries leave them
    reservoir: Reservoir | None = None


# What is told of the entries of a batch, predicted before it was learned.
Watch = Callable[[pd.DataFrame], Any]


def learn_arrival(
    spec: FitSpec, fit: FitResult | None, arrival: Batch, commit: Commit, watch: Watch | None = None
) -> dict[str, float]:
    """Learn one batch, or nothing if it is refused or interrupted; commit the result, return what `stream` reports."""
    begin_seconds = clock.perf_counter()
    cold_start.check_stream(spec, fit)
    scores = {"log_score": np.nan, "rmse": np.nan}
    arrival, about = spec.target.batch_in_units(arrival, None if fit is None else fit.observation)
    if fit is None:  # without values each of which outweighs all others
        kind, out = spec.asked.observes, np.zeros(len(arrival.values), dtype=bool)
        coding = {**about, **spec.target.of_batch(arrival)}
        if kind in OPEN:
            out = deciding(arrival.values, kind == "counts")
        first = without(arrival, out) if out.any() else arrival
        coords, shape, labels = training_rows(first, spec.shape)
        time, values = 0.0 if first.time is None else first.time, first.values
        kept = Kept(coords, values, 0, None, first.weights, first.extents)
        beginning = Beginning(kept, shape, labels, first.tensor, time, coding=coding)
        learned = cold_start.begin_again(spec, beginning, commit)
        why = f"it outweighs the other {len(values)} of the batch together"
        warn_of_outliers(arrival, out, np.abs(arrival.values - np.median(values)), lambda _: why)
        if watch is not None:
            watch(anomaly_scores(arrival))
    else:
        if fit.stream is None and not METHODS[fit.method].capabilities.streams:
            fit = gaussian_fit(fit, spec.max_iter)
        scores, learned = _learn_next(spec, fit, arrival, watch, about, commit)
    seconds = clock.perf_counter() - begin_seconds
    return {"n_samples_seen": learned.n_samples_seen, **scores, "n_iter": learned.n_iter, "seconds": seconds}


def _learn_next(
    spec: FitSpec, fit: FitResult, arrival: Batch, watch: Watch | None, about: dict[str, Any], commit: Commit
) -> tuple[dict[str, float], FitResult]:
    """Learn a batch after others: its scores before it was learned, and the result."""
    coding = {**spec.target.of_source(arrival.tensor, fit.observation), **about}
    plan = plan_batch(spec, fit, arrival)
    batch, values, standing, scores = plan.batch, arrival.values, plan.stream.standing, None
    known, likelihood, prior = batch.problem, batch.problem.likelihood, batch.problem.prior
    rows, none = (known.shape, known.rank, prior.Lam, prior.eta), np.zeros(len(prior.eta), dtype=bool)
    belief = Posterior(*rows, known.noise_prior, none, plan.state.dispersion).components()
    before = adf.predictions(batch, belief, batch.rows)
    if watch is not None:
        seen = [mode.seen[rows] for mode, rows in zip(plan.state.modes, batch.coords.T, strict=True)]
        predicted = scored(FittedModel(fit, spec).likelihood_of_new, belief, batch.rows, batch.y, batch.extent)
        scores = anomaly_scores(arrival, (*predicted, ~np.all(seen, axis=0)))
    shown = standing.mixed(likelihood, values, before) if is_auto(spec.prior) else before
    out = np.zeros(len(values), dtype=bool)
    if likelihood.observes in OPEN:
        out = adf.outliers_of(batch, values, belief, before, fit.n_samples_seen, standing)
        standing = standing._replace(change=adf.change_after(standing.change, out))
        out &= standing.change < adf.CERTAIN
    if out.all():
        learned = stream_result(spec, fit, plan.stream._replace(standing=standing), n_batches=fit.n_batches + 1)
        commit.put(learned)
    else:
        plan = plan_batch(spec, fit, without(arrival, out)) if out.any() else plan
        learned = _learn_rest(plan, before.at(~out), standing, coding, commit)
    if watch is not None and scores is not None:
        watch(scores)
    if before.variance is not None:
        mean, sd = before.mean, np.sqrt(before.variance)
        why = "{:.4g} with a standard deviation of {:.3g} was expected"
        warn_of_outliers(arrival, out, np.abs(values - mean), lambda at: why.format(mean[at], sd[at]))
    rmse = float(np.sqrt(np.average((values - shown.mean) ** 2, weights=arrival.weights)))
    return {"log_score": float(np.average(shown.score, weights=arrival.weights)), "rmse": rmse}, learned


def plan_batch(spec: FitSpec, fit: FitResult, arrival: Batch) -> BatchPlan:
    """Decide all of learning one more batch. The stream is not changed."""
    likelihood, engine = fit.likelihood, engine_of(spec, fit)
    y = spec.target.checked(arrival.values, likelihood)
    stream = cold_start.continued_stream(spec, fit)
    time = float(fit.n_batches) if arrival.time is None else checks.check_range("time", arrival.time)
    if time < stream.state.time:
        fail_value(f"time must not go back: the last batch was at {stream.state.time:g}; got {time:g}.")
    coords, added = rows_of_keys(arrival, stream.keys, stream.names, spec.shape)
    sizes, names = stream.state.sizes, column_names(stream.names, None)
    seen = [mode.seen[:n] for mode, n in zip(stream.state.modes, sizes, strict=True)]
    warn_of_new_rows(stream.state.designs, seen, coords, names)
    n_entries = fit.n_samples_seen + len(coords)
    checks.check_sizes([int(n) + 1 for n in coords.max(axis=0)], n_entries, given=spec.shape is not None)

    def prior_of_new(k: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        rank, mean, cov = stream.state.rank, fit.unseen_mean[k], fit.unseen_cov[k]
        if stream.uniform:
            mean = np.sqrt(cov[0, 0]) * uniform_means(stream.seed, k, first, last, rank)
        return natural_prior(Prior([mean], [np.linalg.inv(cov)]), (last - first,), rank)

    state = with_rows(stream.state, coords.max(axis=0) + 1, prior_of_new)
    state = forecast(state, sizes, coords, [None if own is None else list(own) for own in added], names)
    how: dict[str, Any] = {"likelihood": likelihood, "keep": 1.0 - spec.forget, "time": time, "seed": stream.seed}
    visit, batch = None, adf.batch_of(state, coords, y, power=arrival.weights, extent=arrival.extents, **how)
    if arrival.weights is not None:
        check_power(engine.method.name, batch.problem)
    cold_start.check_revisited(spec, arrival.extents, arrival.weights)
    if spec.revisit:
        before = stream.reservoir or Reservoir.empty(len(stream.keys), state.rank)
        visit = reservoir.revisit(state, before, coords, y, capacity=spec.revisit, **how)
    joined = batch if visit is None else visit.batch
    return BatchPlan(spec, fit, arrival, stream, state, added, batch, visit, joined, engine)


def engine_of(spec: FitSpec, fit: FitResult) -> BatchEngine:
    """What learns a batch, by the parameters."""
    max_iter = given_int("max_iter", spec.max_iter, fit.max_iter)
    likelihood, options = fit.likelihood, checked_options(spec)._replace(max_iter=max_iter, verbose=False)
    method = get_method(fit.method, likelihood)
    settings = settings_for(spec.method, method.name)
    numbers = with_numbers(settings, likelihood.name, fit.prior == "learned", max_iter)
    return BatchEngine(method, numbers, options, adf.may_be_bold(settings))


def uniform_means(seed: int, mode: int, first: int, last: int, rank: int) -> np.ndarray:
    """Draws from U(0, 1) for the rows first:last of a mode, (last - first, rank): the same however rows arrive."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, mode]))
    generator.advance(first * rank)
    return np.random.Generator(generator).random((last - first, rank))


def _learn_rest(
    plan: BatchPlan, before: Predicted, standing: Standing, coding: dict[str, Any], commit: Commit
) -> FitResult:
    """Learn a batch of which something was predicted: with all entries so far, or alone; commit the result."""
    spec, fit, arrival, stream, state, batch = plan.spec, plan.fit, plan.arrival, plan.stream, plan.state, plan.batch
    entries = Kept(batch.coords, arrival.values, 0, None, arrival.weights, batch.extent)
    standing = standing.after(batch.problem.likelihood, arrival.values, before, batch.extent, arrival.weights)
    kept, watched = stream.kept, stream.watched
    if kept is not None:
        kept = kept.with_batch(entries)
        kept = kept if cold_start.keeps_entries(spec, len(kept.values)) else None
    if kept is not None and cold_start.due(kept, state.sizes, state.rank):
        lost = lost_knowledge(spec.prior, fit.features, fit.series)
        if lost is None:
            first = Beginning(kept, state.sizes, plan.labels, arrival.tensor, batch.time, standing, coding)
            return cold_start.begin_again(spec, first, commit, fit)
        warn_user(f"the first entries are not fitted again together: {lost}", UserWarning)
        kept = None
    learned = learn_no_worse(plan, before)
    if watched is not None:
        watched = watched.with_batch(entries._replace(score=np.fmax(before.score, LEAST_SCORE)))
        watched, standing = cold_start.compare_with_fit(spec, watched, state, plan.labels, arrival.tensor, standing)
    (standing, is_due), run = standing.told(), learned.run
    with all_or_nothing(plan, commit):
        for known, new in zip(stream.keys, plan.added, strict=True):
            if known is not None and new is not None:
                known.update(new)
        state = adf.absorb(state, learned.batch, learned.posterior)
        stream = stream._replace(state=state, reservoir=learned.reservoir)
        stream = stream._replace(standing=standing, kept=kept, watched=watched)
        mean, cov = unseen_by_laws(state, fit.unseen_mean, fit.unseen_cov)
        told = cold_start.diagnostics_of(standing, fit.method, run.n_iter, learned.batch.problem.likelihood)
        fields: dict[str, Any] = {"shape": state.sizes, "unseen_mean": mean, "unseen_cov": cov, "diagnostics": told}
        fields |= {"n_iter": run.n_iter, "converged": run.converged and not standing.is_doubtful}
        fields |= {"observation": fit.observation.with_facts(coding), "trace": cold_start.without_seconds(run.trace)}
        fields |= {"n_samples_seen": fit.n_samples_seen + len(batch.y), "n_batches": fit.n_batches + 1}
        fields["series"] = state.clocks if any(state.chains) else fit.series
        found = stream_result(spec, fit, stream, **fields)
        commit.put(found)
    if is_due:
        warn_of_no_gain(standing)
    return found


def learn_no_worse(plan: BatchPlan, before: Predicted) -> LearnedBatch:
    """Learn a batch of which this was predicted by as long a step as it bears; FloatingPointError if not finite."""
    learned = learn_batch(plan.engine, plan.joined, plan.visit)
    again = adf.prior_by_other_rows(plan.state, plan.joined, learned.posterior) if plan.state.chains else None
    learned = learned if again is None else learn_batch(plan.engine, again, plan.visit)
    if plan.batch.problem.likelihood.observes not in OPEN:
        return learned
    # Messages to the rows of several modes explain the same surprise, each as if the others stayed: together they may
    # go far beyond it, most of all where one entry alone is learned. Each of them is right about the direction, so that
    # a step short enough predicts the batch better than none. It goes no farther than the batch is predicted better.
    found, step, values = learned, 1.0, plan.arrival.values
    for _ in range(MAX_HALVINGS):
        with np.errstate(over="ignore", invalid="ignore"):
            after = adf.predictions(plan.batch, found.posterior.components(), found.batch.rows[: len(values)])
            rise = ((values - after.mean) ** 2 - (values - before.mean) ** 2) / before.variance
        if float(rise.sum()) <= 1.0:  # squared errors, each by its predicted variance, rose by less than an entry's
            return found
        step *= 0.5
        found = part_of_the_way(plan, learned, step)
    return part_of_the_way(plan, learned, 0.0)


def learn_batch(engine: BatchEngine, batch: adf.BatchProblem, visit: Revisit | None) -> LearnedBatch:
    """What a batch leads to, its entries that were revisited among them."""
    problem = batch.problem
    result = adf.learn(engine.method, problem, engine.settings, bold=engine.bold, **engine.options._asdict())
    posterior: Any = result.posterior
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        raise FloatingPointError("the batch led to values that are not finite; add damping or a tighter prior.")
    told, too_much = adf.with_sure_noise(problem, posterior)
    return _with_reservoir(LearnedBatch(result, told, too_much, batch, told), visit, posterior.noise, 1.0)


def _with_reservoir(
    learned: LearnedBatch, visit: Revisit | None, noise: GammaNoise | None, step: float
) -> LearnedBatch:
    """What a batch led to as far as `step`, with the reservoir then; `noise` is what its messages led to."""
    if visit is None:
        return learned
    sent = adf.messages_to_noise(learned.run.state.own.messages, noise, learned.too_much)
    posterior, sample = reservoir.after_revisit(visit, learned.posterior, sent, step)
    return learned._replace(posterior=posterior, reservoir=sample)


def part_of_the_way(plan: BatchPlan, learned: LearnedBatch, step: float) -> LearnedBatch:
    """What a batch leads to where rows and noise go but a step, from 0 to 1: what it sends to them is scaled."""
    problem, visit, reached = learned.batch.problem, plan.visit, learned.told
    before = (problem.prior.Lam, problem.prior.eta, problem.noise_prior) if visit is None else with_messages(visit)
    Lam, eta = (old + step * (new - old) for old, new in zip(before[:2], (reached.Lam, reached.eta), strict=True))
    noise, known = reached.noise, before[2]
    if noise is not None and known is not None:
        noise = GammaNoise(*(old + step * (new - old) for old, new in zip(known, noise, strict=True)))
    posterior = reached._replace(Lam=Lam, eta=eta, noise=noise, dispersion=plan.state.dispersion)
    return _with_reservoir(learned._replace(posterior=posterior), visit, reached.noise, step)


@contextlib.contextmanager
def all_or_nothing(plan: BatchPlan, commit: Commit) -> Iterator[None]:
    """Give the rows that a batch changes, and the labels, back as they were unless the model has learned the batch."""
    # rows are changed in place, as there may be many: the batch's are copied, of a series all; pairs are made anew
    before, fit = [], commit.now()
    for k, (mode, n) in enumerate(zip(plan.state.modes, plan.state.sizes, strict=True)):
        rows: Any = slice(n) if plan.state.chains and plan.state.chains[k] else plan.joined.used[k]
        # numpy takes numbered rows in a third of the time that indexing needs
        copies = [field[rows].copy() if isinstance(rows, slice) else field.take(rows, axis=0) for field in mode]
        before.append((mode, rows, copies))
    try:
        yield
    finally:
        if commit.now() is fit:  # the model says what was done: an interrupt may come after its last step
            for mode, rows, copies in before:
                for field, values in zip(mode, copies, strict=True):
                    field[rows] = values
            for known, new in zip(plan.stream.keys, plan.added, strict=True):
                for key in new or ():
                    if known is not None:
                        known.pop(key, None)


def stream_result(spec: FitSpec, fit: FitResult, stream: Stream, **fields: Any) -> FitResult:
    """The result of a stream that has gone on; its rows are made when somebody asks for them."""
    unseen = fields.get("unseen_mean", fit.unseen_mean), fields.get("unseen_cov", fit.unseen_cov)
    forgotten = fit.forgotten if fit.stream is not None else ()
    gone: dict[str, Any] = {"cells": None, "sampled": None, "kept": None, "apart": (), "diagnostics": None}
    rows = StreamRows(stream, 1.0 - spec.forget, unseen)
    return fit.changed(**{**gone, "forgotten": forgotten, "rows": rows, "stream": stream, **fields})


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
        each = zip(stream.keys, stream.names, strict=True)
        labels = tuple(None if rows is None else Labels(list(rows), name=name) for rows, name in each)
        return rows_of_posterior(posterior, labels, *self._unseen)

    posterior, belief, labels = (property(attrgetter(f"_made.{name}")) for name in FittedRows._fields)


def unseen_by_laws(state: StreamState, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a row of each mode that is not known, where its features, or its drift, tell of such."""
    mean, cov = mean.copy(), cov.copy()
    for k, known in [*enumerate(state.maps), *enumerate(state.chains)]:
        if known is not None:
            precision = known.precision if known.precision.ndim == 2 else np.diag(known.precision)
            mean[k, known.free] = known.mean
            cov[k][np.ix_(known.free, known.free)] = np.linalg.inv(precision)
    return mean, cov


def split_batch(fit: FitResult | None, X: Any, y: Any, modes: Any, value: Any) -> tuple[Any, Any]:
    """Cells and values of a batch, whose modes are those of the model if it has learned any."""
    if fit is None:
        return split_given(X, y, modes, value)
    known = fit.stream.names if fit.stream is not None else coordinates.names_of_modes(fit.labels)
    names = [k if name is None else name for k, name in enumerate(known)]
    X, values = split_observed(names, X, y, modes, value)
    return X, None if isinstance(X, SparseTensor) and y is None else values


def without(batch: Batch, out: np.ndarray) -> Batch:
    """The batch without some of its entries, (N,) bool."""
    keys = tuple(None if of is None else [of[i] for i in np.flatnonzero(~out)] for of in batch.keys)
    weights, extents = (None if part is None else part[~out] for part in (batch.weights, batch.extents))
    left = batch._replace(keys=keys, coords=batch.coords[~out], values=batch.values[~out])
    return left._replace(weights=weights, extents=extents)


def warn_of_outliers(batch: Batch, out: np.ndarray, order: np.ndarray, why: Callable[[int], str]) -> None:
    """Warn of values of a batch that were left out, if any were, naming the first by this order and why."""
    if not out.any():
        return
    place = int(np.argmax(np.where(out, order, -np.inf)))
    each = (at if of is None else of for of, at in zip(batch.keys, batch.coords.T, strict=True))
    cell = ", ".join(checks.printable(str(of[place])) for of in each)
    more = f", and {int(out.sum()) - 1} more of the batch," if out.sum() > 1 else ""
    warn_user(
        f"the value {batch.values[place]:g} of the cell ({cell}){more} was taken for an error and not learned: "
        f"{why(place)}; correct it, or, if it is right, go on: values like it are learned as soon as they are common.",
        UserWarning,
    )


def anomaly_scores(batch: Batch, predicted: tuple[np.ndarray, ...] | None = None) -> pd.DataFrame:
    """The anomaly scores of the entries of a batch; of a first one, which nothing predicts, they are missing."""
    names, n = [k if name is None else name for k, name in enumerate(batch.names)], len(batch.values)
    keys = zip(batch.keys, batch.coords.T, strict=True)
    frame = pd.DataFrame(dict(zip(names, (at if own is None else own for own, at in keys), strict=True)))
    return with_scores(frame, (batch.values, *(predicted or (*np.full((5, n), np.nan), np.ones(n, dtype=bool)))))


@contextlib.contextmanager
def watching(scores: Any) -> Iterator[Callable[[pd.DataFrame], Any] | None]:
    """What is called with the scores of every batch: None, what was given, or what writes them to a csv file."""
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


def forget_entries(model: FittedModel, X: Any, data: Any, y: Any, partly: bool, commit: Commit) -> None:
    """Remove entries, by their cells, from a fit or a stream, and commit the result."""
    labels, names = model.fit.labels, coordinates.names_of(model.fit.labels)

    def gone_of(coords: np.ndarray) -> np.ndarray:
        table = as_frame(X)
        if not isinstance(table, pd.DataFrame):
            return coordinates.lines_among(coords, coordinates.coords_to_predict(table, labels))
        modes = [j for j, name in enumerate(names) if name in table.columns]
        if not modes:
            columns, wanted = (", ".join(map(repr, listed)) for listed in (table.columns, names))
            fail_value(f"X must have a column of at least one of the modes {wanted}; got {columns}.")
        cells = np.stack([coordinates.rows_of_column(labels, j, table[names[j]]) for j in modes], axis=1)
        return coordinates.lines_among(coords[:, modes], cells)

    _forget(model, gone_of, {"rows": {}}, None, data, y, partly, commit)


def forget_rows(model: FittedModel, mode: Any, rows: Any, data: Any, y: Any, partly: bool, commit: Commit) -> None:
    """Remove rows of a mode with all their entries, and commit the result."""
    fit, name = model.fit, coordinates.names_of(model.fit.labels)
    k = coordinates.mode_of(fit.labels, mode)
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
    dropped = np.unique(coordinates.rows_of(fit.labels, fit.shape, k, rows))
    checks.check_not_empty(fit.shape[k] - len(dropped), f"mode {name[k]!r} without these rows")
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
    if checks.check_flag("partly", partly) and stream is None:
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
    first = Beginning(kept, shape, labels, source, stream.state.time, stream.standing)
    cold_start.begin_again(spec, first, commit, fit, record)


def _divide_out(
    model: FittedModel, stream: Stream, gone: np.ndarray, dropped: Dropped | None, whole: bool, record: dict[str, Any]
) -> FitResult:
    """The result with messages divided out, and what is left of the reservoir learned again."""
    held: Any = stream.reservoir
    (fit, spec), fields = model, dict[str, Any]()
    keep, engine = 1.0 - spec.forget, engine_of(spec, fit)
    state, held, reset = reservoir.without_entries(stream.state, held, gone, keep, whole)
    stream = stream._replace(state=state, reservoir=held, watched=None)
    stream = stream if dropped is None else reservoir.without_rows(stream, *dropped)
    state, held = stream.state, stream.reservoir
    left = held.sample
    how: dict[str, Any] = {"capacity": len(left.y), "keep": keep, "time": state.time, "seed": stream.seed}
    if len(left.y):
        visit = reservoir.revisit(state, held, left.coords[:0], left.y[:0], likelihood=fit.likelihood, **how)
        stream = stream._replace(reservoir=visit.reservoir)
        if len(visit.held):
            learned = learn_batch(engine, visit.batch, visit)
            run, state = learned.run, adf.absorb(state, visit.batch, learned.posterior)
            stream = stream._replace(state=state, reservoir=learned.reservoir)
            fields = {"converged": run.converged, "n_iter": run.n_iter, "trace": cold_start.without_seconds(run.trace)}
    record |= {"how": "messages divided out", "sweeps": fields.get("n_iter", 0), "rows_reset": reset}
    fields |= {"shape": state.sizes, "n_samples_seen": record["entries_left"], "forgotten": (*fit.forgotten, record)}
    return stream_result(spec, fit, stream, **fields)
