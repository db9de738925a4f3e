"""Methods for generalised linear models whose posterior has a full covariance: EP, and importance sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from tensorcep.core.checks import check_choice, check_int
from tensorcep.ep.gaussian import EPResult, GaussianEP
from tensorcep.linear.data import GLMPosterior, GLMProblem

# Range of the learned prior variance, and the tolerance of its logarithm.
VARIANCE_RANGE = (1e-6, 1e6)
VARIANCE_TOL = 1e-3
# Proposals are a little wider than EP's posterior, so that weights stay bounded.
WIDER = 1.1
# Draws whose likelihood is computed at a time.
BATCH = 1000


@dataclass(frozen=True)
class EPOptions:
    """Settings of EP with full covariance.

    Attributes
    ----------
    schedule : {"sequential", "parallel"}
        As in `tensorcep.ep.gaussian.GaussianEP`.
    """

    schedule: str = "sequential"


@dataclass(frozen=True)
class ISOptions:
    """Settings of importance sampling.

    Attributes
    ----------
    n_draws : int
    proposal : {"posterior", "prior"}
        "posterior" draws from EP's posterior, 10 % wider, which works in many dimensions; "prior" does not.
    """

    n_draws: int = 20_000
    proposal: str = "posterior"


class FullFit(NamedTuple):
    """Posterior, sweeps, whether they converged, and the trace."""

    posterior: GLMPosterior
    n_iter: int
    converged: bool
    trace: dict[str, np.ndarray]


def fit_ep(problem: GLMProblem, options: EPOptions, max_iter: int, tol: float) -> FullFit:
    """EP; a learned prior variance maximises its log evidence."""
    sites = None

    def run(prior_cov: Any) -> EPResult:
        nonlocal sites
        ep = GaussianEP(problem.prior_mean, prior_cov, options.schedule, max_iter=max_iter, tol=tol)
        y = 0.5 * (problem.y + 1.0)
        result = ep.fit(problem.X, y, problem.likelihood, sites=sites)
        sites = result.sites
        return result

    prior_cov = problem.prior_cov
    if problem.learned.any():
        log_range = tuple(np.log(VARIANCE_RANGE))

        def of_variance(log_variance: float) -> np.ndarray:
            return np.where(problem.learned, np.exp(log_variance), problem.prior_cov)

        best = minimize_scalar(
            lambda log_variance: -run(of_variance(log_variance)).log_evidence,
            bounds=log_range,
            method="bounded",
            options={"xatol": VARIANCE_TOL},
        )
        prior_cov = of_variance(float(best.x))
    result = run(prior_cov)
    posterior = GLMPosterior(result.mean, result.cov, prior_cov, result.log_evidence)
    return FullFit(posterior, result.n_iter, result.converged, result.trace)


def fit_is(problem: GLMProblem, options: ISOptions, max_iter: int, tol: float) -> FullFit:
    """Moments and evidence by self-normalised importance sampling; the trace holds the effective number of draws."""
    check_int("n_draws", options.n_draws, 2)
    check_choice("proposal", options.proposal, ("posterior", "prior"))
    ep = fit_ep(problem, EPOptions(), max_iter, tol)
    prior_cov = _matrix(ep.posterior.prior_cov)
    from_prior = options.proposal == "prior"
    mean, cov = (problem.prior_mean, prior_cov) if from_prior else (ep.posterior.mean, WIDER * ep.posterior.cov)
    rng = np.random.default_rng(problem.seed)
    draws = mean + rng.standard_normal((options.n_draws, len(mean))) @ np.linalg.cholesky(cov).T
    log_weight = _log_normal(draws, problem.prior_mean, prior_cov) - _log_normal(draws, mean, cov)
    log_weight += _log_likelihood(problem, draws)
    total = float(logsumexp(log_weight))
    weight = np.exp(log_weight - total)
    found = weight @ draws
    centred = draws - found
    posterior = GLMPosterior(
        found, (weight[:, None] * centred).T @ centred, ep.posterior.prior_cov, total - np.log(options.n_draws)
    )
    trace = {"effective_draws": np.array([1.0 / np.sum(weight**2)])}
    return FullFit(posterior, 1, True, trace)


def _matrix(cov: np.ndarray) -> np.ndarray:
    return np.diag(cov) if cov.ndim == 1 else cov


def _log_normal(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Log density of each draw, without the constant that two such densities share."""
    chol = np.linalg.cholesky(cov)
    white = solve_triangular(chol, (draws - mean).T, lower=True)
    return -0.5 * np.sum(white**2, axis=0) - float(np.log(np.diag(chol)).sum())


def _log_likelihood(problem: GLMProblem, draws: np.ndarray) -> np.ndarray:
    n, result = len(problem.y), np.empty(len(draws))
    for first in range(0, len(draws), BATCH):
        f = (problem.X @ draws[first : first + BATCH].T).T
        value, d1, d2 = np.empty((3, f.size))
        theta = np.full(f.size, problem.likelihood.default_theta)
        problem.likelihood.loglik(np.tile(problem.y, len(f)), np.ascontiguousarray(f).ravel(), theta, value, d1, d2)
        result[first : first + BATCH] = value.reshape(len(f), n).sum(axis=1)
    return result
