"""The messages of the entries, their sums, and the first ones, which say nothing yet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.scratch import beside, on_scratch
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import diagonal
from tensorcep.kernels.slots import LANES, lane_zeros

# Blocks of entries on scratch that are counted at a time.
BLOCKS = 1 << 12


class Messages(NamedTuple):
    """Natural parameters of the messages, in lanes. Lam and eta are float64 or float32; arithmetic is float64.

    Attributes
    ----------
    Lam : (n_blocks, K, P, LANES)
    eta : (n_blocks, K, R, LANES)
    a, b : (n_blocks, LANES) float64
        Additive messages to the Gamma posterior of the noise precision (no blocks when the likelihood has none).
    """

    Lam: np.ndarray
    eta: np.ndarray
    a: np.ndarray
    b: np.ndarray


class First(NamedTuple):
    """Messages that say nothing yet: their precision, and the (a, b) of those to the noise."""

    precision: float
    a: float
    b: float


class Sums(NamedTuple):
    """Sums of messages per chunk: Lam (C, n_rows, P), eta (C, n_rows, R), noise (C, 2), skipped updates (C,).

    counts (n_rows,) is the number of messages that a row gets, one from each of its entries.
    """

    Lam: np.ndarray
    eta: np.ndarray
    noise: np.ndarray
    skipped: np.ndarray
    counts: np.ndarray


def first_messages(problem: Problem, precision: float, noise_message: tuple[float, float] | None) -> First:
    """What every entry sends first."""
    if problem.noise_prior is None:
        return First(precision, 0.0, 0.0)
    y, weights = problem.entries.y, problem.weights
    mean_square = float(np.vdot(y, np.multiply(weights, y, out=beside(y)))) / max(1.0, weights.sum())
    return First(precision, *(noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))))


def total_of(each: float, problem: Problem) -> float:
    """The sum of messages to the noise that are `each` of every entry: an entry of weight n > 1 counts as n."""
    weights = problem.weights
    part = np.minimum(weights, 1.0, out=beside(weights))
    part *= each
    part *= np.maximum(weights, 1.0, out=beside(weights))
    return float(part.sum())


def sent_first(problem: Problem, first: First, dtype: str, stored: bool, executor: Executor) -> Messages:
    """The first messages, with no blocks unless they are stored here."""
    n_blocks, K, _ = problem.entries.rows.shape
    n_blocks = 0 if executor.keeps_state or not stored else n_blocks
    messages = no_messages(n_blocks, K, problem.rank, dtype, problem.noise_prior is not None)
    if stored:
        executor.run(send_first, 0, n_blocks, first, problem.weights, messages)
    return messages


def no_messages(n_blocks: int, K: int, R: int, dtype: str, to_noise: bool) -> Messages:
    """Messages that are all zero."""
    Lam = lane_zeros((n_blocks, K, R * (R + 1) // 2, LANES), np.dtype(dtype))
    eta = lane_zeros((n_blocks, K, R, LANES), np.dtype(dtype))
    return Messages(Lam, eta, *(np.zeros((n_blocks if to_noise else 0, LANES)) for _ in range(2)))


def send_first(first: int, last: int, what: First, weights: np.ndarray, messages: Messages) -> None:
    """Have the entries of the blocks first:last send their first messages, in place."""
    part = np.minimum(weights[first:last], 1.0)
    if what.precision:
        messages.Lam[first:last, :, diagonal(messages.eta.shape[2])] = what.precision * part[:, None, None]
    if len(messages.a):
        messages.a[first:last], messages.b[first:last] = what.a * part, what.b * part


def unsend(messages: Messages, problem: Problem) -> None:
    """Take back what was sent to rows that are not learned."""
    for k in range(len(problem.shape)):
        if problem.is_fixed(k):
            messages.Lam[:, k], messages.eta[:, k] = 0.0, 0.0


def empty_sums(problem: Problem) -> Sums:
    """Sums of no messages."""
    entries, n_rows, R = problem.entries, sum(problem.shape), problem.rank
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    counts = np.zeros(n_rows)
    size = BLOCKS if on_scratch(entries.y) else max(1, len(entries.rows))
    for first in range(0, len(entries.rows), size):
        rows, weights = (part[first : first + size] for part in (entries.rows, problem.weights))
        weight = np.broadcast_to(weights[:, None, :], rows.shape)
        counts += np.bincount(rows.ravel(), weight.ravel(), minlength=n_rows)
    return Sums(np.zeros((C, n_rows, P)), np.zeros((C, n_rows, R)), np.zeros((C, 2)), np.zeros(C), counts)
