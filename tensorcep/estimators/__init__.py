"""Estimators in the style of scikit-learn, and the way back from a file to one."""

from __future__ import annotations

import os
from typing import Any

from tensorcep._checks import fail_value
from tensorcep.estimators.bayes_point_machine import BayesPointMachine
from tensorcep.estimators.bayesian_glm import BayesianLogisticRegression, BayesianProbitRegression
from tensorcep.estimators.cp_classifier import CPClassifier
from tensorcep.estimators.cp_count import CPCountRegressor
from tensorcep.estimators.cp_regressor import CPRegressor
from tensorcep.persist import read_model

__all__ = [
    "ESTIMATORS",
    "LOADABLE",
    "BayesPointMachine",
    "BayesianLogisticRegression",
    "BayesianProbitRegression",
    "CPClassifier",
    "CPCountRegressor",
    "CPRegressor",
    "load",
]

# The estimators of tensors, and those that `load` knows.
ESTIMATORS: dict[str, Any] = {cls.__name__: cls for cls in (CPRegressor, CPClassifier, CPCountRegressor)}
LOADABLE: dict[str, Any] = {
    **ESTIMATORS,
    **{cls.__name__: cls for cls in (BayesianLogisticRegression, BayesianProbitRegression)},
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
    stored = read_model(path)
    if stored.class_name not in LOADABLE:
        known = ", ".join(LOADABLE)
        fail_value(f"'{os.fspath(path)}' holds a {stored.class_name!r}, which is not one of {known}; update tensorcep.")
    odd = sorted(set(stored.params) - set(LOADABLE[stored.class_name]().get_params(deep=False)))
    if odd:
        fail_value(
            f"'{os.fspath(path)}' has a parameter {odd[0]!r} that this tensorcep does not know; update tensorcep."
        )
    model = LOADABLE[stored.class_name](**stored.params)
    for name, value in stored.fitted.items():
        setattr(model, name, value)
    if stored.class_name in ESTIMATORS:
        model._set_moments()
    return model
