"""Learning from a stream: `partial_fit` and `stream` of the CP estimators."""

from __future__ import annotations

import time as clock
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from tensorcep.core.belief import Posterior, first_member
from tensorcep.core.checks import check_choice, check_int, check_random_state, check_range, fail_value
from tensorcep.cp.columns import free_columns
from tensorcep.cp.estimators.defaults import Chosen, given_int
from tensorcep.cp.estimators.options import method_settings, run_settings
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.methods import get_method
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.problem import Problem
from tensorcep.cp.stream.adf import (
    STREAMING,
    BatchProblem,
    Stream,
    StreamState,
    absorbed,
    batch_of,
    begin,
    grown,
    keys_of,
    learn,
    posterior_of,
    uniform_means,
)
from tensorcep.cp.stream.arrivals import Arrivals, arrivals, as_batch, rows_of_keys, training_rows
from tensorcep.cp.stream.reservoir import Reservoir, empty_reservoir, with_new
from tensorcep.cp.stream.revisit import revisit, revisited
from tensorcep.entries.batch import Batch
from tensorcep.entries.labels import Labels
from tensorcep.priors.fixed import Prior, natural_prior

SCORES = ("n_samples_seen", "log_score", "rmse", "n_iter", "seconds")
# Attributes that are made from the state of the stream when somebody asks for them.
LAZY = ("posterior_", "labels_", "factors_", "factor_covs_", "_belief")


class StreamingCP(CPPredictions):
    """What a CP estimator does with batches that arrive one after the other."""

    posterior_: Any
    trace_: dict[str, np.ndarray]
    n_iter_: int
    converged_: bool
    n_samples_seen_: int
    n_batches_: int

    def __getattr__(self, name: str) -> Any:
        if name in LAZY and "_stream" in self.__dict__:
            self._unfold()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _unfold(self) -> None:
        """Set the attributes that `partial_fit` leaves until they are needed: their cost grows with the tensor."""
        stream = self._stream
        self.posterior_ = posterior_of(stream.state, 1.0 - self.forget)
        self.labels_ = tuple(
            None if rows is None else Labels(list(rows), name=name)
            for rows, name in zip(stream.keys, stream.names, strict=True)
        )
        self._set_moments()

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

    def _forget_stream(self) -> None:
        self.__dict__.pop("_stream", None)

    def partial_fit(self, X: Any, y: Any = None, *, time: float | None = None) -> Any:
        """Learn one more batch of entries, the posterior so far being the prior; the old entries are not needed.

        The first batch is learned as `fit` would. Later batches get messages of their own, damped sweeps until `tol`
        or `max_iter`, without annealing. Only the rows that a batch touches cost anything. An index or a label that
        was not seen before gets a row with its prior, unless the parameter `shape` fixes the rows.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, SparseTensor, or DataFrame
            Coordinates or labels of the entries, as for `fit`; a DataFrame holds one column of labels per mode. A cell
            that occurs twice in X was observed twice.
        y : array-like of shape (N,)
            Values; left out with a SparseTensor.
        time : float, optional
            When the batch was observed, in the unit that `forget` refers to; default: the number of earlier batches.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before anything is learned; for a method without streams.
        """
        self._learn(as_batch(X, y, time))
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

        Parameters
        ----------
        source : iterable of batches, DataFrame, or path or list of paths
            A batch is a pair (X, y), a triple (X, y, time), a SparseTensor or a DataFrame. DataFrames and files are
            cut into batches; files are read in pieces, so they may be larger than memory.
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
        how = Arrivals(modes, value, time, batch_size, first_batch, reading)
        trace = {name: array("d") for name in SCORES}
        with tqdm(desc="stream", unit="entry", unit_scale=True, disable=not self.verbose) as bar:
            for batch in arrivals(source, how):
                scores = self._learn(batch, score=True)
                for name in SCORES:
                    trace[name].append(scores[name])
                bar.update(len(batch.values))
                bar.set_postfix(rmse=f"{scores['rmse']:.4g}", refresh=False)
                if callback is not None and callback(self, scores):
                    break
        self.stream_trace_ = {name: np.array(numbers) for name, numbers in trace.items()}
        return self

    def _learn(self, arrival: Batch, score: bool = False) -> dict[str, float]:
        """Learn one batch and return what `stream` reports of it."""
        begin_seconds = clock.perf_counter()
        self._check_method()
        self._check_revisit()
        first = "_stream" not in self.__dict__ and "posterior_" not in self.__dict__
        self._note_source(arrival.tensor, first)
        scores = {"log_score": np.nan, "rmse": np.nan}
        if first:
            self._learn_first(arrival)
        else:
            scores |= self._learn_next(arrival, score)
        # seconds are left out, so that the same stream leads to the same model file
        self.trace_ = {name: values for name, values in self.trace_.items() if name != "seconds"}
        seconds = clock.perf_counter() - begin_seconds
        return {"n_samples_seen": self.n_samples_seen_, **scores, "n_iter": self.n_iter_, "seconds": seconds}

    def _learn_first(self, arrival: Batch) -> None:
        coords, shape, labels = training_rows(arrival, self.shape)
        problem, result = self._fit_entries(coords, arrival.values, shape, labels, streaming=True)
        time = 0.0 if arrival.time is None else arrival.time
        Lam, eta = problem.prior.Lam, problem.prior.eta
        if self.posterior_.mode_prior is not None:  # what the first batch says of the prior stays
            Lam, eta = self._mean_prior()
        state = begin(self.posterior_, Lam, eta, problem.noise_prior, time)
        stream = self._new_stream(state, problem.seed)
        if self.revisit:
            y = self._checked_targets(arrival.values, problem.likelihood)
            arrived, last = (coords, y, time), result.state
            how = {"seed": stream.seed, "capacity": self.revisit, "free": problem.free}
            empty = empty_reservoir(len(shape), state.rank)
            found = with_new(empty, arrived, problem.entries.permutation, last.messages, **how)
            stream = stream._replace(reservoir=found)
        self._stream = stream

    def _check_method(self) -> None:
        method = self.method_ if "posterior_" in self.__dict__ or "_stream" in self.__dict__ else self.method
        if self.method == "auto" and method not in (*STREAMING, "auto"):
            fail_value(f"partial_fit cannot go on from a fit by method {method!r}; set method='cep', and fit again.")
        check_choice("method", method, (*STREAMING, "auto"))

    def _check_revisit(self) -> None:
        if not check_int("revisit", self.revisit, 0):
            return
        if self.method not in ("cep", "auto"):
            fail_value(f"revisit needs the messages of method='cep'; got method={self.method!r}; set revisit=0.")
        if (self.method_options or {}).get("messages", "full") != "full":
            fail_value("revisit needs the message of every entry; got messages='averaged'; set revisit=0.")

    def _continued(self) -> Stream:
        """The stream so far; that of a model that was fitted, or loaded, begins with its posterior."""
        if "_stream" in self.__dict__:
            return self._stream
        posterior: Any = first_member(self.posterior_)
        Lam, eta = self._mean_prior()
        seed = int(check_random_state(self.random_state).integers(2**63))
        noise = posterior.noise  # of a fit the first prior is not kept: forgetting leaves the noise as it is
        return self._new_stream(begin(posterior, Lam, eta, noise, float(self.n_batches_ - 1)), seed)

    def _mean_prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters of every row's prior where that is the same for all rows of a mode."""
        prior = Prior(list(self._unseen_mean), [np.linalg.inv(cov) for cov in self._unseen_cov])
        return natural_prior(prior, self.posterior_.shape, self.posterior_.rank)

    def _new_stream(self, state: StreamState, seed: int) -> Stream:
        keys, names = keys_of(self.labels_)
        free = free_columns(self.interactions_, len(keys))
        drawn = self.prior_ == "fixed" and self.prior_mean == "uniform" and bool(free.all())
        return Stream(state, keys, names, seed, drawn)

    def _learn_next(self, arrival: Batch, score: bool) -> dict[str, float]:
        stream = self._continued()
        sweeps = given_int("max_iter", self.max_iter, self.max_iter_)
        chosen = Chosen(self.method_, self.rank_, self.prior_, self.interactions_, sweeps, 1)
        options = self._checked_options(chosen, len(stream.keys))
        likelihood = self._likelihood()
        method = get_method(self.method_, likelihood)
        settings = method_settings(method, options, likelihood, self.method_options)
        y = self._checked_targets(arrival.values, likelihood)
        time = self._checked_time(arrival.time, stream.state.time)
        coords = rows_of_keys(arrival, stream.keys, self.shape)
        state = grown(stream.state, coords.max(axis=0) + 1, lambda *rows: self._prior_of_new(stream, *rows))
        how = {"likelihood": likelihood, "keep": 1.0 - self.forget, "time": time, "seed": stream.seed}
        batch, made, reservoir = batch_of(state, coords, y, **how), None, None
        scores = self._prequential(batch, arrival.values, y) if score else {}
        if self.revisit:
            before = stream.reservoir or empty_reservoir(len(stream.keys), state.rank)
            made = revisit(state, before, coords, y, capacity=self.revisit, **how)
            batch = made.batch
        result = learn(method, batch.problem, settings, **run_settings(options, False))
        posterior: Any = result.posterior
        if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
            raise FloatingPointError("the batch led to values that are not finite; add damping or a tighter prior.")
        if made is not None:
            posterior, reservoir = revisited(made, posterior, result.state.messages)
        for name in (*LAZY, "stream_trace_"):
            self.__dict__.pop(name, None)
        self._stream = stream._replace(state=absorbed(state, batch, posterior), reservoir=reservoir)
        self.shape_ = state.sizes
        self.n_iter_, self.converged_, self.trace_ = result.n_iter, result.converged, result.trace
        self.n_samples_seen_ += len(y)
        self.n_batches_ += 1
        return scores

    def _checked_time(self, time: float | None, last: float) -> float:
        time = float(self.n_batches_) if time is None else check_range("time", time)
        if time < last:
            fail_value(f"time must not go back: the last batch was at {last:g}; got {time:g}.")
        return time

    def _prior_of_new(self, stream: Stream, k: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters of the prior of the rows first:last of mode k."""
        rank, mean = stream.state.rank, self._unseen_mean[k]
        if stream.uniform:
            scale = np.sqrt(self._unseen_cov[k][0, 0])
            mean = scale * uniform_means(stream.seed, k, first, last, rank)
        return natural_prior(Prior([mean], [np.linalg.inv(self._unseen_cov[k])]), (last - first,), rank)

    def _prequential(self, batch: BatchProblem, values: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Scores of the predictions of a batch before it is learned."""
        known: Problem = batch.problem
        none = np.zeros(len(known.prior.eta), dtype=bool)
        prior = Posterior(known.shape, known.rank, known.prior.Lam, known.prior.eta, known.noise_prior, none)
        belief = prior.components()
        log_score = observed_logpdf(known.likelihood, belief, batch.rows, y)
        mean, _ = observed_moments(known.likelihood, belief, batch.rows)
        return {"log_score": float(log_score.mean()), "rmse": float(np.sqrt(np.mean((values - mean) ** 2)))}
