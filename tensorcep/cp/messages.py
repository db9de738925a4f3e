"""Arrays that methods with one message per entry and mode begin with."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.cep.sweep import Messages, Sums
from tensorcep.cp.problem import Problem
from tensorcep.kernels.slots import LANES, lane_zeros


def empty_messages(
    problem: Problem, dtype: str, noise_message: tuple[float, float] | None = None, stored: bool = True
) -> Messages:
    """Messages of precision zero; to the noise `noise_message`, by default precision 1 / mean(y^2).

    With stored=False the messages to the rows have no blocks, for a method that keeps none.
    """
    entries, R = problem.entries, problem.rank
    n_blocks, K, _ = entries.rows.shape
    n_stored, weight = n_blocks if stored else 0, entries.weight
    Lam = lane_zeros((n_stored, K, R * (R + 1) // 2, LANES), np.dtype(dtype))
    eta = lane_zeros((n_stored, K, R, LANES), np.dtype(dtype))
    if problem.noise_prior is None:
        return Messages(Lam, eta, np.zeros((0, LANES)), np.zeros((0, LANES)))
    mean_square = float(np.vdot(entries.y, entries.y)) / max(1.0, weight.sum())
    a, b = noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))
    return Messages(Lam, eta, a * weight, b * weight)


def empty_sums(problem: Problem) -> Sums:
    """Sums of no messages, one for each chunk of entries."""
    entries, (n_rows, R) = problem.entries, problem.prior.eta.shape
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    weight = np.broadcast_to(entries.weight[:, None, :], entries.rows.shape)
    counts = np.bincount(entries.rows.ravel(), weight.ravel(), minlength=n_rows)
    return Sums(np.zeros((C, n_rows, P)), np.zeros((C, n_rows, R)), np.zeros((C, 2)), np.zeros(C), counts)
