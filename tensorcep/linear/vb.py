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
from tensorcep.linear.problem import GLMPosterior, GLMProblem, learned_variance
from tensorcep.linear.settings import GLM_METHODS, GLMSettings

# Below this xi, tanh(xi / 2) / (2 xi) is 1/4 to rounding.
SMALL_XI = 1e-6


class VBState(NamedTuple):
    """Posterior and prior of the weights, X and its squares by columns, and means of x'w."""

    mean: np.ndarray
    var: np.ndarray
    prior_var: np.ndarray
    start: np.ndarray
    row: np.ndarray
    value: np.ndarray
    squares: np.ndarray
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
    squares = problem.X.multiply(problem.X).tocsr()
    mean, var = problem.prior_mean.copy(), problem.prior_cov.copy()
    start, row = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64)
    f = problem.X @ mean
    return VBState(mean, var, var.copy(), start, row, by_column.data, squares, f, squares @ var)


def _truncated_normal(problem: GLMProblem, state: VBState) -> tuple[np.ndarray, np.ndarray, float]:
    """Of the probit: normal variables of precision 1 whose signs are the labels."""
    value, d1, d2 = np.empty((3, len(problem.y)))
    problem.likelihood.loglik(problem.y, state.f, np.ones_like(state.f), value, d1, d2)
    return np.ones_like(state.f), d1, float(value.sum() - 0.5 * state.spread.sum())


def _quadratic_bound(problem: GLMProblem, state: VBState) -> tuple[np.ndarray, np.ndarray, float]:
    """Of the logit: a bound tangent at xi."""
    xi = np.sqrt(state.f**2 + state.spread)
    safe = np.maximum(xi, SMALL_XI)
    precision = np.where(xi > SMALL_XI, np.tanh(0.5 * safe) / (2.0 * safe), 0.25)
    bound = float(np.sum(log_expit(xi) - 0.5 * xi + 0.5 * problem.y * state.f))
    return precision, 0.5 * problem.y - precision * state.f, bound


def _pseudo(problem: GLMProblem, state: VBState) -> tuple[np.ndarray, np.ndarray, float]:
    """Precision of pseudo-observations z of f, precision times (z - f), and a bound of the expected log likelihood."""
    return (_quadratic_bound if problem.likelihood.normal is None else _truncated_normal)(problem, state)


def step(state: VBState, problem: GLMProblem, settings: GLMSettings, executor: Executor) -> tuple[VBState, Sweep]:
    """Update every weight once, then the pseudo-observations; the change is undamped."""
    precision, residual, bound = _pseudo(problem, state)
    lower_bound = bound - _divergence(problem, state)
    mean, var = state.mean.copy(), state.var.copy()
    _column_sweep(
        state.start, state.row, state.value, precision, residual, problem.prior_mean, state.prior_var, mean, var
    )
    change = np.maximum(np.abs(mean - state.mean) / np.sqrt(var), np.abs(state.var / var - 1.0)).max(initial=0.0)
    prior_var = learned_variance(problem, state.prior_var, mean, var)
    f, spread = problem.X @ mean, state.squares @ var
    new = state._replace(mean=mean, var=var, prior_var=prior_var, f=f, spread=spread)
    return new, Sweep(change=float(change), lower_bound=lower_bound)


def _divergence(problem: GLMProblem, state: VBState) -> float:
    """KL divergence of the posterior from the prior."""
    ratio = state.var / state.prior_var
    shift = (state.mean - problem.prior_mean) ** 2 / state.prior_var
    return 0.5 * float(np.sum(ratio + shift - 1.0 - np.log(ratio)))


def finish(state: VBState, problem: GLMProblem) -> Any:
    """The posterior and the lower bound."""
    bound = _pseudo(problem, state)[2] - _divergence(problem, state)
    return GLMPosterior(state.mean, state.var, state.prior_var, bound)


VB = Method("vb", ("loglik",), type(GLM_METHODS["vb"]), init, step, finish, "CEP, sec. 5.1")
