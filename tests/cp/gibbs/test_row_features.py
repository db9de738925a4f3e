"""Gibbs sampling with features of rows: Geweke's joint test, ranks of what was simulated, twins with a planted bug."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.ranks import FEW, LIMIT, Drawn, drawn_noise, of_cells, rank_z
from helpers.samplers import (
    COORDS,
    CP,
    MEAN,
    SHAPE,
    STRUCTURED,
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
from tensorcep.priors import regression
from tensorcep.priors.base import ModePrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import design

# Features of the rows of the first mode, and a prior of their strength that keeps latent values moderate.
X = design(np.array([[1.0, 0.0], [-1.0, 1.0], [0.5, -1.0]]), np.ones(3, dtype=bool), ("x", "z"))
STRENGTH = (4.0, 6.0)


def features_prior(free):
    return replace(learned_prior(free), designs=[X, None, None], feature_strength=STRENGTH)


def direct_rows(free, rng):
    """Rows from their prior and its parameters."""
    prior = prior_of(free)
    modes = ModePrior(np.array(prior.mean), np.array([np.diag(p) for p in prior.precision]))
    modes = learned_prior(free).draw(modes, [np.empty((0, free.shape[1]))] * 3, rng)
    coef = np.zeros((2, free.shape[1]))
    own = modes.precision[0][np.ix_(free[0], free[0])] * (rng.gamma(STRENGTH[0]) * X.size / STRENGTH[1])
    coef[:, free[0]] = rng.standard_normal((2, int(free[0].sum()))) @ np.linalg.cholesky(np.linalg.inv(own)).T
    means = [modes.mean[0] + X.times(coef), modes.mean[1], modes.mean[2]]
    rows = []
    for n, mean, precision, mine in zip(SHAPE, means, modes.precision, free, strict=True):
        root = np.linalg.cholesky(np.linalg.inv(precision))
        rows.append(np.where(mine, mean + rng.standard_normal((n, len(mine))) @ root.T, 1.0))
    return np.concatenate(rows)


def with_map(rows, theta, y):
    """The statistics, and how rows go with their features."""
    along = np.tanh(2.0 * (rows[:3] - MEAN)).T @ X.matrix
    return np.append(statistics(rows, theta, y), (along**2).mean(axis=0))


def joint_z(free, n):
    rng, found, priors = np.random.default_rng([7, 0]), [], None
    for _ in range(3 * n):
        rows, theta = direct_rows(free, rng), rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(with_map(rows, theta, new_data("gaussian", rows, theta, rng)))
    threads, options = ThreadExecutor(1), settings_of("gibbs", 200, burn_in=0, n_chains=1)
    by_turns = []
    for sweep in range(n):
        y = new_data("gaussian", rows, theta, rng)
        entries, likelihood, noise = (
            pack_entries(COORDS, y, SHAPE),
            get_likelihood("gaussian"),
            GammaNoise(*THETA_PRIOR),
        )
        p = Problem(entries, SHAPE, free.shape[1], likelihood, features_prior(free), rows, noise, sweep)
        p = p._replace(free=None if free.all() else free)
        state = samplers.GIBBS.init(p, options, threads)
        state = with_theta(state, np.full(state.theta.shape, theta))
        if priors is not None:  # the strength of the map is part of the state
            state = state._replace(hyper=priors)
        state, _ = samplers.GIBBS.step(state, p, options, threads)
        rows, theta, priors = state.rows[0].copy(), float(state.theta[0, 0]), state.hyper
        by_turns.append(with_map(rows, theta, y))
    return z_of_means(found, by_turns)


@pytest.mark.slow
@pytest.mark.parametrize(("free", "most_direct"), [(CP, 2000), (CP, 0), (STRUCTURED, 2000)])
def test_sweeps_with_features_pass_the_joint_test(monkeypatch, free, most_direct):
    monkeypatch.setattr(regression, "MOST_DIRECT", most_direct)
    assert np.abs(joint_z(free, 600)).max() < 4.5


def test_sweeps_without_the_map_fail_the_joint_test(monkeypatch):
    monkeypatch.setattr(PriorByMode, "shift", lambda *args, **how: None)
    assert np.abs(joint_z(CP, 300)).max() > 6.0


def simulated(likelihood):
    def simulate(rng):
        rows, theta = direct_rows(CP, rng), drawn_noise(rng)
        return Drawn(rows, theta, new_data(likelihood, rows, theta[0], rng), features_prior(CP))

    return simulate


def with_features_of(rows, theta, y):
    """What ranks are of; the last two are how rows go with their features, whatever the components' signs."""
    return [*of_cells(rows, theta, y), *(((rows[:3] - MEAN).T @ X.matrix) ** 2).sum(axis=0)]


def with_noise(rows, theta, y):
    return [*with_features_of(rows, theta, y), theta[0]]


SIMULATED = pytest.mark.parametrize(
    ("likelihood", "statistics"), [("gaussian", with_noise), ("logit", with_features_of)], ids=["gibbs", "pg-gibbs"]
)


@pytest.mark.slow
@SIMULATED
def test_ranks_of_rows_with_features_are_uniform(likelihood, statistics):
    z = rank_z(simulated(likelihood), statistics, likelihood)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
@SIMULATED
def test_ranks_of_rows_without_the_map_are_not(monkeypatch, likelihood, statistics):
    monkeypatch.setattr(PriorByMode, "shift", lambda *args, **how: None)
    z = rank_z(simulated(likelihood), statistics, likelihood, n=FEW)
    assert np.abs(z).max() > LIMIT, z
