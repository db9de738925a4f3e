"""Learning the kernel: the evidence and its gradient as an objective, and starts of an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import blas
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.gaussian_process.kernels import contract, covariance_of
from tensorcep.gaussian_process.posterior import Posterior, Prior
from tensorcep.gaussian_process.proposals import Data
from tensorcep.gaussian_process.settings import EP, QP, GPSettings
from tensorcep.gaussian_process.sites import Fit, Stop, fit_sites, proposal_of
from tensorcep.kernels.sites import Sites

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
    """

    optimizer: str | Optimizer | None
    restarts: int
    rng: np.random.Generator
    scale: float = 1.0


def learn_kernel(kernel: Any, evidence: Evidence, search: Search) -> Any:
    """The kernel with the highest evidence of all starts: its own values, and draws from the range of their bounds.

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
    results, failed = [], 0
    for start in starts:
        try:
            theta, loss = _descend(kernel, evidence, search, start)
        except (FloatingPointError, np.linalg.LinAlgError):
            theta, loss = start, np.inf
        failed += not np.isfinite(loss)
        results.append((loss, theta))
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


def _descend(kernel: Any, evidence: Evidence, search: Search, start: np.ndarray) -> tuple[np.ndarray, float]:
    """One start; inf where the objective does not exist there."""
    worst = -evidence(kernel.clone_with_theta(start), False)[0]

    def loss(theta: np.ndarray, eval_gradient: bool = True) -> Any:
        nonlocal worst
        try:
            value, gradient = evidence(kernel.clone_with_theta(theta), eval_gradient)
        except (FloatingPointError, np.linalg.LinAlgError):
            value, gradient = -worst - PENALTY, np.zeros_like(theta)
        worst = max(worst, -value) if np.isfinite(value) else worst
        return (-search.scale * value, -search.scale * gradient) if eval_gradient else -search.scale * value

    optimizer: Any = search.optimizer
    if callable(optimizer):
        theta, best = optimizer(loss, start, bounds=kernel.bounds)
        return np.asarray(theta), float(best)
    found = minimize(loss, start, method="L-BFGS-B", jac=True, bounds=kernel.bounds)
    return found.x, float(found.fun)
