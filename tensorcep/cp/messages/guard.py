"""Safeguards of message passing: rows stay Gaussians, and adaptive damping settles."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.messages.kernels import scale_messages
from tensorcep.cp.messages.state import MessageState, Pace
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import diagonal
from tensorcep.kernels.rows import row_moments

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05
# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40


def adapted(pace: Pace, change: float, skipped: int) -> Pace:
    """The pace after a sweep with this change, under adaptive damping."""
    if change > pace.change or skipped > 0:
        step, ceiling = pace.step * STEP_SHRINK, pace.step * CEILING_SHRINK
        return Pace(max(STEP_MIN, step), max(STEP_MIN, ceiling), change)
    return Pace(min(pace.ceiling, pace.step * STEP_GROWTH), pace.ceiling, change)


def shrink(state: MessageState, problem: Problem, first: int, last: int) -> int:
    """Halve the messages of rows whose precision is not positive definite, or close to that, until it is.

    Messages may be indefinite, so their sum can outweigh the prior. Scaling all messages of such a row keeps "posterior
    = prior x messages" true, which resetting the row alone would not. Returns the number of those rows.
    """
    rows, prior = state.rows, state.prior
    bad = first + np.flatnonzero(~_sound(state, first, last))
    if bad.size == 0:
        return 0
    factor = np.ones(len(rows.good))
    for i in bad.tolist():
        excess_Lam, excess_eta = rows.Lam[i] - prior.Lam[i], rows.eta[i] - prior.eta[i]
        for _ in range(MAX_HALVINGS):
            factor[i] *= 0.5
            rows.Lam[i] = prior.Lam[i] + factor[i] * excess_Lam
            rows.eta[i] = prior.eta[i] + factor[i] * excess_eta
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
            if _sound(state, i, i + 1).all():
                break
        else:
            factor[i] = 0.0
            rows.Lam[i], rows.eta[i] = prior.Lam[i], prior.eta[i]
            row_moments(i, i + 1, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
    stored = len(state.messages.Lam)
    scale_messages(factor, problem.entries.rows[:stored], state.messages.Lam, state.messages.eta)
    return int(bad.size)


def _sound(state: MessageState, first: int, last: int) -> np.ndarray:
    """Whether the rows first:last are Gaussians that are not far wider than the prior."""
    rows = state.rows
    widest = rows.cov[first:last][:, diagonal(rows.eta.shape[1])].max(axis=1)
    return np.asarray((rows.good[first:last] > 0.0) & (widest <= state.max_variance))
