"""The sweep of every message-passing method: new messages mode after mode, then the rows, the noise and the prior.

A method is told apart by its compiled kernel, which goes over chunks of entries, computes new messages to the rows of
some modes and leaves their sums per row in `state.sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Sweep
from tensorcep.cp.messages.guard import adapted, shrink
from tensorcep.cp.messages.kernels import add_sums
from tensorcep.cp.messages.state import MAX_VARIANCE_RATIO, MessageState, latent_values
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import RowState, refresh_rows, relative_change, train_score
from tensorcep.kernels.layout import work_array
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import conditional_of_modes, damped, moments_per_mode

# The rows that a kernel gets, and the (a, b) of the noise; by default those of the state.
GivenRows = tuple[tuple[RowState, ...], tuple[float, float]]
Given = Callable[[MessageState, Problem, Executor], GivenRows]


class PassOptions(Protocol):
    """The settings that all message-passing methods have; what they mean stands in `settings.passing.CEP`."""

    @property
    def schedule(self) -> str: ...
    @property
    def damping(self) -> float | str: ...
    @property
    def anneal(self) -> int: ...
    @property
    def anneal_power(self) -> float: ...


def sweep(
    state: MessageState,
    problem: Problem,
    options: PassOptions,
    executor: Executor,
    kernel: Any,
    slots: Any,
    given: Given | None = None,
) -> tuple[MessageState, Sweep]:
    """Every message once, by a kernel with these slots in its work array.

    A kernel that keeps no messages gets what `given` returns for rows; rows and noise are damped in their place.
    """
    entries, K, step, gaussian = problem.entries, len(problem.shape), state.pace.step, problem.noise_prior is not None
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    state = state._replace(rule=state.rule._replace(step=step, power=power))
    skipped = shrunk = 0
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        rows, noise = ((state.rows,), state.noise) if given is None else given(state, problem, executor)
        record = (modes, entries, state.columns, *rows, state.messages, state.sums, noise, state.rule)
        executor.run(kernel, 0, len(entries.chunk_start) - 1, *record, scratch=partial(work_array, slots))
        state = _updated(state, problem, modes, 1.0 if given is None else step, executor)
        skipped += int(state.sums.skipped.sum())
        shrunk += shrink(state, problem, *_rows_of(modes, problem))
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    f = latent_values(state.rows.mean, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = relative_change(f, state.f) / step
    theta = state.noise[0] / state.noise[1] if gaussian else problem.likelihood.default_theta
    info = Sweep(
        change=change,
        noise_precision=theta if gaussian else np.nan,
        skipped=skipped,
        shrunk=shrunk,
        train_score=train_score(problem, f, theta),
    )
    pace = adapted(state.pace, change, skipped) if options.damping == "adaptive" else state.pace
    return state._replace(f=f, sweeps=state.sweeps + 1, pace=pace), info


def _rows_of(modes: tuple[int, int], problem: Problem) -> tuple[int, int]:
    """The packed rows of the modes, from one to the other."""
    return int(problem.entries.offsets[modes[0]]), int(problem.entries.offsets[modes[1]])


def _updated(
    state: MessageState, problem: Problem, modes: tuple[int, int], step: float, executor: Executor
) -> MessageState:
    """Move the rows of the modes, and with the last one the noise, the way `step` to prior x messages."""
    rows, prior, sums = state.rows, state.prior, state.sums
    first, last = _rows_of(modes, problem)
    executor.run(add_sums, first, last, prior.Lam, prior.eta, sums, step, rows.Lam, rows.eta, align=LANES)
    refresh_rows(rows, first, last, executor)
    if problem.noise_prior is None or modes[1] < len(problem.shape):
        return state
    a, b = (before + float(sent) for before, sent in zip(problem.noise_prior, sums.noise.sum(axis=0), strict=True))
    if step != 1.0:
        a, b = state.noise[0] + step * (a - state.noise[0]), state.noise[1] + step * (b - state.noise[1])
    return state._replace(noise=(a, b))


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
    new = conditional_of_modes(modes, problem.shape, now.seen)
    rows.Lam[:] += new.Lam - now.Lam
    rows.eta[:] += new.eta - now.eta
    refresh_rows(rows, 0, len(new.eta), executor)
    widest = float(np.linalg.inv(modes.precision).diagonal(axis1=1, axis2=2).max())
    state = state._replace(prior=new, max_variance=MAX_VARIANCE_RATIO * widest)
    return state, shrink(state, problem, 0, len(new.eta))
