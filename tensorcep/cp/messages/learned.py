"""What message passing learns of the rows' prior, and rows of a mode that depend on each other.

The rows are prior x messages. Where they are coupled, as those of a series or a graph, what their messages say of each
row turns with the joint prior into marginals (`priors.coupled`); the prior of such a row alone, which cavities and
safeguards need, is its marginal without its own messages.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import unpack
from tensorcep.cp.messages.guards import shrink
from tensorcep.cp.messages.state import MAX_VARIANCE_RATIO, MessageState
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.row_prior import chained_of, coupled_moments, natural_again, rows_together
from tensorcep.cp.model.rows import diagonal, refresh_rows
from tensorcep.priors.coupled import damped_joint
from tensorcep.priors.record import (
    Conditional,
    conditional_of_modes,
    damped,
    moments_per_mode,
    of_mode,
    of_rows,
    per_row,
)


def with_learned_prior(state: MessageState, problem: Problem, executor: Executor) -> tuple[MessageState, int]:
    """Move the rows' prior to its expectation given the rows, as far as the messages move; and count rows shrunk.

    Messages are positive semidefinite, so any prior leaves every cavity a Gaussian; where they are not (second order,
    or without `positive`), the messages of a row that the new prior makes unsound are shrunk.
    """
    rows, now, prior, shape = state.rows, state.prior, state.row_prior, problem.shape
    if now.modes is None:
        return state, 0
    state.cavities.drop()
    small, step = problem._replace(prior=prior), state.pace.step
    coupled = [coupled_moments(k, small, rows, found) for k, found in enumerate(state.found)]
    posterior = prior.learn(*moments_per_mode(rows.mean, rows.cov, now.seen, shape), coupled)
    modes = damped(now.modes, prior.expectation(now.modes, posterior), step)
    new = conditional_of_modes(modes, now.seen)
    new = new._replace(eta=of_rows(new.eta, prior, modes, shape, natural=True))
    chained = chained_of(posterior, len(shape))
    if any(own is not None for own in chained):
        new = new._replace(Lam=per_row(new.Lam, shape), eta=per_row(new.eta, shape))
    joint = tuple(
        None if q is None or problem.is_fixed(k) else damped_joint(state.joint[k], q.links, step)
        for k, q in enumerate(chained)
    )
    state = state._replace(prior=new, joint=joint)
    for k in range(len(shape)):
        if not problem.is_fixed(k):
            state = _moved(state, now, k, problem)
    refresh_rows(rows, 0, len(rows.eta), executor)
    widest = float(np.linalg.inv(modes.precision).diagonal(axis1=1, axis2=2).max())
    state = state._replace(max_variance=MAX_VARIANCE_RATIO * widest)
    return state, shrink(state, problem, 0, len(rows.eta), executor)


def _moved(state: MessageState, before: Conditional, k: int, problem: Problem) -> MessageState:
    """The rows of mode k at their new prior, with the same messages."""
    rows, new, shape = state.rows, state.prior, problem.shape
    own = slice(*problem.entries.offsets[k : k + 2].tolist())
    if state.joint[k] is None:
        rows.Lam[own] += of_mode(new.Lam, k, shape) - of_mode(before.Lam, k, shape)
        rows.eta[own] += of_mode(new.eta, k, shape) - of_mode(before.eta, k, shape)
        return state
    rows.Lam[own] -= of_mode(before.Lam, k, shape)
    rows.eta[own] -= of_mode(before.eta, k, shape)
    return with_joint_rows(state, k, own)


def told_by_entries(state: MessageState, own: slice) -> None:
    """Take the prior of coupled rows off: what is left is what their messages say."""
    state.rows.Lam[own] -= state.prior.Lam[own]
    state.rows.eta[own] -= state.prior.eta[own]


def with_joint_rows(state: MessageState, k: int, own: slice) -> MessageState:
    """The rows of mode k, which hold what their messages say, at their joint posterior; the others at their prior.

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    rows, prior, joint = state.rows, state.prior, state.joint[k]
    if joint is None:
        raise TypeError(f"the rows of mode {k} do not depend on each other")
    Lam, eta = rows.Lam[own].copy(), rows.eta[own].copy()
    rows.Lam[own] += prior.Lam[own]
    rows.eta[own] += prior.eta[own]
    found = rows_together(joint, Lam, eta, own.start, rows)
    natural_again(joint.of, own.start, rows)
    place, told, at = own.start + joint.of.place, Lam[joint.of.place], diagonal(eta.shape[1])
    if found.apart:  # what the others say of each column by itself: no more of a row's messages can be taken off
        mean, said = rows.mean[place], rows.Lam[place][:, at] - told[:, at]
        rows.Lam[place] = told
        rows.Lam[place[:, None], at] += said
        rows.eta[place] = np.einsum("nij,nj->ni", unpack(rows.Lam[place], mean.shape[1]), mean)
    prior.Lam[place] = rows.Lam[place] - told
    prior.eta[place] = rows.eta[place] - eta[joint.of.place]
    return state._replace(found=(*state.found[:k], found, *state.found[k + 1 :]))
