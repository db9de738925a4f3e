"""Forgetting entries whose messages were kept: they are divided out, and the rest settles again.

The posterior is prior x messages, so that taking an entry's messages out is what removes it (decremental EP); the
others were computed beside it, and some more sweeps bring them to the fixed point of the entries that are left. What
the fit decided by all its values (level, scales) is decided anew by those.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import Run, run
from tensorcep.cp.free_columns import free_problem
from tensorcep.cp.messages.sent import Messages
from tensorcep.cp.messages.state import MessageState, latent_values
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import initial_prior, learning, refresh_rows, rows_at_prior
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.record import conditional_of_modes, of_rows, per_row


class Kept(NamedTuple):
    """What a fit by ``CEP(keep_messages=True)`` keeps.

    Attributes
    ----------
    coords, values : (N, K) int64, (N,) float64
        The entries in the order of the lanes; values as they were given, labels coded.
    source : object
        What the fit was given, which may know more than the entries.
    state : MessageState
        At the end of the fit.
    """

    coords: np.ndarray
    values: np.ndarray
    source: Any
    state: MessageState


def fits(work: Plan, kept: Kept) -> bool:
    """Whether a plan for other entries has the columns that the kept messages are for."""
    return free_problem(work.problem).rank == kept.state.rows.eta.shape[1]


def run_without(kept: Kept, left: np.ndarray, work: Plan) -> Run:
    """Run a plan for the entries that are left, (N,) bool, from the messages that they had."""
    executor = ThreadExecutor(work.n_threads)
    try:
        state = _state_without(kept.state, left, work, executor)
    finally:
        executor.close()
    return run(work.method, work.problem, work.settings, state=state, done=state.sweeps, **work.how)


def _state_without(old: MessageState, left: np.ndarray, work: Plan, executor: Any) -> MessageState:
    problem, in_free = work.problem, learning(free_problem(work.problem))
    new: MessageState = work.method.init(problem, work.settings, executor)
    places = np.flatnonzero(left)
    messages = Messages(*(_chosen(part, places, like) for part, like in zip(old.messages, new.messages, strict=True)))
    prior = initial_prior(in_free)
    if old.prior.modes is not None:
        prior = conditional_of_modes(old.prior.modes, prior.seen)
        eta = of_rows(prior.eta, in_free.prior, old.prior.modes, problem.shape, natural=True)
        prior = prior._replace(eta=eta)
    rows, n = rows_at_prior(in_free), len(places)
    to = problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[:n].ravel()
    for line, part, sent in ((prior.Lam, rows.Lam, messages.Lam), (prior.eta, rows.eta, messages.eta)):
        part[:] = per_row(line, problem.shape)
        np.add.at(part, to, _by_entry(sent)[:n].reshape(len(to), -1))
    refresh_rows(rows, 0, len(rows.good), executor)
    noise = old.noise
    if problem.noise_prior is not None:
        noise = (problem.noise_prior.a + messages.a.sum(), problem.noise_prior.b + messages.b.sum())
    state = new._replace(messages=messages, rows=rows, prior=prior, noise=noise, law=old.law, sweeps=old.sweeps)
    state = state._replace(cut=old.cut)
    return state._replace(f=latent_values(rows.mean, problem, executor), max_variance=old.max_variance)


def _by_entry(part: np.ndarray) -> np.ndarray:
    """Messages of all lanes, one after the other: (n_blocks * LANES, K, W)."""
    return np.moveaxis(part, -1, 1).reshape(-1, *part.shape[1:-1])


def _chosen(part: np.ndarray, places: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The messages at some places in the lanes, as messages of the shape of `like`."""
    if not like.size:
        return like
    new = lane_zeros(like.shape, like.dtype)
    padded = np.zeros((len(like) * LANES, *like.shape[1:-1]), dtype=like.dtype)
    padded[: len(places)] = _by_entry(part)[places]
    new[:] = np.moveaxis(padded.reshape(len(like), LANES, *like.shape[1:-1]), 1, -1)
    return new


def run_from(rows: np.ndarray, work: Plan, runner: Any) -> Run:
    """Run a plan from these row means (n_rows, R), without pilots."""
    problem: Problem = work.problem._replace(start=rows)
    begun = work._replace(problem=problem, starts=(rows,), members=1, spectral=False, pilots=())
    result: Run = runner(begun)
    return result


def runner_of(kept: Kept | None, left: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None, run_plan: Any) -> Any:
    """What runs the plan without the entries that are forgotten.

    `known` are rows (n_rows, R) and their free columns (K, R) bool.

    Returns
    -------
    callable
        Of the plan: from the messages, from the rows where there are none, or anew.
    """
    if kept is not None:
        return lambda work: run_without(kept, left, work) if fits(work, kept) else run_plan(work)
    if known is not None:
        return partial(_from_rows_if_they_fit, *known, run_plan)
    return run_plan


def _from_rows_if_they_fit(rows: np.ndarray, free: np.ndarray, run_plan: Any, work: Plan) -> Run:
    if np.array_equal(work.problem.every_free, free):
        return run_from(rows, work, run_plan)
    for number, (other, _) in enumerate(work.paired, 1):
        if np.array_equal(other.problem.every_free, free):
            return run_from(rows, other, run_plan)._replace(stands_in=number)
    done: Run = run_plan(work)
    return done
