"""What a fitted set of relations says: cell predictions, components in the order of their variance."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from tensorcep.core.gammas import Gammas
from tensorcep.factor_models.model import DenseCells, Moments, Relation, as_packed, latent_moments, variances
from tensorcep.factor_models.predict import predict_cells
from tensorcep.factor_models.sites import Sites
from tensorcep.factor_models.updates import RelationPosterior


def predict_block(
    relation: Relation, rows: Moments, cols: Moments, tau: np.ndarray | None, r: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Predictive mean and variance of all cells of some rows and columns, given noise precision and dispersion."""
    if rows.diagonal != cols.diagonal:
        rows, cols = as_packed(rows), as_packed(cols)
    cells = DenseCells((len(rows.mean), len(cols.mean)))
    u, v = rows.select(relation.row_coords), cols.select(relation.col_coords)
    with threadpool_limits(limits=1, user_api="blas"):
        f, variance = latent_moments(cells, u, v, lambda size, work: work(0, size))
    noise_groups = relation.groups if relation.likelihood == "gaussian" else "all"
    noise = np.zeros((1, 1)) if tau is None else cells.spread(1.0 / tau, noise_groups)
    dispersion = None if r is None else cells.spread(r, relation.groups)
    return predict_cells(relation.likelihood, f, variance, noise, dispersion)


def predict_training(posterior: RelationPosterior, m: int, relation: Relation) -> tuple[np.ndarray, np.ndarray]:
    """Predictive mean and variance of the cells of training matrix m; over a sampler's draws where there are some."""
    draws, sites = posterior.draws, posterior.sites[m]
    if draws is None:
        moments = posterior.moments
        return predict_block(relation, moments[relation.row], moments[relation.col], *parameters(sites))
    n = len(draws.rows[0])
    mean = square = np.zeros((1, 1))
    for s in range(n):
        u, v = (_point(draws.rows[e][s]) for e in (relation.row, relation.col))
        noise, r = draws.noise[m], draws.r[m]
        value, variance = predict_block(
            relation, u, v, None if noise is None else noise[s], None if r is None else r[s]
        )
        mean, square = mean + value / n, square + (variance + value**2) / n
    return mean, square - mean**2


def parameters(sites: Sites) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Noise precision and dispersion of a relation."""
    return (
        None if sites.noise is None else sites.noise.mean,
        None if sites.r is None else sites.r.mean,
    )


def _point(rows: np.ndarray) -> Moments:
    return Moments(rows, np.zeros((1, rows.shape[1])), True)


def energies(posterior: RelationPosterior, m: int, relation: Relation, rank: int) -> np.ndarray:
    """Variance of the latent values that each component explains in a relation, summed over its columns."""
    moments = (posterior.moments[e] for e in (relation.row, relation.col))
    rows, cols = (found.mean[:, :rank] ** 2 + variances(found)[:, :rank] for found in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def reordered(posterior: RelationPosterior, order: np.ndarray) -> RelationPosterior:
    """The posterior with its components in another order; biases stay."""
    moments, precisions = [], []
    for m, p in zip(posterior.moments, posterior.precisions, strict=True):
        index = np.concatenate([order, np.arange(len(order), m.mean.shape[1])])
        moments.append(m.select(index))
        precisions.append(Gammas(p.mean[index], p.log_mean[index], p.divergence))
    draws = posterior.draws
    if draws is not None:
        rest = [np.concatenate([order, np.arange(len(order), rows.shape[2])]) for rows in draws.rows]
        turned = tuple(rows[:, :, index] for rows, index in zip(draws.rows, rest, strict=True))
        draws = draws._replace(rows=turned)
    return posterior._replace(moments=tuple(moments), precisions=tuple(precisions), draws=draws)
