"""Mean-field variational Bayes for probit and logistic regression.

Both make Gaussian pseudo-observations of x'w: for the probit with truncated normal variables of precision 1 (Albert
and Chib), for the logit with a quadratic bound tangent at xi (Jaakkola and Jordan), whose precision is 2 lambda(xi). A
sweep updates each weight in turn, exactly, and then the pseudo-observations; the lower bound never falls.

Source: Wang and Zhe, CEP, sec. 5.1; Jaakkola and Jordan (2000), Bayesian parameter estimation via variational methods;
Albert and Chib (1993), Bayesian analysis of binary and polychotomous response data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_expit

from tensorcep.core.compile import kernel
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.likelihoods.base import log_density
from tensorcep.linear.problem import GLMPosterior, GLMProblem, learned_variance
from tensorcep.linear.settings import GLM_METHODS, GLMSettings

SMALL_XI = 1e-6  # below this xi, tanh(xi / 2) / (2 xi) is 1/4 to rounding


class VBState(NamedTuple):
    """Posterior and prior of the weights, X by columns, its squares by rows, and mean and variance of x'w."""

    mean: np.ndarray
    var: np.ndarray
    prior_var: np.ndarray
    columns: tuple[np.ndarray, ...]  # where each begins, and row and value of each number
    squares: Any
    f: np.ndarray
    spread: np.ndarray


@kernel
def _column_sweep(start, row, value, precision, residual, prior_mean, prior_var, mean, var):
    """Update the weights in turn for pseudo-observations with this precision; residual is precision times (z - x'w)."""
    for d in range(mean.shape[0]):
        tau, pull = 1.0 / prior_var[d], (prior_mean[d] - mean[d]) / prior_var[d]
        for at in range(start[d], start[d + 1]):
            i, x = row[at], value[at]
            tau += precision[i] * x * x
            pull += x * residual[i]
        var[d] = 1.0 / tau
        move = pull / tau
        mean[d] += move
        for at in range(start[d], start[d + 1]):
            i = row[at]
            residual[i] -= precision[i] * value[at] * move


def init(problem: GLMProblem, settings: GLMSettings, executor: Executor) -> VBState:
    """The prior."""
    by_column = problem.X.tocsc()
    by_column.sort_indices()
    columns = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64), by_column.data
    squares, mean, var = problem.X.multiply(problem.X).tocsr(), problem.prior_mean.copy(), problem.prior_cov.copy()
    return VBState(mean, var, var.copy(), columns, squares, problem.X @ mean, squares @ var)


def _pseudo(problem: GLMProblem, state: VBState) -> tuple[np.ndarray, np.ndarray, float]:
    """Precision of pseudo-observations z of f = x'w, precision times (z - f), and the lower bound of log p(y)."""
    y, f, spread = problem.y, state.f, state.spread
    if problem.likelihood.normal is not None:  # truncated normals of precision 1 whose signs are the labels
        precision = np.ones_like(f)
        value, residual, _ = log_density(problem.likelihood.loglik, y, f, 1.0)
        bound = float(value.sum() - 0.5 * spread.sum())
    else:  # a bound tangent at xi
        xi = np.sqrt(f**2 + spread)
        safe = np.maximum(xi, SMALL_XI)
        precision = np.where(xi > SMALL_XI, np.tanh(0.5 * safe) / (2.0 * safe), 0.25)
        residual = 0.5 * y - precision * f
        bound = float(np.sum(log_expit(xi) - 0.5 * xi + 0.5 * y * f))
    ratio = state.var / state.prior_var  # and less the divergence of the posterior from the prior
    shift = (state.mean - problem.prior_mean) ** 2 / state.prior_var
    return precision, residual, bound - 0.5 * float(np.sum(ratio + shift - 1.0 - np.log(ratio)))


def step(state: VBState, problem: GLMProblem, settings: GLMSettings, executor: Executor) -> tuple[VBState, Sweep]:
    """Update every weight once, then the pseudo-observations; the change is undamped."""
    precision, residual, lower_bound = _pseudo(problem, state)
    mean, var = state.mean.copy(), state.var.copy()
    _column_sweep(*state.columns, precision, residual, problem.prior_mean, state.prior_var, mean, var)
    change = np.maximum(np.abs(mean - state.mean) / np.sqrt(var), np.abs(state.var / var - 1.0)).max(initial=0.0)
    prior_var = learned_variance(problem, state.prior_var, mean, var)
    f, spread = problem.X @ mean, state.squares @ var
    new = state._replace(mean=mean, var=var, prior_var=prior_var, f=f, spread=spread)
    return new, Sweep(change=float(change), lower_bound=lower_bound)


def finish(state: VBState, problem: GLMProblem) -> GLMPosterior:
    """The posterior and the lower bound."""
    return GLMPosterior(state.mean, state.var, state.prior_var, _pseudo(problem, state)[2])


VB = Method("vb", ("loglik",), type(GLM_METHODS["vb"]), init, step, finish, "CEP, sec. 5.1")
