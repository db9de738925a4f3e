"""Learning from a stream: `partial_fit` and `stream` of the CP estimators."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from tensorcep.core.checks import check_int
from tensorcep.cp.estimators.learning import LearningCP
from tensorcep.cp.inputs.coordinates import names_of_modes, refuse_others
from tensorcep.cp.inputs.weights import ARGUMENTS, weighted_batch
from tensorcep.cp.stream.arrivals import Arrivals, arrivals, as_batch, with_extents
from tensorcep.cp.stream.learn import watching
from tensorcep.entries.tables import UNSAID, as_frames, column_apart, split_given, split_observed
from tensorcep.entries.tensor import SparseTensor

SCORES = ("n_samples_seen", "log_score", "rmse", "n_iter", "seconds")


class StreamingCP(LearningCP):
    """What a CP estimator does with batches that arrive one after the other."""

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        modes: Any = None,
        value: Any = UNSAID,
        time: float | None = None,
        sample_weight: Any = None,
        **others: Any,
    ) -> Any:
        """Learn one more batch of entries, the posterior so far being the prior; the old entries are not needed.

        The first batch is learned as `fit` would. After a fit by a method that learns no streams, such as a sampler,
        batches are learned by "cep", from Gaussians of the rows; of draws these are made after their alignment, and
        refused where draws do not agree on the components. Later batches get messages of their own, sweeps until `tol`
        or `max_iter`, damped where they need it, without annealing. Only the rows that a batch touches cost anything.
        An index or label that was not seen before gets a row with its prior, unless the parameter `shape` fixes the
        rows. A batch that is refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, SparseTensor, or table
            Coordinates or labels of the entries, as for `fit`; a table holds one column of labels per mode. A cell
            that occurs twice in X was observed twice.
        y : array-like of shape (N,)
            Values; left out with a SparseTensor, and where `value` names their column.
        modes, value : column names, optional
            Of a table: the modes, and the value, as in `fit`; the modes of later batches are found by their names.
        time : float, optional
            When the batch was observed, in the unit that `forget` refers to; default: the number of earlier batches.
        sample_weight : array-like of shape (N,) or column name, optional
            How much each entry counts, as in `fit`: the power to which its likelihood is taken. With ``revisit=`` and
            where a dispersion is learned, whole numbers.
        **others
            Of counts exposure= or n_trials=, as in `fit`. Once a batch had exposures, every batch needs them; counts of
            earlier ones without any were those of an exposure of 1.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before anything is learned; for a method without streams.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, prior="fixed", random_state=0).partial_fit(tensor.select(range(60)))
        >>> model.partial_fit(tensor.select(range(60, 120))).n_samples_seen_
        120
        """
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        X, extents, column = self._split_extents(X, others, "partial_fit")
        X, y = self._split_batch(X, y, modes, value)
        batch = as_batch(X, y, time, self._code)
        self._learn(weighted_batch(with_extents(batch, extents, column), sample_weight))
        return self

    def _split_batch(self, X: Any, y: Any, modes: Any, value: Any) -> tuple[Any, Any]:
        """Cells and values of a batch, whose modes are those of the model if it has learned any."""
        own = vars(self)
        if "_stream" not in own and "posterior_" not in own:
            return split_given(X, y, modes, value)
        known = own["_stream"].names if "_stream" in own else names_of_modes(self.labels_)
        names = [k if name is None else name for k, name in enumerate(known)]
        X, values = split_observed(names, X, y, modes, value)
        return X, None if isinstance(X, SparseTensor) and y is None else values

    def _column_of_extents(self, given: dict[str, Any]) -> str | None:
        """The column of exposures or trials that `stream` was told of; None where there is none."""
        refuse_others(f"{type(self).__name__}.stream", given)
        return None

    def stream(
        self,
        source: Any,
        *,
        batch_size: int = 1000,
        first_batch: int | None = None,
        modes: Any = None,
        value: Any = None,
        time: Any = None,
        sample_weight: Any = None,
        callback: Callable[[Any, dict[str, float]], Any] | None = None,
        scores: Any = None,
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
        sample_weight : column name, optional
            Of DataFrames: the weights of the entries, as in `partial_fit`.
        exposure, n_trials : column name, optional
            Of counts, the column of DataFrames and files that holds them, as in `partial_fit`; of files with `modes`
            and `value`.
        callback : callable, optional
            Called as ``callback(model, scores)`` after each batch; a true value stops the stream.
        scores : path or callable, optional
            Where the anomaly scores of all entries go, each made before its batch was learned: a csv file to write, or
            what is called with a DataFrame for each batch once that is learned. Columns are those of `anomaly_score`,
            at the time of the batch; of the first batch, which nothing predicts, the scores are missing.
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

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, prior="fixed", random_state=0).stream(tensor.minibatches(60, shuffle=False))
        >>> model.n_batches_, len(model.stream_trace_["log_score"])
        (2, 2)
        """
        check_int("batch_size", batch_size)
        if first_batch is not None:
            check_int("first_batch", first_batch)
        extents = {name: reading.pop(name) for name in ARGUMENTS.values() if name in reading}
        column = self._column_of_extents(extents)
        how = Arrivals(modes, value, time, batch_size, first_batch, reading, self._code, sample_weight, column)
        trace = {name: array("d") for name in SCORES}
        try:
            bars = tqdm(desc="stream", unit="entry", unit_scale=True, disable=not self.verbose)
            with watching(scores) as watch, bars as bar:
                for batch in arrivals(as_frames(source), how):
                    told: list[Any] = []
                    found = self._learn(batch, None if watch is None else told.append)
                    for name in SCORES:
                        trace[name].append(found[name])
                    if watch is not None:
                        watch(told[0])
                    bar.update(len(batch.values))
                    bar.set_postfix(rmse=f"{found['rmse']:.4g}", refresh=False)
                    if callback is not None and callback(self, found):
                        break
        finally:
            if trace["seconds"]:
                self.stream_trace_ = {name: np.array(numbers) for name, numbers in trace.items()}
        return self
