"""What entries have sent to rows, and the state of message passing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import empty_near, on_scratch
from tensorcep.core.executor import Executor, Pass, Rooms
from tensorcep.core.packing import diagonal, unpack
from tensorcep.cp.messages.cavities import ProductSlots
from tensorcep.cp.model.columns import all_means, free_problem, posterior_of_rows
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.latent import latent_of_entries, move_latent
from tensorcep.cp.model.parameters import parameters_of, results
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import (
    RowState,
    fix_rows,
    initial_prior,
    refresh_rows,
    rows_at_prior,
    sites_by_mode,
    with_seen_rows,
    with_unseen_rows,
)
from tensorcep.cp.posterior.belief import Posterior
from tensorcep.cp.settings.messages import bytes_of_cavities
from tensorcep.kernels.lanes import work_array
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.parameters.base import Parameter, PrecisionStats
from tensorcep.priors.base import Conditional, RowPrior
from tensorcep.priors.coupled import Joint
from tensorcep.priors.solvers.chain import Marginals

# The messages of the entries, their sums, and the first ones, which say nothing yet.

# Blocks of entries on scratch that are counted at a time.
BLOCKS = 1 << 12


class Messages(NamedTuple):
    """Natural parameters of the messages, in lanes. Lam and eta are float64 or float32; arithmetic is float64.

    Attributes
    ----------
    Lam : (n_blocks, K, P, LANES)
    eta : (n_blocks, K, R, LANES)
    a, b : (n_blocks, LANES) float64
        Additive messages to the Gamma posterior of the noise precision; (0, 0) when the likelihood has none.
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


class MessageSums(NamedTuple):
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
    mean_square = float(np.vdot(y, np.multiply(weights, y, out=empty_near(y)))) / max(1.0, weights.sum())
    return First(precision, *(noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))))


def total_of(each: float, problem: Problem) -> float:
    """The sum of messages to the noise that are `each` of every entry: an entry of weight n > 1 counts as n."""
    weights = problem.weights
    part = np.minimum(weights, 1.0, out=empty_near(weights))
    part *= each
    part *= np.maximum(weights, 1.0, out=empty_near(weights))
    return float(part.sum())


def sent_first(problem: Problem, first: First, dtype: str, stored: bool, executor: Executor) -> Messages:
    """The first messages, with no blocks unless they are stored here."""
    (n_blocks, K, _), R = problem.entries.rows.shape, problem.rank
    n_blocks = 0 if executor.keeps_state or not stored else n_blocks
    to_noise = (0, 0) if problem.noise_prior is None else (n_blocks, LANES)
    messages = Messages(
        Lam=lane_zeros((n_blocks, K, R * (R + 1) // 2, LANES), np.dtype(dtype)),
        eta=lane_zeros((n_blocks, K, R, LANES), np.dtype(dtype)),
        a=np.zeros(to_noise),
        b=np.zeros(to_noise),
    )
    if stored:
        entries = problem.weighted_entries
        executor.run(FIRST_MESSAGES, 0, len(entries.chunk_start) - 1, entries, first, messages)
    return messages


def send_first(first: int, last: int, entries: Entries, what: First, messages: Messages) -> None:
    """Have the entries of the chunks first:last send their first messages, in place."""
    own = slice(entries.chunk_start[first], entries.chunk_start[last])
    part = np.minimum(entries.weight[own], 1.0)
    if what.precision:
        messages.Lam[own, :, diagonal(messages.eta.shape[2])] = what.precision * part[:, None, None]
    if len(messages.a):
        messages.a[own], messages.b[own] = what.a * part, what.b * part


FIRST_MESSAGES = Pass(send_first, over="chunks", keeps="messages", gives=("messages",))


def unsend(messages: Messages, problem: Problem) -> None:
    """Take back what was sent to rows that are not learned."""
    for k in range(len(problem.shape)):
        if problem.is_fixed(k):
            messages.Lam[:, k], messages.eta[:, k] = 0.0, 0.0


def empty_sums(problem: Problem) -> MessageSums:
    """Sums of no messages."""
    entries, n_rows, R = problem.entries, sum(problem.shape), problem.rank
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    counts = np.zeros(n_rows)
    size = BLOCKS if on_scratch(entries.y) else max(1, len(entries.rows))
    for first in range(0, len(entries.rows), size):
        rows, weights = (part[first : first + size] for part in (entries.rows, problem.weights))
        weight = np.broadcast_to(weights[:, None, :], rows.shape)
        counts += np.bincount(rows.ravel(), weight.ravel(), minlength=n_rows)
    return MessageSums(np.zeros((C, n_rows, P)), np.zeros((C, n_rows, R)), np.zeros((C, 2)), np.zeros(C), counts)


# What a message-passing method knows between two sweeps, and how it begins and ends.

# A row may become this many times as wide as the prior; beyond that its precision is a difference without digits.
MAX_VARIANCE_RATIO = 1e3


class Cavities(NamedTuple):
    """Moments of the rows of every entry without its own message, kept from one pass to the next.

    A pass changes the rows of one mode: without these it would compute the moments of all the others again.

    Attributes
    ----------
    moments : (n_blocks, K, P + R + 1, LANES) float64
        Covariance, mean, and whether there are such; no blocks where none are kept.
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


class MessagePrior(NamedTuple):
    """What is known of the prior of the rows.

    Attributes
    ----------
    now : Conditional
        What the prior of the problem says of the rows at present.
    max_variance : float
        The largest variance that a row may have.
    joint : tuple of Links, Bonds or None
        Of each mode the prior of its rows together, where they are coupled and it has been learned.
    marginals : tuple of Marginals or None
        The moments that such rows had last.
    """

    now: Conditional
    max_variance: float
    joint: tuple[Joint | None, ...]
    marginals: tuple[Marginals | None, ...]


class Exchange(NamedTuple):
    """What passes between entries and rows.

    Attributes
    ----------
    prior : RowPrior
        That of the problem in the free columns.
    parameters : tuple of Parameter
        What is learned of the likelihood.
    rule : NamedTuple
        How the method's kernel computes messages. It has at least the fields step, power, theta, gaussian and cuts.
    rooms : Rooms
        Work arrays of the kernel.
    f : (n_blocks, LANES)
        Latent values of the entries at the rows' means.
    """

    prior: RowPrior
    parameters: tuple[Parameter[Any], ...]
    messages: Messages
    sums: MessageSums
    cavities: Cavities
    columns: ProductSlots
    rule: Any
    rooms: Rooms
    f: np.ndarray
    pace: Pace

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it follows from the problem and the rows."""
        return ("prior", "parameters", "sums", "cavities", "columns", "rule", "rooms", "f")


class MessageState(NamedTuple):
    """Between two sweeps; `parameters` are laws. With clamped columns all is of the free ones."""

    rows: RowState
    hyper: MessagePrior
    parameters: tuple[Any, ...]
    own: Exchange
    sweeps: int

    @property
    def messages(self) -> Messages:
        """What the entries send."""
        return self.own.messages

    @property
    def f(self) -> np.ndarray:
        """Latent values of the entries, (n_blocks, LANES)."""
        return self.own.f

    @property
    def noise(self) -> tuple[float, float]:
        """(a, b) of the law of the noise precision; of no meaning where there is none."""
        laws = (law for one, law in zip(self.own.parameters, self.parameters, strict=True) if one.is_precision)
        return next(((float(law.a[0]), float(law.b[0])) for law in laws), (0.0, 1.0))

    def put(self, **changes: Any) -> MessageState:
        """The state with some of what passes between entries and rows changed."""
        return self._replace(own=self.own._replace(**changes))


def first_state(
    problem: Problem,
    executor: Executor,
    *,
    columns: ProductSlots,
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
    in_free = with_seen_rows(free_problem(problem))
    first, sums = first_messages(in_free, precision, noise_message), problem.of_entries or empty_sums(in_free)
    messages = sent_first(in_free, first, dtype, stored, executor)
    rows = rows_at_prior(in_free)
    (n_blocks, K, _), R = in_free.entries.rows.shape, in_free.rank
    keeps = keeps_cavities and not executor.keeps_state and bytes_of_cavities(LANES * n_blocks, K, R)
    if precision:
        rows.Lam[:, diagonal(R)] += precision * sums.counts[:, None]
    if in_free.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, R), in_free.start)
    fix_rows(rows, in_free)
    unsend(messages, in_free)
    refresh_rows(rows, 0, len(rows.good), executor)
    parameters, n = parameters_of(problem, None), len(problem.entries.permutation)
    laws = tuple(one.first_law(n) for one in parameters)
    modes = (None,) * K
    widest = float(rows.cov[:, diagonal(R)].max(initial=0.0))
    exchange = Exchange(
        prior=in_free.prior,
        parameters=parameters,
        messages=messages,
        sums=sums,
        cavities=Cavities(lane_zeros((n_blocks if keeps else 0, K, R * (R + 1) // 2 + R + 1, LANES)), np.zeros(K)),
        columns=columns,
        rule=rule,
        rooms=Rooms(partial(work_array, slots(K, R))),
        f=latent_values(rows.mean, problem, executor),
        pace=pace,
    )
    return MessageState(
        rows=rows,
        hyper=MessagePrior(initial_prior(in_free), MAX_VARIANCE_RATIO * widest, modes, modes),
        parameters=with_noise_messages(parameters, laws, *(total_of(each, in_free) for each in (first.a, first.b))),
        own=exchange,
        sweeps=0,
    )


def with_noise_messages(
    parameters: Sequence[Parameter[Any]], laws: Sequence[Any], a: float, b: float, step: float | None = None
) -> tuple[Any, ...]:
    """The laws after messages to the noise of these sums, or a share `step` of the way there."""
    stats = PrecisionStats(2.0 * a, 2.0 * b)
    return tuple(
        one.expect(law, stats, step) if one.is_precision else law for one, law in zip(parameters, laws, strict=True)
    )


def latent_values(mean: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at row means in the free columns."""
    return latent_of_entries(problem.entries, _of_all_columns(mean, problem), executor)


def _of_all_columns(mean: np.ndarray, problem: Problem) -> np.ndarray:
    return mean if problem.free is None else all_means(mean, problem.free, problem.shape)


def resume(state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    """A state that comes from a file, with the latent values of its rows."""
    return state.put(f=latent_values(state.rows.mean, problem, executor))


def move_to_rows(state: MessageState, problem: Problem, executor: Executor) -> float:
    """Move the latent values of a state, in place, to where its rows are; gives how far, relative to their size."""
    mean = _of_all_columns(state.rows.mean, problem)
    return move_latent(state.own.f, problem.entries, mean, executor, problem.power)


def finish(state: MessageState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    prior, learned = state.hyper, results(state.own.parameters, state.parameters)
    rows = with_unseen_rows(state.rows, problem._replace(prior=state.own.prior), prior.now, prior.marginals)
    sites = sites_by_mode([None if joint is None else joint.of for joint in prior.joint], prior.marginals)
    return posterior_of_rows(rows, problem, prior.now.modes, sites=sites, **learned)
