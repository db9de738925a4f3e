"""tensorcep: Bayesian tensor and matrix factorisation with honest uncertainty.

Names load on first use, so that importing the package is quick and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensorcep._version import __version__

if TYPE_CHECKING:
    from tensorcep import datasets, metrics
    from tensorcep.comparison import compare
    from tensorcep.estimators import (
        BayesianCCA,
        BayesianFactorAnalysis,
        BayesianLogisticRegression,
        BayesianPCA,
        BayesianProbitRegression,
        BayesPointMachine,
        CollectiveMatrixFactorization,
        CPClassifier,
        CPCountRegressor,
        CPRegressor,
        GroupFactorAnalysis,
        load,
    )
    from tensorcep.inference.ep import GaussianEP
    from tensorcep.inference.loopy_bp import LoopyBP
    from tensorcep.io import read_tensor, write_tensor
    from tensorcep.labels import Labels
    from tensorcep.posterior import Prior
    from tensorcep.selection import RankSelection, select_rank
    from tensorcep.simulate import simulate_cp
    from tensorcep.tensor import SparseTensor

_HOME = {
    "BayesPointMachine": "estimators",
    "BayesianCCA": "estimators",
    "BayesianFactorAnalysis": "estimators",
    "BayesianPCA": "estimators",
    "BayesianLogisticRegression": "estimators",
    "BayesianProbitRegression": "estimators",
    "CPClassifier": "estimators",
    "CPCountRegressor": "estimators",
    "CPRegressor": "estimators",
    "CollectiveMatrixFactorization": "estimators",
    "GroupFactorAnalysis": "estimators",
    "GaussianEP": "inference.ep",
    "Labels": "labels",
    "LoopyBP": "inference.loopy_bp",
    "Prior": "posterior",
    "RankSelection": "selection",
    "SparseTensor": "tensor",
    "compare": "comparison",
    "load": "estimators",
    "read_tensor": "io",
    "select_rank": "selection",
    "simulate_cp": "simulate",
    "write_tensor": "io",
}
_MODULES = ("datasets", "metrics", "plots")

__all__ = [
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
    "GaussianEP",
    "GroupFactorAnalysis",
    "Labels",
    "LoopyBP",
    "Prior",
    "RankSelection",
    "SparseTensor",
    "__version__",
    "compare",
    "datasets",
    "load",
    "metrics",
    "read_tensor",
    "select_rank",
    "simulate_cp",
    "write_tensor",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"tensorcep.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"tensorcep.{name}")
    raise AttributeError(f"module 'tensorcep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
