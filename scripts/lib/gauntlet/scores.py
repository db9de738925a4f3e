"""Scores of predictions, lower is better: RMSE of values, log loss of labels, minus the log score of counts.

Regret is how much worse the default is than the best setting: of values the share by which its RMSE is larger, of
labels and counts the difference of the log scores. Beside the constant model, which predicts the mean, the share of
ones, or a negative-binomial law by the moments of the training counts, it is a share of the constant's score.
"""

from __future__ import annotations

import numpy as np

from scripts.lib.gauntlet.record import Answer, Problem
from scripts.lib.gauntlet.tensors import count_log_mass
from tensorcep.metrics import expected_calibration_error, log_loss

METRIC = {"values": "rmse", "labels": "log loss", "counts": "minus log score"}
WITHIN = {"values": 0.03, "labels": 0.01, "counts": 0.01}
WORSE_THAN_CONSTANT = 0.01


def loss(observed: str, problem: Problem, prediction: np.ndarray) -> float:
    """The score of expected values, probabilities of a one, or log masses."""
    if observed == "values":
        return float(np.sqrt(np.mean(((problem.y - prediction) / problem.unit) ** 2)))
    if observed == "labels":
        return log_loss(problem.y, prediction, problem.weights)
    return float(-np.mean(prediction))


def constant(observed: str, problem: Problem) -> np.ndarray:
    """What the constant model predicts; of matrices, the mean of each column."""
    if isinstance(problem.train, list):
        means = [np.nanmean(x, axis=0) for x in problem.train]
        return np.array([means[m][j] for m, _, j in problem.coords])
    y = problem.train.values
    mean, variance = float(np.mean(y)), float(np.var(y))
    if observed == "counts":
        return count_log_mass(problem.y, mean, mean**2 / (variance - mean) if variance > mean else None)
    return np.full(len(problem.y), mean)


def regret(observed: str, score: float, best: float) -> float:
    """How much worse a score is than another one."""
    return score / best - 1.0 if observed == "values" else score - best


def above_constant(score: float, constant_score: float) -> float:
    """By which share a score is worse than that of the constant model; below 0 it is better."""
    return score / constant_score - 1.0


def scores(observed: str, problem: Problem, found: Answer) -> dict[str, float | None]:
    """All of one fit."""
    below, prediction = found.below, found.prediction
    finite = bool(np.all(np.isfinite(prediction)))
    labelled = observed == "labels" and finite
    truth = None if problem.truth is None else loss(observed, problem, problem.truth)
    return {
        "score": loss(observed, problem, prediction) if finite else float("inf"),
        "constant": loss(observed, problem, constant(observed, problem)),
        "truth": truth,
        "coverage_50": None if below is None else float(np.mean(np.abs(below - 0.5) <= 0.25)),
        "coverage_90": None if below is None else float(np.mean(np.abs(below - 0.5) <= 0.45)),
        "ece": expected_calibration_error(problem.y, prediction, problem.weights) if labelled else None,
    }
