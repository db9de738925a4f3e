"""The nearest Gaussian in the Wasserstein distance: stored deviations, theorems, the table, jumps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import ndtr, ndtri

from tensorcep import BayesianProbitRegression
from tensorcep.ep.gaussian import GaussianEP
from tensorcep.ep.projections import Tilted, deviations_by_table, project, standard_deviations
from tensorcep.ep.sweep import Terms
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments
from tensorcep.linear.settings import EP

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "gp.json").read_text())["qp"]


def case(name, y, m, s, theta=None):
    """Tilted distributions, their alpha and beta, and EP's standard deviation."""
    record = get_likelihood(name)
    y, m, s = np.broadcast_arrays(*(np.atleast_1d(np.asarray(a, dtype=float)) for a in (y, m, s)))
    theta = np.full(len(m), record.default_theta if theta is None else theta)
    _, alpha, beta = tilted_moments(record.tilted, y, m, s**2, theta)
    return Tilted(record, y, theta, m, s**2), alpha, beta, s * np.sqrt(1.0 - s**2 * beta)


@pytest.mark.parametrize(("name", "key"), [("probit", "probit"), ("poisson_square", "poisson")])
def test_deviations_equal_stored_ones(name, key):
    rows = STORED[key]
    tilted, alpha, beta, ep = case(name, *([row[k] for row in rows] for k in ("y", "mu", "sigma")))
    np.testing.assert_allclose(tilted.m + tilted.v * alpha, [row["mean"] for row in rows], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(ep, [row["sd_EP"] for row in rows], rtol=1e-13)
    np.testing.assert_allclose(standard_deviations(tilted, alpha, beta), [row["sd_QP"] for row in rows], rtol=2e-15)


@pytest.mark.parametrize(("name", "key"), [("probit", "probit_cdf"), ("poisson_square", "poisson_cdf")])
def test_distribution_function_equals_the_stored_one(name, key):
    """Eqs 35-60: what Owen's T and confluent hypergeometric functions say, by quadrature of the density itself."""
    record, (node, weight) = get_likelihood(name), np.polynomial.legendre.leggauss(200)
    for row in STORED[key]:
        y, m, v = (np.array([float(row[k])]) for k in ("y", "mu", "sigma"))
        tilted = Tilted(record, y, np.ones(1), m, v**2)
        ends = np.array([row["mu"] - 12.0 * row["sigma"], row["x"], row["mu"] + 12.0 * row["sigma"]])
        half = 0.5 * np.diff(ends)
        f = ends[:-1, None] + half[:, None] * (1.0 + node)
        mass = half * (np.exp(tilted.log_density(f.reshape(1, -1))).reshape(f.shape) @ weight)
        np.testing.assert_allclose(mass[0] / mass.sum(), row["F"], rtol=1e-11)


def spread(rng, name, n=300):
    if name.startswith("poisson"):
        return case(name, rng.poisson(4, n), rng.uniform(-1, 4, n), 10 ** rng.uniform(-1.5, 0.4, n))
    s = 10 ** rng.uniform(-2, 1, n)
    theta = rng.uniform(0.05, 0.2, n) if name == "step" else None
    return case(name, 1.0, rng.uniform(-4, 4, n) * np.sqrt(1.0 + s**2), s, theta)


@each("name", ["probit", "logit", "poisson", "poisson_square"])
def test_deviation_is_never_above_that_of_ep(name, rng):
    """Theorem 2, and its equality for a Gaussian: where a count of 0 under the square link tilts."""
    tilted, alpha, beta, ep = spread(rng, name)
    ratio = standard_deviations(tilted, alpha, beta) / ep
    assert ratio.max() < 1.0 + 1e-9
    assert ratio.min() > 0.1
    if name == "poisson_square":
        none = tilted.y == 0.0
        assert none.any()
        np.testing.assert_allclose(ratio[none], 1.0, rtol=1e-13)


def test_gaussian_likelihood_is_projected_as_by_ep(rng):
    tilted, _, beta, _ = case("gaussian", rng.normal(size=20), rng.normal(size=20), np.exp(rng.normal(size=20)), 2.3)
    alpha = tilted_moments(tilted.record.tilted, *tilted[1:2], *tilted[3:], tilted.theta)[1]
    np.testing.assert_allclose(project(tilted, alpha, beta), beta, rtol=1e-10)


def test_deviation_is_the_integral_over_quantiles(rng):
    """The two forms of eq. 7, and Var - sd_QP^2 as the squared distance, for a step whose quantiles are known."""
    tilted, alpha, beta, ep = case("step", 1.0, [0.4, -0.8, 1.5], [1.0, 2.0, 0.7])
    found = standard_deviations(tilted, alpha, beta)
    s = np.sqrt(tilted.v)
    p = (np.arange(2_000_000) + 0.5) / 2_000_000
    for k in range(3):
        low = ndtr(-tilted.m[k] / s[k])
        quantile = tilted.m[k] + s[k] * ndtri(low + (1.0 - low) * p)
        by_quantiles = np.mean(quantile * ndtri(p))
        np.testing.assert_allclose(found[k], by_quantiles, rtol=2e-6)
        distance = np.mean((quantile - (tilted.m[k] + tilted.v[k] * alpha[k]) - found[k] * ndtri(p)) ** 2)
        np.testing.assert_allclose(distance, ep[k] ** 2 - found[k] ** 2, rtol=1e-4)


def test_table_of_the_probit_is_within_three_parts_in_1e5(rng):
    n = 800
    s = 10 ** rng.uniform(-2, 2, n)
    tilted, alpha, beta, _ = case(
        "probit", rng.choice([-1.0, 1.0], n), rng.uniform(-8.5, 8.5, n) * np.sqrt(1 + s**2), s
    )
    exact = standard_deviations(tilted, alpha, beta)
    assert np.abs(deviations_by_table(tilted, alpha, beta) / exact - 1.0).max() < 3e-5


def test_sites_of_smaller_variance_need_positive_precision():
    """Corollary 2.1 holds for sites of positive precision; a count of 1 at f ~ N(0, .99) is the counter-example."""
    tilted, alpha, beta, _ = case("poisson_square", 1.0, 0.0, np.sqrt(0.99))
    precision = [float((b / (1.0 - tilted.v * b))[0]) for b in (beta, project(tilted, alpha, beta))]
    np.testing.assert_allclose(1.0 / np.array(precision), [-148.5, 15.8], rtol=2e-3)


def test_locality_marginals_of_other_values_follow_by_their_regression(rng):
    """Theorem 3: with f_1 projected, the law of f_2 given f_1 is the cavity's, for EP and QP alike."""
    cavity = np.array([[1.0, 0.6], [0.6, 1.4]])
    for rule in (None, "quadrature"):
        terms = Terms(get_likelihood("probit"), np.array([1.0]), None, 1.0, rule)
        sites, _, _ = terms.propose_all(np.zeros(1), np.ones(1), terms.start_sites(None), 0.0)
        joint = np.linalg.inv(np.linalg.inv(cavity) + np.diag([sites.tau[0], 0.0]))
        np.testing.assert_allclose(joint[1, 0] / joint[0, 0], 0.6)
        np.testing.assert_allclose(joint[1, 1] - joint[1, 0] ** 2 / joint[0, 0], 1.4 - 0.36)


def test_ep_of_linear_models_projects_by_either_distance(rng):
    X = rng.normal(size=(25, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=25) > 0.0).astype(int)
    fits = {
        (projection, schedule): GaussianEP(
            prior_cov=4.0, projection=projection, schedule=schedule, tol=1e-10, max_iter=200
        ).fit(X, y, "probit")
        for projection in ("kl", "w2")
        for schedule in ("sequential", "parallel")
    }
    for projection in ("kl", "w2"):
        one, other = (fits[projection, schedule] for schedule in ("sequential", "parallel"))
        np.testing.assert_allclose(one.cov, other.cov, rtol=1e-7)
        np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-9)
    kl, w2 = (fits[projection, "parallel"].cov for projection in ("kl", "w2"))
    assert (np.linalg.eigvalsh(kl - w2) > 0.0).all()
    model = BayesianProbitRegression(EP(projection="w2"), prior_scale=2.0, fit_intercept=False, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_std_[0] ** 2, np.diag(w2), rtol=1e-7)
    with pytest.raises(ValueError, match="projection must be one of 'kl', 'w2'; got 'l2'"):
        EP(projection="l2")
    with pytest.raises(ValueError, match="projection must be 'kl' with a Python function"):
        GaussianEP(projection="w2").fit(X, y, lambda y, m, v: (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="power must be 1 with projection='w2'; got 0.5"):
        GaussianEP(projection="w2", power=0.5).fit(X, y, "probit")
