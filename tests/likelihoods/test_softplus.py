"""Counts with a softplus rate: derivatives, predictive moments, quantiles and draws against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from tensorcep.likelihoods.base import log_density
from tensorcep.likelihoods.poisson import SOFTPLUS_POISSON as SOFTPLUS


def test_softplus_log_likelihood_and_derivatives(rng):
    f = np.concatenate([rng.normal(0.0, 4.0, 50), [-300.0, -40.0, 0.0, 500.0]])
    y = rng.poisson(3.0, len(f)).astype(float)
    value, d1, d2 = log_density(SOFTPLUS.loglik, y, f, 1.0)
    near = np.abs(f) < 30.0
    np.testing.assert_allclose(value[near], poisson(np.logaddexp(0.0, f[near])).logpmf(y[near]), rtol=1e-10)
    assert np.isfinite([value, d1, d2]).all()
    h = 1e-5
    above, below = (log_density(SOFTPLUS.loglik, y, f + step, 1.0) for step in (h, -h))
    np.testing.assert_allclose(d1[near], ((above[0] - below[0]) / (2 * h))[near], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(d2[near], ((above[1] - below[1]) / (2 * h))[near], rtol=1e-6, atol=1e-7)
    assert (-d2 <= 0.25 + 0.17 * y).all()  # what Boehning's bound rests on


def test_softplus_predictions_are_those_of_draws(rng):
    m, v = np.array([-1.0, 2.0]), np.array([0.5, 2.0])
    n = 200_000
    f = m + np.sqrt(v) * rng.standard_normal((n, 2))
    y = SOFTPLUS.sample(rng, f.ravel(), 1.0).reshape(f.shape)
    mean, variance = SOFTPLUS.predict(m, v, 1.0)
    np.testing.assert_allclose(y.mean(axis=0), mean, atol=6.0 * np.sqrt(variance.max() / n))
    np.testing.assert_allclose(y.var(axis=0), variance, rtol=0.05)
    for k in (0.0, 3.0):
        share = (y == k).mean(axis=0)
        np.testing.assert_allclose(np.exp(SOFTPLUS.logpdf(k, m, v, 1.0)), share, atol=6.0 * np.sqrt(0.25 / n))
    for q in (0.1, 0.9):
        found = SOFTPLUS.quantile(q, m, v, 1.0)
        assert ((y <= found).mean(axis=0) > q - 0.01).all()
        assert ((y < found).mean(axis=0) < q + 0.01).all()


def test_softplus_refuses_what_is_no_count():
    with pytest.raises(ValueError, match="y must hold"):
        SOFTPLUS.check_y([-1.0])
