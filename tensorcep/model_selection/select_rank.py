"""The number of components by the data: held-out log score over folds, and the smallest rank that is as good as any.

Ranks are scored on folds by threads of this process, or by the workers of a cluster (`scores_of`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, check_cv
from tqdm.auto import tqdm

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value, warn_user
from tensorcep.core.cluster import Cluster
from tensorcep.core.executor import n_threads
from tensorcep.cp.estimators.base import BaseCP, spec_of
from tensorcep.cp.fit.outcome import STOPPED
from tensorcep.cp.inputs.side_information import knows_rows
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.factor_models.base import FactorModel
from tensorcep.model_selection.compare import MatrixCells, cells_of_matrices, predictions_of

UNSEEN = "touch rows without training entries"

Folds = list[tuple[np.ndarray, np.ndarray]]
Data: TypeAlias = "EntryFolds | CellFolds"


def scores_of(
    data: Data, ranks: list[int], patience: int, n_workers: int, verbose: bool, cluster: Cluster | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean held-out log score (J, F) and seconds (J,) of the ranks, until `patience` in a row did not beat the best."""
    scores, seconds, n_folds = list[list[float]](), list[float](), len(data.folds)
    with (
        warnings.catch_warnings(record=True) as caught,
        ThreadPoolExecutor(n_workers) as pool,
        tqdm(total=len(ranks) * n_folds, desc="select rank", unit="fit", disable=not verbose) as bar,
    ):
        warnings.simplefilter("always")
        for rank, (found, spent) in zip(ranks, _scores_of_folds(data, ranks, patience, cluster, pool), strict=False):
            bar.update(n_folds)
            scores.append(found)
            seconds.append(spent)
            means = np.mean(scores, axis=1)
            best = int(np.argmax(means))
            bar.set_postfix(rank=rank, best=ranks[best], score=f"{means[best]:.4g}", refresh=False)
            if len(scores) - 1 - best >= patience:
                bar.total = bar.n
                break
    _tell(caught, len(scores), n_folds)
    return np.array(scores), np.array(seconds)


def _scores_of_folds(data: Data, ranks: list[int], patience: int, cluster: Cluster | None, pool: Any) -> Iterator[Any]:
    """Scores of the folds, and seconds, of one rank after the other."""
    F = len(data.folds)
    if cluster is None:
        for rank in ranks:
            begin = time.perf_counter()
            yield list(pool.map(partial(data.log_score, rank), range(F))), time.perf_counter() - begin
        return
    held, at_a_time = cluster.put(data), len(ranks) if patience >= len(ranks) else 1
    for first in range(0, len(ranks), at_a_time):  # all at a time where all of them will be tried
        some = ranks[first : first + at_a_time]
        calls = [(held, rank, fold) for rank in some for fold in range(F)]
        told = cluster.run(type(data).log_score, calls, "select-rank", patient=True)
        for j in range(len(some)):
            own = told[j * F : (j + 1) * F]
            yield [one.value for one in own], sum(one.seconds for one in own)


def _tell(caught: Sequence[warnings.WarningMessage], n_ranks: int, n_folds: int) -> None:
    """Sum up the warnings of all fits: convergence and unseen rows in a line each, any other sentence once."""
    slow = sum(STOPPED in str(item.message) for item in caught)
    if slow:
        text = f"{slow} of {n_ranks * n_folds} fits stopped before they converged; increase max_iter, or raise tol."
        warn_user(text, ConvergenceWarning)
    unseen = sum(UNSEEN in str(item.message) for item in caught)
    if unseen:
        text = f"{unseen // n_ranks} of {n_folds} folds hold out entries of rows without training entries there"
        warn_user(f"{text}; those rows are predicted from their prior.", UserWarning)
    # What else a fit says of its health, its score says too.
    for text, category in {str(item.message): item.category for item in caught}.items():
        if not issubclass(category, ConvergenceWarning) and UNSEEN not in text:
            warn_user(text, category)


RULES = ("one_standard_error", "best")
RANKS = (1, 2, 3, 4, 6, 8, 12, 16)


class RankSelection(NamedTuple):
    """What `select_rank` found.

    Attributes
    ----------
    rank : int
        The chosen rank.
    best_rank : int
        The rank with the highest mean score.
    ranks : (J,) int64
        The ranks that were tried, in increasing order.
    scores : (J, F) float64
        Mean held-out log score of each rank and fold; higher is better.
    frame : DataFrame
        A line per rank: "mean" and "standard_error" of the scores over folds, "loss" and "loss_error" (mean and
        standard error of the differences to the best rank, fold by fold), "seconds" of its fits, and the scores of
        the folds, "fold_0", "fold_1", ...
    estimator : CP estimator or factor model
        A clone of the one given, with the chosen rank, fitted to all entries.

    Examples
    --------
    >>> from tensorcep import CPRegressor, select_rank, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 2, 150, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(method="vmp", interactions="cp", random_state=0)
    >>> found = select_rank(model, tensor, ranks=[1, 2], cv=2, random_state=0)
    >>> found.rank, found.ranks.tolist()
    (2, [1, 2])
    """

    rank: int
    best_rank: int
    ranks: np.ndarray
    scores: np.ndarray
    frame: pd.DataFrame
    estimator: Any


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

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed, or other parameters fix the rank of the estimator.

    Warns
    -----
    One line tells how many fits did not converge, and one how many folds hold entries of rows that have none in the
    training part: such rows are predicted from their prior, as always.

    References
    ----------
    Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, sec. 7.10 (the one-standard-error rule, there
    with the standard error of the best score).

    Examples
    --------
    >>> from tensorcep import CPRegressor, select_rank, simulate_cp
    >>> tensor = simulate_cp((20, 20, 20), 2, 3000, noise_precision=10.0, latent_sd=1.0, random_state=0).tensor
    >>> select_rank(CPRegressor(method="vmp", random_state=0), tensor, ranks=[1, 2, 3], cv=3, random_state=0).rank
    2
    """
    of_matrices = isinstance(estimator, FactorModel)
    if not of_matrices and not isinstance(estimator, BaseCP):
        raise TypeError(f"estimator must be CPRegressor, CPClassifier or CPCountRegressor; got {estimator!r}.")
    if not of_matrices and isinstance(estimator.interactions, dict):
        fail_value("estimator.interactions must be a word, since a dict fixes the ranks that are to be chosen.")
    if not of_matrices and not isinstance(estimator.init, str):
        fail_value("estimator.init must be 'random' or 'prior', since arrays fix the rank that is to be chosen.")
    tried = sorted(check_int("a rank in ranks", rank) for rank in ([ranks] if isinstance(ranks, int) else ranks))
    if not tried or len(set(tried)) < len(tried):
        fail_value(f"ranks must hold at least one rank, each once; got {tried}.")
    check_choice("rule", rule, RULES)
    patience = len(tried) if patience is None else check_int("patience", patience)
    n_workers, split = n_threads(n_jobs), partial(folds_of, cv, random_state=random_state)
    data = CellFolds.of(estimator, X, split) if of_matrices else EntryFolds.of(estimator, X, y, split)
    cluster = None if client is None else Cluster(client)
    scores, seconds = scores_of(data, tried, patience, n_workers, bool(verbose), cluster)
    tried = tried[: len(scores)]
    (loss, error), means = losses(scores), scores.mean(axis=1)
    best = int(np.argmax(means))
    chosen = best if rule == "best" else int(np.argmax(loss <= error))
    name, given = ("n_components", (X,)) if of_matrices else ("rank", (X, y))
    model = clone(estimator).set_params(**{name: tried[chosen]}).fit(*given)
    errors = scores.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    columns = {"mean": means, "standard_error": errors, "loss": loss, "loss_error": error, "seconds": seconds}
    columns |= {f"fold_{f}": own for f, own in enumerate(scores.T)}
    frame = pd.DataFrame(columns, index=pd.Index(tried, name="rank"))
    return RankSelection(tried[chosen], tried[best], np.array(tried), scores, frame, model)


class EntryFolds(NamedTuple):
    """Folds of the entries of a CP model, which are coordinates alone where nothing is known of rows."""

    base: Any
    entries: Any
    values: np.ndarray
    folds: Folds

    @classmethod
    def of(cls, estimator: BaseCP, X: Any, y: Any, split: Callable[..., Folds]) -> EntryFolds:
        (coords, values, shape, labels), _ = spec_of(estimator).target.entries(X, y, estimator.shape)
        base = clone(estimator).set_params(shape=shape, verbose=0)
        if "zero_rate" in base.get_params():
            base.set_params(zero_rate=1.0)  # held-out zeros are sampled like the others, so no correction is due
        # what is known of rows goes by labels, which coordinates alone do not have
        entries = coords if knows_rows(estimator.prior) is None else SparseTensor(coords, values, shape, labels)
        return cls(base, entries, values, split(coords, values))

    def log_score(self, rank: int, fold: int) -> float:
        """Mean of the held-out entries, of a fit of this rank."""
        (kept, held), entries = self.folds[fold], self.entries
        with_labels = isinstance(entries, SparseTensor)
        some, rest = (entries.select(rows) if with_labels else entries[rows] for rows in (kept, held))
        model = clone(self.base).set_params(rank=rank).fit(some, None if with_labels else self.values[kept])
        return float(model.log_score(rest, self.values[held]).mean())


class CellFolds(NamedTuple):
    """Folds of the cells of matrices, which matrix each cell is of, and where the cells of each matrix begin."""

    base: Any
    cells: MatrixCells
    place: np.ndarray
    start: np.ndarray
    folds: Folds

    @classmethod
    def of(cls, estimator: FactorModel, X: Any, split: Callable[..., Folds]) -> CellFolds:
        cells = cells_of_matrices(estimator, X)
        place = np.concatenate([np.full(one.nnz, m) for m, one in enumerate(cells.matrices)])
        start = np.cumsum([0, *(one.nnz for one in cells.matrices)])
        return cls(clone(estimator).set_params(verbose=0), cells, place, start, split(place[:, None], place))

    def log_score(self, rank: int, fold: int) -> float:
        """Mean of the held-out cells, of a fit with so many components."""
        kept, held = (
            [one.select(rows[self.place[rows] == m] - self.start[m]) for m, one in enumerate(self.cells.matrices)]
            for rows in self.folds[fold]
        )
        model = clone(self.base).set_params(n_components=rank).fit(self.cells.given(kept))
        return float(np.concatenate([law.log_score(y) for _, y, law in predictions_of(model, held)]).mean())


def losses(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over folds of what each rank loses against the best one, (J,) each, of scores (J, F)."""
    apart = scores[np.argmax(scores.mean(axis=1))] - scores
    return apart.mean(axis=1), apart.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])


def folds_of(cv: Any, coords: np.ndarray, values: np.ndarray, random_state: Any) -> Folds:
    """Training and held-out positions of each fold, two folds at least."""
    if isinstance(cv, (int, np.integer)):
        n = check_int("cv", cv, 2, len(values))
        cv = KFold(n, shuffle=True, random_state=int(check_random_state(random_state).integers(2**31)))
    folds = [(np.asarray(kept), np.asarray(held)) for kept, held in check_cv(cv).split(coords, values)]
    if len(folds) < 2 or any(len(kept) == 0 or len(held) == 0 for kept, held in folds):
        fail_value(f"cv must give two folds or more, with entries to fit and to hold out in each; got {len(folds)}.")
    return folds
