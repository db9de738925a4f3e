"""Methods for generalised linear models whose posterior has a full covariance: EP, and importance sampling."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from tensorcep.core.loop import Run
from tensorcep.ep.gaussian import EPResult, GaussianEP
from tensorcep.ep.sites import Sites
from tensorcep.linear.problem import GLMPosterior, GLMProblem
from tensorcep.linear.settings import EP, IS

VARIANCE_RANGE, VARIANCE_TOL = (1e-6, 1e6), 1e-3  # of the learned prior variance, and the tolerance of its logarithm
WIDER = 1.1  # proposals are a little wider than EP's posterior, so that weights stay bounded
# Parallel sweeps of EP before it goes on one row at a time; the log-concave likelihoods of labels take about five.
MOST_PARALLEL = 100
BATCH = 1000  # draws whose likelihood is computed at a time


def fit_ep(problem: GLMProblem, settings: EP, max_iter: int, tol: float) -> Run:
    """EP; a learned prior variance maximises its log evidence."""
    labels = 0.5 * (problem.y + 1.0)
    sites: Sites | None = None

    def swept(prior_cov: np.ndarray, schedule: str, most: int) -> EPResult:
        nonlocal sites  # each run starts at the sites of the last
        mean, projection = problem.prior_mean, settings.projection
        ep = GaussianEP(mean, prior_cov, schedule, max_iter=most, tol=tol, projection=projection)
        result = ep.fit(problem.X, labels, problem.likelihood, sites=sites)
        sites = result.sites
        return result

    def result_for(prior_cov: np.ndarray) -> EPResult:
        if settings.schedule != "auto":
            return swept(prior_cov, settings.schedule, max_iter)
        result = swept(prior_cov, "parallel", min(max_iter, MOST_PARALLEL))
        if result.converged or result.n_iter >= max_iter:
            return result
        return swept(prior_cov, "sequential", max_iter - result.n_iter)

    def with_variance(log_variance: float) -> np.ndarray:
        return np.where(problem.learned, np.exp(log_variance), problem.prior_cov)

    prior_cov = problem.prior_cov
    if problem.learned.any():
        how = {"bounds": tuple(np.log(VARIANCE_RANGE)), "method": "bounded", "options": {"xatol": VARIANCE_TOL}}
        best = minimize_scalar(lambda log_variance: -result_for(with_variance(log_variance)).log_evidence, **how)
        prior_cov = with_variance(float(best.x))
    result = result_for(prior_cov)
    posterior = GLMPosterior(result.mean, result.cov, prior_cov, result.log_evidence)
    return Run(posterior, result.n_iter, result.converged, False, result.trace, None)


def fit_is(problem: GLMProblem, settings: IS, max_iter: int, tol: float) -> Run:
    """Moments and evidence by self-normalised importance sampling; the trace holds the effective number of draws."""
    proposal = fit_ep(problem, EP(), max_iter, tol).posterior
    prior_cov = np.diag(proposal.prior_cov) if proposal.prior_cov.ndim == 1 else proposal.prior_cov
    from_prior = settings.proposal == "prior"
    mean, cov = (problem.prior_mean, prior_cov) if from_prior else (proposal.mean, WIDER * proposal.cov)
    rng = np.random.default_rng(problem.seed)
    draws = mean + rng.standard_normal((settings.n_draws, len(mean))) @ np.linalg.cholesky(cov).T
    log_weight = _log_normal(draws, problem.prior_mean, prior_cov) - _log_normal(draws, mean, cov)
    n = len(problem.y)
    for first in range(0, len(draws), BATCH):
        f = (problem.X @ draws[first : first + BATCH].T).T
        value, d1, d2 = np.empty((3, f.size))
        theta = np.full(f.size, problem.likelihood.default_theta)
        problem.likelihood.loglik(np.tile(problem.y, len(f)), np.ascontiguousarray(f).ravel(), theta, value, d1, d2)
        log_weight[first : first + BATCH] += value.reshape(len(f), n).sum(axis=1)
    total = float(logsumexp(log_weight))
    weight = np.exp(log_weight - total)
    centre = weight @ draws
    centred = draws - centre
    scatter = (weight[:, None] * centred).T @ centred
    posterior = GLMPosterior(centre, scatter, proposal.prior_cov, total - np.log(settings.n_draws))
    return Run(posterior, 1, True, False, {"effective_draws": np.array([1.0 / np.sum(weight**2)])}, None)


def _log_normal(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Log density of each draw, without the constant that two such densities share."""
    chol = np.linalg.cholesky(cov)
    white = solve_triangular(chol, (draws - mean).T, lower=True)
    return -0.5 * np.sum(white**2, axis=0) - float(np.log(np.diag(chol)).sum())
