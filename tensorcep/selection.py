"""Choosing a model of any family by held-out entries: how many components, and which method."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from tensorcep.core.checks import check_choice, check_fraction, check_int, fail_value
from tensorcep.core.cluster import cluster_of
from tensorcep.core.executor import n_threads
from tensorcep.core.settings import Settings
from tensorcep.factor_models.base import FactorModel
from tensorcep.factor_models.settings import SETTINGS as FACTOR_METHODS
from tensorcep.model_selection import compare as _cp_compare
from tensorcep.model_selection import select_rank as _cp_ranks
from tensorcep.model_selection.compare import compare_points, cost_of, takes_points
from tensorcep.model_selection.held_out import Cells, cells_of_matrices, log_scores, predicted, scores
from tensorcep.model_selection.select_rank import (
    RANKS,
    RULES,
    Folds,
    RankSelection,
    Search,
    folds_of,
    in_order,
    selected,
)


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
    return float(np.concatenate([log_scores(*predicted(model, m, one)) for m, one in enumerate(held)]).mean())


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
        "peak_mb"; see `tensorcep.model_selection.compare.compare`. For factor models intervals are those of real
        values, and scores are means over all held-out cells. Of more than two classes the calibration is that of the
        most probable one.

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
    parts = [predicted(model, m, one) for m, one in enumerate(held.matrices)]
    return {**scores(parts, coverage), "sweeps": model.n_iter_, **cost}


def _warm_up(model: Any, X: Any) -> None:
    """Let the kernels of a fit compile; samplers have the sweeps that their burn-in asks for."""
    if str(getattr(model.method, "name", model.method)) != "gibbs":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(model).set_params(max_iter=2, verbose=0).fit(X)
