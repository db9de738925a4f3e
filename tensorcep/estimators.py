"""Estimators in the style of scikit-learn, and the way back from a file to one."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tensorcep import NAMES
from tensorcep.core.checks import fail_value
from tensorcep.core.persist.models import StoredModel, complete, open_model, read_parameter
from tensorcep.core.persist.models import read_attributes as read_plain
from tensorcep.cp.estimators.base import spec_of
from tensorcep.cp.estimators.store import drop_projection, read_result
from tensorcep.cp.settings import SETTINGS
from tensorcep.factor_models.base import read_attributes as read_factor_model
from tensorcep.factor_models.settings import SETTINGS as FACTOR_METHODS
from tensorcep.gaussian_process.latent import read_attributes as read_gp
from tensorcep.gaussian_process.settings import SETTINGS as GP_SETTINGS
from tensorcep.linear.settings import SETTINGS as LINEAR_SETTINGS
from tensorcep.priors.features import Features
from tensorcep.priors.graph import Graph
from tensorcep.priors.series import Series


def models_of(place: str) -> dict[str, Any]:
    """The estimators of a room, by class name."""
    homes = ((home, name) for home, names in NAMES.items() for name in names if home.startswith(place))
    return {name: getattr(importlib.import_module(f"tensorcep.{home}"), name) for home, name in homes}


# The estimators of tensors, of matrices, of feature vectors, and Gaussian processes. `load` knows them all.
ESTIMATORS, FACTOR_MODELS = models_of("cp.estimators"), models_of("factor_models")
FEATURE_MODELS, GP_MODELS = models_of("linear"), models_of("gaussian_process")


class Family(NamedTuple):
    """What loading needs to know of a family of models."""

    classes: dict[str, Any]  # by name
    read: Callable[[StoredModel, Any], dict[str, Any]]  # ``read(stored, cls)`` gives the fitted attributes
    finish: str  # the method that sets those that follow from them, or tries them
    settings: Mapping[str, type]  # the records of settings that parameters may be, by the names of their classes


CP_SETTINGS: dict[str, type] = {cls.__name__: cls for cls in (*SETTINGS.values(), Series, Graph)}
FACTOR_SETTINGS: dict[str, type] = {cls.__name__: cls for cls in (*FACTOR_METHODS.values(), Features, Series)}
FAMILIES = (
    Family(
        ESTIMATORS,
        lambda stored, cls: {"_fit": read_result(stored, spec_of(cls()).target.OBSERVATION)},
        "__sklearn_is_fitted__",
        CP_SETTINGS,
    ),
    Family(FACTOR_MODELS, read_factor_model, "_set_attributes", FACTOR_SETTINGS),
    Family(
        FEATURE_MODELS,
        lambda stored, cls: read_plain(stored, (*cls._stored, *cls._stored_if_there)),
        "_try_out",
        LINEAR_SETTINGS,
    ),
    Family(GP_MODELS, read_gp, "_restore", dict(GP_SETTINGS)),
)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted model that an estimator's `save` wrote. No code in the file is executed, nothing is refitted.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated, is not a tensorcep model, or is of another format version.

    Examples
    --------
    >>> import tempfile
    >>> from tensorcep import BayesianLogisticRegression, load
    >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.npz")
    ...     again = load(f"{folder}/model.npz")
    ...
    >>> type(again).__name__
    'BayesianLogisticRegression'
    """
    stored = open_model(path)
    family = next((family for family in FAMILIES if stored.class_name in family.classes), None)
    if family is None:
        listed = ", ".join(name for family in FAMILIES for name in family.classes)
        what = f"'{stored.path}' holds a {stored.class_name[:60]!r}"
        fail_value(f"{what}, which is not one of {listed}; update tensorcep.")
    cls = family.classes[stored.class_name]
    drop_projection(stored)
    with complete(path):
        fitted = family.read(stored, cls)
        params = {name: read_parameter(value, family.settings) for name, value in stored.params.items()}
    odd = sorted(set(params) - set(cls._get_param_names()))
    if odd:
        unknown = f"'{stored.path}' has a parameter {odd[0][:60]!r}"
        fail_value(f"{unknown} that this tensorcep does not know; update tensorcep.")
    model = cls(**params)
    for name, value in fitted.items():
        setattr(model, name, value)
    with complete(path):
        model._check_parameters()
        getattr(model, family.finish)()
    return model
