"""Choosing a model of any family by held-out entries: how many components, and which method."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlog1py, xlogy
from scipy.stats import nbinom, norm, poisson
from sklearn.base import clone

from tensorcep import metrics
from tensorcep.comparing import compare_points, takes_points
from tensorcep.core.checks import check_choice, check_fraction, check_int, check_not_empty, fail_value
from tensorcep.core.cluster import cluster_of
from tensorcep.core.executor import n_threads
from tensorcep.core.settings import Settings
from tensorcep.cp import compare as _cp_compare
from tensorcep.cp import select_rank as _cp_ranks
from tensorcep.cp.compare import LEVELS, cost_of
from tensorcep.cp.search import Folds, Search
from tensorcep.cp.select_rank import RANKS, RULES, RankSelection, folds_of, in_order, selected
from tensorcep.entries.matrices import as_views
from tensorcep.entries.tensor import SparseTensor
from tensorcep.factor_models.base import FactorModel
from tensorcep.factor_models.entity_labels import observed_cells
from tensorcep.factor_models.predict import predict_cells
from tensorcep.factor_models.settings import SETTINGS as FACTOR_METHODS

# What matrices of labels are called.
LABELS = ("bernoulli", "probit")
# Probabilities of labels are kept so far from 0 and 1.
LEAST = 1e-12


def select_rank(
    estimator: Any,
    X: Any,
    y: Any = None,
    ranks: Iterable[int] = RANKS,
    *,
    cv: Any = 5,
    rule: str = "one_standard_error",
    patience: int | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
    client: Any = None,
) -> RankSelection:
    """Choose the number of components by the log score of held-out entries, and fit the model with it to all of them.

    All ranks meet the same folds, and a rank is compared with the best one by the standard error of their difference
    over the folds. Training parts of folds overlap, so that it is rather too small: take the outcome as a sensible
    choice, not as a test.

    Parameters
    ----------
    estimator : CP estimator or factor model
        It is cloned, not fitted. Of CP models the rank, of factor models `n_components` is chosen.
    X : entries, or what a factor model is fitted to
        For a factor model the observed cells of its matrices are the entries.
    y : array-like of shape (N,), optional
        Values of the entries of a CP model; left out with a SparseTensor.
    ranks : iterable of int, default=(1, 2, 3, 4, 6, 8, 12, 16)
    cv : int >= 2 or scikit-learn splitter or iterable of (train, held-out) indices, default=5
        An integer is a shuffled `KFold` over the entries.
    rule : {"one_standard_error", "best"}, default="one_standard_error"
        The smallest rank whose mean loss against the best one is at most one standard error of that loss, or the best.
    patience : int, optional
        Stop when so many ranks in a row did not beat the best before them. By default every rank is tried.
    n_jobs : int, optional
        Folds that are fitted at the same time; -1 uses all processors. Nothing depends on it but the time.
    random_state : int, RandomState, Generator or None
        Shuffles the entries of an integer `cv`. The fits use the estimator's own.
    verbose : int, default=0
    client : distributed.Client, optional
        Of a Dask cluster, whose workers fit the folds; scores are the same.

    Returns
    -------
    RankSelection

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> from tensorcep import CPRegressor, select_rank, simulate_cp
    >>> tensor = simulate_cp((20, 20, 20), 2, 3000, noise_precision=10.0, latent_sd=1.0, random_state=0).tensor
    >>> select_rank(CPRegressor(method="vmp", random_state=0), tensor, ranks=[1, 2, 3], cv=3, random_state=0).rank
    2
    """
    if not isinstance(estimator, FactorModel):
        how: dict[str, Any] = {"cv": cv, "rule": rule, "patience": patience, "n_jobs": n_jobs, "verbose": verbose}
        return _cp_ranks.select_rank(estimator, X, y, ranks, random_state=random_state, client=client, **how)
    tried = in_order(ranks)
    patience = len(tried) if patience is None else check_int("patience", patience)
    word = check_choice("rule", rule, RULES)
    search = Search(tried, [], patience, n_threads(n_jobs), bool(verbose), word, cluster_of(client))
    return _select_components(estimator, X, search, cv, random_state)


def _select_components(estimator: FactorModel, X: Any, search: Search, cv: Any, random_state: Any) -> RankSelection:
    cells = cells_of_matrices(estimator, X)
    place = np.concatenate([np.full(one.nnz, m) for m, one in enumerate(cells.matrices)])
    start = np.cumsum([0, *(one.nnz for one in cells.matrices)])
    search = search._replace(folds=folds_of(cv, place[:, None], place, random_state))

    data = MatrixFolds(estimator, cells, place, start, search.folds)
    return selected(search, data, _fold_score, lambda rank: clone(estimator).set_params(n_components=rank).fit(X))


class MatrixFolds(NamedTuple):
    """What all fits to folds need: the cells, which matrix each is of, and where the cells of each matrix begin."""

    estimator: FactorModel
    cells: Cells
    place: np.ndarray
    start: np.ndarray
    folds: Folds


def _fold_score(data: MatrixFolds, rank: int, fold: int) -> float:
    """The log score of held-out cells of a fit with so many components."""
    cells, place, start = data.cells, data.place, data.start
    kept, held = (
        [one.select(rows[place[rows] == m] - start[m]) for m, one in enumerate(cells.matrices)]
        for rows in data.folds[fold]
    )
    model = clone(data.estimator).set_params(n_components=rank, verbose=0).fit(cells.given(kept))
    return float(np.concatenate([_log_scores(*_predicted(model, m, one)) for m, one in enumerate(held)]).mean())


def compare(
    tensor_train: Any,
    tensor_test: Any,
    methods: Iterable[str | Settings] | None = None,
    *,
    estimator: Any = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    coverage: float = 0.9,
    client: Any = None,
) -> pd.DataFrame:
    """Fit the same model by several methods and score each on held-out entries.

    Parameters
    ----------
    tensor_train, tensor_test : SparseTensor, or list of them for a factor model of several matrices
        Entries to fit, and entries to predict; the two should have none in common. For a model of points with features
        pairs (X, y).
    methods : iterable of str or records of settings, optional
        By default every method that fits the estimator.
    estimator : CP estimator, factor model, Bayesian GLM, Bayes point machine or Gaussian process, optional
        The model and what all methods share: rank, priors, tolerance, seed. Default: ``CPRegressor(random_state=0)``.
    params : mapping, optional
        Per method, parameters of the estimator for it alone, such as ``{"vmp": {"max_iter": 500}}``.
    coverage : float, default=0.9
        Of the central predictive intervals.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers fit the methods; scores are the same, seconds and memory are theirs (with one
        thread per worker).

    Returns
    -------
    DataFrame
        One line per method with "rmse" or "auc", "log_score", "coverage", "calibration_error", "sweeps", "seconds" and
        "peak_mb"; see `tensorcep.cp.compare.compare`. For factor models intervals are those of real values, and scores
        are means over all held-out cells. Of more than two classes the calibration is that of the most probable one.

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> from tensorcep import CPRegressor, compare, datasets
    >>> train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
    >>> table = compare(train, test, ["cep", "vmp"], estimator=CPRegressor(rank=3, random_state=0))
    >>> list(table.index)
    ['cep', 'vmp']
    """
    how: dict[str, Any] = {"params": params, "coverage": coverage}
    if takes_points(estimator):
        if client is not None:
            fail_value(f"client= is for models of tensors and matrices; {type(estimator).__name__} is fitted here.")
        return compare_points(tensor_train, tensor_test, methods, estimator=estimator, **how)
    how["client"] = client
    if not isinstance(estimator, FactorModel):
        return _cp_compare.compare(tensor_train, tensor_test, methods, estimator=estimator, **how)
    check_fraction("coverage", coverage)
    fitted, held = cells_of_matrices(estimator, tensor_train), cells_of_matrices(estimator, tensor_test)
    given = list(FACTOR_METHODS) if methods is None else [methods] if isinstance(methods, str) else list(methods)
    chosen = {str(item): item for item in given}
    for item in given:
        check_choice("a method", item.name if isinstance(item, Settings) else item, FACTOR_METHODS)
    models = {
        name: clone(estimator).set_params(method=method).set_params(**(params or {}).get(name, {}))
        for name, method in chosen.items()
    }
    return _cp_compare.table_of(models, _measured, (fitted, held), coverage, client)


def _measured(model: Any, cells: tuple[Cells, Cells], coverage: float) -> dict[str, float]:
    """A line of the table: the fit to the first cells, scored on the others."""
    fitted, held = cells
    X = fitted.given(fitted.matrices)
    _warm_up(model, X)
    cost = cost_of(partial(model.fit, X))
    parts = [_predicted(model, m, one) for m, one in enumerate(held.matrices)]
    return {**_scores(parts, coverage), "sweeps": model.n_iter_, **cost}


def _warm_up(model: Any, X: Any) -> None:
    """Let the kernels of a fit compile; samplers have the sweeps that their burn-in asks for."""
    if str(getattr(model.method, "name", model.method)) != "gibbs":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(model).set_params(max_iter=2, verbose=0).fit(X)


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


def _predicted(model: Any, m: int, held: SparseTensor) -> Predicted:
    mean, std = model.predict_cells(held.coords, m, return_std=True)
    link = model._links[m]
    if link.limit is None:
        return Predicted(link.likelihood, held.values, mean, std)
    limit = link.limit[held.coords[:, 1]]
    free, variance = predict_cells(model.posterior_, m, model._without_data(m)._replace(limit=None), held.coords)
    return Predicted(link.likelihood, np.maximum(held.values, limit), mean, std, (free, np.sqrt(variance), limit))


def _log_scores(
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


def _scores(parts: list[Predicted], coverage: float) -> dict[str, float]:
    """A line of the table of `compare`."""
    y, mean = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "mean"))
    log_score = float(np.concatenate([_log_scores(*part) for part in parts]).mean())
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
