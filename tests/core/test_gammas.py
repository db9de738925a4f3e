"""Gamma distributions against quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

from tensorcep.likelihoods.parameters.base import divergences, gammas


def test_gammas_divergence_is_that_of_the_definition():
    a, b = np.array([2.5, 0.7]), np.array([1.5, 3.0])
    q, p = (gamma(2.5, scale=1 / 1.5), gamma(0.7, scale=1 / 3.0)), gamma(1.2, scale=1 / 0.4)
    wanted = [quad(lambda x, f=f: f.pdf(x) * (f.logpdf(x) - p.logpdf(x)), 0.0, np.inf)[0] for f in q]
    np.testing.assert_allclose(divergences(a, b, 1.2, 0.4), wanted, rtol=1e-6)
    found = gammas(a, b, 1.2, 0.4)
    assert found.divergence == pytest.approx(sum(wanted), rel=1e-6)
    np.testing.assert_allclose(found.mean, a / b)
