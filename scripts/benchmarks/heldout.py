"""Training entries and held-out ones of Alog, Enron and DBLP, scores of predictions for them, and tables of these.

Alog and Enron have five published folds. DBLP has one training set, the published ones and as many zeros drawn outside
the ones and all test sets (the published zeros are not available), and 50 test sets of 200 ones and 1,800 zeros.

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
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from scripts.benchmarks.common import Row, grouped, row
from tensorcep import datasets
from tensorcep.metrics import auc, brier, coverage, expected_calibration_error, log_loss, rmse

SHAPES = {"alog": datasets.ALOG_SHAPE, "enron": datasets.ENRON_SHAPE, "dblp": datasets.DBLP_SHAPE}
LABELLED = ("enron", "dblp")
ZEROS_SEED = 0  # of the zeros of DBLP and of their order: every fit sees the same entries


class Entries(NamedTuple):
    """Coordinates (N, K) counted from 0 and values (N,)."""

    coords: np.ndarray
    y: np.ndarray


class Split(NamedTuple):
    """Entries to fit and entries to score; a score that ranks entries is taken in each test set and averaged."""

    data: str
    fold: int
    shape: tuple[int, ...]
    train: Entries
    tests: list[Entries]

    @property
    def held(self) -> Entries:
        """The test entries of all sets, one after the other."""
        return Entries(np.concatenate([test.coords for test in self.tests]), np.concatenate([t.y for t in self.tests]))


def dblp_entries(seed: int, size: int | None = None) -> tuple[Entries, list[Entries]]:
    """Training entries of DBLP in random order, of which the first `size` are taken, and the test sets."""
    data = datasets.load_dblp()
    zeros = data.train.sample_zeros(data.train.nnz, exclude=data.tests, random_state=seed)
    coords = np.concatenate([data.train.coords, zeros.coords])
    y = np.concatenate([data.train.values, zeros.values])
    chosen = np.random.default_rng(seed).permutation(len(y))[:size]
    return Entries(coords[chosen], y[chosen]), [Entries(test.coords, test.values) for test in data.tests]


def aucs(tests: Sequence[Entries], score: np.ndarray) -> np.ndarray:
    """AUC in each test set, of scores of the entries of all sets."""
    parts = np.split(score, np.cumsum([len(test.y) for test in tests])[:-1])
    return np.array([auc(test.y, part) for test, part in zip(tests, parts, strict=True)])


def inner(split: Split, part: int = 5) -> Split:
    """Hold out one in `part` training entries instead of the test entries: settings are chosen on these."""
    coords, y = split.train
    shuffled = np.random.default_rng(split.fold).permutation(len(y))
    held, kept = shuffled[: len(y) // part], shuffled[len(y) // part :]
    return split._replace(train=Entries(coords[kept], y[kept]), tests=[Entries(coords[held], y[held])])


def splits(data: str, folds: Sequence[int], *, sets: int = 50, size: int | None = None) -> list[Split]:
    """The folds of a data set asked for (DBLP has one), each with the first `size` training entries.

    Test entries of Alog and Enron are those of the published files, which list some cells twice.
    """
    if data == "dblp":
        train, tests = dblp_entries(ZEROS_SEED, size)
        return [Split(data, 1, SHAPES[data], train, tests[:sets])]
    result = []
    for fold in folds:
        coords, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
        test = Entries(*datasets.published_entries(f"{data}/test-fold-{fold}.txt"))
        chosen = slice(None) if size is None else np.random.default_rng(fold).permutation(len(y))[:size]
        result.append(Split(data, fold, SHAPES[data], Entries(coords[chosen], y[chosen]), [test]))
    return result


# What tells one model from another in the rows of these scripts.
MODEL = ("data", "rank", "method", "fitted_by", "link", "prior", "interactions", "ensemble", "noise", "sweeps", "inner")
SUMMARIES = ("mean", "sd_folds", "sd_seeds")
# Metrics in the table, in this order; fit times and sweeps without their spread.
VALUE_METRICS = ("rmse", "crps", "log_score", "coverage_90", "coverage_90_pit")
LABEL_METRICS = ("auc", "log_loss", "brier", "ece", "log_loss_shifted")
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


def model_scores(model: Any, split: Split) -> dict[str, float]:
    held = split.held
    if split.data in LABELLED:
        return label_scores(split, model.predict_proba(held.coords)[:, 1])
    score = float(np.mean(model.log_score(held.coords, held.y)))
    found = {"rmse": rmse(held.y, model.predict(held.coords)), "log_score": score}
    if not model.has_uncertainty():
        return found
    found["coverage_90"] = coverage(held.y, *model.predict_interval(held.coords, 0.9).T)
    draws = model.sample_y(held.coords, DRAWS, random_state=0)
    return found | draw_scores(split, draws, probability_below(held.y, draws))


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean of each metric over folds and seeds; sd over folds at the same seed, and over seeds in the same fold.

    Spreads are root mean squares: over seeds of the sd over folds, and the other way round.
    """
    fits = (item for item in rows if item["value"] is not None and item.get("fold") not in SUMMARIES)
    result = []
    for (*names, metric), items in grouped(fits, (*MODEL, "metric")).items():
        about = dict(zip(MODEL, names, strict=True))
        result.append(row(metric, np.mean([item["value"] for item in items]), **about, fold="mean", n=len(items)))
        for name, over, within in (("sd_folds", "fold", "seed"), ("sd_seeds", "seed", "fold")):
            sets = [[item["value"] for item in some] for some in grouped(items, [within]).values()]
            spreads = [np.var(values, ddof=1) for values in sets if len(values) > 1]
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
    columns = (*MODEL, *VALUE_METRICS, *LABEL_METRICS, *TIMES, "sd_seeds")
    shown = [{name: line[name] for name in columns if name in line} for line in lines.values()]
    return [[line for line in shown if line["data"] == data] for data in dict.fromkeys(x["data"] for x in shown)]
