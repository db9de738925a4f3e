"""Rows of a matrix as they come: what earlier rows said of the columns is the prior of the next (streaming VB).

With the rows u_i of a batch and the columns v_j, a batch says of a column exp(eta_j'v - v'Lam_j v / 2), and of its
noise precision or dispersion a Gamma. These add up from batch to batch, and the prior of the columns, whose precisions
are learned anew from all that is known, is counted once. Rows are kept of the last batch alone.

A batch's rows can take over what the columns should have learned (f = u'v + b is the same with u shifted and b moved
the other way). So after every batch the coordinates are turned and shifted such that all rows so far have mean zero and
covariance I, as their prior says, and the columns lie along their principal axes; no latent value changes.

Source: Broderick et al., Streaming variational Bayes (2013), with the factors of Klami (2014), section 2.2; the turn is
that of Ilin and Raiko (2010), section 4.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import Run
from tensorcep.core.packing import pack, unpack
from tensorcep.factor_models.fit import RunPlan
from tensorcep.factor_models.layout import Layout, Link, relation_of
from tensorcep.factor_models.problem import Entity, Priors, RelationPosterior, RelationProblem, Told, Units, units_of
from tensorcep.factor_models.side_information import Moments, as_packed, packed_index, second_moments, with_one
from tensorcep.factor_models.variational import precisions_of, update_rows
from tensorcep.likelihoods.parameters.base import Gammas, shape_and_rate

SETTLING = 20  # rounds of columns and their precisions, which the turn leaves apart
UNTOLD = 1e-6  # precision of a column's offset, in its units, below which no value has told of it


def sums_of_rows(posterior: RelationPosterior) -> np.ndarray:
    """The sum over the rows of E[u u'], (C, C)."""
    rows = as_packed(posterior.moments[0])
    return unpack(second_moments(rows).sum(axis=0), rows.mean.shape[1])


def learn_rows(
    plan: RunPlan, link: Link, posterior: RelationPosterior, sums: np.ndarray, n: int, where: list[Layout], ard: bool
) -> tuple[Run, Link, np.ndarray]:
    """Return the run of a batch of new rows on top of what is known, its link, and the new sums of all rows."""
    # Known are a posterior with a joint Gaussian for each column, and the `sums_of_rows` (C, C) of all n earlier rows.
    sizes, sites, priors = link.matrix.cells.shape, posterior.sites[0], Priors()
    if sites.noise is not None:
        priors = priors._replace(noise=shape_and_rate(sites.noise))
    if sites.r is not None and link.known_r is None and link.groups != "row":
        priors = priors._replace(r=shape_and_rate(sites.r))
    told = told_by(posterior.moments[1], posterior.precisions[1], where[1])
    if link.units is not None and link.cols_have_bias:
        # columns without a value in any earlier batch get the units of their first ones
        at = where[1].bias[0] - (0 <= where[1].one < where[1].bias[0])  # the offset among the free coordinates
        fresh = (told.Lam[:, at * (at + 3) // 2] < UNTOLD) & (link.matrix.cells.counts("column") > 0.0)
        own = zip(units_of(link.matrix, True), link.units, strict=True)
        link = link._replace(units=Units(*(np.where(fresh, new, old) for new, old in own)))
    parts = zip(where, sizes, (False, ard), posterior.precisions, strict=True)
    entities = tuple(layout.entity(size, learn, precision.mean) for layout, size, learn, precision in parts)
    start, relation = (where[0].rows_at_zero(sizes[0]), posterior.moments[1].mean), relation_of(link, 0, where)
    problem = RelationProblem(entities, (relation,), start, (None, None), priors, rank=where[0].rank, told=(None, told))
    run = plan.fit(problem)
    before, now = sites.noise, run.posterior.sites[0].noise
    if before is not None and now is not None:
        # what earlier rows said grows with the noise's precision, as that is known now: rows in which a column was
        # constant would hold it there for good otherwise
        ratio = (now.mean / before.mean)[:, np.newaxis]
        problem = problem._replace(told=(None, told._replace(Lam=ratio * told.Lam, eta=ratio * told.eta)))
    rows, precision, entity = run.posterior.moments[0], run.state.precisions[1], problem.entities[1]
    with threadpool_limits(limits=1, user_api="blas"):  # sums of one order
        columns = update_rows(run.state, problem, 1, ThreadExecutor(1))
        sums, n = sums + sums_of_rows(run.posterior), n + len(rows.mean)
        turn, back = _turn(sums / n, columns, where)
        rows = _turned(rows, turn)
        said = _turned_sites(told_by(columns, precision, where[1]), back[np.ix_(entity.free, entity.free)])
        columns = _columns(said, precision, entity)
        for _ in range(SETTLING):  # each given the other
            precision = precisions_of(entity, problem.precision_prior, columns)
            columns = _columns(said, precision, entity)
    posterior = run.posterior._replace(moments=(rows, columns), precisions=(run.posterior.precisions[0], precision))
    return run._replace(posterior=posterior), link, turn @ sums @ turn.T


def told_by(columns: Moments, precision: Gammas, layout: Layout) -> Told:
    """What all rows so far said of the columns: their posterior without their prior."""
    free = np.flatnonzero(np.arange(layout.size) != layout.one)
    Lam = np.linalg.inv(unpack(columns.cov[:, packed_index(free)], len(free)))
    eta = np.einsum("nij,nj->ni", np.broadcast_to(Lam, (len(columns.mean), *Lam.shape[1:])), columns.mean[:, free])
    values, vectors = np.linalg.eigh(Lam - np.diag(precision.mean[free]))  # rounding must not make it negative
    return Told(pack(np.einsum("nij,nj,nkj->nik", vectors, np.maximum(values, 0.0), vectors)), eta, columns)


def _turn(mean_square: np.ndarray, columns: Moments, where: list[Layout]) -> tuple[np.ndarray, np.ndarray]:
    """What turns rows, u' = T u, and the inverse of what turns columns then, v' = M v: T' in their coordinates."""
    # The components of rows of this mean square E[u u'] become standardised, those of columns uncorrelated.
    K, one = where[0].rank, where[0].one
    shift = mean_square[:K, one] if one >= 0 else np.zeros(K)
    A = np.linalg.cholesky(mean_square[:K, :K] - np.outer(shift, shift))
    sizes = unpack(second_moments(columns)[:, packed_index(np.arange(K))].sum(axis=0), K)
    B = A @ np.linalg.eigh(A.T @ sizes @ A)[1][:, ::-1]
    B *= np.sign(B[np.argmax(np.abs(B), axis=0), np.arange(K)])  # as near to what it was as may be
    T, back = np.eye(where[0].size), np.eye(where[1].size)
    T[:K, :K] = np.linalg.inv(B)
    back[:K, :K] = T[:K, :K].T
    if one >= 0:  # which stands opposite to the bias of the columns: b' = b + shift'v
        T[:K, one] = -T[:K, :K] @ shift
        back[where[1].bias[0], :K] = T[:K, one]
    return T, back


def _turned(rows: Moments, T: np.ndarray) -> Moments:
    """Moments of T u."""
    cov = np.einsum("ij,njk,lk->nil", T, unpack(rows.cov, len(T)), T)
    return Moments(rows.mean @ T.T, pack(cov), False)


def _turned_sites(told: Told, back: np.ndarray) -> Told:
    """Natural parameters of M v, where `back` is the inverse of M."""
    Lam = unpack(told.Lam, len(back))
    return told._replace(Lam=pack(np.einsum("ji,njk,kl->nil", back, Lam, back)), eta=told.eta @ back)


def _columns(told: Told, precision: Gammas, entity: Entity) -> Moments:
    """The columns' posterior, from what was said of them and their prior."""
    free, n = entity.free, len(told.eta)
    cov = np.linalg.inv(unpack(told.Lam, len(free)) + np.diag(precision.mean[free]))
    mean = np.einsum("nij,nj->ni", np.broadcast_to(cov, (n, *cov.shape[1:])), told.eta)
    return with_one(free, len(entity.precision), mean, pack(cov))
