"""Gibbs sampling of counts with exposures: Geweke's joint test of whole sweeps, and a twin with a planted bug."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.samplers import COORDS, STRUCTURED, THETA_PRIOR, geweke_z

from tensorcep.cp.gibbs import method as gibbs
from tensorcep.cp.methods import METHODS

EXPOSURE = np.linspace(0.3, 2.5, len(COORDS))


def settings():
    return settings_of("pg-gibbs", 200, burn_in=0, n_chains=1, dispersion_prior=THETA_PRIOR)


def test_geweke_of_counts_with_exposures():
    z = geweke_z(METHODS["pg-gibbs"], settings(), "negbinomial", n=1200, free=STRUCTURED, extent=EXPOSURE)
    assert np.abs(z).max() < 4.5, z


@pytest.mark.slow
def test_geweke_sees_rows_that_take_the_exposure_for_theirs(monkeypatch):
    right = gibbs.draw_sites

    def wrong(c, state, draws, problem, executor, used):
        right(c, state, draws, problem, executor, used)
        weight, target = (part.reshape(problem.entries.y.shape) for part in state.own.sites[:2])
        target += weight * problem.entries.known

    monkeypatch.setattr(gibbs, "draw_sites", wrong)
    z = geweke_z(METHODS["pg-gibbs"], settings(), "negbinomial", n=1200, extent=EXPOSURE)
    assert np.abs(z).max() > 6.0, z


@pytest.mark.slow
def test_geweke_of_trials():
    trials = np.array([1.0, 3.0, 2.0, 8.0, 5.0, 1.0, 4.0, 2.0])
    z = geweke_z(METHODS["pg-gibbs"], settings(), "binomial", n=1200, free=STRUCTURED, extent=trials)
    assert np.abs(z).max() < 4.5, z


@pytest.mark.slow
def test_geweke_sees_variables_of_twice_the_trials(monkeypatch):
    right = gibbs.draw_sites

    def wrong(c, state, draws, problem, executor, used):
        right(c, state, draws, problem, executor, used)
        state.own.sites.weight[:] *= 2.0

    monkeypatch.setattr(gibbs, "draw_sites", wrong)
    trials = np.array([1.0, 3.0, 2.0, 8.0, 5.0, 1.0, 4.0, 2.0])
    z = geweke_z(METHODS["pg-gibbs"], settings(), "binomial", n=1200, extent=trials)
    assert np.abs(z).max() > 6.0, z
