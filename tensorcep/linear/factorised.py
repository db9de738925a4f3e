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
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.compile import LOGLIK_SIGNATURE, TILTED2_SIGNATURE, TILTED_SIGNATURE, address_of
from tensorcep.core.executor import Executor
from tensorcep.core.loop import AnyMethod, Method, Sweep
from tensorcep.ep.sites import log_integral
from tensorcep.linear.problem import GLMPosterior, GLMProblem, learned_variance, rows_of, spread
from tensorcep.linear.settings import GLM_METHODS, Factorised
from tensorcep.linear.sweep import (
    GLMBuffers,
    GLMMessages,
    GLMRule,
    GLMSums,
    Rows,
    conditional_sweep,
    log_scales,
    row_sweep,
)

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


SIGNATURES = {"tilted": TILTED_SIGNATURE, "tilted2": TILTED2_SIGNATURE, "loglik": LOGLIK_SIGNATURE}


class Variant(NamedTuple):
    """What sets one of the methods apart.

    Attributes
    ----------
    part : str
        The part of the likelihood that is asked: moments, also with second derivatives, or the log likelihood.
    conditional : bool
        Whether it is asked for every message, at the posterior of the other weights, or once for a row.
    before : Variant, optional
        What makes the first `warm_up` sweeps.
    evidence : bool
        Whether the messages give an estimate of the log evidence.
    """

    part: str
    conditional: bool = False
    before: Variant | None = None
    evidence: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts of a likelihood that are asked."""
        return (*(() if self.before is None else self.before.needs), self.part)


class FactorisedState(NamedTuple):
    """Posterior and prior of the weights, messages, the design, and where the schedule is."""

    mean: np.ndarray
    var: np.ndarray
    prior_var: np.ndarray
    tau: np.ndarray
    nu: np.ndarray
    messages: GLMMessages
    rows: Rows
    step: float
    momentum: float
    least: float
    waited: int
    sweeps: int


def init(problem: GLMProblem, settings: Factorised, executor: Executor) -> FactorisedState:
    """Messages that say nothing, or next to nothing, and the prior."""
    rows = rows_of(problem.X, problem.y)
    d, size, precision = problem.X.shape[1], len(rows.value), settings.message_precision
    messages = GLMMessages(np.full(size, precision), np.zeros(size), np.zeros(size), np.zeros(len(rows.y)))
    tau, nu = precision * np.bincount(rows.column, minlength=d), np.zeros(d)
    mean, var = _posterior(problem, problem.prior_cov, tau, nu)
    if settings.damping == "adaptive":
        step, momentum = _schedule(problem, problem.prior_mean, problem.prior_cov)
    else:
        step, momentum = 1.0 - float(settings.damping), 0.0
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


def _work(rows: Rows, conditional: bool, theta: float) -> GLMBuffers:
    size = max(BLOCK, int(np.diff(rows.start).max(initial=0))) if conditional else BLOCK
    y, m, v, logz, alpha, beta, alpha2, beta2, rest = np.empty((9, size))
    return GLMBuffers(y, m, v, np.full(size, theta), logz, alpha, beta, alpha2, beta2, rest)


def _rule(problem: GLMProblem, variant: Variant, step: float, momentum: float, floor: float) -> GLMRule:
    address = address_of(getattr(problem.likelihood, variant.part), SIGNATURES[variant.part])
    laplace, second = variant.part == "loglik", variant.part == "tilted2"
    return GLMRule(address, laplace, second, step, momentum, floor, floor > 0.0)


def step(
    state: FactorisedState, problem: GLMProblem, settings: Any, executor: Executor, variant: Variant
) -> tuple[FactorisedState, Sweep]:
    """Renew all messages from the same posterior, damp them, and add them up."""
    warming_up = variant.before is not None and state.sweeps < settings.warm_up
    now = variant.before if warming_up and variant.before is not None else variant
    rows, n_chunks, d = state.rows, len(state.rows.chunk_start) - 1, len(state.mean)
    tau_sums, nu_sums, gap_sums = np.empty((3, n_chunks, d))
    sums = GLMSums(tau_sums, nu_sums, gap_sums, np.empty((n_chunks, 2)))
    rule = _rule(problem, now, *_pace(state, settings), settings.message_precision)
    sweep: Callable[..., Any] = conditional_sweep if now.conditional else row_sweep
    record = (rows, state.mean, state.var, state.messages, rule, sums)
    theta = problem.likelihood.default_theta
    executor.run(sweep, 0, n_chunks, *record, scratch=lambda: (_work(rows, now.conditional, theta),))
    tau, nu = sums.tau.sum(axis=0), sums.nu.sum(axis=0)
    moved, left_out = sums.counts.sum(axis=0)
    prior_var = learned_variance(problem, state.prior_var, *_posterior(problem, state.prior_var, tau, nu))
    mean, var = _posterior(problem, prior_var, tau, nu)
    residual = _residual(state, (tau - state.tau) / rule.step, sums.gap.sum(axis=0))
    change = residual if settings.stop == "residual" else moved / len(rows.y)
    if warming_up:
        change = np.inf  # the first order may have converged, the second has not begun
    schedule = _next_schedule(state, problem, settings, residual, mean, prior_var)
    new = FactorisedState(mean, var, prior_var, tau, nu, state.messages, rows, *schedule, state.sweeps + 1)
    return new, Sweep(change=float(change), skipped=int(left_out))


def _at_first(state: FactorisedState, settings: Factorised) -> bool:
    return settings.damping == "adaptive" and state.sweeps < FIRST_SWEEPS


def _pace(state: FactorisedState, settings: Factorised) -> tuple[float, float]:
    """Step and momentum of this sweep."""
    return (FIRST_STEP * state.step, 0.0) if _at_first(state, settings) else (state.step, state.momentum)


def _next_schedule(
    state: FactorisedState,
    problem: GLMProblem,
    settings: Factorised,
    residual: float,
    mean: np.ndarray,
    prior_var: np.ndarray,
) -> tuple[float, float, float, int]:
    """Step, momentum, the least change so far, and the sweeps since, after a sweep with this change."""
    step, momentum, least, waited = state.step, state.momentum, min(residual, state.least), state.waited + 1
    waited = 0 if residual <= least or _at_first(state, settings) else waited
    if settings.damping == "adaptive" and waited >= PATIENCE:
        return max(STEP_SHRINK * step, STEP_MIN), STEP_SHRINK * momentum, residual, 0
    if settings.damping == "adaptive" and state.sweeps + 1 in CHOICES:
        step, momentum = _schedule(problem, mean, prior_var)
    return step, momentum, least, waited


def _residual(state: FactorisedState, dtau: np.ndarray, dnu: np.ndarray) -> float:
    """Largest undamped change of a weight: relative in precision, or of the mean in standard deviations."""
    moves = np.maximum(np.abs(dtau) * state.var, np.abs(dnu - state.mean * dtau) * np.sqrt(state.var))
    return float(moves.max(initial=0.0))


def finish(state: FactorisedState, problem: GLMProblem, variant: Variant) -> GLMPosterior:
    """The posterior and, for EP, its estimate of the log evidence."""
    log_evidence = np.nan
    if variant.evidence:
        rows, total = state.rows, np.zeros(len(state.rows.chunk_start) - 1)
        rule = _rule(problem, variant, 1.0, 0.0, 0.0)
        work = _work(rows, variant.conditional, problem.likelihood.default_theta)
        log_scales(0, len(total), rows, state.mean, state.var, state.messages, rule, total, work)
        parts = zip(problem.prior_mean, state.prior_var, state.tau, state.nu, strict=True)
        log_evidence = float(total.sum() + sum(log_integral(*part) for part in parts))
    return GLMPosterior(state.mean, state.var, state.prior_var, log_evidence)


def _method(name: str, variant: Variant, source: str) -> AnyMethod:
    own = partial(step, variant=variant), partial(finish, variant=variant)
    return Method(name, variant.needs, type(GLM_METHODS[name]), init, *own, source)


FIRST_ORDER = Variant("tilted", conditional=True)
SECOND_ORDER = Variant("tilted2", conditional=True, before=FIRST_ORDER)

EP_FACTORIZED = _method(
    "ep-factorized", Variant("tilted", evidence=True), "CEP, supplement 8.2.1 and 8.3.1, in scalar form"
)
CEP1 = _method("cep1", FIRST_ORDER, "CEP, eq. 10, supplement 8.2.2 and 8.3.2")
CEP2 = _method("cep2", SECOND_ORDER, "CEP, eq. 11, supplement 8.2.2 and 8.3.2")
LP = _method("lp", Variant("loglik"), "Eskin, Smola, Vishwanathan (2004), Laplace propagation; CEP, sec. 5.1")
