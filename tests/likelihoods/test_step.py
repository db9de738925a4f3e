"""Tilted moments of the step with slack, and of MacKay's approximation of the logit."""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp
import numpy as np
from helpers.cases import each

from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "tilted.json").read_text())


def moments(name, y, m, v, theta=0.0):
    return np.concatenate(tilted_moments(get_likelihood(name).tilted, y, m, v, theta))


def step_moments(y, m, v, slack):
    """logz, alpha and beta with 40 digits."""

    def logz(mean):
        return mp.log(slack + (1 - 2 * mp.mpf(slack)) * mp.ncdf(y * mean / mp.sqrt(v)))

    with mp.workdps(40):
        return [float(logz(mp.mpf(m))), float(mp.diff(logz, m)), float(-mp.diff(logz, m, 2))]


def test_step_equals_stored_moments():
    for row in STORED["moments"]:
        np.testing.assert_allclose(moments("step", 1.0, row["m"], row["v"]), list(row["step"].values()), rtol=2e-12)


@each("slack", [0.0, 0.02, 0.3])
@each("z", [-9.0, -3.0, 0.0, 2.5, 6.0])
def test_step_equals_derivatives_with_40_digits(slack, z):
    for y, v in ((1.0, 0.3), (-1.0, 20.0)):
        m = y * z * np.sqrt(v)
        np.testing.assert_allclose(moments("step", y, m, v, slack), step_moments(y, m, v, slack), rtol=1e-11)


def test_step_with_slack_pushes_back_only_near_the_border():
    _, alpha, beta = moments("step", 1.0, -3.0, 1.0, 0.1)
    assert beta < 0 < alpha
    np.testing.assert_allclose(moments("step", 1.0, -30.0, 1.0, 0.1), [np.log(0.1), 0.0, 0.0], atol=1e-14)
    assert np.isfinite(moments("step", 1.0, -30.0, 1.0)).all()


def test_step_samples_and_predicts_with_slack(rng):
    record, f, slack = get_likelihood("step"), 0.3 + 0.8 * rng.standard_normal(100_000), 0.2
    draws = record.sample(rng, f, np.full(f.size, slack))
    p = float(record.predict(0.3, 0.64, slack)[0][0])
    assert abs(draws.mean() - p) < 6 * np.sqrt(p * (1 - p) / f.size)
    np.testing.assert_array_equal(record.sample(rng, np.array([-1.0, 2.0]), np.zeros(2)), [0.0, 1.0])


def test_mackay_gives_the_derivatives_of_its_own_normalisation():
    _, alpha, beta = moments("logit_mackay", 1.0, 0.7, 1.9)
    np.testing.assert_allclose(beta, 0.122796604, atol=5e-10)
    h = 1e-4
    up, down = moments("logit_mackay", 1.0, 0.7 + h, 1.9), moments("logit_mackay", 1.0, 0.7 - h, 1.9)
    np.testing.assert_allclose([(up[0] - down[0]) / (2 * h)], [alpha], rtol=1e-7)
    wider, narrower = moments("logit_mackay", 1.0, 0.7, 1.9 + h), moments("logit_mackay", 1.0, 0.7, 1.9 - h)
    np.testing.assert_allclose(alpha**2 - (wider[0] - narrower[0]) / h, beta, rtol=1e-6)


@each("m", [-900.0, -4.0, 0.0, 3.0, 900.0])
def test_mackay_is_near_the_exact_moments_and_symmetric(m):
    found, exact = moments("logit_mackay", 1.0, m, 1.2), moments("logit", 1.0, m, 1.2)
    np.testing.assert_allclose(np.exp(found[0]), np.exp(exact[0]), atol=1e-2)
    mirrored = moments("logit_mackay", -1.0, -m, 1.2)
    np.testing.assert_allclose(mirrored, [found[0], -found[1], found[2]], rtol=1e-15)
    assert (np.isfinite(found)).all()
