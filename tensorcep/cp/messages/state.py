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
from tensorcep.cp.messages.columns import Columns
from tensorcep.cp.messages.sent import Messages, Sums, empty_sums, first_messages, sent_first, total_of, unsend
from tensorcep.cp.model.active_columns import all_means, free_problem, posterior_of_rows
from tensorcep.cp.model.latent import latent_of_entries, move_latent
from tensorcep.cp.model.parameters import Learned, first_thresholds, learned_parameter, own_law
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.row_prior import sites_by_mode, with_unseen_rows
from tensorcep.cp.model.rows import RowState, diagonal, fix_rows, initial_prior, learning, refresh_rows, rows_at_prior
from tensorcep.cp.settings.messages import bytes_of_cavities
from tensorcep.kernels.layout import work_array
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.thresholds import ThresholdLaw
from tensorcep.priors.blocks import Marginals
from tensorcep.priors.coupled import Joint
from tensorcep.priors.record import Conditional, RowPrior

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
    joint : tuple of Links, Bonds or None
        Of each mode the prior of its rows together, where they are coupled and it has been learned.
    found : tuple of Marginals or None
        The moments that such rows had last.
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
    joint: tuple[Joint | None, ...]
    found: tuple[Marginals | None, ...]
    cut: ThresholdLaw | None = None

    @property
    def thetas(self) -> np.ndarray:
        """The parameter of every entry, (n_blocks, LANES), where it is learned beside a noise precision."""
        return np.ascontiguousarray(self.learned.groups.per_entry(self.law.mean))  # type: ignore[union-attr]


def first_cavities(n_blocks: int, K: int, R: int) -> Cavities:
    """Room for the moments of every entry, if it is little; nothing is known yet."""
    slots = R * (R + 1) // 2 + R + 1
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
    in_free = learning(free_problem(problem))
    first, sums = first_messages(in_free, precision, noise_message), problem.of_entries or empty_sums(in_free)
    messages = sent_first(in_free, first, dtype, stored, executor)
    rows = rows_at_prior(in_free)
    R, keeps = in_free.rank, keeps_cavities and not executor.keeps_state
    n_kept = len(in_free.entries.rows) if keeps else 0
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
        noise = (a + total_of(first.a, in_free), b + total_of(first.b, in_free))
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
        cavities=first_cavities(n_kept, len(in_free.shape), R),
        rooms=Rooms(partial(work_array, slots(len(in_free.shape), R))),
        joint=(None,) * len(problem.shape),
        found=(None,) * len(problem.shape),
        cut=first_thresholds(problem),
    )


def latent_values(mean: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at row means in the free columns."""
    if problem.free is not None:
        mean = all_means(mean, problem.free, problem.shape)
    return latent_of_entries(problem.entries, mean, executor)


def move_to_rows(state: MessageState, problem: Problem, executor: Executor) -> float:
    """Move the latent values of a state, in place, to where its rows are; gives how far, relative to their size."""
    mean = state.rows.mean
    if problem.free is not None:
        mean = all_means(mean, problem.free, problem.shape)
    return move_latent(state.f, problem.entries, mean, executor, problem.power)


def finish(state: MessageState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    learned = {} if state.learned is None else state.learned.result(state.law)
    if problem.noise_prior is not None:
        learned["noise"] = GammaNoise(*state.noise)
    if state.cut is not None:
        learned["thresholds"] = Thresholds(*state.cut)
    rows = with_unseen_rows(state.rows, problem._replace(prior=state.row_prior), state.prior, state.found)
    sites = sites_by_mode([None if own is None else own.of for own in state.joint], state.found)
    return posterior_of_rows(rows, problem, state.prior.modes, **{"noise": None, **learned, "sites": sites})
