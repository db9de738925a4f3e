"""Methods for generalised linear models: stored exact posteriors, slow twins, and what must not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from scipy import integrate, sparse, stats
from scipy.special import expit, ndtr
from threadpoolctl import threadpool_limits

from scripts.papers.reproduce_glm import LOGIT_NINE
from tensorcep.core.compile import LOGLIK_SIGNATURE, address_of
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.linear.factorised import GLMBuffers, laplace_modes
from tensorcep.linear.glm import fit_glm
from tensorcep.linear.problem import GLMProblem, as_csr
from tensorcep.linear.settings import GLM_METHODS, IS, ConditionalEP

LINKS = ("probit", "logit")
FACTORISED = ("ep-factorized", "cep1", "cep2", "lp", "vb")
CDF = {"probit": ndtr, "logit": expit}


def problem(rng, link, n=60, d=3, density=1.0, seed=0):
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    y = np.where(rng.random(n) < CDF[link](X @ np.linspace(1.0, -1.0, d)), 1.0, -1.0)
    no = np.zeros(d, dtype=bool)
    return GLMProblem(as_csr(X), y, get_likelihood(link), np.zeros(d), np.full(d, 1.5), no, seed)


@pytest.mark.parametrize("link", ["probit", "logit", "logit_nine"])
def test_tilted2_is_tilted_and_its_second_derivatives(link):
    likelihood = LOGIT_NINE if link == "logit_nine" else get_likelihood(link)
    m = np.array([-30.0, -6.0, -4.0, -0.3, 0.7, 3.0, 8.0, -1.0])
    v = np.array([1.0, 0.25, 9.0, 1e-6, 1.9, 4.0, 1.0, 100.0])
    y = np.array([1.0, 1, 1, -1, 1, 1, 1, -1])
    found = list(np.empty((5, 8)))
    likelihood.tilted2(y, m, v, np.ones(8), *found)
    for plain, both in zip(tilted_moments(likelihood.tilted, y, m, v, 1.0), found, strict=False):
        np.testing.assert_allclose(both, plain, rtol=1e-11, atol=1e-13)
    h = 0.01 * np.sqrt(1.0 + v)
    near = [tilted_moments(likelihood.tilted, y, m + j * h, v, 1.0) for j in (-2, -1, 0, 1, 2)]
    weights = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / 12.0
    for part, second in ((1, found[3]), (2, found[4])):
        differences = sum(w * moments[part] for w, moments in zip(weights, near, strict=True)) / h**2
        np.testing.assert_allclose(second, differences, atol=1e-6)


@each("link", LINKS)
@pytest.mark.parametrize("method", ["ep", "ep-factorized", "cep1", "cep2", "is"])
def test_glm_of_one_weight_and_one_row_is_exact(link, method, rng):
    """One row and one weight: moment matching is exact, and all these methods do it."""
    one = GLMProblem(
        as_csr(np.array([[0.8]])),
        np.ones(1),
        get_likelihood(link),
        np.full(1, -0.4),
        np.full(1, 2.0),
        np.zeros(1, dtype=bool),
    )
    prior = stats.norm(-0.4, np.sqrt(2.0))
    powers = [
        integrate.quad(lambda w, k=k: w**k * CDF[link](0.8 * w) * prior.pdf(w), -15, 15, epsabs=1e-13)[0]
        for k in range(3)
    ]
    mean = powers[1] / powers[0]
    found = fit_glm(one, IS(n_draws=200_000) if method == "is" else method, max_iter=200, tol=1e-9).posterior
    tol = 6.0 * 1.5 / np.sqrt(200_000) if method == "is" else 1e-7
    np.testing.assert_allclose(found.mean, mean, atol=tol)
    np.testing.assert_allclose(np.ravel(found.cov), powers[2] / powers[0] - mean**2, atol=2 * tol)
    if method in ("ep", "ep-factorized"):
        np.testing.assert_allclose(found.log_evidence, np.log(powers[0]), atol=1e-9)


def plain_fixed_point_gap(p, mean, var, method):
    """One undamped sweep in plain numpy from the fixed point's posterior, messages found by iterating at fixed q."""
    X, (n, d) = p.X.toarray(), p.X.shape
    tau, nu = np.zeros((n, d)), np.zeros((n, d))
    for _ in range(300):
        cavity_var = 1.0 / (1.0 / var - tau)
        cavity_mean = cavity_var * (mean / var - nu)
        if method == "ep-factorized":
            m = np.repeat((X * cavity_mean).sum(1)[:, None], d, 1)
            v = np.repeat((X**2 * cavity_var).sum(1)[:, None], d, 1)
        else:
            m = (X @ mean)[:, None] - X * mean + X * cavity_mean
            v = X**2 * cavity_var
        labels = np.repeat(p.y[:, None], d, 1)
        found = tilted_moments(p.likelihood.tilted, labels.ravel(), m.ravel(), v.ravel(), 1.0)
        alpha, beta = found[1].reshape(n, d), found[2].reshape(n, d)
        new_mean = cavity_mean + cavity_var * X * alpha
        new_var = cavity_var - cavity_var**2 * X**2 * beta
        tau += 0.3 * (1.0 / new_var - 1.0 / cavity_var - tau)
        nu += 0.3 * (new_mean / new_var - cavity_mean / cavity_var - nu)
    precision = 1.0 / p.prior_cov + tau.sum(0)
    return np.abs(nu.sum(0) / precision - mean).max(), np.abs(1.0 / precision / var - 1.0).max()


@each("link", LINKS)
@pytest.mark.parametrize("method", ["ep-factorized", "cep1"])
def test_factorised_posterior_is_a_fixed_point_of_the_printed_updates(link, method, rng):
    p = problem(rng, link)
    found = fit_glm(p, method, max_iter=2000, tol=1e-10)
    assert found.converged
    assert max(plain_fixed_point_gap(p, found.posterior.mean, found.posterior.cov, method)) < 1e-7


@pytest.mark.parametrize("link", LINKS)
def test_laplace_propagation_ends_at_the_mode_for_many_rows(link, rng):
    """LP's fixed point has the slope of the log posterior at s = m + v l'(s), near its mode when no row weighs much."""
    p = problem(rng, link, n=4000)
    mean = fit_glm(p, "lp", max_iter=2000, tol=1e-9).posterior.mean
    value, d1, d2 = np.empty((3, 4000))
    p.likelihood.loglik(p.y, p.X @ mean, np.ones(4000), value, d1, d2)
    slope = p.X.T @ d1 - mean / p.prior_cov
    curvature = p.X.T @ (p.X.toarray() * -d2[:, None]) + np.diag(1.0 / p.prior_cov)
    assert np.abs(np.linalg.solve(curvature, slope)).max() < 5e-3


@pytest.mark.parametrize("name", [*LINKS, "poisson"])
def test_laplace_modes_are_found_from_the_mean_of_any_cavity(name, rng):
    """Newton's steps alone go back and forth where the cavity is wide: many of these modes were not found."""
    n, likelihood = 2000, get_likelihood(name)
    y = rng.poisson(5.0, n).astype(float) if name == "poisson" else rng.choice([-1.0, 1.0], n)
    m, v = rng.normal(0.0, 3.0, n), 10.0 ** rng.uniform(-3.0, 2.0 if name == "poisson" else 3.0, n)
    work, mode = GLMBuffers(y, m, v, np.ones(n), *np.empty((6, n))), m.copy()
    laplace_modes(address_of(likelihood.loglik, LOGLIK_SIGNATURE), n, mode, work)
    newton = (m + v * work.alpha - mode) / (1.0 + v * work.beta)
    assert np.abs(newton).max() < 1e-9


@pytest.mark.parametrize("link", LINKS)
def test_vb_lower_bound_rises_and_stays_below_the_evidence(link, rng):
    p = problem(rng, link, d=2)
    found = fit_glm(p, "vb", max_iter=200, tol=1e-8)
    assert (np.diff(found.trace["lower_bound"]) > -1e-9).all()
    sampled = fit_glm(p, "is", max_iter=100, tol=1e-6).posterior.log_evidence
    assert sampled - 3.0 < found.posterior.log_evidence < sampled
    assert abs(fit_glm(p, "ep", max_iter=100, tol=1e-6).posterior.log_evidence - sampled) < 0.02


@pytest.mark.parametrize("method", FACTORISED)
@each("link", LINKS)
def test_factorised_bits_do_not_depend_on_the_threads(method, link, rng):
    p = problem(rng, link, n=20_000, d=12, density=0.4)
    one, two = (fit_glm(p, method, max_iter=8, tol=0.0, n_threads=k).posterior for k in (1, 2))
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.cov, two.cov)


@pytest.mark.parametrize("method", ["ep", "is"])
def test_bits_do_not_depend_on_the_threads_of_blas(method, rng):
    p, found = problem(rng, "logit", n=3000, d=60), []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            found.append(fit_glm(p._replace(X=p.X.toarray()), method, max_iter=8, tol=0.0).posterior)
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].cov, found[1].cov)


@each("method", list(GLM_METHODS))
@each("link", LINKS)
def test_glm_without_information_gives_the_prior(method, link, rng):
    p = problem(rng, link)._replace(X=sparse.csr_matrix((60, 3)), prior_mean=np.array([0.5, 0.0, -1.0]))
    found = fit_glm(p, method, max_iter=50, tol=1e-8).posterior
    tol = 0.06 if method == "is" else 1e-12
    np.testing.assert_allclose(found.mean, p.prior_mean, atol=tol)
    np.testing.assert_allclose(np.diag(found.cov) if found.cov.ndim == 2 else found.cov, 1.5, atol=tol)


@pytest.mark.parametrize("method", FACTORISED)
def test_factorised_damping_does_not_move_the_fixed_point(method, rng):
    p = problem(rng, "logit")
    damped = replace(GLM_METHODS[method], **({} if method == "vb" else {"damping": 0.9}))
    slow = fit_glm(p, damped, max_iter=5000, tol=1e-9).posterior
    quick = fit_glm(p, method, max_iter=5000, tol=1e-9).posterior
    np.testing.assert_allclose(quick.mean, slow.mean, atol=1e-6)
    np.testing.assert_allclose(quick.cov, slow.cov, rtol=1e-6)


def test_published_rule_stops_before_the_fixed_point(rng):
    p = problem(rng, "probit", n=200)
    early = fit_glm(p, ConditionalEP(damping=0.99, stop="published"), max_iter=5000, tol=1e-5)
    late = fit_glm(p, ConditionalEP(damping=0.99), max_iter=5000, tol=1e-4)
    assert early.converged
    assert early.n_iter < 0.5 * late.n_iter
    assert np.abs(early.posterior.cov / late.posterior.cov - 1.0).min() > 0.1


def test_second_order_begins_after_the_first(rng):
    p = problem(rng, "logit")
    found = fit_glm(p, ConditionalEP(order=2, warm_up=7), max_iter=500, tol=1e-6)
    assert found.converged
    assert np.isinf(found.trace["change"][:7]).all()
    first = fit_glm(p, "cep1", max_iter=500, tol=1e-6).posterior
    assert np.abs(found.posterior.mean - first.mean).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "method", "kl"),
    [
        ("probit-1", "cep1", 1.3005),
        ("probit-1", "ep-factorized", 1.2962),
        ("logistic-1", "cep1", 0.4479),
        ("logistic-2", "lp", 10.812),
        ("probit-2", "vb", 69.61),
        ("probit-2", "ep", 0.002),
    ],
)
def test_glm_divergence_from_the_published_nuts_posterior(name, method, kl, real_data):
    from tensorcep import datasets

    data = datasets.load_simulation(name)
    likelihood = get_likelihood("probit") if name.startswith("probit") else LOGIT
    no = np.zeros(4, dtype=bool)
    p = GLMProblem(as_csr(data.train.X), 2.0 * data.train.y - 1.0, likelihood, np.zeros(4), np.ones(4), no)
    found = fit_glm(p, method, max_iter=1000, tol=1e-4)
    assert found.converged
    cov = np.diag(found.posterior.cov) if found.posterior.cov.ndim == 1 else found.posterior.cov
    precision, shift = np.linalg.inv(cov), found.posterior.mean - data.mean
    logs = np.linalg.slogdet(cov)[1] - np.linalg.slogdet(data.cov)[1]
    divergence = 0.5 * (np.trace(precision @ data.cov) + shift @ precision @ shift - 4 + logs)
    np.testing.assert_allclose(divergence, kl, rtol=2e-3, atol=1e-3)
