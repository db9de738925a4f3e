"""Variational message passing (VMP) for the CP model: mean-field coordinate ascent, one R x R block per row.

With q(u) a Gaussian for every row and q(tau) a Gamma, the optimal precision of a row is its prior's plus E[tau] times
the sum over its entries of Z2, the elementwise product of the other modes' second moments; its natural mean is the
prior's plus E[tau] times the sum of y z, z the product of the other modes' means. Modes are updated in turn, and the
noise after each. A learned prior is a factor of q too (`tensorcep.cp.row_prior`), updated before the rows in
every sweep that is not annealed. The lower bound of the log evidence cannot fall.

Labels have a probit likelihood: y says the sign of an auxiliary t ~ N(f, 1), whose factor q(t) is a truncated normal.
So has a value that is censored at a limit: t ~ N(f, 1 / tau) is not above 0.

Source: the batch VMP that the CEP paper (Wang and Zhe, sec. 6) compares with, for the same model and priors;
Albert and Chib (1993) for the auxiliary variables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import offsets
from tensorcep.cp.free_columns import all_columns, free_problem, latent_at
from tensorcep.cp.limits import censored_lanes
from tensorcep.cp.meanfield.vmp_columns import Columns, Order, columns_of
from tensorcep.cp.model import EntriesByRow, entries_by_row, sum_products
from tensorcep.cp.problem import Problem
from tensorcep.cp.row_prior import PriorFactor, first_prior, learned_from_rows, rows_bound
from tensorcep.cp.rows import (
    RowState,
    diagonal,
    latent_of_entries,
    log_likelihoods,
    refresh_rows,
    relative_change,
    rows_at_prior,
    seen_rows,
    train_score,
)
from tensorcep.cp.settings import meanfield
from tensorcep.kernels.rows import arrange, second_moments
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import normal_cdf_parts

VMPOptions = meanfield.VMP


class VMPState(NamedTuple):
    """Rows and what follows from them; rows have the free columns alone, Q of them.

    Attributes
    ----------
    small : Problem
        The problem in the free columns.
    columns : Columns or None
        None where no column is clamped.
    rows : RowState
    numbers : (n_rows, P), or (n_rows, P + Q + 1) with clamped columns
        Second moments of the rows; their means, and 1.
    by_row : EntriesByRow
    sum_Z2, sum_yz : (n_rows, W), (n_rows, Q + C)
        Sums over the entries of a row, as of its last update (see `vmp_columns`; W = P and C = 0 for the CP model).
    square : float
        E[sum of f^2] over the entries.
    target : (n_blocks, LANES)
        What the latent value is fitted to: y, or the mean of the auxiliary t.
    f : (n_blocks, LANES)
        Products of the row means.
    loglik : (n_blocks, LANES)
        Log likelihood of the labels at f; of a censored value the entropy of q(t) (zeros for other real values).
    spread : (n_blocks, LANES)
        Variance of q(t) of censored values (no blocks without those).
    noise : (a, b) of the noise posterior; (1, 1) for labels
    sweeps : int
    prior : PriorFactor
    """

    small: Problem
    columns: Columns | None
    rows: RowState
    numbers: np.ndarray
    by_row: EntriesByRow
    sum_Z2: np.ndarray
    sum_yz: np.ndarray
    square: float
    target: np.ndarray
    f: np.ndarray
    loglik: np.ndarray
    spread: np.ndarray
    noise: tuple[float, float]
    sweeps: int
    prior: PriorFactor


def init(problem: Problem, options: VMPOptions, executor: Executor) -> VMPState:
    """Rows at the starting means with the prior's covariances; the noise at its prior; t at the labels."""
    entries, small = problem.entries, free_problem(problem)
    columns = None if problem.free is None else columns_of(problem.free)
    rows = rows_at_prior(small)
    n_rows = len(rows.good)
    refresh_rows(rows, 0, n_rows, executor)
    prior = first_prior(small, rows)
    if small.start is not None:
        rows.mean[:] = small.start
    P, Q, C = rows.cov.shape[1], small.rank, 0 if columns is None else columns.n_clamped
    state = VMPState(
        small=small,
        columns=columns,
        rows=rows,
        numbers=np.ones((n_rows, P if columns is None else P + Q + 1)),
        by_row=entries_by_row(entries),
        sum_Z2=np.zeros((n_rows, P + Q * C)),
        sum_yz=np.zeros((n_rows, Q + C)),
        square=0.0,
        target=entries.y.copy(),
        f=np.empty(0),
        loglik=np.zeros_like(entries.y),
        spread=np.zeros_like(entries.y) if censored_lanes(problem).any() else np.zeros((0, LANES)),
        noise=(1.0, 1.0) if problem.noise_prior is None else (problem.noise_prior.a, problem.noise_prior.b),
        sweeps=0,
        prior=prior,
    )
    _refresh_numbers(0, n_rows, state)
    if columns is not None:
        state = state._replace(square=_first_square(state, columns, problem, executor))
    return state._replace(f=_latent(state, problem, executor))


def _latent(state: VMPState, problem: Problem, executor: Executor) -> np.ndarray:
    """The latent values at the row means."""
    mean, entries, columns = state.rows.mean, problem.entries, state.columns
    if columns is None:
        return latent_of_entries(entries, mean, executor)
    return latent_at(entries, mean, columns.groups, executor)


def step(state: VMPState, problem: Problem, options: VMPOptions, executor: Executor) -> tuple[VMPState, Sweep]:
    """One sweep: every mode once, and the noise or the auxiliary variables after each."""
    prior, noise, f = problem.noise_prior, state.noise, state.f
    annealed, old = state.sweeps < options.anneal, state.f
    if not annealed:
        state = state._replace(prior=learned_from_rows(state.prior, state.small, state.rows))
    power = options.anneal_power if annealed else 1.0
    for k in range(len(problem.shape)):
        state = _update_mode(k, state, power * noise[0] / noise[1], problem, executor)
        if prior is not None:
            if state.spread.size:
                f = _latent(state, problem, executor)
                _update_censored(f, noise[0] / noise[1], state, problem)
            noise = _noise(k, f, state, problem, prior)
        else:
            f = _latent(state, problem, executor)
            _update_auxiliary(f, state, problem, executor)
    if prior is not None:
        f = _latent(state, problem, executor)
    precision = noise[0] / noise[1]
    sweep = Sweep(
        change=relative_change(f, old),
        noise_precision=precision if prior is not None else np.nan,
        skipped=0,
        shrunk=0,
        train_score=train_score(problem, f, precision),
        lower_bound=np.nan if annealed else _lower_bound(state, noise, f, problem, executor),
    )
    return state._replace(noise=noise, f=f, sweeps=state.sweeps + 1), sweep


def _update_mode(k: int, state: VMPState, precision: float, problem: Problem, executor: Executor) -> VMPState:
    """The optimal q of every row of mode k."""
    rows, chunks, width = state.rows, state.by_row.chunks[k], state.sum_Z2.shape[1]
    ones, target = problem.entries.weight.ravel(), state.target.ravel()
    seconds, means = state.numbers, rows.mean
    if state.columns is not None:
        seconds = _arranged(k, state.columns.products, state.numbers, problem, executor)
        means = _arranged(k, state.columns.means, state.numbers, problem, executor)

    def add(a: int, b: int) -> None:
        scratch = np.empty(width)
        sum_products(chunks[a], chunks[b], state.by_row, ones, seconds, state.sum_Z2, scratch)
        sum_products(chunks[a], chunks[b], state.by_row, target, means, state.sum_yz, scratch)

    executor.over(len(chunks) - 1, add)
    first, last = int(chunks[0]), int(chunks[-1])
    mine, (P, Q) = slice(first, last), (rows.Lam.shape[1], rows.eta.shape[1])
    # what the square owes to the columns that are clamped in this mode stays
    offset = _offsets(mine, state)
    rest = 0.0 if offset is None else state.square - _square_of_rows(mine, offset, state)
    rows.Lam[mine] = state.prior.now.Lam[mine] + precision * state.sum_Z2[mine, :P]
    linear = state.sum_yz[mine, :Q] if offset is None else state.sum_yz[mine, :Q] - offset
    rows.eta[mine] = state.prior.now.eta[mine] + precision * linear
    refresh_rows(rows, first, last, executor)
    _refresh_numbers(first, last, state)
    return state._replace(square=rest + _square_of_rows(mine, offset, state))


def _arranged(k: int, order: Order, numbers: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The numbers of the rows of the other modes in the order of the elements of mode k."""
    first = offsets(problem.shape)
    others = [j for j in range(len(problem.shape)) if j != k]
    found = np.empty((len(numbers), len(order[k, others[0]])))
    for j in others:

        def work(a: int, b: int, j: int = j) -> None:
            arrange(first[j] + a, first[j] + b, numbers, order[k, j], found)

        executor.over(problem.shape[j], work)
    return found


def _refresh_numbers(first: int, last: int, state: VMPState) -> None:
    """Second moments, and means, of the packed rows first:last."""
    rows, P = state.rows, state.rows.cov.shape[1]
    second_moments(first, last, rows.mean, rows.cov, state.numbers)
    if state.columns is not None:
        state.numbers[first:last, P:-1] = rows.mean[first:last]


def _offsets(mine: slice, state: VMPState) -> np.ndarray | None:
    """Sums over the entries of E[z c], (n, Q); None where no column is clamped."""
    if state.columns is None:
        return None
    P, Q = state.rows.Lam.shape[1], state.rows.eta.shape[1]
    return state.sum_Z2[mine, P:].reshape(-1, state.columns.n_clamped, Q).sum(axis=1)


def _square_of_rows(mine: slice, offset: np.ndarray | None, state: VMPState) -> float:
    """E[sum of f^2] over the entries but for c^2, from the sums of the rows."""
    P, Q = state.rows.Lam.shape[1], state.rows.eta.shape[1]
    twice = np.full(P, 2.0)  # the strictly lower part stands for both
    twice[diagonal(Q)] = 1.0
    square = np.einsum("ip,ip->p", state.numbers[mine, :P], state.sum_Z2[mine, :P]) @ twice
    return float(square if offset is None else square + 2.0 * np.einsum("iq,iq->", state.rows.mean[mine], offset))


def _first_square(state: VMPState, columns: Columns, problem: Problem, executor: Executor) -> float:
    """E[sum of f^2] over the entries from all elements of the first mode."""
    chunks, ones = state.by_row.chunks[0], problem.entries.weight.ravel()
    sums = []
    for order in (columns.products, columns.squares):
        source = _arranged(0, order, state.numbers, problem, executor)
        out, scratch = np.zeros((len(source), source.shape[1])), np.empty(source.shape[1])
        sum_products(chunks[0], chunks[-1], state.by_row, ones, source, out, scratch)
        sums.append(out)
    state = state._replace(sum_Z2=sums[0])
    twice = np.full(sums[1].shape[1], 2.0)
    twice[diagonal(columns.n_clamped)] = 1.0
    mine = slice(chunks[0], chunks[-1])
    return _square_of_rows(mine, _offsets(mine, state), state) + float((sums[1] @ twice).sum())


def _noise(k: int, f: np.ndarray, state: VMPState, problem: Problem, prior: GammaNoise) -> tuple[float, float]:
    """(a, b) of the optimal q(tau), by the sums of mode k, which was updated last; f serves censored values alone."""
    mine = slice(state.by_row.chunks[k][0], state.by_row.chunks[k][-1])
    y, n, Q = state.target, len(problem.entries.permutation), state.rows.mean.shape[1]
    if state.spread.size:  # whose targets have changed since the sums were taken
        cross = float(np.einsum("bl,bl->", y, f)) - 0.5 * float(state.spread.sum())
    else:
        cross = float(np.einsum("ir,ir->", state.rows.mean[mine], state.sum_yz[mine, :Q]))
        cross += float(state.sum_yz[mine, Q:].sum())
    squares = float(np.einsum("bl,bl->", y, y)) - 2.0 * cross + state.square
    return prior.a + 0.5 * n, prior.b + 0.5 * max(0.0, squares)


def _update_auxiliary(f: np.ndarray, state: VMPState, problem: Problem, executor: Executor) -> None:
    """E[t] = f + d log Phi(y f) / df of the truncated normal q(t), and log Phi(y f)."""
    value, slope, _ = log_likelihoods(problem, f, 1.0, executor)
    np.add(f, slope, out=state.target)
    state.loglik[:] = value


def _update_censored(f: np.ndarray, tau: float, state: VMPState, problem: Problem) -> None:
    """Mean, variance and entropy of the truncated normal q(t): N(f, 1 / tau) given that t <= 0."""
    censored = censored_lanes(problem)
    z = -f[censored] * math.sqrt(tau)
    log_mass, ratio, shifted = np.empty_like(z), np.empty_like(z), z.copy()
    normal_cdf_parts(shifted, log_mass, ratio)
    state.target[censored] = f[censored] - ratio / math.sqrt(tau)
    state.spread[censored] = (1.0 - ratio * shifted) / tau
    state.loglik[censored] = log_mass + 0.5 * (math.log(2.0 * math.pi / tau) + 1.0 - ratio * z)


def _lower_bound(
    state: VMPState, noise: tuple[float, float], f: np.ndarray, problem: Problem, executor: Executor
) -> float:
    """The evidence lower bound where q(tau) or q(t) is optimal given the rows.

    Real values: log normaliser of q(tau) minus that of its prior, minus N log(2 pi) / 2, plus the entropies of the q(t)
    of censored ones. Labels: the sum of log Phi(y E[f]) - Var[f] / 2. Both minus the divergences of the rows, and of a
    learned prior, from their priors.
    """
    rest = rows_bound(state.prior, state.rows, executor)
    if problem.noise_prior is None:
        variance = state.square - float(np.einsum("bl,bl->", f, f))
        return rest + float(state.loglik.sum()) - 0.5 * variance
    (a0, b0), (a, b), n = problem.noise_prior, noise, len(problem.entries.permutation)
    gamma = a0 * math.log(b0) - a * math.log(b) + math.lgamma(a) - math.lgamma(a0)
    return rest + gamma - 0.5 * n * math.log(2.0 * math.pi) + float(state.loglik.sum())


def finish(state: VMPState, problem: Problem) -> Posterior:
    """The posterior q of rows and noise."""
    noise = GammaNoise(*state.noise) if problem.noise_prior is not None else None
    rows, seen, modes = state.rows, seen_rows(problem), state.prior.now.modes
    posterior = Posterior(problem.shape, state.small.rank, rows.Lam, rows.eta, noise, seen, mode_prior=modes)
    return posterior if problem.free is None else all_columns(posterior, problem.free)


VMP = Method(
    name="vmp",
    needs=("loglik",),
    options=VMPOptions,
    init=init,
    step=step,
    finish=finish,
    source="Wang & Zhe, Conditional Expectation Propagation, sec. 6; Albert & Chib (1993)",
    likelihoods=("gaussian", "tobit", "probit"),
    trial_sweeps=lambda options: options.anneal,
    learns_prior=True,
    takes_limits=True,
    mixes=True,
)
