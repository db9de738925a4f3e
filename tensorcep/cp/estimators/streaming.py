"""Learning from a stream: `partial_fit` and `stream` of the CP estimators."""

from __future__ import annotations

import inspect
import time as clock
from array import array
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from tqdm.auto import tqdm

from tensorcep.core.checks import check_int
from tensorcep.cp.estimators.batches import (
    BatchPlan,
    all_or_nothing,
    check_stream,
    first_stream,
    learn_batch,
    plan_batch,
    prequential,
)
from tensorcep.cp.estimators.beginning import Begun, begin_with, chooses_prior, due, kept_with
from tensorcep.cp.estimators.components import MADE
from tensorcep.cp.estimators.entries import refuse_others
from tensorcep.cp.estimators.fitted import fitted_attributes, moment_attributes, warn_of_no_convergence
from tensorcep.cp.estimators.going_on import gaussian_model, must_be_summed_up
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.estimators.weighting import weighted_batch
from tensorcep.cp.stream.adf import Stream, absorbed, posterior_of
from tensorcep.cp.stream.arrivals import Arrivals, arrivals, as_batch, training_rows
from tensorcep.cp.stream.reservoir import Reservoir, empty_reservoir
from tensorcep.cp.stream.standing import Kept, Standing, warn_of_no_gain
from tensorcep.entries.batch import Batch
from tensorcep.entries.labels import Labels
from tensorcep.entries.tables import as_frame, as_frames

SCORES = ("n_samples_seen", "log_score", "rmse", "n_iter", "seconds")
# Attributes that are made from the state of the stream when somebody asks for them.
LAZY = ("posterior_", "labels_", "_belief")


class StreamingCP(CPPredictions):
    """What a CP estimator does with batches that arrive one after the other."""

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
        labels = tuple(
            None if rows is None else Labels(list(rows), name=name)
            for rows, name in zip(stream.keys, stream.names, strict=True)
        )
        moments = moment_attributes(posterior, self._unseen_mean, self._unseen_cov)
        self.__dict__.update(labels_=labels, **moments)

    def _assign(self, attributes: dict[str, Any]) -> None:
        """Set all attributes of a fit or a batch in one step; what was made from an earlier stream goes."""
        old = [*LAZY, *MADE, "_stream", "stream_trace_", "diagnostics_", "_cells", "_kept"]
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

    def partial_fit(
        self, X: Any, y: Any = None, *, time: float | None = None, sample_weight: Any = None, **others: Any
    ) -> Any:
        """Learn one more batch of entries, the posterior so far being the prior; the old entries are not needed.

        The first batch is learned as `fit` would. After a fit by a method that learns no streams, such as a sampler,
        batches are learned by "cep", from Gaussians of the rows; of draws these are made after their alignment, and
        refused where draws do not agree on the components. Later batches get messages of their own, damped sweeps until
        `tol` or `max_iter`, without annealing. Only the rows that a batch touches cost anything. An index or label that
        was not seen before gets a row with its prior, unless the parameter `shape` fixes the rows. A batch that is
        refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, SparseTensor, or table
            Coordinates or labels of the entries, as for `fit`; a table holds one column of labels per mode. A cell
            that occurs twice in X was observed twice.
        y : array-like of shape (N,)
            Values; left out with a SparseTensor.
        time : float, optional
            When the batch was observed, in the unit that `forget` refers to; default: the number of earlier batches.
        sample_weight : array-like of shape (N,) of whole numbers, optional

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before anything is learned; for a method without streams.
        """
        refuse_others(f"{type(self).__name__}.partial_fit", others)
        self._learn(weighted_batch(as_batch(as_frame(X), y, time, self._code), sample_weight))
        return self

    def stream(
        self,
        source: Any,
        *,
        batch_size: int = 1000,
        first_batch: int | None = None,
        modes: Any = None,
        value: Any = None,
        time: Any = None,
        callback: Callable[[Any, dict[str, float]], Any] | None = None,
        **reading: Any,
    ) -> Any:
        """Learn batch after batch, and score every batch before it is learned (prequential scores).

        A stream that is cut short, by a batch that is refused, an interrupt or any exception, leaves the model as the
        last batch that was learned completely left it, with the scores so far.

        Parameters
        ----------
        source : iterable of batches, DataFrame, or path or list of paths
            A batch is a pair (X, y), a triple (X, y, time), a SparseTensor, a DataFrame or a list of dicts. Tables and
            files are cut into batches; files are read in pieces, so they may be larger than memory.
        batch_size : int, default=1000
            Entries per batch from DataFrames and files; batches from elsewhere are taken as they are.
        first_batch : int, optional
            Entries of the first batch from DataFrames and files. It should be large enough to say what the factors
            are: a first posterior that is wrong and sure of itself takes long to mend.
        modes, value, time : column names, optional
            Of DataFrames and files: the modes, the value (default: the last other column), and the time of `forget`,
            of which a batch has the last.
        callback : callable, optional
            Called as ``callback(model, scores)`` after each batch; a true value stops the stream.
        **reading
            How to read files, as in `read_batches` of `tensorcep.entries.io`:
            format, index_base, header, labels, bad_line, start.

        Returns
        -------
        self
            With `stream_trace_`, a dict of arrays with one number per batch: n_samples_seen, log_score (mean log
            predictive density or mass), rmse (of the predictive mean, or probability), n_iter, seconds. The scores of
            the very first batch are nan.

        Raises
        ------
        ValueError, TypeError
            As `partial_fit`, and on a malformed line of a file, with its number; the batches before it are learned.
        """
        check_int("batch_size", batch_size)
        if first_batch is not None:
            check_int("first_batch", first_batch)
        how = Arrivals(modes, value, time, batch_size, first_batch, reading, self._code)
        trace = {name: array("d") for name in SCORES}
        try:
            with tqdm(desc="stream", unit="entry", unit_scale=True, disable=not self.verbose) as bar:
                for batch in arrivals(as_frames(source), how):
                    scores = self._learn(batch)
                    for name in SCORES:
                        trace[name].append(scores[name])
                    bar.update(len(batch.values))
                    bar.set_postfix(rmse=f"{scores['rmse']:.4g}", refresh=False)
                    if callback is not None and callback(self, scores):
                        break
        finally:
            if trace["seconds"]:
                self.stream_trace_ = {name: np.array(numbers) for name, numbers in trace.items()}
        return self

    def _learn(self, arrival: Batch) -> dict[str, float]:
        """Learn one batch and return what `stream` reports of it."""
        begin_seconds = clock.perf_counter()
        check_stream(self)
        scores = {"log_score": np.nan, "rmse": np.nan}
        if "_stream" in vars(self) or "posterior_" in vars(self):
            scores |= self._learn_next(arrival)
        else:
            self._learn_first(arrival)
        seconds = clock.perf_counter() - begin_seconds
        return {"n_samples_seen": self.n_samples_seen_, **scores, "n_iter": self.n_iter_, "seconds": seconds}

    def _learn_first(self, arrival: Batch) -> None:
        coords, shape, labels = training_rows(arrival, self.shape)
        time = 0.0 if arrival.time is None else arrival.time
        self._begin(
            begin_with(self, (coords, arrival.values, shape, labels), arrival.tensor), coords, arrival.values, time
        )

    def _learn_next(self, arrival: Batch) -> dict[str, float]:
        if must_be_summed_up(self):
            new = gaussian_model(self)
            scores: dict[str, float] = new._learn_next(arrival)
            self.__dict__ = new.__dict__
            return scores
        source = self._source_attributes(arrival.tensor, first=False)
        plan = plan_batch(self, arrival)
        stream = plan.stream
        predicted = prequential(plan)
        standing = stream.standing.after(plan.batch.problem.likelihood, arrival.values, predicted)
        kept = kept_with(self, stream.kept, plan.coords, arrival.values)
        if kept is not None and due(kept, plan.state.sizes, plan.state.rank):
            known = (kept.coords, kept.values, plan.state.sizes, plan.labels)
            begun = begin_with(self, known, arrival.tensor, standing, kept.prior)
            self._begin(begun, *known[:2], plan.batch.time, stream.reservoir, **source, n_batches_=self.n_batches_ + 1)
        else:
            self._go_on(plan, source, standing, kept)
        if chooses_prior(self):
            predicted = stream.standing.mixed(plan.batch.problem.likelihood, arrival.values, predicted)
        rmse = float(np.sqrt(np.mean((arrival.values - predicted.mean) ** 2)))
        return {"log_score": float(predicted.score.mean()), "rmse": rmse}

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
            }
        )
        warn_of_no_convergence(begun.plan.work, result)
        if is_due:
            warn_of_no_gain(standing)

    def _go_on(self, plan: BatchPlan, source: dict[str, Any], standing: Standing, kept: Kept | None) -> None:
        """Learn one more batch, the posterior so far being its prior."""
        result, posterior, reservoir = learn_batch(plan)
        standing, is_due = standing.told()
        before = self.n_batches_
        with all_or_nothing(plan, lambda: self.n_batches_ > before):
            for known, new in zip(plan.stream.keys, plan.added, strict=True):
                if known is not None and new is not None:
                    known.update(new)
            state = absorbed(plan.state, plan.joined, posterior)
            changed: dict[str, Any] = {"state": state, "reservoir": reservoir, "standing": standing, "kept": kept}
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
                }
            )
        if is_due:
            warn_of_no_gain(standing)


def _without_seconds(trace: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A trace that is the same whenever the same stream is learned, and so is the file of the model."""
    return {name: values for name, values in trace.items() if name != "seconds"}
