"""Learned priors and interactions on Alog and Enron: scores on the test folds, or on held-out training entries.

With --inner a fifth of every training fold is held out and scored instead of the test fold: settings are chosen that
way, so that no test entry takes part in a choice. Alog is scored by RMSE and by the coverage of 90 % intervals, Enron
by AUC and by the mean log loss.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from _common import Row, parser, report, row, say, words
from _published import SHAPES
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPClassifier, CPRegressor, datasets
from tensorcep.metrics import auc, rmse


def interactions(text: str) -> Any:
    """A word, or ranks such as main=1:pair=3:cp=3."""
    if "=" not in text:
        return text
    return {name: int(n) for name, n in (item.split("=") for item in text.split(":"))}


def scores(data: str, model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Scores of a fitted model on entries that it has not seen."""
    if data == "enron":
        return {"auc": auc(y, model.predict_proba(X)[:, 1]), "log_loss": float(-model.log_score(X, y).mean())}
    low, high = model.predict_interval(X).T
    return {"rmse": rmse(y, model.predict(X)), "coverage90": float(np.mean((low <= y) & (y <= high)))}


def measure(data: str, fold: int, rank: int, prior: str, parts: str, options: argparse.Namespace) -> list[Row]:
    """Fit one fold and score it."""
    X, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
    held_X, held_y = datasets.published_entries(f"{data}/test-fold-{fold}.txt")
    if options.inner:
        shuffled = np.random.default_rng(fold).permutation(len(y))
        held, kept = shuffled[: len(y) // 5], shuffled[len(y) // 5 :]
        held_X, held_y, X, y = X[held], y[held], X[kept], y[kept]
    model = (CPClassifier if data == "enron" else CPRegressor)(
        rank,
        prior=None if prior == "fixed" else prior,
        interactions=interactions(parts),
        shape=SHAPES[data],
        max_iter=options.sweeps,
        n_ensemble=options.ensemble,
        random_state=options.seed,
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    seconds = time.perf_counter() - begin
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*rows without training entries")
        found = scores(data, model, held_X, held_y)
    found |= {"sweeps": model.n_iter_, "skipped": float(model.trace_["skipped"].sum()), "seconds_fit": seconds}
    where: dict[str, Any] = {"data": data, "fold": fold, "rank": rank, "method": "cep"}
    where |= {"prior": prior, "interactions": parts, "ensemble": options.ensemble}
    return [row(name, value, **where) for name, value in found.items()]


def main() -> None:
    arguments = parser(__doc__, data="alog,enron", folds="1,2,3,4,5", ranks="8", sweeps=200, seed=0)
    arguments.add_argument("--priors", type=words("fixed", "learned", "ard"), default=["fixed", "learned"])
    arguments.add_argument("--interactions", type=words(), default=["cp"], help="words, or main=1:pair=3:cp=3")
    arguments.add_argument("--ensemble", type=int, default=1, help="fits that are mixed (default: 1)")
    arguments.add_argument("--inner", action="store_true", help="score held-out training entries")
    options = arguments.parse_args()
    rows: list[Row] = []
    for data in options.data:
        for rank in options.ranks:
            for prior in options.priors:
                for parts in options.interactions:
                    for fold in options.folds:
                        rows += measure(data, fold, rank, prior, parts, options)
                        say(f"{data} rank {rank} {prior} {parts} fold {fold}: {rows[-5]['value']:.4f}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
