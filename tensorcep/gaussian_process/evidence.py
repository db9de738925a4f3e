"""The evidence of Gaussian processes, its gradients, and kernels' parameters learned by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Matern, Product, Sum

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.ep.sites import Sites
from tensorcep.gaussian_process.engine import Fit, Observations, Prior, Stop, fit_sites, proposal_of
from tensorcep.gaussian_process.settings import EP, QP, GPSettings

# Kernels are those of scikit-learn: which are taken, and their derivatives summed against a matrix.

# An eigenvalue of the kernel matrix may be below 0 by this fraction of its largest diagonal element, times its size.
NEGATIVE = 1e-10
# Matern kernels whose derivative has a closed form.
MATERN = (0.5, 1.5, 2.5)
# Rows at a time of a large matrix, so that what a kernel makes on the way stays small.
ROWS = 1024
# Kernels that are positive definite by their making.
DEFINITE = (RBF, ConstantKernel, Matern, Sum, Product, DotProduct)
# The kernels that a file can name.
NAMED = "RBF ConstantKernel DotProduct Exponentiation ExpSineSquared Matern Product RationalQuadratic Sum"
KERNELS = {name: getattr(kernels, name) for name in NAMED.split()}


def check_kernel(kernel: Any, X: np.ndarray) -> Kernel:
    """Return a copy of a kernel that a latent function can have."""
    if kernel is None:  # a constant times an RBF, both learned, that starts at the spread of the points
        spread = float(np.sqrt(X.var(axis=0).sum()))
        scale = spread if 0.0 < spread < np.inf else 1.0
        return ConstantKernel(1.0) * RBF(scale, (1e-3 * scale, 1e3 * scale))
    if not isinstance(kernel, Kernel):
        kind = type(kernel).__name__
        raise TypeError(f"kernel must be a kernel of sklearn.gaussian_process.kernels, or None; got {kind}.")
    if any(isinstance(part, kernels.WhiteKernel) for part in parts_of(kernel)):
        because = "because noise belongs to the likelihood of labels and counts"
        fail_value(f"kernel must have no WhiteKernel, {because}; leave it out.")
    if any(isinstance(part, kernels.CompoundKernel) for part in parts_of(kernel)):
        fail_value("kernel must be one kernel; got a CompoundKernel, which stands for several.")
    return clone(kernel)


def parts_of(kernel: Any) -> list[Any]:
    """A kernel and those that it is made of."""
    inner = [part for name in ("k1", "k2", "kernel") if isinstance(part := getattr(kernel, name, None), Kernel)]
    return [kernel, *(part for one in inner for part in parts_of(one))]


def check_covariance(kernel: Any, X: np.ndarray) -> None:
    """Refuse a kernel whose matrix at the points is no covariance; those positive definite by their making pass."""
    if all(type(part) in DEFINITE for part in parts_of(kernel)):
        return
    K, n = kernel(X), len(X)
    if K.shape != (n, n) or not np.isfinite(K).all():
        fail_value(f"kernel must give a matrix of finite numbers at the points; got {kernel!r}.")
    top = float(np.abs(np.diag(K)).max())
    if not np.allclose(K, K.T, rtol=1e-8, atol=1e-12 * top):
        fail_value(f"kernel must be symmetric; got {kernel!r}, which is not.")
    try:
        np.linalg.cholesky(K + NEGATIVE * n * top * np.eye(n))
    except np.linalg.LinAlgError:
        got = f"{kernel!r}, whose matrix has the eigenvalue {np.linalg.eigvalsh(K)[0]:.3g}"
        fail_value(f"kernel must be positive definite at the points; got {got}; choose another kernel.")


def covariance_of(kernel: Any, X: np.ndarray) -> np.ndarray:
    """The kernel matrix of the points (n, n); a large one of the common kernels in parts."""
    n = len(X)
    if n <= 2 * ROWS or any(type(part) not in DEFINITE for part in parts_of(kernel)):
        return np.asarray(kernel(X))
    K = np.empty((n, n))
    for first in range(0, n, ROWS):
        K[first : first + ROWS] = kernel(X[first : first + ROWS], X)
    return K


def contract(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    """Sums of G times the derivative of the kernel matrix by each of `kernel.theta`, (p,); Z is None for X itself."""
    # for the common kernels without an array of n^2 p numbers, and in parts where X is large
    if len(X) > 2 * ROWS and all(type(part) in DEFINITE for part in parts_of(kernel)):
        parts = [slice(first, first + ROWS) for first in range(0, len(X), ROWS)]
        return np.sum([contract(kernel, X[rows], X if Z is None else Z, G[rows]) for rows in parts], axis=0)
    rule = RULES.get(type(kernel))
    if rule is not None and (not isinstance(kernel, Matern) or kernel.nu in MATERN):
        return rule(kernel, X, Z, G) if kernel.n_dims else np.empty(0)
    if Z is not None:
        those = "ConstantKernel, RBF, Matern with nu 0.5, 1.5 or 2.5, DotProduct, sums and products"
        fail_value(f"kernel must be made of {those} to be learned with n_inducing; got {kernel!r}; set optimizer=None.")
    return np.asarray(np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1]))


def _product(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    first, second = kernel.k1, kernel.k2
    if isinstance(first, ConstantKernel):  # one matrix serves both
        inner = second(X, Z)
        inner *= G
        own = [] if first.hyperparameter_constant_value.fixed else [first.constant_value * inner.sum()]
        del inner
        return np.concatenate([own, first.constant_value * contract(second, X, Z, G)])
    left, right = contract(first, X, Z, G * second(X, Z)), contract(second, X, Z, G * first(X, Z))
    return np.concatenate([left, right])


def _power(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    return contract(kernel.kernel, X, Z, kernel.exponent * kernel.kernel(X, Z) ** (kernel.exponent - 1.0) * G)


def _matern(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    distance = cdist(X / kernel.length_scale, (X if Z is None else Z) / kernel.length_scale)
    if kernel.nu == 0.5:
        weight = np.divide(np.exp(-distance), distance, out=np.zeros_like(distance), where=distance > 0.0)
    elif kernel.nu == 1.5:
        weight = 3.0 * np.exp(-np.sqrt(3.0) * distance)
    else:
        distance *= np.sqrt(5.0)
        weight = 5.0 / 3.0 * (1.0 + distance) * np.exp(-distance)
    return _by_scales(kernel, X, Z, G, weight)


def _by_scales(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums of G times weights times the squared scaled differences, in every feature or, of one scale, in all."""
    weight *= G
    centre = X.mean(axis=0)
    left = (X - centre) / kernel.length_scale
    right = left if Z is None else (Z - centre) / kernel.length_scale
    each = weight.sum(axis=1) @ left**2 + weight.sum(axis=0) @ right**2
    each = each - 2.0 * np.einsum("id,id->d", left, weight @ right)
    return each if kernel.anisotropic else np.array([each.sum()])


RULES: dict[type, Callable[..., np.ndarray]] = {
    Sum: lambda kernel, X, Z, G: np.concatenate([contract(kernel.k1, X, Z, G), contract(kernel.k2, X, Z, G)]),
    Product: _product,
    kernels.Exponentiation: _power,
    ConstantKernel: lambda kernel, X, Z, G: np.array([kernel.constant_value * G.sum()]),
    DotProduct: lambda kernel, X, Z, G: np.array([2.0 * kernel.sigma_0**2 * G.sum()]),
    RBF: lambda kernel, X, Z, G: _by_scales(kernel, X, Z, G, kernel(X, Z)),
    Matern: _matern,
}


# Learning the kernel: the evidence and its gradient as an objective, and starts of an optimiser.

# What stands for the objective where there is none, in nats above the worst so far.
PENALTY = 1e3
# What is raised where there is none.
NO_POSTERIOR = (FloatingPointError, np.linalg.LinAlgError)


class TrainingPoints(NamedTuple):
    """Training points (n, d), what was observed there, and the prior mean."""

    X: np.ndarray
    data: Observations
    mean: float


# What is maximised: (kernel, whether with the gradient by `kernel.theta`) -> value and gradient.
Evidence = Callable[[Any, bool], tuple[float, np.ndarray]]


class ExactEvidence:
    """The evidence of a method at kernels; each fit starts at the sites of the last."""

    def __init__(self, points: TrainingPoints, settings: GPSettings, stop: Stop):
        self.points, self.settings, self.stop = points, settings, stop
        if isinstance(settings, QP):  # which has no evidence of its own
            self.settings = EP(schedule=settings.schedule, damping=settings.damping)
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
        # The derivative by the kernel matrix, (n, n) and symmetric: Rasmussen and Williams (2006), eqs 5.22 and 5.27.
        pull = proposal_of(self.points.data, self.settings).pull(fit.posterior)
        a, G = fit.posterior.dual, np.asfortranarray(-0.5 * fit.posterior.resolvent)
        blas.dger(0.5, a if pull is None else a + pull, a, a=G, overwrite_a=1)
        if pull is not None:
            blas.dger(0.5, a, pull, a=G, overwrite_a=1)
        value = fit.log_evidence
        del fit  # and its matrices
        return value, contract(kernel, self.points.X, None, G.T)


class KernelSearch(NamedTuple):
    """How a kernel is searched."""

    optimizer: Any  # "l-bfgs", a callable as scikit-learn takes it, or not at all
    restarts: int
    rng: np.random.Generator
    scale: float = 1.0  # unit of the loss
    ties: bool = True  # whether the scales of features are searched as one beforehand


def learn_kernel(kernel: Any, evidence: Evidence, search: KernelSearch) -> Any:
    """The kernel with the highest evidence of all starts: its own values, and draws from the range of their bounds."""
    # Of a kernel with a length scale for every feature, another start is the best one whose scales are equal: the
    # search over all of them may end far below it.
    if search.optimizer is None or kernel.n_dims == 0:
        return kernel
    bounds, starts = kernel.bounds, [kernel.theta]
    if search.restarts and not np.isfinite(bounds).all():
        fail_value("n_restarts_optimizer needs finite bounds of all parameters of the kernel; got some that are not.")
    starts += [search.rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(search.restarts)]

    tie = ties(kernel)
    if search.ties and (tie != np.arange(len(tie))).any():
        starts.insert(0, _descend(kernel, evidence, search, kernel.theta, tie)[0])
    results = [_descend(kernel, evidence, search, start, np.arange(len(start))) for start in starts]
    failed = sum(not np.isfinite(loss) for _, loss in results)
    theta, best = min(results, key=lambda pair: pair[1])
    if not np.isfinite(best):
        remedy = "set other start values, scale the features, or allow for wrong labels by slack or the probit"
        got = f"got none from {len(starts)} starts"
        fail_value(f"kernel must leave a Gaussian posterior at its start; {got}; {remedy}.")
    if failed:
        why = "because the method found no Gaussian posterior at their values; the best of the others is kept"
        warn_user(f"{failed} of {len(starts)} starts of the optimiser failed, {why}.", ConvergenceWarning)
    return kernel.clone_with_theta(theta)


def free_parameters(kernel: Any) -> list[tuple[Any, int]]:
    """For each of the kernel's free parameters (p,) what it belongs to, and its place there."""
    return [(one, i) for one in kernel.hyperparameters if not one.fixed for i in range(one.n_elements)]


def ties(kernel: Any) -> np.ndarray:
    """For each of the kernel's free parameters (p,) the first that it equals where every feature has the same scale."""
    free = enumerate(free_parameters(kernel))
    return np.array([k - i if one.name.endswith("length_scale") else k for k, (one, i) in free], dtype=np.int64)


def at_bounds(kernel: Any, without: str = "") -> list[str]:
    """The kernel's free parameters that lie at a bound, in words, but for those called like `without`."""
    found = []
    for (one, i), theta, bounds in zip(free_parameters(kernel), kernel.theta, kernel.bounds, strict=True):
        for side, bound in zip(("lower", "upper"), bounds, strict=True):
            if np.isclose(bound, theta) and not (without and one.name.endswith(without)):
                number = f"[{i}]" if one.n_elements > 1 else ""  # of a feature's scale
                found.append(f"{one.name}{number} at its {side} bound {np.exp(bound):.3g}")
    return found


def _descend(
    kernel: Any, evidence: Evidence, search: KernelSearch, start: np.ndarray, tie: np.ndarray
) -> tuple[np.ndarray, float]:
    """Where a start leads, and the loss there: inf if there is none; parameters that are tied begin at their mean."""
    first, group = np.unique(tie, return_inverse=True)
    limits = (kernel.bounds[group == j] for j in range(len(first)))
    bounds = np.stack([[each[:, 0].max(), each[:, 1].min()] for each in limits])
    if (bounds[:, 0] > bounds[:, 1]).any():  # no value is allowed for all that are tied
        return start, np.inf
    free = start if len(first) == len(group) else np.clip(np.bincount(group, start) / np.bincount(group), *bounds.T)
    with contextlib.suppress(*NO_POSTERIOR):
        worst = -evidence(kernel.clone_with_theta(free[group]), False)[0]

        def loss(theta: np.ndarray, eval_gradient: bool = True) -> Any:
            nonlocal worst
            try:
                value, gradient = evidence(kernel.clone_with_theta(theta[group]), eval_gradient)
            except NO_POSTERIOR:
                value, gradient = -worst - PENALTY, np.zeros(len(group))
            worst = max(worst, -value) if np.isfinite(value) else worst
            if not eval_gradient:
                return -search.scale * value
            return -search.scale * value, -search.scale * np.bincount(group, gradient)

        if callable(search.optimizer):
            theta, best = search.optimizer(loss, free, bounds=bounds)
            return np.asarray(theta)[group], float(best)
        found = minimize(loss, free, method="L-BFGS-B", jac=True, bounds=bounds)
        return found.x[group], float(found.fun)
    return start, np.inf
