"""Binomial counts: scipy's mass, moments by quadrature, labels as one trial, augmentations, quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from tensorcep.core.random import new_stream
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import log_density, tilted_moments
from tensorcep.likelihoods.binomial import BINOMIAL, deviance
from tensorcep.likelihoods.logit import LOGIT

# successes, trials, mean and variance of the latent value
CASES = np.array(
    [
        (0, 1, 0.3, 1.0), (1, 1, -2.0, 0.5), (0, 7, 1.0, 2.0), (7, 7, -1.0, 2.0), (3, 7, 0.0, 0.1), (40, 90, 2.0, 4.0),
        (90, 90, 3.0, 0.01), (1, 500, -4.0, 9.0), (250, 500, 0.0, 25.0), (2, 3, 0.5, 1e-18),
    ]
)  # fmt: skip
Y, N, M, V = (np.ascontiguousarray(column, dtype=float) for column in CASES.T)


def by_quadrature(y, n, m, v):
    """log E[p(y | f)] and its first two derivatives in m, from moments of the tilted density."""
    f = m + np.sqrt(v) * np.linspace(-14.0, 14.0, 400_001)
    log_w = stats.binom.logpmf(y, n, expit(f)) - 0.5 * (f - m) ** 2 / v
    top = log_w.max()
    w = np.exp(log_w - top)
    step = (f[1] - f[0]) / np.sqrt(2.0 * np.pi * v)
    mean = w @ f / w.sum()
    spread = w @ (f - mean) ** 2 / w.sum()
    return top + np.log(w.sum() * step), (mean - m) / v, (1.0 - spread / v) / v


def test_mass_and_derivatives():
    f = np.linspace(-3.0, 3.0, len(Y))
    value, d1, d2 = log_density(BINOMIAL.loglik, Y, f, N)
    np.testing.assert_allclose(value, stats.binom.logpmf(Y, N, expit(f)), rtol=1e-11, atol=1e-12)
    h = 1e-5
    up, down = (log_density(BINOMIAL.loglik, Y, f + s, N) for s in (h, -h))
    np.testing.assert_allclose(d1, (up[0] - down[0]) / (2.0 * h), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(d2, (up[1] - down[1]) / (2.0 * h), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(BINOMIAL.third(Y, f, N), (up[2] - down[2]) / (2.0 * h), rtol=1e-5, atol=1e-6)


def test_tilted_moments():
    found = tilted_moments(BINOMIAL.tilted, Y, M, V, N)
    for i in range(len(Y) - 1):
        wanted = by_quadrature(Y[i], N[i], M[i], V[i])
        np.testing.assert_allclose([part[i] for part in found], wanted, rtol=2e-8, atol=1e-9)
    exact = log_density(BINOMIAL.loglik, Y[-1:], M[-1:], N[-1:])
    np.testing.assert_allclose([part[-1] for part in found], [exact[0][0], exact[1][0], -exact[2][0]], rtol=1e-12)
    np.testing.assert_array_equal(BINOMIAL.logpdf([4.0], [0.0], [1.0], [3.0]), [-np.inf])


def test_one_trial_is_a_label():
    f, v = np.linspace(-4.0, 4.0, 9), np.linspace(0.1, 6.0, 9)
    for label, y in ((-1.0, 0.0), (1.0, 1.0)):
        for mine, theirs in zip(
            tilted_moments(BINOMIAL.tilted, y, f, v, 1.0), tilted_moments(LOGIT.tilted, label, f, v, 1.0), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(BINOMIAL.predict(f, v, 1.0), LOGIT.predict(f, v, 1.0), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_predictions_are_those_of_the_mass():
    n, m, v = 12.0, np.array([-1.0, 0.4, 2.0]), np.array([0.0, 0.8, 5.0])
    k = np.arange(13.0)
    mass = np.exp([BINOMIAL.logpdf(k, m_i, v_i, n) for m_i, v_i in zip(m, v, strict=True)])
    np.testing.assert_allclose(mass.sum(axis=1), 1.0, rtol=1e-9)
    mean, variance = BINOMIAL.predict(m, v, n)
    np.testing.assert_allclose(mean, mass @ k, rtol=1e-8)
    np.testing.assert_allclose(variance, mass @ k**2 - (mass @ k) ** 2, rtol=1e-6)
    lower, upper = BINOMIAL.tails(5.0, m, v, n)
    np.testing.assert_allclose(lower, mass[:, :6].sum(axis=1), rtol=1e-7)
    np.testing.assert_allclose(upper, mass[:, 5:].sum(axis=1), rtol=1e-7)
    np.testing.assert_allclose(BINOMIAL.tails(12.0, m, v, n)[0], 1.0)
    for q in (0.05, 0.5, 0.93):
        wanted = (np.cumsum(mass, axis=1) < q).sum(axis=1)
        np.testing.assert_array_equal(BINOMIAL.quantile(q, m, v, n), wanted)
        both = np.cumsum(mass.mean(axis=0)) < q
        found = BINOMIAL.mixture_quantile(q, m[:, None], v[:, None], np.full((3, 1), n))
        np.testing.assert_array_equal(found, [both.sum()])
    draws = BINOMIAL.sample(np.random.default_rng(0), np.full(20_000, 0.7), np.full(20_000, n))
    assert draws.mean() == pytest.approx(n * expit(0.7), abs=6.0 * draws.std() / np.sqrt(20_000))


@pytest.mark.parametrize("y", [0.0, 4.0, 9.0])
def test_polya_gamma_bound_touches_the_likelihood_and_draws_have_its_mean(y):
    f, n = np.linspace(-4.0, 4.0, 9), np.full(9, 9.0)
    exact = log_density(BINOMIAL.loglik, y, f, 9.0)[0]

    def bound(at):
        weight, target, spread, constant = (np.empty(9) for _ in range(4))
        BINOMIAL.pg.expected(np.full(9, y), at, at * at, n, weight, target, spread, constant)
        return constant + target * f - 0.5 * weight * f * f

    np.testing.assert_allclose(bound(f), exact, atol=1e-11)
    assert (bound(f + 0.7) <= exact + 1e-12).all()
    shape = (4000, LANES)
    arrays = [np.full(shape, x) for x in (y, 1.0, 0.8, 9.0)]
    weight, target = np.ones(shape), np.zeros(shape)
    BINOMIAL.pg.drawn(0, 4000, *arrays, (3, 5, 7), weight, target, new_stream())
    assert weight.mean() == pytest.approx(9.0 * np.tanh(0.4) / 1.6, abs=6.0 * weight.std() / np.sqrt(weight.size))
    np.testing.assert_array_equal(target, y - 4.5)


def test_deviance_is_twice_the_difference_of_log_masses():
    y, n, mean, w = (
        np.array([0.0, 3.0, 5.0]),
        np.array([4.0, 6.0, 5.0]),
        np.array([1.0, 2.5, 4.0]),
        np.array([1, 2, 3.0]),
    )
    wanted = 2.0 * w @ (stats.binom.logpmf(y, n, y / n) - stats.binom.logpmf(y, n, mean / n))
    assert deviance(y, mean, n, w) == pytest.approx(wanted)
