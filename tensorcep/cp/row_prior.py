"""The prior of the rows in mean-field methods: fixed, or a factor of q of its own; and the rows' part of the bound.

A learned prior enters the update of a row by its expectation alone, and the bound by one more number. It is updated
before the rows of a sweep, from those of the sweep before: coordinate ascent, so that no update lowers the bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Threads
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import RowPrior, RowState, initial_prior, prior_of_rows
from tensorcep.kernels.rows import row_divergences
from tensorcep.kernels.slots import LANES
from tensorcep.priors.learned import bound_of_prior, expectation, moments_per_mode, prior_posterior


class PriorFactor(NamedTuple):
    """The rows' prior and what the bound needs of it.

    Attributes
    ----------
    now : RowPrior
        The prior, or its expectation where it is learned.
    mean : (n_rows, R)
        Means of `now`.
    half_log_det : (n_rows,)
        log|Lam| / 2 of `now`.
    bound : float
        What uncertainty of the prior adds to the bound (0 for a fixed one).
    """

    now: RowPrior
    mean: np.ndarray
    half_log_det: np.ndarray
    bound: float


def first_prior(problem: Problem, rows: RowState) -> PriorFactor:
    """The prior to begin with; `rows` hold it, with its moments."""
    mean, half_log_det = rows.mean.copy(), np.empty(len(rows.mean))
    row_divergences(0, len(mean), rows, problem.prior_Lam, mean, half_log_det)
    return PriorFactor(initial_prior(problem), mean, half_log_det, 0.0)


def learned_from_rows(prior: PriorFactor, problem: Problem, rows: RowState) -> PriorFactor:
    """The optimal factor of the prior given the rows; a fixed prior as it is."""
    hyper, now = problem.hyper, prior.now
    if hyper is None or now.modes is None:
        return prior
    found = prior_posterior(hyper, *moments_per_mode(rows.mean, rows.cov, now.seen, problem.shape))
    modes = expectation(hyper, now.modes, found)
    half_log_det = np.repeat(0.5 * np.linalg.slogdet(modes.precision)[1], problem.shape)
    mean = np.repeat(modes.mean, problem.shape, axis=0)
    return PriorFactor(prior_of_rows(modes, problem, now.seen), mean, half_log_det, bound_of_prior(hyper, found))


def rows_bound(prior: PriorFactor, rows: RowState, threads: Threads) -> float:
    """The rows' and their prior's part of the bound: minus their divergences."""
    divergence = np.empty(len(rows.mean))

    def work(a: int, b: int) -> None:
        row_divergences(a, b, rows, prior.now.Lam, prior.mean, divergence)

    threads.over(len(divergence), work, LANES)
    return prior.bound - float((divergence - prior.half_log_det).sum())
