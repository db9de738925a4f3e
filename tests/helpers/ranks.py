"""Simulation-based calibration (Talts et al. 2018, arXiv:1804.06788) of the Gibbs samplers.

Rows, parameters and data are drawn from prior and model. Chains begin at these rows, which are a draw of the posterior
given the data, and so is each chain after any number of sweeps; after many it has forgotten where it began. So the rank
of a statistic of the truth among those of the chains is uniform, if sweeps leave the posterior invariant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from helpers.problems import settings_of
from helpers.samplers import COORDS, CP, MEAN, SD, SHAPE, THETA_PRIOR, latent, prior_of, with_theta

from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.gibbs.method import latent_of_chain
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import GammaNoise
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import FixedPrior, natural_prior

CHAINS, SWEEPS = 9, 15
# Of 28 numbers one is beyond this once in 5,000 runs.
LIMIT = 4.5


class Drawn(NamedTuple):
    """Rows, what is known of the noise (m,), data, the prior of the rows, and how the noise differs."""

    rows: np.ndarray
    theta: np.ndarray
    y: np.ndarray
    prior: Any
    uneven: Any = None


def fixed_rows(rng):
    """Rows of two components from the prior that is not learned."""
    return np.concatenate([MEAN + SD * rng.standard_normal((n, 2)) for n in SHAPE])


def fixed_prior():
    return FixedPrior(*natural_prior(prior_of(CP), SHAPE, 2))


# Simulations of a sampler with a planted fault, which is soon seen.
FEW = 45


def rank_z(simulate, statistics, likelihood="gaussian", n=90, sweeps=SWEEPS, **given):
    """How far mean and spread of the ranks of statistics are from those of uniform ones, in standard errors, (2 S,)."""
    method = "gibbs" if likelihood == "gaussian" else "pg-gibbs"
    options, threads = settings_of(method, 200, burn_in=0, n_chains=CHAINS, **given), ThreadExecutor(1)
    rng, ranks = np.random.default_rng(5), []
    noise = GammaNoise(*THETA_PRIOR) if likelihood == "gaussian" else None
    for seed in range(n):
        drawn = simulate(rng)
        entries, R = pack_entries(COORDS, drawn.y, SHAPE), drawn.rows.shape[1]
        p = Problem(entries, SHAPE, R, get_likelihood(likelihood), drawn.prior, drawn.rows, noise, seed)
        p = p._replace(uneven=drawn.uneven)
        state = METHODS[method].init(p, options, threads)
        state.rows[:] = drawn.rows
        state = with_theta(state, np.broadcast_to(drawn.theta, state.theta.shape))
        for c in range(CHAINS if state.own.f.size else 0):
            state.own.f[c] = latent_of_chain(state, c, p, threads)
        for _ in range(sweeps):
            state, _ = METHODS[method].step(state, p, options, threads)
        each = zip(state.rows, state.theta, strict=True)
        found = np.array([statistics(rows, theta, drawn.y) for rows, theta in each])
        ranks.append((found < statistics(drawn.rows, drawn.theta, drawn.y)).sum(axis=0))
    levels = np.arange(CHAINS + 1.0)
    even, apart = levels.mean(), (levels - levels.mean()) ** 2
    first = (np.mean(ranks, axis=0) - even) / np.sqrt(apart.mean() / n)
    second = (((np.array(ranks) - even) ** 2).mean(axis=0) - apart.mean()) / np.sqrt(apart.var() / n)
    return np.concatenate([first, second])


def of_cells(rows, theta, y):
    """Two latent values, how well they go with the data, and the sizes of the first mode's rows and of all."""
    f = latent(rows)
    return [f[0], f[5], (y * f).mean(), (rows[:3] ** 2).sum(), (rows**2).sum()]


def drawn_noise(rng):
    return np.array([rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]])
