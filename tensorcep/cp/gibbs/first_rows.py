"""The rows that chains start from."""

from __future__ import annotations

import itertools

import numpy as np

from tensorcep.core.packing import offsets
from tensorcep.cp.gibbs.streams import Stream
from tensorcep.cp.gibbs.sweep import ModeColumns
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.row_draws import draw_rows
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import LANES
from tensorcep.priors.record import per_row


def first_rows(small: Problem, columns: tuple[ModeColumns, ...], n_chains: int, rank: int) -> np.ndarray:
    """The rows of every chain, (C, n_rows, rank): the start of a problem in the free columns, then draws of its prior.

    Clamped columns are 1.
    """
    factors = np.empty((n_chains, sum(small.shape), rank))
    for c in range(n_chains):
        start = _draws_from_prior(small, c) if c or small.start is None else np.ascontiguousarray(small.start)
        for own, (a, b) in zip(columns, itertools.pairwise(offsets(small.shape)), strict=True):
            place = np.full(rank, -1)
            place[own.free[own.free >= 0]] = np.flatnonzero(own.free >= 0)
            arrange(int(a), int(b), start, place, factors[c])
            factors[c, a:b, place < 0] = 1.0
    return factors


def _draws_from_prior(problem: Problem, chain: int) -> np.ndarray:
    """A draw of every row from its prior, (n_rows, R)."""
    Lam, eta = problem.prior.Lam, per_row(problem.prior.eta, problem.shape)
    line = per_row(np.arange(len(Lam)), problem.shape)
    rows, good = np.empty(eta.shape), np.empty(len(eta))
    draw_rows(0, -(-len(eta) // LANES), line, Lam, eta, problem.seed, Stream.START + chain, rows, good)
    return rows
