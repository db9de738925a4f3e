"""The prior of the rows in mean-field methods: fixed, or a factor of q of its own; and the rows' part of the bound.

A learned prior enters the update of a row by its expectation alone, and the bound by one more number. It is updated
before the rows of a sweep, from those of the sweep before: coordinate ascent, so that no update lowers the bound.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import offsets
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import RowState, initial_prior
from tensorcep.kernels.rows import row_divergences
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import Conditional, conditional_of_modes, for_kernel, in_modes, moments_per_mode, of_rows


class PriorFactor(NamedTuple):
    """The rows' prior and what the bound needs of it.

    Attributes
    ----------
    now : Conditional
        The prior, or its expectation where it is learned.
    mean : (n, R)
        Means of `now`, a line for each row or for each mode.
    half_log_det : (n_rows,)
        log|Lam| / 2 of `now`.
    bound : float
        What uncertainty of the prior adds to the bound (0 for a fixed one).
    """

    now: Conditional
    mean: np.ndarray
    half_log_det: np.ndarray
    bound: float


def first_prior(problem: Problem, rows: RowState) -> PriorFactor:
    """The prior to begin with; `rows` hold it, with its moments."""
    shape, given = problem.shape, problem.prior
    shared = len(given.Lam) == len(given.eta) == len(shape)
    mean = rows.mean[offsets(shape)[:-1]] if shared else rows.mean.copy()
    half_log_det = np.empty(len(rows.mean))
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        row_divergences(a, b, rows, *(for_kernel(part, k, shape) for part in (given.Lam, mean)), half_log_det)
    return PriorFactor(initial_prior(problem), mean, half_log_det, 0.0)


def learned_from_rows(prior: PriorFactor, problem: Problem, rows: RowState) -> PriorFactor:
    """The optimal factor of the prior given the rows; a fixed prior as it is."""
    now = prior.now
    if now.modes is None:
        return prior
    posterior = problem.prior.learn(*moments_per_mode(rows.mean, rows.cov, now.seen, problem.shape))
    modes = problem.prior.expectation(now.modes, posterior)
    half_log_det = np.repeat(0.5 * np.linalg.slogdet(modes.precision)[1], problem.shape)
    own, new = (problem.prior, modes, problem.shape), conditional_of_modes(modes, now.seen)
    new, mean = new._replace(eta=of_rows(new.eta, *own, natural=True)), of_rows(modes.mean, *own)
    return PriorFactor(new, mean, half_log_det, problem.prior.bound(posterior))


def rows_bound(prior: PriorFactor, rows: RowState, shape: tuple[int, ...], executor: Executor) -> float:
    """The rows' and their prior's part of the bound: minus their divergences."""
    divergence = np.empty(len(rows.mean))
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        lines = (for_kernel(part, k, shape) for part in (prior.now.Lam, prior.mean))
        executor.run(row_divergences, a, b, rows, *lines, divergence, align=LANES)
    return prior.bound - float((divergence - prior.half_log_det).sum())


def with_unseen_rows(rows: RowState, problem: Problem, now: Conditional) -> RowState:
    """The rows as a result: without entries they are as unsure as what was learned of their features, too.

    In q such a row has the expected prior. New data would see it through the law of that prior.
    """
    if now.modes is None:
        return rows
    Lam, eta = rows.Lam, rows.eta
    for k, (first, seen) in enumerate(zip(offsets(problem.shape), in_modes(now.seen, problem.shape), strict=False)):
        more = None if seen.all() else problem.prior.unsure(k, now.modes, ~seen)
        if more is not None:
            Lam, eta = (part.copy() if part is old else part for part, old in ((Lam, rows.Lam), (eta, rows.eta)))
            unseen = first + np.flatnonzero(~seen)
            Lam[unseen] /= 1.0 + more[:, None]
            eta[unseen] /= 1.0 + more[:, None]
    return rows._replace(Lam=Lam, eta=eta)
