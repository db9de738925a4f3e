"""The safeguard of message passing: rows whose messages would leave no Gaussian get less of them."""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.messages.kernels import scale_messages
from tensorcep.cp.messages.state import MessageState
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import diagonal
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.record import per_row

# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40


def shrink(state: MessageState, problem: Problem, first: int, last: int, executor: Executor) -> int:
    """Halve the messages of rows whose precision is not positive definite, or close to that, until it is.

    Messages may be indefinite, so their sum can outweigh the prior. Scaling all messages of such a row keeps "posterior
    = prior x messages" true, which resetting the row alone would not. Returns the number of those rows.
    """
    rows = state.rows
    widest = rows.cov[first:last].take(diagonal(rows.eta.shape[1]), axis=1).max(initial=0.0)
    if rows.good[first:last].min(initial=1.0) > 0.0 and widest <= state.max_variance:
        return 0
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
