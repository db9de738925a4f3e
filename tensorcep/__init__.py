"""tensorcep: Bayesian tensor and matrix factorisation with honest uncertainty.

Names load on first use, so that importing the package is quick and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensorcep._version import __version__

if TYPE_CHECKING:
    from tensorcep import datasets, distributed, methods, metrics
    from tensorcep.cp.estimators.classifier import CPClassifier
    from tensorcep.cp.estimators.count import CPCountRegressor
    from tensorcep.cp.estimators.ordinal import CPOrdinalClassifier
    from tensorcep.cp.estimators.regressor import CPRegressor
    from tensorcep.cp.simulate import simulate_cp
    from tensorcep.entries.io import read_tensor, write_tensor
    from tensorcep.entries.labels import Labels
    from tensorcep.entries.tables import train_test_split
    from tensorcep.entries.tensor import SparseTensor
    from tensorcep.ep.gaussian import GaussianEP
    from tensorcep.ep.loopy_bp import LoopyBP
    from tensorcep.estimators import load
    from tensorcep.factor_models.collective import CollectiveMatrixFactorization
    from tensorcep.factor_models.group_factor import BayesianCCA, GroupFactorAnalysis
    from tensorcep.factor_models.pca import BayesianFactorAnalysis, BayesianPCA
    from tensorcep.gaussian_process.classifier import GaussianProcessClassifier
    from tensorcep.gaussian_process.count import GaussianProcessCountRegressor
    from tensorcep.linear.bayes_point import BayesPointMachine
    from tensorcep.linear.regression import BayesianLogisticRegression, BayesianProbitRegression
    from tensorcep.methods import CEP, PGVB, VMP, WOPT, Gibbs, Laplace, PGGibbs
    from tensorcep.model_selection.compare import compare
    from tensorcep.model_selection.matching import factor_match_score, replicability
    from tensorcep.model_selection.select_rank import RankSelection, select_rank
    from tensorcep.priors.features import Features
    from tensorcep.priors.fixed import Prior
    from tensorcep.priors.graph import Graph
    from tensorcep.priors.series import Series
    from tensorcep.warming import warmup

# Where each name is defined, in the order in which `tensorcep.estimators` lists models.
NAMES = {
    "cp.estimators.regressor": ("CPRegressor",),
    "cp.estimators.classifier": ("CPClassifier",),
    "cp.estimators.count": ("CPCountRegressor",),
    "cp.estimators.ordinal": ("CPOrdinalClassifier",),
    "factor_models.pca": ("BayesianPCA", "BayesianFactorAnalysis"),
    "factor_models.collective": ("CollectiveMatrixFactorization",),
    "factor_models.group_factor": ("BayesianCCA", "GroupFactorAnalysis"),
    "linear.regression": ("BayesianLogisticRegression", "BayesianProbitRegression"),
    "linear.bayes_point": ("BayesPointMachine",),
    "gaussian_process.classifier": ("GaussianProcessClassifier",),
    "gaussian_process.count": ("GaussianProcessCountRegressor",),
    "model_selection.compare": ("compare",),
    "model_selection.matching": ("factor_match_score", "replicability"),
    "model_selection.select_rank": ("RankSelection", "select_rank"),
    "cp.simulate": ("simulate_cp",),
    "entries.io": ("read_tensor", "write_tensor"),
    "entries.labels": ("Labels",),
    "entries.tables": ("train_test_split",),
    "entries.tensor": ("SparseTensor",),
    "ep.gaussian": ("GaussianEP",),
    "ep.loopy_bp": ("LoopyBP",),
    "estimators": ("load",),
    "methods": ("CEP", "PGVB", "VMP", "WOPT", "Gibbs", "Laplace", "PGGibbs"),
    "priors.features": ("Features",),
    "priors.graph": ("Graph",),
    "priors.series": ("Series",),
    "priors.fixed": ("Prior",),
    "warming": ("warmup",),
}
_HOME = {name: home for home, names in NAMES.items() for name in names}
_MODULES = ("datasets", "distributed", "methods", "metrics", "plots")

__all__ = [
    "CEP",
    "PGVB",
    "VMP",
    "WOPT",
    "BayesPointMachine",
    "BayesianCCA",
    "BayesianFactorAnalysis",
    "BayesianLogisticRegression",
    "BayesianPCA",
    "BayesianProbitRegression",
    "CPClassifier",
    "CPCountRegressor",
    "CPOrdinalClassifier",
    "CPRegressor",
    "CollectiveMatrixFactorization",
    "Features",
    "GaussianEP",
    "GaussianProcessClassifier",
    "GaussianProcessCountRegressor",
    "Gibbs",
    "Graph",
    "GroupFactorAnalysis",
    "Labels",
    "Laplace",
    "LoopyBP",
    "PGGibbs",
    "Prior",
    "RankSelection",
    "Series",
    "SparseTensor",
    "__version__",
    "compare",
    "datasets",
    "distributed",
    "factor_match_score",
    "load",
    "methods",
    "metrics",
    "read_tensor",
    "replicability",
    "select_rank",
    "simulate_cp",
    "train_test_split",
    "warmup",
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
