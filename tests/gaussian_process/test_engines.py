"""EP, quantile propagation, VB and Laplace against stored numbers, each other, and finite differences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import gammaln
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic

from tensorcep.ep.gaussian import GaussianEP
from tensorcep.gaussian_process.engine import Observations, Posterior, Prior, Stop, fit_sites
from tensorcep.gaussian_process.evidence import ExactEvidence, TrainingPoints, contract
from tensorcep.gaussian_process.settings import EP, QP, VB, Laplace
from tensorcep.likelihoods import get_likelihood

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "gp.json").read_text())
SIX, COAL = STORED["six"], STORED["coal"]
X6 = np.array(SIX["x"])[:, None]
Y6 = (np.array(SIX["y"]) > 0).astype(float)
PROBIT = get_likelihood("probit")
TIGHT = Stop(500, 1e-11)


def fit(settings, K, y=Y6, likelihood="probit", mean=0.0, stop=TIGHT):
    record = get_likelihood(likelihood)
    return fit_sites(Prior(K, mean), Observations(record, y, record.default_theta), settings, stop)


@each("schedule", ["parallel", "sequential"])
@each(("kind", "name"), [(EP, "ep"), (QP, "qp")])
def test_ep_and_qp_equal_stored_posteriors(kind, name, schedule):
    found, wanted = fit(kind(schedule=schedule), RBF(1.0)(X6)), SIX[name]
    assert found.converged
    np.testing.assert_allclose(found.log_evidence, wanted["log_evidence"], rtol=1e-12)
    for array, key in ((found.posterior.f, "mu"), (found.posterior.s, "var"), (found.sites.tau, "tau")):
        np.testing.assert_allclose(array, wanted[key], rtol=1e-10)
    np.testing.assert_allclose(found.sites.nu, wanted["nu"], rtol=1e-10)
    x = np.array(SIX["xs"])[:, None]
    mean, variance = found.posterior.functions().latent(RBF(1.0)(x, X6), np.ones(len(x)))
    np.testing.assert_allclose(mean, wanted["pred_mu"], rtol=1e-10)
    np.testing.assert_allclose(variance, wanted["pred_var"], rtol=1e-10)
    if name == "ep":
        p = PROBIT.predict(mean, variance, 1.0)[0]
        np.testing.assert_allclose(p, wanted["pred_p"], rtol=1e-10)


def test_vb_and_laplace_equal_stored_bounds():
    vb, laplace = fit(VB(), RBF(1.0)(X6)), fit(Laplace(), RBF(1.0)(X6))
    np.testing.assert_allclose(vb.log_evidence, SIX["vb"]["log_evidence"], rtol=1e-12)
    np.testing.assert_allclose(vb.posterior.f, SIX["vb"]["mu"], atol=1e-6)
    np.testing.assert_allclose(vb.posterior.s, SIX["vb"]["var"], atol=1e-6)
    np.testing.assert_allclose(laplace.log_evidence, SIX["laplace"], rtol=1e-8)
    exact = SIX["exact"]
    assert vb.log_evidence < exact
    assert abs(fit(EP(), RBF(1.0)(X6)).log_evidence - exact) < 3e-6


def test_variances_differ_from_importance_sampling_as_stored():
    drawn = SIX["importance_sampling"]
    for settings, name in ((EP(), "ep"), (QP(), "qp"), (VB(), "vb")):
        posterior = fit(settings, RBF(1.0)(X6)).posterior
        off = posterior.s / np.array(drawn["is_var"]) - 1.0
        np.testing.assert_allclose(off, drawn[f"{name}_var_rel"], atol=1e-6 if name == "vb" else 1e-10)
        assert np.abs(posterior.f - drawn["is_mean"]).max() < 0.002
    assert np.abs(off).max() < 0.01


@pytest.mark.parametrize(("variance", "scale", "name"), [(4.0, 0.7, "wide")])
def test_methods_equal_stored_evidence_of_a_wider_prior(variance, scale, name):
    K, wanted = variance * RBF(scale)(X6), SIX[name]
    for settings, value in ((EP(), "ep"), (VB(), "vb"), (Laplace(), "laplace")):  # the last is of another program
        assert abs(fit(settings, K).log_evidence - wanted[value]) < 3e-8, value


def laplace_of_roots(K, y):
    """Laplace's evidence of counts under the square link and a prior mean of 1, by plain Newton steps of K = C C'."""
    values, vectors = np.linalg.eigh(K)
    C = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > 1e-14 * values[-1]]
    u = np.zeros(C.shape[1])
    for _ in range(30):
        f = 1.0 + C @ u
        H = np.eye(len(u)) + C.T @ ((2.0 * y / f**2 + 2.0)[:, None] * C)
        u = u + np.linalg.solve(H, C.T @ (2.0 * y / f - 2.0 * f) - u)
    value = (y * np.log(f**2) - f**2 - gammaln(y + 1.0)).sum() - 0.5 * (u @ u)
    return value - 0.5 * np.linalg.slogdet(H)[1]


def test_coal_mining_rate_equals_stored_posterior():
    y, x = np.array(COAL["counts"], dtype=float), np.arange(112.0)[:, None]
    K = COAL["variance"] * RBF(COAL["length_scale"])(x)
    found = fit(EP(), K, y, "poisson_square", 1.0)
    np.testing.assert_allclose(found.log_evidence, COAL["log_evidence"], rtol=1e-11)
    np.testing.assert_allclose(found.posterior.f[:5], COAL["mu_first"], rtol=1e-9)
    np.testing.assert_allclose(found.posterior.f[-5:], COAL["mu_last"], rtol=1e-9)
    np.testing.assert_allclose(found.posterior.s[:5], COAL["var_first"], rtol=1e-7)
    laplace = fit(Laplace(), K, y, "poisson_square", 1.0)
    np.testing.assert_allclose(laplace.log_evidence, laplace_of_roots(K, y), rtol=1e-12)
    assert abs(laplace.log_evidence - COAL["laplace"]) < 2e-5  # its mode is where L-BFGS stops by default
    assert abs(found.log_evidence - COAL["importance_sampling"]) < 0.03
    drawn = COAL["importance_mean_first"] + COAL["importance_mean_last"]
    np.testing.assert_allclose(found.posterior.f[[*range(5), *range(-5, 0)]], drawn, atol=0.02)


def test_sites_of_negative_precision_are_kept():
    """A square-link count of 2 at f ~ N(0, 1/4) has a site of precision -2.8: it is not clipped."""
    found = fit(EP(), np.array([[0.25]]), np.array([2.0]), "poisson_square", 0.0)
    np.testing.assert_allclose(found.sites.tau, 1.0 / found.posterior.s - 4.0)
    assert found.sites.tau[0] < -2.5
    both = fit(EP(), 0.06 * RBF(1.0)(X6), np.array([0, 1, 0, 2, 0, 1.0]), "poisson_square", 0.05)
    assert both.converged
    assert (both.sites.tau < 0.0).any()
    slow = GaussianEP(0.05, 0.06 * RBF(1.0)(X6), damping=0.5, tol=1e-11, max_iter=500)
    wanted = slow.fit(None, [0, 1, 0, 2, 0, 1], get_likelihood("poisson_square"))
    np.testing.assert_allclose(both.posterior.f, wanted.mean, rtol=1e-8)
    np.testing.assert_allclose(both.log_evidence, wanted.log_evidence, rtol=1e-10)


def test_posterior_is_the_same_by_either_root(rng):
    A = rng.normal(size=(30, 40))
    K, tau, nu = A @ A.T / 40, rng.uniform(0.0, 3.0, 30), rng.normal(size=30)
    tau[::3] *= 1e-9
    tau[0] = 0.0
    prior = Prior(K, 0.3)
    by_sites = Posterior(prior, tau, nu)
    turned = tau.copy()
    turned[0] = -1e-15  # the other way, for as good as the same sites
    by_prior = Posterior(prior, turned, nu)
    for name in ("f", "s", "dual", "log_integral"):
        np.testing.assert_allclose(getattr(by_sites, name), getattr(by_prior, name), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_sites.resolvent, by_prior.resolvent, atol=1e-9)
    np.testing.assert_allclose(by_sites.s, np.diag(by_sites.covariance()), rtol=1e-9)


KERNELS = [
    0.3 * RBF([1.0, 2.0, 0.7]),
    0.2 * Matern(1.2, nu=1.5) + 0.1 * RBF(0.5, "fixed"),
    0.3 * Matern([1.0, 2.0, 3.0], nu=0.5) * RBF(3.0),
    0.2 * Matern(1.0, nu=2.5) * RationalQuadratic(),
    ConstantKernel(0.05) + 0.1 * DotProduct(0.4) ** 2,
]


@each("settings", [EP(), VB(), Laplace()])
@pytest.mark.parametrize("likelihood", ["probit", "logit", "poisson", "poisson_square"])
def test_evidence_has_its_gradient(likelihood, settings, rng):
    X = rng.normal(size=(15, 3))
    labels = (X[:, 0] + 0.5 * rng.normal(size=15) > 0).astype(float)
    counts = rng.poisson(np.exp(0.3 * X[:, 1] + 0.9)).astype(float)
    y, mean = (labels, 0.0) if likelihood in ("probit", "logit") else (counts, 1.5)
    points = TrainingPoints(X, Observations(get_likelihood(likelihood), y, 1.0), mean)
    kernel = KERNELS[0]
    gradient = ExactEvidence(points, settings, TIGHT)(kernel, True)[1]
    evidence = ExactEvidence(points, settings, TIGHT)
    for k, slope in enumerate(gradient):
        step = 1e-4 * np.eye(len(gradient))[k]
        ends = [evidence(kernel.clone_with_theta(kernel.theta + side * step), False)[0] for side in (-1, 1)]
        assert abs((ends[1] - ends[0]) / 2e-4 - slope) < 2e-6 * (1.0 + np.abs(gradient).max())


@each("kernel", KERNELS)
def test_contracted_derivatives_equal_those_of_scikit_learn(kernel, rng):
    X, G = rng.normal(size=(12, 3)), rng.normal(size=(12, 12))
    wanted = np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1])
    np.testing.assert_allclose(contract(kernel, X, None, G), wanted, rtol=1e-9, atol=1e-11)
    if "Rational" not in repr(kernel):
        Z, H = X[:5] + 0.1, G[:, :5]
        step = 1e-6
        for k, found in enumerate(contract(kernel, X, Z, H)):
            move = step * np.eye(kernel.n_dims)[k]
            ends = [(H * kernel.clone_with_theta(kernel.theta + side * move)(X, Z)).sum() for side in (-1, 1)]
            np.testing.assert_allclose(found, (ends[1] - ends[0]) / (2.0 * step), rtol=1e-6, atol=1e-8)


def test_ep_gradient_equals_the_stored_one():
    evidence = ExactEvidence(TrainingPoints(X6, Observations(PROBIT, Y6, 1.0), 0.0), EP(), TIGHT)
    np.testing.assert_allclose(evidence(1.0 * RBF(1.0), True)[1], SIX["gradient"], rtol=1e-9)


# EP's evidence by three other programs, which agree to 1e-11, and Laplace's of one, which stops a little earlier.
OTHERS = [
    ("crabs", -70.5662771487, -70.63972385543),
    ("sonar", -94.84224230908535, -96.56956855265),
    ("ionosphere", -106.69518836426, None),
    ("pima", -259.83994811663, -260.63007943848),
    ("cancer", -73.87859817605, None),
]


@each(("name", "ep", "laplace"), OTHERS)
def test_evidence_equals_that_of_other_programs(name, ep, laplace, real_data):
    from tensorcep import datasets

    X, y = datasets.load_gp(name)
    X = X[:, X.std(axis=0) > 0]
    K = 4.0 * RBF(np.sqrt(X.shape[1]))((X - X.mean(axis=0)) / X.std(axis=0))
    found = fit(EP(), K, y.astype(float), stop=Stop(100, 1e-6))
    assert abs(found.log_evidence - ep) < 1e-9
    assert found.n_iter < 20
    if laplace is not None:
        assert abs(fit(Laplace(), K, y.astype(float)).log_evidence - laplace) < 1e-5
