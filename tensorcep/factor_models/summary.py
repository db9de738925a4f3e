"""What a fitted set of relations says of its components: their variance, and their order by it."""

from __future__ import annotations

import numpy as np

from tensorcep.core.gammas import Gammas
from tensorcep.factor_models.moments import variances
from tensorcep.factor_models.relations import Relation, RelationPosterior


def energies(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """Variance of the latent values that each component explains in a relation, summed over its columns."""
    moments = (posterior.moments[relation.row], relation.in_units(posterior.moments[relation.col]))
    rows, cols = (one.mean[:, :rank] ** 2 + variances(one)[:, :rank] for one in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def shares(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """The parts that components have of what all of them explain there, every column on its own scale."""
    energy = energies(posterior, relation._replace(units=None), rank)
    return np.asarray(energy / max(energy.sum(), np.finfo(float).tiny))


def alive(posterior: RelationPosterior, learned: list[bool], rank: int) -> np.ndarray:
    """Which components say something: where their precisions are learned, their means outweigh their variances.

    A component that its precision has switched off has means near 0, and variances that are the prior's.
    """
    result = np.zeros(rank, dtype=bool)
    for moments, learn in zip(posterior.moments, learned, strict=True):
        if learn or not any(learned):
            noise = variances(moments)[:, :rank].mean(axis=0)
            result |= (moments.mean[:, :rank] ** 2).mean(axis=0) > noise
    return result


def by_energy(posterior: RelationPosterior, energy: np.ndarray) -> RelationPosterior:
    """The posterior with its components in the order of this energy, the largest first; biases stay."""
    return chosen(posterior, np.argsort(-energy, kind="stable"), len(energy))


def chosen(posterior: RelationPosterior, order: np.ndarray, rank: int) -> RelationPosterior:
    """The posterior with some of its components, in this order; biases stay."""
    moments, precisions = [], []
    for m, p in zip(posterior.moments, posterior.precisions, strict=True):
        index = _with_biases(order, rank, m.mean.shape[1])
        moments.append(m.select(index))
        precisions.append(Gammas(p.mean[index], p.log_mean[index], p.divergence))
    draws = posterior.draws
    if draws is not None:
        turned = tuple(rows[:, :, _with_biases(order, rank, rows.shape[2])] for rows in draws.rows)
        draws = draws._replace(rows=turned)
    laws = tuple(None if law is None else law.chosen(order) for law in posterior.laws)
    return posterior._replace(moments=tuple(moments), precisions=tuple(precisions), draws=draws, laws=laws)


def _with_biases(order: np.ndarray, rank: int, size: int) -> np.ndarray:
    return np.concatenate([order, np.arange(rank, size)])
