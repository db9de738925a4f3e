"""Methods for generalised linear models by their settings, behind one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorcep.core.blas import one_blas_thread
from tensorcep.core.checks import fail_value
from tensorcep.core.loop import AnyMethod, Run, run
from tensorcep.linear.data import GLMProblem
from tensorcep.linear.factorised import CEP1, CEP2, EP_FACTORIZED, LP
from tensorcep.linear.full import fit_ep, fit_is
from tensorcep.linear.settings import GLMSettings, settings_of
from tensorcep.linear.vb import VB

# ``fit(problem, settings, max_iter, tol)``
FULL: dict[str, Callable[[GLMProblem, Any, int, float], Run]] = {"ep": fit_ep, "is": fit_is}
SWEPT: dict[str, AnyMethod] = {method.name: method for method in (EP_FACTORIZED, CEP1, CEP2, LP, VB)}


def fit_glm(problem: GLMProblem, method: str | GLMSettings, *, max_iter: int, tol: float, n_threads: int = 1) -> Run:
    """Find the posterior of the weights, a GLMPosterior, by a method of `tensorcep.linear.settings`.

    A factorised method takes the prior's variances alone, the others a covariance matrix too. Sweeps stop where weights
    change by less than `tol` posterior standard deviations.

    Raises
    ------
    ValueError
        If there is no such method or setting, or the likelihood lacks a part that the method needs.
    """
    settings = settings_of(method)
    if settings.full:
        with one_blas_thread():  # two wait for each other longer than they work, of 60,000 x 300, too
            return FULL[settings.name](problem, settings, max_iter, tol)
    swept = SWEPT[settings.name]
    missing = swept.lacks(problem.likelihood)
    if missing:
        fail_value(f"method {swept.name!r} needs {', '.join(missing)}; {problem.likelihood.name!r} has none.")
    return run(swept, problem, settings, max_iter=max_iter, tol=tol, n_threads=n_threads)
