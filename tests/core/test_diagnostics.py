"""R-hat and effective sample sizes on chains whose values are known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.diagnostics import bulk_size, r_hat, tail_size


def autoregressive(rng, rho, shape):
    x = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * x[:, t]
    return x


def test_diagnostics_of_independent_draws(rng):
    draws = rng.standard_normal((4, 1000, 50))
    assert np.abs(r_hat(draws) - 1.0).max() < 0.01
    assert bulk_size(draws).mean() == pytest.approx(4000, rel=0.05)
    assert tail_size(draws).mean() == pytest.approx(4000, rel=0.08)


@pytest.mark.parametrize("rho", [0.5, 0.9, -0.3])
def test_diagnostics_effective_size_of_an_autoregression(rng, rho):
    found = bulk_size(autoregressive(rng, rho, (4, 4000, 40))).mean()
    assert found == pytest.approx(16_000 * (1 - rho) / (1 + rho), rel=0.08)


def test_diagnostics_see_chains_that_disagree_and_chains_that_drift(rng):
    apart = rng.standard_normal((2, 200)) + np.array([[0.0], [3.0]])
    drifting = rng.standard_normal((1, 200)) + np.linspace(0.0, 4.0, 200)
    assert r_hat(apart) > 1.5
    assert r_hat(drifting) > 1.3
    assert bulk_size(apart) < 10


def test_diagnostics_of_constants_and_of_few_draws():
    assert r_hat(np.ones((2, 10))) == 1.0
    assert bulk_size(np.ones((2, 10))) == 20.0
    assert np.isnan(r_hat(np.ones((2, 3)))).all()
    assert np.isnan(bulk_size(np.ones((2, 3)))).all()
    assert tail_size(np.ones((2, 10))) == 20.0
    assert r_hat(np.zeros((2, 10, 0, 3))).shape == (0, 3)


def test_r_hat_sees_chains_that_differ_in_spread_alone(rng):
    apart = rng.standard_normal((2, 400)) * np.array([[1.0], [4.0]])
    assert r_hat(apart) > 1.2
    assert bulk_size(apart) > 400


def test_r_hat_and_sizes_do_not_change_under_monotone_transforms(rng):
    draws = autoregressive(rng, 0.6, (3, 101, 4))
    for find in (bulk_size, tail_size):
        np.testing.assert_allclose(find(np.exp(3.0 * draws)), find(draws))


@each("shape", [(4, 100), (2, 401), (4, 23), (3, 8)])
@each("rho", [0.0, 0.9, -0.4])
def test_diagnostics_are_those_of_arviz(rng, shape, rho):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations, on import
        az = pytest.importorskip("arviz", reason="arviz is not installed: pip install 'tensorcep[arviz]'")
    draws = np.sinh(autoregressive(rng, rho, (*shape, 3)))
    for j in range(3):
        np.testing.assert_allclose(r_hat(draws)[j], az.rhat(draws[..., j]), rtol=1e-12)
        np.testing.assert_allclose(bulk_size(draws)[j], az.ess(draws[..., j], method="bulk"), rtol=1e-9)
        tails = az.ess(draws[..., j], method="tail", prob=(0.05, 0.95))
        np.testing.assert_allclose(tail_size(draws)[j], tails, rtol=1e-9)
