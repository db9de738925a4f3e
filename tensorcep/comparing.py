"""`compare` for models of points with features: Bayesian GLMs, the Bayes point machine, and Gaussian processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import indexable

from tensorcep import metrics
from tensorcep.core.checks import check_choice, check_fraction, fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.compare import LEVELS, cost_of
from tensorcep.gaussian_process.base import BaseGaussianProcess
from tensorcep.linear.base import FeatureClassifier

# Points of a fit that compiles kernels and tells whether a method fits a likelihood.
TRIAL = 16
# Probabilities are kept so far from 0.
LEAST = 1e-300


class PointsGiven(NamedTuple):
    """Features (n, d) and targets (n,)."""

    X: Any
    y: np.ndarray


def takes_points(estimator: Any) -> bool:
    """Whether a model is of points with features."""
    return isinstance(estimator, (FeatureClassifier, BaseGaussianProcess))


def compare_points(
    train: Any,
    test: Any,
    methods: Iterable[str | Settings] | None,
    *,
    estimator: Any,
    params: Mapping[str, Mapping[str, Any]] | None,
    coverage: float,
) -> pd.DataFrame:
    """A line per method, as `tensorcep.compare` says; train and test are pairs (X, y).

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed, or a method that is named does not fit the likelihood.
    """
    check_fraction("coverage", coverage)
    fitted, held = _pair(train, "tensor_train"), _pair(test, "tensor_test")
    chosen = _chosen(methods, estimator, fitted)
    for name in params or {}:
        check_choice("a name in params", name, chosen)
    lines = []
    for name, method in chosen.items():
        model = _with(estimator, method).set_params(**(params or {}).get(name, {}))
        if methods is not None:
            _try(model, fitted)
        cost = cost_of(partial(model.fit, fitted.X, fitted.y))
        lines.append({"method": name, **_scores(model, held, coverage), "sweeps": model.n_iter_, **cost})
    return pd.DataFrame(lines).set_index("method")


def _pair(given: Any, name: str) -> PointsGiven:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"{name} must be a pair (X, y) for this estimator; got {type(given).__name__}.")
    X, y = indexable(*given)
    return PointsGiven(X, np.asarray(y))


def _chosen(
    methods: Iterable[str | Settings] | None, estimator: Any, train: PointsGiven
) -> dict[str, str | Settings | None]:
    """The methods by the names that they get; by default all that fit the estimator's likelihood."""
    if not hasattr(estimator, "engines"):
        if methods is not None:
            fail_value(f"{type(estimator).__name__} has one method, EP; leave methods out.")
        return {"ep": None}
    records = estimator.engines.records
    if methods is None:
        return {name: name for name in records if _fits(_with(estimator, name), train)}
    given = [methods] if isinstance(methods, (str, Settings)) else list(methods)
    if not given or len({str(item) for item in given}) < len(given):
        fail_value(f"methods must hold at least one name, each once; got {given}.")
    for item in given:
        check_choice("a method", item.name if isinstance(item, Settings) else item, records)
    return {str(item): item for item in given}


def _with(estimator: Any, method: str | Settings | None) -> Any:
    return clone(estimator) if method is None else clone(estimator).set_params(method=method)


def _fits(model: Any, train: PointsGiven) -> bool:
    try:
        _try(model, train)
    except ValueError:  # of points that are always allowed: the method has not what the likelihood needs
        return False
    return True


def _try(model: Any, train: PointsGiven) -> None:
    """Fit a few made-up points, so that kernels are compiled; refused where the method does not fit the likelihood."""
    rng, d = np.random.default_rng(0), np.shape(train.X)[1]
    targets = np.unique(train.y)[:2] if is_classifier(model) else np.array([0, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clone(model).fit(rng.standard_normal((TRIAL, d)), np.resize(targets, TRIAL))


def _scores(model: Any, test: PointsGiven, coverage: float) -> dict[str, float]:
    """Accuracy, log score, coverage and calibration error of a fitted model's predictions."""
    if not is_classifier(model):
        covered = {c: metrics.coverage(test.y, *model.predict_interval(test.X, c).T) for c in {*LEVELS, coverage}}
        return {
            "rmse": metrics.rmse(test.y, model.predict(test.X)),
            "log_score": float(np.mean(model.log_score(test.X, test.y))),
            "coverage": covered[coverage],
            "calibration_error": float(np.mean([abs(covered[level] - level) for level in LEVELS])),
        }
    p, classes = model.predict_proba(test.X), np.asarray(model.classes_)
    unknown = np.setdiff1d(test.y, classes)
    if len(unknown):
        fail_value(f"tensor_test must have labels of the training points; {unknown[0].item()!r} is none.")
    place = np.searchsorted(classes, test.y)
    log_score = float(np.mean(np.log(np.maximum(p[np.arange(len(place)), place], LEAST))))
    if len(classes) > 2:  # of the most probable class: whether it is right, by its probability
        right = (p.argmax(axis=1) == place).astype(float)
        return _labels(np.nan, log_score, metrics.expected_calibration_error(right, p.max(axis=1)))
    one = (place == 1).astype(float)
    auc = metrics.auc(one, p[:, 1]) if 0.0 < one.mean() < 1.0 else np.nan
    return _labels(auc, log_score, metrics.expected_calibration_error(one, p[:, 1]))


def _labels(auc: float, log_score: float, error: float) -> dict[str, float]:
    return {"auc": auc, "log_score": log_score, "coverage": np.nan, "calibration_error": error}
