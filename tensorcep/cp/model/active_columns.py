"""Models with main effects and interactions in the free columns of every mode alone, and back.

Every mode keeps only its free columns, Q of them, as rows of a CP model of rank Q do; the others are 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.packing import diagonal, offsets, pack, unpack
from tensorcep.cp.model.columns import CLAMPED, FreeColumns, encoded, padded_columns
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState, seen_rows
from tensorcep.cp.posterior.belief import Posterior
from tensorcep.priors.base import Drift, ModePrior, Slopes, of_mode


def columns_of(problem: Problem) -> FreeColumns:
    """The record of the problem's columns; all are free where it names none."""
    K, R = len(problem.shape), problem.rank
    return encoded(np.ones((K, R), dtype=bool) if problem.free is None else problem.free)


def free_problem(problem: Problem) -> Problem:
    """The problem in the free columns of every mode; a mode with fewer of them gets columns that the data never touch.

    The prior must not couple free and clamped columns.
    """
    free = problem.free
    if free is None:
        return problem
    K, prior, start = len(free), problem.prior, problem.start
    index = padded_columns(free)
    modes = np.arange(K) if len(prior.Lam) == K else np.repeat(np.arange(K), problem.shape)
    Lam = pack(_taken(unpack(prior.Lam, problem.rank), index[modes]))
    prior = prior.in_columns(Lam, _columns(prior.eta, index, problem.shape), index)
    start = None if start is None else _columns(start, index, problem.shape)
    fixed = problem.fixed
    if fixed is not None:
        each = np.repeat(np.arange(K), problem.shape)
        Lam = pack(_taken(unpack(fixed.Lam, problem.rank), index[each]))
        fixed = fixed._replace(Lam=Lam, eta=_columns(fixed.eta, index, problem.shape))
    return problem._replace(rank=index.shape[1], prior=prior, start=start, fixed=fixed)


def some_columns(problem: Problem, which: np.ndarray) -> Problem:
    """The problem in some of its columns, which its prior must not couple with the others."""
    prior, R = problem.prior, problem.rank
    free = np.ones((len(problem.shape), R), dtype=bool) if problem.free is None else problem.free
    free = free[:, which]
    Lam = pack(unpack(prior.Lam, R)[:, which][:, :, which])
    return problem._replace(
        rank=len(which),
        prior=prior.in_columns(Lam, np.ascontiguousarray(prior.eta[:, which]), np.where(free, which, -1)),
        start=None if problem.start is None else np.ascontiguousarray(problem.start[:, which]),
        free=None if free.all() else free,
    )


def _columns(lines: np.ndarray, index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The columns index (K, Q) of each mode, of lines for each row or for each mode; padding is 0."""
    out = np.zeros((len(lines), index.shape[1]))
    for k, own in enumerate(index):
        n = np.count_nonzero(own >= 0)
        of_mode(out, k, shape)[:, :n] = of_mode(lines, k, shape)[:, own[:n]]
    return out


def _taken(full: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Submatrices (n, Q, Q) of (n, R, R); padding is uncoupled and as precise as the first column."""
    n = np.arange(len(full))[:, None, None]
    part = full[n, np.maximum(index, 0)[:, :, None], np.maximum(index, 0)[:, None, :]]
    used = index >= 0
    part = part * (used[:, :, None] & used[:, None, :])
    part[:, np.arange(index.shape[1]), np.arange(index.shape[1])] += part[:, :1, 0] * ~used
    return part


def all_means(mean: np.ndarray, free: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Row means (n_rows, R) of all columns from those of the free ones."""
    full = np.ones((len(mean), free.shape[1]))
    first = offsets(shape)
    for k, row in enumerate(free):
        full[first[k] : first[k + 1], row] = mean[first[k] : first[k + 1], : int(row.sum())]
    return full


def posterior_of_rows(rows: RowState, problem: Problem, modes: ModePrior | None, **learned: Any) -> Posterior:
    """The posterior of all columns, of the rows in the free ones, with what was learned of the likelihood."""
    seen, rank = seen_rows(problem), rows.eta.shape[1]
    posterior = Posterior(problem.shape, rank, rows.Lam, rows.eta, seen=seen, mode_prior=modes, **learned)
    return posterior if problem.free is None else all_columns(posterior, problem.free)


def all_covariances(cov: np.ndarray, free: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Packed covariances (n_rows, P) of all columns from those of the free ones; the others do not vary."""
    R = free.shape[1]
    full, first = np.zeros((len(cov), R * (R + 1) // 2)), offsets(shape)
    for k, row in enumerate(free):
        where, n = np.flatnonzero(row), int(row.sum())
        a, b = np.tril_indices(n)
        full[first[k] : first[k + 1], where[a] * (where[a] + 1) // 2 + where[b]] = cov[
            first[k] : first[k + 1], : n * (n + 1) // 2
        ]
    return full


def all_columns(posterior: Posterior, free: np.ndarray) -> Posterior:
    """The posterior of all columns, those that are clamped at 1 with the precision CLAMPED."""
    first, R = offsets(posterior.shape), free.shape[1]
    Lam, eta = np.zeros((len(posterior.eta), R * (R + 1) // 2)), np.full((len(posterior.eta), R), CLAMPED)
    Lam[:, diagonal(R)] = CLAMPED
    modes = posterior.mode_prior
    precision, mean = np.tile(CLAMPED * np.eye(R), (len(free), 1, 1)), np.ones((len(free), R))
    for k, row in enumerate(free):
        n, mine = int(row.sum()), slice(first[k], first[k + 1])
        where = np.flatnonzero(row)
        i, j = np.tril_indices(n)
        Lam[mine, diagonal(R)[where[i]] - (where[i] - where[j])] = posterior.Lam[mine, : len(i)]
        eta[mine, where] = posterior.eta[mine, :n]
        if modes is not None:
            precision[k][np.ix_(where, where)] = modes.precision[k, :n, :n]
            mean[k, where] = modes.mean[k, :n]
    if modes is not None:
        slopes = tuple(_slopes_of_all(own, row) for own, row in zip(modes.slopes, free, strict=False))
        drifts = tuple(_drift_of_all(own, row) for own, row in zip(modes.drifts, free, strict=False))
        modes = ModePrior(mean, precision, slopes, drifts)
    return posterior._replace(rank=R, Lam=Lam, eta=eta, mode_prior=modes)


def _slopes_of_all(slopes: Slopes | None, free: np.ndarray) -> Slopes | None:
    """Slopes of all columns (R,) of a mode; those that are clamped have none."""
    return None if slopes is None else slopes._replace(coef=_in_all(slopes.coef, free))


def _drift_of_all(drift: Drift | None, free: np.ndarray) -> Drift | None:
    """The drift of all columns (R,) of a mode; those that are clamped have none."""
    return None if drift is None else Drift(_in_all(drift.length[None], free)[0], _in_all(drift.season, free))


def _in_all(lines: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Lines (n, R) of all columns, of which those that are not free are 0."""
    full = np.zeros((len(lines), len(free)))
    full[:, free] = lines[:, : int(free.sum())]
    return full
