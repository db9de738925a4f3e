"""Split R-hat and effective sample size on chains whose values are known."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcep.core.diagnostics import effective_size, split_r_hat


def autoregressive(rng, rho, shape):
    x = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * x[:, t]
    return x


def test_diagnostics_of_independent_draws(rng):
    draws = rng.standard_normal((4, 1000, 50))
    assert np.abs(split_r_hat(draws) - 1.0).max() < 0.01
    assert effective_size(draws).mean() == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize("rho", [0.5, 0.9, -0.3])
def test_diagnostics_effective_size_of_an_autoregression(rng, rho):
    found = effective_size(autoregressive(rng, rho, (4, 4000, 40))).mean()
    assert found == pytest.approx(16_000 * (1 - rho) / (1 + rho), rel=0.08)


def test_diagnostics_see_chains_that_disagree_and_chains_that_drift(rng):
    apart = rng.standard_normal((2, 200)) + np.array([[0.0], [3.0]])
    drifting = rng.standard_normal((1, 200)) + np.linspace(0.0, 4.0, 200)
    assert split_r_hat(apart) > 1.5
    assert split_r_hat(drifting) > 1.3
    assert effective_size(apart) < 10


def test_diagnostics_of_constants_and_of_few_draws():
    assert split_r_hat(np.ones((2, 10))) == 1.0
    assert effective_size(np.ones((2, 10))) == 20.0
    assert np.isnan(split_r_hat(np.ones((2, 3)))).all()
    assert np.isnan(effective_size(np.ones((2, 3)))).all()
