"""What a message-passing method knows between two sweeps, and how it begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.components import Thresholds
from tensorcep.core.executor import Executor, Rooms
from tensorcep.core.packing import unpack
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
from tensorcep.cp.settings.passing import bytes_of_cavities
from tensorcep.kernels.layout import work_array
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.thresholds import ThresholdLaw
from tensorcep.priors.record import Conditional, RowPrior

# A row may become this many times as wide as the prior; beyond that its precision is a difference without digits.
MAX_VARIANCE_RATIO = 1e3


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


class Sums(NamedTuple):
    """Sums of messages per chunk: Lam (C, n_rows, P), eta (C, n_rows, R), noise (C, 2), skipped updates (C,).

    counts (n_rows,) is the number of messages that a row gets, one from each of its entries.
    """

    Lam: np.ndarray
    eta: np.ndarray
    noise: np.ndarray
    skipped: np.ndarray
    counts: np.ndarray


class Cavities(NamedTuple):
    """Moments of the rows of every entry without its own message, kept from one pass to the next.

    A pass changes the rows of one mode: without these it would compute the moments of all the others again.

    Attributes
    ----------
    moments : (n_blocks, K, P + R + R^2 + 1, LANES) float64
        Covariance, mean, inverse Cholesky factor, and whether there are such; no blocks where none are kept.
    fresh : (K,) float64
        1 for modes whose moments are those of the present rows and messages.
    """

    moments: np.ndarray
    fresh: np.ndarray

    def after(self, modes: tuple[int, int]) -> None:
        """A pass has read the moments of all modes, and then changed the rows of these."""
        self.fresh[:] = 1.0
        self.fresh[modes[0] : modes[1]] = 0.0

    def drop(self) -> None:
        """All rows have changed."""
        self.fresh[:] = 0.0


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
    cavities : Cavities
    rooms : Rooms
        Work arrays of the kernel.
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
    cavities: Cavities
    rooms: Rooms
    cut: ThresholdLaw | None = None


def first_cavities(n_blocks: int, K: int, R: int) -> Cavities:
    """Room for the moments of every entry, if it is little; nothing is known yet."""
    slots = R * (R + 1) // 2 + R + R * R + 1
    kept = n_blocks if bytes_of_cavities(LANES * n_blocks, K, R) else 0
    return Cavities(lane_zeros((kept, K, slots, LANES)), np.zeros(K))


def first_state(
    problem: Problem,
    executor: Executor,
    *,
    columns: Columns,
    rule: Any,
    slots: Callable[[int, int], Any],
    pace: Pace,
    dtype: str,
    precision: float = 0.0,
    noise_message: tuple[float, float] | None = None,
    stored: bool = True,
    keeps_cavities: bool = False,
) -> MessageState:
    """Rows at the starting means with the prior's precision, and messages that say nothing yet.

    `precision` is that of the first messages, `noise_message` the first (a, b) to the noise, by default of precision
    1 / mean(y^2); unless `stored`, no messages are kept at all. `slots` gives those of the kernel's work array, and
    `keeps_cavities` says whether one pass after the other, for one mode each, reads the moments of cavities.
    """
    in_free = free_problem(problem)
    messages, sums = _first_messages(in_free, dtype, precision, noise_message, stored), _empty_sums(in_free)
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
        times = np.maximum(in_free.weights, 1.0)
        noise = (
            problem.noise_prior.a + float((times * messages.a).sum()),
            problem.noise_prior.b + float((times * messages.b).sum()),
        )
    if not stored:
        messages = messages._replace(a=np.zeros((0, LANES)), b=np.zeros((0, LANES)))
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
        cavities=first_cavities(len(in_free.entries.rows) if keeps_cavities else 0, len(in_free.shape), R),
        rooms=Rooms(partial(work_array, slots(len(in_free.shape), R))),
        cut=first_thresholds(problem),
    )


def _first_messages(
    problem: Problem, dtype: str, precision: float, noise_message: tuple[float, float] | None, stored: bool
) -> Messages:
    entries, R = problem.entries, problem.rank
    n_blocks, K, _ = entries.rows.shape
    n_stored, weight = n_blocks if stored else 0, np.minimum(problem.weights, 1.0)
    Lam = lane_zeros((n_stored, K, R * (R + 1) // 2, LANES), np.dtype(dtype))
    eta = lane_zeros((n_stored, K, R, LANES), np.dtype(dtype))
    if precision and stored:
        Lam[:, :, diagonal(R)] = precision * weight[:, None, None]
    if problem.noise_prior is None:
        return Messages(Lam, eta, np.zeros((0, LANES)), np.zeros((0, LANES)))
    mean_square = float(np.vdot(entries.y, problem.weights * entries.y)) / max(1.0, problem.weights.sum())
    a, b = noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))
    return Messages(Lam, eta, a * weight, b * weight)


def unsend(messages: Messages, problem: Problem) -> None:
    """Take back what was sent to rows that are not learned."""
    for k in range(len(problem.shape)):
        if problem.is_fixed(k):
            messages.Lam[:, k], messages.eta[:, k] = 0.0, 0.0


def _empty_sums(problem: Problem) -> Sums:
    entries, n_rows, R = problem.entries, sum(problem.shape), problem.rank
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    weight = np.broadcast_to(problem.weights[:, None, :], entries.rows.shape)
    counts = np.bincount(entries.rows.ravel(), weight.ravel(), minlength=n_rows)
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
