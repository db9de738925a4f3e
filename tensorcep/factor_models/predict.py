"""Predictions of factor models, and the energies and order of components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.executor import ThreadExecutor, one_blas_thread
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.problem import Kind, Relation, RelationDraws, RelationPosterior, Sites
from tensorcep.factor_models.side_information import Moments, as_packed, latent_moments, variances
from tensorcep.likelihoods.parameters.base import Gammas, shape_and_rate
from tensorcep.likelihoods.tobit import TOBIT

# What a fitted set of relations says of its components: their variance, and their order by it.


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


# What a fitted relation predicts of its cells: latent values, and observations by the relation's likelihood.

Pair = tuple[np.ndarray, np.ndarray]
# The mean noise variance is at most this many times 1 / E[precision]: where few cells tell of it it may be infinite.
MOST_DOUBT = 2.0
# Cells that are predicted at a time.
CELLS = 1 << 20
# block(rows, cols, tau, r): mean and variance of all cells of some rows and columns
Block = Callable[[Moments, Moments, "np.ndarray | None", "np.ndarray | None"], Pair]


def parameters(sites: Sites) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Noise precision and dispersion of a relation."""
    return (
        None if sites.noise is None else sites.noise.mean,
        None if sites.r is None else sites.r.mean,
    )


def predictive_parameters(sites: Sites) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The same for predictions, whose noise has its mean variance: E[1 / tau] of a Gamma law, not 1 / E[tau]."""
    tau, r = parameters(sites)
    if sites.noise is None or tau is None:
        return tau, r
    shape, _ = shape_and_rate(sites.noise)
    return tau * np.maximum(1.0 - 1.0 / shape, 1.0 / MOST_DOUBT), r


def latent_block(relation: Relation, rows: Moments, cols: Moments) -> Pair:
    """Mean and variance of the latent values of all cells of some rows and columns, in the units of the data."""
    cols = relation.in_units(cols)
    if rows.diagonal != cols.diagonal:
        rows, cols = as_packed(rows), as_packed(cols)
    cells = DenseCells((len(rows.mean), len(cols.mean)))
    u, v = rows.select(relation.row_coords), cols.select(relation.col_coords)
    with one_blas_thread():
        return latent_moments(cells, u, v, ThreadExecutor(1))


def predict_block(
    relation: Relation, rows: Moments, cols: Moments, tau: np.ndarray | None, r: np.ndarray | None
) -> Pair:
    """Predictive mean and variance of all cells of some rows and columns, given noise precision and dispersion."""
    f, variance = latent_block(relation, rows, cols)
    if tau is not None and relation.kind.theta == "noise":
        noise = 1.0 / relation.noise_in_units(tau)
        return (f, variance + noise) if relation.limit is None else _above(relation.limit, f, variance, noise)
    return observed(relation.kind, relation.groups, f, variance, tau, r)


def _above(limit: np.ndarray, f: np.ndarray, variance: np.ndarray, noise: np.ndarray) -> Pair:
    """Mean and variance of values N(f, variance + noise) that are raised to the limits of their columns, (N, D)."""
    theta = np.broadcast_to(1.0 / noise, f.shape)
    mean, spread = TOBIT.predict((f - limit).ravel(), variance.ravel(), theta.ravel())
    return limit + mean.reshape(f.shape), spread.reshape(f.shape)


def observed(
    kind: Kind, groups: str, f: np.ndarray, variance: np.ndarray, tau: np.ndarray | None, r: np.ndarray | None
) -> Pair:
    """Predictive mean and variance of new observations whose latent values are N(f, variance), both (N, D).

    An explicit noise, which is not the likelihood's own, adds to the latent variance.
    """
    likelihood, cells = kind.likelihood, DenseCells((len(f), f.shape[1]))
    values = {"noise": tau, "r": r}.get(kind.theta)
    theta = np.full((1, 1), likelihood.default_theta) if values is None else cells.spread(values, groups)
    if tau is not None and kind.theta != "noise":
        variance = variance + cells.spread(1.0 / tau, "all")
    flat = (np.broadcast_to(item, f.shape).ravel() for item in (f, variance, theta))
    mean, spread = likelihood.predict(*flat)
    return mean.reshape(f.shape), spread.reshape(f.shape)


def predict_training(posterior: RelationPosterior, m: int, relation: Relation) -> Pair:
    """Predictive mean and variance of the cells of training matrix m; over a sampler's draws where there are some."""
    return _over_draws(posterior, m, relation, partial(predict_block, relation))


def predict_cells(posterior: RelationPosterior, m: int, relation: Relation, cells: np.ndarray) -> Pair:
    """Predictive mean and variance (n,) of cells (n, 2) of training matrix m, some rows at a time."""
    rows, at = np.unique(cells[:, 0], return_inverse=True)
    mean, variance = np.empty(len(cells)), np.empty(len(cells))
    size = max(1, CELLS // len(posterior.moments[relation.col].mean))
    for a in range(0, len(rows), size):
        own = np.flatnonzero((at >= a) & (at < a + size))
        block = partial(_block_of_rows, relation, rows[a : a + size])
        some = _over_draws(posterior, m, relation, block)
        place = at[own] - a, cells[own, 1]
        mean[own], variance[own] = some[0][place], some[1][place]
    return mean, variance


def _block_of_rows(relation: Relation, which: np.ndarray, rows: Moments, cols: Moments, *parameters: Any) -> Pair:
    some = Moments(rows.mean[which], rows.cov if len(rows.cov) == 1 else rows.cov[which], rows.diagonal)
    by_row = relation.groups == "row"
    theta = [values[which] if by_row and values is not None and len(values) > 1 else values for values in parameters]
    return predict_block(relation, some, cols, *theta)


def latent_training(posterior: RelationPosterior, m: int, relation: Relation) -> Pair:
    """Posterior mean and variance of the latent values of the cells of training matrix m."""
    return _over_draws(posterior, m, relation, lambda rows, cols, tau, r: latent_block(relation, rows, cols))


def latent_of_draws(draws: RelationDraws, relation: Relation, cells: np.ndarray) -> np.ndarray:
    """Latent values (draws, n) of some cells (n, 2), in the units of the data."""
    found = np.empty((len(draws.rows[0]), len(cells)))
    for s in range(len(found)):
        cols = relation.in_units(_point(draws.rows[relation.col][s])).mean
        u, v = draws.rows[relation.row][s][cells[:, 0]], cols[cells[:, 1]]
        found[s] = np.einsum("nc,nc->n", u[:, relation.row_coords], v[:, relation.col_coords])
    return found


def _over_draws(posterior: RelationPosterior, m: int, relation: Relation, block: Block) -> Pair:
    """A block at the posterior's moments; or the mean over the draws, and the variance within and between them."""
    draws, sites = posterior.draws, posterior.sites[m]
    if draws is None:
        moments = posterior.moments
        return block(moments[relation.row], moments[relation.col], *predictive_parameters(sites))
    n = len(draws.rows[0])
    mean = square = np.zeros((1, 1))
    for s in range(n):
        u, v = (_point(draws.rows[e][s]) for e in (relation.row, relation.col))
        tau, r = (None if values is None else values[s] for values in (draws.noise[m], draws.r[m]))
        value, variance = block(u, v, tau, r)
        mean, square = mean + value / n, square + (variance + value**2) / n
    return mean, square - mean**2


def _point(rows: np.ndarray) -> Moments:
    return Moments(rows, np.zeros((1, rows.shape[1])), True)
