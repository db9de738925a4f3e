"""The projection onto the nearest Gaussian inside sweeps against the slower one to rounding error."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcep.core.compile import LOGLIK_SIGNATURE, address_of
from tensorcep.ep.projections import Tilted, project
from tensorcep.kernels.nearest import SCRATCH, narrow
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.arrays import tilted_moments


def narrowed(name, y, m, v, theta):
    """beta by moments, of the nearest Gaussians by quadrature, and by the kernel."""
    record = get_likelihood(name)
    _, alpha, beta = tilted_moments(record.tilted, y, m, v, theta)
    found = beta.copy()
    narrow(
        address_of(record.loglik, LOGLIK_SIGNATURE), y, m, v, theta, alpha, found, np.zeros((SCRATCH, LANES))
    )  # fmt: skip
    return beta, project(Tilted(record, y, theta, m, v), alpha, beta), found


@pytest.mark.parametrize(
    ("name", "widest", "tolerance"),
    [("probit", 1.0, 2e-12), ("logit", 1.0, 2e-12), ("poisson", 0.7, 1e-10), ("negbinomial", 0.7, 2e-12)],
)
def test_kernel_projects_as_the_quadrature_does(name, widest, tolerance, rng):
    n = 300
    s = 10.0 ** rng.uniform(-2.0, widest, n)
    if name in ("probit", "logit"):
        y, m = rng.choice([-1.0, 1.0], n), rng.uniform(-6.0, 6.0, n) * np.sqrt(1.0 + s * s)
    else:
        y, m = rng.poisson(4.0, n).astype(float), rng.uniform(-2.0, 4.0, n)
    v = s * s
    by_moments, wanted, found = narrowed(name, y, m, v, np.full(n, 2.0))
    deviations = [np.sqrt(v * (1.0 - v * beta)) for beta in (wanted, found)]
    np.testing.assert_allclose(deviations[1], deviations[0], rtol=tolerance)
    assert (found >= by_moments).all()
    assert (found > by_moments).mean() > 0.9


def test_kernel_stays_close_where_the_density_is_far_wider_than_its_slope(rng):
    s = 10.0 ** rng.uniform(1.0, 2.0, 100)
    y, m = rng.choice([-1.0, 1.0], 100), rng.uniform(-4.0, 4.0, 100) * s
    v = s * s
    _, wanted, found = narrowed("probit", y, m, v, np.ones(100))
    np.testing.assert_allclose(1.0 - v * found, 1.0 - v * wanted, rtol=1e-6)


def test_gaussian_is_its_own_nearest(rng):
    y, m, v = rng.normal(size=20), rng.normal(size=20), np.exp(rng.normal(size=20))
    by_moments, _, found = narrowed("gaussian", y, m, v, np.full(20, 1.3))
    np.testing.assert_allclose(found, by_moments, rtol=1e-9)


def test_lanes_that_are_no_gaussian_keep_their_numbers():
    y, m, theta = np.ones(3), np.zeros(3), np.ones(3)
    v, alpha, beta = np.array([-1.0, 1.0, 1.0]), np.array([0.3, 0.3, np.nan]), np.array([0.2, 1.5, 0.4])
    kept, scratch = beta.copy(), np.zeros((SCRATCH, LANES))
    narrow(address_of(get_likelihood("probit").loglik, LOGLIK_SIGNATURE), y, m, v, theta, alpha, beta, scratch)
    np.testing.assert_array_equal(beta, kept)
