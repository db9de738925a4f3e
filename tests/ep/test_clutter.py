"""EP on the clutter problem (scripts.papers.reproduce_clutter): stored values, energy, and its competitors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from scripts.papers import reproduce_clutter as clutter
from tensorcep.ep.gaussian import GaussianEP

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "ep.json").read_text())
LISTED, TYPICAL = STORED["clutter_n20"], STORED["n20_typical"]
BOTH = pytest.mark.parametrize("stored", [LISTED, TYPICAL], ids=["listed", "typical"])


def data_of(stored):
    return np.array(stored["y"])


def last(path):
    return list(path)[-1]


def agrees(found, wanted, rtol):
    assert abs(found.mean / wanted["mean"] - 1) < rtol
    assert abs(found.var / wanted["var"] - 1) < 10 * rtol
    assert abs(found.log_evidence / wanted.get("logev", wanted.get("elbo")) - 1) < rtol


@BOTH
def test_clutter_methods_equal_stored_values(stored):
    y = data_of(stored)
    agrees(clutter.exact(y), stored["exact"], 1e-7)
    agrees(last(clutter.run_ep(y)), stored["ep"], 1e-11)
    agrees(last(clutter.run_adf(y)), stored.get("adf") or stored["adf_listed_order"], 1e-11)
    if "laplace" in stored:
        agrees(last(clutter.run_laplace(y)), stored["laplace"], 1e-8)
        agrees(last(clutter.run_vb(y)), stored["vb"], 1e-8)


def test_clutter_data_of_the_script_are_the_stored_ones():
    assert [float(word) for word in clutter.LISTED.split()] == LISTED["y"]
    assert [float(word) for word in clutter.TYPICAL.split()] == TYPICAL["y"]


@BOTH
def test_clutter_ep_has_sites_of_negative_precision(stored):
    found = clutter.fit_ep(data_of(stored), tol=1e-12, damping=0.0)
    assert found.converged
    assert (found.sites.tau < 0).sum() == stored["ep"]["neg_sites"]
    if "tau" in stored["ep"]:
        np.testing.assert_allclose(found.sites.tau, stored["ep"]["tau"], rtol=1e-7, atol=1e-11)
        np.testing.assert_allclose(found.sites.nu, stored["ep"]["nu"], rtol=1e-7, atol=1e-11)


@BOTH
def test_energy_is_minus_the_log_evidence_at_the_fixed_point(stored):
    """Eq. 13 of Minka (2001), all integrals on a grid, from the natural parameters of the sites alone."""
    y = data_of(stored)
    found = clutter.fit_ep(y, tol=1e-12)
    x = np.linspace(-60.0, 60.0, 40_001)
    log_dx, prior = np.log(x[1] - x[0]), norm.logpdf(x, scale=10.0)
    sites = found.sites.nu[:, None] * x - 0.5 * found.sites.tau[:, None] * x**2
    terms = np.logaddexp(*clutter.log_terms(y, x))
    everything = logsumexp(prior + sites.sum(axis=0)) + log_dx
    one_out = [logsumexp(prior + terms[i] + sites.sum(axis=0) - sites[i]) + log_dx for i in range(len(y))]
    energy = (len(y) - 1) * everything - sum(one_out)
    assert abs(energy + found.log_evidence) < 1e-9


def test_clutter_fixed_point_does_not_depend_on_order_but_adf_does(rng):
    y = data_of(TYPICAL)
    wanted, first = clutter.fit_ep(y, tol=1e-12), last(clutter.run_adf(y))
    other = rng.permutation(y)
    found = clutter.fit_ep(other, tol=1e-12)
    np.testing.assert_allclose([found.mean[0], found.log_evidence], [wanted.mean[0], wanted.log_evidence], rtol=1e-11)
    assert abs(last(clutter.run_adf(other)).mean - first.mean) > 1e-4


def test_clutter_adf_over_orders_scatters_as_stored(rng):
    """Two hundred orders here and there: means and standard deviations within six standard errors."""
    y = data_of(LISTED)
    ends = [last(clutter.run_adf(rng.permutation(y))) for _ in range(200)]
    means = np.array([end.mean for end in ends])
    mean, sd = LISTED["adf_200_orders"]["mean"][0], LISTED["adf_200_orders"]["sd"][0]
    assert abs(means.mean() - mean) < 6 * sd * np.sqrt(2 / 200)
    assert abs(means.std() / sd - 1) < 6 / np.sqrt(200)


def test_clutter_tilted_has_the_derivatives_of_its_normalisation(rng):
    y, m, v = 3 * rng.normal(size=50), 3 * rng.normal(size=50), rng.gamma(1.0, size=50)
    theta, h = np.tile([0.3, 7.0], 50), 1e-4

    def moments(mean, var):
        out = [np.empty(50) for _ in range(3)]
        clutter.tilted(y, mean, var, theta, *out)
        return out

    logz, alpha, beta = moments(m, v)
    exact = np.log(0.7 * norm.pdf(y, m, np.sqrt(v + 1)) + 0.3 * norm.pdf(y, 0, np.sqrt(7.0)))
    np.testing.assert_allclose(logz, exact, rtol=1e-12)
    up, down = moments(m + h, v), moments(m - h, v)
    np.testing.assert_allclose((up[0] - down[0]) / (2 * h), alpha, atol=1e-7)
    np.testing.assert_allclose((down[1] - up[1]) / (2 * h), beta, atol=1e-7)


def test_clutter_rank_1_function_equals_the_compiled_term():
    y = data_of(LISTED)
    X = np.ones((len(y), 1, 1))
    found = GaussianEP(prior_cov=100.0, tol=1e-12).fit(X, y[:, None], clutter.spherical_moments)
    wanted = clutter.fit_ep(y, tol=1e-12)
    np.testing.assert_allclose(found.log_evidence, wanted.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-11)
    np.testing.assert_allclose(found.sites.tau.ravel(), wanted.sites.tau, rtol=1e-8, atol=1e-12)


def test_clutter_in_two_dimensions_is_near_the_exact_posterior(rng):
    """Rank 2 with spherical sites, against sums over a grid."""
    signal = rng.random(40) < 0.5
    y = np.where(signal[:, None], [2.0, -1.0], 0.0) + np.where(signal, 1.0, np.sqrt(10.0))[:, None] * rng.normal(
        size=(40, 2)
    )
    found = GaussianEP(prior_cov=100.0, tol=1e-10).fit(np.tile(np.eye(2), (40, 1, 1)), y, clutter.spherical_moments)
    assert found.converged
    np.testing.assert_allclose(found.cov, found.cov[0, 0] * np.eye(2), atol=1e-12)
    grid = np.stack(np.meshgrid(np.linspace(-1, 5, 241), np.linspace(-4, 2, 241), indexing="ij"), axis=-1).reshape(
        -1, 2
    )
    density = norm.logpdf(grid, scale=10.0).sum(axis=1)
    for row in y:
        term = np.log(0.5) + norm.logpdf(row, grid).sum(axis=1)
        density += np.logaddexp(term, np.log(0.5) + norm.logpdf(row, scale=np.sqrt(10.0)).sum())
    log_evidence = logsumexp(density) + 2 * np.log(6 / 240)
    p = np.exp(density - logsumexp(density))
    np.testing.assert_allclose(found.mean, p @ grid, atol=5e-3)
    assert abs(found.log_evidence - log_evidence) < 0.02


@pytest.mark.parametrize(
    ("method", "stored"), [("run_importance", LISTED), ("run_importance", TYPICAL), ("run_gibbs", TYPICAL)]
)
def test_clutter_samplers_find_the_exact_posterior(method, stored):
    """Not Gibbs for the listed data: it hardly ever moves between the modes."""
    truth, draws = stored["exact"], 40_000 if method == "run_importance" else 8_000
    found = last(getattr(clutter, method)(data_of(stored), draws, np.random.default_rng(3)))
    assert abs(found.mean - truth["mean"]) < 0.1 * np.sqrt(truth["var"])
    assert abs(found.log_evidence - truth["logev"]) < 0.1


def test_clutter_ep_is_ten_times_as_accurate_as_the_others_at_its_cost():
    """Minka's figure 1 at n = 200: evidence and mean, for as many operations."""
    y = clutter.simulate(200, np.random.default_rng(0))
    truth, end = clutter.exact(y), last(clutter.run_ep(y))
    rng = np.random.default_rng(1)
    paths = {name: run(y) for name, run in clutter.METHODS.items() if name in ("adf", "laplace", "vb")}
    paths |= {name: clutter.METHODS[name](y, 2_000, rng) for name in clutter.SAMPLERS}
    for name, path in paths.items():
        other = [found for found in path if found.flops <= end.flops][-1]
        for part in ("mean", "log_evidence"):
            ours, theirs = (abs(getattr(found, part) - getattr(truth, part)) for found in (end, other))
            assert theirs > 10 * ours, (name, part)
