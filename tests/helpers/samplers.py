"""The joint test of Geweke (2004, JASA 99) for the samplers: simulate (rows, parameter, y) in two ways.

Directly from the prior and the model; and as a chain that alternates one sweep of the sampler given y with new data
given the rows. If the sampler leaves the posterior invariant, both have the same law.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.subsets import with_extents
from tensorcep.cp.posterior import GammaNoise
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.base import ModePrior
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior

SHAPE = (3, 2, 2)
COORDS = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [2, 0, 0], [2, 1, 1], [0, 0, 1], [1, 1, 1]])
SD = 0.6
MEAN = 0.3
THETA_PRIOR = (6.0, 4.0)
# Mean and variance of latent values about which entries are matched, after so many sweeps that they stay there.
AROUND, LATE = (1.0, 0.1), 10**9
CP = np.ones((3, 2), dtype=bool)
# A main effect, a pair and a full component; every mode has clamped columns, and not equally many.
STRUCTURED = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], dtype=bool)


# How strong learned priors are, so that latent values have moderate tails.
STRENGTH = {"learned": 10.0, "ard": 2e3}


def prior_of(free):
    """Prior of the columns, those that are not free clamped at 1."""
    return Prior(list(np.where(free, MEAN, 1.0)), list(np.where(free, 1.0 / SD**2, CLAMPED)))


def learned_prior(free, kind="learned"):
    """One of LEARNED, with its strength above: under weak priors of the prior chains stay long in the tails."""
    prior = natural_prior(prior_of(free), SHAPE, free.shape[1])
    mean, sd = np.where(free, MEAN, 1.0), np.full(free.shape, SD)
    return LEARNED[kind](*prior, mean, sd, free, strength=STRENGTH[kind])


def draw_rows(free, learned, rng):
    """Rows from their prior, which is drawn too where it is learned."""
    prior = prior_of(free)
    modes = ModePrior(np.array(prior.mean), np.array([np.diag(p) for p in prior.precision]))
    if learned:
        modes = learned_prior(free, learned).draw(modes, [np.empty((0, free.shape[1]))] * 3, rng)
    rows = []
    for n, mean, precision, mine in zip(SHAPE, modes.mean, modes.precision, free, strict=True):
        root = np.linalg.cholesky(np.linalg.inv(precision))
        rows.append(np.where(mine, mean + rng.standard_normal((n, len(mine))) @ root.T, 1.0))
    return np.concatenate(rows)


def latent(rows):
    packed = COORDS + offsets(SHAPE)[:-1]
    return rows[packed].prod(axis=1).sum(axis=1)


def with_theta(state, theta):
    """The state of chains whose parameters have these numbers (C, m)."""
    every = []
    for draws, line in zip(state.parameters, theta, strict=True):
        parts = np.split(line, np.cumsum([len(own.theta) for own in draws])[:-1])
        every.append(tuple(own._replace(theta=part) for own, part in zip(draws, parts, strict=True)))
    return state._replace(parameters=tuple(every))


def statistics(rows, theta, y):
    f = latent(rows)
    log_theta = np.log(theta)
    return np.array(
        [
            np.tanh(rows).mean(),
            (np.tanh(rows) ** 2).mean(),
            np.tanh(f).mean(),
            np.tanh(f) @ np.tanh(f),
            log_theta,
            log_theta**2,
            (np.log1p(np.abs(y)) * np.tanh(f)).mean(),
        ]
    )


def new_data(name, rows, theta, rng, extent=None):
    likelihood = get_likelihood(name)
    f, theta = latent(rows), np.full(len(COORDS), theta)
    f, theta = (f, theta) if extent is None else likelihood.at(f, theta, extent)
    return np.minimum(likelihood.check_y(likelihood.sample(rng, f, theta)), 1e5)


def direct(name, n, rng, free, learned, extent=None):
    found = []
    for _ in range(n):
        rows = draw_rows(free, learned, rng)
        theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(statistics(rows, theta, new_data(name, rows, theta, rng, extent)))
    return np.array(found)


def chained(method, options, name, n, rng, free, learned, extent):
    likelihood, threads = get_likelihood(name), ThreadExecutor(1)
    parameter = likelihood.parameter
    noise = GammaNoise(*THETA_PRIOR) if parameter is not None and parameter.is_precision else None
    rows = draw_rows(free, learned, rng)
    theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
    R, found = free.shape[1], []
    prior = learned_prior(free, learned) if learned else FixedPrior(*natural_prior(prior_of(free), SHAPE, R))
    for sweep in range(n):
        y = new_data(name, rows, theta, rng, extent)
        p = Problem(
            with_extents(pack_entries(COORDS, y, SHAPE), likelihood, extent),
            SHAPE,
            R,
            likelihood,
            prior,
            rows,
            noise,
            sweep,
        )
        p = p._replace(free=None if free.all() else free)
        state = method.init(p, options, threads)
        state = with_theta(state, np.full(state.theta.shape, theta))
        around = state.own.around
        if around is not None:  # what proposals are made of must not be made of the present rows
            around.mean[:], around.variance[:] = AROUND
            state = state._replace(sweeps=LATE)
        state, _ = method.step(state, p, options, threads)
        rows = state.rows[0].copy()
        theta = float(state.theta[0, 0])
        if parameter is None:  # keep the two laws comparable
            theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1]
        found.append(statistics(rows, theta, y))
    return np.array(found)


def geweke_z(method, options, name, n=3000, seed=0, free=CP, learned=None, extent=None):
    """`z_of_means` of the statistics; `learned` names the kind of learned prior that rows have, if any."""
    a = direct(name, 4 * n, np.random.default_rng([seed, 0]), free, learned, extent)
    b = chained(method, options, name, n, np.random.default_rng([seed, 1]), free, learned, extent)
    return z_of_means(a, b)


def z_of_means(direct, chained):
    """Differences of the means (m,) of independent draws (n, m) and of a chain's in standard errors.

    Those of the chain are told from 30 batches.
    """
    direct, chained = np.asarray(direct), np.asarray(chained)
    batches = chained[: len(chained) - len(chained) % 30].reshape(30, -1, chained.shape[1]).mean(axis=1)
    variance = direct.var(axis=0) / len(direct) + batches.var(axis=0, ddof=1) / 30
    return (direct.mean(axis=0) - chained.mean(axis=0)) / np.sqrt(variance + 1e-300)
