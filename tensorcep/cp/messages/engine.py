"""The engine of message passing: what entries send to rows, the state between two sweeps, and a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import empty_near, on_scratch
from tensorcep.core.executor import Executor, Pass, Rooms
from tensorcep.core.loop import Sweep
from tensorcep.core.packing import diagonal, unpack
from tensorcep.cp.messages.cavities import SCALING, ProductSlots, add_sums
from tensorcep.cp.model import rows as cp_rows
from tensorcep.cp.model.columns import all_covariances, all_means, free_problem, posterior_of_rows
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.latent import latent_of_entries, move_latent
from tensorcep.cp.model.parameters import kernel_arguments, marginals_of_rows, parameters_of, results, shared_arguments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import Posterior
from tensorcep.cp.settings import CEP, Laplace, bytes_of_cavities
from tensorcep.kernels.lanes import work_array
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.parameters.base import EntryStats, Parameter, PrecisionStats
from tensorcep.priors import base
from tensorcep.priors.coupled import Joint, damped_joint
from tensorcep.priors.solvers.chain import Marginals

# The messages of the entries, their sums, and the first ones, which say nothing yet.

# Blocks of entries on scratch that are counted at a time.
BLOCKS = 1 << 12
Pair = tuple[float, float]  # (a, b) of a law of the noise precision, or of messages to it


class Messages(NamedTuple):
    """Natural parameters of the messages, in lanes. Lam and eta are float64 or float32; arithmetic is float64."""

    Lam: np.ndarray  # (n_blocks, K, P, LANES)
    eta: np.ndarray  # (n_blocks, K, R, LANES)
    a: np.ndarray  # (n_blocks, LANES) float64: additive messages to the Gamma posterior of the noise precision
    b: np.ndarray  # both (0, 0) when the likelihood has none


class MessageSums(NamedTuple):
    """Sums of messages per chunk, and to each row the number of messages, one from each of its entries."""

    Lam: np.ndarray  # (C, n_rows, P)
    eta: np.ndarray  # (C, n_rows, R)
    noise: np.ndarray  # (C, 2)
    skipped: np.ndarray  # (C,) updates
    counts: np.ndarray  # (n_rows,)


def first_messages(
    problem: Problem, precision: float, noise_message: Pair | None, dtype: str, stored: bool, executor: Executor
) -> tuple[Messages, list[float]]:
    """What every entry sends first, which says nothing yet: no blocks unless stored here, and its sums to the noise."""
    (n_blocks, K, _), R, y, weights = problem.entries.rows.shape, problem.rank, problem.entries.y, problem.weights
    n_blocks, to_each, sums = 0 if executor.keeps_state or not stored else n_blocks, (0.0, 0.0), [0.0, 0.0]
    if problem.noise_prior is not None:
        mean_square = float(np.vdot(y, np.multiply(weights, y, out=empty_near(y)))) / max(1.0, weights.sum())
        to_each = noise_message or (0.5, 0.5 * max(mean_square, np.finfo(float).tiny))
        for i, each in enumerate(to_each):  # an entry of weight n > 1 counts as n
            part = np.minimum(weights, 1.0, out=empty_near(weights))
            part *= each
            part *= np.maximum(weights, 1.0, out=empty_near(weights))
            sums[i] = float(part.sum())
    to_noise = (0, 0) if problem.noise_prior is None else (n_blocks, LANES)
    Lam, eta = (lane_zeros((n_blocks, K, n, LANES), np.dtype(dtype)) for n in (R * (R + 1) // 2, R))
    messages = Messages(Lam, eta, np.zeros(to_noise), np.zeros(to_noise))
    if stored:
        entries = problem.weighted_entries
        executor.run(FIRST_MESSAGES, 0, len(entries.chunk_start) - 1, entries, (precision, *to_each), messages)
    return messages, sums


def send_first(first: int, last: int, entries: Entries, what: tuple[float, float, float], messages: Messages) -> None:
    """Have the entries of the chunks first:last send `what`: its precision, and the (a, b) of that to the noise."""
    own = slice(entries.chunk_start[first], entries.chunk_start[last])
    part = np.minimum(entries.weight[own], 1.0)
    precision, a, b = what
    if precision:
        messages.Lam[own, :, diagonal(messages.eta.shape[2])] = precision * part[:, None, None]
    if len(messages.a):
        messages.a[own], messages.b[own] = a * part, b * part


FIRST_MESSAGES = Pass(send_first, over="chunks", keeps="messages", gives=("messages",))


def unsend(messages: Messages, problem: Problem) -> None:
    """Take back what was sent to rows that are not learned."""
    for k in () if problem.fixed is None else range(len(problem.shape)):
        if problem.is_fixed(k):
            messages.Lam[:, k], messages.eta[:, k] = 0.0, 0.0


def empty_sums(problem: Problem) -> MessageSums:
    """Sums of no messages."""
    entries, n_rows, R = problem.entries, sum(problem.shape), problem.rank
    C, P = len(entries.chunk_start) - 1, R * (R + 1) // 2
    counts, size = np.zeros(n_rows), BLOCKS if on_scratch(entries.y) else max(1, len(entries.rows))
    for first in range(0, len(entries.rows), size):
        rows, weights = (part[first : first + size] for part in (entries.rows, problem.weights))
        weight = np.broadcast_to(weights[:, None, :], rows.shape)
        counts += np.bincount(rows.ravel(), weight.ravel(), minlength=n_rows)
    return MessageSums(np.zeros((C, n_rows, P)), np.zeros((C, n_rows, R)), np.zeros((C, 2)), np.zeros(C), counts)


# What a message-passing method knows between two sweeps, and how it begins and ends.

# A row may become this many times as wide as the prior; beyond that its precision is a difference without digits.
MAX_VARIANCE_RATIO = 1e3


class Cavities(NamedTuple):
    """Moments of the rows of every entry without its own message, kept as a pass changes the rows of one mode alone."""

    # (n_blocks, K, P + R + 1, LANES) float64: covariance, mean, whether there are such; no blocks where none are kept
    moments: np.ndarray
    fresh: np.ndarray  # (K,) float64: 1 for modes whose moments are those of the present rows and messages


class Pace(NamedTuple):
    """The share of an update that is taken, the most that it may be, and the change of the last sweep."""

    step: float
    ceiling: float = 1.0
    change: float = np.inf


class MessagePrior(NamedTuple):
    """What is known of the prior of the rows."""

    now: base.Conditional  # what the prior of the problem says of the rows at present
    max_variance: float  # that a row may have
    joint: tuple[Joint | None, ...]  # of modes with coupled rows the prior of all together, once it has been learned
    marginals: tuple[Marginals | None, ...]  # the moments that such rows had last


class Exchange(NamedTuple):
    """What passes between entries and rows."""

    prior: base.RowPrior  # that of the problem in the free columns
    parameters: tuple[Parameter[Any], ...]  # what is learned of the likelihood
    messages: Messages
    sums: MessageSums
    cavities: Cavities
    columns: ProductSlots
    rule: Any  # how the method's kernel computes messages: step, power, theta, gaussian, cuts, and what it alone needs
    rooms: Rooms  # work arrays of the kernel
    f: np.ndarray  # (n_blocks, LANES), latent values of the entries at the rows' means
    pace: Pace

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it follows from the problem and the rows."""
        return ("prior", "parameters", "sums", "cavities", "columns", "rule", "rooms", "f")


class MessageState(NamedTuple):
    """Between two sweeps; `parameters` are laws. With clamped columns all is of the free ones."""

    rows: cp_rows.RowState
    hyper: MessagePrior
    parameters: tuple[Any, ...]
    own: Exchange
    sweeps: int

    @property
    def f(self) -> np.ndarray:
        """Latent values of the entries, (n_blocks, LANES)."""
        return self.own.f

    @property
    def noise(self) -> Pair:
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
    noise_message: Pair | None = None,
    stored: bool = True,
    keeps_cavities: bool = False,
) -> MessageState:
    """Rows at the starting means with the prior's precision, and messages that say nothing yet."""
    # `precision` is that of the first messages, `noise_message` the first (a, b) to the noise, by default of precision
    # 1 / mean(y^2); unless `stored`, no messages are kept at all; `slots` gives those of the kernel's work array, and
    # `keeps_cavities` says whether one pass after the other, for one mode each, reads the moments of cavities
    in_free = cp_rows.with_seen_rows(free_problem(problem))
    sums, rows = problem.of_entries or empty_sums(in_free), cp_rows.rows_at_prior(in_free)
    messages, to_noise = first_messages(in_free, precision, noise_message, dtype, stored, executor)
    (n_blocks, K, _), R = in_free.entries.rows.shape, in_free.rank
    keeps = keeps_cavities and not executor.keeps_state and bytes_of_cavities(LANES * n_blocks, K, R)
    if precision:
        rows.Lam[:, diagonal(R)] += precision * sums.counts[:, None]
    if in_free.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, R), in_free.start)
    cp_rows.fix_rows(rows, in_free)
    unsend(messages, in_free)
    cp_rows.refresh_rows(rows, 0, len(rows.good), executor)
    parameters, n = parameters_of(problem, None), len(problem.entries.permutation)
    laws, modes = tuple(one.first_law(n) for one in parameters), (None,) * K
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
    hyper = MessagePrior(cp_rows.initial_prior(in_free), MAX_VARIANCE_RATIO * widest, modes, modes)
    laws = with_noise_messages(parameters, laws, *to_noise)
    return MessageState(rows=rows, hyper=hyper, parameters=laws, own=exchange, sweeps=0)


def with_noise_messages(
    parameters: Sequence[Parameter[Any]], laws: Sequence[Any], a: float, b: float, step: float | None = None
) -> tuple[Any, ...]:
    """The laws after messages to the noise of these sums, or a share `step` of the way there."""
    stats, pairs = PrecisionStats(2.0 * a, 2.0 * b), zip(parameters, laws, strict=True)
    return tuple(one.expect(law, stats, step) if one.is_precision else law for one, law in pairs)


def latent_values(mean: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values of the entries, (n_blocks, LANES), at row means in the free columns."""
    return latent_of_entries(problem.entries, all_means(mean, problem.free, problem.shape), executor)


def resume(state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    """A state that comes from a file, with the latent values of its rows."""
    return state.put(f=latent_values(state.rows.mean, problem, executor))


def finish(state: MessageState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    prior, learned = state.hyper, results(state.own.parameters, state.parameters)
    rows = cp_rows.with_unseen_rows(state.rows, problem._replace(prior=state.own.prior), prior.now, prior.marginals)
    sites = cp_rows.sites_by_mode([None if joint is None else joint.of for joint in prior.joint], prior.marginals)
    return posterior_of_rows(rows, problem, prior.now.modes, sites=sites, **learned)


# The safeguard of message passing: rows whose messages would leave no Gaussian get less of them.

# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40


def shrink(state: MessageState, problem: Problem, first: int, last: int, executor: Executor) -> int:
    """Halve messages of rows whose precision is not positive definite, or close to that, until it is; how many rows."""
    # messages may be indefinite, so their sum can outweigh the prior; scaling all messages of such a row keeps
    # "posterior = prior x messages" true, which resetting the row alone would not
    rows = state.rows
    widest = rows.cov[first:last].take(diagonal(rows.eta.shape[1]), axis=1).max(initial=0.0)
    if rows.good[first:last].min(initial=1.0) > 0.0 and widest <= state.hyper.max_variance:
        return 0  # as nearly always, at a fraction of the cost of what follows
    bad = first + np.flatnonzero(~_sound(state, first, last) & ~problem.rows_of_fixed[first:last])
    if bad.size == 0:
        return 0
    factor = np.ones(len(rows.good))
    priors = (base.per_row(part, problem.shape)[bad] for part in (state.hyper.now.Lam, state.hyper.now.eta))
    for i, prior_Lam, prior_eta in zip(bad.tolist(), *priors, strict=True):
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
    entries, bounds = problem.weighted_entries, itertools.pairwise(problem.entries.offsets.tolist())
    modes = [k for k, (a, b) in enumerate(bounds) if (factor[a:b] != 1.0).any()]
    executor.run(SCALING._replace(modes=modes), 0, len(entries.chunk_start) - 1, entries, factor, state.own.messages)
    return int(bad.size)


def _sound(state: MessageState, first: int, last: int) -> np.ndarray:
    """Whether the rows first:last are Gaussians that are not far wider than the prior."""
    rows = state.rows
    widest = rows.cov[first:last].take(diagonal(rows.eta.shape[1]), axis=1).max(axis=1)
    return np.asarray((rows.good[first:last] > 0.0) & (widest <= state.hyper.max_variance))


# What message passing learns of the rows' prior, and rows of a mode that depend on each other.
#
# The rows are prior x messages. Where they are coupled, as those of a series or a graph, what their messages say of
# each row turns with the joint prior into marginals (`priors.coupled`); the prior of such a row alone, which cavities
# and safeguards need, is its marginal without its own messages.


def with_learned_prior(state: MessageState, problem: Problem, executor: Executor) -> tuple[MessageState, int]:
    """Move the rows' prior to its expectation given the rows, as far as the messages move; and count rows shrunk."""
    # messages are positive semidefinite, so any prior leaves every cavity a Gaussian; where they are not (second order,
    # or without `positive`), the messages of a row that the new prior makes unsound are shrunk
    rows, hyper, prior, shape = state.rows, state.hyper, state.own.prior, problem.shape
    now = hyper.now
    if now.modes is None or not isinstance(prior, base.LearnedPrior):
        return state, 0
    state.own.cavities.fresh[:] = 0.0
    small, step = problem._replace(prior=prior), state.own.pace.step
    coupled = [cp_rows.coupled_moments(k, small, rows, marginals) for k, marginals in enumerate(hyper.marginals)]
    moments = base.moments_per_mode(rows.mean, rows.cov, now.seen, shape)
    posterior = prior.learn(*moments, coupled)
    modes = base.damped(now.modes, prior.expectation(now.modes, posterior), step)
    new = base.conditional_of_modes(modes, now.seen)
    new = new._replace(eta=base.of_rows(new.eta, prior, modes, shape, natural=True))
    chained = [prior.chained(k, posterior) for k in range(len(shape))]
    if any(own is not None for own in chained):
        new = new._replace(Lam=base.per_row(new.Lam, shape), eta=base.per_row(new.eta, shape))
    joint = tuple(
        None if q is None or problem.is_fixed(k) else damped_joint(hyper.joint[k], q.links, step)
        for k, q in enumerate(chained)
    )
    state = state._replace(hyper=hyper._replace(now=new, joint=joint))
    for k in range(len(shape)):  # at their new prior, with the same messages
        own = slice(*problem.entries.offsets[k : k + 2].tolist())
        if problem.is_fixed(k):
            continue
        if joint[k] is None:
            rows.Lam[own] += base.of_mode(new.Lam, k, shape) - base.of_mode(now.Lam, k, shape)
            rows.eta[own] += base.of_mode(new.eta, k, shape) - base.of_mode(now.eta, k, shape)
        else:
            rows.Lam[own] -= base.of_mode(now.Lam, k, shape)
            rows.eta[own] -= base.of_mode(now.eta, k, shape)
            state = with_joint_rows(state, k, own)
    cp_rows.refresh_rows(rows, 0, len(rows.eta), executor)
    widest = float(np.linalg.inv(modes.precision).diagonal(axis1=1, axis2=2).max())
    state = state._replace(hyper=state.hyper._replace(max_variance=MAX_VARIANCE_RATIO * widest))
    return state, shrink(state, problem, 0, len(rows.eta), executor)


def with_joint_rows(state: MessageState, k: int, own: slice) -> MessageState:
    """The rows of mode k, which hold what their messages say, at their joint posterior; the others at their prior."""
    rows, hyper, prior = state.rows, state.hyper, state.hyper.now
    joint: Any = hyper.joint[k]
    Lam, eta = rows.Lam[own].copy(), rows.eta[own].copy()
    rows.Lam[own] += prior.Lam[own]
    rows.eta[own] += prior.eta[own]
    marginals = cp_rows.rows_together(joint, Lam, eta, own.start, rows)
    cp_rows.natural_again(joint.of, own.start, rows)
    place, told, at = own.start + joint.of.place, Lam[joint.of.place], diagonal(eta.shape[1])
    if marginals.apart:  # what the others say of each column by itself: no more of a row's messages can be taken off
        mean, said = rows.mean[place], rows.Lam[place][:, at] - told[:, at]
        rows.Lam[place] = told
        rows.Lam[place[:, None], at] += said
        rows.eta[place] = np.einsum("nij,nj->ni", unpack(rows.Lam[place], mean.shape[1]), mean)
    prior.Lam[place] = rows.Lam[place] - told
    prior.eta[place] = rows.eta[place] - eta[joint.of.place]
    return state._replace(hyper=hyper._replace(marginals=(*hyper.marginals[:k], marginals, *hyper.marginals[k + 1 :])))


# The sweep of every message-passing method: new messages mode after mode, then the rows, the noise and the prior.
#
# A method is told apart by its compiled kernel, which goes over chunks of entries, computes new messages to the rows of
# some modes and leaves their sums per row in `state.sums`. Two safeguards follow: rows stay Gaussians (`shrink`), and
# adaptive damping settles.

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05

# The rows that a kernel gets, and the (a, b) of the noise; by default those of the state.
GivenRows = tuple[tuple[Any, ...], Pair]
Given = Callable[[MessageState, Problem, tuple[int, int], Executor], GivenRows] | None


def sweep(
    state: MessageState, problem: Problem, options: CEP | Laplace, executor: Executor, work: Pass, given: Given = None
) -> tuple[MessageState, Sweep]:
    """Every message once, by a pass over the chunks; one that keeps none gets `given` rows, damped in their place."""
    entries, K, step = problem.weighted_entries, len(problem.shape), state.own.pace.step
    gaussian, parameters = problem.noise_prior is not None, state.own.parameters
    by_row = any(one.groups.mode is not None for one in parameters)
    if by_row:
        entries = entries._replace(theta=kernel_arguments(parameters, state.parameters, problem)[1])
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    theta, cuts = shared_arguments(parameters, state.parameters)
    state = state.put(rule=state.own.rule._replace(step=step, power=power, theta=theta, cuts=cuts))
    skipped, shrunk, starts = 0, 0, problem.entries.offsets.tolist()
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        alone = modes[1] == modes[0] + 1
        if alone and problem.is_fixed(modes[0]) and not (gaussian and modes[1] == K):
            continue  # the pass of the last mode tells the noise as well
        rows, noise = ((state.rows,), state.noise) if given is None else given(state, problem, modes, executor)
        own = state.own
        record = (modes, entries, own.columns, *rows, own.messages, own.cavities, own.sums, noise, own.rule)
        own.rooms.start()
        executor.run(work._replace(modes=range(*modes)), 0, len(entries.chunk_start) - 1, *record, scratch=own.rooms)
        own.cavities.fresh[:] = 1.0  # the moments of all modes have been read; now the rows of these change
        own.cavities.fresh[modes[0] : modes[1]] = 0.0
        unsend(own.messages, problem)
        state = _updated(state, problem, modes, starts, 1.0 if given is None else step, executor)
        skipped += int(state.own.sums.skipped.sum())
        shrunk += shrink(state, problem, starts[modes[0]], starts[modes[1]], executor)
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    state = _with_laws(state, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    mean = all_means(state.rows.mean, problem.free, problem.shape)
    change = move_latent(state.own.f, problem.entries, mean, executor, problem.power) / step
    theta, cuts = shared_arguments(parameters, state.parameters)
    of_all = not by_row and not len(cuts)
    y, each = (problem.entries.y, theta) if of_all else kernel_arguments(parameters, state.parameters, problem)
    score, noise_precision = cp_rows.train_score(problem, state.f, each, y), theta if gaussian else np.nan
    info = Sweep(change, noise_precision, skipped=skipped, shrunk=shrunk, train_score=score)
    if options.damping == "adaptive":
        pace = state.own.pace
        step, ceiling = min(pace.ceiling, pace.step * STEP_GROWTH), pace.ceiling
        if change > pace.change or skipped > 0:
            step, ceiling = (max(STEP_MIN, pace.step * share) for share in (STEP_SHRINK, CEILING_SHRINK))
        state = state.put(pace=Pace(step, ceiling, change))
    return state._replace(sweeps=state.sweeps + 1), info


def _updated(
    state: MessageState, problem: Problem, modes: tuple[int, int], starts: list[int], step: float, executor: Executor
) -> MessageState:
    """Move the rows of the modes, and with the last one the noise, the way `step` to prior x messages."""
    rows, sums, prior = state.rows, state.own.sums, state.hyper.now
    for k in range(*modes):
        if problem.is_fixed(k):
            continue
        own, together = slice(starts[k], starts[k + 1]), state.hyper.joint[k] is not None
        lines = [base.for_kernel(part, k, problem.shape) for part in (prior.Lam, prior.eta)]
        if together:  # what is left without their prior is what messages say
            rows.Lam[own] -= prior.Lam[own]
            rows.eta[own] -= prior.eta[own]
            lines = [np.zeros((1, line.shape[1])) for line in lines]
        executor.run(add_sums, own.start, own.stop, *lines, sums, step, rows.Lam, rows.eta, align=LANES)
        if together:
            state = with_joint_rows(state, k, own)
    cp_rows.refresh_rows(rows, starts[modes[0]], starts[modes[1]], executor)
    if problem.noise_prior is None or modes[1] < len(problem.shape):
        return state
    a, b = sums.noise.sum(axis=0).tolist()
    laws = with_noise_messages(state.own.parameters, state.parameters, a, b, None if step == 1.0 else step)
    return state._replace(parameters=laws)


def _with_laws(state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    """Move the laws that latent values tell, as far as the messages move."""
    parameters, entries, free = state.own.parameters, problem.entries, problem.free
    if not any(one.by_latent for one in parameters):
        return state
    mean = all_means(state.rows.mean, free, problem.shape)
    cov = all_covariances(state.rows.cov, free, problem.shape)
    stats = EntryStats(
        y=entries.y,
        used=entries.weight,
        f=state.f,
        n=len(entries.permutation),
        theta=lambda: kernel_arguments(parameters, state.parameters, problem)[1],
        executor=executor,
        marginals=marginals_of_rows(problem, mean, cov),
    )
    pairs, step = zip(parameters, state.parameters, strict=True), state.own.pace.step
    laws = tuple(one.expect(law, stats, step) if one.by_latent else law for one, law in pairs)
    return state._replace(parameters=laws)
