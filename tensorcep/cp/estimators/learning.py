"""Learning one batch of a stream: what the model is before and after it, and what it predicts of it."""

from __future__ import annotations

import inspect
import time as clock
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from tensorcep.core.checks import warn_user
from tensorcep.core.loop import Run
from tensorcep.cp.estimators.components import MADE
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.estimators.spotting import scores_of_batch, scores_of_first
from tensorcep.cp.fit.outcome import fitted_attributes, moment_attributes, warn_of_no_convergence
from tensorcep.cp.fit.refit import gaussian_model, must_be_summed_up
from tensorcep.cp.inputs.side_information import lost_knowledge
from tensorcep.cp.stream.adf import Stream, StreamState, absorbed, posterior_of
from tensorcep.cp.stream.arrivals import training_rows
from tensorcep.cp.stream.checks import check_stream
from tensorcep.cp.stream.cold_start import Begun, begin_with, chooses_prior, compared, due, kept_with, watched_with
from tensorcep.cp.stream.constant import is_judged_by_score
from tensorcep.cp.stream.drifting import modes_of
from tensorcep.cp.stream.learn import (
    BatchPlan,
    Learned,
    all_or_nothing,
    first_sifted,
    first_stream,
    learn_no_worse,
    plan_batch,
    prequential,
    sifted,
    warn_of_sifted,
)
from tensorcep.cp.stream.reservoir import Reservoir, empty_reservoir
from tensorcep.cp.stream.standing import Predicted, Standing, warn_of_no_gain
from tensorcep.cp.stream.wild import warn_of_wild
from tensorcep.entries.batch import Batch
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods.record import Likelihood

# Attributes that are made from the state of the stream when somebody asks for them.
LAZY = ("posterior_", "labels_", "_belief")
# What is told of the entries of a batch, predicted before it was learned.
Watch = Callable[[pd.DataFrame], Any]


class LearningCP(CPPredictions):
    """What a CP estimator is while it learns from a stream."""

    posterior_: Any
    trace_: dict[str, np.ndarray]
    n_iter_: int
    converged_: bool
    n_samples_seen_: int
    n_batches_: int
    shape_: tuple[int, ...]
    _stream: Stream
    _code: ClassVar[Any] = None
    _unseen_mean: np.ndarray
    _unseen_cov: np.ndarray

    def _code_columns(self, values: np.ndarray) -> dict[str, Any]:
        """Code the values of files in place; gives the fitted attributes that say how."""
        return {}

    def __getattr__(self, name: str) -> Any:
        if name in LAZY and "_stream" in self.__dict__:
            self._unfold()
            return self.__dict__[name]
        made = inspect.getattr_static(type(self), name, None)
        if isinstance(made, cached_property):  # it has said why there is none, and does so again
            made.func(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _unfold(self) -> None:
        """Set the attributes that `partial_fit` leaves until they are needed: their cost grows with the tensor."""
        stream = self._stream
        posterior = posterior_of(stream.state, 1.0 - self.forget)
        if any(stream.state.chains):
            modes = modes_of(stream.state.chains, self._unseen_mean, self._unseen_cov)
            posterior = posterior._replace(mode_prior=modes)
        labels = tuple(
            None if rows is None else Labels(list(rows), name=name)
            for rows, name in zip(stream.keys, stream.names, strict=True)
        )
        moments = moment_attributes(posterior, self._unseen_mean, self._unseen_cov)
        self.__dict__.update(labels_=labels, **moments)

    def _assign(self, attributes: dict[str, Any]) -> None:
        """Set all attributes of a fit or a batch in one step; what was made from an earlier stream goes."""
        old = [*LAZY, *MADE, "_stream", "stream_trace_", "diagnostics_", "_cells", "_sampled", "_kept", "_apart"]
        old += [] if "_stream" in attributes else ["forgotten_"]  # a stream that goes on still forgot
        kept = {name: value for name, value in vars(self).items() if name not in old}
        self.__dict__ = {**kept, **attributes}

    @property
    def n_revisited_(self) -> int:
        """Times that an entry of the reservoir was learned again."""
        return self._counts().revisited

    @property
    def n_revisits_skipped_(self) -> int:
        """Times that an entry was not, because a row could not do without its message."""
        return self._counts().skipped

    def _counts(self) -> Reservoir:
        stream = self.__dict__.get("_stream")
        return empty_reservoir(1, 1) if stream is None or stream.reservoir is None else stream.reservoir

    def _learn(self, arrival: Batch, watch: Watch | None = None) -> dict[str, float]:
        """Learn one batch and return what `stream` reports of it; `watch` is told of its entries when it is learned."""
        begin_seconds = clock.perf_counter()
        check_stream(self)
        scores, goes_on = {"log_score": np.nan, "rmse": np.nan}, "_stream" in vars(self) or "posterior_" in vars(self)
        arrival, about = self._in_units_of_stream(arrival, goes_on)
        if goes_on:
            scores |= self._learn_next(arrival, watch, about)
        else:
            self._learn_first(arrival, about)
            if watch is not None:
                watch(scores_of_first(arrival))
        seconds = clock.perf_counter() - begin_seconds
        return {"n_samples_seen": self.n_samples_seen_, **scores, "n_iter": self.n_iter_, "seconds": seconds}

    def _in_units_of_stream(self, arrival: Batch, goes_on: bool) -> tuple[Batch, dict[str, Any]]:
        """A batch whose extents are in the model's unit, and fitted attributes that tell of them."""
        return arrival, {}

    def _learn_first(self, arrival: Batch, about: dict[str, Any]) -> None:
        given = arrival
        arrival, out = first_sifted(self, given)
        coords, shape, labels = training_rows(arrival, self.shape)
        time = 0.0 if arrival.time is None else arrival.time
        beside: dict[str, Any] = {"power": arrival.weights, "extent": arrival.extents}
        begun = begin_with(self, (coords, arrival.values, shape, labels), arrival.tensor, **beside)
        self._begin(begun, coords, arrival.values, time, **about)
        if out.any():
            size = np.abs(given.values - np.median(arrival.values))
            warn_of_wild(given, out, size, f"it outweighs the other {len(arrival.values)} of the batch together")

    def _learn_next(self, arrival: Batch, watch: Watch | None, about: dict[str, Any]) -> dict[str, float]:
        if must_be_summed_up(self):
            new = gaussian_model(self)
            scores: dict[str, float] = new._learn_next(arrival, watch, about)
            self.__dict__ = new.__dict__
            return scores
        source = self._source_attributes(arrival.tensor, first=False) | about
        plan = plan_batch(self, arrival)
        stream = plan.stream
        predicted = prequential(plan)
        told = None if watch is None else scores_of_batch(self._likelihood_of_new(), plan, arrival)
        rest, wild = sifted(self, plan, arrival, predicted)
        if rest.plan is None:
            changed = {"_stream": stream._replace(standing=rest.standing), "n_batches_": self.n_batches_ + 1}
            self._assign(changed)
        else:
            self._learn_rest(rest.plan, rest.arrival, rest.before, rest.standing, source)
        likelihood = plan.batch.problem.likelihood
        shown = predicted
        if chooses_prior(self):
            shown = stream.standing.mixed(likelihood, arrival.values, predicted)
        if watch is not None and told is not None:
            watch(told)
        warn_of_sifted(arrival, wild, predicted)
        squares, weights = (arrival.values - shown.mean) ** 2, arrival.weights
        rmse = float(np.sqrt(np.average(squares, weights=weights)))
        return {"log_score": float(np.average(shown.score, weights=weights)), "rmse": rmse}

    def _learn_rest(
        self, plan: BatchPlan, arrival: Batch, before: Predicted, standing: Standing, source: dict[str, Any]
    ) -> None:
        """Learn a batch of which this was predicted: with all entries so far, or alone."""
        stream = plan.stream
        standing = standing.after(plan.batch.problem.likelihood, arrival.values, before, plan.extent, arrival.weights)
        batch = plan.coords, arrival.values, arrival.weights, plan.extent
        kept, watched = kept_with(self, stream.kept, batch), stream.watched
        is_due = kept is not None and due(kept, plan.state.sizes, plan.state.rank)
        lost = lost_knowledge(self) if is_due else None
        if lost is not None:
            warn_user(f"the first entries are not fitted again together: {lost}", UserWarning)
            kept = None
        if kept is not None and is_due:
            known = (kept.coords, kept.values, plan.state.sizes, plan.labels)
            begun = begin_with(self, known, arrival.tensor, standing, kept.prior, kept.power, kept.extent)
            self._begin(begun, *known[:2], plan.batch.time, stream.reservoir, **source, n_batches_=self.n_batches_ + 1)
        else:
            learned = learn_no_worse(plan, arrival.values, before)
            if watched is not None:
                watched = watched_with(watched, batch, before.score)
                watched, standing = compared(self, watched, plan.state, plan.labels, arrival.tensor, standing)
            self._go_on(plan, learned, source, standing, {"kept": kept, "watched": watched})

    def _begin(
        self,
        begun: Begun,
        coords: np.ndarray,
        values: np.ndarray,
        time: float,
        before: Reservoir | None = None,
        **others: Any,
    ) -> None:
        """Set all attributes, `others` among them, after all entries so far were fitted together."""
        result, (standing, is_due) = begun.run, begun.standing.told()
        begun = begun._replace(standing=standing)
        self._assign(
            {
                **fitted_attributes(begun.plan, result),
                "converged_": result.converged and not standing.is_doubtful,
                "trace_": _without_seconds(result.trace),
                "_stream": first_stream(self, begun, coords, values, time, before),
                **others,
                **_health(begun.plan.attributes["method_"], result, standing, begun.plan.work.problem.likelihood),
            }
        )
        warn_of_no_convergence(begun.plan.work, result)
        if is_due:
            warn_of_no_gain(standing)

    def _go_on(
        self, plan: BatchPlan, learned: Learned, source: dict[str, Any], standing: Standing, held: dict[str, Any]
    ) -> None:
        """Set all attributes after one more batch was learned, the posterior so far being its prior."""
        result, posterior, reservoir, batch = learned
        standing, is_due = standing.told()
        before = self.n_batches_
        with all_or_nothing(plan, lambda: self.n_batches_ > before):
            for known, new in zip(plan.stream.keys, plan.added, strict=True):
                if known is not None and new is not None:
                    known.update(new)
            state = absorbed(plan.state, batch, posterior)
            changed: dict[str, Any] = {"state": state, "reservoir": reservoir, "standing": standing, **held}
            self._assign(
                {
                    **source,
                    "_stream": plan.stream._replace(**changed),
                    "shape_": state.sizes,
                    "n_iter_": result.n_iter,
                    "converged_": result.converged and not standing.is_doubtful,
                    "trace_": _without_seconds(result.trace),
                    "n_samples_seen_": self.n_samples_seen_ + len(plan.y),
                    "n_batches_": self.n_batches_ + 1,
                    **unseen_by_laws(state, self._unseen_mean, self._unseen_cov),
                    **({"_series": state.clocks} if any(state.chains) else {}),
                    **_health(self.method_, result, standing, batch.problem.likelihood),
                }
            )
        if is_due:
            warn_of_no_gain(standing)


def _health(method: str, result: Run, standing: Standing, likelihood: Likelihood) -> dict[str, Any]:
    """What a stream that was found to gain nothing tells of it."""
    found = standing.diagnostics(method, result.n_iter, is_judged_by_score(likelihood))
    return {} if found is None else {"diagnostics_": found}


def _without_seconds(trace: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A trace that is the same whenever the same stream is learned, and so is the file of the model."""
    return {name: values for name, values in trace.items() if name != "seconds"}


def unseen_by_laws(state: StreamState, mean: np.ndarray, cov: np.ndarray) -> dict[str, np.ndarray]:
    """Mean and covariance of a row of each mode that is not known, where its features, or its drift, tell of such."""
    if not any(state.maps) and not any(state.chains):
        return {}
    mean, cov = mean.copy(), cov.copy()
    for laws in (state.maps, state.chains):
        for k, known in enumerate(laws):
            if known is not None:
                precision = known.precision if known.precision.ndim == 2 else np.diag(known.precision)
                mean[k, known.free] = known.mean
                cov[k][np.ix_(known.free, known.free)] = np.linalg.inv(precision)
    return {"_unseen_mean": mean, "_unseen_cov": cov}
