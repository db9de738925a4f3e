"""Scores of ranks on folds: by threads of this process, or by the workers of a cluster."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from tensorcep.core.checks import warn_user
from tensorcep.core.cluster import Cluster
from tensorcep.cp.estimators.fitted import STOPPED

UNSEEN = "touch rows without training entries"

Fold = tuple[np.ndarray, np.ndarray]
Folds = list[Fold]


class Search(NamedTuple):
    """Ranks to try on folds, and how: until so many in a row did not beat the best, by so many threads, by a rule."""

    ranks: list[int]
    folds: Folds
    patience: int
    n_workers: int
    verbose: bool
    rule: str
    cluster: Cluster | None = None


# ``score(data, rank, number of the fold)``: the log score of held-out entries.
Score = Callable[[Any, int, int], float]


def scores_of(search: Search, data: Any, score: Score) -> tuple[np.ndarray, np.ndarray]:
    """Mean held-out log score (J, F) and seconds (J,) of the ranks up to the one where patience ends."""
    ranks, folds = search.ranks, search.folds
    scores: list[list[float]] = []
    seconds: list[float] = []
    with (
        warnings.catch_warnings(record=True) as caught,
        ThreadPoolExecutor(search.n_workers) as pool,
        tqdm(total=len(ranks) * len(folds), desc="select rank", unit="fit", disable=not search.verbose) as bar,
    ):
        warnings.simplefilter("always")
        of_ranks = _on_workers(search, data, score) if search.cluster else _in_threads(search, data, score, pool)
        for rank, (found, spent) in zip(ranks, of_ranks, strict=False):
            bar.update(len(folds))
            scores.append(found)
            seconds.append(spent)
            means = np.mean(scores, axis=1)
            best = int(np.argmax(means))
            bar.set_postfix(rank=rank, best=ranks[best], score=f"{means[best]:.4g}", refresh=False)
            if len(scores) - 1 - best >= search.patience:
                bar.total = bar.n
                break
    _tell(caught, len(scores), len(folds))
    return np.array(scores), np.array(seconds)


def _in_threads(
    search: Search, data: Any, score: Score, pool: ThreadPoolExecutor
) -> Iterator[tuple[list[float], float]]:
    """Scores of the folds, and seconds, of one rank after the other."""
    for rank in search.ranks:
        begin = time.perf_counter()
        found = list(pool.map(partial(score, data, rank), range(len(search.folds))))
        yield found, time.perf_counter() - begin


def _on_workers(search: Search, data: Any, score: Score) -> Iterator[tuple[list[float], float]]:
    """The same by the workers of a cluster, all ranks at a time where all of them will be tried."""
    cluster: Any = search.cluster
    held, F = cluster.put(data), len(search.folds)
    at_a_time = len(search.ranks) if search.patience >= len(search.ranks) else 1
    for first in range(0, len(search.ranks), at_a_time):
        some = search.ranks[first : first + at_a_time]
        calls = [(held, rank, fold) for rank in some for fold in range(F)]
        told = cluster.run(score, calls, "select-rank", patient=True)
        for j in range(len(some)):
            own = told[j * F : (j + 1) * F]
            yield [one.value for one in own], sum(one.seconds for one in own)


def _tell(caught: Sequence[warnings.WarningMessage], n_ranks: int, n_folds: int) -> None:
    """Sum up the warnings of all fits: convergence and unseen rows in a line each, any other sentence once.

    What else a fit says of its health, its score says too.
    """
    slow = sum(STOPPED in str(item.message) for item in caught)
    if slow:
        text = f"{slow} of {n_ranks * n_folds} fits stopped before they converged; increase max_iter, or raise tol."
        warn_user(text, ConvergenceWarning)
    unseen = sum(UNSEEN in str(item.message) for item in caught)
    if unseen:
        text = f"{unseen // n_ranks} of {n_folds} folds hold out entries of rows without training entries there"
        warn_user(f"{text}; those rows are predicted from their prior.", UserWarning)
    rest = {
        str(item.message): item.category
        for item in caught
        if not issubclass(item.category, ConvergenceWarning) and UNSEEN not in str(item.message)
    }
    for text, category in rest.items():
        warn_user(text, category)
