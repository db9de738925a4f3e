"""Gibbs sampling with a dispersion for every row of a mode: the law of its draws, ranks of what was simulated, bugs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.ranks import FEW, LIMIT, Drawn, fixed_prior, fixed_rows, latent, of_cells, rank_z
from helpers.samplers import COORDS, THETA_PRIOR
from scipy.special import digamma, logsumexp

from tensorcep.core.random import generator
from tensorcep.cp.model.problem import Uneven
from tensorcep.likelihoods import negbinomial
from tensorcep.likelihoods.negbinomial import draw_pooled, group_sums
from tensorcep.likelihoods.parameters.scale_mixture import ALPHAS, FactorDraw, log_evidence

# Which row of the mode whose dispersion differs an entry is of.
ROW = COORDS[:, 0]
# What the entries of five rows add to the shapes and rates of their laws; the last row has none.
SHAPE, RATE = np.array([3.0, 6.0, 1.0, 8.0, 0.0]), np.array([4.5, 1.0, 2.0, 20.0, 0.0])


def drawn(bug=0.0, n=2600):
    """Draws of log r0, log alpha, and the logs of the first and the last dispersion."""
    state, out = FactorDraw.even(np.ones(5), 1.0, 5), np.empty((n, 4))
    for sweep in range(n):
        state = draw_pooled(state, group_sums(SHAPE + bug, RATE), THETA_PRIOR, generator(0, 4, sweep))
        out[sweep] = np.log([*state.common, state.theta[0], state.theta[-1]])
    return out[100:]


def exact():
    """Their means by a grid over log r0 and alpha, given which each r has a Gamma law."""
    grid, groups, (a, b) = np.linspace(-7.0, 7.0, 500), group_sums(SHAPE, RATE), THETA_PRIOR
    height = np.array([[log_evidence(groups, np.exp(u), one) + a * u - b * np.exp(u) for u in grid] for one in ALPHAS])
    mass, alpha = np.exp(height - logsumexp(height)), ALPHAS[:, None]
    log_r = [digamma(alpha + SHAPE[i]) - np.log(alpha / np.exp(grid) + RATE[i]) for i in (0, -1)]
    return np.array([(mass * each).sum() for each in (grid, np.log(alpha), *log_r)])


def test_draws_of_dispersions_and_of_their_common_law_have_their_exact_law():
    draws, means = drawn(), exact()
    error = draws.reshape(25, -1, 4).mean(axis=1).std(axis=0) / 5.0
    assert (np.abs(draws.mean(axis=0) - means) < 5.0 * error + 1e-3).all()
    planted = drawn(bug=1.0).mean(axis=0)  # a table too many in every row
    assert (np.abs(planted - means) > 6.0 * error)[[0, 2]].all()


def simulate(rng):
    """Dispersions about a common mean, of an unknown shape, and counts."""
    alpha, rows = rng.choice(ALPHAS), fixed_rows(rng)
    theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1] * rng.gamma(alpha, size=3) / alpha
    y = rng.poisson(np.minimum(rng.gamma(theta[ROW]) * np.exp(latent(rows)), 1e5)).astype(float)
    return Drawn(rows, theta, y, fixed_prior(), Uneven(0))


def statistics(rows, theta, y):
    """The dispersions of rows, how far they are apart, and how they go with the data."""
    return [*of_cells(rows, theta, np.log1p(y)), *theta, np.log(theta).var(), np.log(theta[ROW]) @ np.log1p(y)]


def ranks(**how):
    return rank_z(simulate, statistics, "negbinomial", dispersion_prior=THETA_PRIOR, **how)


@pytest.mark.slow
def test_ranks_of_dispersions_of_rows_are_uniform():
    z = ranks()
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
def test_ranks_of_dispersions_to_which_tables_are_added_are_not(monkeypatch):
    monkeypatch.setattr(negbinomial, "group_sums", lambda shape, rate: group_sums(shape + 2.0, rate))
    z = ranks(n=FEW)
    assert np.abs(z).max() > LIMIT, z
