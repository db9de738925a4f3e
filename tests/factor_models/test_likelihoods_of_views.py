"""Every view with its likelihood: probit labels, Poisson counts, values at a limit; against twins and planted data."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import relation_problems as p
from scipy.stats import norm, truncnorm

import tensorcep as tc
from tensorcep.factor_models.settings import Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def views(rng, N=120):
    """Latent values (N, D) of three views with two shared components."""
    u = rng.standard_normal((N, 2))
    return [u @ rng.standard_normal((2, D)) + rng.standard_normal(D) for D in (8, 10, 6)]


def three(rng):
    """A real view piled up at 0, labels by probit and Poisson counts, and their latent values."""
    f = views(rng)
    noisy = f[0] + 0.3 * rng.standard_normal(f[0].shape)
    labels = (f[1] + rng.standard_normal(f[1].shape) > 0.0).astype(float)
    return [np.maximum(noisy, 0.0), labels, rng.poisson(np.logaddexp(0.0, f[2])).astype(float)], f


MIXED = {"likelihood": ["gaussian", "probit", "poisson"], "lower_limit": [0.0, None, None], "random_state": 0}


def test_hidden_normals_have_the_moments_of_truncated_ones(rng):
    f, variance = rng.standard_normal((4, 3)), rng.random((4, 3))
    x = p.problem((rng.random((4, 3)) < 0.5).astype(float), 1, "probit").relations[0]
    sites = x.kind.form.expected(x, p.Priors(), None, f, variance)
    below, above = np.where(x.x > 0.0, -f, -np.inf), np.where(x.x > 0.0, np.inf, -f)
    np.testing.assert_allclose(sites.target, f + truncnorm.mean(below, above), rtol=1e-9)
    bound = x.kind.form.cell_bounds(x, sites, f, variance)
    np.testing.assert_allclose(bound, norm.logcdf(x.x * f) - 0.5 * variance, rtol=1e-9)
    limited = p.problem(rng.standard_normal((4, 3)), 1, "limited", noise=4.0).relations[0]
    sites = limited.kind.form.expected(limited, p.Priors(), None, f, variance)
    at = limited.x <= p.LIMIT
    law = truncnorm(-np.inf, 2.0 * (p.LIMIT - f), f, 0.5)
    np.testing.assert_allclose(sites.target[at], 4.0 * law.mean()[at], rtol=1e-8)
    np.testing.assert_allclose(sites.psi_var[at], law.var()[at], rtol=1e-7)
    np.testing.assert_allclose(sites.target[~at], 4.0 * limited.x[~at], rtol=1e-12)
    bound = limited.kind.form.cell_bounds(limited, sites, f, variance)
    exact = np.where(at, norm.logcdf(2.0 * (p.LIMIT - f)), norm.logpdf(limited.x, f, 0.5))
    np.testing.assert_allclose(bound, exact - 2.0 * variance, rtol=1e-8)


@pytest.mark.parametrize("method", ["vb", "vb-factorized"])
def test_views_of_every_likelihood_find_what_was_planted(rng, method, tmp_path):
    X, f = three(rng)
    held = rng.random(X[0].shape) < 0.2
    seen = np.where(held, np.nan, X[0])
    model = tc.GroupFactorAnalysis(5, method=method, max_iter=150, **MIXED).fit([seen, *X[1:]])
    bounds = model.trace_["lower_bound"]
    assert np.diff(bounds).min() > -1e-8 * np.abs(bounds).max()
    naive = tc.GroupFactorAnalysis(5, method=method, max_iter=150, **{**MIXED, "lower_limit": None})
    naive.fit([seen, *X[1:]])
    errors = [np.sqrt(np.mean((m.reconstruct(0) - X[0])[held] ** 2)) for m in (model, naive)]
    assert errors[0] < 0.95 * errors[1]
    assert (model.reconstruct(0) > 0.0).all()
    np.testing.assert_allclose(np.median(model.noise_variance_[0]), 0.09, rtol=0.5)  # a column may be all limit
    for m, mean in ((1, norm.cdf(f[1])), (2, np.logaddexp(0.0, f[2]))):
        assert np.corrcoef(model.reconstruct(m).ravel(), mean.ravel())[0, 1] > 0.9
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    for m in range(3):
        np.testing.assert_array_equal(again.reconstruct(m), model.reconstruct(m))
    rows = model.transform([X[0][:9], None, X[2][:9]])
    np.testing.assert_array_equal(again.transform([X[0][:9], None, X[2][:9]]), rows)
    assert np.abs(np.corrcoef(rows[:, 0], model.scores_[:9, 0])[0, 1]) > 0.9


def test_gibbs_agrees_with_vb_on_labels_and_limits(rng):
    X, _ = three(rng)
    how = {"likelihood": ["gaussian", "probit"], "lower_limit": [0.0, None], "random_state": 0}
    sampled = tc.GroupFactorAnalysis(3, method=Gibbs(burn_in=100), max_iter=300, **how).fit(X[:2])
    exact = tc.GroupFactorAnalysis(3, max_iter=200, **how).fit(X[:2])
    for m, tol in ((0, 0.15), (1, 0.07)):
        assert np.sqrt(np.mean((sampled.reconstruct(m) - exact.reconstruct(m)) ** 2)) < tol
    with pytest.raises(ValueError, match="or for counts likelihood 'negbinomial'"):
        tc.GroupFactorAnalysis(3, "poisson", method="gibbs").fit(X[2:])


def test_limits_that_no_value_reaches_change_nothing_and_columns_have_their_own(rng):
    X = views(rng)[0] + 0.3
    plain = tc.BayesianCCA(3, random_state=0, max_iter=60).fit(X[:, :4], X[:, 4:])
    low = tc.BayesianCCA(3, random_state=0, max_iter=60, lower_limit=-1e6).fit(X[:, :4], X[:, 4:])
    np.testing.assert_allclose(low.reconstruct(0), plain.reconstruct(0), rtol=1e-4, atol=1e-4)
    limits = np.quantile(X, 0.3, axis=0)
    own = tc.CollectiveMatrixFactorization(
        [("a", "b", "gaussian"), ("a", "c", "bernoulli")], 3, random_state=0, max_iter=100, lower_limit=[limits, None]
    )
    own.fit([np.maximum(X, limits), (X > 0.0).astype(float)])
    assert (own.reconstruct(0) >= limits).all()
    assert np.corrcoef(own.reconstruct(0).ravel(), np.maximum(X, limits).ravel())[0, 1] > 0.9


def test_likelihoods_and_limits_that_do_not_fit_are_refused(rng):
    X, _ = three(rng)
    refused = [
        ({"likelihood": "logit"}, "likelihood must be one of"),
        ({"likelihood": "probit", "noise": "view"}, "noise has a meaning only where a view is 'gaussian'"),
        ({"ard": 3}, "ard must be True or False; got 3"),
        ({"lower_limit": [0.0, None]}, "lower_limit must be a number, or one item"),
        ({**MIXED, "lower_limit": [None, 0.0, None]}, "lower_limit is for 'gaussian' matrices; matrix 1 is 'probit'"),
        ({**MIXED, "lower_limit": [[0.0, 1.0], None, None]}, "lower_limit of 0 must hold one number for each of the 8"),
        ({**MIXED, "lower_limit": np.nan}, "lower_limit of 0 must be finite"),
    ]
    for params, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            tc.GroupFactorAnalysis(2, **params).fit(X)
    labels = [(np.abs(view) > 0.5).astype(float) for view in X]
    with pytest.raises(ValueError, match="lower_limit is for 'gaussian' matrices; got 0 and none of these; leave it"):
        tc.GroupFactorAnalysis(2, likelihood="probit", lower_limit=0.0).fit(labels)
