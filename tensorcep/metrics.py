"""How good predictions and their uncertainty are: point errors, ranking, log scores, coverage and calibration.

Every function takes arrays of shape (N,) and an optional `weights` array (N,) of non-negative numbers, and returns a
float. Where a score exists in scikit-learn it is that one. "Lower is better" unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from sklearn import metrics as sk

from tensorcep.core import checks as _checks

Bins = Literal["uniform", "quantile"]
COVERAGE_LEVELS = (0.5, 0.8, 0.95)
LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


class ReliabilityCurve(NamedTuple):
    """Predicted against observed frequency, one value per bin that holds anything.

    Attributes
    ----------
    predicted : (B,) float64, mean predicted probability in the bin
    observed : (B,) float64, share of ones in the bin
    weight : (B,) float64, number of entries (or their total weight) in the bin

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.reliability_curve([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2).weight.tolist()
    [1.0, 2.0]
    """

    predicted: np.ndarray
    observed: np.ndarray
    weight: np.ndarray


def rmse(y: ArrayLike, prediction: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Root mean squared error.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    (y, prediction), weights = _inputs(weights, y=y, prediction=prediction)
    return float(sk.root_mean_squared_error(y, prediction, sample_weight=weights))


def mae(y: ArrayLike, prediction: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean absolute error.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    (y, prediction), weights = _inputs(weights, y=y, prediction=prediction)
    return float(sk.mean_absolute_error(y, prediction, sample_weight=weights))


def auc(y: ArrayLike, score: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Area under the ROC curve of any score that grows with the probability of a one; higher is better.

    Raises
    ------
    ValueError
        When `y` has values other than 0 and 1, or only one of them.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    (y, score), weights = _inputs(weights, y=y, score=score)
    _checks.check_both_classes(y)
    return float(sk.roc_auc_score(y, score, sample_weight=weights))


def average_precision(y: ArrayLike, score: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Average precision, the area under the step-wise precision-recall curve; higher is better.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 3)
    0.833
    """
    (y, score), weights = _inputs(weights, y=y, score=score)
    _checks.check_both_classes(y)
    return float(sk.average_precision_score(y, score, sample_weight=weights))


def accuracy(y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None, *, threshold: float = 0.5) -> float:
    """Share of labels that equal the one predicted by p > threshold; higher is better.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.accuracy([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    y, p, weights = _binary(y, p, weights)
    return float(sk.accuracy_score(y, p > threshold, sample_weight=weights))


def log_loss(y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean negative log probability of the labels; probabilities are kept a machine epsilon away from 0 and 1.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.log_loss([0, 1], [0.1, 0.8]), 3)
    0.164
    """
    y, p, weights = _binary(y, p, weights)
    return float(sk.log_loss(y, p, sample_weight=weights, labels=[0.0, 1.0]))


def brier(y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Brier score: mean squared difference between probability and label.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.brier([0, 1], [0.1, 0.8]), 3)
    0.025
    """
    y, p, weights = _binary(y, p, weights)
    return float(np.average((p - y) ** 2, weights=weights))


def reliability_curve(
    y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None, *, n_bins: int = 10, bins: Bins = "uniform"
) -> ReliabilityCurve:
    """Group predictions by probability and compare each group's mean with its share of ones.

    Parameters
    ----------
    y : (N,) labels 0 or 1
    p : (N,) probabilities of a one
    weights : (N,), optional
    n_bins : int
        Number of bins; empty ones are left out of the result.
    bins : {"uniform", "quantile"}
        Bins of equal width, or bins that hold about the same number of entries. A bin includes its lower edge.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> curve = metrics.reliability_curve([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2)
    >>> curve.observed.tolist()
    [0.0, 1.0]
    """
    y, p, weights = _binary(y, p, weights)
    _checks.check_int("n_bins", n_bins)
    _checks.check_choice("bins", bins, ("uniform", "quantile"))
    steps = np.linspace(0.0, 1.0, n_bins + 1)
    edges = steps if bins == "uniform" else np.unique(np.quantile(p, steps))
    index = np.searchsorted(edges[1:-1], p, side="right")
    size = np.ones_like(p) if weights is None else weights
    total, sum_p, sum_y = (np.bincount(index, weights=size * x) for x in (np.ones_like(p), p, y))
    held = total > 0
    return ReliabilityCurve(sum_p[held] / total[held], sum_y[held] / total[held], total[held])


def expected_calibration_error(
    y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None, *, n_bins: int = 10, bins: Bins = "uniform"
) -> float:
    """Mean over bins, by weight, of the gap between the mean probability and the share of ones.

    Parameters are those of `reliability_curve`.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.expected_calibration_error([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2), 3)
    0.167
    """
    curve = reliability_curve(y, p, weights, n_bins=n_bins, bins=bins)
    return float(np.average(np.abs(curve.predicted - curve.observed), weights=curve.weight))


def gaussian_log_score(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean log density of y under N(mean, sd^2); higher is better. `sd` > 0.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.gaussian_log_score([1.0, 2.0], [1.0, 2.5], [0.5, 0.5]), 3)
    -0.476
    """
    (y, mean, sd), weights = _inputs(weights, y=y, mean=mean, sd=sd)
    _checks.check_all("sd", sd, sd > 0.0, "be > 0")
    return float(np.average(-0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - LOG_SQRT_2PI, weights=weights))


def crps_gaussian(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score of N(mean, sd^2), in the unit of y. `sd` > 0.

    Source: Gneiting and Raftery (2007), Strictly proper scoring rules, sec. 4.2, with the sign that makes it a loss.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.crps_gaussian([1.0, 2.0], [1.0, 2.5], [0.5, 0.5]), 3)
    0.209
    """
    (y, mean, sd), weights = _inputs(weights, y=y, mean=mean, sd=sd)
    _checks.check_all("sd", sd, sd > 0.0, "be > 0")
    z = (y - mean) / sd
    phi = np.exp(-0.5 * z**2 - LOG_SQRT_2PI)
    score = sd * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * phi - 1.0 / np.sqrt(np.pi))
    return float(np.average(score, weights=weights))


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Share of entries with lower <= y <= upper; good when it equals the nominal level of the intervals.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.coverage([1.0, 2.0], [0.5, 2.5], [1.5, 3.5])
    0.5
    """
    (y, lower, upper), weights = _intervals(weights, y=y, lower=lower, upper=upper)
    return float(np.average((lower <= y) & (y <= upper), weights=weights))


def interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float, weights: ArrayLike | None = None
) -> float:
    """Mean interval score: the width, plus 2 / (1 - level) times the distance by which y falls outside.

    Source: Gneiting and Raftery (2007), eq. 43, with alpha = 1 - level.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.interval_score([1.0, 2.0], [0.5, 2.5], [1.5, 3.5], level=0.5)
    2.0
    """
    (y, lower, upper), weights = _intervals(weights, y=y, lower=lower, upper=upper)
    _checks.check_fraction("level", level)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return float(np.average(upper - lower + 2.0 / (1.0 - level) * outside, weights=weights))


def evaluate_regression(
    y: ArrayLike, mean: ArrayLike, sd: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, float]:
    """Score Gaussian predictions of real values.

    Returns
    -------
    dict
        "rmse", "mae", "log_likelihood" (mean log density per entry), "crps", and "coverage_50", "coverage_80",
        "coverage_95": the shares of entries inside the central intervals.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> round(metrics.evaluate_regression([1.0, 2.0], [1.0, 2.5], [0.5, 0.5])["rmse"], 3)
    0.354
    """
    (y, mean, sd), weights = _inputs(weights, y=y, mean=mean, sd=sd)
    result = {"rmse": rmse(y, mean, weights), "mae": mae(y, mean, weights)}
    result["log_likelihood"] = gaussian_log_score(y, mean, sd, weights)
    result["crps"] = crps_gaussian(y, mean, sd, weights)
    half = {level: ndtri(0.5 + 0.5 * level) * sd for level in COVERAGE_LEVELS}
    return result | _coverages(y, {level: (mean - h, mean + h) for level, h in half.items()}, weights)


def evaluate_binary(y: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None) -> dict[str, float]:
    """Score predicted probabilities of labels 0 and 1.

    Returns
    -------
    dict
        "auc", "average_precision" (both NaN when only one class is there), "log_loss", "brier", "accuracy" and
        "expected_calibration_error" (10 bins of equal width).

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.evaluate_binary([0, 1], [0.1, 0.8])["auc"]
    1.0
    """
    y, p, weights = _binary(y, p, weights)
    both = 0.0 < y.mean() < 1.0
    return {
        "auc": auc(y, p, weights) if both else np.nan,
        "average_precision": average_precision(y, p, weights) if both else np.nan,
        "log_loss": log_loss(y, p, weights),
        "brier": brier(y, p, weights),
        "accuracy": accuracy(y, p, weights),
        "expected_calibration_error": expected_calibration_error(y, p, weights),
    }


def evaluate_counts(
    y: ArrayLike,
    mean: ArrayLike,
    log_prob: ArrayLike,
    intervals: Mapping[float, tuple[ArrayLike, ArrayLike]],
    weights: ArrayLike | None = None,
) -> dict[str, float]:
    """Score predictions of counts.

    Parameters
    ----------
    y : (N,) counts
    mean : (N,) predictive mean
    log_prob : (N,) log predictive probability of y
    intervals : mapping
        Nominal level, such as 0.8, to the arrays (lower, upper) of central predictive intervals.

    Returns
    -------
    dict
        "rmse", "mae", "log_likelihood" (mean of log_prob) and one "coverage_LEVEL" per interval, LEVEL in per cent.

    Examples
    --------
    >>> from tensorcep import metrics
    >>> metrics.evaluate_counts([1, 4], [1.5, 3.0], [-1.0, -2.0], {0.8: ([0, 1], [3, 6])})["coverage_80"]
    1.0
    """
    (y, mean, log_prob), weights = _inputs(weights, y=y, mean=mean, log_prob=log_prob)
    result = {"rmse": rmse(y, mean, weights), "mae": mae(y, mean, weights)}
    result["log_likelihood"] = float(np.average(log_prob, weights=weights))
    return result | _coverages(y, intervals, weights)


def _coverages(y: np.ndarray, intervals: Mapping[float, tuple[Any, Any]], weights: Any) -> dict[str, float]:
    return {f"coverage_{100 * level:g}": coverage(y, *bounds, weights) for level, bounds in intervals.items()}


def _inputs(weights: ArrayLike | None, **arrays: ArrayLike) -> tuple[list[np.ndarray], np.ndarray | None]:
    if weights is None:
        return _checks.check_vectors(**arrays), None
    *rest, w = _checks.check_vectors(**arrays, weights=weights)
    return rest, _checks.check_weights("weights", w)


def _binary(y: ArrayLike, p: ArrayLike, weights: ArrayLike | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    (y, p), weights = _inputs(weights, y=y, p=p)
    _checks.check_zero_one("y", y)
    _checks.check_all("p", p, (p >= 0.0) & (p <= 1.0), "hold probabilities in [0, 1]")
    return y, p, weights


def _intervals(weights: ArrayLike | None, **arrays: ArrayLike) -> tuple[list[np.ndarray], np.ndarray | None]:
    (y, low, high), weights = _inputs(weights, **arrays)
    if (low > high).any():
        n = int(np.argmax(low > high))
        raise ValueError(f"lower must not exceed upper; got {low[n]:g} and {high[n]:g} at entry {n}.")
    return [y, low, high], weights


def __dir__() -> list[str]:
    """The scores, for completion in a shell."""
    return [name for name, item in globals().items() if name[0] != "_" and getattr(item, "__module__", "") == __name__]
