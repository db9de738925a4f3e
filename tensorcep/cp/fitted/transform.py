"""Rows of unseen labels given a fitted model, and the model that knows them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_not_empty, check_values, fail_value
from tensorcep.core.executor import Executor, ThreadExecutor, n_threads
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.alignment import layout_of, moments_beside
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.fitted.new_rows import (
    NewEntries,
    drawn_rows,
    in_all,
    in_free,
    moments,
    new_entries,
    new_rows,
    with_new_rows,
)
from tensorcep.cp.inputs.coordinates import column_of, coords_to_predict, mode_of, names_of, packed_rows
from tensorcep.cp.inputs.side_information import check_no_deviations, word_of
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.posterior.belief import Mixture, PointEstimate, Posterior, Result
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.base import ModePrior
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


def transform(
    model: FittedModel, X: Any, y: Any = None, *, mode: Any, modes: Any = None, value: Any = UNSAID
) -> NewRows:
    """The rows of unseen labels of one mode given their entries, everything else as it was fitted."""
    belief, k = check_no_deviations(model.fit.belief, "transform"), mode_of(model.fit.labels, mode)
    coupled = model.fit.series[k] if model.fit.series else None
    if coupled is not None:
        instead = "fit with the new rows" if isinstance(coupled, Net) else "predict takes later labels"
        fail_value(f"transform cannot add rows to mode {mode!r}, which is {word_of(coupled)}; {instead}.")
    if model.fit.observation.has_extents:
        fail_value("transform takes no exposures or numbers of trials, which the fit had; fit with the new rows.")
    model.spec.target.check_even(belief.theta, "transform needs")
    coords, given, labels, row = _new_entries(model, X, y, k, modes, value)
    likelihood = model.fit.likelihood
    values = model.spec.target.checked(
        check_values(model.fit.observation.coded(given), len(coords), name="y"), likelihood
    )
    coords[:, k] = int(np.argmax(model.fit.posterior.seen[model.fit.layout.rows[k]]))
    packed = packed_rows(coords, model.fit.posterior, model.spec.unknown)
    free = free_columns(model.fit.interactions, len(model.fit.shape))[k]
    entries = new_entries(k, row, np.delete(packed, k, axis=1), values, free)
    executor = ThreadExecutor(n_threads(model.spec.n_jobs))
    try:
        parts = _folded(model, likelihood, entries, executor)
        mean, cov = _moments_of_new(model, parts, k, entries.size, executor)
    finally:
        executor.close()
    cells = np.insert(np.delete(coords, k, axis=1), k, model.fit.shape[k] + row, axis=1)
    known = (packed < sum(model.fit.shape)).all(axis=1)
    cells = cells[known].astype(np.int32)
    marks = X.sampled if isinstance(X, SparseTensor) else None
    of = (model.fit.shape[k], _digest(model.fit.posterior), None if marks is None else cells[marks[known]])
    return NewRows(k, names_of(model.fit.labels)[k], labels, mean, cov, parts, cells, *of)


def _new_entries(
    model: FittedModel, X: Any, y: Any, k: int, modes: Any, value: Any
) -> tuple[np.ndarray, Any, Labels | None, np.ndarray]:
    """Coordinates, values, new labels and the new row of each entry."""
    X, y = split_observed(names_of(model.fit.labels), X, y, modes, value)
    check_not_empty(len(X), "X")
    coords, name, known = (
        coords_to_predict(X, model.fit.labels).copy(),
        names_of(model.fit.labels)[k],
        model.fit.labels[k],
    )
    if known is None:
        new = coords[:, k]
        found = np.unique(new)
        wanted = np.arange(model.fit.shape[k], model.fit.shape[k] + len(found))
        if not np.array_equal(found, wanted):
            fail_value(
                f"new indices of mode {name!r} must follow the known ones without a gap, from {model.fit.shape[k]} on; "
                f"got {found[0]} to {found[-1]}."
            )
        return coords, y, None, new - model.fit.shape[k]
    column = column_of(X, model.fit.labels, k)
    labels, row = Labels.from_column(column, name=known.name)
    both = known.rows(labels.index, unknown="ignore") >= 0
    if both.any():
        fail_value(
            f"transform takes rows that the model does not know; got {labels.index[both].tolist()[0]!r} of mode "
            f"{name!r}, which it was fitted to ({int(both.sum())} such in all); leave them out."
        )
    return coords, y, labels, row


def _folded(model: FittedModel, likelihood: Likelihood, entries: NewEntries, executor: Executor) -> list[Any]:
    """The new rows in every component of the belief."""
    belief, free, method = model.fit.belief, entries.free, model.fit.method
    priors = (in_free(*prior_of_new(model, c, entries.mode), free) for c in range(belief.size))
    if belief.n_chains:
        seed = abs(int(model.spec.random_state)) if isinstance(model.spec.random_state, (int, np.integer)) else 0
        says = np.zeros((2, len(entries.y)))
        return [
            drawn_rows(belief, c, likelihood, entries, prior, says, seed, executor) for c, prior in enumerate(priors)
        ]
    estimate = isinstance(model.fit.posterior, PointEstimate)
    if estimate and not likelihood.is_gaussian:
        fail_value(f"transform of a fit by {method!r} needs real values without a limit; use method='vmp'.")
    rows = [in_all(new_rows(belief, c, likelihood, entries, prior, executor), free) for c, prior in enumerate(priors)]
    return [moments(part, executor)[0] for part in rows] if estimate else rows


def prior_of_new(model: FittedModel, c: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (R,) and covariance (R, R) of a new row of mode k in component c.

    Of draws with a learned prior it is one drawn given the rows of that draw.
    """
    belief, total = model.fit.belief, sum(model.fit.shape)
    if belief.cov is not None:
        return belief.mean[c, total + k], unpack(belief.cov[c, total + k], belief.mean.shape[2])
    mean, cov = model.fit.unseen_mean, model.fit.unseen_cov
    if not belief.n_chains or model.fit.prior not in LEARNED:
        return mean[k], cov[k]
    now = ModePrior(mean, np.linalg.inv(cov))
    free = free_columns(model.fit.interactions, len(model.fit.shape))
    scale = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    eta = np.einsum("kij,kj->ki", now.precision, mean)
    prior = LEARNED[model.fit.prior](pack(now.precision), eta, mean, scale, free)
    rows = [belief.mean[c, seen].astype(np.float64) for seen in model.fit.layout.seen]
    drawn = prior.draw(now, rows, np.random.default_rng([c, k]))
    return drawn.mean[k], np.linalg.inv(drawn.precision[k])


def _moments_of_new(
    model: FittedModel, parts: list[Any], k: int, n: int, executor: Executor
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance in the columns of `factors_`: of draws as these are aligned."""
    belief, R = model.fit.belief, model.fit.posterior.rank
    if belief.n_chains:
        end, seen = model.fit.layout.rows[k].stop, model.fit.posterior.seen
        shape = [size + n * (j == k) for j, size in enumerate(model.fit.shape)]
        seen = np.concatenate([seen[:end], np.zeros(n, dtype=bool), seen[end:]])
        layout, at = layout_of(shape, model.fit.column_modes, seen), slice(end, end + n)
        return moments_beside(belief.mean[:, : sum(model.fit.shape)], parts, model.fit.aligned, layout, at)
    if isinstance(model.fit.posterior, PointEstimate):
        return parts[0], np.zeros((n, R, R))
    mean, cov = moments(parts[0], executor)
    return mean, unpack(cov, R)


def with_rows(model: FittedModel, rows: NewRows) -> FitResult:
    """The result with these rows too; what it says of the others is the same to the last bit."""
    if not isinstance(rows, NewRows):
        raise TypeError(f"rows must be what transform returns; got {type(rows).__name__}.")
    fit = model.fit
    own = _digest(fit.posterior)
    before = fit.grown_from[1:] if fit.grown_from[:1] == (own,) else ()
    if rows.model not in (own, *before):
        fail_value(
            f"rows must be what transform of this model gives; these {len(rows)} are of another model, or of this "
            "one before it was fitted again; transform their entries with it."
        )
    known, n = fit.labels[rows.mode], fit.shape[rows.mode]
    if known is None and n != rows.first:
        fail_value(
            f"the new rows of mode {rows.name!r} must follow the {n} known ones; these follow {rows.first}; "
            "transform them with this model."
        )
    if known is not None and (rows.labels is None or (known.rows(rows.labels.index, unknown="ignore") >= 0).any()):
        fail_value(f"the model knows some of the new rows of mode {rows.name!r} already; transform them with it.")
    cells, sampled = fit.cells, fit.sampled
    if cells is not None:
        cells = np.unique(np.concatenate([cells, _moved(rows.cells, rows.mode, n - rows.first)]), axis=0)
    if rows.sampled is not None:
        zeros = _moved(rows.sampled, rows.mode, n - rows.first)
        sampled = zeros if sampled is None else np.concatenate([sampled, zeros])
    labels = list(fit.labels)
    if rows.labels is not None and known is not None:
        labels[rows.mode] = known.extended(rows.labels.index)
    grown = fit.with_posterior(
        with_new_rows(fit.posterior, rows.mode, rows.parts),
        labels=tuple(labels),
        cells=cells,
        sampled=sampled,
        kept=None,
        stream=None,
    )
    return grown.changed(grown_from=(_digest(grown.posterior), own, *before))


def _moved(cells: np.ndarray, k: int, by: int) -> np.ndarray:
    """Cells whose rows in mode k come so much later."""
    cells = cells.copy()
    cells[:, k] += by
    return cells


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
