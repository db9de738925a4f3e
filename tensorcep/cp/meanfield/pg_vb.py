"""Variational inference by Polya-Gamma augmentation: labels with the logit link, negative-binomial counts.

q = prod over rows of Gaussians x prod over entries of q(omega) x Gamma q(r). The optimal q(omega) = PG(count, xi) with
xi^2 = E[f^2] turns the bound into the one of Jaakkola and Jordan; every update increases it, and it is reported after
every sweep.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 3-4. Where we differ: any order; full
R x R covariances; for counts the bound is kept exact with a random r: E[r] stands where the paper takes
q(omega) = PG(y + <r>, .) (an approximation there), as the tangent at xi bounds the likelihood for every r.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from tensorcep.core.belief import Dispersion, Posterior
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import unpack
from tensorcep.cp.dispersion import (
    DISPERSION_START,
    Groups,
    check_dispersion_mode,
    groups_of,
    has_dispersion,
)
from tensorcep.cp.meanfield.pg_vb_sweep import Beliefs, entry_moments, layout, update_rows, widths
from tensorcep.cp.meanfield.row_blocks import RowBlocks, row_blocks
from tensorcep.cp.problem import Problem
from tensorcep.cp.row_prior import PriorFactor, first_prior, learned_from_rows, rows_bound
from tensorcep.cp.rows import RowState, refresh_rows, relative_change, rows_at_prior, seen_rows, train_score
from tensorcep.cp.settings import meanfield
from tensorcep.kernels.slots import LANES, lane_zeros

PGVBOptions = meanfield.PGVB

# Rounds of the updates of tables and dispersion in a sweep: they cost little and would hold up the factors.
DISPERSION_ROUNDS = 10


class PGVBState(NamedTuple):
    """State of PG-VB.

    Attributes
    ----------
    rows : RowState
    q : Beliefs
    blocks : tuple of RowBlocks, one per mode
    f, xi : (n_blocks, LANES)
        E[f] and sqrt(E[f^2]) of the entries.
    prior : PriorFactor
    groups : Groups
        Which entries share a dispersion.
    a, b : (m,)
        Gamma posteriors of the dispersions (of no meaning for labels).
    counts : tuple of three arrays
        The distinct pairs of a group and a count, and how many entries have each.
    sweeps : int
    """

    rows: RowState
    q: Beliefs
    blocks: tuple[RowBlocks, ...]
    f: np.ndarray
    xi: np.ndarray
    prior: PriorFactor
    groups: Groups
    a: np.ndarray
    b: np.ndarray
    counts: tuple[np.ndarray, np.ndarray, np.ndarray]
    sweeps: int


def init(problem: Problem, options: PGVBOptions, executor: Executor) -> PGVBState:
    """Rows at the starting means with the prior's covariance; the dispersion at DISPERSION_START."""
    check_dispersion_mode(options.dispersion_mode, problem)
    entries, R = problem.entries, problem.rank
    rows = rows_at_prior(problem)
    refresh_rows(rows, 0, len(rows.good), executor)
    prior = first_prior(problem, rows)
    if problem.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, R), problem.start)
        refresh_rows(rows, 0, len(rows.good), executor)
    narrow, wide = widths(R)
    n = len(rows.good)
    q = Beliefs(np.zeros((n + 1, narrow)), np.zeros((n + 1, wide)))
    q.mean[:n, :R] = rows.mean
    i, j = np.tril_indices(R)
    q.second[:n, : len(i)] = rows.cov + rows.mean[:, i] * rows.mean[:, j]
    groups = groups_of(problem, options.dispersion_mode if has_dispersion(problem) else None)
    used = entries.weight > 0
    pairs, multiplicity = np.unique(np.stack([groups.of_entry[used], entries.y[used]]), axis=1, return_counts=True)
    counts = (pairs[0].astype(np.int64), pairs[1], multiplicity.astype(float))
    blocks = tuple(row_blocks(entries, k) for k in range(len(problem.shape)))
    shape = options.dispersion_prior[0]
    a, b = np.full(groups.size, shape), np.full(groups.size, shape / DISPERSION_START)
    f = np.zeros(entries.y.shape)
    state = PGVBState(rows, q, blocks, f, np.zeros_like(f), prior, groups, a, b, counts, 0)
    _refresh_entries(state, problem, executor)
    return state


def _theta(state: PGVBState, problem: Problem) -> np.ndarray:
    """E[r] of every entry, or the likelihood's own parameter."""
    if not has_dispersion(problem):
        return np.full(state.f.shape, problem.likelihood.default_theta)
    return (state.a / state.b)[state.groups.of_entry]


def _augmented(state: PGVBState, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """kappa and the count b of omega ~ PG(b, .) of every entry, 0 in padding lanes."""
    entries, pg, theta = problem.entries, problem.likelihood.pg, _theta(state, problem)
    kappa = pg.kappa(entries.y, theta) * entries.weight  # type: ignore[union-attr]
    return kappa, pg.trials(entries.y, theta) * entries.weight  # type: ignore[union-attr]


def _refresh_entries(state: PGVBState, problem: Problem, executor: Executor) -> None:
    at, R = layout(problem.rank), problem.rank
    rows = problem.entries.rows

    def work(a: int, b: int) -> None:
        entry_moments(a, b, rows, state.q, state.f, state.xi, lane_zeros((at.size, LANES)), at, R)

    executor.over(len(rows), work)
    state.f[problem.entries.weight == 0.0] = 0.0


def step(state: PGVBState, problem: Problem, options: PGVBOptions, executor: Executor) -> tuple[PGVBState, Sweep]:
    """One sweep: the rows of every mode, each with fresh q(omega), then the dispersion."""
    at = layout(problem.rank)
    annealed = state.sweeps < options.anneal
    power = options.anneal_power if annealed else 1.0
    if not annealed:
        state = state._replace(prior=learned_from_rows(state.prior, problem, state.rows))
    prior = state.prior.now
    kappa, count = (np.append(part.ravel(), 0.0) for part in _augmented(state, problem))
    for blocks, size in zip(state.blocks, problem.shape, strict=True):

        def work(a: int, b: int, blocks: RowBlocks = blocks) -> None:
            update_rows(
                a,
                b,
                blocks,
                state.q,
                count,
                kappa,
                prior.Lam,
                prior.eta,
                power,
                state.rows.Lam,
                state.rows.eta,
                lane_zeros((at.size, LANES)),
                at,
            )

        executor.over(size, work, LANES)
    refresh_rows(state.rows, 0, len(state.rows.good), executor)
    old = state.f.copy()
    _refresh_entries(state, problem, executor)
    state = state._replace(sweeps=state.sweeps + 1)
    log_two_cosh = 0.5 * state.xi + np.log1p(np.exp(-state.xi))
    if has_dispersion(problem):
        a, b = _dispersion(state, problem, options, log_two_cosh)
        state = state._replace(a=a, b=b)
    sweep = Sweep(
        change=relative_change(state.f, old),
        noise_precision=np.nan,
        skipped=0,
        shrunk=0,
        train_score=train_score(problem, state.f, _theta(state, problem)),
        lower_bound=np.nan if annealed else lower_bound(state, problem, options, log_two_cosh, executor),
    )
    return state, sweep


def _dispersion(
    state: PGVBState, problem: Problem, options: PGVBOptions, log_two_cosh: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gamma posteriors of the dispersions, with the tables' means at exp(E[log r])."""
    group, y, multiplicity = state.counts
    a0, b0 = options.dispersion_prior
    a, b = state.a, b0 + state.groups.totals(problem.entries.weight * (0.5 * state.f + log_two_cosh))
    for _ in range(DISPERSION_ROUNDS):
        r = np.exp(digamma(a) - np.log(b))[group]
        tables = multiplicity * r * (digamma(r + y) - digamma(r))
        a = a0 + np.bincount(group, weights=tables, minlength=state.groups.size)
    return a, b


def lower_bound(
    state: PGVBState, problem: Problem, options: PGVBOptions, log_two_cosh: np.ndarray, executor: Executor
) -> float:
    """The bound of the log evidence at the optimal q(omega): sum E[log p] - KL of rows - KL of dispersions."""
    kappa, count = _augmented(state, problem)
    total = float((kappa * state.f - count * log_two_cosh).sum())
    total += rows_bound(state.prior, state.rows, executor)
    if has_dispersion(problem):
        group, y, multiplicity = state.counts
        (a0, b0), a, b = options.dispersion_prior, state.a, state.b
        r = np.exp(digamma(a) - np.log(b))[group]
        total += float((multiplicity * (gammaln(y + r) - gammaln(r) - gammaln(y + 1.0))).sum())
        kl = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * np.log(b / b0) + a * (b0 - b) / b
        total -= float(kl.sum())
    return total


def finish(state: PGVBState, problem: Problem) -> Posterior:
    """The Gaussian q of the rows, and the Gamma q of the dispersions."""
    dispersion = Dispersion(state.groups.mode, state.a, state.b) if has_dispersion(problem) else None
    rows, seen = state.rows, seen_rows(problem)
    modes = state.prior.now.modes
    return Posterior(problem.shape, problem.rank, rows.Lam, rows.eta, None, seen, dispersion, modes)


PG_VB = Method(
    name="pg-vb",
    needs=("pg",),
    options=PGVBOptions,
    init=init,
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4",
    trial_sweeps=lambda options: options.anneal,
    learns_prior=True,
    mixes=True,
)
