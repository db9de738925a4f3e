"""Rows that are coupled: the covariance of a series; Geweke's joint test of Gibbs sweeps whose first mode has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers.problems import settings_of
from helpers.samplers import (
    COORDS,
    MEAN,
    SD,
    SHAPE,
    THETA_PRIOR,
    learned_prior,
    new_data,
    prior_of,
    statistics,
    with_theta,
    z_of_means,
)

from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.gibbs import method as samplers
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import GammaNoise
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.base import ModePrior


def process_covariance(of, times, length):
    """The covariance at these times of the process of a series, on a line or a circle, at scale 1."""
    apart = np.abs(times[:, None] - times)
    if length == 0.0:
        return np.eye(len(times))
    if of.circle:
        return np.cosh((0.5 * of.circle - apart) / length) / np.cosh(0.5 * of.circle / length)
    return np.exp(-apart / length)


def direct_rows(free, of, column, rng):
    """Rows from their prior and its parameters; column(scale, rng) draws one of the first mode without its level."""
    prior = prior_of(free)
    modes = ModePrior(np.array(prior.mean), np.array([np.diag(p) for p in prior.precision]))
    modes = learned_prior(free).draw(modes, [np.empty((0, free.shape[1]))] * 3, rng)
    rows = []
    for n, mean, precision, mine in zip(SHAPE, modes.mean, modes.precision, free, strict=True):
        root = np.linalg.cholesky(np.linalg.inv(precision))
        rows.append(np.where(mine, mean + rng.standard_normal((n, len(mine))) @ root.T, 1.0))
    for r in np.flatnonzero(free[0]):
        scale = rng.gamma(of.shape) / (of.shape * SD**2)
        level = MEAN + rng.standard_normal() / np.sqrt(of.mean_rows * scale)
        rows[0][:, r] = level + column(scale, rng)
    return np.concatenate(rows)


def along_the_axis(rows, theta, y):
    """The statistics, and how neighbours go together."""
    u = np.tanh(rows[:3] - MEAN)
    return np.append(statistics(rows, theta, y), [(u[0] * u[1]).mean(), (u[1] * u[2]).mean(), (u[0] * u[2]).mean()])


def coupled_z(free, known, of, column, n):
    """Differences of the statistics' means in standard errors, after n sweeps; `known` is the first mode's."""
    rng, found = np.random.default_rng([7, 0]), []
    for _ in range(3 * n):
        rows, theta = direct_rows(free, of, column, rng), rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(along_the_axis(rows, theta, new_data("gaussian", rows, theta, rng)))
    threads, options = ThreadExecutor(1), settings_of("gibbs", 200, burn_in=0, n_chains=1)
    prior, by_turns = replace(learned_prior(free), clocks=[known, None, None]), []
    for sweep in range(n):
        y = new_data("gaussian", rows, theta, rng)
        entries, likelihood = pack_entries(COORDS, y, SHAPE), get_likelihood("gaussian")
        p = Problem(entries, SHAPE, free.shape[1], likelihood, prior, rows, GammaNoise(*THETA_PRIOR), sweep)
        state = samplers.GIBBS.init(p._replace(free=None if free.all() else free), options, threads)
        state = with_theta(state, np.full(state.theta.shape, theta))
        state, _ = samplers.GIBBS.step(state, p._replace(free=None if free.all() else free), options, threads)
        rows, theta = state.rows[0].copy(), float(state.theta[0, 0])
        by_turns.append(along_the_axis(rows, theta, y))
    return z_of_means(found, by_turns)
