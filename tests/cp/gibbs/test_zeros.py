"""Structural zeros in the Gibbs sampler of counts: the joint test, and bugs that it must find."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.samplers import COORDS, CP, SHAPE, THETA_PRIOR, draw_rows, latent, prior_of, with_theta, z_of_means

from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.gibbs import method as samplers
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.likelihoods import counts as zero_inflation
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.counts import ZeroInflation, zero_inflated
from tensorcep.priors.fixed import FixedPrior, natural_prior

# Of nine statistics 4.5 standard errors happen once in 15,000 runs.
LIMIT = 4.5
ZEROS = ZeroInflation(prior=(3.0, 4.0))
RECORD = zero_inflated(get_likelihood("negbinomial"), ZEROS)


def prior_draw(rng):
    return np.array([rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1], rng.beta(*ZEROS.prior)])


def new_counts(rows, theta, rng):
    y = RECORD.by_component(theta[None]).sample(rng, latent(rows), np.zeros(len(COORDS)))
    return np.minimum(y, 1e5)


def statistics(rows, theta, y):
    f, (log_r, share) = np.tanh(latent(rows)), (np.log(theta[0]), theta[1])
    zero = y == 0.0
    each = [f.mean(), f @ f, log_r, log_r**2, share, share**2, share * zero.mean(), (zero * f).mean()]
    return np.array([*each, (np.log1p(y) * f).mean()])


def direct(n, rng):
    found = []
    for _ in range(n):
        rows, theta = draw_rows(CP, False, rng), prior_draw(rng)
        found.append(statistics(rows, theta, new_counts(rows, theta, rng)))
    return np.array(found)


def chained(n, rng):
    threads, method = ThreadExecutor(1), METHODS["pg-gibbs"]
    options = settings_of("pg-gibbs", 200, burn_in=0, n_chains=1, dispersion_prior=THETA_PRIOR)
    prior = FixedPrior(*natural_prior(prior_of(CP), SHAPE, 2))
    rows, theta, found = draw_rows(CP, False, rng), prior_draw(rng), []
    for sweep in range(n):
        y = new_counts(rows, theta, rng)
        p = Problem(pack_entries(COORDS, y, SHAPE), SHAPE, 2, RECORD, prior, rows, None, sweep)
        state = method.init(p, options, threads)
        state = with_theta(state, theta[None])
        state, _ = method.step(state, p, options, threads)
        rows, theta = state.rows[0].copy(), state.theta[0].copy()
        found.append(statistics(rows, theta, y))
    return np.array(found)


def geweke_z(n=900):
    """As `helpers.samplers.geweke_z`."""
    return z_of_means(direct(4 * n, np.random.default_rng([0, 0])), chained(n, np.random.default_rng([0, 1])))


@pytest.mark.slow
def test_structural_zeros_pass_the_joint_test():
    z = geweke_z()
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
@pytest.mark.parametrize("bug", ["the mass is left out", "all entries tell the rows"])
def test_planted_bugs_fail_the_joint_test(monkeypatch, bug):
    presence, sites = zero_inflation.presence, samplers.draw_sites
    if bug == "the mass is left out":
        monkeypatch.setattr(zero_inflation, "presence", lambda y, log_mass, share: presence(y, 0.0 * log_mass, share))
    else:
        monkeypatch.setattr(samplers, "draw_sites", lambda *given: sites(*given[:5], given[3].entries.weight))
    z = geweke_z()
    assert np.abs(z).max() > LIMIT, z
