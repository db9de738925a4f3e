"""What the CP estimators share: their parameters, `fit`, batches of a stream, entries to forget, new rows."""

from __future__ import annotations

import copy
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from tensorcep.core.checks import Seed, check_int
from tensorcep.core.reporting import CallbackSupportMixin, begin_fit, end_fit, sweep_callbacks, with_callbacks
from tensorcep.core.settings import Settings, TakesMethod
from tensorcep.cp.estimators.queries import Queries
from tensorcep.cp.fit.outcome import check_alone, read_call, resolve_call, run_ready
from tensorcep.cp.fitted import new_rows
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.fitted.new_rows import NewRows
from tensorcep.cp.inputs.batches import Arrivals, arrivals, as_batch, with_extents
from tensorcep.cp.inputs.weights import ARGUMENTS, weighted_batch
from tensorcep.cp.plan.spec import FitSpec, check_parameters
from tensorcep.cp.settings import ENGINES
from tensorcep.cp.stream.cold_start import Commit
from tensorcep.cp.stream.learn import forget_entries, forget_rows, learn_arrival, split_batch, watching
from tensorcep.cp.stream.reservoir import Reservoir
from tensorcep.cp.targets.base import Target
from tensorcep.cp.workers.checkpoint import fit_on_workers
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Rows, Values, as_frames, column_apart, is_of
from tensorcep.priors.fixed import Prior

SCORES = ("n_samples_seen", "log_score", "rmse", "n_iter", "seconds")


def spec_of(model: BaseCP) -> FitSpec:
    """The parameters of an estimator, and its target, for other rooms."""
    return model._spec()


@dataclass(eq=False, repr=False)
class BaseCP(TakesMethod, CallbackSupportMixin, Queries):  # type: ignore[misc]
    """Common part of the CP estimators. Entries are samples: X holds integer coordinates (N, K), y their values.

    The fields are the parameters, of which the constructor is made; scikit-learn reads them from its signature.
    """

    engines = ENGINES

    rank: int | str = "auto"
    _: KW_ONLY
    method: str | Settings = "auto"
    prior: Prior | Mapping[Name, object] | str = "auto"
    prior_scale: float | str = "auto"
    prior_mean: float | str = "uniform"
    interactions: str | dict[str, int] = "auto"
    max_iter: int | str = "auto"
    tol: float = 3e-3
    init: str | Sequence[ArrayLike] = "auto"
    shape: tuple[int, ...] | None = None
    unknown: str = "prior"
    forget: float = 0.0
    revisit: int = 0
    n_jobs: int | None = None
    random_state: Seed = None
    verbose: int = 0
    callbacks: Callable[..., object] | Sequence[Callable[..., object]] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # rows of X are coordinates of entries, not feature vectors
        tags.non_deterministic = self.random_state is None
        return tags

    def _target(self) -> Target:
        """What the user says of y."""
        raise NotImplementedError

    def _spec(self) -> FitSpec:
        """The parameters as they are now."""
        shared = {name: getattr(self, name) for name in FitSpec._fields[1:-1]}
        return FitSpec(self._target(), **shared, sweep_callbacks=sweep_callbacks(self))

    def _check_parameters(self) -> None:
        """Refuse parameters that no fit takes, whatever the entries: files may hold any."""
        check_parameters(self._spec())

    def _set(self, fit: FitResult) -> None:
        """Put a result in the place of the one before it."""
        self.__dict__.pop("stream_trace_", None)
        self._fit = fit

    @property
    def _commit(self) -> Commit:
        return Commit(self._set, lambda: self._fit)

    @property
    def n_revisited_(self) -> int:
        """Times that an entry of the reservoir was learned again."""
        return self._counts().revisited

    @property
    def n_revisits_skipped_(self) -> int:
        """Times that an entry was not, because a row could not do without its message."""
        return self._counts().skipped

    def _counts(self) -> Reservoir:
        stream = None if self._fit is None else self._fit.stream
        return Reservoir.empty(1, 1) if stream is None or stream.reservoir is None else stream.reservoir

    @with_callbacks
    def fit(
        self,
        X: Cells,
        y: Values = None,
        *,
        modes: Names = None,
        value: Name = UNSAID,
        warm_start: bool = False,
        fixed_modes: Name | Sequence[Name] | None = None,
        sample_weight: Values = None,
        scratch: str | os.PathLike[str] | None = None,
        memory: str | float | None = None,
        **extents: Values,
    ) -> Any:
        """Fit the factors to observed entries.

        A fit that is refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, SparseTensor, table, or files
            Coordinates of the entries, counted from 0. A SparseTensor brings its values, shape and labels. A table has
            one line per entry, and columns of labels: a DataFrame of pandas or polars, a Table of pyarrow, a list of
            dicts, or a DataArray of xarray, whose dimensions are the modes; labels in the index are columns after
            ``reset_index()``, a wide table after ``melt()``. A cell that occurs twice was observed twice; a
            `SparseTensor` merges such. Files are a path, a folder, a pattern such as ``data/*.parquet``, or a list of
            these: .tns, csv and parquet, read some lines at a time; labels are those of all files, sorted.
            A dask.dataframe is read by the workers of the active client, which do the work of every method but "wopt",
            too (`tensorcep.distributed.fit`).
        y : array-like of shape (N,)
            Values of the entries; left out with a SparseTensor, and where `value` names their column.
        modes : list of column names, optional
            Of a table: the modes; default: all columns but the value. Others are ignored.
        value : column name or None, optional
            Of a table: the value. None where a line is an event: the value of a cell is the number of its lines, and
            cells without lines are unobserved. Of files the last column, unless it is named.
        warm_start : bool, default=False
            Whether to start at the factors of the earlier fit of this estimator, if there is one with as many columns;
            rows are matched by their labels.
        fixed_modes : name or position of a mode, or list of them, optional
            Modes whose rows stay as they are in the earlier fit of this estimator, with what is not known of them; the
            rows of the other modes are learned from these entries alone, from where they are. Columns, prior and level
            are those of the earlier fit. Samplers take the earlier draws of the rows one after the other. Not for
            "wopt".
        sample_weight : array-like of shape (N,) or column name, optional
            How much each entry counts: the power to which its likelihood is taken. Whole numbers are entries that are
            given so many times (0: not at all). Others are powers of what the method puts in the likelihood's place;
            "gibbs" takes them for real values without a limit, and for counts. Starts, hold-outs and choices are told
            by the entries that weigh a tenth of the usual weight or more, up to which half of all weight lies.
        scratch : folder, optional
            Where files without names are to lie instead of memory, for methods that need no message of every entry and
            one noise: "gibbs", "vmp", "pg-gibbs", "pg-vb", ``CEP(messages="averaged")``. Of real values a sweep reads
            4 K^2 bytes per entry from front to back, if single precision holds them; others take 100 more, 16 of them
            in every mode's order. Bits are those of memory; of more than a million entries, a sample tells the start.
        memory : str or number, optional
            How much memory the fit may take, such as "8GB" or 2e9. It is added up from the numbers of entries, rows and
            columns before any work: if all fit, they lie in memory; otherwise on `scratch`, or the fit is refused.
        **extents
            Of counts alone.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.
        FloatingPointError
            If the result is not finite.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.labels_[0].name, round(float(model.predict(pd.DataFrame({"user": ["u5"], "item": ["i5"]}))[0]))
        ('user', 5)
        """
        if is_of(X, "dask"):
            check_alone("a table of Dask", {"scratch": scratch, "memory": memory})
            how: Any = {"warm_start": warm_start, "fixed_modes": fixed_modes, "sample_weight": sample_weight, **extents}
            return fit_on_workers(self, X, y, strict=False, modes=modes, value=value, **how)
        begin_fit(self, X, y)
        spec, before = self._spec(), self._fit
        read = read_call(spec, before, X, y, modes, value, fixed_modes, sample_weight, scratch, memory, extents)
        try:
            result, tell = run_ready(spec, *resolve_call(spec, before, read, warm_start, fixed_modes))
        finally:
            read.place.end()
        self._set(result)
        tell()
        end_fit(self, X, y)
        return self

    def partial_fit(
        self,
        X: Cells,
        y: Values = None,
        *,
        modes: Names = None,
        value: Name = UNSAID,
        time: float | None = None,
        sample_weight: Values = None,
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
        spec, observation = self._spec(), None if self._fit is None else self._fit.observation
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        X, extents, column = spec.target.split_extents(X, others, "partial_fit")
        X, y = split_batch(self._fit, X, y, modes, value)
        batch = with_extents(as_batch(X, y, time, spec.target.coder(observation)), extents, column)
        learn_arrival(spec, self._fit, weighted_batch(batch, sample_weight), self._commit)
        return self

    def stream(
        self,
        source: Any,
        *,
        batch_size: int = 1000,
        first_batch: int | None = None,
        modes: Names = None,
        value: Name = None,
        time: Name = None,
        sample_weight: Values = None,
        callback: Callable[[Any, dict[str, float]], Any] | None = None,
        scores: str | os.PathLike[str] | Callable[[pd.DataFrame], object] | None = None,
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
            Of counts, the column of DataFrames and files that holds them, as in `partial_fit`.
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
        spec, trace = self._spec(), {name: array("d") for name in SCORES}
        column = spec.target.column_of_extents(extents)

        def code(y: Any) -> Any:  # as the batches so far say
            coder: Any = spec.target.coder(None if self._fit is None else self._fit.observation)
            return coder(y)

        coder = None if spec.target.coder(None) is None else code
        how = Arrivals(modes, value, time, batch_size, first_batch, reading, coder, sample_weight, column)
        try:
            bars = tqdm(desc="stream", unit="entry", unit_scale=True, disable=not self.verbose)
            with watching(scores) as watch, bars as bar:
                for batch in arrivals(as_frames(source), how):
                    told: list[Any] = []
                    watcher = None if watch is None else told.append
                    found = learn_arrival(self._spec(), self._fit, batch, self._commit, watcher)
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

    def forget_entries(self, X: Cells, *, data: Cells | None = None, y: Values = None, partly: bool = False) -> Any:
        """Remove entries from a fit, as if they had never been there.

        After a fit by ``CEP(keep_messages=True)`` the messages of the entries are divided out, and sweeps go on until
        `tol`: the result is that of a fit without them, as far as the tolerance and the choice of a start go. Of any
        other fit the entries are needed (`data`), and it is done again without these, from the factors as they are.
        Levels, scales and the rank are those that a fit without them would choose.

        A stream forgets what it keeps: all entries while it is beginning, or with ``revisit=`` those of its reservoir,
        whose messages are divided out before the others of the reservoir are learned again. Where the reservoir holds
        every entry, that is the stream of those that are left, with the level, the scale and the prior that its first
        batch chose.

        Parameters
        ----------
        X : table, coordinates or SparseTensor
            The cells; a table may name some modes only: all entries that match are removed.
        data, y : entries of the fit and their values, where it kept no messages
        partly : bool, default=False
            Of a stream whose reservoir holds only some of its entries: forget as far as that reaches. What entries said
            that are not held stays; the record says so (``"whole": False``).

        Returns
        -------
        self
            With one more record in `forgotten_`: what was removed, how, and how many entries are left.

        Raises
        ------
        ValueError
            If no entry matches, none would be left, the entries of the fit are not known or are not those that are
            given, or the fit had weights that are no whole numbers, or fixed modes.

        Examples
        --------
        >>> from tensorcep import CEP, CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=CEP(keep_messages=True), random_state=0).fit(tensor)
        >>> model.forget_entries(tensor.coords[:3]).forgotten_[0]["entries_left"]
        117
        """
        forget_entries(self._fitted, X, data, y, partly, self._commit)
        return self

    def forget_rows(
        self, mode: Name, rows: Rows, *, data: Cells | None = None, y: Values = None, partly: bool = False
    ) -> Any:
        """Remove rows of a mode, such as a user, with all their entries; see `forget_entries`.

        Parameters
        ----------
        mode : name or position
        rows : label or index, or a list of them
            They are no rows of the model any more; of indices those that follow move up.
        data, y, partly : as in `forget_entries`

        Returns
        -------
        self

        Examples
        --------
        >>> from tensorcep import CEP, CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=CEP(keep_messages=True), random_state=0).fit(tensor)
        >>> model.forget_rows(0, 3).forgotten_[0]["rows"]
        {'mode_0': [3]}
        """
        forget_rows(self._fitted, mode, rows, data, y, partly, self._commit)
        return self

    def transform(
        self, X: Cells, y: Values = None, *, mode: Name, modes: Names = None, value: Name = UNSAID
    ) -> NewRows:
        """The rows of unseen labels of one mode given their entries, everything else as it was fitted.

        They are the conditional posterior with the known rows, their uncertainty and the noise held: of real values
        what the updates of the fit's method come to, of labels, levels, counts and values with a limit the Gaussian
        about its mode. A sampler's are one draw for each draw of the fit. The model does not change; `with_rows` gives
        one that knows them.

        Parameters
        ----------
        X : entries as in `fit`
            All of them of rows of `mode` that the model does not know; rows of other modes that it does not know have
            their prior.
        y : array-like of shape (N,), optional
        mode : name or position
        modes, value : as in `fit`

        Returns
        -------
        NewRows
            With `mean` and `cov`, in the columns of `factors_`.

        Raises
        ------
        ValueError
            If a label is known already, an index does not follow the known ones, or the method is "wopt" and values
            are not Gaussian.

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> new = [{"user": "u9", "item": "i1", "stars": 1.0}, {"user": "u9", "item": "i5", "stars": 4.0}]
        >>> rows = model.transform(new, mode="user", value="stars")
        >>> model.with_rows(rows).shape_
        (7, 6)
        """
        return new_rows.transform(self._fitted, X, y, mode, modes, value)

    def with_rows(self, rows: NewRows) -> Any:
        """A model that knows these rows too; what it says of the others is the same to the last bit.

        Parameters
        ----------
        rows : NewRows
            What `transform` of this model gave, or of the one that it was made of by `with_rows`.

        Returns
        -------
        An estimator of the same class.

        Raises
        ------
        ValueError, TypeError
            If they are rows of another model, or of this one before it was fitted again, or known already.

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> new = [{"user": "u9", "item": "i1", "stars": 1.0}, {"user": "u9", "item": "i5", "stars": 4.0}]
        >>> more = model.with_rows(model.transform(new, mode="user", value="stars"))
        >>> more.recommend("item", given={"user": "u9"}, n=1, exclude=None).shape[0]
        1
        """
        new = copy.copy(self)
        new._set(new_rows.with_rows(self._fitted, rows))
        return new
