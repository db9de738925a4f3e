"""Methods for generalised linear models by name, behind one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.loop import Method, run
from tensorcep.linear.data import GLMProblem
from tensorcep.linear.factorised import CEP1, CEP2, EP_FACTORIZED, LP
from tensorcep.linear.full import EPOptions, FullFit, ISOptions, fit_ep, fit_is
from tensorcep.linear.vb import VB


class GLMMethod(NamedTuple):
    """A method: its settings and ``fit(problem, options, max_iter, tol, threads) -> FullFit``.

    `full` says whether the posterior has a full covariance.
    """

    options: Callable[..., Any]
    fit: Callable[..., FullFit]
    full: bool


def _swept(method: Method) -> GLMMethod:
    def fit(problem: GLMProblem, options: Any, max_iter: int, tol: float, threads: int) -> FullFit:
        missing = method.lacks(problem.likelihood)
        if missing:
            fail_value(f"method {method.name!r} needs {', '.join(missing)}; {problem.likelihood.name!r} has none.")
        found = run(method, problem, options, max_iter=max_iter, tol=tol, n_threads=threads)
        posterior: Any = found.posterior
        return FullFit(posterior, found.n_iter, found.converged, found.trace)

    return GLMMethod(method.options, fit, False)


def _full(options: Callable[..., Any], fit: Callable[..., FullFit]) -> GLMMethod:
    return GLMMethod(
        options, lambda problem, settings, max_iter, tol, threads: fit(problem, settings, max_iter, tol), True
    )


GLM_METHODS: dict[str, GLMMethod] = {
    "ep": _full(EPOptions, fit_ep),
    **{method.name: _swept(method) for method in (EP_FACTORIZED, CEP1, CEP2, LP, VB)},
    "is": _full(ISOptions, fit_is),
}


def fit_glm(
    problem: GLMProblem,
    method: str,
    settings: dict[str, Any] | None = None,
    *,
    max_iter: int,
    tol: float,
    n_threads: int = 1,
) -> FullFit:
    """Find the posterior of the weights.

    Parameters
    ----------
    problem : GLMProblem
        For a factorised method with the prior's variances, for the others with these or a covariance matrix.
    method : str
        One of `GLM_METHODS`.
    settings : dict, optional
        The method's own settings by name.
    max_iter, tol : int, float
        Largest number of sweeps, and the change of a weight, in posterior standard deviations, at which to stop.
    n_threads : int
        The result does not depend on it.

    Returns
    -------
    FullFit

    Raises
    ------
    ValueError
        If there is no such method or setting, or the likelihood lacks a part that the method needs.
    """
    chosen = GLM_METHODS[check_choice("method", method, GLM_METHODS)]
    names = [field.name for field in fields(chosen.options)]  # type: ignore[arg-type]
    for name in settings or {}:
        if name not in names:
            fail_value(f"method_options of method {method!r} may hold {names}; got {name!r}.")
    return chosen.fit(problem, chosen.options(**(settings or {})), max_iter, tol, n_threads)
