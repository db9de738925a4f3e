"""Scores of predictions for held-out entries, their means and spreads, and one line of a table per model.

Test sets of labels hold another share of ones than the training entries, whose zeros were sampled. So "log_loss",
"brier" and "ece" (expected calibration error) weigh the test entries such that ones have their share of the training
entries; "log_loss_shifted" and "brier_shifted" count every test entry once, with the odds multiplied by the ratio of
the odds of a one in the test and in the training entries.

Real values: where values pile up at a limit, a closed interval that ends there holds more than its nominal share, and
the log score of a model that knows of the limit is partly of masses. So "coverage_90_pit" is the share of values whose
probability below them is within 0.45 of a half, ties broken at random, and "crps" compares models of any kind; both are
taken from draws of new observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from scripts.lib.common import Row, row
from scripts.lib.heldout import LABELLED, Split, aucs
from tensorcep.metrics import brier, coverage, expected_calibration_error, log_loss, rmse

# What tells one model from another in the rows of these scripts.
MODEL = ("data", "rank", "method", "fitted_by", "link", "prior", "interactions", "ensemble", "noise", "sweeps", "inner")
SUMMARIES = ("mean", "sd_folds", "sd_seeds")
# Metrics in the table, in this order; fit times and sweeps without their spread.
SHOWN = (
    *(
        "rmse",
        "crps",
        "log_score",
        "coverage_90",
        "coverage_90_pit",
        "auc",
        "log_loss",
        "brier",
        "ece",
        "log_loss_shifted",
    ),
    *("seconds_fit", "cpu_seconds_fit", "sweeps_done"),
)
TIMES = ("seconds_fit", "cpu_seconds_fit", "sweeps_done")
WARM_UP_SWEEPS = 20
DRAWS = 300  # of each held-out value


def train_share_weights(split: Split) -> np.ndarray:
    """Weights of the held-out entries with which ones have the share that they have in the training entries."""
    y, share = split.held.y, float(np.mean(split.train.y))
    return np.where(y > 0.0, share / np.mean(y), (1.0 - share) / (1.0 - np.mean(y)))


def shifted(p: np.ndarray, split: Split) -> np.ndarray:
    """Probabilities with the odds multiplied by those of a one in the held-out over those in the training entries."""
    trained, tested = float(np.mean(split.train.y)), float(np.mean(split.held.y))
    ratio = tested / (1.0 - tested) * (1.0 - trained) / trained
    return ratio * p / (1.0 - p + ratio * p)


def label_scores(split: Split, p: np.ndarray) -> dict[str, float]:
    """Scores of the probabilities of a one."""
    y, weights, moved = split.held.y, train_share_weights(split), shifted(p, split)
    ranked = aucs(split.tests, p)
    return {
        "auc": float(ranked.mean()),
        **({"auc_sd_sets": float(ranked.std(ddof=1))} if len(ranked) > 1 else {}),
        "log_loss": log_loss(y, p, weights),
        "brier": brier(y, p, weights),
        "ece": expected_calibration_error(y, p, weights),
        "log_loss_shifted": log_loss(y, moved),
        "brier_shifted": brier(y, moved),
    }


def value_scores(split: Split, mean: np.ndarray) -> dict[str, float]:
    """Scores of the predicted means of real values."""
    return {"rmse": rmse(split.held.y, mean)}


def probability_below(y: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Probability below each value among draws (S, n) of it, ties broken at random: uniform if calibrated.

    The rank of the value among S draws of the same distribution takes each of S + 1 places as often.
    """
    below, ties = (draws < y).sum(axis=0), (draws == y).sum(axis=0)
    return (below + np.random.default_rng(0).random(len(below)) * (ties + 1)) / (len(draws) + 1)


def draw_scores(split: Split, draws: np.ndarray, below: np.ndarray) -> dict[str, float]:
    """Coverage, and the continuous ranked probability score without the bias of finitely many draws (S, n).

    Source: Gneiting and Raftery (2007), Strictly proper scoring rules, eq. 21.
    """
    n = len(draws)
    steps = (2.0 * np.arange(1, n + 1) - n - 1.0)[:, None]
    apart = 2.0 * (steps * np.sort(draws, axis=0)).sum(axis=0) / (n * (n - 1))  # mean distance between two draws
    crps = np.abs(draws - split.held.y).mean(axis=0) - 0.5 * apart
    return {"coverage_90_pit": float(np.mean(np.abs(below - 0.5) <= 0.45)), "crps": float(crps.mean())}


def warm_up(model: Any, split: Split) -> None:
    """Fit 200 entries, so that what the timed fit runs is compiled."""
    coords, y = split.train
    some = np.linspace(0, len(y) - 1, 200).astype(int)
    small = np.stack([np.unique(column, return_inverse=True)[1] for column in coords[some].T], axis=1)
    clone(model).set_params(shape=None, max_iter=WARM_UP_SWEEPS).fit(small, y[some])


def model_scores(model: Any, split: Split) -> tuple[dict[str, float], tuple[np.ndarray, ...] | None]:
    """Scores of a fitted model, and what its curve is drawn from.

    That is y, the probabilities of a one and the weights for labels, the probabilities below the held-out values for
    real values, and None where the model has no uncertainty.
    """
    held = split.held
    if split.data in LABELLED:
        p = model.predict_proba(held.coords)[:, 1]
        return label_scores(split, p), (held.y, p, train_share_weights(split))
    found = value_scores(split, model.predict(held.coords))
    found["log_score"] = float(np.mean(model.log_score(held.coords, held.y)))
    if not model.has_uncertainty():
        return found, None
    found["coverage_90"] = coverage(held.y, *model.predict_interval(held.coords, 0.9).T)
    draws = model.sample_y(held.coords, DRAWS, random_state=0)
    below = probability_below(held.y, draws)
    return found | draw_scores(split, draws, below), (below,)


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean of each metric over folds and seeds; sd over folds at the same seed, and over seeds in the same fold.

    Spreads are root mean squares: over seeds of the sd over folds, and the other way round.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        if item["value"] is not None and item.get("fold") not in SUMMARIES:
            groups.setdefault((*(item.get(name) for name in MODEL), item["metric"]), []).append(item)
    result = []
    for (*names, metric), items in groups.items():
        about = dict(zip(MODEL, names, strict=True))
        result.append(row(metric, np.mean([item["value"] for item in items]), **about, fold="mean", n=len(items)))
        for name, over, within in (("sd_folds", "fold", "seed"), ("sd_seeds", "seed", "fold")):
            sets: dict[Any, list[float]] = {}
            for item in items:
                sets.setdefault(item[within], []).append(item["value"])
            spreads = [np.var(values, ddof=1) for values in sets.values() if len(values) > 1]
            if spreads:
                n = len({item[over] for item in items})
                result.append(row(metric, np.sqrt(np.mean(spreads)), **about, fold=name, n=n))
    return result


def tables(summaries: Sequence[Row]) -> list[list[Row]]:
    """A table per data set, a line per model: means and their sd over folds, and the sd over seeds if there are any."""
    lines: dict[tuple[Any, ...], Row] = {}
    for item in summaries:
        line = lines.setdefault(tuple(item.get(name) for name in MODEL), {k: item[k] for k in MODEL if k in item})
        metric, value = item["metric"], item["value"]
        if item["fold"] == "mean":
            line[metric] = f"{value:.4g}" if metric in TIMES else f"{value:.4f}"
        elif item["fold"] == "sd_folds" and metric not in TIMES:
            line[metric] += f" ± {value:.4f}"
        elif item["fold"] == "sd_seeds" and metric in ("rmse", "auc"):
            line["sd_seeds"] = f"{value:.4f}"
    columns = (*MODEL, *SHOWN, "sd_seeds")
    shown = [{name: line[name] for name in columns if name in line} for line in lines.values()]
    return [[line for line in shown if line["data"] == data] for data in dict.fromkeys(x["data"] for x in shown)]
