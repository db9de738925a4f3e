"""Held-out cells of matrices: which there are, what a factor model says of them, and how well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlog1py, xlogy
from scipy.stats import nbinom, norm, poisson

from tensorcep import metrics
from tensorcep.core.checks import check_not_empty, fail_value
from tensorcep.entries.matrices import as_views
from tensorcep.entries.tensor import SparseTensor
from tensorcep.factor_models.base import FactorModel
from tensorcep.factor_models.entity_labels import observed_cells
from tensorcep.factor_models.predict import predict_cells
from tensorcep.model_selection.compare import LEVELS

# What matrices of labels are called.
LABELS = ("bernoulli", "probit")
# Probabilities of labels are kept so far from 0 and 1.
LEAST = 1e-12


class Cells(NamedTuple):
    """The observed cells of the matrices of a factor model, and the names of its views."""

    matrices: list[SparseTensor]
    names: list[Any] | None
    alone: bool

    def given(self, matrices: list[SparseTensor]) -> Any:
        """What the estimator is fitted to."""
        if self.alone:
            return matrices[0]
        return matrices if self.names is None else dict(zip(self.names, matrices, strict=True))


def cells_of_matrices(estimator: FactorModel, X: Any) -> Cells:
    """The observed cells of what a factor model is fitted to.

    Raises
    ------
    ValueError
        If cells that are not stored are zeros, or there is no matrix.
    """
    if estimator.absent != "missing":
        fail_value(f"absent must be 'missing', so that cells can be held out; got {estimator.absent!r}.")
    X = as_views(X)
    alone = hasattr(estimator, "init")  # of one matrix
    names = list(X) if isinstance(X, Mapping) else None
    matrices = [X] if alone else list(X.values()) if isinstance(X, Mapping) else list(X)
    check_not_empty(len(matrices), "X")
    return Cells([observed_cells(one) for one in matrices], names, alone)


class Predicted(NamedTuple):
    """Held-out values of one matrix, their predictive means and standard deviations, and their likelihood.

    With a lower limit `law` holds mean and standard deviation of what would be observed without it, and the limits.
    """

    likelihood: str
    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    law: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def predicted(model: Any, m: int, held: SparseTensor) -> Predicted:
    """What a factor model says of held-out cells of its matrix m."""
    mean, std = model.predict_cells(held.coords, m, return_std=True)
    link = model._links[m]
    if link.limit is None:
        return Predicted(link.likelihood, held.values, mean, std)
    limit = link.limit[held.coords[:, 1]]
    free, variance = predict_cells(model.posterior_, m, model._without_data(m)._replace(limit=None), held.coords)
    return Predicted(link.likelihood, np.maximum(held.values, limit), mean, std, (free, np.sqrt(variance), limit))


def log_scores(
    likelihood: str,
    y: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    law: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Log density or probability of each value; of counts, of the law with these moments."""
    if law is not None:
        free, sd, limit = law
        return np.where(y <= limit, norm.logcdf(limit, free, sd), norm.logpdf(y, free, sd))
    if likelihood == "gaussian":
        return np.asarray(norm.logpdf(y, mean, std))
    if likelihood in LABELS:
        p = np.clip(mean, LEAST, 1.0 - LEAST)
        return np.asarray(xlogy(y, p) + xlog1py(1.0 - y, -p))
    mean = np.maximum(mean, LEAST)
    more = np.maximum(std**2 - mean, 1e-9 * mean)
    r = mean**2 / more
    wide = more > 1e-6 * mean
    return np.where(wide, nbinom.logpmf(y, r, r / (r + mean)), poisson.logpmf(y, mean))


def _away(part: Predicted) -> np.ndarray:
    """How many standard deviations a central interval must reach to hold each value."""
    if part.law is None:
        return np.abs(part.y - part.mean) / part.std
    free, sd, limit = part.law
    return np.where(part.y <= limit, np.maximum(free - limit, 0.0), np.abs(part.y - free)) / sd


def scores(parts: list[Predicted], coverage: float) -> dict[str, float]:
    """A line of the table of `compare`."""
    y, mean = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "mean"))
    log_score = float(np.concatenate([log_scores(*part) for part in parts]).mean())
    if all(part.likelihood in LABELS for part in parts):
        both = 0.0 < y.mean() < 1.0
        error = metrics.expected_calibration_error(y, mean)
        found = {"auc": metrics.auc(y, mean) if both else np.nan, "log_score": log_score}
        return {**found, "coverage": np.nan, "calibration_error": error}
    found = {"rmse": metrics.rmse(y, mean), "log_score": log_score}
    real = [part for part in parts if part.likelihood == "gaussian"]
    if not real:
        return {**found, "coverage": np.nan, "calibration_error": np.nan}
    z = np.concatenate([_away(part) for part in real])
    covered = {level: float(np.mean(z <= norm.ppf(0.5 + 0.5 * level))) for level in {*LEVELS, coverage}}
    error = float(np.mean([abs(covered[level] - level) for level in LEVELS]))
    return {**found, "coverage": covered[coverage], "calibration_error": error}
