"""What the Gibbs samplers of the CP model share: chains, their schedule, the draws of the factor rows, and the result.

A sampler augments the likelihood, so that every entry says something Gaussian about its latent value; then the rows of
one mode after the other are drawn given everything else.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep._checks import check_int, fail_value
from tensorcep.inference._cep_columns import free_problem
from tensorcep.inference._gibbs_sweep import ModeColumns, draw_rows, layout, mode_columns, padded
from tensorcep.inference._hyper import sampled_prior
from tensorcep.inference._row_blocks import RowBlocks, row_blocks
from tensorcep.inference._rows import RowPrior, initial_prior, prior_of_rows, seen_rows
from tensorcep.inference._run import Problem, Threads
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.kernels.streams import new_stream
from tensorcep.posterior import Draws, offsets, unpack

# With thin=None this many draws of every chain are kept, or fewer, to keep all draws within so many bytes.
KEPT_DRAWS, LEAST_DRAWS, DRAWS_BYTES = 100, 25, 2**30
# Streams are told apart by what is drawn: rows (0, 1, ... for the modes), then these.
AUGMENTATION, TABLES, PARAMETER = 1 << 20, 1 << 21, 1 << 22


@dataclass(frozen=True)
class SamplerOptions:
    """Settings of a sampler.

    Attributes
    ----------
    max_iter : int
        Sweeps of every chain.
    burn_in : int or None
        Sweeps at the start that are not kept; None means half of max_iter.
    thin : int or None
        Every thin-th draw is kept; None keeps about 100 draws of each chain, of large models down to 25, so that all of
        them take about 1 GB at most.
    n_chains : int
        The first chain starts at the start given, the others at draws from the prior. The posterior of a factorisation
        has many modes that one chain does not leave in any practical time, so that several chains predict better.
    """

    max_iter: int = 200
    burn_in: int | None = None
    thin: int | None = None
    n_chains: int = 4

    def __post_init__(self) -> None:
        check_int("max_iter", self.max_iter)
        check_int("n_chains", self.n_chains)
        if self.thin is not None:
            check_int("thin", self.thin)
        if self.burn_in is not None and check_int("burn_in", self.burn_in, 0) >= self.max_iter:
            fail_value(f"burn_in must be below max_iter={self.max_iter}; got {self.burn_in}; increase max_iter.")

    @property
    def first_kept(self) -> int:
        """Number of the first sweep whose draw may be kept, counted from 0."""
        return self.max_iter // 2 if self.burn_in is None else self.burn_in

    def spacing(self, numbers: int) -> int:
        """Sweeps from one kept draw to the next, where a draw of all chains holds so many numbers."""
        if self.thin is not None:
            return self.thin
        kept = min(KEPT_DRAWS, max(LEAST_DRAWS, DRAWS_BYTES // (8 * max(1, numbers))))
        return max(1, -(-(self.max_iter - self.first_kept) // kept))


class Chains(NamedTuple):
    """Chains of draws.

    Attributes
    ----------
    factors : (C, n_rows + 1, padded rank) float64
        Current rows, clamped columns included; the last one is zero, for padding.
    theta : (C, m) float64
        Current parameter of the likelihood.
    weight, target : (n + 1,) float64
        What entries say about their latent values (see `_gibbs_sweep`), room for one chain.
    blocks : tuple of RowBlocks, and columns : tuple of ModeColumns, one per mode
    small : Problem
        The problem in the free columns, whose prior the rows have.
    priors : tuple of RowPrior, one per chain
    kept : tuple of (C, n_rows, R), kept_theta : tuple of (C, m), and kept_unknown : tuple of (C, K, R)
        The last are rows of the present priors; none where these are not learned.
    sweeps : int
    """

    factors: np.ndarray
    theta: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    blocks: tuple[RowBlocks, ...]
    columns: tuple[ModeColumns, ...]
    small: Problem
    priors: tuple[RowPrior, ...]
    kept: tuple[np.ndarray, ...]
    kept_theta: tuple[np.ndarray, ...]
    kept_unknown: tuple[np.ndarray, ...]
    sweeps: int


def start_chains(problem: Problem, options: SamplerOptions, theta: np.ndarray) -> Chains:
    """Chains at their starts: the problem's, and draws from the prior; clamped columns at 1."""
    C, R, small = options.n_chains, problem.rank, free_problem(problem)
    free = np.ones((len(problem.shape), R), dtype=bool) if problem.free is None else problem.free
    clamped = ~np.repeat(free, problem.shape, axis=0)
    n_rows = len(problem.prior_eta)
    Lam = unpack(problem.prior_Lam, R)
    mean = np.linalg.solve(Lam, problem.prior_eta[..., None])[..., 0]
    factors = np.zeros((C, n_rows + 1, padded(R)))
    rng = np.random.default_rng([problem.seed, 1])
    root = np.linalg.cholesky(np.linalg.inv(Lam)) if n_rows else Lam
    for c in range(C):
        draw = mean + np.einsum("nij,nj->ni", root, rng.standard_normal((n_rows, R)))
        start = problem.start if c == 0 and problem.start is not None else draw
        factors[c, :n_rows, :R] = np.where(clamped, 1.0, start)
    n = problem.entries.y.size
    blocks = tuple(row_blocks(problem.entries, k) for k in range(len(problem.shape)))
    priors = tuple(initial_prior(small) for _ in range(C))
    return Chains(
        factors, theta, np.ones(n + 1), np.zeros(n + 1), blocks, mode_columns(free), small, priors, (), (), (), 0
    )


def stream_key(problem: Problem, chain: int, sweep: int, what: int) -> tuple[int, int, int]:
    """Seed, sweep and part of the streams of one step of one chain."""
    return problem.seed, sweep * (1 << 16) + chain, what


def draw_factors(
    chains: Chains,
    chain: int,
    problem: Problem,
    precision: float,
    weighted: bool,
    threads: Threads,
) -> float:
    """Draw the rows of every mode in turn; gives, without weights, the sum of (target - f)^2 at the new rows."""
    at, prior = layout(chains.small.rank, problem.rank, problem.free is not None), chains.priors[chain]
    fit = np.zeros(1)
    for k, blocks in enumerate(chains.blocks):
        fit = np.zeros(problem.shape[k])
        arguments = (
            blocks,
            chains.factors[chain],
            chains.columns[k],
            (chains.weight, chains.target, weighted),
            prior.Lam,
            prior.eta,
            precision,
            stream_key(problem, chain, chains.sweeps, k),
            fit,
        )

        def work(a: int, b: int, arguments: tuple = arguments) -> None:
            draw_rows(a, b, *arguments, new_stream(), lane_zeros((at.size, LANES)), at)

        threads.over(problem.shape[k], work, LANES)
    return float(fit.sum())


def draw_priors(chains: Chains) -> Chains:
    """Draw the rows' prior of every chain given its rows that have entries, where it is learned.

    Rows without entries are left out and drawn after it, from it.
    """
    small = chains.small
    if small.hyper is None:
        return chains
    priors = []
    for c, prior in enumerate(chains.priors):
        rows = []
        for k, (a, b) in enumerate(itertools.pairwise(offsets(small.shape))):
            rows.append(_free_values(chains.factors[c, a:b][prior.seen[a:b]], chains.columns[k]))
        rng = np.random.default_rng([small.seed, 4, chains.sweeps, c])
        if prior.modes is not None:
            prior = prior_of_rows(sampled_prior(small.hyper, prior.modes, rows, rng), small, prior.seen)
        priors.append(prior)
    return chains._replace(priors=tuple(priors))


def _free_values(rows: np.ndarray, columns: ModeColumns) -> np.ndarray:
    """The free columns of rows (n, padded rank), (n, R)."""
    used = columns.free < rows.shape[1]
    return rows[:, np.where(used, columns.free, 0)] * used


def keep(chains: Chains, problem: Problem, options: SamplerOptions) -> Chains:
    """Count the sweep, and keep its draw if it is due."""
    since = chains.sweeps - options.first_kept
    if since >= 0 and since % options.spacing(chains.factors.shape[0] * problem.prior_eta.size) == 0:
        chains = _with_current(chains, problem)
    return chains._replace(sweeps=chains.sweeps + 1)


def _with_current(chains: Chains, problem: Problem) -> Chains:
    draw = chains.factors[:, : len(problem.prior_eta), : problem.rank].copy()
    unknown = () if problem.hyper is None else (_unknown_rows(chains, problem),)
    return chains._replace(
        kept=(*chains.kept, draw),
        kept_theta=(*chains.kept_theta, chains.theta.copy()),
        kept_unknown=(*chains.kept_unknown, *unknown),
    )


def _unknown_rows(chains: Chains, problem: Problem) -> np.ndarray:
    """A draw of one more row of every mode from the present prior of each chain, (C, K, R).

    Moments over all draws would not do: signs and order of the components differ from chain to chain.
    """
    rows = np.ones((len(chains.priors), len(problem.shape), problem.rank))
    for c, prior in enumerate(chains.priors):
        rng = np.random.default_rng([problem.seed, 5, chains.sweeps, c])
        modes: Any = prior.modes
        roots = np.linalg.cholesky(np.linalg.inv(modes.precision))
        drawn = modes.mean + np.einsum("kij,kj->ki", roots, rng.standard_normal(modes.mean.shape))
        for k, columns in enumerate(chains.columns):
            mine = columns.free[columns.free < problem.rank]
            rows[c, k, mine] = drawn[k, : len(mine)]
    return rows


def collect(chains: Chains, problem: Problem, theta_mode: int | None, has_theta: bool) -> Draws:
    """The kept draws; those of the last sweep when a run was stopped before any was kept."""
    if not chains.kept:
        chains = _with_current(chains, problem)
    rows = np.stack(chains.kept, axis=1)
    theta = np.stack(chains.kept_theta, axis=1) if has_theta else None
    unknown = np.stack(chains.kept_unknown, axis=1) if chains.kept_unknown else None
    return Draws(problem.shape, problem.rank, rows, theta, theta_mode, seen_rows(problem), unknown)
