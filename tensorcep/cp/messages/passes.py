"""The sweep of every message-passing method: new messages mode after mode, then the rows, the noise and the prior.

A method is told apart by its compiled kernel, which goes over chunks of entries, computes new messages to the rows of
some modes and leaves their sums per row in `state.sums`. Two safeguards follow: rows stay Gaussians (`shrink`), and
adaptive damping settles (`adapted`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Sweep
from tensorcep.cp.free_columns import all_covariances, all_means
from tensorcep.cp.messages.kernels import add_sums, scale_messages
from tensorcep.cp.messages.state import MAX_VARIANCE_RATIO, MessageState, Pace, latent_values, unsend
from tensorcep.cp.parameters import cuts_of, in_places_of, law_of_rows, thresholds_of_rows
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import RowState, diagonal, refresh_rows, relative_change, train_score
from tensorcep.cp.settings.passing import CEP, Laplace
from tensorcep.kernels.layout import work_array
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import conditional_of_modes, damped, for_kernel, moments_per_mode, per_row

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05
# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40

# The rows that a kernel gets, and the (a, b) of the noise; by default those of the state.
GivenRows = tuple[tuple[RowState, ...], tuple[float, float]]
Given = Callable[[MessageState, Problem, Executor], GivenRows]


def sweep(
    state: MessageState,
    problem: Problem,
    options: CEP | Laplace,
    executor: Executor,
    kernel: Any,
    slots: Any,
    given: Given | None = None,
) -> tuple[MessageState, Sweep]:
    """Every message once, by a kernel with these slots in its work array.

    A kernel that keeps no messages gets what `given` returns for rows; rows and noise are damped in their place.
    """
    entries, K, step, gaussian = (
        problem.weighted_entries,
        len(problem.shape),
        state.pace.step,
        problem.noise_prior is not None,
    )
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    rule = state.rule._replace(step=step, power=power, theta=float(state.law.mean[0]))
    state = state._replace(rule=rule._replace(cuts=cuts_of(problem, state.cut)))
    skipped = shrunk = 0
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        alone = modes[1] == modes[0] + 1
        if alone and problem.is_fixed(modes[0]) and not (gaussian and modes[1] == K):
            continue  # the pass of the last mode tells the noise as well
        rows, noise = ((state.rows,), state.noise) if given is None else given(state, problem, executor)
        record = (modes, entries, state.columns, *rows, state.messages, state.sums, noise, state.rule)
        executor.run(kernel, 0, len(entries.chunk_start) - 1, *record, scratch=partial(work_array, slots))
        unsend(state.messages, problem)
        state = _updated(state, problem, modes, 1.0 if given is None else step, executor)
        skipped += int(state.sums.skipped.sum())
        shrunk += shrink(state, problem, *_rows_of(modes, problem), executor)
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    state = _with_learned_parameter(state, problem, executor)
    f = latent_values(state.rows.mean, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = relative_change(f, state.f) / step
    theta = state.noise[0] / state.noise[1] if gaussian else float(state.law.mean[0])
    y: np.ndarray | None = None
    theta_of_entries: float | np.ndarray = theta
    if problem.likelihood.levels is not None:
        cut = None if state.cut is None else state.cut.thresholds
        y, theta_of_entries = in_places_of(problem, np.zeros(0), cut)
    info = Sweep(
        change=change,
        noise_precision=theta if gaussian else np.nan,
        skipped=skipped,
        shrunk=shrunk,
        train_score=train_score(problem, f, theta_of_entries, y),
    )
    pace = adapted(state.pace, change, skipped) if options.damping == "adaptive" else state.pace
    return state._replace(f=f, sweeps=state.sweeps + 1, pace=pace), info


def settle_mode(
    state: MessageState, problem: Problem, k: int, kernel: Any, slots: Any, executor: Executor, sweeps: int, tol: float
) -> MessageState:
    """Sweeps over the messages to the rows of one mode alone; the other rows, the noise and the prior stay.

    They end when the latent values change by less than `tol`, relative to their size, or after so many.
    """
    entries, step, noise = problem.weighted_entries, state.pace.step, state.noise
    for _ in range(sweeps):
        record = ((k, k + 1), entries, state.columns, state.rows, state.messages, state.sums, noise, state.rule)
        executor.run(kernel, 0, len(entries.chunk_start) - 1, *record, scratch=partial(work_array, slots))
        for sent in (state.messages.a, state.messages.b):
            sent[:] = 0.0  # the noise is known without these entries
        state = _updated(state, problem, (k, k + 1), 1.0, executor)._replace(noise=noise)
        shrink(state, problem, *_rows_of((k, k + 1), problem), executor)
        f = latent_values(state.rows.mean, problem, executor)
        change, state = relative_change(f, state.f) / step, state._replace(f=f)
        if change < tol:
            break
    return state


def _rows_of(modes: tuple[int, int], problem: Problem) -> tuple[int, int]:
    """The packed rows of the modes, from one to the other."""
    return int(problem.entries.offsets[modes[0]]), int(problem.entries.offsets[modes[1]])


def _updated(
    state: MessageState, problem: Problem, modes: tuple[int, int], step: float, executor: Executor
) -> MessageState:
    """Move the rows of the modes, and with the last one the noise, the way `step` to prior x messages."""
    rows, prior, sums = state.rows, state.prior, state.sums
    first, last = _rows_of(modes, problem)
    for k in range(*modes):
        if problem.is_fixed(k):
            continue
        lines = (for_kernel(part, k, problem.shape) for part in (prior.Lam, prior.eta))
        own = _rows_of((k, k + 1), problem)
        executor.run(add_sums, *own, *lines, sums, step, rows.Lam, rows.eta, align=LANES)
    refresh_rows(rows, first, last, executor)
    if problem.noise_prior is None or modes[1] < len(problem.shape):
        return state
    a, b = (before + float(sent) for before, sent in zip(problem.noise_prior, sums.noise.sum(axis=0), strict=True))
    if step != 1.0:
        a, b = state.noise[0] + step * (a - state.noise[0]), state.noise[1] + step * (b - state.noise[1])
    return state._replace(noise=(a, b))


def _with_learned_parameter(state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    """Move the law of the likelihood's parameter or thresholds, if they are learned, as far as the messages move."""
    if state.learned is None and state.cut is None:
        return state
    mean, cov = state.rows.mean, state.rows.cov
    if problem.free is not None:
        mean, cov = all_means(mean, problem.free, problem.shape), all_covariances(cov, problem.free, problem.shape)
    step = state.pace.step
    if state.cut is not None:
        state = state._replace(cut=thresholds_of_rows(problem, state.cut, mean, cov, step, executor))
    if state.learned is not None:
        state = state._replace(law=law_of_rows(state.learned, state.law, problem, mean, cov, step))
    return state


def with_learned_prior(state: MessageState, problem: Problem, executor: Executor) -> tuple[MessageState, int]:
    """Move the rows' prior to its expectation given the rows, as far as the messages move; and count rows shrunk.

    Messages are positive semidefinite, so any prior leaves every cavity a Gaussian; where they are not (second order,
    or without `positive`), the messages of a row that the new prior makes unsound are shrunk.
    """
    rows, now, prior = state.rows, state.prior, state.row_prior
    if now.modes is None:
        return state, 0
    posterior = prior.learn(*moments_per_mode(rows.mean, rows.cov, now.seen, problem.shape))
    modes = damped(now.modes, prior.expectation(now.modes, posterior), state.pace.step)
    new = conditional_of_modes(modes, now.seen)
    for k in range(len(problem.shape)):
        if problem.is_fixed(k):
            continue
        own = slice(*_rows_of((k, k + 1), problem))
        rows.Lam[own] += new.Lam[k] - now.Lam[k]
        rows.eta[own] += new.eta[k] - now.eta[k]
    refresh_rows(rows, 0, len(rows.eta), executor)
    widest = float(np.linalg.inv(modes.precision).diagonal(axis1=1, axis2=2).max())
    state = state._replace(prior=new, max_variance=MAX_VARIANCE_RATIO * widest)
    return state, shrink(state, problem, 0, len(rows.eta), executor)


def adapted(pace: Pace, change: float, skipped: int) -> Pace:
    """The pace after a sweep with this change, under adaptive damping."""
    if change > pace.change or skipped > 0:
        step, ceiling = pace.step * STEP_SHRINK, pace.step * CEILING_SHRINK
        return Pace(max(STEP_MIN, step), max(STEP_MIN, ceiling), change)
    return Pace(min(pace.ceiling, pace.step * STEP_GROWTH), pace.ceiling, change)


def shrink(state: MessageState, problem: Problem, first: int, last: int, executor: Executor) -> int:
    """Halve the messages of rows whose precision is not positive definite, or close to that, until it is.

    Messages may be indefinite, so their sum can outweigh the prior. Scaling all messages of such a row keeps "posterior
    = prior x messages" true, which resetting the row alone would not. Returns the number of those rows.
    """
    rows = state.rows
    bad = first + np.flatnonzero(~_sound(state, first, last) & ~problem.rows_of_fixed[first:last])
    if bad.size == 0:
        return 0
    factor = np.ones(len(rows.good))
    of_rows = (per_row(part, problem.shape)[bad] for part in (state.prior.Lam, state.prior.eta))
    for i, prior_Lam, prior_eta in zip(bad.tolist(), *of_rows, strict=True):
        excess_Lam, excess_eta = rows.Lam[i] - prior_Lam, rows.eta[i] - prior_eta
        for _ in range(MAX_HALVINGS):
            factor[i] *= 0.5
            rows.Lam[i] = prior_Lam + factor[i] * excess_Lam
            rows.eta[i] = prior_eta + factor[i] * excess_eta
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
            if _sound(state, i, i + 1).all():
                break
        else:
            factor[i] = 0.0
            rows.Lam[i], rows.eta[i] = prior_Lam, prior_eta
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
    Lam, eta = state.messages[:2]
    executor.run(scale_messages, 0, len(Lam), factor, problem.entries.rows, Lam, eta)
    return int(bad.size)


def _sound(state: MessageState, first: int, last: int) -> np.ndarray:
    """Whether the rows first:last are Gaussians that are not far wider than the prior."""
    rows = state.rows
    widest = rows.cov[first:last].take(diagonal(rows.eta.shape[1]), axis=1).max(axis=1)
    return np.asarray((rows.good[first:last] > 0.0) & (widest <= state.max_variance))
