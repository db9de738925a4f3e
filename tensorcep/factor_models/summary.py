"""What a fitted set of relations says of its components: their variance, and their order by it."""

from __future__ import annotations

import numpy as np

from tensorcep.core.gammas import Gammas
from tensorcep.factor_models.moments import variances
from tensorcep.factor_models.relations import Relation, RelationPosterior


def energies(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """Variance of the latent values that each component explains in a relation, summed over its columns."""
    moments = (posterior.moments[e] for e in (relation.row, relation.col))
    rows, cols = (one.mean[:, :rank] ** 2 + variances(one)[:, :rank] for one in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def shares(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """The same as parts of what all components explain there."""
    energy = energies(posterior, relation, rank)
    return np.asarray(energy / max(energy.sum(), np.finfo(float).tiny))


def by_energy(posterior: RelationPosterior, energy: np.ndarray) -> RelationPosterior:
    """The posterior with its components in the order of this energy, the largest first; biases stay."""
    order = np.argsort(-energy, kind="stable")
    moments, precisions = [], []
    for m, p in zip(posterior.moments, posterior.precisions, strict=True):
        index = _with_biases(order, m.mean.shape[1])
        moments.append(m.select(index))
        precisions.append(Gammas(p.mean[index], p.log_mean[index], p.divergence))
    draws = posterior.draws
    if draws is not None:
        turned = tuple(rows[:, :, _with_biases(order, rows.shape[2])] for rows in draws.rows)
        draws = draws._replace(rows=turned)
    return posterior._replace(moments=tuple(moments), precisions=tuple(precisions), draws=draws)


def _with_biases(order: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([order, np.arange(len(order), size)])
