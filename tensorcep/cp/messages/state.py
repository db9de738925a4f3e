"""What a message-passing method knows between two sweeps, and how it begins and ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.components import Thresholds
from tensorcep.core.executor import Executor
from tensorcep.core.packing import unpack
from tensorcep.core.scratch import beside, on_scratch
from tensorcep.cp.free_columns import all_means, free_problem, posterior_of_rows
from tensorcep.cp.messages.columns import Columns
from tensorcep.cp.parameters import Learned, first_thresholds, learned_parameter, own_law
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import (
    RowState,
    diagonal,
    fix_rows,
    initial_prior,
    latent_of_entries,
    refresh_rows,
    rows_at_prior,
)
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.thresholds import ThresholdLaw
from tensorcep.priors.record import Conditional, RowPrior

# A row may become this many times as wide as the prior; beyond that its precision is a difference without digits.
MAX_VARIANCE_RATIO = 1e3
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


class Pace(NamedTuple):
    """The share of an update that is taken, the most that it may be, and the change of the last sweep."""

    step: float
    ceiling: float = 1.0
    change: float = np.inf


class MessageState(NamedTuple):
    """Between two sweeps. With clamped columns messages, rows and priors are those of the free ones.

    Attributes
    ----------
    prior : Conditional
        What `row_prior` says of the rows at present.
    noise : tuple of float
        (a, b) of the posterior of the noise precision.
    learned : Learned or None
        What is learned of the likelihood beside a noise precision.
    law : Gamma
        Law of its parameter, which stays at the likelihood's own where nothing is learned.
    f : (n_blocks, LANES)
        Latent values of the entries at the rows' means.
    sweeps : int
        Sweeps done.
    max_variance : float
        The largest variance that a row may have.
    rule : NamedTuple
        How the method's kernel computes messages. It has at least the fields step, power, theta, gaussian and cuts.
    cut : ThresholdLaw or None
        Law of the thresholds between ordered levels, at whose middle messages are computed.
    """

    messages: Messages
    sums: Sums
    rows: RowState
    row_prior: RowPrior
    prior: Conditional
    noise: tuple[float, float]
    learned: Learned | None
    law: Gamma
    f: np.ndarray
    sweeps: int
    pace: Pace
    max_variance: float
    columns: Columns
    rule: Any
    cut: ThresholdLaw | None = None


def first_state(
    problem: Problem,
    executor: Executor,
    *,
    columns: Columns,
    rule: Any,
    pace: Pace,
    dtype: str,
    precision: float = 0.0,
    noise_message: tuple[float, float] | None = None,
    stored: bool = True,
) -> MessageState:
    """Rows at the starting means with the prior's precision, and messages that say nothing yet.

    `precision` is that of the first messages, `noise_message` the first (a, b) to the noise, by default of precision
    1 / mean(y^2); unless `stored`, no messages are kept at all.
    """
    in_free = free_problem(problem)
    first, sums = _first_messages(in_free, precision, noise_message), _empty_sums(in_free)
    messages = _sent_first(in_free, first, dtype, stored, executor)
    rows = rows_at_prior(in_free)
    R = in_free.rank
    if precision:
        rows.Lam[:, diagonal(R)] += precision * sums.counts[:, None]
    if in_free.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, R), in_free.start)
    fix_rows(rows, in_free)
    unsend(messages, in_free)
    refresh_rows(rows, 0, len(rows.good), executor)
    noise = (0.0, 1.0)
    if problem.noise_prior is not None:
        a, b = problem.noise_prior
        noise = (a + _total(first.a, in_free), b + _total(first.b, in_free))
    learned = None if problem.noise_prior is not None else learned_parameter(problem, None)
    return MessageState(
        messages=messages,
        sums=sums,
        rows=rows,
        row_prior=in_free.prior,
        prior=initial_prior(in_free),
        noise=noise,
        learned=learned,
        law=own_law(problem.likelihood.default_theta) if learned is None else learned.first_law(),
        f=latent_values(rows.mean, problem, executor),
        sweeps=0,
        pace=pace,
        max_variance=MAX_VARIANCE_RATIO * float(rows.cov[:, diagonal(R)].max(initial=0.0)),
        columns=columns,
        rule=rule,
        cut=first_thresholds(problem),
    )


def _first_messages(problem: Problem, precision: float, noise_message: tuple[float, float] | None) -> First:
    if problem.noise_prior is None:
        return First(precision, 0.0, 0.0)
    y, weights = problem.entries.y, problem.weights
    mean_square = float(np.vdot(y, np.multiply(weights, y, out=beside(y)))) / max(1.0, weights.sum())
    return First(precision, *(noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))))


def _total(each: float, problem: Problem) -> float:
    """The sum of messages to the noise that are `each` of every entry: an entry of weight n > 1 counts as n."""
    weights = problem.weights
    part = np.minimum(weights, 1.0, out=beside(weights))
    part *= each
    part *= np.maximum(weights, 1.0, out=beside(weights))
    return float(part.sum())


def _sent_first(problem: Problem, first: First, dtype: str, stored: bool, executor: Executor) -> Messages:
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


def _empty_sums(problem: Problem) -> Sums:
    entries, n_rows, R = problem.entries, sum(problem.shape), problem.rank
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    counts = np.zeros(n_rows)
    size = BLOCKS if on_scratch(entries.y) else max(1, len(entries.rows))
    for first in range(0, len(entries.rows), size):
        rows, weights = (part[first : first + size] for part in (entries.rows, problem.weights))
        weight = np.broadcast_to(weights[:, None, :], rows.shape)
        counts += np.bincount(rows.ravel(), weight.ravel(), minlength=n_rows)
    return Sums(np.zeros((C, n_rows, P)), np.zeros((C, n_rows, R)), np.zeros((C, 2)), np.zeros(C), counts)


def latent_values(mean: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at row means in the free columns."""
    if problem.free is not None:
        mean = all_means(mean, problem.free, problem.shape)
    return latent_of_entries(problem.entries, mean, executor)


def finish(state: MessageState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    learned = {} if state.learned is None else state.learned.result(state.law)
    if problem.noise_prior is not None:
        learned["noise"] = GammaNoise(*state.noise)
    if state.cut is not None:
        learned["thresholds"] = Thresholds(*state.cut)
    return posterior_of_rows(state.rows, problem, state.prior.modes, **{"noise": None, **learned})
