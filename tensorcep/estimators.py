"""Estimators in the style of scikit-learn, and the way back from a file to one."""

from __future__ import annotations

import os
from typing import Any

from tensorcep.core.checks import fail_value
from tensorcep.core.files import archive_kind
from tensorcep.cp.estimators.classifier import CPClassifier
from tensorcep.cp.estimators.count import CPCountRegressor
from tensorcep.cp.estimators.regressor import CPRegressor
from tensorcep.cp.store import read_model
from tensorcep.factor_models.collective import CollectiveMatrixFactorization
from tensorcep.factor_models.group_factor import BayesianCCA, GroupFactorAnalysis
from tensorcep.factor_models.pca import BayesianFactorAnalysis, BayesianPCA
from tensorcep.factor_models.store import KIND as FACTOR_MODEL
from tensorcep.factor_models.store import read_relations
from tensorcep.linear.bayes_point import BayesPointMachine
from tensorcep.linear.regression import BayesianLogisticRegression, BayesianProbitRegression

__all__ = [
    "ESTIMATORS",
    "FACTOR_MODELS",
    "FEATURE_MODELS",
    "BayesPointMachine",
    "BayesianCCA",
    "BayesianFactorAnalysis",
    "BayesianLogisticRegression",
    "BayesianPCA",
    "BayesianProbitRegression",
    "CPClassifier",
    "CPCountRegressor",
    "CPRegressor",
    "CollectiveMatrixFactorization",
    "GroupFactorAnalysis",
    "load",
]

# By class name: the estimators of tensors, of matrices, and of feature vectors. `load` knows them all.
ESTIMATORS: dict[str, Any] = {cls.__name__: cls for cls in (CPRegressor, CPClassifier, CPCountRegressor)}
FACTOR_MODELS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (BayesianPCA, BayesianFactorAnalysis, CollectiveMatrixFactorization, BayesianCCA, GroupFactorAnalysis)
}
FEATURE_MODELS: dict[str, Any] = {
    cls.__name__: cls for cls in (BayesianLogisticRegression, BayesianProbitRegression, BayesPointMachine)
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted model that an estimator's `save` wrote. No code in the file is executed, nothing is refitted.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated, is not a tensorcep model, or is of a newer format version.
    """
    if archive_kind(path) == FACTOR_MODEL:
        class_name, params, fitted = read_relations(path)
        model = _made(path, class_name, params, FACTOR_MODELS)
        model._set_loaded(fitted)
        return model
    stored = read_model(path)
    fitted = stored.fitted
    model = _made(path, stored.class_name, stored.params, {**ESTIMATORS, **FEATURE_MODELS})
    finish = "_set_moments" if stored.class_name in ESTIMATORS else ""
    for name, value in fitted.items():
        setattr(model, name, value)
    if finish:
        getattr(model, finish)()
    return model


def _made(path: str | os.PathLike[str], class_name: str, params: dict[str, Any], known: dict[str, Any]) -> Any:
    """An unfitted estimator of this class and these parameters."""
    if class_name not in known:
        listed = ", ".join(known)
        fail_value(f"'{os.fspath(path)}' holds a {class_name!r}, which is not one of {listed}; update tensorcep.")
    odd = sorted(set(params) - set(known[class_name]._get_param_names()))
    if odd:
        fail_value(
            f"'{os.fspath(path)}' has a parameter {odd[0]!r} that this tensorcep does not know; update tensorcep."
        )
    return known[class_name](**params)
