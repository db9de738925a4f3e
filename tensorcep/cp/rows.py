"""What the methods for the CP model share: the rows' natural parameters and moments, and figures about the fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.core.executor import Threads
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.model import Entries, latent_means
from tensorcep.cp.problem import Problem
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES
from tensorcep.priors.learned import damped, expected_prior, moments_per_mode

# Blocks of lanes that one thread takes at a time, so that a vectorised loop over them leaves no remainder.
ALIGNED_BLOCKS = 8


class RowState(NamedTuple):
    """Natural parameters and moments of every row: Lam, eta, mean, cov, and good (n_rows,) from `row_moments`."""

    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    good: np.ndarray


def rows_at_prior(problem: Problem) -> RowState:
    """Rows with the prior's natural parameters; their moments are not set yet (see `refresh_rows`)."""
    Lam, eta = problem.prior_Lam.copy(), problem.prior_eta.copy()
    return RowState(Lam, eta, np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta)))


class RowPrior(NamedTuple):
    """The prior that the rows have now.

    Attributes
    ----------
    Lam, eta : (n_rows, P), (n_rows, R) float64
        Natural parameters.
    modes : ModePrior or None
        The same per mode, where it is learned.
    seen : (n_rows,) bool
        Rows that it is learned from: those with entries.
    """

    Lam: np.ndarray
    eta: np.ndarray
    modes: ModePrior | None
    seen: np.ndarray


def initial_prior(problem: Problem) -> RowPrior:
    """The prior to begin with; arrays of its own where it is going to be learned."""
    Lam, eta = problem.prior_Lam, problem.prior_eta
    if problem.hyper is None:
        return RowPrior(Lam, eta, None, np.zeros(0, dtype=bool))
    first = offsets(problem.shape)[:-1]  # all rows of a mode begin with the same prior
    precision = unpack(Lam[first], problem.rank)
    mean = np.linalg.solve(precision, eta[first][..., None])[..., 0]
    return RowPrior(Lam.copy(), eta.copy(), ModePrior(mean, precision), seen_rows(problem))


def learn_prior(prior: RowPrior, problem: Problem, rows: RowState, step: float, threads: Threads) -> RowPrior:
    """Move the prior the fraction `step` of the way to its expectation given the rows, and every row with it."""
    if problem.hyper is None or prior.modes is None:
        return prior
    moments = moments_per_mode(rows.mean, rows.cov, prior.seen, problem.shape)
    modes = damped(prior.modes, expected_prior(problem.hyper, prior.modes, *moments), step)
    new = prior_of_rows(modes, problem, prior.seen)
    rows.Lam[:] += new.Lam - prior.Lam
    rows.eta[:] += new.eta - prior.eta
    refresh_rows(rows, 0, len(new.eta), threads)
    return new


def prior_of_rows(modes: ModePrior, problem: Problem, seen: np.ndarray) -> RowPrior:
    """The prior of every row from that of its mode."""
    Lam = np.repeat(pack(modes.precision), problem.shape, axis=0)
    eta = np.repeat(np.einsum("kij,kj->ki", modes.precision, modes.mean), problem.shape, axis=0)
    return RowPrior(Lam, eta, modes, seen)


def refresh_rows(rows: RowState, first: int, last: int, threads: Threads) -> None:
    """Moments of the packed rows first:last from their natural parameters."""

    def work(a: int, b: int) -> None:
        row_moments(first + a, first + b, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)

    threads.over(last - first, work, LANES)


def diagonal(R: int) -> np.ndarray:
    """Where the diagonal of a packed matrix lies."""
    return np.arange(R) * (np.arange(R) + 3) // 2


def latent_of_entries(entries: Entries, mean: np.ndarray, threads: Threads) -> np.ndarray:
    """The product of the row means of every entry, (n_blocks, LANES), 0 in padding lanes."""
    f = np.empty(entries.y.shape)
    threads.over(len(entries.rows), lambda a, b: latent_means(a, b, entries.rows, mean, f))
    f *= entries.weight
    return f


def relative_change(new: np.ndarray, old: np.ndarray) -> float:
    """Root mean square change, relative to the new root mean square."""
    if new.size == 0:
        return 0.0
    size = np.sqrt(np.mean(new**2))
    return float(np.sqrt(np.mean((new - old) ** 2)) / max(size, np.finfo(float).tiny))


def log_likelihoods(
    problem: Problem, f: np.ndarray, theta: float, threads: Threads
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log p(y | f) of every entry and its first two derivatives in f, (n_blocks, LANES) each, 0 in padding lanes."""
    result = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    per_entry = np.full_like(f, theta)

    def work(a: int, b: int) -> None:
        arrays = (problem.entries.y, f, per_entry, *result)
        problem.likelihood.loglik(*(array[a:b].ravel() for array in arrays))

    threads.over(len(f), work, ALIGNED_BLOCKS)
    if len(f):
        for array in result:  # only the last block may have padding lanes
            array[-1] *= problem.entries.weight[-1]
    return result


def train_score(problem: Problem, f: np.ndarray, theta: float | np.ndarray) -> float:
    """Mean log likelihood of the training entries at latent values f (n_blocks, LANES); theta is a number or like f."""
    used = problem.entries.weight > 0
    y, f = problem.entries.y[used], f[used]
    theta = theta[used] if isinstance(theta, np.ndarray) else theta
    if y.size == 0:
        return np.nan
    value, d1, d2 = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    problem.likelihood.loglik(y, f, np.full_like(f, theta), value, d1, d2)
    return float(value.mean())


def seen_rows(problem: Problem) -> np.ndarray:
    """Whether a training entry touches the row, (n_rows,) bool."""
    seen = np.zeros(len(problem.prior_eta), dtype=bool)
    used = problem.entries.weight[:, None, :] > 0
    seen[problem.entries.rows[np.broadcast_to(used, problem.entries.rows.shape)]] = True
    return seen
