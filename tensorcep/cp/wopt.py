"""CP-WOPT: the factors that maximise the likelihood of the observed entries, by gradients (a point estimate).

The loss is minus the log likelihood, which is half the sum of squared residuals for real values and the logistic,
probit or Poisson loss otherwise, plus a penalty: by default that of the rows' prior, with which the factors are a
posterior mode, or a ridge. Value and gradient are compiled; scipy's L-BFGS-B descends.

Source: Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data, with weights 0 and 1;
their nonlinear conjugate gradients are replaced by L-BFGS-B, and they have no penalty (ridge=0).
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from tensorcep.core.executor import Executor, one_blas_thread
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.core.packing import pack, unpack
from tensorcep.cp import settings
from tensorcep.cp.model.entries import EntriesByRow, entries_by_row, sum_chunks
from tensorcep.cp.model.latent import PackedCells, cells_of, latent_of_cells, latent_of_entries, relative_change
from tensorcep.cp.model.parameters import kernel_arguments, parameters_of, shared_arguments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import log_likelihoods, refresh_rows, rows_at_prior, seen_rows, train_score
from tensorcep.cp.posterior import PointEstimate
from tensorcep.kernels.rows import packed_products
from tensorcep.likelihoods.parameters.base import EntryStats, Parameter, PrecisionStats
from tensorcep.priors.base import for_kernel, per_row

# The worst log likelihood of an entry, so that sums and squares stay finite and the line search takes a shorter step.
HUGE = 1e100


class Penalty(NamedTuple):
    """weight / 2 times the sum over rows u of (u - mean)' Lam (u - mean)."""

    weight: float
    mean: np.ndarray  # (n_rows, R) or (1, R)
    Lam: np.ndarray  # (n_rows, P), (K, P) or (1, P), packed
    diagonal: np.ndarray | None = None  # (n_rows, R) or (1, R), all of Lam, where it says no more


class WOPTState(NamedTuple):
    """The factors and what the search needs."""

    factors: np.ndarray  # (n_rows, R)
    free: np.ndarray  # (n_rows, R), those that are sought: free columns of rows with entries
    by_row: EntriesByRow
    cells: PackedCells
    penalty: Penalty
    # what the search divides loss and factors, (n_rows, R) or a number, by: it takes the same way in any units of y
    units: tuple[float, Any]
    f: np.ndarray  # (n_blocks, LANES), latent values of the entries
    parameters: tuple[Parameter[Any], ...]  # what is learned of the likelihood
    laws: tuple[Any, ...]  # of each, whose mean counts
    ended: bool = False  # whether the last sweep gained no more than what noise may


def init(problem: Problem, options: settings.WOPT, executor: Executor) -> WOPTState:
    """The starting means; rows without entries stay at the prior's."""
    rows = rows_at_prior(problem)
    refresh_rows(rows, 0, len(rows.good), executor)
    units: tuple[float, Any] = 1.0, 1.0  # variance of real values, deviations of the prior; with a ridge in numbers 1
    if isinstance(options.ridge, str):
        y, weights = (part[problem.entries.weight > 0] for part in (problem.entries.y, problem.weights))
        noise = 1.0 if problem.noise_prior is None or y.size == 0 else float(np.cov(y, aweights=weights, ddof=0))
        noise *= 1.0 if isinstance(options.prior_weight, str) else float(options.prior_weight)
        matrix = unpack(problem.prior.Lam, problem.rank)
        diagonal = np.einsum("nii->ni", matrix)
        is_full = np.count_nonzero(matrix) > np.count_nonzero(diagonal)
        each = None if is_full else per_row(diagonal, problem.shape)
        penalty = Penalty(noise, rows.mean.copy(), problem.prior.Lam, each)
        if problem.noise_prior is not None and noise > 0.0:
            units = noise, per_row(diagonal**-0.5, problem.shape)
    else:
        penalty = Penalty(float(options.ridge), np.zeros((1, problem.rank)), pack(np.eye(problem.rank)[None]))
    free = np.repeat(seen_rows(problem)[:, None], problem.rank, axis=1)
    factors = rows.mean
    if problem.start is not None:
        factors[free] = problem.start[free]
    if problem.free is not None:
        clamped = ~np.repeat(problem.free, problem.shape, axis=0)
        factors[clamped] = 1.0
        free &= ~clamped
    f = latent_of_entries(problem.entries, factors, executor)
    parameters = parameters_of(problem, None)
    laws = tuple(one.first_law() for one in parameters)
    if problem.noise_prior is not None:
        laws = _laws(parameters, laws, problem, f, executor)
    by_row, cells = entries_by_row(problem.entries), cells_of(problem.entries, problem.rank)
    return WOPTState(factors, free, by_row, cells, penalty, units, f, parameters, laws)


def _laws(
    parameters: tuple[Parameter[Any], ...], laws: tuple[Any, ...], problem: Problem, f: np.ndarray, executor: Executor
) -> tuple[Any, ...]:
    """The laws of what is learned of the likelihood given the factors."""
    entries, rest, weights = problem.entries, problem.entries.y - f, problem.weights
    squares = PrecisionStats(float(weights.sum()), float(np.einsum("bl,bl,bl->", weights, rest, rest)))
    stats = EntryStats(
        y=entries.y,
        used=entries.weight,
        f=f,
        n=len(entries.permutation),
        theta=lambda: kernel_arguments(parameters, laws, problem)[1],
        executor=executor,
        marginals=lambda place: (f.ravel()[place], np.zeros_like(f.ravel()[place])),
    )
    pairs = zip(parameters, laws, strict=True)
    return tuple(one.expect(law, squares if one.is_precision else stats) for one, law in pairs)


def loss_and_gradient(
    factors: np.ndarray, state: WOPTState, problem: Problem, executor: Executor, theta: float = 1.0
) -> tuple[float, np.ndarray]:
    """Minus the log likelihood, of real values half the squares left, plus the penalty; its gradient (n_rows, R)."""
    f, penalty = latent_of_cells(state.cells, problem.entries, factors, executor), state.penalty
    if problem.likelihood.is_gaussian and theta == 1.0 and not len(problem.entries.theta):
        slope = problem.entries.y - f
        value = -0.5 * slope * slope  # no constant, in which small squares would be lost
    else:
        value, slope, _ = log_likelihoods(problem, f, theta, executor)
    value = np.where(value > -HUGE, value, -HUGE)  # of nan too
    down = -np.nan_to_num(np.clip(slope, -HUGE, HUGE)).ravel()
    if problem.power is not None:
        value, down = problem.power * value, problem.power.ravel() * down
    gradient, pull = np.empty_like(factors), np.empty_like(factors)
    width, record = factors.shape[1], ((down, factors, gradient),)
    for chunks in state.by_row.chunks:
        executor.run(sum_chunks, 0, len(chunks) - 1, chunks, state.by_row, record, scratch=lambda: (np.empty(width),))
    apart = factors - penalty.mean
    if penalty.diagonal is not None:
        np.multiply(apart, penalty.diagonal, out=pull)
    else:
        for k, (a, b) in enumerate(itertools.pairwise(problem.entries.offsets.tolist())):
            executor.run(packed_products, a, b, for_kernel(penalty.Lam, k, problem.shape), apart, pull)
    gradient += penalty.weight * pull
    return -float(value.sum()) + 0.5 * penalty.weight * float((apart * pull).sum()), gradient


def step(state: WOPTState, problem: Problem, options: settings.WOPT, executor: Executor) -> tuple[WOPTState, Sweep]:
    """A run of L-BFGS-B from where the last one ended; no move after one that gained no more than noise may."""
    factors, free, gain = state.factors.copy(), state.free, 0.0
    unit, units = state.units[0], np.broadcast_to(state.units[1], free.shape)[free]
    gaussian, (theta, _) = problem.noise_prior is not None, shared_arguments(state.parameters, state.laws)
    theta = problem.likelihood.default_theta if gaussian else theta
    losses: list[float] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        factors[free] = x * units
        loss, gradient = loss_and_gradient(factors, state, problem, executor, theta)
        losses.append(loss)
        return loss / unit, gradient[free] * (units / unit)

    if free.any() and not state.ended:
        limits: dict[str, Any] = {"maxiter": options.iterations, "maxcor": options.memory, "ftol": 0.0, "gtol": 0.0}
        limits["maxfun"] = 20 * options.iterations
        # L-BFGS-B's own algebra is on short vectors: more threads cost many times their gain, and change the result
        with one_blas_thread():
            at = factors[free] / units
            found = minimize(objective, at, jac=True, method="L-BFGS-B", options=limits)
            gain = losses[0] - unit * float(found.fun)
        factors[free] = found.x * units
    f = latent_of_entries(problem.entries, factors, executor)
    laws = _laws(state.parameters, state.laws, problem, f, executor)
    theta, _ = shared_arguments(state.parameters, laws)
    gain *= theta if gaussian else 1.0
    # the log likelihood that n free numbers gain on noise alone is half a chi-square of n
    least = options.least_gain * np.sqrt(0.5 * np.count_nonzero(free))
    change, noise = relative_change(f, state.f, problem.power), theta if gaussian else np.nan
    sweep = Sweep(change=change, noise_precision=noise, train_score=train_score(problem, f, theta))
    return state._replace(factors=factors, f=f, laws=laws, ended=not gain >= least), sweep


def finish(state: WOPTState, problem: Problem) -> PointEstimate:
    """The factors, and the noise precision or the dispersion that goes with them."""
    learned = any(one.learned for one in state.parameters)
    theta = shared_arguments(state.parameters, state.laws)[0] if learned else None
    return PointEstimate(problem.shape, problem.rank, state.factors, theta, seen_rows(problem))


WOPT = Method(
    name="wopt",
    needs=("loglik",),
    options=settings.WOPT,
    init=init,
    step=step,
    finish=finish,
    source="Acar et al. (2011), Scalable tensor factorizations for incomplete data",
    capabilities=Capabilities(point_estimate=True),
)
