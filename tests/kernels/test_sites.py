"""Site algebra against the definitions: division, multiplication and integrals of Gaussians, precisions of any sign."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.integrate import quad
from scipy.stats import norm

from tensorcep.ep.sites import cavity, damp, log_integral, site_change, site_from_tilted

SITES = each(("tau", "nu"), [(0.7, -0.4), (0.0, 0.3), (-0.35, 1.1), (25.0, 3.0)])


def product(m, v, tau, nu):
    """Mean and variance of N(m, v) times the site."""
    precision = 1.0 / v + tau
    return (m / v + nu) / precision, 1.0 / precision


@SITES
@each("power", [1.0, 0.4])
def test_cavity_undoes_the_product_with_the_site(tau, nu, power):
    m, v = 0.6, 1.3
    np.testing.assert_allclose(cavity(*product(m, v, power * tau, power * nu), tau, nu, power), [m, v], rtol=1e-12)


def test_cavity_without_a_gaussian_has_no_positive_variance():
    assert not cavity(0.0, 2.0, 0.6, 0.0, 1.0)[1] > 0.0


@SITES
def test_site_from_tilted_gives_the_new_moments(tau, nu):
    m, v = -0.2, 1.8
    mean, variance = product(m, v, tau, nu)
    alpha, beta = (mean - m) / v, (v - variance) / v**2
    np.testing.assert_allclose(site_from_tilted(m, v, alpha, beta), [tau, nu], rtol=1e-11, atol=1e-14)


@SITES
def test_log_integral_equals_quadrature(tau, nu):
    m, v = 0.3, 1.1
    total, _ = quad(lambda f: norm.pdf(f, m, np.sqrt(v)) * np.exp(nu * f - 0.5 * tau * f * f), -40, 40, points=[m])
    np.testing.assert_allclose(log_integral(m, v, tau, nu), np.log(total), rtol=1e-9, atol=1e-12)


def test_log_integral_that_diverges_is_nan():
    assert np.isnan(log_integral(0.3, 1.0, -1.5, 0.0))


def test_damped_lies_between_and_change_counts_standard_deviations():
    assert damp(2.0, 4.0, 0.25) == 3.5
    f, s = 3.0, 0.25
    assert site_change(f, s, 0.0, 0.8) == pytest.approx(0.4)  # the mean moves by s dnu, in units of sqrt(s)
    assert site_change(f, s, 2.0, 6.0) == pytest.approx(0.5)  # the mean stays; the precision grows by half
