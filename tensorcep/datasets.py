"""Published data sets: tensors, points with two labels, and what TensorLy ships; `available` lists them."""

from __future__ import annotations

from tensorcep.entries.datasets import (
    ALOG_SHAPE,
    CATALOGUE,
    DBLP,
    DBLP_SHAPE,
    ENRON_SHAPE,
    DatasetInfo,
    Fold,
    available,
    load_alog,
    load_dblp,
    load_enron,
)
from tensorcep.entries.download import ENVIRONMENT, fetch, published_entries, registry
from tensorcep.entries.points import (
    GP_FILES,
    LINKS,
    N_FOLDS,
    UCI_NAMES,
    Points,
    PointsFold,
    Simulation,
    load_gp,
    load_simulation,
    load_uci,
)
from tensorcep.entries.shipped import load_covid19_serology, load_il2

__all__ = [
    "ALOG_SHAPE",
    "CATALOGUE",
    "DBLP",
    "DBLP_SHAPE",
    "ENRON_SHAPE",
    "ENVIRONMENT",
    "GP_FILES",
    "LINKS",
    "N_FOLDS",
    "UCI_NAMES",
    "DatasetInfo",
    "Fold",
    "Points",
    "PointsFold",
    "Simulation",
    "available",
    "fetch",
    "load_alog",
    "load_covid19_serology",
    "load_dblp",
    "load_enron",
    "load_gp",
    "load_il2",
    "load_simulation",
    "load_uci",
    "published_entries",
    "registry",
]
