"""The sweep of every message-passing method: new messages mode after mode, then the rows, the noise and the prior.

A method is told apart by its compiled kernel, which goes over chunks of entries, computes new messages to the rows of
some modes and leaves their sums per row in `state.sums`. Two safeguards follow: rows stay Gaussians (`shrink`), and
adaptive damping settles (`adapted`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Sweep
from tensorcep.cp.messages.guards import shrink
from tensorcep.cp.messages.kernels import add_sums
from tensorcep.cp.messages.learned import told_by_entries, with_joint_rows, with_learned_prior
from tensorcep.cp.messages.sent import unsend
from tensorcep.cp.messages.state import MessageState, Pace, move_to_rows
from tensorcep.cp.model.active_columns import all_covariances, all_means
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.parameters import cuts_of, in_places_of, law_of_rows, thresholds_of_rows
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import refresh_rows, train_score
from tensorcep.cp.settings.messages import CEP, Laplace
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import for_kernel

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05

# The rows that a kernel gets, and the (a, b) of the noise; by default those of the state.
GivenRows = tuple[tuple[Any, ...], tuple[float, float]]
Given = Callable[[MessageState, Problem, tuple[int, int], Executor], GivenRows]


def sweep(
    state: MessageState,
    problem: Problem,
    options: CEP | Laplace,
    executor: Executor,
    kernel: Any,
    given: Given | None = None,
) -> tuple[MessageState, Sweep]:
    """Every message once, by a kernel.

    A kernel that keeps no messages gets what `given` returns for rows; rows and noise are damped in their place.
    """
    entries, K, step, gaussian = (
        problem.weighted_entries,
        len(problem.shape),
        state.pace.step,
        problem.noise_prior is not None,
    )
    by_row = state.learned is not None and state.learned.groups.mode is not None
    if by_row:
        entries = entries._replace(theta=state.thetas)
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    rule = state.rule._replace(step=step, power=power, theta=float(state.law.mean[0]))
    state = state._replace(rule=rule._replace(cuts=cuts_of(problem, state.cut)))
    skipped = shrunk = 0
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        alone = modes[1] == modes[0] + 1
        if alone and problem.is_fixed(modes[0]) and not (gaussian and modes[1] == K):
            continue  # the pass of the last mode tells the noise as well
        rows, noise = ((state.rows,), state.noise) if given is None else given(state, problem, modes, executor)
        _run(state, modes, rows, noise, entries, kernel, executor)
        unsend(state.messages, problem)
        state = _updated(state, problem, modes, 1.0 if given is None else step, executor)
        skipped += int(state.sums.skipped.sum())
        shrunk += shrink(state, problem, *_rows_of(modes, problem), executor)
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    state = _with_learned_parameter(state, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = move_to_rows(state, problem, executor) / step
    theta = state.noise[0] / state.noise[1] if gaussian else float(state.law.mean[0])
    y: np.ndarray | None = None
    theta_of_entries: float | np.ndarray = state.thetas if by_row else theta
    if problem.likelihood.levels is not None:
        cut = None if state.cut is None else state.cut.thresholds
        y, theta_of_entries = in_places_of(problem, np.zeros(0), cut)
    info = Sweep(
        change=change,
        noise_precision=theta if gaussian else np.nan,
        skipped=skipped,
        shrunk=shrunk,
        train_score=train_score(problem, state.f, theta_of_entries, y),
    )
    pace = adapted(state.pace, change, skipped) if options.damping == "adaptive" else state.pace
    return state._replace(sweeps=state.sweeps + 1, pace=pace), info


def _run(
    state: MessageState,
    modes: tuple[int, int],
    rows: tuple[Any, ...],
    noise: tuple[float, float],
    entries: Entries,
    kernel: Any,
    executor: Executor,
) -> None:
    """New messages to these modes, and their sums per row."""
    record = (modes, entries, state.columns, *rows, state.messages, state.cavities, state.sums, noise, state.rule)
    state.rooms.start()
    executor.run(kernel, 0, len(entries.chunk_start) - 1, *record, scratch=state.rooms)
    state.cavities.after(modes)


def _rows_of(modes: tuple[int, int], problem: Problem) -> tuple[int, int]:
    """The packed rows of the modes, from one to the other."""
    return int(problem.entries.offsets[modes[0]]), int(problem.entries.offsets[modes[1]])


def _updated(
    state: MessageState, problem: Problem, modes: tuple[int, int], step: float, executor: Executor
) -> MessageState:
    """Move the rows of the modes, and with the last one the noise, the way `step` to prior x messages."""
    rows, sums = state.rows, state.sums
    first, last = _rows_of(modes, problem)
    for k in range(*modes):
        if problem.is_fixed(k):
            continue
        own, together = _rows_of((k, k + 1), problem), state.joint[k] is not None
        lines = [for_kernel(part, k, problem.shape) for part in (state.prior.Lam, state.prior.eta)]
        if together:
            told_by_entries(state, slice(*own))
            lines = [np.zeros((1, line.shape[1])) for line in lines]
        executor.run(add_sums, *own, *lines, sums, step, rows.Lam, rows.eta, align=LANES)
        if together:
            state = with_joint_rows(state, k, slice(*own))
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
        learned, law = law_of_rows(state.learned, state.law, problem, mean, cov, step)
        state = state._replace(learned=learned, law=law)
    return state


def adapted(pace: Pace, change: float, skipped: int) -> Pace:
    """The pace after a sweep with this change, under adaptive damping."""
    if change > pace.change or skipped > 0:
        step, ceiling = pace.step * STEP_SHRINK, pace.step * CEILING_SHRINK
        return Pace(max(STEP_MIN, step), max(STEP_MIN, ceiling), change)
    return Pace(min(pace.ceiling, pace.step * STEP_GROWTH), pace.ceiling, change)
