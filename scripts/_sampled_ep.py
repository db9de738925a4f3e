"""Factorised EP whose tilted moments come from a function that may sample or predict: the paper's IS baseline.

Every row of X sends each of its weights one Gaussian message; all messages of a sweep are made from the same posterior
and go a fraction of the way to their new values, as in the published code.

Source: Wang and Zhe, "Conditional Expectation Propagation", sec. 6.1. The text says 500,000 draws for every moment;
the published code takes 100,000, from the standard normal prior, and so do we.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from tensorcep.inference._glm_data import GLMPosterior, GLMProblem
from tensorcep.inference.glm_full import FullFit

CDF = {"probit": ndtr, "logit": expit}
MESSAGE_PRECISION = 1e-6
# Weights of this many rows' draws are held at a time.
BLOCK_NUMBERS = 1 << 22

# moments(mu, s) -> (a, b): the cavities N(mu, s) of all weights, (n, d), turn into mean mu + s a, variance s - s^2 b.
Moments = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class State(NamedTuple):
    """Means and variances of the weights after a sweep."""

    mean: np.ndarray
    var: np.ndarray


class Change(NamedTuple):
    """What a sweep changed: the published criterion, and the largest undamped move of a weight."""

    published: float
    residual: float


def sampled_ep(
    problem: GLMProblem,
    moments: Moments,
    *,
    damping: float,
    stop: str,
    max_iter: int,
    tol: float,
    score: Callable[[int, Any, State], Any] | None = None,
) -> FullFit:
    """Sweep until the change that `stop` names ("published" or "residual") is below tol."""
    live = problem.X.toarray() != 0.0
    tau, nu = np.where(live, MESSAGE_PRECISION, 0.0), np.zeros(live.shape)
    state, seconds, converged = _posterior(problem, tau, nu), [], False
    while len(seconds) < max_iter and not converged:
        begin = time.perf_counter()
        new_tau, new_nu = _proposals(state, tau, nu, moments)
        dtau, dnu = np.where(live, new_tau - tau, 0.0), np.where(live, new_nu - nu, 0.0)
        change = _change(state, dtau, dnu, 1.0 - damping)
        tau, nu = tau + (1.0 - damping) * dtau, nu + (1.0 - damping) * dnu
        state = _posterior(problem, tau, nu)
        seconds.append(time.perf_counter() - begin)
        converged = getattr(change, stop) < tol
        if score is not None:
            score(len(seconds), change, state)
    posterior = GLMPosterior(state.mean, state.var, problem.prior_cov, np.nan)
    return FullFit(posterior, len(seconds), converged, {"seconds": np.array(seconds)})


def _proposals(state: State, tau: np.ndarray, nu: np.ndarray, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Messages that match the moments; a message without a finite one stays, one of no precision keeps its nu."""
    left = 1.0 - state.var * tau
    mu, s = (state.mean - state.var * nu) / left, state.var / left
    a, b = moments(mu, s)
    kept = 1.0 - s * b
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        new_tau = b / kept
        new_nu = a / kept + mu * new_tau
    finite = np.isfinite(new_tau) & np.isfinite(new_nu)
    positive = finite & (new_tau > 0.0) & (kept > 0.0)
    new_tau = np.where(positive, new_tau, np.where(finite, MESSAGE_PRECISION, tau))
    return new_tau, np.where(positive, new_nu, nu)


def _change(state: State, dtau: np.ndarray, dnu: np.ndarray, rho: float) -> Change:
    total_tau, total_nu = dtau.sum(axis=0), dnu.sum(axis=0)
    shift = np.abs(total_nu - state.mean * total_tau) * np.sqrt(state.var)
    residual = np.maximum(np.abs(total_tau) * state.var, shift).max(initial=0.0)
    return Change(float(np.sum((rho * dnu) ** 2)) / len(dnu), float(residual))


def _posterior(problem: GLMProblem, tau: np.ndarray, nu: np.ndarray) -> State:
    var = 1.0 / (1.0 / problem.prior_cov + tau.sum(axis=0))
    return State(var * (problem.prior_mean / problem.prior_cov + nu.sum(axis=0)), var)


def importance_moments(problem: GLMProblem, draws: int) -> Moments:
    """Self-normalised importance sampling of each row's tilted density with one set of draws from N(0, I).

    The weight of a draw is likelihood x cavity / N(0, I) over the row's own weights. Where the cavity is narrow, or has
    many dimensions, few draws have any weight and the moments are poor: that is what the baseline shows.
    """
    x, cdf = problem.X.toarray(), CDF[problem.likelihood.name]
    w = np.random.default_rng(problem.seed).standard_normal((draws, x.shape[1]))
    squares, signed = w * w, x * problem.y[:, None]
    size = max(1, BLOCK_NUMBERS // draws)

    def moments(mu: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, var = np.empty((2, *x.shape))
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            live = x[rows] != 0.0
            linear, quadratic = np.where(live, mu[rows] / s[rows], 0.0), np.where(live, 0.5 / s[rows] - 0.5, 0.0)
            weight = linear @ w.T - quadratic @ squares.T
            weight -= weight.max(axis=1, keepdims=True)
            np.exp(weight, out=weight)
            weight *= cdf(signed[rows] @ w.T)
            total = weight.sum(axis=1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean[rows] = weight @ w / total
                var[rows] = weight @ squares / total - mean[rows] ** 2
        return (mean - mu) / s, (s - var) / s**2

    return moments
