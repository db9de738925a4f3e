"""A gain beyond chance."""

from __future__ import annotations

import numpy as np

from tensorcep.core.diagnostics import beyond_chance


def test_gains_of_noise_are_beyond_chance_as_often_as_the_normal_law_says(rng):
    found = np.mean([beyond_chance(rng.standard_normal(200)) for _ in range(4000)])
    assert 0.015 < found < 0.031  # above 2 standard errors: 2.3 %


def test_a_gain_of_three_standard_errors_is_no_chance_and_a_loss_is_no_gain(rng):
    noise = rng.standard_normal(400)
    noise -= noise.mean()
    assert beyond_chance(noise + 3.0 * noise.std() / 20.0)
    assert not beyond_chance(noise - 3.0 * noise.std() / 20.0)
