"""Is forgetting equal to a fit without the entries, and what does it save? One user, and one row of the last mode.

A fit by ``CEP(keep_messages=True)`` of a fold's training entries forgets all entries of the row in the middle of a mode
(the rows of the mode in the order of their numbers of entries): of Alog a user and a resource, of Enron a sender and a
week. Beside it stand two fits of the entries that are left: one that begins as the first fit began, at random, and one
that begins at its factors (`warm_start`). "apart" is the largest difference of the means of the latent values of all
entries, and of their standard deviations, in units of their root mean square. CPU seconds are those of one thread.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say
from scripts.lib.heldout import LABELLED, SHAPES, Split, splits
from tensorcep import CEP, CPClassifier, CPRegressor, metrics


def new_model(options: argparse.Namespace, rank: int, data: str) -> Any:
    """One that keeps its messages, with the priors of the CEP paper and one start."""
    how: dict[str, Any] = {"interactions": "cp", "prior": "fixed", "tol": options.tol, "max_iter": options.sweeps}
    how |= {
        "method": CEP(keep_messages=True, n_starts=1, damping=options.damping),
        "random_state": options.seed,
        "n_jobs": 1,
    }
    how |= {"shape": SHAPES[data]}
    return CPClassifier(rank, link="probit", **how) if data in LABELLED else CPRegressor(rank, **how)


def middle_row(rows: np.ndarray) -> int:
    """The row whose number of entries is the median of those that have some."""
    found, counts = np.unique(rows, return_counts=True)
    return int(found[np.argsort(counts, kind="stable")[len(found) // 2]])


def seconds_of(work: Any) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def apart(model: Any, other: Any, coords: np.ndarray) -> tuple[float, float]:
    """How far means and standard deviations of the latent values of two models are from each other."""
    (mean, variance), (m, v) = model.predict_latent(coords), other.predict_latent(coords)
    sd, s = np.sqrt(variance), np.sqrt(v)
    return (
        float(np.abs(mean - m).max() / np.sqrt(np.mean(m**2))),
        float(np.abs(sd - s).max() / np.sqrt(np.mean(s**2))),
    )


def held_out_score(model: Any, split: Split, mode: int, at: int) -> float:
    """RMSE, or AUC, of the held-out entries that are not of the row."""
    coords, y = split.held
    left = coords[:, mode] != at
    if split.data in LABELLED:
        return metrics.auc(y[left], model.predict_proba(coords[left])[:, 1])
    return metrics.rmse(y[left], model.predict(coords[left]))


def measure(split: Split, rank: int, mode: int, options: argparse.Namespace) -> list[Row]:
    """The fit, what is forgotten, and the two fits beside it."""
    coords, y = split.train
    at = middle_row(coords[:, mode])
    left = coords[:, mode] != at
    rest = coords[left], y[left]
    first = new_model(options, rank, split.data)
    spent = {"fit of all entries": seconds_of(lambda: first.fit(coords, y))}
    anew, near = clone(first), copy.deepcopy(first)
    before = first.predict_latent(coords[left])[0]
    spent["forget"] = seconds_of(lambda: first.forget_entries(coords[~left]))
    spent["fit without them"] = seconds_of(lambda: anew.fit(*rest))
    spent["fit without them from the factors"] = seconds_of(lambda: near.fit(*rest, warm_start=True))
    how: dict[str, Any] = {"data": split.data, "fold": split.fold, "rank": rank, "method": "cep", "mode": mode}
    rows = [row("entries forgotten", int((~left).sum()), **how)]
    score = "AUC" if split.data in LABELLED else "RMSE"
    moved = np.abs(before - first.predict_latent(coords[left])[0]).max() / np.sqrt(np.mean(before**2))
    rows.append(row("means of the others moved by", float(moved), fit="forget", **how))
    for fit, model in {"forget": first, "fit without them": anew, "fit without them from the factors": near}.items():
        rows.append(row("CPU seconds", spent[fit], fit=fit, sweeps=int(model.n_iter_), **how))
        rows.append(row(f"{score} of held-out entries", held_out_score(model, split, mode, at), fit=fit, **how))
        if model is not first:
            for what, value in zip(("means", "sds"), apart(first, model, coords[left]), strict=True):
                rows.append(row(f"{what} apart from those after forgetting", value, fit=fit, **how))
    rows.append(row("CPU seconds", spent["fit of all entries"], fit="fit of all entries", **how))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data="alog,enron", folds="1", ranks="3", sweeps=5000, seed=0)
    p.add_argument("--entries", type=int, help="the first so many of a random order (default: all)")
    p.add_argument("--tol", type=float, default=1e-6, help="of all fits (default: %(default)s)")
    p.add_argument("--damping", type=float, default=0.5, help="of CEP (default: %(default)s)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for split in (split for data in options.data for split in splits(data, options.folds, size=options.entries)):
        for rank in options.ranks:
            for mode in (0, len(split.shape) - 1):
                with warnings.catch_warnings():  # of few sweeps, and of held-out rows without entries
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    warnings.simplefilter("ignore", UserWarning)
                    rows += measure(split, rank, mode, options)
                say(f"{split.data} fold {split.fold}, rank {rank}: mode {mode}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
