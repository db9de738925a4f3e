"""Several inference methods on the same held-out entries: accuracy, calibration, time and memory side by side.

What is held out, and how well a model predicts it, is told here for every family.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import indexable

from tensorcep import metrics
from tensorcep.core.checks import check_choice, check_fraction, check_not_empty, fail_value
from tensorcep.core.cluster import Cluster
from tensorcep.core.fitted import Fitted, Predictive
from tensorcep.core.settings import Settings
from tensorcep.cp.estimators.base import BaseCP, spec_of
from tensorcep.cp.estimators.regressor import CPRegressor
from tensorcep.cp.inputs.side_information import is_local, knows_rows
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.auto import choose
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_views
from tensorcep.factor_models.base import FactorModel
from tensorcep.factor_models.results import observed_cells
from tensorcep.factor_models.settings import SETTINGS as FACTOR_METHODS
from tensorcep.gaussian_process.base import BaseGaussianProcess
from tensorcep.linear.glm import FeatureClassifier

LEVELS = (0.5, 0.8, 0.9, 0.95)  # central intervals whose coverage gives the calibration error of real values and counts
# Entries and sweeps of the fit that compiles, or loads, the kernels of a method before it is timed; points of one.
WARM_UP_ENTRIES, WARM_UP_SWEEPS, TRIAL = 64, 2, 16
LEAST_OF_CLASSES = 1e-300  # probabilities of classes of points are kept so far from 0
MEGABYTE = 1e6

Methods: TypeAlias = "Iterable[str | Settings] | None"
Chosen: TypeAlias = "dict[str, str | Settings | None]"


def compare(
    tensor_train: Any,
    tensor_test: Any,
    methods: Iterable[str | Settings] | None = None,
    *,
    estimator: Any = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    coverage: float = 0.9,
    client: Any = None,
) -> pd.DataFrame:
    """Fit the same model by several methods and score each on held-out entries.

    Parameters
    ----------
    tensor_train, tensor_test : SparseTensor, or list of them for a factor model of several matrices
        Entries to fit, and entries to predict; the two should have none in common. For a model of points with features
        pairs (X, y).
    methods : iterable of str or records of settings, optional
        Names, or records from `tensorcep.methods`, whose text is then their name here: ``["vmp", CEP(order=2)]``; by
        default every method that fits the estimator, with its default settings.
    estimator : CP estimator, factor model, Bayesian GLM, Bayes point machine or Gaussian process, optional
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

        For factor models intervals are those of real values, and scores are means over all held-out cells. Of more than
        two classes the calibration is that of the most probable one.

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> from tensorcep import CPRegressor, compare, datasets
    >>> train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
    >>> table = compare(train, test, ["cep", "vmp"], estimator=CPRegressor(rank=3, random_state=0))
    >>> list(table.index)
    ['cep', 'vmp']
    """
    estimator = CPRegressor(random_state=0) if estimator is None else estimator
    data = held_out(estimator, tensor_train, tensor_test)
    check_fraction("coverage", coverage)
    chosen, params = data.methods(estimator, methods), params or {}
    for name in () if isinstance(data, Matrices) else params:
        check_choice("a name in params", name, chosen)
    models = {name: with_method(estimator, own).set_params(**params.get(name, {})) for name, own in chosen.items()}
    if client is not None and isinstance(data, HeldOutPoints):
        fail_value(f"client= is for models of tensors and matrices; {type(estimator).__name__} is fitted here.")
    cluster = None if client is None else Cluster(client)
    held: Any = data if cluster is None else cluster.put(data)
    calls = [(model, held, coverage) for model in models.values()]
    if cluster is None:
        lines = [measure(*call) for call in calls]
    else:
        lines = [told.value for told in cluster.run(measure, calls, "compare", patient=True)]
    return pd.DataFrame(lines, index=pd.Index(list(models), name="method"))


def measure(model: Any, data: HeldOut, coverage: float) -> dict[str, float]:
    """A line of the table: the scores of one model, and the sweeps, seconds and memory of its fit."""
    data.warm_up(model)
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        begin = time.perf_counter()
        data.fit(model)
        seconds = time.perf_counter() - begin
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    cost = {"sweeps": model.n_iter_, "seconds": seconds, "peak_mb": (peak - before) / MEGABYTE}
    return {**data.scores(model, coverage), **cost}


def held_out(estimator: Any, train: Any, test: Any) -> HeldOut:
    """What is fitted to and what is predicted, as the family of the model has it; refused if that is something else."""
    if isinstance(estimator, (FeatureClassifier, BaseGaussianProcess)):
        return HeldOutPoints(_pair(train, "tensor_train"), _pair(test, "tensor_test"))
    if isinstance(estimator, FactorModel):
        return Matrices(cells_of_matrices(estimator, train), cells_of_matrices(estimator, test))
    for name, tensor in (("tensor_train", train), ("tensor_test", test)):
        if not isinstance(tensor, SparseTensor):
            raise TypeError(f"{name} must be a SparseTensor; got {type(tensor).__name__}.")
        check_not_empty(tensor.nnz, name)
    if not isinstance(estimator, BaseCP):
        raise TypeError(f"estimator must be one of tensorcep's; got {type(estimator).__name__}.")
    return Tensors(train, test)


def _pair(given: Any, name: str) -> tuple[Any, np.ndarray]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"{name} must be a pair (X, y) for this estimator; got {type(given).__name__}.")
    X, y = indexable(*given)
    return X, np.asarray(y)


def with_method(estimator: Any, method: str | Settings | None) -> Any:
    """A clone with this method, or its own."""
    return clone(estimator) if method is None else clone(estimator).set_params(method=method)


def _named(given: Iterable[str | Settings], what: str, known: Collection[str], once: bool = True) -> Chosen:
    """The methods by the names they get; refused where they are not known, or none, or where one comes twice."""
    listed = [given] if isinstance(given, (str, Settings)) else list(given)
    if once and (not listed or len({str(item) for item in listed}) < len(listed)):
        fail_value(f"methods must hold at least one name, each once; got {listed}.")
    for item in listed:
        check_choice(what, item.name if isinstance(item, Settings) else item, known)
    return {str(item): item for item in listed}


def _scores_of_labels(y: np.ndarray, p: np.ndarray, log_score: float) -> dict[str, float]:
    """What a line of the table says of labels 0 and 1 and their probabilities."""
    auc = metrics.auc(y, p) if 0.0 < y.mean() < 1.0 else np.nan
    error = metrics.expected_calibration_error(y, p)
    return {"auc": auc, "log_score": log_score, "coverage": np.nan, "calibration_error": error}


def _coverage_of(covered: Mapping[float, float], coverage: float) -> dict[str, float]:
    """What it says of intervals, by the shares that those of each level hold; nan where there are none."""
    if not covered:
        return {"coverage": np.nan, "calibration_error": np.nan}
    error = float(np.mean([abs(covered[level] - level) for level in LEVELS]))
    return {"coverage": covered[coverage], "calibration_error": error}


def predictions_of(model: Fitted, held: Sequence[SparseTensor]) -> list[tuple[str, np.ndarray, Predictive]]:
    """Of each part of a model the kind of its entries, those held out, and the laws that the model has for them."""
    found = []
    for m, (part, one) in enumerate(zip(model.parts_, held, strict=True)):
        limits = part.lower_limit
        y = one.values if limits is None else np.maximum(one.values, limits[one.coords[:, 1]])
        found.append((part.kind, y, model.predictive(one, m)))
    return found


def _scores_of_parts(model: Fitted, held: Sequence[SparseTensor], coverage: float) -> dict[str, float]:
    parts = predictions_of(model, held)
    y, mean = np.concatenate([own for _, own, _ in parts]), np.concatenate([law.mean for _, _, law in parts])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about rows without entries, which the line above gave
        log_score = float(np.concatenate([law.log_score(own) for _, own, law in parts]).mean())
        if all(kind == "labels" for kind, _, _ in parts):
            return _scores_of_labels(y, mean, log_score)
        with_intervals = [(own, law) for _, own, law in parts if law.has_interval]
        levels = {*LEVELS, coverage} if with_intervals else set()
        inside = {c: np.concatenate([law.holds(own, c) for own, law in with_intervals]) for c in levels}
    covered = {c: float(np.mean(held)) for c, held in inside.items()}
    return {"rmse": metrics.rmse(y, mean), "log_score": log_score, **_coverage_of(covered, coverage)}


class Tensors(NamedTuple):
    """Entries of a CP model."""

    train: SparseTensor
    test: SparseTensor

    def methods(self, estimator: BaseCP, given: Methods) -> Chosen:
        """The methods to compare, by the names they get; by default all that can do what the parameters ask for."""
        likelihoods = spec_of(estimator).target.likelihoods()
        fitting = [name for name, method in METHODS.items() if not all(map(method.lacks, likelihoods))]
        if given is not None:
            return _named(given, f"a method for the likelihood {likelihoods[0].name!r}", fitting)
        able: Chosen = {}
        for name in fitting:
            chosen = choose(spec_of(with_method(estimator, name)), self.train.nnz, self.train.shape, streaming=False)
            can, prior = METHODS[chosen.method].capabilities, estimator.prior
            learns = can.learns_prior or not chosen.learns_prior
            if learns and (can.side_information or knows_rows(prior) is None) and (can.local or not is_local(prior)):
                able[name] = name
        return able

    def warm_up(self, model: Any) -> None:
        """Let every kernel of the fit compile, or load, on a few entries, whatever comes of their fit."""
        few = np.arange(self.train.nnz) < WARM_UP_ENTRIES
        small = clone(model).set_params(verbose=0, callbacks=lambda sweep, *_: sweep >= WARM_UP_SWEEPS)
        with warnings.catch_warnings(), contextlib.suppress(FloatingPointError):
            warnings.simplefilter("ignore")
            small.fit(self.train.select(few))

    def fit(self, model: Any) -> Any:
        return model.fit(self.train)

    def scores(self, model: Any, coverage: float) -> dict[str, float]:
        """Accuracy, log score, coverage and calibration error of a fitted model's predictions."""
        return _scores_of_parts(model, [self.test], coverage)


class MatrixCells(NamedTuple):
    """The observed cells of the matrices of a factor model, and the names of its views."""

    matrices: list[SparseTensor]
    names: list[Any] | None
    alone: bool

    def given(self, matrices: list[SparseTensor]) -> Any:
        """What the estimator is fitted to."""
        if self.alone:
            return matrices[0]
        return matrices if self.names is None else dict(zip(self.names, matrices, strict=True))


def cells_of_matrices(estimator: FactorModel, X: Any) -> MatrixCells:
    """The observed cells of what a factor model is fitted to, refused if cells that are not stored are zeros."""
    if estimator.absent != "missing":
        fail_value(f"absent must be 'missing', so that cells can be held out; got {estimator.absent!r}.")
    X = as_views(X)
    alone = hasattr(estimator, "init")  # of one matrix
    names = list(X) if isinstance(X, Mapping) else None
    matrices = [X] if alone else list(X.values()) if isinstance(X, Mapping) else list(X)
    check_not_empty(len(matrices), "X")
    return MatrixCells([observed_cells(one) for one in matrices], names, alone)


class Matrices(NamedTuple):
    """Cells of the matrices of a factor model; its methods are those of `Tensors`."""

    train: MatrixCells
    test: MatrixCells

    def methods(self, _: FactorModel, given: Methods) -> Chosen:
        return _named(FACTOR_METHODS if given is None else given, "a method", FACTOR_METHODS, once=False)

    def warm_up(self, model: Any) -> None:
        """Let the kernels of a fit compile; samplers have the sweeps that their burn-in asks for."""
        if str(getattr(model.method, "name", model.method)) != "gibbs":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.fit(clone(model).set_params(max_iter=2, verbose=0))

    def fit(self, model: Any) -> Any:
        return model.fit(self.train.given(self.train.matrices))

    def scores(self, model: Any, coverage: float) -> dict[str, float]:
        return _scores_of_parts(model, self.test.matrices, coverage)


class HeldOutPoints(NamedTuple):
    """Features (n, d) and targets (n,) of models of points; its methods are those of `Tensors`."""

    train: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]

    def methods(self, estimator: Any, given: Methods) -> Chosen:
        """The methods to compare, by the names they get; by default all that fit the likelihood."""
        if not hasattr(estimator, "engines"):
            if given is not None:
                fail_value(f"{type(estimator).__name__} has one method, EP; leave methods out.")
            return {"ep": None}
        records = estimator.engines.records
        if given is not None:
            return _named(given, "a method", records)
        able: Chosen = {}
        for name in records:
            with contextlib.suppress(ValueError):  # its points are allowed: the method lacks what the likelihood needs
                self.warm_up(with_method(estimator, name))
                able[name] = name
        return able

    def warm_up(self, model: Any) -> None:
        """Fit a few made-up points, so that kernels compile; refused where the method does not fit the likelihood."""
        rng, (X, y) = np.random.default_rng(0), self.train
        targets = np.unique(y)[:2] if is_classifier(model) else np.array([0, 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(model).fit(rng.standard_normal((TRIAL, np.shape(X)[1])), np.resize(targets, TRIAL))

    def fit(self, model: Any) -> Any:
        return model.fit(*self.train)

    def scores(self, model: Any, coverage: float) -> dict[str, float]:
        X, given = self.test
        if not is_classifier(model):
            covered = {c: metrics.coverage(given, *model.predict_interval(X, c).T) for c in {*LEVELS, coverage}}
            rmse, log_score = metrics.rmse(given, model.predict(X)), float(np.mean(model.log_score(X, given)))
            return {"rmse": rmse, "log_score": log_score, **_coverage_of(covered, coverage)}
        p, classes = model.predict_proba(X), np.asarray(model.classes_)
        unknown = np.setdiff1d(given, classes)
        if len(unknown):
            fail_value(f"tensor_test must have labels of the training points; {unknown[0].item()!r} is none.")
        place = np.searchsorted(classes, given)
        log_score = float(np.mean(np.log(np.maximum(p[np.arange(len(place)), place], LEAST_OF_CLASSES))))
        if len(classes) > 2:  # of the most probable class: whether it is right, by its probability
            right = (p.argmax(axis=1) == place).astype(float)
            return {**_scores_of_labels(right, p.max(axis=1), log_score), "auc": np.nan}
        return _scores_of_labels((place == 1).astype(float), p[:, 1], log_score)


HeldOut: TypeAlias = Tensors | Matrices | HeldOutPoints
