"""`transform` and `with_rows` of the CP estimators: rows of unseen labels given a fitted model."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.belief import Mixture, ModePrior, PointEstimate, Posterior, Result
from tensorcep.core.checks import check_not_empty, check_values, fail_value
from tensorcep.core.executor import Executor, ThreadExecutor, n_threads
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fitted.alignment import layout_of, moments_beside
from tensorcep.cp.fitted.new_row_draws import RowDraws, drawn_rows, row_draws
from tensorcep.cp.fitted.new_rows import (
    KERNELS,
    NewEntries,
    gaussian_rows,
    in_all,
    in_free,
    message_rows,
    moments,
    with_index,
    with_new_rows,
)
from tensorcep.cp.inputs.coordinates import column_of, coords_to_predict, mode_of, names_of, packed_rows
from tensorcep.cp.inputs.side_information import check_no_deviations, word_of
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.parameters import theta_of
from tensorcep.cp.settings.registry import SETTINGS, checked_method
from tensorcep.cp.targets.real import check_even
from tensorcep.entries.labels import Labels
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.graph import Net


@dataclass(frozen=True, repr=False, eq=False)
class NewRows:
    """Rows of unseen labels of one mode, as `transform` gives them.

    Attributes
    ----------
    mode : int
    name : str or hashable
        What the mode is called.
    labels : Labels or None
        None where the mode has indices: the rows then follow the known ones.
    mean : (n, R) float64
    cov : (n, R, R) float64
        Zero for a point estimate.
    """

    mode: int
    name: Any
    labels: Labels | None
    mean: np.ndarray
    cov: np.ndarray
    parts: list[Any] = field(repr=False)
    cells: np.ndarray = field(repr=False)
    first: int = field(repr=False)  # how many rows the mode had
    model: str = field(repr=False)  # what tells the model that they were made by from others
    sampled: np.ndarray | None = field(repr=False, default=None)  # those of the cells that hold sampled zeros

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"<{len(self)} new rows of mode {self.name!r}, rank {self.mean.shape[1]}>"

    def to_frame(self) -> pd.DataFrame:
        """Mean and standard deviation of every column: a row per label; columns (component, "mean" or "sd")."""
        sd = np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))
        columns = pd.MultiIndex.from_product([range(self.mean.shape[1]), ["mean", "sd"]], names=["component", None])
        each = np.stack([self.mean, sd], axis=2).reshape(len(self), -1)
        return pd.DataFrame(each, index=None if self.labels is None else self.labels.index, columns=columns)


class Folding(CPPredictions):
    """What a fitted CP estimator says of rows that it was not fitted to."""

    _cells: np.ndarray | None = None
    _sampled: np.ndarray | None = None
    _grown_from: tuple[str, ...] = ()  # digests of the model itself and of those that it has the other rows of

    def transform(self, X: Any, y: Any = None, *, mode: Any, modes: Any = None, value: Any = UNSAID) -> NewRows:
        """The rows of unseen labels of one mode given their entries, everything else as it was fitted.

        They are the conditional posterior that the fit's method gives them: with the known rows, their uncertainty and
        the noise held, what its updates come to. A sampler's are one draw for each draw of the fit. The model does not
        change; `with_rows` gives one that knows them.

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
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> new = pd.DataFrame({"user": ["u9", "u9"], "item": ["i1", "i5"], "stars": [1.0, 4.0]})
        >>> rows = model.transform(new, mode="user", value="stars")
        >>> model.with_rows(rows).shape_
        (7, 6)
        """
        belief, k = check_no_deviations(self._fitted_belief(), "transform"), mode_of(self.labels_, mode)
        coupled = self._series[k] if self._series else None
        if coupled is not None:
            instead = "fit with the new rows" if isinstance(coupled, Net) else "predict takes later labels"
            fail_value(f"transform cannot add rows to mode {mode!r}, which is {word_of(coupled)}; {instead}.")
        if getattr(self, "_extent_unit", None) is not None:
            fail_value("transform takes no exposures or numbers of trials, which the fit had; fit with the new rows.")
        check_even(self, belief.theta, "transform needs")
        coords, given, labels, row = self._new_entries(X, y, k, modes, value)
        likelihood = self._likelihood()
        values = self._checked_targets(check_values(self._coded(given), len(coords), name="y"), likelihood)
        coords[:, k] = int(np.argmax(self.posterior_.seen[self._layout().rows[k]]))
        packed = packed_rows(coords, self.posterior_, self.unknown)
        n = int(row.max()) + 1
        entries = with_index(NewEntries(k, row, np.delete(packed, k, axis=1), values, n))
        executor = ThreadExecutor(n_threads(self.n_jobs))
        try:
            draws = self._draws_of_new(likelihood, entries) if belief.n_chains else None
            parts = [self._folded(c, likelihood, entries, draws, executor) for c in range(belief.size)]
            mean, cov = self._moments_of_new(parts, k, n, executor)
        finally:
            executor.close()
        cells = np.insert(np.delete(coords, k, axis=1), k, self.shape_[k] + row, axis=1)
        known = (packed < sum(self.shape_)).all(axis=1)
        cells = cells[known].astype(np.int32)
        marks = X.sampled if isinstance(X, SparseTensor) else None
        of = (self.shape_[k], _digest(self.posterior_), None if marks is None else cells[marks[known]])
        return NewRows(k, names_of(self.labels_)[k], labels, mean, cov, parts, cells, *of)

    def _new_entries(
        self, X: Any, y: Any, k: int, modes: Any, value: Any
    ) -> tuple[np.ndarray, Any, Labels | None, np.ndarray]:
        """Coordinates, values, new labels and the new row of each entry."""
        X, y = split_observed(names_of(self.labels_), X, y, modes, value)
        check_not_empty(len(X), "X")
        coords, name, known = coords_to_predict(X, self.labels_).copy(), names_of(self.labels_)[k], self.labels_[k]
        if known is None:
            new = coords[:, k]
            found = np.unique(new)
            wanted = np.arange(self.shape_[k], self.shape_[k] + len(found))
            if not np.array_equal(found, wanted):
                fail_value(
                    f"new indices of mode {name!r} must follow the known ones without a gap, from {self.shape_[k]} on; "
                    f"got {found[0]} to {found[-1]}."
                )
            return coords, y, None, new - self.shape_[k]
        column = column_of(X, self.labels_, k)
        labels, row = Labels.from_column(column, name=known.name)
        both = known.rows(labels.index, unknown="ignore") >= 0
        if both.any():
            fail_value(
                f"transform takes rows that the model does not know; got {labels.index[both].tolist()[0]!r} of mode "
                f"{name!r}, which it was fitted to ({int(both.sum())} such in all); leave them out."
            )
        return coords, y, labels, row

    def _draws_of_new(self, likelihood: Likelihood, entries: NewEntries) -> RowDraws:
        """What a draw of the new rows for each draw of the fit needs."""
        free = free_columns(self.interactions_, len(self.shape_))[entries.mode]
        seed = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else 0
        gaussian = self._augmentation_of(METHODS[self.method_].needs[0], likelihood, entries.y) is None
        return row_draws(likelihood, entries, free, gaussian, seed)

    def _folded(
        self, c: int, likelihood: Likelihood, entries: NewEntries, draws: RowDraws | None, executor: Executor
    ) -> Any:
        """The new rows in one component of the belief."""
        belief, k, method = self._fitted_belief(), entries.mode, METHODS[self.method_]
        every = free_columns(self.interactions_, len(self.shape_))
        free = every[k]
        prior = in_free(*self._prior_of_new(c, k), free)
        name, settings = checked_method(self.method)
        settings = settings if settings is not None and name == self.method_ else SETTINGS[self.method_]()
        augmentation = self._augmentation_of(method.needs[0], likelihood, entries.y)
        if self.method_ in KERNELS:
            gaussian = likelihood.name == "gaussian" and self.method_ == "cep" and getattr(settings, "order", 1) == 1
            if not gaussian:
                values = theta_of(belief, likelihood).values[c % len(theta_of(belief, likelihood).values)]
                theta = float(values.mean())
                if likelihood.levels is not None:
                    likelihood = likelihood._replace(levels=likelihood.levels._replace(start=values))
                how = (theta, entries, in_all(prior, free), every, settings, executor)
                return in_all(message_rows(belief, c, likelihood, *how), free)
            augmentation = None
        if draws is not None:
            return drawn_rows(belief, c, draws, prior, executor)
        if isinstance(self.posterior_, PointEstimate) and likelihood.name != "gaussian":
            fail_value(f"transform of a fit by {self.method_!r} needs real values without a limit; use method='vmp'.")
        rows = in_all(gaussian_rows(belief, c, likelihood, entries, prior, free, augmentation, executor), free)
        return moments(rows, executor)[0] if isinstance(self.posterior_, PointEstimate) else rows

    def _augmentation_of(self, part: str, likelihood: Likelihood, y: np.ndarray) -> Augmentation | None:
        """That of the method, where an entry has an auxiliary variable."""
        found = getattr(likelihood, part, None)
        if not isinstance(found, Augmentation) or found.expected is None:
            return None
        return found if found.hides(y).any() else None

    def _prior_of_new(self, c: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean (R,) and covariance (R, R) of a new row of mode k in component c.

        Of draws with a learned prior it is one drawn given the rows of that draw.
        """
        belief, total = self._fitted_belief(), sum(self.shape_)
        if belief.cov is not None:
            return belief.mean[c, total + k], unpack(belief.cov[c, total + k], belief.mean.shape[2])
        mean, cov = self._unseen_mean, self._unseen_cov
        if not belief.n_chains or self.prior_ not in LEARNED:
            return mean[k], cov[k]
        now = ModePrior(mean, np.linalg.inv(cov))
        free = free_columns(self.interactions_, len(self.shape_))
        scale = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        eta = np.einsum("kij,kj->ki", now.precision, mean)
        prior = LEARNED[self.prior_](pack(now.precision), eta, mean, scale, free)
        rows = [belief.mean[c, seen].astype(np.float64) for seen in self._layout().seen]
        drawn = prior.draw(now, rows, np.random.default_rng([c, k]))
        return drawn.mean[k], np.linalg.inv(drawn.precision[k])

    def _moments_of_new(self, parts: list[Any], k: int, n: int, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance in the columns of `factors_`: of draws as these are aligned."""
        belief, R = self._fitted_belief(), self.posterior_.rank
        if belief.n_chains:
            end, seen = self._layout().rows[k].stop, self.posterior_.seen
            shape = [size + n * (j == k) for j, size in enumerate(self.shape_)]
            seen = np.concatenate([seen[:end], np.zeros(n, dtype=bool), seen[end:]])
            layout, at = layout_of(shape, self.column_modes_, seen), slice(end, end + n)
            return moments_beside(belief.mean[:, : sum(self.shape_)], parts, self._aligned, layout, at)
        if isinstance(self.posterior_, PointEstimate):
            return parts[0], np.zeros((n, R, R))
        mean, cov = moments(parts[0], executor)
        return mean, unpack(cov, R)

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
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> new = pd.DataFrame({"user": ["u9", "u9"], "item": ["i1", "i5"], "stars": [1.0, 4.0]})
        >>> more = model.with_rows(model.transform(new, mode="user", value="stars"))
        >>> more.recommend("item", given={"user": "u9"}, n=1, exclude=None).shape[0]
        1
        """
        if not isinstance(rows, NewRows):
            raise TypeError(f"rows must be what transform returns; got {type(rows).__name__}.")
        own = _digest(self.posterior_)
        before = self._grown_from[1:] if self._grown_from[:1] == (own,) else ()
        if rows.model not in (own, *before):
            fail_value(
                f"rows must be what transform of this model gives; these {len(rows)} are of another model, or of this "
                "one before it was fitted again; transform their entries with it."
            )
        known, n = self.labels_[rows.mode], self.shape_[rows.mode]
        if known is None and n != rows.first:
            fail_value(
                f"the new rows of mode {rows.name!r} must follow the {n} known ones; these follow {rows.first}; "
                "transform them with this model."
            )
        if known is not None and (rows.labels is None or (known.rows(rows.labels.index, unknown="ignore") >= 0).any()):
            fail_value(f"the model knows some of the new rows of mode {rows.name!r} already; transform them with it.")
        new = self._grown(rows.mode, rows.labels, rows.parts)
        new.__dict__["_grown_from"] = (_digest(new.posterior_), own, *before)
        if self._cells is not None:
            cells = rows.cells.copy()
            cells[:, rows.mode] += n - rows.first
            new.__dict__["_cells"] = np.unique(np.concatenate([self._cells, cells]), axis=0)
        if rows.sampled is not None:
            zeros = rows.sampled.copy()
            zeros[:, rows.mode] += n - rows.first
            new.__dict__["_sampled"] = zeros if self._sampled is None else np.concatenate([self._sampled, zeros])
        return new

    def _grown(self, k: int, labels: Labels | None, parts: list[Any]) -> Any:
        """A copy with more rows in mode k."""
        posterior, all_labels = self.posterior_, list(self.labels_)
        new = copy.copy(self)
        if labels is not None and all_labels[k] is not None:
            all_labels[k] = all_labels[k].extended(labels.index)
        for name in ("_stream", "_kept"):
            new.__dict__.pop(name, None)
        grown = with_new_rows(posterior, k, parts)
        new.__dict__.update(posterior_=grown, shape_=grown.shape, labels_=tuple(all_labels))
        new._set_moments()
        return new


def _digest(result: Result) -> str:
    """What tells the rows of a result from those of others, and is the same when it is read from a file.

    Of draws the first and the last are enough.
    """
    found = hashlib.blake2b(repr([int(n) for n in result.shape]).encode(), digest_size=16)
    members: tuple[Any, ...] = result.members if isinstance(result, Mixture) else (result,)
    for member in members:
        rows = member.eta if isinstance(member, Posterior) else member.rows
        every = rows.reshape(-1, *rows.shape[-2:])
        for part in every[:: max(1, len(every) - 1)][:2]:
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
