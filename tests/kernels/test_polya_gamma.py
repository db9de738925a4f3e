"""Polya-Gamma and Chinese-restaurant-table kernels against exact moments, distribution functions and probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import digamma

from tensorcep.core.compile import kernel
from tensorcep.core.random import new_stream, start_stream
from tensorcep.kernels.polya_gamma import (
    MAX_EXACT,
    MOST_KNOWN,
    NEAR,
    SECOND_TERM,
    SWITCH,
    coefficient,
    draw_crt,
    draw_pg,
    goes_right,
    pg_mean,
    pg_variance,
    share_above,
)

N = 1_000_000


@kernel
def crt_draws(s, x, r, out):
    for n in range(out.shape[0]):
        out[n] = draw_crt(s, x, r)


@kernel
def pg_draws(s, b, c, out):
    for n in range(out.shape[0]):
        out[n] = draw_pg(s, b, c)


def draws(b, c, n=N, seed=1):
    s, omega = new_stream(), np.empty(n)
    start_stream(s, seed, 0, 0)
    pg_draws(s, float(b), float(c), omega)
    return omega


# (b, c, mean, variance), from the closed forms with 60 digits
MOMENTS = [
    (1, 0, 0.25, 0.041666666666666664),
    (1, 1, 0.23105857863000487, 0.03444664538852302),
    (1, 10, 0.049995460213129755, 0.000499500644053938),
    (5.5, 1, 1.2708221824650268, 0.1894565496368766),
    (20, 10, 0.9999092042625951, 0.009990012881078762),
]


@each(("b", "c", "mean", "variance"), MOMENTS)
def test_pg_moments_equal_closed_forms(b, c, mean, variance):
    assert pg_mean(b, c) == pytest.approx(mean, rel=1e-14)
    assert pg_variance(b, c) == pytest.approx(variance, rel=1e-13)


def test_pg_moments_are_smooth_and_even_in_c():
    for c in (0.0, 1e-9, 1e-3):
        assert pg_mean(2.0, c) == pytest.approx(2.0 * (0.25 - c * c / 48.0), rel=1e-12)
        assert pg_variance(2.0, -c) == pytest.approx(2.0 * (1.0 / 24.0 - c * c / 120.0), rel=1e-11)
    assert pg_variance(1.0, 1.0 - 1e-12) == pytest.approx(pg_variance(1.0, 1.0 + 1e-12), rel=1e-11)
    assert pg_mean(1.0, 1e3) == pytest.approx(0.5e-3, rel=1e-15)


@pytest.mark.parametrize(
    ("b", "c"), [(1, 0.0), (1, 2.5), (1, 10.0), (0.3, 1.0), (2.5, 0.5), (2.5, 12.0), (5, 1.0), (100.7, 2.0)]
)
def test_pg_draws_have_exact_mean_and_variance(b, c):
    omega = draws(b, c)
    mean, variance = pg_mean(float(b), c), pg_variance(float(b), c)
    assert omega.min() > 0.0
    assert abs(omega.mean() - mean) < 5.0 * math.sqrt(variance / N)
    centred = (omega - mean) ** 2
    assert abs(centred.mean() - variance) < 5.0 * centred.std() / math.sqrt(N)


# P(omega <= w), by the inversion of the characteristic function
@pytest.mark.parametrize(
    ("w", "b", "c", "cdf"), [(0.1, 1, 0.0, 0.22768839314140943), (0.25, 1, 2.5, 0.8037265136265744)]
)
def test_pg_draws_have_exact_distribution(w, b, c, cdf):
    share = (draws(b, c) <= w).mean()
    assert abs(share - cdf) < 5.0 * math.sqrt(cdf * (1.0 - cdf) / N)


def test_pg_proposals_are_chosen_as_by_their_probability():
    for z in np.concatenate([np.linspace(0.0, MOST_KNOWN + 1.0, 400), [20.0]]):
        rate = 0.5 * z * z + math.pi**2 / 8.0
        share = share_above(z, rate)
        near = share + np.array([-0.5, 0.5, -1e-3, 1e-3, -1.0, 1.0]) * np.array([NEAR, NEAR, NEAR, NEAR, 1.0, 1.0])
        assert [goes_right(u, z, rate) for u in near] == [True, False] * 3


def test_pg_series_has_no_second_term_above_its_bound():
    at = np.concatenate([np.linspace(1e-3, SWITCH, 500), np.linspace(SWITCH, 3.0, 500)])
    assert 0.9 * SECOND_TERM < max(coefficient(1, x) for x in at) < SECOND_TERM


def test_pg_series_has_the_distribution_of_exact_sums():
    exact, series = draws(MAX_EXACT, 1.5, 20_000), draws(MAX_EXACT + 1e-9, 1.5, 20_000, seed=2)
    levels = np.quantile(np.concatenate([exact, series]), [0.05, 0.25, 0.5, 0.75, 0.95])
    gap = [(exact <= level).mean() - (series <= level).mean() for level in levels]
    assert np.abs(gap).max() < 5.0 * math.sqrt(0.5 / 20_000)


def test_pg_draws_stay_finite_for_extreme_tilts():
    for c in (1e-12, 60.0, 1e3, 1e5):
        omega = draws(1, c, 2000)
        assert np.isfinite(omega).all()
        assert omega.mean() == pytest.approx(pg_mean(1.0, c), rel=0.1)


# P(tables = l) for 7 customers and r = 2.3, from the Stirling numbers
CRT_PMF = [0.0, 0.0250803001, 0.1413274913, 0.2992553546, 0.3115093453, 0.1705884510, 0.0470824125, 0.0051566452]


@pytest.mark.parametrize(
    ("x", "r"), [(513, 2.3), (5_000, 0.7), (5_000, 55.0), (5_000, 300.0), (10**6, 2.3), (10**6, 5e3), (10**5, 1e7)]
)
def test_crt_draws_of_many_have_their_moments(x, r):
    out, s = np.empty(20_000), new_stream()
    start_stream(s, 1, 0, 0)
    crt_draws(s, float(x), r, out)
    p = r / (r + np.arange(x))
    variance = float((p * (1.0 - p)).sum())
    assert abs(out.mean() - p.sum()) < 4.5 * math.sqrt(variance / len(out))
    assert out.var() == pytest.approx(variance, rel=4.5 * math.sqrt(3.0 / len(out)))


def test_crt_draws_of_very_many_take_no_longer():
    out, s = np.empty(2000), new_stream()
    start_stream(s, 1, 0, 0)
    crt_draws(s, 1e15, 1.5, out)
    mean = 1.5 * (digamma(1e15 + 1.5) - digamma(1.5))
    assert abs(out.mean() - mean) < 4.5 * math.sqrt(mean / len(out))


def test_crt_draws_have_exact_probabilities():
    s, out = new_stream(), np.empty(N // 2)
    start_stream(s, 3, 0, 0)
    crt_draws(s, 7.0, 2.3, out)
    share = np.bincount(out.astype(int), minlength=8) / out.size
    np.testing.assert_allclose(share, CRT_PMF, atol=5.0 * math.sqrt(0.25 / out.size))
