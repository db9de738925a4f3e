"""Gibbs sampling with a series: Geweke's joint test of whole sweeps, and twins with a planted bug."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.samplers import (
    COORDS,
    CP,
    MEAN,
    SD,
    SHAPE,
    STRUCTURED,
    THETA_PRIOR,
    learned_prior,
    new_data,
    prior_of,
    statistics,
)

from tensorcep.core.belief import GammaNoise, ModePrior
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.gibbs import method as samplers
from tensorcep.cp.model import pack_entries
from tensorcep.cp.problem import Problem
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors import axis
from tensorcep.priors.drifting import SeriesPrior, with_series
from tensorcep.priors.features import Mode
from tensorcep.priors.series import Series, clock

# Unequal steps; with a season the first row has a phase of its own.
TIMES = Labels(np.array([0.0, 1.0, 3.0]))
CLOCKS = {
    name: clock(Series(**how), Mode("t", TIMES, 3))
    for name, how in {"line": {}, "season": {"period": 2.0}, "circle": {"cyclic": True, "period": 4.0}}.items()
}


def covariance(c, length):
    times = c.times
    apart = np.abs(times[:, None] - times)
    if length == 0.0:
        return np.eye(3)
    if c.circle:
        return np.cosh((0.5 * c.circle - apart) / length) / np.cosh(0.5 * c.circle / length)
    return np.exp(-apart / length)


def direct_rows(free, c, rng):
    """Rows from their prior and its parameters."""
    of = axis.axis(c, np.ones(3, dtype=bool), 10.0)
    prior = prior_of(free)
    modes = ModePrior(np.array(prior.mean), np.array([np.diag(p) for p in prior.precision]))
    modes = learned_prior(free).draw(modes, [np.empty((0, free.shape[1]))] * 3, rng)
    rows = []
    for n, mean, precision, mine in zip(SHAPE, modes.mean, modes.precision, free, strict=True):
        root = np.linalg.cholesky(np.linalg.inv(precision))
        rows.append(np.where(mine, mean + rng.standard_normal((n, len(mine))) @ root.T, 1.0))
    for r in np.flatnonzero(free[0]):
        scale = rng.gamma(of.shape) / (of.shape * SD**2)
        root = np.linalg.cholesky(covariance(c, rng.choice(of.grid.lengths)))
        u = (
            MEAN
            + rng.standard_normal() / np.sqrt(of.mean_rows * scale)
            + root @ rng.standard_normal(3) / np.sqrt(scale)
        )
        if c.seasonal:
            season = rng.standard_normal(len(c.phases)) / np.sqrt(rng.choice(of.strengths) * scale)
            u += season[c.phase_of(c.times)]
        rows[0][:, r] = u
    return np.concatenate(rows)


def along_the_axis(rows, theta, y):
    """The statistics, and how neighbours go together."""
    u = np.tanh(rows[:3] - MEAN)
    return np.append(statistics(rows, theta, y), [(u[0] * u[1]).mean(), (u[1] * u[2]).mean(), (u[0] * u[2]).mean()])


def joint_z(free, c, n):
    rng, found = np.random.default_rng([7, 0]), []
    for _ in range(3 * n):
        rows, theta = direct_rows(free, c, rng), rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(along_the_axis(rows, theta, new_data("gaussian", rows, theta, rng)))
    threads, options = ThreadExecutor(1), settings_of("gibbs", 200, burn_in=0, n_chains=1)
    prior, by_turns = with_series(learned_prior(free), [c, None, None]), []
    for sweep in range(n):
        y = new_data("gaussian", rows, theta, rng)
        entries, likelihood = pack_entries(COORDS, y, SHAPE), get_likelihood("gaussian")
        p = Problem(entries, SHAPE, free.shape[1], likelihood, prior, rows, GammaNoise(*THETA_PRIOR), sweep)
        state = samplers.GIBBS.init(p._replace(free=None if free.all() else free), options, threads)
        state.chains.theta[:] = theta
        state, _ = samplers.GIBBS.step(state, p._replace(free=None if free.all() else free), options, threads)
        rows, theta = state.chains.factors[0].copy(), float(state.chains.theta[0, 0])
        by_turns.append(along_the_axis(rows, theta, y))
    batches = np.array(by_turns)[: n - n % 30].reshape(30, -1, len(found[0])).mean(axis=1)
    variance = np.var(found, axis=0) / len(found) + batches.var(axis=0, ddof=1) / 30
    return (np.mean(found, axis=0) - batches.mean(axis=0)) / np.sqrt(variance)


@pytest.fixture(autouse=True)
def moderate_seasons(monkeypatch):
    """Seasons with which latent values have moderate tails: chains then leave the tails soon; and few lengths."""
    monkeypatch.setattr(axis, "LENGTHS", 5)
    monkeypatch.setattr(axis, "STRENGTHS", np.array([1.0, 10.0]))


@pytest.mark.slow
@pytest.mark.parametrize(("free", "name"), [(CP, "line"), (STRUCTURED, "season"), (CP, "season"), (CP, "circle")])
def test_sweeps_with_a_series_pass_the_joint_test(free, name):
    assert np.abs(joint_z(free, CLOCKS[name], 600)).max() < 4.5


def test_sweeps_that_forget_the_neighbours_fail_the_joint_test(monkeypatch):
    right = SeriesPrior.links

    def wrong(self, k, modes):
        found = right(self, k, modes)
        return None if found is None else found._replace(between=0.0 * found.between)

    monkeypatch.setattr(SeriesPrior, "links", wrong)
    assert np.abs(joint_z(CP, CLOCKS["line"], 150)).max() > 6.0
