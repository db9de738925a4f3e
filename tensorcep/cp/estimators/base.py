"""What the CP estimators share: their parameters, and `fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from tensorcep.core.checks import Seed
from tensorcep.core.reporting import CallbackSupportMixin, begin_fit, end_fit, sweep_callbacks, with_callbacks
from tensorcep.core.settings import Settings, TakesMethod
from tensorcep.cp.estimators.updates import Updates
from tensorcep.cp.fit.outcome import read_call, resolve_call, run_ready
from tensorcep.cp.fitted import predict
from tensorcep.cp.plan.spec import FitSpec, check_parameters
from tensorcep.cp.plan.storage import check_alone
from tensorcep.cp.settings import ENGINES
from tensorcep.cp.targets.base import Target
from tensorcep.cp.targets.levels import check_none_missing
from tensorcep.cp.workers.checkpoint import fit_on_workers
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Values, is_of
from tensorcep.priors.fixed import Prior


def spec_of(model: BaseCP) -> FitSpec:
    """The parameters of an estimator, and its target, for other rooms."""
    return model._spec()


@dataclass(eq=False, repr=False)
class BaseCP(TakesMethod, CallbackSupportMixin, Updates):  # type: ignore[misc]
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


@dataclass(eq=False, repr=False)
class BaseClasses(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Common part of the estimators whose values are labels, or ordered levels."""

    def predict(self, X: Cells) -> np.ndarray:
        """The label of each entry, (n,)."""
        raise NotImplementedError

    def score(
        self, X: Cells, y: Values = None, sample_weight: Values = None, *, modes: Names = None, value: Name = UNSAID
    ) -> float:
        """Share of the labels, or levels, that are predicted; entries are as in `CPRegressor.score`.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.score(entries.coords, entries.values > 1) > 0.7
        True
        """
        cells, labels, weight, _ = predict.scored_entries(self._fitted, X, y, sample_weight, modes, value)
        found = self.predict(cells)
        check_none_missing(labels)
        if found.dtype.kind == "f" and labels.dtype.kind in "biuf" and labels.shape == found.shape:
            labels, found = labels == found, np.ones(len(labels), dtype=bool)  # of fractions scikit-learn takes none
        return float(accuracy_score(labels, found, sample_weight=weight))
