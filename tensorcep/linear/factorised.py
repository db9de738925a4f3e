"""Factorised EP, conditional EP (CEP-1, CEP-2) and Laplace propagation (LP) for generalised linear models.

The posterior is a product over the weights. Every row of X sends each of its weights one Gaussian message; in a sweep
all messages are made from the same posterior and go a fraction of the way to their new values. The four methods differ
in the mean and variance of x'w at which the likelihood is asked, and in what they make of its answer:

- EP: the cavities of all weights of the row, which is exact moment matching for a factorised posterior.
- CEP-1: the cavity of the weight in question and the posterior means of the others.
- CEP-2: CEP-1 plus half the posterior variance of the others times the second derivatives of the conditional moments.
- LP: as EP, with the mode and curvature of (likelihood x cavity) in place of its moments.

All four approach var_d = 1 / precision_dd, not the marginal variance, where weights are correlated.

Source: Wang and Zhe, "Conditional Expectation Propagation" (CEP), sec. 3, sec. 5.1 and supplement 8.2-8.3. Where we
differ: EP for the logit is the scalar quadrature at the mean and variance of x'w (not a two-dimensional one), and LP
solves for the scalar mode (not L-BFGS over all weights); both are the same fixed points at n calls a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int, check_range
from tensorcep.core.executor import Executor
from tensorcep.core.jit import LOGLIK_SIGNATURE, TILTED2_SIGNATURE, TILTED_SIGNATURE, address_of
from tensorcep.core.loop import Method, Sweep
from tensorcep.kernels.sites import log_integral
from tensorcep.linear.data import GLMPosterior, GLMProblem, learned_variance, rows_of, spread
from tensorcep.linear.sweep import Messages, Rows, Rule, Sums, Work, conditional_sweep, log_scales, row_sweep

# Rows, or messages, that go to the likelihood in one call.
BLOCK = 256
LANCZOS_STEPS = 16
# With eigenvalues of the weights' correlation in [low, high], a step of STEP / high and momentum (1 - sqrt(STEP low /
# high))^2, up to a limit, forget the start in about sqrt(high / low) sweeps instead of high / low.
STEP, MOST_MOMENTUM = 1.2, 0.95
# The first sweeps come from a posterior that knows nothing: smaller steps, without momentum. The step is chosen anew
# after these sweeps, because the rows near the decision boundary tell more than the others.
FIRST_SWEEPS, FIRST_STEP = 5, 0.5
CHOICES = (5, 10, 20, 40)
# After this many sweeps without a smaller change than before, the step shrinks.
PATIENCE, STEP_SHRINK, STEP_MIN = 40, 0.5, 1e-4


@dataclass(frozen=True)
class FactorisedOptions:
    """Settings of the factorised message-passing methods.

    Attributes
    ----------
    damping : float or "adaptive"
        Fraction of the old message kept, in [0, 1); the paper's rho is 1 - damping. "adaptive" chooses a step, and
        momentum, by the correlations of the columns of X, and shrinks the step if the changes do not fall.
    first_order : int
        CEP-2: sweeps of CEP-1 before it (the published code's `cep_iter`). Far from the fixed point, and for posterior
        variances that are not small, the second order can diverge.
    stop : {"residual", "published"}
        What is compared with the tolerance: the largest undamped change of a weight's posterior, in posterior standard
        deviations or as a fraction of its precision; or the published code's sum of squared changes of the messages'
        natural means over the number of rows, which shrinks with the square of the step: it stops damped runs early.
    message_precision : float
        Precision of the first messages; the published code starts at 1e-6, and puts messages of negative precision
        there, keeping their natural mean.
    """

    damping: float | str = "adaptive"
    first_order: int = 10
    stop: str = "residual"
    message_precision: float = 0.0


class FactorisedState(NamedTuple):
    """Posterior and prior of the weights, messages, the design, and where the schedule is."""

    mean: np.ndarray
    var: np.ndarray
    prior_var: np.ndarray
    tau: np.ndarray
    nu: np.ndarray
    messages: Messages
    rows: Rows
    step: float
    momentum: float
    least: float
    waited: int
    sweeps: int


def init(problem: GLMProblem, options: FactorisedOptions, executor: Executor) -> FactorisedState:
    """Messages that say nothing (or little), and the prior."""
    check_choice("stop", options.stop, ("residual", "published"))
    check_int("first_order", options.first_order, 0)
    check_range("message_precision", options.message_precision, 0.0)
    if options.damping != "adaptive":
        check_range("damping", options.damping, 0.0, 1.0, include_high=False)
    rows = rows_of(problem.X, problem.y)
    d, size = problem.X.shape[1], len(rows.value)
    messages = Messages(np.full(size, options.message_precision), np.zeros(size), np.zeros(size), np.zeros(len(rows.y)))
    tau = options.message_precision * np.bincount(rows.column, minlength=d)
    nu = np.zeros(d)
    mean, var = _posterior(problem, problem.prior_cov, tau, nu)
    step, momentum = 1.0 - (0.0 if options.damping == "adaptive" else float(options.damping)), 0.0
    if options.damping == "adaptive":
        step, momentum = _schedule(problem, problem.prior_mean, problem.prior_cov)
    return FactorisedState(mean, var, problem.prior_cov, tau, nu, messages, rows, step, momentum, np.inf, 0, 0)


def _schedule(problem: GLMProblem, mean: np.ndarray, prior_var: np.ndarray) -> tuple[float, float]:
    """Step and momentum for the correlations of the weights at this posterior mean."""
    n = len(problem.y)
    value, d1, d2 = np.empty((3, n))
    problem.likelihood.loglik(problem.y, problem.X @ mean, np.full(n, problem.likelihood.default_theta), value, d1, d2)
    low, high = spread(problem.X, -d2, prior_var, LANCZOS_STEPS)
    step = min(1.0, STEP / high)
    return step, min((1.0 - np.sqrt(min(step * low, 1.0))) ** 2, MOST_MOMENTUM)


def _posterior(
    problem: GLMProblem, prior_var: np.ndarray, tau: np.ndarray, nu: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    var = 1.0 / (1.0 / prior_var + tau)
    return var * (problem.prior_mean / prior_var + nu), var


def _work(rows: Rows, conditional: bool, theta: float) -> Work:
    size = max(BLOCK, int(np.diff(rows.start).max(initial=0))) if conditional else BLOCK
    y, m, v, logz, alpha, beta, alpha2, beta2, rest = np.empty((9, size))
    return Work(y, m, v, np.full(size, theta), logz, alpha, beta, alpha2, beta2, rest)


def _rule(
    problem: GLMProblem, options: FactorisedOptions, name: str, second: bool, step: float, momentum: float
) -> Rule:
    likelihood, laplace = problem.likelihood, name == "lp"
    if laplace:
        address = address_of(likelihood.loglik, LOGLIK_SIGNATURE)
    elif second:
        address = address_of(likelihood.tilted2, TILTED2_SIGNATURE)
    else:
        address = address_of(likelihood.tilted, TILTED_SIGNATURE)
    floor = options.message_precision
    return Rule(address, laplace, second, step, momentum, floor, floor > 0.0)


def step(
    state: FactorisedState, problem: GLMProblem, options: FactorisedOptions, executor: Executor, name: str
) -> tuple[FactorisedState, Sweep]:
    """Renew all messages from the same posterior, damp them, and add them up."""
    rows, n_chunks, d = state.rows, len(state.rows.chunk_start) - 1, len(state.mean)
    second = name == "cep2" and state.sweeps >= options.first_order
    first = options.damping == "adaptive" and state.sweeps < FIRST_SWEEPS
    how = (FIRST_STEP * state.step, 0.0) if first else (state.step, state.momentum)
    rule = _rule(problem, options, name, second, *how)
    tau_sums, nu_sums, gap_sums = np.empty((3, n_chunks, d))
    sums = Sums(tau_sums, nu_sums, gap_sums, np.empty((n_chunks, 2)))
    conditional = name in ("cep1", "cep2")
    kernel: Callable[..., Any] = conditional_sweep if conditional else row_sweep

    def sweep(first: int, last: int) -> None:
        work = _work(rows, conditional, problem.likelihood.default_theta)
        kernel(first, last, rows, state.mean, state.var, state.messages, rule, sums, work)

    executor.over(n_chunks, sweep)
    tau, nu = sums.tau.sum(axis=0), sums.nu.sum(axis=0)
    moved, left_out = sums.counts.sum(axis=0)
    prior_var = learned_variance(problem, state.prior_var, *_posterior(problem, state.prior_var, tau, nu))
    mean, var = _posterior(problem, prior_var, tau, nu)
    residual = _residual(state, (tau - state.tau) / rule.step, sums.gap.sum(axis=0))
    change = residual if options.stop == "residual" else moved / len(rows.y)
    if name == "cep2" and state.sweeps < options.first_order:
        change = np.inf  # the first order may have converged, the second has not begun
    step, momentum, least, waited = state.step, state.momentum, min(residual, state.least), state.waited + 1
    waited = 0 if residual <= least or first else waited
    if options.damping == "adaptive" and waited >= PATIENCE:
        step, momentum, least, waited = max(STEP_SHRINK * step, STEP_MIN), STEP_SHRINK * momentum, residual, 0
    elif options.damping == "adaptive" and state.sweeps + 1 in CHOICES:
        step, momentum = _schedule(problem, mean, prior_var)
    schedule = step, momentum, least, waited, state.sweeps + 1
    new = FactorisedState(mean, var, prior_var, tau, nu, state.messages, rows, *schedule)
    return new, Sweep(float(change), np.nan, int(left_out), 0, np.nan)


def _residual(state: FactorisedState, dtau: np.ndarray, dnu: np.ndarray) -> float:
    """Largest undamped change of a weight: relative in precision, or of the mean in standard deviations."""
    moves = np.maximum(np.abs(dtau) * state.var, np.abs(dnu - state.mean * dtau) * np.sqrt(state.var))
    return float(moves.max(initial=0.0))


def finish(state: FactorisedState, problem: GLMProblem, name: str) -> GLMPosterior:
    """The posterior and, for EP, its estimate of the log evidence."""
    log_evidence = np.nan
    if name == "ep-factorized":
        rows, total = state.rows, np.zeros(len(state.rows.chunk_start) - 1)
        rule = _rule(problem, FactorisedOptions(), name, False, 1.0, 0.0)
        work = _work(rows, False, problem.likelihood.default_theta)
        log_scales(0, len(total), rows, state.mean, state.var, state.messages, rule, total, work)
        parts = zip(problem.prior_mean, state.prior_var, state.tau, state.nu, strict=True)
        log_evidence = float(total.sum() + sum(log_integral(*part) for part in parts))
    return GLMPosterior(state.mean, state.var, state.prior_var, log_evidence)


def _method(name: str, needs: tuple[str, ...], source: str) -> Method:
    end: Any = partial(finish, name=name)
    return Method(name, needs, FactorisedOptions, init, partial(step, name=name), end, source)


EP_FACTORIZED = _method("ep-factorized", ("tilted",), "CEP, supplement 8.2.1 and 8.3.1, in scalar form")
CEP1 = _method("cep1", ("tilted",), "CEP, eq. 10, supplement 8.2.2 and 8.3.2")
CEP2 = _method("cep2", ("tilted", "tilted2"), "CEP, eq. 11, supplement 8.2.2 and 8.3.2")
LP = _method("lp", ("loglik",), "Eskin, Smola, Vishwanathan (2004), Laplace propagation; CEP, sec. 5.1")
