"""The sweep of every message-passing method: new messages mode after mode, then the rows, the noise and the prior.

A method is told apart by `propose`: it computes new messages of the entries to the rows of some modes and leaves their
sums per row in `state.sums`. Most methods do that by a compiled kernel over chunks of entries that keeps the messages
(`over_chunks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Sweep
from tensorcep.cp.free_columns import all_covariances, all_means
from tensorcep.cp.messages.guard import adapted, shrink
from tensorcep.cp.messages.kernels import add_sums
from tensorcep.cp.messages.state import MAX_VARIANCE_RATIO, MessageState, latent_values
from tensorcep.cp.parameters import law_of_rows
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import refresh_rows, relative_change, train_score
from tensorcep.kernels.layout import work_array
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import conditional_of_modes, damped, moments_per_mode

Propose = Callable[[MessageState, Problem, tuple[int, int], Executor], None]


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


def over_chunks(kernel: Any, slots: Any) -> Propose:
    """The `propose` of a kernel that updates messages in place, with the slots of its work array."""

    def propose(state: MessageState, problem: Problem, modes: tuple[int, int], executor: Executor) -> None:
        entries = problem.entries
        record = (modes, entries, state.columns, state.rows, state.messages, state.sums, state.noise, state.rule)
        executor.run(kernel, 0, len(entries.chunk_start) - 1, *record, scratch=partial(work_array, slots))

    return propose


def sweep(
    state: MessageState,
    problem: Problem,
    options: PassOptions,
    executor: Executor,
    propose: Propose,
    *,
    stored: bool = True,
) -> tuple[MessageState, Sweep]:
    """Every message once. Without stored messages the rows and the noise are damped in their place."""
    K, step, gaussian = len(problem.shape), state.pace.step, problem.noise_prior is not None
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    state = state._replace(rule=state.rule._replace(step=step, power=power, theta=float(state.law.mean[0])))
    skipped = shrunk = 0
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        propose(state, problem, modes, executor)
        state = _updated(state, problem, modes, 1.0 if stored else step, executor)
        skipped += int(state.sums.skipped.sum())
        shrunk += shrink(state, problem, *_rows_of(modes, problem))
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    state = _with_learned_parameter(state, problem)
    f = latent_values(state.rows.mean, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = relative_change(f, state.f) / step
    theta = state.noise[0] / state.noise[1] if gaussian else float(state.law.mean[0])
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


def _with_learned_parameter(state: MessageState, problem: Problem) -> MessageState:
    """Move the law of the likelihood's parameter, if one is learned, as far as the messages move."""
    if state.learned is None:
        return state
    mean, cov = state.rows.mean, state.rows.cov
    if problem.free is not None:
        mean, cov = all_means(mean, problem.free, problem.shape), all_covariances(cov, problem.free, problem.shape)
    return state._replace(law=law_of_rows(state.learned, state.law, problem, mean, cov, state.pace.step))


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
