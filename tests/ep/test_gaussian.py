"""Gaussian EP: reference values, exact cases, and that rank, order, schedule and form of X do not matter."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.stats import multivariate_normal, norm

from tensorcep.ep.gaussian import GaussianEP
from tensorcep.ep.sites import Sites
from tensorcep.likelihoods import get_likelihood

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "ep.json").read_text())
X10 = np.array(STORED["probit_10x2"]["X"])
Y10 = (np.array(STORED["probit_10x2"]["y"]) > 0).astype(float)
X3 = np.array(STORED["bpm_step"]["X"])
Y3 = (np.array(STORED["bpm_step"]["y"]) > 0).astype(float)
COUNTS = np.array([0, 1, 2, 3, 4, 5, 1, 0, 0, 1])
TIGHT = {"tol": 1e-12}
FACTORS = each(
    ("likelihood", "y"), [("probit", Y10), ("logit", Y10), ("logit_mackay", Y10), ("poisson", COUNTS), ("step", None)]
)


def data_of(likelihood, y):
    """The ten rows, or the three separable ones for the step."""
    return (X3, Y3) if likelihood == "step" else (X10, y)


def probit_moments(y, m, v):
    scale, t = np.sqrt(1.0 + v), 2.0 * y - 1.0
    z = t * m / scale
    r = np.exp(norm.logpdf(z) - norm.logcdf(z))
    return norm.logcdf(z), t * r / scale, r * (z + r) / (1.0 + v)


def probit_block(y, m, v):
    logz, alpha, beta = probit_moments(y, m[0], v[0, 0])
    return logz, [alpha], [[beta]]


def same(found, wanted, rtol=1e-10):
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.log_evidence, wanted.log_evidence, rtol=rtol)


@each(
    ("name", "X", "y", "likelihood"),
    [
        ("bpm_step", X3, Y3, "step"),
        ("probit_10x2", X10, Y10, "probit"),
        ("logistic_10x2", X10, Y10, "logit"),
    ],
)
@each("schedule", ["sequential", "parallel"])
def test_ep_equals_stored_posterior_and_evidence(name, X, y, likelihood, schedule):
    wanted = STORED[name]["ep"]
    found = GaussianEP(schedule=schedule, **TIGHT).fit(X, y, likelihood)
    assert found.converged
    np.testing.assert_allclose(found.log_evidence, wanted["logev"], rtol=1e-12)
    np.testing.assert_allclose(found.mean, wanted["mean"], rtol=1e-10)
    np.testing.assert_allclose(found.cov, wanted["cov"], rtol=1e-10, atol=1e-14)
    if "tau" in wanted:
        np.testing.assert_allclose(found.sites.tau, wanted["tau"], rtol=1e-9)
        np.testing.assert_allclose(found.sites.nu * np.where(y > 0, 1, -1), wanted["nu"], rtol=1e-9)


def test_ep_with_probit_on_three_points_equals_stored_evidence_and_is_near_the_exact_one():
    wanted = STORED["bpm_probit"]
    found = GaussianEP(**TIGHT).fit(X3, Y3, "probit")
    assert abs(found.log_evidence - wanted["ep_logev"]) < 1e-11
    assert abs(found.log_evidence - wanted["exact_logev"]) < 2e-5
    np.testing.assert_allclose(found.mean, wanted["exact_mean"], atol=2e-5)


@pytest.mark.parametrize(
    ("name", "X", "y", "likelihood"), [("bpm_step", X3, Y3, "step"), ("probit_10x2", X10, Y10, "probit")]
)
def test_adf_is_the_first_sweep(name, X, y, likelihood):
    first = GaussianEP(max_iter=1).fit(X, y, likelihood)
    np.testing.assert_allclose(first.mean, STORED[name]["ep"]["adf_mean"], rtol=1e-10)
    mean, cov, total = np.zeros(X.shape[1]), np.eye(X.shape[1]), 0.0
    for row, label in zip(X, y, strict=True):  # one observation at a time, the posterior becoming the prior
        step = GaussianEP(mean, cov, max_iter=1).fit(row[None], [label], likelihood)
        mean, cov, total = step.mean, step.cov, total + step.log_evidence
    np.testing.assert_allclose(first.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(first.cov, cov, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(first.log_evidence, total, rtol=1e-12)


@each("power", [1.0, 0.5, 1.7])
@each("schedule", ["sequential", "parallel"])
def test_ep_with_gaussian_terms_is_exact_after_one_sweep(power, schedule, rng):
    y, mean, root = rng.normal(size=10), rng.normal(size=2), rng.normal(size=(2, 2))
    cov, noise = root @ root.T, rng.gamma(3.0, size=10)
    found = GaussianEP(mean, cov, schedule=schedule, damping=0.0, power=power, max_iter=1).fit(
        X10, y, "gaussian", noise
    )
    total = X10 @ cov @ X10.T + np.diag(1.0 / noise)
    wanted = np.linalg.inv(np.linalg.inv(cov) + X10.T * noise @ X10)
    np.testing.assert_allclose(found.log_evidence, multivariate_normal.logpdf(y, X10 @ mean, total), rtol=1e-11)
    np.testing.assert_allclose(found.cov, wanted, rtol=1e-10)
    np.testing.assert_allclose(found.mean, wanted @ (np.linalg.solve(cov, mean) + X10.T @ (noise * y)), rtol=1e-10)


@FACTORS
def test_ep_fixed_point_does_not_depend_on_order_schedule_or_damping(likelihood, y, rng):
    X, y = data_of(likelihood, y)
    wanted = GaussianEP(**TIGHT).fit(X, y, likelihood)
    order = rng.permutation(len(y))
    same(GaussianEP(**TIGHT).fit(X[order], y[order], likelihood), wanted)
    same(GaussianEP(schedule="parallel", **TIGHT).fit(X, y, likelihood), wanted)
    same(GaussianEP(damping=0.4, **TIGHT).fit(X, y, likelihood), wanted)


@FACTORS
def test_ep_in_function_space_equals_ep_in_weight_space(likelihood, y):
    """K = X X' has rank 2 or 3: a singular prior covariance."""
    X, y = data_of(likelihood, y)
    wanted = GaussianEP(0.3, 1.5, **TIGHT).fit(X, y, likelihood)
    found = GaussianEP(X.sum(axis=1) * 0.3, 1.5 * X @ X.T, **TIGHT).fit(None, y, likelihood)
    np.testing.assert_allclose(found.log_evidence, wanted.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean, X @ wanted.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.cov, X @ wanted.cov @ X.T, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_ep_rank_k_with_k_1_equals_rank_1_and_a_python_function_a_likelihood(schedule):
    ep = GaussianEP(0.1, [2.0, 0.5], schedule=schedule, **TIGHT)
    wanted = ep.fit(X10, Y10, "probit")
    for X, function in ((X10, probit_moments), (X10[:, None, :], probit_block)):
        found = ep.fit(X, Y10, function)
        same(found, wanted, 1e-12)
        np.testing.assert_allclose(found.sites.tau.ravel(), wanted.sites.tau, rtol=1e-11)
        if schedule == "sequential":  # in parallel, terms of rank 1 settle first
            assert found.n_iter == wanted.n_iter


def test_ep_rank_2_with_gaussian_terms_is_exact_after_one_sweep(rng):
    X, y = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2))
    noise = np.array([[0.5, 0.2], [0.2, 0.8]])

    def moments(y_i, m, v):
        beta = np.linalg.inv(v + noise)
        return multivariate_normal.logpdf(y_i, m, v + noise), beta @ (y_i - m), beta

    found = GaussianEP(0.2, 1.3, max_iter=1).fit(X, y, moments)
    flat = X.reshape(8, 3)
    total = 1.3 * flat @ flat.T + np.kron(np.eye(4), noise)
    np.testing.assert_allclose(
        found.log_evidence, multivariate_normal.logpdf(y.ravel(), 0.2 * flat.sum(axis=1), total), rtol=1e-12
    )
    np.testing.assert_allclose(found.sites.tau, np.broadcast_to(np.linalg.inv(noise), (4, 2, 2)), rtol=1e-10)


def test_ep_rank_2_product_of_two_probits_equals_two_terms_where_they_are_independent():
    """Two latent values that are independent a priori and share no weight: one rank-2 term is two rank-1 terms."""

    def moments(y_i, m, v):
        parts = [probit_moments(y_i[j], m[j], v[j, j]) for j in (0, 1)]
        return parts[0][0] + parts[1][0], [p[1] for p in parts], np.diag([p[2] for p in parts])

    X = np.zeros((5, 2, 4))
    X[:, 0, :2], X[:, 1, 2:] = X10[:5], X10[5:]
    y = np.stack([Y10[:5], Y10[5:]], axis=1)
    same(GaussianEP(**TIGHT).fit(X, y, moments), GaussianEP(**TIGHT).fit(X.reshape(10, 4), y.ravel(), "probit"))


def test_ep_on_sparse_rows_equals_dense_rows(rng):
    X = rng.normal(size=(60, 12)) * (rng.random((60, 12)) < 0.2)
    y = (rng.random(60) < 0.5).astype(float)
    for schedule in ("sequential", "parallel"):
        ep = GaussianEP(prior_cov=2.0, schedule=schedule, **TIGHT)
        for form in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
            same(ep.fit(form(X), y, "logit"), ep.fit(X, y, "logit"), 1e-11)


@pytest.mark.parametrize(("likelihood", "y"), [("probit", Y10), ("logit", Y10), ("poisson", COUNTS)])
def test_power_ep_is_continuous_in_the_power_and_meets_ep(likelihood, y):
    wanted = GaussianEP(**TIGHT).fit(X10, y, likelihood)
    same(GaussianEP(power=1.0 + 1e-9, **TIGHT).fit(X10, y, likelihood), wanted, 1e-7)
    evidence = [GaussianEP(power=p, **TIGHT).fit(X10, y, likelihood).log_evidence for p in (0.05, 0.5, 1.0)]
    assert evidence[0] < evidence[1] < evidence[2]  # towards 0 the bound of variational Bayes


def test_power_ep_towards_zero_is_variational_bayes():
    """The Gaussian that minimises KL(q || p): its gradient vanishes, and the evidence is its bound."""
    found = GaussianEP(power=1e-4, tol=1e-9, max_iter=200).fit(X10, Y10, "logit")
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    f = (X10 @ found.mean)[:, None] + np.sqrt(np.einsum("ni,ij,nj->n", X10, found.cov, X10))[:, None] * nodes
    p = 1.0 / (1.0 + np.exp(-f))
    slope, curve = (Y10[:, None] - p) @ weights, (p * (1.0 - p)) @ weights
    np.testing.assert_allclose(found.mean, X10.T @ slope, atol=1e-4)
    np.testing.assert_allclose(np.linalg.inv(found.cov), np.eye(2) + X10.T * curve @ X10, rtol=1e-4)
    expected = (np.where(Y10[:, None] > 0, np.log(p), np.log1p(-p)) @ weights).sum()
    kl = 0.5 * (np.trace(found.cov) + found.mean @ found.mean - 2.0 - np.linalg.slogdet(found.cov)[1])
    assert abs(found.log_evidence - (expected - kl)) < 2e-4


def test_posterior_is_prior_times_sites_and_converged_sites_stay():
    found = GaussianEP(0.2, 0.7, **TIGHT).fit(X10, COUNTS, "poisson")
    precision = np.eye(2) / 0.7 + X10.T * found.sites.tau @ X10
    np.testing.assert_allclose(np.linalg.inv(found.cov), precision, rtol=1e-12)
    np.testing.assert_allclose(precision @ found.mean, 0.2 / 0.7 + X10.T @ found.sites.nu, rtol=1e-11)
    again = GaussianEP(0.2, 0.7, tol=1e-9).fit(X10, COUNTS, "poisson", sites=found.sites)
    assert again.n_iter == 1
    assert list(again.trace) == ["change", "log_evidence", "skipped", "seconds"]
    same(again, found, 1e-11)


def test_step_with_slack_has_sites_of_negative_precision_and_comes_near_the_exact_evidence():
    """A mislabelled point: evidence by summing the orthant probabilities over which labels are wrong."""
    X = np.array([[1.0], [1.5], [0.8], [1.2], [2.0]])
    y, slack = np.array([1, 1, 1, 0, 1]), 0.1
    found = GaussianEP(prior_cov=4.0, damping=0.3, max_iter=300, **TIGHT).fit(X, y, "step", theta=slack)
    exact = np.log(0.5 * slack * (1 - slack) ** 4 + 0.5 * (1 - slack) * slack**4)
    assert found.converged
    assert (found.sites.tau < 0).any()
    assert abs(found.log_evidence - exact) < 0.05


def test_ep_same_input_same_bits_and_input_is_left_alone():
    X, y = X10.copy(), Y10.copy()
    first, second = (GaussianEP().fit(X, y, "logit") for _ in range(2))
    np.testing.assert_array_equal(first.cov, second.cov)
    np.testing.assert_array_equal(X, X10)
    np.testing.assert_array_equal(y, Y10)


@pytest.mark.parametrize(("likelihood", "shrink"), [("probit", 1.0), ("logit", 1.0), ("probit", 0.6)])
def test_ep_intervals_hold_the_weights_that_made_the_data(likelihood, shrink, rng):
    """Coverage of 80 % intervals of three weights over 300 draws from the prior; shrunk intervals are found out."""
    record, inside, draws = get_likelihood(likelihood), 0, 300
    for _ in range(draws):
        w, X = rng.normal(size=3), rng.normal(size=(40, 3))
        y = record.sample(rng, X @ w, np.ones(40))
        found = GaussianEP().fit(X, y, record)
        z = (w - found.mean) / (shrink * np.sqrt(np.diag(found.cov)))
        inside += (np.abs(z) < norm.ppf(0.9)).sum()
    off = abs(inside / (3 * draws) - 0.8) / np.sqrt(0.8 * 0.2 / (3 * draws))
    assert (off < 4) == (shrink == 1.0)


def test_ep_without_observations_gives_the_prior():
    for likelihood in ("probit", probit_moments):
        found = GaussianEP([0.4, -1.0], [[2.0, 0.3], [0.3, 1.0]]).fit(np.zeros((0, 2)), [], likelihood)
        np.testing.assert_allclose(found.mean, [0.4, -1.0])
        np.testing.assert_allclose(found.cov, [[2.0, 0.3], [0.3, 1.0]], rtol=1e-14)
        assert found.log_evidence == 0.0
        assert found.converged


def test_ep_refuses_observations_without_a_length():
    with pytest.raises(TypeError, match="y must hold one observation for each row of X; got float"):
        GaussianEP().fit(X10, 1.0, "probit")


def test_ep_prior_variance_of_zero_fixes_a_weight():
    found = GaussianEP([0.0, 0.7], [1.0, 0.0], **TIGHT).fit(X10, Y10, "probit")
    assert found.mean[1] == 0.7
    np.testing.assert_array_equal(found.cov[1], [0.0, 0.0])


@each(
    ("settings", "arguments", "message"),
    [
        ({"schedule": "random"}, {}, "schedule must be one of 'sequential', 'parallel'; got 'random'"),
        ({"damping": 1.0}, {}, "damping must be a number in \\[0, 1\\); got 1.0"),
        ({"power": 0.0}, {}, "power must be a number > 0; got 0.0"),
        ({"prior_cov": -1.0}, {}, "prior_cov must be >= 0; got -1"),
        ({"prior_cov": [[1.0, 2.0], [2.0, 1.0]]}, {}, "positive semi-definite; got an eigenvalue of -1"),
        ({"prior_cov": np.eye(3)}, {}, "prior_cov must be a symmetric \\(2, 2\\) matrix; got shape \\(3, 3\\)"),
        ({"prior_mean": [1.0, 2.0, 3.0]}, {}, "prior_mean must be one finite number or one for each of the 2 weights"),
        ({}, {"X": X10[:9]}, "one row \\(or block of rows\\) for each of the 10 observations; got 9"),
        ({}, {"X": np.full((10, 2), np.nan)}, "X must be finite; got nan"),
        ({}, {"y": np.full(10, 2.0)}, "labels 0 and 1; got 2"),
        ({}, {"likelihood": "cauchy"}, "likelihood must be one of"),
        ({}, {"theta": [1.0, 2.0]}, "a row for each of the 10 observations; got 2"),
        ({}, {"X": X10[:, None, :]}, "two dimensions for the likelihood 'probit'"),
        ({"power": 0.5}, {"likelihood": "step"}, "needs loglik, which the likelihood 'step' does not have"),
        ({}, {"likelihood": probit_moments, "theta": 1.0}, "theta must be left out with a Python function"),
        ({}, {"sites": Sites(np.zeros(3), np.zeros(3), np.zeros(3))}, "sites must hold 10 numbers each"),
    ],
)
def test_ep_refuses_bad_input_in_one_sentence(settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianEP(**settings).fit(**{"X": X10, "y": Y10, "likelihood": "probit", **arguments})


def test_ep_refuses_start_sites_that_leave_no_gaussian():
    bad = Sites(np.full(10, -5.0), np.zeros(10), np.zeros(10))
    with pytest.raises(FloatingPointError, match="leave no Gaussian posterior"):
        GaussianEP().fit(X10, Y10, "probit", sites=bad)


@each(("y", "sign"), list(itertools.product([0.0, 1.0], [-1.0, 1.0])))
def test_ep_of_one_term_is_exact(y, sign):
    """One term leaves nothing to approximate in its own direction: the moments are the tilted ones."""
    found = GaussianEP(0.5, 2.0, **TIGHT).fit([[sign]], [y], "probit")
    logz, alpha, beta = probit_moments(y, 0.5 * sign, 2.0)
    np.testing.assert_allclose(found.log_evidence, logz, rtol=1e-12)
    np.testing.assert_allclose(found.mean, 0.5 + 2.0 * sign * alpha, rtol=1e-12)
    np.testing.assert_allclose(found.cov, [[2.0 - 4.0 * beta]], rtol=1e-12)
