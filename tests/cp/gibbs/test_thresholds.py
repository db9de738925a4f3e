"""Ordered levels in the Gibbs sampler: the joint test, and a bug that it must find."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.samplers import COORDS, CP, SHAPE, draw_rows, latent, prior_of, with_theta, z_of_means

from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.likelihoods.ordinal import ordinal
from tensorcep.likelihoods.parameters import thresholds as parameter
from tensorcep.priors.fixed import FixedPrior, natural_prior

# Of nine statistics 4.5 standard errors happen once in 15,000 runs.
LIMIT = 4.5
RECORD = ordinal("probit", np.ones(4))


def prior_thresholds(rng):
    return np.cumsum(rng.gamma(2.0, size=2) / RECORD.levels.rate)


def new_levels(rows, thresholds, rng):
    return RECORD.by_component(thresholds[None]).sample(rng, latent(rows), np.zeros(len(COORDS)))


def statistics(rows, thresholds, y):
    f, gaps = np.tanh(latent(rows)), np.log(np.diff(thresholds, prepend=0.0))
    level = y / 3.0
    return np.array([f.mean(), f @ f, *gaps, *gaps**2, gaps.prod(), (level * f).mean(), level.mean() * gaps.sum()])


def direct(n, rng):
    found = []
    for _ in range(n):
        rows, thresholds = draw_rows(CP, False, rng), prior_thresholds(rng)
        found.append(statistics(rows, thresholds, new_levels(rows, thresholds, rng)))
    return np.array(found)


def chained(n, rng):
    threads, options, method = ThreadExecutor(1), settings_of("gibbs", 200, burn_in=0, n_chains=1), METHODS["gibbs"]
    prior = FixedPrior(*natural_prior(prior_of(CP), SHAPE, 2))
    rows, thresholds, found = draw_rows(CP, False, rng), prior_thresholds(rng), []
    for sweep in range(n):
        y = new_levels(rows, thresholds, rng)
        p = Problem(pack_entries(COORDS, y, SHAPE), SHAPE, 2, RECORD, prior, rows, None, sweep)
        state = method.init(p, options, threads)
        state = with_theta(state, thresholds[None])
        state, _ = method.step(state, p, options, threads)
        rows, thresholds = state.rows[0].copy(), state.theta[0].copy()
        found.append(statistics(rows, thresholds, y))
    return np.array(found)


def geweke_z(n=1500):
    """As `helpers.samplers.geweke_z`."""
    return z_of_means(direct(4 * n, np.random.default_rng([0, 0])), chained(n, np.random.default_rng([0, 1])))


@pytest.mark.slow
def test_thresholds_pass_the_joint_test():
    z = geweke_z()
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
def test_thresholds_drawn_where_entries_count_twice_fail_the_joint_test(monkeypatch):
    original = parameter.draw_thresholds

    def wrong(levels, now, stats, rng):
        return original(levels, now, stats._replace(used=2.0 * stats.used), rng)

    monkeypatch.setattr(parameter, "draw_thresholds", wrong)
    z = geweke_z()
    assert np.abs(z).max() > LIMIT, z
