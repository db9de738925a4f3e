"""Observations as likelihoods code them, and the numbers of cells and counts of a relation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.factor_models.relations import CountTable, Kind, Relation


def coded(kind: Kind, cells: Any, values: np.ndarray) -> np.ndarray:
    """Checked values, 0 where nothing is observed, as the likelihood codes them; there 0 as well."""
    found = kind.likelihood.check_y(values.ravel()).reshape(values.shape)
    return found if np.shares_memory(found, values) else np.asarray(cells.only_observed(found))


def group_sizes(relation: Relation, groups: str) -> np.ndarray:
    """Observed cells of each group."""
    return np.asarray(relation.cells.observed_sums(np.ones((1,) * relation.x.ndim), groups))


def count_table(relation: Relation) -> CountTable | None:
    """The table of a relation whose counts have a dispersion; None for others."""
    if relation.kind.theta != "r":
        return None
    cells, x = relation.cells, relation.x
    counts, index = np.unique(x, return_inverse=True)
    groups = np.arange(len(group_sizes(relation, relation.groups)), dtype=np.float64)
    group = np.broadcast_to(cells.spread(groups, relation.groups), x.shape).astype(np.int64)
    where = np.ones(x.shape) if cells.observed is None else cells.observed
    flat = (group * len(counts) + index.reshape(x.shape)).ravel()
    times = np.bincount(flat, weights=where.ravel(), minlength=len(groups) * len(counts))
    return CountTable(counts, times.reshape(len(groups), len(counts)))
