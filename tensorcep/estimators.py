"""Estimators in the style of scikit-learn, and the way back from a file to one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tensorcep.core.checks import fail_value
from tensorcep.core.store import StoredModel, complete, open_model
from tensorcep.core.store import read_attributes as read_plain
from tensorcep.cp.estimators.classifier import CPClassifier
from tensorcep.cp.estimators.count import CPCountRegressor
from tensorcep.cp.estimators.old_params import params_of_file as cp_params
from tensorcep.cp.estimators.regressor import CPRegressor
from tensorcep.cp.settings.names import SETTINGS as CP_SETTINGS
from tensorcep.cp.store import read_attributes as read_cp
from tensorcep.factor_models.collective import CollectiveMatrixFactorization
from tensorcep.factor_models.group_factor import BayesianCCA, GroupFactorAnalysis
from tensorcep.factor_models.pca import BayesianFactorAnalysis, BayesianPCA
from tensorcep.factor_models.store import read_attributes as read_factor_model
from tensorcep.linear.bayes_point import BayesPointMachine
from tensorcep.linear.regression import BayesianLogisticRegression, BayesianProbitRegression
from tensorcep.linear.settings import SETTINGS as LINEAR_SETTINGS
from tensorcep.linear.settings import params_of_file as linear_params

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
# Per family: its classes, what reads the fitted attributes, and the method that sets those that follow from them.
FAMILIES: tuple[tuple[dict[str, Any], Callable[[StoredModel], dict[str, Any]], str], ...] = (
    (ESTIMATORS, read_cp, "_set_moments"),
    (FACTOR_MODELS, read_factor_model, "_set_attributes"),
    (FEATURE_MODELS, read_plain, ""),
)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted model that an estimator's `save` wrote. No code in the file is executed, nothing is refitted.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated, is not a tensorcep model, or is of a newer format version.
    """
    stored = open_model(path, {**LINEAR_SETTINGS, **{cls.__name__: cls for cls in CP_SETTINGS.values()}})
    model = _unfitted(stored)
    read, finish = next((read, finish) for classes, read, finish in FAMILIES if stored.class_name in classes)
    for name, value in read(stored).items():
        setattr(model, name, value)
    if finish:
        with complete(path):
            getattr(model, finish)()
    return model


def _unfitted(stored: StoredModel) -> Any:
    """An estimator of the class and the parameters in a file."""
    known = {name: cls for classes, _, _ in FAMILIES for name, cls in classes.items()}
    if stored.class_name not in known:
        listed = ", ".join(known)
        fail_value(f"'{stored.path}' holds a {stored.class_name!r}, which is not one of {listed}; update tensorcep.")
    cls = known[stored.class_name]
    params = stored.params
    if stored.class_name in FEATURE_MODELS:
        params = linear_params(params)
    if stored.class_name in ESTIMATORS:
        params = cp_params(params, stored.header.get("own", {}).get("method_"))
    odd = sorted(set(params) - set(cls._get_param_names()))
    if odd:
        fail_value(f"'{stored.path}' has a parameter {odd[0]!r} that this tensorcep does not know; update tensorcep.")
    return cls(**params)
