"""tensorcep: Bayesian tensor and matrix factorisation with honest uncertainty.

Names load on first use, so that importing the package is quick and compiles nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensorcep._version import __version__

if TYPE_CHECKING:
    from tensorcep import datasets as datasets
    from tensorcep import distributed as distributed
    from tensorcep import methods as methods
    from tensorcep import metrics as metrics
    from tensorcep.cp.estimators.classifier import CPClassifier as CPClassifier
    from tensorcep.cp.estimators.count import CPCountRegressor as CPCountRegressor
    from tensorcep.cp.estimators.ordinal import CPOrdinalClassifier as CPOrdinalClassifier
    from tensorcep.cp.estimators.regressor import CPRegressor as CPRegressor
    from tensorcep.cp.simulate import simulate_cp as simulate_cp
    from tensorcep.entries.io import read_tensor as read_tensor
    from tensorcep.entries.io import write_tensor as write_tensor
    from tensorcep.entries.labels import Labels as Labels
    from tensorcep.entries.sparse_tensor import SparseTensor as SparseTensor
    from tensorcep.entries.tables import train_test_split as train_test_split
    from tensorcep.ep.gaussian import GaussianEP as GaussianEP
    from tensorcep.ep.loopy_bp import LoopyBP as LoopyBP
    from tensorcep.estimators import load as load
    from tensorcep.factor_models.pca import BayesianFactorAnalysis as BayesianFactorAnalysis
    from tensorcep.factor_models.pca import BayesianPCA as BayesianPCA
    from tensorcep.factor_models.views import BayesianCCA as BayesianCCA
    from tensorcep.factor_models.views import CollectiveMatrixFactorization as CollectiveMatrixFactorization
    from tensorcep.factor_models.views import GroupFactorAnalysis as GroupFactorAnalysis
    from tensorcep.gaussian_process.classifier import GaussianProcessClassifier as GaussianProcessClassifier
    from tensorcep.gaussian_process.count import GaussianProcessCountRegressor as GaussianProcessCountRegressor
    from tensorcep.linear.glm import BayesianLogisticRegression as BayesianLogisticRegression
    from tensorcep.linear.glm import BayesianProbitRegression as BayesianProbitRegression
    from tensorcep.linear.glm import BayesPointMachine as BayesPointMachine
    from tensorcep.methods import CEP as CEP
    from tensorcep.methods import PGVB as PGVB
    from tensorcep.methods import VMP as VMP
    from tensorcep.methods import WOPT as WOPT
    from tensorcep.methods import Gibbs as Gibbs
    from tensorcep.methods import Laplace as Laplace
    from tensorcep.methods import PGGibbs as PGGibbs
    from tensorcep.model_selection.compare import compare as compare
    from tensorcep.model_selection.matching import factor_match_score as factor_match_score
    from tensorcep.model_selection.matching import replicability as replicability
    from tensorcep.model_selection.select_rank import RankSelection as RankSelection
    from tensorcep.model_selection.select_rank import select_rank as select_rank
    from tensorcep.priors.features import Features as Features
    from tensorcep.priors.fixed import Prior as Prior
    from tensorcep.priors.graph import Graph as Graph
    from tensorcep.priors.series import Series as Series
    from tensorcep.warming import warmup as warmup

# Where each name is defined, in the order in which `tensorcep.estimators` lists models.
NAMES = {
    "cp.estimators.regressor": ("CPRegressor",),
    "cp.estimators.classifier": ("CPClassifier",),
    "cp.estimators.count": ("CPCountRegressor",),
    "cp.estimators.ordinal": ("CPOrdinalClassifier",),
    "factor_models.pca": ("BayesianPCA", "BayesianFactorAnalysis"),
    "factor_models.views": ("CollectiveMatrixFactorization", "BayesianCCA", "GroupFactorAnalysis"),
    "linear.glm": ("BayesianLogisticRegression", "BayesianProbitRegression", "BayesPointMachine"),
    "gaussian_process.classifier": ("GaussianProcessClassifier",),
    "gaussian_process.count": ("GaussianProcessCountRegressor",),
    "model_selection.compare": ("compare",),
    "model_selection.matching": ("factor_match_score", "replicability"),
    "model_selection.select_rank": ("RankSelection", "select_rank"),
    "cp.simulate": ("simulate_cp",),
    "entries.io": ("read_tensor", "write_tensor"),
    "entries.labels": ("Labels",),
    "entries.tables": ("train_test_split",),
    "entries.sparse_tensor": ("SparseTensor",),
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

__all__ = ["__version__", "datasets", "distributed", "methods", "metrics"]
__all__ += list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"tensorcep.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"tensorcep.{name}")
    raise AttributeError(f"module 'tensorcep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
