"""Learned priors and interactions on Alog and Enron: scores on the test folds, or on held-out training entries.

With --inner a fifth of every training fold is held out and scored instead of the test fold: settings are chosen that
way, so that no test entry takes part in a choice. Alog is scored by RMSE, the mean log predictive density and the
coverage of 90 % intervals, Enron by AUC and by the mean log loss. Half of Alog's values are 0, the least one: with
--limits auto they are censored there.
"""

from __future__ import annotations

import argparse
import itertools
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
    covered = float(np.mean((low <= y) & (y <= high)))
    return {"rmse": rmse(y, model.predict(X)), "log_score": float(model.log_score(X, y).mean()), "coverage90": covered}


def measure(
    data: str, fold: int, rank: int, method: str, prior: str, parts: str, limit: str, options: argparse.Namespace
) -> list[Row]:
    """Fit one fold and score it."""
    X, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
    held_X, held_y = datasets.published_entries(f"{data}/test-fold-{fold}.txt")
    if options.inner:
        shuffled = np.random.default_rng(fold).permutation(len(y))
        held, kept = shuffled[: len(y) // 5], shuffled[len(y) // 5 :]
        held_X, held_y, X, y = X[held], y[held], X[kept], y[kept]
    special: dict[str, Any] = {} if data == "enron" else {"lower_limit": None if limit == "none" else limit}
    model = (CPClassifier if data == "enron" else CPRegressor)(
        rank,
        method=method,
        prior=None if prior == "fixed" else prior,
        interactions=interactions(parts),
        shape=SHAPES[data],
        max_iter=options.sweeps,
        random_state=options.seed,
        **special,
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
    where: dict[str, Any] = {"data": data, "fold": fold, "rank": rank, "method": method}
    return [row(name, value, **where, prior=prior, interactions=parts, limit=limit) for name, value in found.items()]


def main() -> None:
    arguments = parser(__doc__, data="alog,enron", folds="1,2,3,4,5", ranks="8", methods="cep", sweeps=200, seed=0)
    arguments.add_argument("--priors", type=words("fixed", "learned", "ard"), default=["fixed", "learned"])
    arguments.add_argument("--interactions", type=words(), default=["cp"], help="words, or main=1:pair=3:cp=3")
    arguments.add_argument("--limits", type=words("none", "auto"), default=["none"], help="of real values (none, auto)")
    arguments.add_argument("--inner", action="store_true", help="score held-out training entries")
    options = arguments.parse_args()
    rows: list[Row] = []
    settings = (options.ranks, options.methods, options.priors, options.interactions, options.limits)
    for data, *setting in itertools.product(options.data, *settings):
        for fold in options.folds:
            found = measure(data, fold, *setting, options)
            rows += found
            say(f"{data} {' '.join(map(str, setting))} fold {fold}: {found[0]['value']:.4f}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
