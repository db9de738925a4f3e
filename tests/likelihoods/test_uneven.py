"""Noise that differs: densities against Student's t and numeric integration, fits, quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_t, norm, t

from tensorcep.likelihoods.parameters.scale_mixture import (
    ALPHAS,
    GroupSums,
    best_tau,
    fitted,
    log_evidence,
    log_evidences,
    nodes,
    same_size,
    seen_through,
    strata,
    student_logpdf,
)


@pytest.mark.parametrize("alpha", [1.1, 3.0, 200.0])
def test_evidence_of_entries_is_the_density_of_students_t(rng, alpha):
    rest, tau = 3.0 * rng.standard_normal(20), 0.7
    exact = t(2.0 * alpha, scale=tau**-0.5).logpdf(rest)
    np.testing.assert_allclose(student_logpdf(rest, tau, np.array(alpha)), exact, rtol=1e-9)
    assert log_evidence(GroupSums(np.array(1.0), rest**2), tau, alpha) == pytest.approx(exact.sum(), rel=1e-9)


def test_evidence_of_a_row_is_the_density_of_a_multivariate_t(rng):
    rest, tau, alpha = rng.standard_normal(5), 2.0, 2.5
    exact = multivariate_t(np.zeros(5), np.eye(5) / tau, df=2.0 * alpha).logpdf(rest)
    assert log_evidence(GroupSums(np.array([5.0]), np.array([rest @ rest])), tau, alpha) == pytest.approx(exact)


def test_evidence_at_all_shapes_differs_from_the_evidence_by_a_constant(rng):
    groups = GroupSums(np.array([3.0, 5.0, 3.0, 0.0]), np.array([1.0, 9.0, 0.2, 0.0]))
    apart = log_evidences(groups, 1.3) - [log_evidence(groups, 1.3, alpha) for alpha in ALPHAS]
    np.testing.assert_allclose(apart, apart[0], atol=1e-9)


@each("alpha", [1.1, 2.0, 8.0, 100.0, 1e6])
def test_nodes_integrate_a_normal_density_over_the_factors(alpha):
    y = np.array([0.0, 1.0, 5.0, 60.0]) if alpha < 100.0 else np.array([0.0, 1.0, 4.0])
    factor, log_weight = nodes(np.array(alpha))
    mine = logsumexp(log_weight[:, None] + norm(0.0, factor[:, None] ** -0.5).logpdf(y), axis=0)
    np.testing.assert_allclose(mine, t(2.0 * alpha).logpdf(y), atol=1e-3)


def test_strata_fill_the_law_evenly_over_all_components():
    shape = np.full((200, 1), 2.0)
    factors = np.sort(strata(shape, 3).ravel())
    levels = (np.arange(600) + 0.5) / 600
    np.testing.assert_allclose(gamma(2.0, scale=0.5).cdf(factors), levels, atol=5e-3)
    assert strata(np.full((1, 4), 2.0), 5).shape == (5, 1, 4)


def test_best_tau_is_a_maximum_with_its_curvature(rng):
    groups, prior, alpha = GroupSums(np.full(6, 4.0), rng.gamma(2.0, size=6) * 3.0), (0.5, 0.2), 1.7

    def height(log_tau):
        tau = np.exp(log_tau)
        return log_evidence(groups, tau, alpha) + prior[0] * log_tau - prior[1] * tau

    tau, curvature = best_tau(groups, prior, 30.0, alpha)
    at, h = np.log(tau), 1e-3
    assert (height(at + h) - height(at - h)) / (2 * h) == pytest.approx(0.0, abs=1e-4)
    assert -(height(at + h) - 2 * height(at) + height(at - h)) / h**2 == pytest.approx(curvature, rel=1e-3)


@pytest.mark.parametrize("place", [0, 10, 20])
def test_fit_finds_precision_and_shape_from_any_start(rng, place):
    rows = rng.gamma(2.0, 0.5, 300)
    squares = (rng.standard_normal((300, 30)) ** 2).sum(axis=1) / (9.0 * rows)
    found = fitted(GroupSums(np.full(300, 30.0), squares), (1e-3, 1e-3), 1.0, place)
    assert 1.5 < found.alpha < 2.7
    assert found.tau == pytest.approx(9.0, rel=0.15)
    even = fitted(GroupSums(np.array(1.0), rng.standard_normal(5000) ** 2), (1e-3, 1e-3), 4.0, place)
    assert even.alpha > 10.0


def test_steps_through_a_spread_find_the_noise_behind_it(rng):
    noise, spread = 0.5 * rng.standard_t(4.0, 4000), np.full(4000, 0.3)
    squares, tau = (noise + np.sqrt(spread) * rng.standard_normal(4000)) ** 2, 1.0
    heights = []
    for _ in range(100):
        height, tau = seen_through(squares, spread, tau, 2.0)
        heights.append(height)
    assert (np.diff(heights) > -1e-9).all()
    assert tau == pytest.approx(4.0, rel=0.15)
    wrong = seen_through(squares, spread, same_size(tau, 2.0, float(ALPHAS[-1])), float(ALPHAS[-1]))[0]
    assert wrong < heights[-1] - 20.0
