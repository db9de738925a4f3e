"""What is public: the names that a user imports, and where the reference puts each."""

from __future__ import annotations

import importlib
import inspect
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import tensorcep

# Modules whose public names are what they define or hand on by name.
MODULES = ("metrics", "datasets", "plots", "river", "distributed")
SETTINGS = ("methods", "linear.settings", "factor_models.settings", "gaussian_process.settings")
# Records that users get from methods, and the one that a likelihood of their own is.
RECORDS = (
    "cp.posterior.Posterior",
    "cp.posterior.Mixture",
    "cp.posterior.Draws",
    "cp.posterior.PointEstimate",
    "cp.fitted.diagnostics.Diagnostics",
    "ep.gaussian.EPResult",
    "ep.loopy_bp.BPResult",
    "likelihoods.base.Likelihood",
)

GROUPS = {
    "Models of tensors": ("CPRegressor", "CPClassifier", "CPCountRegressor", "CPOrdinalClassifier"),
    "Models of matrices": (
        *("BayesianPCA", "BayesianFactorAnalysis", "BayesianCCA", "GroupFactorAnalysis"),
        "CollectiveMatrixFactorization",
    ),
    "Functions of feature vectors": (
        *("GaussianProcessClassifier", "GaussianProcessCountRegressor", "BayesianLogisticRegression"),
        *("BayesianProbitRegression", "BayesPointMachine"),
    ),
    "Entries and labels": ("SparseTensor", "Labels"),
    "What is known of rows": ("Features", "Series", "Graph", "Prior"),
    "Engines to build on": ("GaussianEP", "LoopyBP"),
}


class Public(NamedTuple):
    """One public object: how it is imported, and the object."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def is_documented(value: Any) -> bool:
    """Whether it is a class or function of this package."""
    return (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__.startswith("tensorcep")


def of_module(name: str) -> list[Public]:
    """The public classes and functions of a module: those it defines, and those it imports as themselves."""
    module = importlib.import_module(f"tensorcep.{name}")
    source = inspect.getsource(module)
    found = []
    for key, value in vars(module).items():
        own = is_documented(value) and (value.__module__ == module.__name__ or f" {key} as {key}\n" in source)
        if own and not key.startswith("_"):
            found.append(Public(module.__name__, key, value))
    return sorted(found, key=lambda item: item.name.lower())


def of_settings(name: str) -> list[Public]:
    """The records of settings of a family: those that a user may give as `method`."""
    module: ModuleType = importlib.import_module(f"tensorcep.{name}")
    listed = getattr(module, "__all__", None)
    values = module.SETTINGS.values() if listed is None else [getattr(module, key) for key in listed]
    unique = {value.__name__: value for value in values}
    return [Public(module.__name__, key, value) for key, value in sorted(unique.items())]


def of_package() -> list[Public]:
    """The classes and functions that `tensorcep` itself offers, but for the settings of methods."""
    values = {name: getattr(tensorcep, name) for name in tensorcep.__all__}
    settings = set(importlib.import_module("tensorcep.methods").__all__)
    return [Public("tensorcep", k, v) for k, v in values.items() if is_documented(v) and k not in settings]


def of_records() -> list[Public]:
    parts = (f"tensorcep.{path}".rpartition(".") for path in RECORDS)
    return [Public(home, name, getattr(importlib.import_module(home), name)) for home, _, name in parts]


def every() -> list[Public]:
    """All public objects, each once."""
    listed = of_package() + of_records()
    for name in SETTINGS:
        listed += of_settings(name)
    for name in MODULES:
        listed += of_module(name)
    return list({item.path: item for item in listed}.values())


# What engines and the estimators call on settings and beliefs, and what only refuses.
INNER = {"changed", "check", "bytes_at_peak", "draws", "for_sweeps", "from_checked", "components", "dims", "within"}
REFUSING = {("CPOrdinalClassifier", "partial_fit"), ("CPOrdinalClassifier", "stream")}


def methods_of(cls: type) -> list[str]:
    """The public methods that a class has from this package, and that users call."""
    if issubclass(cls, tuple):
        return []
    inner = INNER if not hasattr(cls, "fit") else {"from_checked"}
    found = []
    for name, value in inspect.getmembers(cls):
        if not name.startswith("_") and inspect.isroutine(value) and not isinstance(value, cached_property):
            home = getattr(value, "__module__", "") or ""
            if home.startswith("tensorcep") and name not in inner and (cls.__name__, name) not in REFUSING:
                found.append(name)
    return found


# Methods of estimators, in the order of their use; what is in no group stands in the last.
METHOD_GROUPS = {
    "Fit and learn on": (
        *("fit", "partial_fit", "stream", "fit_transform", "with_rows", "forget_entries", "forget_rows"),
    ),
    "Predict": (
        *("predict", "predict_interval", "predict_proba", "predict_log_proba", "decision_function", "expected_value"),
        *("predict_missing", "predict_cells", "predict_block", "predict_view", "reconstruct", "predict_latent"),
        *("predictive", "sample_y", "sample_posterior", "latent_draws"),
    ),
    "Score": ("score", "score_samples", "log_score", "anomaly_score"),
    "Fold in and recommend": ("transform", "inverse_transform", "recommend", "similar", "explain"),
    "Read the factors": (
        *("summary", "components", "scores_frame", "variance_explained", "chain_diagnostics", "factor_diagnostics"),
        *("has_uncertainty", "to_arviz", "to_tensorly"),
    ),
    "Files and settings": (),
}
# A class with more methods than these has a page for each of their groups.
ON_ONE_PAGE = 8


def grouped_methods(cls: type) -> dict[str, list[str]]:
    """The methods of a class by group; all in one without a name where they are few."""
    names = methods_of(cls)
    if len(names) <= ON_ONE_PAGE:
        return {"": names}
    groups = {group: [name for name in listed if name in names] for group, listed in METHOD_GROUPS.items()}
    *_, last = groups
    groups[last] = [name for name in names if not any(name in listed for listed in METHOD_GROUPS.values())]
    return {group: found for group, found in groups.items() if found}
