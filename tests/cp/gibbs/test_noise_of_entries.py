"""Gibbs sampling with a noise for every entry: the joint test, and bugs that it must find."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.samplers import COORDS, CP, SHAPE, THETA_PRIOR, draw_rows, latent, prior_of, z_of_means

from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem, Uneven
from tensorcep.cp.posterior import GammaNoise
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.parameters import scale_mixture
from tensorcep.likelihoods.parameters.scale_mixture import ALPHAS
from tensorcep.likelihoods.tobit import censored_at
from tensorcep.priors.fixed import FixedPrior, natural_prior

# Of nine statistics 4.5 standard errors happen once in 15,000 runs.
LIMIT = 4.5


def prior_noise(rng):
    """The precision that factors multiply, and the place of the shape of their law."""
    return rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1], int(rng.integers(len(ALPHAS)))


def factors(noise, rng):
    return rng.gamma(ALPHAS[noise[1]], size=len(COORDS)) / ALPHAS[noise[1]]


def new_values(likelihood, rows, noise, factor, rng):
    return likelihood.check_y(likelihood.sample(rng, latent(rows), noise[0] * factor))


def statistics(rows, noise, y):
    f, (log_tau, log_alpha) = np.tanh(latent(rows)), np.log([noise[0], ALPHAS[noise[1]]])
    rest = np.log1p((y - latent(rows)) ** 2).mean()
    each = [f.mean(), f @ f, log_tau, log_tau**2, log_alpha, log_alpha**2, rest * log_alpha, rest * log_tau]
    return np.array([*each, (np.tanh(y) * f).mean()])


def direct(likelihood, n, rng):
    found = []
    for _ in range(n):
        rows, noise = draw_rows(CP, False, rng), prior_noise(rng)
        found.append(statistics(rows, noise, new_values(likelihood, rows, noise, factors(noise, rng), rng)))
    return np.array(found)


def chained(likelihood, n, rng):
    threads, options, method = ThreadExecutor(1), settings_of("gibbs", 200, burn_in=0, n_chains=1), METHODS["gibbs"]
    prior = FixedPrior(*natural_prior(prior_of(CP), SHAPE, 2))
    rows, noise, found = draw_rows(CP, False, rng), prior_noise(rng), []
    factor = factors(noise, rng)
    for sweep in range(n):
        y = new_values(likelihood, rows, noise, factor, rng)
        entries = pack_entries(COORDS, y, SHAPE)
        p = Problem(entries, SHAPE, 2, likelihood, prior, rows, GammaNoise(*THETA_PRIOR), sweep, uneven=Uneven(None))
        state = method.init(p, options, threads)
        ((draw,),) = state.parameters
        draw = draw._replace(theta=np.full(1, noise[0]), base=noise[0], place=noise[1])
        kept = draw.of_entry.ravel()[: len(y)]
        kept[:] = factor[entries.permutation[: len(kept)]]
        state, _ = method.step(state._replace(parameters=((draw,),)), p, options, threads)
        ((draw,),) = state.parameters
        rows, noise = state.rows[0].copy(), (draw.base, draw.place)
        factor = factors(noise, rng)
        if len(kept):  # with targets that are drawn, factors are a part of the state
            factor[entries.permutation] = kept
        found.append(statistics(rows, noise, y))
    return np.array(found)


def geweke_z(likelihood=GAUSSIAN, n=1500):
    """As `helpers.samplers.geweke_z`."""
    a, b = (way(likelihood, m, np.random.default_rng([0, m])) for way, m in ((direct, 4 * n), (chained, n)))
    return z_of_means(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [GAUSSIAN, censored_at(0.0)], ids=["values", "at a limit"])
def test_noise_of_entries_passes_the_joint_test(likelihood):
    z = geweke_z(likelihood)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
def test_factors_drawn_as_if_noise_were_smaller_fail_the_joint_test(monkeypatch):
    right = scale_mixture.draw_factors

    def wrong(first, last, target, used, f, law, *rest):
        right(first, last, target, used, f, (2.5 * law[0], law[1]), *rest)

    monkeypatch.setattr(scale_mixture, "draw_factors", wrong)
    z = geweke_z()
    assert np.abs(z).max() > LIMIT, z
