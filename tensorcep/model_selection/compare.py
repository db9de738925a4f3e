"""Several inference methods on the same held-out data: accuracy, calibration, time and memory side by side.

`compare` takes entries of tensors and CP estimators; `compare_points` points with features, for Bayesian GLMs, the
Bayes point machine, and Gaussian processes.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import indexable

from tensorcep import metrics
from tensorcep.core.checks import check_choice, check_fraction, check_not_empty, fail_value
from tensorcep.core.cluster import cluster_of
from tensorcep.core.settings import Settings
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.regressor import CPRegressor
from tensorcep.cp.inputs.side_information import is_local, knows_rows
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.auto import choose
from tensorcep.entries.tensor import SparseTensor
from tensorcep.gaussian_process.base import BaseGaussianProcess
from tensorcep.linear.base import FeatureClassifier

# Central intervals whose coverage gives the calibration error of real values and counts.
LEVELS = (0.5, 0.8, 0.9, 0.95)
# Entries and sweeps of the fit that compiles, or loads, the kernels of a method before it is timed.
WARM_UP_ENTRIES, WARM_UP_SWEEPS = 64, 2
MEGABYTE = 1e6


def compare(
    tensor_train: SparseTensor,
    tensor_test: SparseTensor,
    methods: Iterable[str | Settings] | None = None,
    *,
    estimator: BaseCP | None = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    coverage: float = 0.9,
    client: Any = None,
) -> pd.DataFrame:
    """Fit the same model by several methods and score each on held-out entries.

    Parameters
    ----------
    tensor_train, tensor_test : SparseTensor
        Entries to fit, and entries to predict; the two should have none in common.
    methods : iterable of str or records of settings, optional
        Names, or records from `tensorcep.methods`, whose text is then their name here: ``["vmp", CEP(order=2)]``; by
        default every method that fits the estimator's likelihood and prior, with its default settings.
    estimator : CPRegressor, CPClassifier, CPCountRegressor or CPOrdinalClassifier, optional
        The model and what all methods share: rank, priors, tolerance, seed. It is cloned, not fitted. What is "auto"
        may come to different models for different methods. Default: ``CPRegressor(random_state=0)``.
    params : mapping, optional
        Per method, parameters of the estimator for it alone, such as ``{"vmp": {"max_iter": 500}}``.
    coverage : float, default=0.9
        Of the central predictive intervals.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers fit the methods; scores are the same, seconds and memory are theirs (with one
        thread per worker).

    Returns
    -------
    DataFrame
        One line per method, in the order given. Columns:

        * "rmse", or "auc" for labels (nan when the test entries have one label only);
        * "log_score", the mean log predictive density or probability, higher is better (a point estimate is plugged
          in);
        * "coverage", the share of test values inside their interval, good when it equals `coverage` (nan for labels,
          and for a point estimate, which has no intervals);
        * "calibration_error": of labels the expected calibration error; otherwise the mean distance of the coverage of
          the 50, 80, 90 and 95 % intervals from those numbers (counts jump, so theirs cannot be 0);
        * "sweeps", and "seconds" of the fit once its kernels are compiled;
        * "peak_mb", the most memory, in units of 1e6 bytes, that Python and NumPy held during the fit beyond what they
          held before it.

    Raises
    ------
    TypeError
        If the tensors or the estimator are not of those types.
    ValueError
        If there is no such method, one is given twice, or it does not fit the likelihood.

    Examples
    --------
    >>> from tensorcep import CPRegressor, compare, datasets
    >>> train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
    >>> table = compare(train, test, ["cep", "vmp"], estimator=CPRegressor(rank=3, random_state=0))
    >>> list(table.index)
    ['cep', 'vmp']
    """
    for name, tensor in (("tensor_train", tensor_train), ("tensor_test", tensor_test)):
        if not isinstance(tensor, SparseTensor):
            raise TypeError(f"{name} must be a SparseTensor; got {type(tensor).__name__}.")
        check_not_empty(tensor.nnz, name)
    estimator = CPRegressor(random_state=0) if estimator is None else estimator
    if not isinstance(estimator, BaseCP):
        raise TypeError(f"estimator must be one of tensorcep's; got {type(estimator).__name__}.")
    check_fraction("coverage", coverage)
    chosen = _checked_methods(methods, estimator, tensor_train)
    params = {} if params is None else params
    for name in params:
        check_choice("a name in params", name, chosen)
    models = {
        name: clone(estimator).set_params(method=method).set_params(**params.get(name, {}))
        for name, method in chosen.items()
    }
    return table_of(models, _measured, (tensor_train, tensor_test), coverage, client)


def table_of(
    models: Mapping[str, Any],
    measured: Callable[[Any, Any, float], dict[str, float]],
    data: Any,
    coverage: float,
    client: Any,
) -> pd.DataFrame:
    """The table of these models, a line ``measured(model, data, coverage)`` each, by the workers of a client if any."""
    cluster = cluster_of(client)
    if cluster is None:
        lines = [measured(model, data, coverage) for model in models.values()]
    else:
        held = cluster.put(data)
        calls = [(model, held, coverage) for model in models.values()]
        lines = [told.value for told in cluster.run(measured, calls, "compare", patient=True)]
    return pd.DataFrame(lines, index=pd.Index(list(models), name="method"))


def _measured(model: Any, data: tuple[SparseTensor, SparseTensor], coverage: float) -> dict[str, float]:
    return measure(model, *data, coverage)


def _checked_methods(
    methods: Iterable[str | Settings] | None, estimator: BaseCP, train: SparseTensor
) -> dict[str, str | Settings]:
    """The methods to compare, by the names they get, each able to use the likelihood; by default all that can."""
    likelihoods = estimator._target().likelihoods()
    fitting = [name for name, method in METHODS.items() if not all(map(method.lacks, likelihoods))]
    if methods is None:
        return {name: name for name in fitting if _is_able(clone(estimator).set_params(method=name), train)}
    given = [methods] if isinstance(methods, (str, Settings)) else list(methods)
    if not given or len({str(item) for item in given}) < len(given):
        fail_value(f"methods must hold at least one name, each once; got {given}.")
    for item in given:
        name = item.name if isinstance(item, Settings) else item
        check_choice(f"a method for the likelihood {likelihoods[0].name!r}", name, fitting)
    return {str(item): item for item in given}


def _is_able(model: BaseCP, train: SparseTensor) -> bool:
    """Whether the method of the estimator can do what its other parameters ask for."""
    chosen = choose(model._spec(), train.nnz, train.shape, streaming=False)
    method = METHODS[chosen.method]
    learns = method.learns_prior or not chosen.learns_prior
    knows = method.takes_features or knows_rows(model.prior) is None
    return learns and knows and (method.takes_pairs or not is_local(model.prior))


def measure(model: Any, train: SparseTensor, test: SparseTensor, coverage: float) -> dict[str, float]:
    """Fit one estimator to `train` and score it on `test`: a line of the table of `compare`."""
    _warm_up(model, train)
    cost = cost_of(lambda: model.fit(train))
    return {**scores(model, test, coverage), "sweeps": model.n_iter_, **cost}


def cost_of(fit: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a fit, and the most memory that it held, in MB."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        begin = time.perf_counter()
        fit()
        seconds = time.perf_counter() - begin
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return {"seconds": seconds, "peak_mb": (peak - before) / MEGABYTE}


def _warm_up(model: Any, train: SparseTensor) -> None:
    """Let every kernel of the fit compile, or load from the cache, on a few entries, whatever comes of their fit."""
    few = np.arange(train.nnz) < WARM_UP_ENTRIES
    small = clone(model).set_params(verbose=0, callbacks=lambda sweep, *_: sweep >= WARM_UP_SWEEPS)
    with warnings.catch_warnings(), contextlib.suppress(FloatingPointError):
        warnings.simplefilter("ignore")
        small.fit(train.select(few))


def scores(model: Any, test: SparseTensor, coverage: float) -> dict[str, float]:
    """Accuracy, log score, coverage and calibration error of a fitted estimator's predictions of `test`."""
    y = test.values
    levels, point = hasattr(model, "expected_value"), not model.has_uncertainty()
    binary = hasattr(model, "predict_proba") and not levels
    mean = model.expected_value if levels else model.predict
    predicted = model.predict_proba(test)[:, 1] if binary else mean(test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about rows without entries, which the line above gave
        log_score = float(model.log_score(test, y).mean())
        if binary:
            both = 0.0 < y.mean() < 1.0
            return {
                "auc": metrics.auc(y, predicted) if both else np.nan,
                "log_score": log_score,
                "coverage": np.nan,
                "calibration_error": metrics.expected_calibration_error(y, predicted),
            }
        found = {"rmse": metrics.rmse(y, predicted), "log_score": log_score, "coverage": np.nan}
        if point:
            return {**found, "calibration_error": np.nan}
        covered = {c: metrics.coverage(y, *model.predict_interval(test, c).T) for c in {*LEVELS, coverage}}
    error = float(np.mean([abs(covered[level] - level) for level in LEVELS]))
    return {**found, "coverage": covered[coverage], "calibration_error": error}


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
