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
from scipy.linalg import eigvalsh_tridiagonal

from tensorcep.core import compile as compiler
from tensorcep.core.compile import address_of, call_at, kernel
from tensorcep.core.executor import Executor
from tensorcep.core.loop import AnyMethod, Method, Sweep
from tensorcep.ep.sites import cavity, damp, log_integral, site_from_tilted
from tensorcep.kernels.special import newton_or_middle
from tensorcep.likelihoods.base import log_density
from tensorcep.linear.problem import GLMPosterior, GLMProblem, learned_variance
from tensorcep.linear.settings import GLM_METHODS, Factorised

# Compiled sweeps over the messages of a factorised generalised linear model.
#
# Row i of the design sends each weight d with x_id != 0 a Gaussian message with precision tau and natural mean nu. All
# messages of a sweep are made from the same posterior (the parallel schedule), chunk by chunk of rows; each chunk adds
# its messages up in a line of its own, so that the result does not depend on the number of threads.

MAX_NEWTON = 60  # Newton steps of a Laplace mode; from the last sweep's mode two or three are enough
NEWTON_TOL = 1e-12


class Rows(NamedTuple):
    """The design in compressed rows, labels -1/+1, and the first row of each chunk."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    y: np.ndarray
    chunk_start: np.ndarray


class GLMMessages(NamedTuple):
    """Precision, natural mean and the last change of it of every message, (nnz,) each; Laplace mode of every row."""

    tau: np.ndarray
    nu: np.ndarray
    velocity: np.ndarray
    mode: np.ndarray


class GLMRule(NamedTuple):
    """How messages are made."""

    address: int  # kernel of the likelihood: `tilted`, `tilted2` where `second`, `loglik` for Laplace modes
    laplace: bool
    second: bool
    step: float  # fraction of the way that a message goes to its new value
    momentum: float  # fraction of the last change of its natural mean that a message makes again
    floor: float  # messages whose precision would be negative get this one
    keep_nu: bool  # whether these keep their old natural mean (as the published code does) or their new mean


class GLMSums(NamedTuple):
    """Per chunk, zeros before a sweep: sums of the new messages and of undamped changes of nu, (chunks, d); counts."""

    tau: np.ndarray
    nu: np.ndarray
    gap: np.ndarray
    counts: np.ndarray  # (chunks, 2): the sum of squared changes of nu, and messages left as they were


class GLMBuffers(NamedTuple):
    """Buffers, one number per call of the likelihood in a block; `theta` is what the likelihood gets as it is."""

    y: np.ndarray
    m: np.ndarray
    v: np.ndarray
    theta: np.ndarray
    logz: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    alpha2: np.ndarray
    beta2: np.ndarray
    rest: np.ndarray


@kernel
def _store(at, d, f, mu, s, a, b, messages, rule, gap, count):
    """Store message `at` so that the cavity N(mu, s) gets mean mu + s a and variance s - s^2 b; count what it was."""
    # Momentum repeats that part of the change of nu which moves the posterior mean f of weight d, and not that which
    # goes with a change of tau: the message's precision, which must stay positive, has no momentum.
    if not (s * b < 1.0 and abs(a) < np.inf) and not rule.keep_nu:
        count[1] += 1.0
        return
    tau, nu = site_from_tilted(mu, s, a, b)
    if not (tau > 0.0 and s * b < 1.0):
        tau = rule.floor
        nu = messages.nu[at] if rule.keep_nu else mu * tau + a * (1.0 + s * tau)
    gap[d] += nu - messages.nu[at]
    change = rule.step * (nu - messages.nu[at]) + rule.momentum * messages.velocity[at]
    count[0] += change * change
    messages.velocity[at] = change - f * rule.step * (tau - messages.tau[at])
    messages.nu[at] += change
    messages.tau[at] = damp(messages.tau[at], tau, 1.0 - rule.step)


@kernel
def _add(first, last, chunk, rows, messages, sums):
    """Add the messages first..last to the sums of their chunk."""
    for at in range(first, last):
        d = rows.column[at]
        sums.tau[chunk, d] += messages.tau[at]
        sums.nu[chunk, d] += messages.nu[at]


@kernel
def laplace_modes(address, size, mode, work):
    """Write the modes s = m + v l'(s) of (likelihood x N(m, v)), with l' into work.alpha and -l'' into work.beta."""
    # l' falls with s, so the mode lies between m and m + v l'(m): Newton's steps are kept inside a shrinking bracket,
    # and cut where they go back and forth.
    y, m, v, theta = work.y[:size], work.m[:size], work.v[:size], work.theta
    value, d1, d2 = work.logz[:size], work.alpha[:size], work.beta[:size]
    low, high, before = work.alpha2, work.beta2, work.rest
    call_at(address, y, m, theta, value, d1, d2)
    for j in range(size):
        bound = m[j] + v[j] * d1[j]
        low[j], high[j] = min(m[j], bound), max(m[j], bound)
        before[j] = 2.0 * (high[j] - low[j])
        mode[j] = min(max(mode[j], low[j]), high[j])
    for _ in range(MAX_NEWTON):
        call_at(address, y, mode, theta, value, d1, d2)
        worst = 0.0
        for j in range(size):
            excess = mode[j] - m[j] - v[j] * d1[j]
            if excess > 0.0:
                high[j] = mode[j]
            else:
                low[j] = mode[j]
            step = -excess / (1.0 - v[j] * d2[j])
            close = NEWTON_TOL * (1.0 + abs(mode[j]))
            new, before[j] = newton_or_middle(mode[j], step, low[j], high[j], before[j], close)
            worst = max(worst, abs(new - mode[j]) / (1.0 + abs(new)))
            mode[j] = new
        if worst < NEWTON_TOL:
            break
    call_at(address, y, mode, theta, value, d1, d2)
    for j in range(size):
        d2[j] = -d2[j]


@kernel
def _row_moments(begin, end, rows, mean, var, messages, rule, work):
    """Write mean and variance of x'w under the cavities of rows begin..end, and the likelihood's answers."""
    for j in range(end - begin):
        work.y[j] = rows.y[begin + j]
        m, v = 0.0, 0.0
        for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
            d, x = rows.column[at], rows.value[at]
            mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
            m += x * mu
            v += x * x * s
        work.m[j], work.v[j] = m, v
    size = end - begin
    if rule.laplace:
        laplace_modes(rule.address, size, messages.mode[begin:end], work)
        return
    y, m, v = work.y[:size], work.m[:size], work.v[:size]
    call_at(rule.address, y, m, v, work.theta, work.logz[:size], work.alpha[:size], work.beta[:size])


@kernel
def row_sweep(first, last, rows, mean, var, messages, rule, sums, work):
    """Renew all messages of chunks first..last from moments of x'w under the cavities: EP, or Laplace propagation."""
    block = work.m.shape[0]
    for c in range(first, last):
        for begin in range(rows.chunk_start[c], rows.chunk_start[c + 1], block):
            end = min(begin + block, rows.chunk_start[c + 1])
            _row_moments(begin, end, rows, mean, var, messages, rule, work)
            for j in range(end - begin):
                alpha, beta = work.alpha[j], work.beta[j]
                for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
                    d, x = rows.column[at], rows.value[at]
                    mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                    b = x * x * beta
                    # The curvature along each weight alone, h / (1 + x^2 s h) for h = -l'', that is a message of
                    # precision x^2 h: the diagonal of the Hessian, as in the published code.
                    if rule.laplace:
                        b /= 1.0 + s * b
                    _store(at, d, mean[d], mu, s, x * alpha, b, messages, rule, sums.gap[c], sums.counts[c])
            _add(rows.start[begin], rows.start[end], c, rows, messages, sums)


@kernel
def _fill(begin, chunk_end, rows, mean, var, messages, work):
    """Write the conditional moments of x'w given each weight's cavity for as many rows as fit; return their end."""
    end, size = begin, 0
    while end < chunk_end and size + rows.start[end + 1] - rows.start[end] <= work.m.shape[0]:
        f, o = 0.0, 0.0
        for at in range(rows.start[end], rows.start[end + 1]):
            d, x = rows.column[at], rows.value[at]
            f += x * mean[d]
            o += x * x * var[d]
        for at in range(rows.start[end], rows.start[end + 1]):
            d, x = rows.column[at], rows.value[at]
            mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
            work.y[size] = rows.y[end]
            work.m[size] = f + x * (mu - mean[d])
            work.v[size] = x * x * s
            work.rest[size] = o - x * x * var[d]  # variance of the rest of x'w, which the second order needs
            size += 1
        end += 1
    return end


@kernel
def conditional_sweep(first, last, rows, mean, var, messages, rule, sums, work):
    """Renew all messages of chunks first..last from conditional moments: CEP, a call of the likelihood per message."""
    # Source: CEP eqs 10 and 11 at the posterior moments of the other weights, supplement 8.2 and 8.3.
    for c in range(first, last):
        begin = rows.chunk_start[c]
        while begin < rows.chunk_start[c + 1]:
            end = _fill(begin, rows.chunk_start[c + 1], rows, mean, var, messages, work)
            at0 = rows.start[begin]
            size = rows.start[end] - at0
            y, m, v, theta = work.y[:size], work.m[:size], work.v[:size], work.theta
            logz, alpha, beta = work.logz[:size], work.alpha[:size], work.beta[:size]
            alpha2, beta2 = work.alpha2[:size], work.beta2[:size]
            if rule.second:
                call_at(rule.address, y, m, v, theta, logz, alpha, beta, alpha2, beta2)
            else:
                call_at(rule.address, y, m, v, theta, logz, alpha, beta)
            for j in range(size):
                at = at0 + j
                d, x = rows.column[at], rows.value[at]
                mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                if rule.second:
                    alpha[j] += 0.5 * alpha2[j] * work.rest[j]
                    beta[j] += 0.5 * beta2[j] * work.rest[j]
                a, b = x * alpha[j], x * x * beta[j]
                _store(at, d, mean[d], mu, s, a, b, messages, rule, sums.gap[c], sums.counts[c])
            _add(at0, at0 + size, c, rows, messages, sums)
            begin = end


@kernel
def log_scales(first, last, rows, mean, var, messages, rule, total, work):
    """Add up, per chunk, the log scales of the rows' sites: EP's part of the log evidence."""
    # Source: Minka (2008), eq. 48, with a site that is a product over the weights.
    block = work.m.shape[0]
    for c in range(first, last):
        for begin in range(rows.chunk_start[c], rows.chunk_start[c + 1], block):
            end = min(begin + block, rows.chunk_start[c + 1])
            _row_moments(begin, end, rows, mean, var, messages, rule, work)
            for j in range(end - begin):
                total[c] += work.logz[j]
                for at in range(rows.start[begin + j], rows.start[begin + j + 1]):
                    d = rows.column[at]
                    mu, s = cavity(mean[d], var[d], messages.tau[at], messages.nu[at], 1.0)
                    total[c] -= log_integral(mu, s, messages.tau[at], messages.nu[at])


# The methods: what they ask, their schedule, and the loop's init, step and finish.

# Work is divided into at most MAX_CHUNKS ranges of rows, each with about this many stored numbers or more.
CHUNK_SIZE = 1 << 15
MAX_CHUNKS = 32
BLOCK = 256  # rows, or messages, that go to the likelihood in one call
LANCZOS_STEPS = 16
# Lanczos' iteration has found an invariant space when the next vector is this short; eigenvalues are of the order of 1.
LANCZOS_END = 1e-8
# With eigenvalues of the weights' correlation in [low, high], a step of STEP / high and momentum (1 - sqrt(STEP low /
# high))^2, up to a limit, forget the start in about sqrt(high / low) sweeps instead of high / low.
STEP, MOST_MOMENTUM = 1.2, 0.95
# The first sweeps come from a posterior that knows nothing: smaller steps, without momentum. The step is chosen anew
# after these sweeps, because the rows near the decision boundary tell more than the others.
FIRST_SWEEPS, FIRST_STEP = 5, 0.5
CHOICES = (5, 10, 20, 40)
# After this many sweeps without a smaller change than before, the step shrinks.
PATIENCE, STEP_SHRINK, STEP_MIN = 40, 0.5, 1e-4
TILTED, TILTED2, LOGLIK = compiler.TILTED_SIGNATURE, compiler.TILTED2_SIGNATURE, compiler.LOGLIK_SIGNATURE
SIGNATURES = {"tilted": TILTED, "tilted2": TILTED2, "loglik": LOGLIK}


class Variant(NamedTuple):
    """What sets one of the methods apart."""

    part: str  # of the likelihood that is asked: moments, also with second derivatives, or the log likelihood
    conditional: bool = False  # whether it is asked for every message, at the other weights' posterior, or once a row
    before: Variant | None = None  # what makes the first `warm_up` sweeps
    evidence: bool = False  # whether the messages give an estimate of the log evidence


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


def rows_of(X: Any, y: np.ndarray) -> Rows:
    """The design for the sweeps, in chunks of about equal work that depend on the data alone."""
    start, size = X.indptr.astype(np.int64), X.nnz
    n_chunks = min(max(size // CHUNK_SIZE, 1), MAX_CHUNKS)
    cuts = np.searchsorted(start, np.linspace(0, size, n_chunks + 1)[1:-1])
    chunk_start = np.concatenate([[0], cuts, [X.shape[0]]]).astype(np.int64)
    return Rows(start, X.indices.astype(np.int64), X.data.astype(np.float64), y, chunk_start)


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
    _, _, d2 = log_density(problem.likelihood.loglik, problem.y, problem.X @ mean, problem.likelihood.default_theta)
    low, high = spread(problem.X, -d2, prior_var, LANCZOS_STEPS)
    step = min(1.0, STEP / high)
    return step, min((1.0 - np.sqrt(min(step * low, 1.0))) ** 2, MOST_MOMENTUM)


def spread(X: Any, information: np.ndarray, prior_cov: np.ndarray, steps: int) -> tuple[float, float]:
    """Least and largest eigenvalue of X'WX with the prior's precision, scaled to a unit diagonal."""
    # W is what each row tells of x'w. Both are 1 where the posterior has no correlations. By this many steps of
    # Lanczos' iteration from a fixed start: the least one is found from above, the largest from below.
    scale = 1.0 / np.sqrt(X.multiply(X).T @ information + 1.0 / prior_cov)
    vector, before, b = np.sqrt(1.0 + np.arange(len(scale)) % 7), np.zeros(len(scale)), 0.0
    vector /= np.linalg.norm(vector)
    diagonal, beside = list[float](), list[float]()
    for _ in range(min(steps, len(scale))):
        scaled = scale * vector
        product = scale * (X.T @ (information * (X @ scaled)) + scaled / prior_cov) - b * before
        diagonal.append(float(vector @ product))
        product -= diagonal[-1] * vector
        b = float(np.linalg.norm(product))
        if b < LANCZOS_END:
            break
        beside.append(b)
        vector, before = product / b, vector
    values = eigvalsh_tridiagonal(diagonal, beside[: len(diagonal) - 1])
    return float(min(max(values[0], 0.0), 1.0)), float(max(values[-1], 1.0))


def _posterior(
    problem: GLMProblem, prior_var: np.ndarray, tau: np.ndarray, nu: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    var = 1.0 / (1.0 / prior_var + tau)
    return var * (problem.prior_mean / prior_var + nu), var


def _work(rows: Rows, conditional: bool, problem: GLMProblem) -> GLMBuffers:
    size = max(BLOCK, int(np.diff(rows.start).max(initial=0))) if conditional else BLOCK
    y, m, v, *rest = np.empty((9, size))
    return GLMBuffers(y, m, v, np.full(size, problem.likelihood.default_theta), *rest)


def _rule(problem: GLMProblem, variant: Variant, step: float, momentum: float, floor: float) -> GLMRule:
    address = address_of(getattr(problem.likelihood, variant.part), SIGNATURES[variant.part])
    laplace, second = variant.part == "loglik", variant.part == "tilted2"
    return GLMRule(address, laplace, second, step, momentum, floor, floor > 0.0)


def step(
    state: FactorisedState, problem: GLMProblem, settings: Any, executor: Executor, variant: Variant
) -> tuple[FactorisedState, Sweep]:
    """Renew all messages from the same posterior, damp them, and add them up."""
    warm_up = variant.before if variant.before and state.sweeps < settings.warm_up else None
    now, adaptive = warm_up or variant, settings.damping == "adaptive"
    rows, n_chunks, d = state.rows, len(state.rows.chunk_start) - 1, len(state.mean)
    tau_sums, nu_sums, gap_sums = np.zeros((3, n_chunks, d))
    sums = GLMSums(tau_sums, nu_sums, gap_sums, np.zeros((n_chunks, 2)))
    at_first = adaptive and state.sweeps < FIRST_SWEEPS
    pace = (FIRST_STEP * state.step, 0.0) if at_first else (state.step, state.momentum)
    rule = _rule(problem, now, *pace, settings.message_precision)
    sweep: Callable[..., Any] = conditional_sweep if now.conditional else row_sweep
    record = (rows, state.mean, state.var, state.messages, rule, sums)
    executor.run(sweep, 0, n_chunks, *record, scratch=lambda: (_work(rows, now.conditional, problem),))
    tau, nu = sums.tau.sum(axis=0), sums.nu.sum(axis=0)
    moved, left_out = sums.counts.sum(axis=0)
    prior_var = learned_variance(problem, state.prior_var, *_posterior(problem, state.prior_var, tau, nu))
    mean, var = _posterior(problem, prior_var, tau, nu)
    # the largest undamped change of a weight: relative in precision, or of the mean in standard deviations
    dtau, dnu = (tau - state.tau) / rule.step, sums.gap.sum(axis=0)
    moves = np.maximum(np.abs(dtau) * state.var, np.abs(dnu - state.mean * dtau) * np.sqrt(state.var))
    residual = float(moves.max(initial=0.0))
    change = residual if settings.stop == "residual" else moved / len(rows.y)
    if warm_up:
        change = np.inf  # the first order may have converged, the second has not begun
    step, momentum, least = state.step, state.momentum, min(residual, state.least)
    waited = 0 if residual <= least or at_first else state.waited + 1
    if adaptive and waited >= PATIENCE:
        step, momentum, least, waited = max(STEP_SHRINK * step, STEP_MIN), STEP_SHRINK * momentum, residual, 0
    elif adaptive and state.sweeps + 1 in CHOICES:
        step, momentum = _schedule(problem, mean, prior_var)
    schedule = step, momentum, least, waited, state.sweeps + 1
    new = FactorisedState(mean, var, prior_var, tau, nu, state.messages, rows, *schedule)
    return new, Sweep(change=float(change), skipped=int(left_out))


def finish(state: FactorisedState, problem: GLMProblem, variant: Variant) -> GLMPosterior:
    """The posterior and, for EP, its estimate of the log evidence."""
    log_evidence = np.nan
    if variant.evidence:
        rows, total = state.rows, np.zeros(len(state.rows.chunk_start) - 1)
        rule = _rule(problem, variant, 1.0, 0.0, 0.0)
        work = _work(rows, variant.conditional, problem)
        log_scales(0, len(total), rows, state.mean, state.var, state.messages, rule, total, work)
        parts = zip(problem.prior_mean, state.prior_var, state.tau, state.nu, strict=True)
        log_evidence = float(total.sum() + sum(log_integral(*part) for part in parts))
    return GLMPosterior(state.mean, state.var, state.prior_var, log_evidence)


def _method(name: str, variant: Variant, source: str) -> AnyMethod:
    needs = (variant.part,) if variant.before is None else (variant.before.part, variant.part)
    own = partial(step, variant=variant), partial(finish, variant=variant)
    return Method(name, needs, type(GLM_METHODS[name]), init, *own, source)


FIRST_ORDER = Variant("tilted", conditional=True)
FACTORISED = (
    _method("ep-factorized", Variant("tilted", evidence=True), "CEP, supplement 8.2.1 and 8.3.1, in scalar form"),
    _method("cep1", FIRST_ORDER, "CEP, eq. 10, supplement 8.2.2 and 8.3.2"),
    _method("cep2", Variant("tilted2", True, FIRST_ORDER), "CEP, eq. 11, supplement 8.2.2 and 8.3.2"),
    _method("lp", Variant("loglik"), "Eskin, Smola, Vishwanathan (2004), Laplace propagation; CEP, sec. 5.1"),
)
