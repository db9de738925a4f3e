"""What the methods for the CP model share: the rows' natural parameters and moments, and figures about the fit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import LEAF, RunningSum
from tensorcep.core.executor import Executor
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.priors.base import Conditional, first_conditional, in_modes, per_row

Mixed = Callable[[np.ndarray, np.ndarray], np.ndarray] | None
# Blocks of lanes that one thread takes at a time, so that a vectorised loop over them leaves no remainder.
ALIGNED_BLOCKS = 8
# Blocks of lanes whose rows are copied at a time.
BLOCKS_AT_A_TIME = 4096
# Entries whose log likelihoods are computed at a time, so many that a vectorised loop over them leaves no remainder.
ENTRIES_AT_A_TIME = 1 << 15


class RowState(NamedTuple):
    """Natural parameters and moments of every row: Lam, eta, mean, cov, and good (n_rows,) from `row_moments`."""

    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    good: np.ndarray


def rows_at_prior(problem: Problem) -> RowState:
    """Rows with the prior's natural parameters; their moments are not set yet (see `refresh_rows`)."""
    Lam, eta = (np.array(per_row(part, problem.shape)) for part in (problem.prior.Lam, problem.prior.eta))
    return RowState(Lam, eta, np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta)))


def fix_rows(rows: RowState, problem: Problem) -> None:
    """Give the rows that are not learned the natural parameters that they keep."""
    if problem.fixed is not None:
        own = problem.rows_of_fixed
        rows.Lam[own], rows.eta[own] = problem.fixed.Lam[own], problem.fixed.eta[own]


def initial_prior(problem: Problem) -> Conditional:
    """The prior to begin with."""
    seen = seen_rows(problem) if problem.prior.learned else np.zeros(0, dtype=bool)
    return first_conditional(problem.prior, problem.shape, seen)


def learning(problem: Problem) -> Problem:
    """The problem with a prior that knows which rows it is going to learn from."""
    if not problem.prior.learned:
        return problem
    return problem._replace(prior=problem.prior.for_rows(in_modes(seen_rows(problem), problem.shape)))


def refresh_rows(rows: RowState, first: int, last: int, executor: Executor) -> None:
    """Moments of the packed rows first:last from their natural parameters."""
    executor.run(row_moments, first, last, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good, align=LANES)


@functools.cache
def diagonal(R: int) -> np.ndarray:
    """Where the diagonal of a packed matrix lies."""
    places = np.arange(R) * (np.arange(R) + 3) // 2
    places.flags.writeable = False
    return places


def times_in_sum(R: int) -> np.ndarray:
    """How often an element of a packed symmetric matrix counts in a sum over the whole one: twice off the diagonal."""
    twice = np.full(R * (R + 1) // 2, 2.0)
    twice[diagonal(R)] = 1.0
    return twice


def log_likelihoods(
    problem: Problem, f: np.ndarray, theta: float, executor: Executor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log p(y | f) of every entry and its first two derivatives in f, (n_blocks, LANES) each, 0 in padding lanes."""
    result = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    each = problem.entries.theta if len(problem.entries.theta) else np.full_like(f, theta)
    per_entry((problem.entries.y, f, each), result, problem.likelihood.loglik, problem, executor)
    return result


def per_entry(
    given: tuple[np.ndarray, ...], results: tuple[np.ndarray, ...], kernel: Any, problem: Problem, executor: Executor
) -> None:
    """Call a kernel of flat arrays for all entries, all arrays (n_blocks, LANES); results are 0 in padding lanes."""
    executor.run(_on_blocks, 0, len(results[0]), kernel, (*given, *results), align=ALIGNED_BLOCKS)
    for array in results:
        array[-1:] *= problem.entries.weight[-1:]  # only the last block may have padding lanes


def _on_blocks(first: int, last: int, kernel: Any, arrays: tuple[np.ndarray, ...]) -> None:
    """Call a kernel of flat arrays on the blocks first:last of (n_blocks, LANES) arrays."""
    kernel(*(array[first:last].ravel() for array in arrays))


def augmentation_in_use(augmentation: Augmentation, problem: Problem) -> Augmentation | None:
    """The augmentation; None where entries are Gaussian in f as they are."""
    if augmentation.expected is None:
        return None
    y = problem.entries.y.ravel()[: len(problem.entries.permutation)]
    some = any(augmentation.hides(y[first : first + LEAF]).any() for first in range(0, len(y), LEAF))
    return augmentation if some or not len(y) else None


def train_score(
    problem: Problem, f: np.ndarray, theta: float | np.ndarray, y: np.ndarray | None = None, mixed: Mixed = None
) -> float:
    """Mean log likelihood of the training entries, by their weights, at latent values f (n_blocks, LANES).

    theta is a number or like f; y are the entries' values, unless kernels take others; ``mixed(y, log_density)`` makes
    of the log densities of kernels those of all kinds of entries.
    """
    n = len(problem.entries.permutation)
    each = problem.entries.y if y is None else y
    theta = problem.entries.theta if len(problem.entries.theta) else theta
    score = RunningSum(n)
    for first in range(0, n, ENTRIES_AT_A_TIME):
        at = slice(first, min(n, first + ENTRIES_AT_A_TIME))
        values, latent = (np.require(array.ravel()[at], requirements=["C", "W"]) for array in (each, f))
        own = np.full_like(latent, theta.ravel()[at] if isinstance(theta, np.ndarray) else theta)
        value, d1, d2 = np.empty_like(latent), np.empty_like(latent), np.empty_like(latent)
        problem.likelihood.loglik(values, latent, own, value, d1, d2)
        with np.errstate(over="ignore"):  # rates far beyond the counts: a mean of -inf
            value = value if mixed is None else mixed(values, value)
            score.add(value if problem.power is None else problem.power.ravel()[at] * value)
    total_weight = n if problem.power is None else float(problem.power.sum())
    return score.sum / total_weight if n else np.nan


def seen_rows(problem: Problem) -> np.ndarray:
    """Whether a training entry touches the row, (n_rows,) bool; of a row that is not learned, whether one did."""
    seen, entries = np.zeros(sum(problem.shape), dtype=bool), problem.entries
    for first in range(0, len(entries.rows), BLOCKS_AT_A_TIME):
        part = slice(first, first + BLOCKS_AT_A_TIME)
        used = entries.weight[part] > 0.0
        for k in range(entries.rows.shape[1]):
            rows = entries.rows[part, k]
            seen[rows if used.all() else rows[used]] = True
    return seen if problem.fixed is None else np.where(problem.rows_of_fixed, problem.fixed.seen, seen)
