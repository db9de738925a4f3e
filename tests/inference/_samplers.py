"""The joint test of Geweke (2004, JASA 99) for the samplers: simulate (rows, parameter, y) in two ways.

Directly from the prior and the model; and as a chain that alternates one sweep of the sampler given y with new data
given the rows. If the sampler leaves the posterior invariant, both have the same law.
"""

from __future__ import annotations

import numpy as np

from tensorcep.inference._run import Problem, Threads
from tensorcep.likelihoods import get_likelihood
from tensorcep.models.cp import pack_entries
from tensorcep.posterior import GammaNoise, Prior, natural_prior, offsets

SHAPE = (3, 2, 2)
RANK = 2
COORDS = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [2, 0, 0], [2, 1, 1], [0, 0, 1], [1, 1, 1]])
SD = 0.6
MEAN = 0.3
THETA_PRIOR = (6.0, 4.0)
PRIOR = natural_prior(Prior([MEAN] * 3, [1.0 / SD**2] * 3), SHAPE, RANK)


def latent(rows):
    packed = COORDS + offsets(SHAPE)[:-1]
    return rows[packed].prod(axis=1).sum(axis=1)


def statistics(rows, theta, y):
    f = latent(rows)
    log_theta = np.log(theta)
    return np.array(
        [
            rows.mean(),
            (rows**2).mean(),
            np.tanh(f).mean(),
            np.tanh(f) @ np.tanh(f),
            log_theta,
            log_theta**2,
            (np.log1p(np.abs(y)) * np.tanh(f)).mean(),
        ]
    )


def new_data(name, rows, theta, rng):
    likelihood = get_likelihood(name)
    y = likelihood.check_y(likelihood.sample(rng, latent(rows), np.full(len(COORDS), theta)))
    return np.minimum(y, 1e5)


def direct(name, n, rng):
    found = []
    for _ in range(n):
        rows = MEAN + SD * rng.standard_normal((sum(SHAPE), RANK))
        theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(statistics(rows, theta, new_data(name, rows, theta, rng)))
    return np.array(found)


def chained(method, options, name, n, rng):
    likelihood, threads = get_likelihood(name), Threads(1)
    noise = GammaNoise(*THETA_PRIOR) if name in ("gaussian", "tobit") else None
    rows = MEAN + SD * rng.standard_normal((sum(SHAPE), RANK))
    theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
    found = []
    for sweep in range(n):
        y = new_data(name, rows, theta, rng)
        p = Problem(pack_entries(COORDS, y, SHAPE), SHAPE, RANK, likelihood, *PRIOR, rows, noise, sweep)
        state = method.init(p, options, threads)
        state.chains.theta[:] = theta
        state, _ = method.step(state, p, options, threads)
        rows = state.chains.factors[0, : sum(SHAPE), :RANK].copy()
        theta = float(state.chains.theta[0, 0])
        if name not in ("gaussian", "tobit", "negbinomial"):  # no parameter: keep the two laws comparable
            theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(statistics(rows, theta, y))
    return np.array(found)


def geweke_z(method, options, name, n=3000, seed=0):
    """Differences of the statistics' means in standard errors; those of the chain from 30 batches."""
    a = direct(name, 4 * n, np.random.default_rng([seed, 0]))
    b = chained(method, options, name, n, np.random.default_rng([seed, 1]))
    batches = b[: n - n % 30].reshape(30, -1, b.shape[1]).mean(axis=1)
    variance = a.var(axis=0) / len(a) + batches.var(axis=0, ddof=1) / 30
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(variance + 1e-300)
