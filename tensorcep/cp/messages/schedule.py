"""A sweep of message passing: passes over modes, learned priors, and guards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorcep.core.executor import Executor, Pass
from tensorcep.core.loop import Sweep
from tensorcep.core.packing import diagonal, unpack
from tensorcep.cp.messages.cavities import SCALING, add_sums
from tensorcep.cp.messages.sites import (
    MAX_VARIANCE_RATIO,
    MessageState,
    Pace,
    move_to_rows,
    unsend,
    with_noise_messages,
)
from tensorcep.cp.model.columns import all_covariances, all_means
from tensorcep.cp.model.parameters import kernel_arguments, marginals_of_rows, shared_arguments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import coupled_moments, natural_again, refresh_rows, rows_together, train_score
from tensorcep.cp.settings.messages import CEP, Laplace
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.parameters.base import EntryStats
from tensorcep.priors.base import (
    LearnedPrior,
    conditional_of_modes,
    for_kernel,
    moments_per_mode,
    of_mode,
    of_rows,
    per_row,
)
from tensorcep.priors.coupled import damped_joint

# The safeguard of message passing: rows whose messages would leave no Gaussian get less of them.

# Halvings after which a row's messages are dropped altogether (its posterior is then the prior).
MAX_HALVINGS = 40


def shrink(state: MessageState, problem: Problem, first: int, last: int, executor: Executor) -> int:
    """Halve the messages of rows whose precision is not positive definite, or close to that, until it is.

    Messages may be indefinite, so their sum can outweigh the prior. Scaling all messages of such a row keeps "posterior
    = prior x messages" true, which resetting the row alone would not. Returns the number of those rows.
    """
    rows = state.rows
    widest = rows.cov[first:last].take(diagonal(rows.eta.shape[1]), axis=1).max(initial=0.0)
    if rows.good[first:last].min(initial=1.0) > 0.0 and widest <= state.hyper.max_variance:
        return 0
    bad = first + np.flatnonzero(~_sound(state, first, last) & ~problem.rows_of_fixed[first:last])
    if bad.size == 0:
        return 0
    factor = np.ones(len(rows.good))
    of_rows = (per_row(part, problem.shape)[bad] for part in (state.hyper.now.Lam, state.hyper.now.eta))
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
    """Move the rows' prior to its expectation given the rows, as far as the messages move; and count rows shrunk.

    Messages are positive semidefinite, so any prior leaves every cavity a Gaussian; where they are not (second order,
    or without `positive`), the messages of a row that the new prior makes unsound are shrunk.
    """
    rows, hyper, prior, shape = state.rows, state.hyper, state.own.prior, problem.shape
    now = hyper.now
    if now.modes is None or not isinstance(prior, LearnedPrior):
        return state, 0
    state.own.cavities.drop()
    small, step = problem._replace(prior=prior), state.own.pace.step
    coupled = [coupled_moments(k, small, rows, marginals) for k, marginals in enumerate(hyper.marginals)]
    modes, posterior = prior.update(now.modes, *moments_per_mode(rows.mean, rows.cov, now.seen, shape), coupled, step)
    new = conditional_of_modes(modes, now.seen)
    new = new._replace(eta=of_rows(new.eta, prior, modes, shape, natural=True))
    chained = [prior.chained(k, posterior) for k in range(len(shape))]
    if any(own is not None for own in chained):
        new = new._replace(Lam=per_row(new.Lam, shape), eta=per_row(new.eta, shape))
    joint = tuple(
        None if q is None or problem.is_fixed(k) else damped_joint(hyper.joint[k], q.links, step)
        for k, q in enumerate(chained)
    )
    state = state._replace(hyper=hyper._replace(now=new, joint=joint))
    for k in range(len(shape)):  # at their new prior, with the same messages
        own = slice(*_rows_of((k, k + 1), problem))
        if problem.is_fixed(k):
            continue
        if joint[k] is None:
            rows.Lam[own] += of_mode(new.Lam, k, shape) - of_mode(now.Lam, k, shape)
            rows.eta[own] += of_mode(new.eta, k, shape) - of_mode(now.eta, k, shape)
        else:
            rows.Lam[own] -= of_mode(now.Lam, k, shape)
            rows.eta[own] -= of_mode(now.eta, k, shape)
            state = with_joint_rows(state, k, own)
    refresh_rows(rows, 0, len(rows.eta), executor)
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
    marginals = rows_together(joint, Lam, eta, own.start, rows)
    natural_again(joint.of, own.start, rows)
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
# adaptive damping settles (`adapted`).

# Adaptive damping: the step grows while the change falls; when it rises or updates are skipped, the step shrinks and
# may not grow again beyond a little less than it was, so that it settles.
STEP_GROWTH, STEP_SHRINK, CEILING_SHRINK, STEP_MIN = 1.1, 0.7, 0.9, 0.05

# The rows that a kernel gets, and the (a, b) of the noise; by default those of the state.
GivenRows = tuple[tuple[Any, ...], tuple[float, float]]
Given = Callable[[MessageState, Problem, tuple[int, int], Executor], GivenRows]


def sweep(
    state: MessageState,
    problem: Problem,
    options: CEP | Laplace,
    executor: Executor,
    work: Pass,
    given: Given | None = None,
) -> tuple[MessageState, Sweep]:
    """Every message once, by a pass over the chunks of the entries.

    One that keeps no messages gets what `given` returns for rows; rows and noise are damped in their place.
    """
    entries, K, step = problem.weighted_entries, len(problem.shape), state.own.pace.step
    gaussian, parameters = problem.noise_prior is not None, state.own.parameters
    by_row = any(one.mode is not None for one in parameters)
    if by_row:
        entries = entries._replace(theta=kernel_arguments(parameters, state.parameters, problem)[1])
    power = float(options.anneal_power) if state.sweeps < options.anneal else 1.0
    theta, cuts = shared_arguments(parameters, state.parameters)
    state = state.put(rule=state.own.rule._replace(step=step, power=power, theta=theta, cuts=cuts))
    skipped = shrunk = 0
    for modes in [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]:
        alone = modes[1] == modes[0] + 1
        if alone and problem.is_fixed(modes[0]) and not (gaussian and modes[1] == K):
            continue  # the pass of the last mode tells the noise as well
        rows, noise = ((state.rows,), state.noise) if given is None else given(state, problem, modes, executor)
        own = state.own
        record = (modes, entries, own.columns, *rows, own.messages, own.cavities, own.sums, noise, own.rule)
        own.rooms.start()
        executor.run(work._replace(modes=range(*modes)), 0, len(entries.chunk_start) - 1, *record, scratch=own.rooms)
        own.cavities.after(modes)
        unsend(state.messages, problem)
        state = _updated(state, problem, modes, 1.0 if given is None else step, executor)
        skipped += int(state.own.sums.skipped.sum())
        shrunk += shrink(state, problem, *_rows_of(modes, problem), executor)
    if state.sweeps >= options.anneal:
        state, more = with_learned_prior(state, problem, executor)
        shrunk += more
    state = _with_laws(state, problem, executor)
    # the change an undamped update would make, so that damping does not look like convergence
    change = move_to_rows(state, problem, executor) / step
    theta, cuts = shared_arguments(parameters, state.parameters)
    of_all = not by_row and not len(cuts)
    y, each = (problem.entries.y, theta) if of_all else kernel_arguments(parameters, state.parameters, problem)
    info = Sweep(
        change=change,
        noise_precision=theta if gaussian else np.nan,
        skipped=skipped,
        shrunk=shrunk,
        train_score=train_score(problem, state.f, each, y),
    )
    pace = adapted(state.own.pace, change, skipped) if options.damping == "adaptive" else state.own.pace
    return state.put(pace=pace)._replace(sweeps=state.sweeps + 1), info


def _rows_of(modes: tuple[int, int], problem: Problem) -> tuple[int, int]:
    """The packed rows of the modes, from one to the other."""
    return int(problem.entries.offsets[modes[0]]), int(problem.entries.offsets[modes[1]])


def _updated(
    state: MessageState, problem: Problem, modes: tuple[int, int], step: float, executor: Executor
) -> MessageState:
    """Move the rows of the modes, and with the last one the noise, the way `step` to prior x messages."""
    rows, sums, prior = state.rows, state.own.sums, state.hyper.now
    first, last = _rows_of(modes, problem)
    for k in range(*modes):
        if problem.is_fixed(k):
            continue
        own, together = slice(*_rows_of((k, k + 1), problem)), state.hyper.joint[k] is not None
        lines = [for_kernel(part, k, problem.shape) for part in (prior.Lam, prior.eta)]
        if together:  # what is left without their prior is what messages say
            rows.Lam[own] -= prior.Lam[own]
            rows.eta[own] -= prior.eta[own]
            lines = [np.zeros((1, line.shape[1])) for line in lines]
        executor.run(add_sums, own.start, own.stop, *lines, sums, step, rows.Lam, rows.eta, align=LANES)
        if together:
            state = with_joint_rows(state, k, own)
    refresh_rows(rows, first, last, executor)
    if problem.noise_prior is None or modes[1] < len(problem.shape):
        return state
    a, b = sums.noise.sum(axis=0).tolist()
    laws = with_noise_messages(state.own.parameters, state.parameters, a, b, None if step == 1.0 else step)
    return state._replace(parameters=laws)


def _with_laws(state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    """Move the laws that latent values tell, as far as the messages move."""
    parameters, entries, (mean, cov) = state.own.parameters, problem.entries, (state.rows.mean, state.rows.cov)
    if not any(one.by_latent for one in parameters):
        return state
    if problem.free is not None:
        mean, cov = all_means(mean, problem.free, problem.shape), all_covariances(cov, problem.free, problem.shape)
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
    return state._replace(
        parameters=tuple(one.expect(law, stats, step) if one.by_latent else law for one, law in pairs)
    )


def adapted(pace: Pace, change: float, skipped: int) -> Pace:
    """The pace after a sweep with this change, under adaptive damping."""
    if change > pace.change or skipped > 0:
        step, ceiling = pace.step * STEP_SHRINK, pace.step * CEILING_SHRINK
        return Pace(max(STEP_MIN, step), max(STEP_MIN, ceiling), change)
    return Pace(min(pace.ceiling, pace.step * STEP_GROWTH), pace.ceiling, change)
