"""Running a method on relations: what an estimator asks for, checked before any work, and the run itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.blas import one_blas_thread
from tensorcep.core.checks import check_int, check_range, fail_value, warn_user
from tensorcep.core.executor import MOST_VERBOSE, n_threads
from tensorcep.core.loop import AnyMethod, Run, run
from tensorcep.factor_models.factorised import FACTORISED_ENGINE
from tensorcep.factor_models.gibbs import GIBBS_ENGINE, sampler_of
from tensorcep.factor_models.layout import Link
from tensorcep.factor_models.relations import RelationProblem
from tensorcep.factor_models.settings import Gibbs, settings_of
from tensorcep.factor_models.vb import VB_ENGINE

ENGINES: dict[str, AnyMethod] = {method.name: method for method in (FACTORISED_ENGINE, VB_ENGINE, GIBBS_ENGINE)}


class RunPlan(NamedTuple):
    """How a problem is going to be fitted."""

    method: AnyMethod
    settings: Any
    max_iter: int
    tol: float
    n_threads: int
    verbose: bool

    def fit(self, problem: RelationProblem) -> Run:
        """Run the method on a problem."""
        return fit_problem(
            self.method,
            problem,
            self.settings,
            max_iter=self.max_iter,
            tol=self.tol,
            n_threads=self.n_threads,
            verbose=self.verbose,
        )


def plan_run(estimator: Any) -> RunPlan:
    """What an estimator's parameters say of the run.

    Raises
    ------
    ValueError
        If one of them is not allowed.
    """
    settings = settings_of(estimator.method)
    max_iter = check_int("max_iter", estimator.max_iter)
    if isinstance(settings, Gibbs) and max_iter <= settings.burn_in:
        fail_value(f"max_iter must be above the burn-in of {settings.burn_in} sweeps; got {max_iter}.")
    shows = estimator.verbose
    shows = shows if isinstance(shows, bool) else check_int("verbose", shows, 0, MOST_VERBOSE)
    return RunPlan(
        method=ENGINES[settings.name],
        settings=settings,
        max_iter=max_iter,
        tol=check_range("tol", estimator.tol, 0.0),
        n_threads=n_threads(estimator.n_jobs),
        verbose=bool(shows),
    )


def check_links(plan: RunPlan, links: list[Link]) -> None:
    """Refuse matrices that the method has no sampler for."""
    for link in links:
        if plan.method.capabilities.sampler:
            sampler_of(link.kind)


def fit_problem(
    method: AnyMethod,
    problem: RelationProblem,
    settings: Any,
    *,
    max_iter: int,
    tol: float,
    n_threads: int = 1,
    callbacks: tuple[Callable[..., Any], ...] = (),
    verbose: bool = False,
    warn: bool = True,
) -> Run:
    """Run a method, BLAS on one thread so that its sums have one order; warn of a run that did not converge."""
    with one_blas_thread():
        result = run(
            method,
            problem,
            settings,
            max_iter=max_iter,
            tol=tol,
            n_threads=n_threads,
            callbacks=callbacks,
            verbose=verbose,
        )
    if warn and not method.capabilities.sampler and not result.converged and not result.stopped:
        last = result.trace["change"][-1]
        warn_user(
            f"{method.name} stopped after max_iter={max_iter} sweeps with a relative change of {last:.2g} > "
            f"tol={tol:g}; increase max_iter or raise tol.",
            ConvergenceWarning,
        )
    return result
