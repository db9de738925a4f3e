"""Values a power of which is Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy import integrate, stats

from tensorcep.likelihoods.gaussian import GAUSSIAN, of_power

LEVEL, THETA = 1.3, 9.0


def law(power, m, v):
    """Draws of y by the definition."""
    rng = np.random.default_rng(3)
    g = LEVEL + m + np.sqrt(v + 1 / THETA) * rng.standard_normal(400_000)
    return np.exp(g) if power == 0 else np.maximum(1 + power * g, 0.0) ** (1 / power)


@each("power", [0.0, 0.25, 0.5, 0.8])
def test_moments_quantiles_and_draws_are_those_of_y(power):
    record, y = of_power(power, LEVEL), law(power, 0.4, 0.2)
    mean, variance = record.predict([0.4], [0.2], [THETA])
    assert abs(mean[0] - y.mean()) < 6 * y.std() / np.sqrt(len(y))
    np.testing.assert_allclose(variance[0], y.var(), rtol=0.03)
    for q in (0.05, 0.5, 0.95):
        own = record.quantile(q, [0.4], [0.2], [THETA])[0]
        assert abs(np.mean(y <= own) - q) < 6 * np.sqrt(q * (1 - q) / len(y))
    draws = record.sample(np.random.default_rng(1), np.full(400_000, 0.4), np.full(400_000, 1 / (0.2 + 1 / THETA)))
    assert stats.ks_2samp(draws, y).pvalue > 1e-6


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_the_density_of_observations_integrates_to_1(power):
    record = of_power(power, LEVEL)

    def density(y):
        z = record.check_y([y])
        return float(np.exp(record.logpdf(z, [0.4], [0.2], [THETA]) + record.log_slopes(z))[0])

    assert abs(integrate.quad(density, 1e-9, 60.0, limit=300)[0] - 1.0) < 1e-3


def test_a_power_of_1_is_the_gaussian_and_others_want_positive_values():
    plain = of_power(1.0, LEVEL)
    assert not plain.is_curved
    np.testing.assert_array_equal(plain.check_y([-1.0]), [-1.0 - LEVEL])
    assert GAUSSIAN.log_slopes(np.ones(2)) == 0.0
    with pytest.raises(ValueError, match=r"power=0.5 is for positive values; got -1; add a constant to all"):
        of_power(0.5, 0.0).check_y([2.0, -1.0])


def test_far_out_predictions_stay_finite():
    for power in (0.0, 0.5):
        parts = of_power(power, 0.0).predict([900.0, -900.0], [4.0, 4.0], [1.0, 1.0])
        assert np.isfinite(parts).all()
