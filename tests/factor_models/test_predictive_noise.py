"""Predictive variances hold the mean noise variance, E[1 / tau] of its Gamma law, which few cells leave wide."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import digamma

from tensorcep import BayesianPCA
from tensorcep.factor_models.results import latent_block
from tensorcep.factor_models.settings import Gibbs


def gaps_of(rng, N, D):
    x = rng.standard_normal((N, 1)) @ rng.standard_normal((1, D)) + 0.5 * rng.standard_normal((N, D))
    hidden = rng.random((N, D)) < 0.2
    hidden[: N - 3, 0] = True  # a column of three cells, or fewer
    return np.where(hidden, np.nan, x), hidden


def mean_noise_of(model):
    """E[1 / tau] of every column, at most twice 1 / E[tau]."""
    law = model.posterior_.sites[0].noise
    gap = np.log(law.mean) - law.log_mean
    shape = np.array([brentq(lambda a, g=g: np.log(a) - digamma(a) - g, 1e-3, 1e6) for g in gap])
    times = np.where(shape > 2.0, shape / np.maximum(shape - 1.0, 1.0), 2.0)
    assert times[0] > 1.5 > times[1:].max()  # the columns do differ
    return times * model.noise_variance_


@pytest.mark.parametrize("method", ["vb", "vb-factorized"])
def test_predictive_variances_have_the_mean_noise_variance(rng, method):
    x, hidden = gaps_of(rng, 12, 8)
    model = BayesianPCA(1, method=method, max_iter=2000, random_state=0).fit(x)
    _, sd = model.predict_missing(return_std=True)
    _, latent = model.predict_latent()
    expected = np.broadcast_to(mean_noise_of(model), x.shape)
    np.testing.assert_allclose((sd**2 - latent)[hidden], expected[hidden], rtol=1e-6)
    rows, columns = np.nonzero(hidden)
    _, same = model.predict_cells(np.stack([rows, columns], axis=1), return_std=True)
    np.testing.assert_allclose(same, sd[hidden])


def test_those_of_new_rows_as_well(rng):
    x, _ = gaps_of(rng, 20, 6)
    model = BayesianPCA(1, random_state=0).fit(x)
    new = np.full((2, 6), np.nan)
    new[:, 5] = -1.0, 2.0
    _, sd = model.predict_missing(new, return_std=True)
    rows = model._new_rows(new)[1].moments[0]
    _, latent = latent_block(model._relation(0), rows, model.posterior_.moments[1])
    np.testing.assert_allclose((sd**2 - latent)[:, :5], np.tile(mean_noise_of(model)[:5], (2, 1)), rtol=1e-6)


def test_over_draws_it_is_the_mean_noise_variance_of_these(rng):
    x, hidden = gaps_of(rng, 12, 8)
    model = BayesianPCA(1, method=Gibbs(burn_in=20), max_iter=60, random_state=0).fit(x)
    _, sd = model.predict_missing(return_std=True)
    _, latent = model.predict_latent()
    relation, precisions = model._relation(0), model.posterior_.draws.noise[0]
    noise = np.mean([1.0 / relation.noise_in_units(tau) for tau in precisions], axis=0)
    np.testing.assert_allclose((sd**2 - latent)[hidden], np.broadcast_to(noise, x.shape)[hidden], rtol=1e-6)
