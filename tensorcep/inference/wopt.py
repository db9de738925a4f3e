"""CP-WOPT: the factors that maximise the likelihood of the observed entries, by gradients (a point estimate).

The loss is minus the log likelihood, which is half the sum of squared residuals for real values and the logistic,
probit or Poisson loss otherwise, plus an optional ridge. Value and gradient are compiled; scipy's L-BFGS-B descends.

Source: Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data, with weights 0 and 1;
their nonlinear conjugate gradients are replaced by L-BFGS-B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from tensorcep._checks import check_int, check_range
from tensorcep.inference._rows import (
    latent_of_entries,
    log_likelihoods,
    refresh_rows,
    relative_change,
    rows_at_prior,
    seen_rows,
    train_score,
)
from tensorcep.inference._run import Method, Problem, Sweep, Threads
from tensorcep.models.cp import EntriesByRow, entries_by_row, sum_products
from tensorcep.posterior import PointEstimate

# The worst log likelihood of an entry, so that sums and squares stay finite and the line search takes a shorter step.
HUGE = 1e100


@dataclass(frozen=True)
class WOPTOptions:
    """Settings of CP-WOPT.

    Attributes
    ----------
    ridge : float
        Penalty: the loss grows by ridge / 2 times the sum of squares of the factors, which keeps them finite where the
        entries alone do not (labels that the model can separate, more parameters than entries).
    iterations : int
        L-BFGS-B iterations that one sweep stands for. The search forgets the curvature between sweeps.
    memory : int
        Steps from which L-BFGS-B knows the curvature.
    """

    ridge: float = 0.0
    iterations: int = 20
    memory: int = 10

    def __post_init__(self) -> None:
        check_range("ridge", self.ridge, 0.0)
        check_int("iterations", self.iterations)
        check_int("memory", self.memory)


class WOPTState(NamedTuple):
    """The factors (n_rows, R), entries sorted by row, which rows have entries, latent values, and noise precision."""

    factors: np.ndarray
    by_row: EntriesByRow
    seen: np.ndarray
    f: np.ndarray
    theta: float


def init(problem: Problem, options: WOPTOptions, threads: Threads) -> WOPTState:
    """The starting means; rows without entries stay at the prior's."""
    rows = rows_at_prior(problem)
    refresh_rows(rows, 0, len(rows.good), threads)
    seen = seen_rows(problem)
    factors = rows.mean
    if problem.start is not None:
        factors[seen] = problem.start[seen]
    f = latent_of_entries(problem.entries, factors, threads)
    return WOPTState(factors, entries_by_row(problem.entries), seen, f, _precision(problem, f))


def _precision(problem: Problem, f: np.ndarray) -> float:
    """The mean of the noise precision given the factors; the likelihood's parameter where there is no such noise."""
    if problem.noise_prior is None:
        return problem.likelihood.default_theta
    (a, b), n = problem.noise_prior, len(problem.entries.permutation)
    return (a + 0.5 * n) / (b + 0.5 * float(np.einsum("bl,bl->", problem.entries.y - f, problem.entries.y - f)))


def loss_and_gradient(
    factors: np.ndarray, by_row: EntriesByRow, ridge: float, problem: Problem, threads: Threads
) -> tuple[float, np.ndarray]:
    """Minus the log likelihood at noise precision 1, plus the ridge, and its gradient (n_rows, R)."""
    f = latent_of_entries(problem.entries, factors, threads)
    value, slope, _ = log_likelihoods(problem, f, problem.likelihood.default_theta, threads)
    value = np.where(value > -HUGE, value, -HUGE)  # of nan too
    down = -np.nan_to_num(np.clip(slope, -HUGE, HUGE)).ravel()
    gradient = np.empty_like(factors)
    for chunks in by_row.chunks:

        def add(a: int, b: int, chunks: np.ndarray = chunks) -> None:
            scratch = np.empty(factors.shape[1])
            sum_products(chunks[a], chunks[b], by_row, down, factors, gradient, scratch)

        threads.over(len(chunks) - 1, add)
    gradient += ridge * factors
    return -float(value.sum()) + 0.5 * ridge * float((factors * factors).sum()), gradient


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


def step(state: WOPTState, problem: Problem, options: WOPTOptions, threads: Threads) -> tuple[WOPTState, Sweep]:
    """A run of L-BFGS-B from where the last one ended."""
    factors, seen = state.factors.copy(), state.seen

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        factors[seen] = x.reshape(-1, problem.rank)
        loss, gradient = loss_and_gradient(factors, state.by_row, options.ridge, problem, threads)
        return loss, gradient[seen].ravel()

    if seen.any():
        limits: dict[str, Any] = {"maxiter": options.iterations, "maxcor": options.memory, "ftol": 0.0, "gtol": 0.0}
        limits["maxfun"] = 20 * options.iterations
        # L-BFGS-B's own algebra is on short vectors: more threads cost many times what they save, and change the result
        with _pools().limit(limits=1, user_api="blas"):
            best = minimize(objective, factors[seen].ravel(), jac=True, method="L-BFGS-B", options=limits).x
        factors[seen] = best.reshape(-1, problem.rank)
    f = latent_of_entries(problem.entries, factors, threads)
    theta = _precision(problem, f)
    sweep = Sweep(
        change=relative_change(f, state.f),
        noise_precision=theta if problem.noise_prior is not None else np.nan,
        skipped=0,
        shrunk=0,
        train_score=train_score(problem, f, theta),
    )
    return state._replace(factors=factors, f=f, theta=theta), sweep


def finish(state: WOPTState, problem: Problem) -> PointEstimate:
    """The factors, and the noise precision that goes with them."""
    theta = state.theta if problem.noise_prior is not None else None
    return PointEstimate(problem.shape, problem.rank, state.factors, theta, state.seen)


WOPT = Method(
    name="wopt",
    needs=("loglik",),
    options=WOPTOptions,
    init=init,
    step=step,
    finish=finish,
    source="Acar et al. (2011), Scalable tensor factorizations for incomplete data",
)
