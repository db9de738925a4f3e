"""The models of the CEP paper's probit and logistic regression, and each method with the paper's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scripts.papers.baselines.kjit import JustInTime
from scripts.papers.baselines.sampled_ep import importance_moments, sampled_ep
from tensorcep import datasets
from tensorcep.core.loop import Run
from tensorcep.likelihoods.logit import LOGIT, LOGIT_NINE
from tensorcep.likelihoods.probit import PROBIT
from tensorcep.linear.glm import fit_glm
from tensorcep.linear.problem import GLMProblem, as_csr
from tensorcep.linear.settings import GLM_METHODS, IS, GLMSettings

CONDITIONAL = ("cep1", "cep2")
METHODS = ("cep1", "cep2", "lp", "ep-factorized", "vb", "ep", "kjit")
SLOW_METHODS = ("is", "is-ep")
SAMPLED = ("kjit", "is")
SIMULATIONS = ("probit-1", "probit-2", "logistic-1", "logistic-2")
PUBLISHED_SWEEPS, PUBLISHED_TOL, CONVERGED_TOL = 1000, 1e-5, 1e-4
# The authors' rho, where it is not 0.01 for the probit and 0.1 for the logit; EP's is 0.05 throughout.
RHO = {("crabs", "probit"): 0.1, ("australian", "probit"): 0.1}
# CEP-2's rho, where it is not 0.01, and its sweeps of CEP-1, where they are not 50.
RHO_SECOND = {
    ("crabs", "probit"): 0.1,
    ("crabs", "logistic"): 0.1,
    ("australian", "probit"): 0.1,
    ("australian", "logistic"): 0.1,
    ("sonar", "probit"): 0.001,
}
FIRST_ORDER = {("crabs", "probit"): 10, ("crabs", "logistic"): 10, ("australian", "logistic"): 10}


class Effort(NamedTuple):
    """Largest number of sweeps (at most 1,000 of them with published settings), draws of a sampler, and its seed."""

    sweeps: int
    draws: int
    seed: int


def settings_of(method: str, simulated: bool = False) -> tuple[str, ...]:
    """The settings that a method has."""
    if method in ("ep", "is-ep") or (simulated and method == "vb"):
        return ("converged",)
    return ("published",) if method == "is" or (simulated and method == "kjit") else ("published", "converged")


def problem_of(points: datasets.Points, link: str, nine: bool, seed: int = 0) -> GLMProblem:
    """The paper's model: weights N(0, 1), no intercept; nine quadrature nodes or exact moments for the logit."""
    d = points.X.shape[1]
    logit = LOGIT_NINE if nine else LOGIT
    likelihood = PROBIT if link == "probit" else logit
    no = np.zeros(d, dtype=bool)
    return GLMProblem(as_csr(points.X), 2.0 * points.y - 1.0, likelihood, np.zeros(d), np.ones(d), no, seed)


def published_settings(data: str, link: str, method: str) -> GLMSettings:
    """The authors' damping, stopping rule, first messages and warm-up."""
    if method in ("vb", "ep"):
        return GLM_METHODS[method]
    rho = RHO.get((data, link), 0.01 if link == "probit" else 0.1)
    rho = 0.05 if method == "ep-factorized" else rho
    rho = RHO_SECOND.get((data, link), 0.01) if method == "cep2" else rho
    values: dict[str, Any] = {"damping": 1.0 - rho, "stop": "published", "message_precision": 1e-6}
    if method == "cep2":
        values["warm_up"] = FIRST_ORDER.get((data, link), 50)
    return replace(GLM_METHODS[method], **values)


def fit_sampled(problem: GLMProblem, method: str, setting: str, effort: Effort, score: Any = None) -> Run:
    """Factorised EP with learned or sampled moments, at the authors' damping of EP; all sweeps for a curve."""
    make = JustInTime if method == "kjit" else importance_moments
    published = setting == "published"
    tol = PUBLISHED_TOL if published else CONVERGED_TOL
    tol = tol if score is None else 0.0
    return sampled_ep(
        problem,
        make(problem, effort.draws),
        damping=0.95,
        stop="published" if published else "residual",
        max_iter=min(effort.sweeps, PUBLISHED_SWEEPS) if published else effort.sweeps,
        tol=tol,
        score=score,
    )


def fit_table(points: datasets.Points, data: str, link: str, method: str, setting: str, effort: Effort) -> Any:
    """One fit of the tables; returns the problem and what was found."""
    published = setting == "published"
    problem = problem_of(points, link, published and method in CONDITIONAL, effort.seed)
    if method in SAMPLED:
        return problem, fit_sampled(problem, method, setting, effort)
    if method == "is-ep":
        return problem, fit_glm(problem, IS(n_draws=effort.draws), max_iter=effort.sweeps, tol=CONVERGED_TOL)
    settings = published_settings(data, link, method) if published else method
    tol = PUBLISHED_TOL if published else CONVERGED_TOL
    tol = 0.0 if published and method == "vb" else tol
    max_iter = PUBLISHED_SWEEPS if published else effort.sweeps
    return problem, fit_glm(problem, settings, max_iter=max_iter, tol=tol)
