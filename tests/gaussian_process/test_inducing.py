"""Inducing points: closed forms of FITC and VFE, gradients, and the exact process where every point is one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic

from tensorcep import GaussianProcessClassifier, GaussianProcessCountRegressor
from tensorcep.gaussian_process.engine import Observations, Stop
from tensorcep.gaussian_process.evidence import TrainingPoints
from tensorcep.gaussian_process.inducing import JITTER, InducingEvidence, Sparse, fit_inducing, inducing_points
from tensorcep.likelihoods import get_likelihood

TIGHT = Stop(300, 1e-10)


def problem(rng, likelihood="probit", n=30, theta=1.0):
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    if likelihood == "probit":
        y = (y > 0.0).astype(float)
    elif likelihood == "poisson":
        y = rng.poisson(2.0, n).astype(float)
    return TrainingPoints(X, Observations(get_likelihood(likelihood), y, theta), 0.5 * (likelihood == "poisson"))


@pytest.mark.parametrize("power", [1.0, 0.5, 1e-3])
def test_gaussian_observations_have_the_closed_form_of_bui(power, rng):
    """1 is FITC; towards 0 it is the bound of Titsias, whose last term is the trace of what is left out."""
    noise, kernel = 0.1, 1.2 * RBF(0.8)
    points = problem(rng, "gaussian", theta=1.0 / noise)
    X, Z, y = points.X, points.X[:7], points.data.y
    K = kernel(Z) + JITTER * 1.2 * np.eye(7)
    Q = kernel(X, Z) @ np.linalg.solve(K, kernel(Z, X))
    d = np.diag(kernel(X) - Q)
    C = Q + np.diag(power * d + noise)
    wanted = -0.5 * (y @ np.linalg.solve(C, y)) - 0.5 * np.linalg.slogdet(2.0 * np.pi * C)[1]
    wanted -= (1.0 - power) / (2.0 * power) * np.log1p(power * d / noise).sum()
    fit = fit_inducing(kernel, points, Sparse(Z, power, 16), TIGHT)
    np.testing.assert_allclose(fit.log_evidence, wanted, rtol=1e-10)
    if power == 1e-3:
        titsias = -0.5 * (y @ np.linalg.solve(Q + noise * np.eye(30), y)) - 0.5 * d.sum() / noise
        titsias -= 0.5 * np.linalg.slogdet(2.0 * np.pi * (Q + noise * np.eye(30)))[1]
        np.testing.assert_allclose(fit.log_evidence, titsias, rtol=5e-3)


@each("power", [1.0, 0.3])
@pytest.mark.parametrize("likelihood", ["probit", "poisson"])
def test_evidence_of_inducing_points_has_its_gradient(likelihood, power, rng):
    points = problem(rng, likelihood)
    evidence = InducingEvidence(points, Sparse(points.X[:6] + 0.05, power, 12), TIGHT)
    for kernel in (1.2 * RBF(0.8), 0.6 * Matern([1.0, 0.8], nu=1.5) + 0.1 * DotProduct(0.5)):
        for k, slope in enumerate(evidence(kernel, True)[1]):
            step = 1e-4 * np.eye(kernel.n_dims)[k]
            ends = [evidence(kernel.clone_with_theta(kernel.theta + side * step), False)[0] for side in (-1, 1)]
            assert abs((ends[1] - ends[0]) / 2e-4 - slope) < 3e-6


def test_every_point_inducing_is_the_exact_process(rng):
    X = rng.normal(size=(25, 2))
    y = X[:, 0] > 0.2 * X[:, 1]
    kernel = ConstantKernel(2.0) * Matern(1.0, nu=0.5)
    exact = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    sparse = GaussianProcessClassifier(kernel, optimizer=None, n_inducing=25, random_state=0).fit(X, y)
    new = rng.normal(size=(9, 2))
    np.testing.assert_allclose(sparse.predict_proba(new), exact.predict_proba(new), atol=1e-6)
    found, wanted = (m.log_marginal_likelihood_value_ for m in (sparse, exact))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_kernel_is_learned_with_few_inducing_points(rng):
    X = rng.uniform(0.0, 10.0, size=(400, 1))
    y = rng.poisson(2.0 + np.sin(X[:, 0]))
    model = GaussianProcessCountRegressor(1.0 * RBF(3.0), n_inducing=15, random_state=0, tol=1e-4).fit(X, y)
    exact = GaussianProcessCountRegressor(1.0 * RBF(3.0), tol=1e-4).fit(X, y)
    assert abs(model.log_marginal_likelihood_value_ - exact.log_marginal_likelihood_value_) < 0.1
    assert np.abs(model.predict(X) / exact.predict(X) - 1.0).max() < 0.03
    again = GaussianProcessCountRegressor(1.0 * RBF(3.0), n_inducing=15, random_state=0, tol=1e-4).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_inducing_points_are_distinct_and_within(rng):
    X = np.repeat(rng.normal(size=(6, 2)), 5, axis=0)
    assert len(inducing_points(X, 20, np.random.default_rng(0))) == 6
    Z = inducing_points(rng.normal(size=(300, 2)), 12, np.random.default_rng(0))
    assert Z.shape == (12, 2)


def test_kernel_without_cross_gradient_is_refused_before_learning(rng):
    X = rng.normal(size=(20, 2))
    model = GaussianProcessClassifier(RationalQuadratic(), n_inducing=4)
    with pytest.raises(ValueError, match="to be learned with n_inducing; got RationalQuadratic.* set optimizer=None"):
        model.fit(X, X[:, 0] > 0.0)
    assert model.set_params(optimizer=None).fit(X, X[:, 0] > 0.0).score(X, X[:, 0] > 0.0) > 0.8


@pytest.mark.parametrize("seed", [8, 9])
def test_batch_whose_sites_would_leave_no_posterior_takes_a_shorter_step(seed):
    """Counts under the square link have sites of negative precision; moved all at once they may outweigh the prior."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24, 3))
    y = np.floor(np.exp(X[:, 0]) + rng.random(24))
    model = GaussianProcessCountRegressor(n_inducing=5, power=0.5, random_state=0).fit(X, y)
    assert np.isfinite(model.log_marginal_likelihood())
    assert model.score(X, y) > 0.0
