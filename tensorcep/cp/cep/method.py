"""Conditional expectation propagation (CEP) for the CP model.

Every entry i sends each of its K rows a Gaussian message with a full R x R precision. An update removes the entry's own
message from the row (the cavity), forms the conditional moments of the row given the other modes, takes their
expectation to first or second order, and stores the message that turns the cavity into those moments.

Source: Wang and Zhe, "Conditional Expectation Propagation" (CEP), sec. 3-4 and supplement 8.1. Where we differ: the
other modes' moments come from the cavity by default (the paper's text says posterior, its figures used the cavity);
the noise message keeps all second moments (CEP eq. 18; the supplement drops them); the modewise schedule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.jit import TILTED_SIGNATURE, address_of
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import unpack
from tensorcep.cp.cep.averaged import averaged_pass
from tensorcep.cp.cep.columns import Columns, all_free, columns_of
from tensorcep.cp.cep.moments import layout
from tensorcep.cp.cep.sweep import Messages, Rule, Sums, add_sums, scale_messages, sweep_chunks
from tensorcep.cp.free_columns import all_columns, all_means, free_problem
from tensorcep.cp.limits import censored_lanes
from tensorcep.cp.messages import empty_messages, empty_sums
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import (
    RowState,
    diagonal,
    initial_prior,
    latent_of_entries,
    learn_prior,
    refresh_rows,
    relative_change,
    rows_at_prior,
    seen_rows,
    train_score,
)
from tensorcep.cp.settings import passing
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.record import Conditional

CEPOptions = passing.CEP

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05
# A row may become this many times as wide as the prior; beyond that its precision is a difference without digits.
MAX_VARIANCE_RATIO = 1e3
# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40


class CEPState(NamedTuple):
    """Messages, rows and their prior, noise posterior (a, b), latent means of the entries, sweeps; step, ceiling.

    With clamped columns messages, rows and prior are those of the problem in the free ones, `small`. `censored` tells
    whether an entry is.
    """

    messages: Messages
    sums: Sums
    rows: RowState
    prior: Conditional
    noise: tuple[float, float]
    f: np.ndarray
    sweeps: int
    step: float
    ceiling: float
    change: float
    tilted: int
    max_variance: float
    columns: Columns
    small: Problem
    censored: bool


def init(problem: Problem, options: CEPOptions, executor: Executor) -> CEPState:
    """Empty messages, and rows at the starting means with the prior's precision."""
    check_choice("noise_moments", options.noise_moments, ("tilted", "cavity"))
    problem, censored = _in_free_columns(problem, options), bool(censored_lanes(problem).any())
    if censored and (options.order == 2 or options.moments == "posterior" or options.messages == "averaged"):
        fail_value(
            'censored values need order=1, moments="cavity" and messages="full"; set those, or lower_limit=None.'
        )
    entries, R = problem.entries, problem.rank
    messages, sums = _first_messages(problem, options), empty_sums(problem)
    rows = rows_at_prior(problem)
    if options.message_precision:
        rows.Lam[:, diagonal(R)] += options.message_precision * sums.counts[:, None]
    if problem.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, R), problem.start)
    refresh_rows(rows, 0, len(rows.good), executor)
    noise = (0.0, 1.0)
    if problem.noise_prior is not None:
        noise = (problem.noise_prior.a + messages.a.sum(), problem.noise_prior.b + messages.b.sum())
    if options.messages == "averaged":
        messages = messages._replace(a=np.zeros((0, LANES)), b=np.zeros((0, LANES)))
    step = 1.0 if options.damping == "adaptive" else 1.0 - float(options.damping)
    if options.damping == "adaptive" and (problem.noise_prior is None or options.schedule == "parallel"):
        step = 0.5
    f = latent_of_entries(entries, _means(rows, problem), executor)
    tilted = address_of(problem.likelihood.tilted, TILTED_SIGNATURE)
    max_variance = MAX_VARIANCE_RATIO * float(rows.cov[:, diagonal(R)].max(initial=0.0))
    prior, columns = initial_prior(problem), all_free(len(problem.shape))
    if problem.free is not None:
        columns = columns_of(problem.free)
    progress = (0, step, 1.0, np.inf)
    return CEPState(messages, sums, rows, prior, noise, f, *progress, tilted, max_variance, columns, problem, censored)


def _in_free_columns(problem: Problem, options: CEPOptions) -> Problem:
    """The problem that the kernels see. Second order and averaged messages know clamped columns only by their prior."""
    if problem.free is None or options.order == 2 or options.messages == "averaged":
        return problem._replace(free=None)
    return free_problem(problem)


def _means(rows: RowState, problem: Problem) -> np.ndarray:
    """Row means of all columns."""
    return rows.mean if problem.free is None else all_means(rows.mean, problem.free, problem.shape)


def _first_messages(problem: Problem, options: CEPOptions) -> Messages:
    stored = check_choice("messages", options.messages, ("full", "averaged")) == "full"
    messages = empty_messages(problem, options.dtype, options.message_noise, stored)
    if options.message_precision and stored:
        messages.Lam[:, :, diagonal(problem.rank)] = options.message_precision * problem.entries.weight[:, None, None]
    return messages


def step(state: CEPState, problem: Problem, options: CEPOptions, executor: Executor) -> tuple[CEPState, Sweep]:
    """One sweep: every message once."""
    problem = state.small
    K = len(problem.shape)
    passes = [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]
    noise, skipped, shrunk = state.noise, 0, 0
    for modes in passes:
        noise, n_skipped, n_shrunk = _pass(state, noise, modes, problem, options, executor)
        skipped += n_skipped
        shrunk += n_shrunk
    if state.sweeps >= options.anneal:
        state, n_shrunk = _learn(state, problem, executor)
        shrunk += n_shrunk
    f = latent_of_entries(problem.entries, _means(state.rows, problem), executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = relative_change(f, state.f) / state.step
    new_step, ceiling = _adapted(state, change, skipped) if options.damping == "adaptive" else (state.step, 1.0)
    theta = noise[0] / noise[1] if problem.noise_prior is not None else problem.likelihood.default_theta
    sweep = Sweep(
        change=change,
        noise_precision=theta if problem.noise_prior is not None else np.nan,
        skipped=skipped,
        shrunk=shrunk,
        train_score=train_score(problem, f, theta),
    )
    sweeps = state.sweeps + 1
    return state._replace(noise=noise, f=f, sweeps=sweeps, step=new_step, ceiling=ceiling, change=change), sweep


def _learn(state: CEPState, problem: Problem, executor: Executor) -> tuple[CEPState, int]:
    """Move the rows' prior as far as the messages move.

    Messages are positive semidefinite, so any prior leaves every cavity a Gaussian; where they are not (second order,
    or without `positive`), the messages of a row that the new prior makes unsound are shrunk.
    """
    prior = learn_prior(state.prior, problem, state.rows, state.step, executor)
    if prior.modes is None:
        return state, 0
    widest = float(np.linalg.inv(prior.modes.precision).diagonal(axis1=1, axis2=2).max())
    state = state._replace(prior=prior, max_variance=MAX_VARIANCE_RATIO * widest)
    return state, _shrink(state, problem, 0, len(prior.eta), executor)


def _adapted(state: CEPState, change: float, skipped: int) -> tuple[float, float]:
    """The next step and its ceiling under adaptive damping."""
    if change > state.change or skipped > 0:
        return max(STEP_MIN, state.step * STEP_SHRINK), max(STEP_MIN, state.step * CEILING_SHRINK)
    return min(state.ceiling, state.step * STEP_GROWTH), state.ceiling


def _pass(
    state: CEPState,
    noise: tuple[float, float],
    modes: tuple[int, int],
    problem: Problem,
    options: CEPOptions,
    executor: Executor,
) -> tuple[tuple[float, float], int, int]:
    """Update the messages to the given modes, then their rows and the noise."""
    entries, rows, sums = problem.entries, state.rows, state.sums
    rule = Rule(
        step=float(state.step),
        theta=float(problem.likelihood.default_theta),
        tilted=state.tilted,
        gaussian=problem.noise_prior is not None,
        from_posterior=options.moments == "posterior",
        order=1 if state.sweeps < max(options.warm_up, options.anneal) else options.order,
        positive=options.positive,
        power=float(options.anneal_power) if state.sweeps < options.anneal else 1.0,
        censored=state.censored,
        tilted_noise=options.noise_moments == "tilted" and options.moments == "cavity",
    )
    if options.messages == "averaged":
        noise = averaged_pass(modes, rows, state.prior, noise, sums, rule, problem, executor)
        first, last = int(entries.offsets[modes[0]]), int(entries.offsets[modes[1]])
        return noise, int(sums.skipped.sum()), _shrink(state, problem, first, last, executor)

    def sweep(first: int, last: int) -> None:
        at = layout(len(problem.shape), problem.rank)
        work = lane_zeros((at.size, LANES))
        work[at.one] = 1.0
        sweep_chunks((first, last), modes, entries, state.columns, rows, state.messages, sums, noise, rule, work, at)

    executor.over(len(entries.chunk_start) - 1, sweep)
    first, last = int(entries.offsets[modes[0]]), int(entries.offsets[modes[1]])

    def total(a: int, b: int) -> None:
        add_sums(first + a, first + b, state.prior.Lam, state.prior.eta, sums, rows.Lam, rows.eta)

    executor.over(last - first, total, LANES)
    refresh_rows(rows, first, last, executor)
    shrunk = _shrink(state, problem, first, last, executor)
    if problem.noise_prior is not None and modes[1] == len(problem.shape):
        a, b = sums.noise.sum(axis=0)
        noise = (problem.noise_prior.a + float(a), problem.noise_prior.b + float(b))
    return noise, int(sums.skipped.sum()), shrunk


def _sound(state: CEPState, where: slice) -> np.ndarray:
    """Whether rows are Gaussians that are not far wider than the prior."""
    rows = state.rows
    widest = rows.cov[where][:, diagonal(rows.eta.shape[1])].max(axis=1)
    return (rows.good[where] > 0.0) & (widest <= state.max_variance)


def _shrink(state: CEPState, problem: Problem, first: int, last: int, executor: Executor) -> int:
    """Halve the messages of rows whose precision is not positive definite, or close to that, until it is.

    Messages may be indefinite, so their sum can outweigh the prior. Scaling all messages of such a row keeps "posterior
    = prior x messages" true, which resetting the row alone would not.
    """
    rows, prior = state.rows, state.prior
    bad = first + np.flatnonzero(~_sound(state, slice(first, last)))
    if bad.size == 0:
        return 0
    factor = np.ones(len(rows.good))
    for i in bad:
        excess_Lam, excess_eta = rows.Lam[i] - prior.Lam[i], rows.eta[i] - prior.eta[i]
        for _ in range(MAX_HALVINGS):
            factor[i] *= 0.5
            rows.Lam[i] = prior.Lam[i] + factor[i] * excess_Lam
            rows.eta[i] = prior.eta[i] + factor[i] * excess_eta
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
            if _sound(state, slice(i, i + 1)).all():
                break
        else:
            factor[i] = 0.0
            rows.Lam[i], rows.eta[i] = prior.Lam[i], prior.eta[i]
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
    stored = len(state.messages.Lam)
    scale_messages(factor, problem.entries.rows[:stored], state.messages.Lam, state.messages.eta)
    return int(bad.size)


def finish(state: CEPState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    noise = GammaNoise(*state.noise) if problem.noise_prior is not None else None
    posterior = Posterior(
        problem.shape,
        state.small.rank,
        state.rows.Lam,
        state.rows.eta,
        noise,
        seen_rows(problem),
        mode_prior=state.prior.modes,
    )
    return posterior if state.small.free is None else all_columns(posterior, state.small.free)


def trial_sweeps(options: CEPOptions) -> int:
    """Sweeps before the ones that count: annealed ones, and first-order ones when the second order is to follow."""
    return max(options.anneal, options.warm_up if options.order == 2 else 0)


CEP = Method(
    name="cep",
    needs=("tilted", "loglik"),
    options=CEPOptions,
    init=init,
    step=step,
    finish=finish,
    source="Wang & Zhe, Conditional Expectation Propagation",
    trial_sweeps=trial_sweeps,
    learns_prior=True,
    takes_limits=True,
    mixes=True,
)
