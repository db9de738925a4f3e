"""Learning the kernel: the evidence and its gradient as an objective, and starts of an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import blas
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.ep.sites import Sites
from tensorcep.gaussian_process.kernels import contract, covariance_of
from tensorcep.gaussian_process.posterior import Posterior, Prior
from tensorcep.gaussian_process.proposals import Data
from tensorcep.gaussian_process.settings import EP, QP, GPSettings
from tensorcep.gaussian_process.sites import Fit, Stop, fit_sites, proposal_of

# What stands for the objective where there is none, in nats above the worst so far.
PENALTY = 1e3


class Points(NamedTuple):
    """Training points and what was observed there.

    Attributes
    ----------
    X : (n, d) float64
    data : Data
    mean : float
        The prior mean.
    """

    X: np.ndarray
    data: Data
    mean: float


class Evidence(Protocol):
    """What is maximised: ``value(kernel)``, or with the gradient by `kernel.theta`; and the starts' common memory."""

    def __call__(self, kernel: Any, gradient: bool) -> tuple[float, np.ndarray]: ...


class ExactEvidence:
    """The evidence of a method at kernels; each fit starts at the sites of the last."""

    def __init__(self, points: Points, settings: GPSettings, stop: Stop):
        self.points, self.stop = points, stop
        # Of EP where quantile propagation is asked for: it has no evidence of its own.
        self.settings = (
            EP(schedule=settings.schedule, damping=settings.damping) if isinstance(settings, QP) else settings
        )
        self._sites: Sites | None = None

    def fit(self, kernel: Any) -> Fit:
        """The method's sites at a kernel."""
        prior = Prior(covariance_of(kernel, self.points.X), self.points.mean)
        try:
            fit = fit_sites(prior, self.points.data, self.settings, self.stop, self._sites)
        except FloatingPointError:
            if self._sites is None:
                raise
            self._sites = None  # sites of another kernel may be no start
            fit = fit_sites(prior, self.points.data, self.settings, self.stop)
        self._sites = fit.sites
        return fit

    def __call__(self, kernel: Any, gradient: bool) -> tuple[float, np.ndarray]:
        fit = self.fit(kernel)
        if not gradient:
            return fit.log_evidence, np.empty(0)
        pull = proposal_of(self.points.data, self.settings).pull(fit.posterior)
        value, slopes = fit.log_evidence, by_kernel(fit.posterior, pull)
        del fit  # and its matrices
        return value, contract(kernel, self.points.X, None, slopes)


def by_kernel(posterior: Posterior, pull: np.ndarray | None) -> np.ndarray:
    """The derivative of the evidence by the kernel matrix, (n, n) and symmetric.

    Source: Rasmussen and Williams (2006), eqs 5.22 and 5.27.
    """
    a, G = posterior.dual, np.asfortranarray(-0.5 * posterior.resolvent())
    blas.dger(0.5, a if pull is None else a + pull, a, a=G, overwrite_a=1)
    if pull is not None:
        blas.dger(0.5, a, pull, a=G, overwrite_a=1)
    return G.T


Optimizer = Callable[..., tuple[np.ndarray, float]]


class Search(NamedTuple):
    """How a kernel is searched.

    Attributes
    ----------
    optimizer : "l-bfgs", callable as scikit-learn takes it, or None
    restarts : int
    rng : numpy Generator
    scale : float
        Unit of the loss.
    ties : bool
        Whether the scales of features are searched as one beforehand.
    """

    optimizer: str | Optimizer | None
    restarts: int
    rng: np.random.Generator
    scale: float = 1.0
    ties: bool = True


def learn_kernel(kernel: Any, evidence: Evidence, search: Search) -> Any:
    """The kernel with the highest evidence of all starts: its own values, and draws from the range of their bounds.

    Of a kernel with a length scale for every feature, another start is the best one whose scales are equal: the search
    over all of them may end far below it.

    Raises
    ------
    ValueError
        If restarts have no bounds to draw from, or no start leads anywhere.
    """
    if search.optimizer is None or kernel.n_dims == 0:
        return kernel
    bounds, starts = kernel.bounds, [kernel.theta]
    if search.restarts and not np.isfinite(bounds).all():
        fail_value("n_restarts_optimizer needs finite bounds of all parameters of the kernel; got some that are not.")
    starts += [search.rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(search.restarts)]
    tie = ties(kernel)
    if search.ties and (tie != np.arange(len(tie))).any():
        starts.insert(0, _try(kernel, evidence, search, kernel.theta, tie)[0])
    results = [_try(kernel, evidence, search, start, np.arange(len(start)))[::-1] for start in starts]
    failed = sum(not np.isfinite(loss) for loss, _ in results)
    best, theta = min(results, key=lambda pair: pair[0])
    if not np.isfinite(best):
        fail_value(
            f"kernel must leave a Gaussian posterior at its start; got none from {len(starts)} starts; set other start "
            "values, scale the features, or allow for wrong labels by slack or the probit."
        )
    if failed:
        warn_user(
            f"{failed} of {len(starts)} starts of the optimiser failed, because the method found no Gaussian posterior "
            "at their values; the best of the others is kept.",
            ConvergenceWarning,
        )
    return kernel.clone_with_theta(theta)


def ties(kernel: Any) -> np.ndarray:
    """For each of the kernel's free parameters (p,) the first that it equals where every feature has the same scale."""
    tie: list[int] = []
    at = 0
    for one in kernel.hyperparameters:
        if not one.fixed:
            is_scale = one.name.endswith("length_scale")
            tie += [at] * one.n_elements if is_scale else range(at, at + one.n_elements)
            at += one.n_elements
    return np.array(tie, dtype=np.int64)


def ends_at_bounds(kernel: Any, without: str = "") -> list[str]:
    """The kernel's free parameters that lie at a bound, in words; a feature's scale has its number.

    Those called like `without` are not told of.
    """
    found, at = [], 0
    for one in kernel.hyperparameters:
        for i in range(0 if one.fixed else one.n_elements):
            bounds = kernel.bounds[at]
            for side, bound in zip(("lower", "upper"), bounds, strict=True):
                told = not without or not one.name.endswith(without)
                if told and np.isclose(bound, kernel.theta[at]):
                    number = f"[{i}]" if one.n_elements > 1 else ""
                    found.append(f"{one.name}{number} at its {side} bound {np.exp(bound):.3g}")
            at += 1
    return found


def _try(
    kernel: Any, evidence: Evidence, search: Search, start: np.ndarray, tie: np.ndarray
) -> tuple[np.ndarray, float]:
    """Where a start leads, and the loss there: inf where the objective does not exist."""
    try:
        return _descend(kernel, evidence, search, start, tie)
    except (FloatingPointError, np.linalg.LinAlgError):
        return start, np.inf


def _descend(
    kernel: Any, evidence: Evidence, search: Search, start: np.ndarray, tie: np.ndarray
) -> tuple[np.ndarray, float]:
    """One start, over the parameters that are not tied to others; those that are begin at their mean."""
    first, group = np.unique(tie, return_inverse=True)
    bounds = np.stack(
        [[kernel.bounds[group == j, 0].max(), kernel.bounds[group == j, 1].min()] for j in range(len(first))]
    )
    if (bounds[:, 0] > bounds[:, 1]).any():  # no value is allowed for all that are tied
        return start, np.inf
    free = start if len(first) == len(group) else np.clip(np.bincount(group, start) / np.bincount(group), *bounds.T)
    worst = -evidence(kernel.clone_with_theta(free[group]), False)[0]

    def loss(theta: np.ndarray, eval_gradient: bool = True) -> Any:
        nonlocal worst
        try:
            value, gradient = evidence(kernel.clone_with_theta(theta[group]), eval_gradient)
        except (FloatingPointError, np.linalg.LinAlgError):
            value, gradient = -worst - PENALTY, np.zeros(len(group))
        worst = max(worst, -value) if np.isfinite(value) else worst
        if not eval_gradient:
            return -search.scale * value
        return -search.scale * value, -search.scale * np.bincount(group, gradient)

    optimizer: Any = search.optimizer
    if callable(optimizer):
        theta, best = optimizer(loss, free, bounds=bounds)
        return np.asarray(theta)[group], float(best)
    found = minimize(loss, free, method="L-BFGS-B", jac=True, bounds=bounds)
    return found.x[group], float(found.fun)
