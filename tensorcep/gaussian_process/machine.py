"""One latent function: its kernel, the points that it is known at, and its posterior anywhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import memory_of_machine
from tensorcep.core.checks import fail_value
from tensorcep.core.executor import one_blas_thread
from tensorcep.ep.gaussian import Functions
from tensorcep.gaussian_process.engine import Fit, Stop, fit_sites
from tensorcep.gaussian_process.evidence import (
    ExactEvidence,
    KernelSearch,
    TrainingPoints,
    check_covariance,
    covariance_of,
    gradient_matrices,
    learn_kernel,
)
from tensorcep.gaussian_process.inducing import InducingEvidence, InducingFit, Sparse, fit_inducing
from tensorcep.gaussian_process.posterior import Posterior, Prior
from tensorcep.gaussian_process.settings import GPSettings

# Points whose covariances with all others are held at a time.
CHUNK = 1024
# Matrices of n^2 numbers that an exact fit may hold at its peak (K, and three that it makes), and the bytes that it
# keeps within, on any machine.
MATRICES, MOST_BYTES = 4, 3e9
# With inducing points: the tolerance of sweeps while a kernel is learned, whose error in the evidence is its square,
# the most of them, and the points that say where a search begins, at least and for each inducing one.
LEARNING_TOL, LEARNING_SWEEPS, LEAST_SOME, SOME_PER_INDUCING = 1e-3, 40, 2000, 10


class Machine(NamedTuple):
    """A fitted latent function.

    Attributes
    ----------
    kernel : Kernel
    points : (m, d) float64
        Training points, or inducing ones.
    mean : float
        The prior mean.
    tau, nu : (m,) float64
        Sites of the latent values at the points; of inducing points (0,).
    functions : Functions
        Mean and covariance of f anywhere, from its covariances with the points.
    log_evidence : float
    n_iter : int
    converged : bool
    """

    kernel: Any
    points: np.ndarray
    mean: float
    tau: np.ndarray
    nu: np.ndarray
    functions: Functions
    log_evidence: float
    n_iter: int
    converged: bool

    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at points, (q,) each."""
        found = [
            self.functions.latent(self.kernel(part, self.points), self.kernel.diag(part))
            for part in np.array_split(X, -(-len(X) // CHUNK))
        ]
        mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return self.mean + mean, variance

    def draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Joint draws of f at points, (q, n_draws)."""
        mean, cov = self.functions.joint(self.kernel(X, self.points), self.kernel(X))
        values, vectors = np.linalg.eigh(0.5 * (cov + cov.T))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray((self.mean + mean)[:, None] + root @ rng.standard_normal((len(X), n_draws)))


def check_exact_size(n: int, more: int = 0) -> None:
    """Refuse an exact fit whose matrices, with so many more, are too large, before any work.

    Raises
    ------
    ValueError
        With what it takes, what there is, and what would take less.
    """
    needed = 8.0 * (MATRICES + more) * n * n
    there = min(MOST_BYTES, memory_of_machine() or MOST_BYTES)
    if needed > there:
        fail_value(
            f"an exact Gaussian process of {n} points takes about {needed / 1e9:.3g} GB for matrices of {n} x {n}, "
            f"more than {there / 1e9:.3g} GB; set n_inducing, such as n_inducing=200."
        )


def fit_exact(kernel: Any, points: TrainingPoints, settings: GPSettings, stop: Stop, search: KernelSearch) -> Machine:
    """Learn the kernel and find the posterior of a method."""
    check_exact_size(len(points.X), 0 if search.optimizer is None else gradient_matrices(kernel))
    check_covariance(kernel, points.X)
    evidence = ExactEvidence(points, settings, stop)
    kernel = learn_kernel(kernel, evidence, search)
    prior = Prior(covariance_of(kernel, points.X), points.mean)
    fit = fit_sites(prior, points.data, settings, stop)
    return _machine(kernel, points, fit, fit.log_evidence)


def _machine(kernel: Any, points: TrainingPoints, fit: Fit, log_evidence: float) -> Machine:
    return Machine(
        kernel=kernel,
        points=points.X,
        mean=points.mean,
        tau=fit.sites.tau,
        nu=fit.sites.nu,
        functions=fit.posterior.functions(),
        log_evidence=log_evidence,
        n_iter=fit.n_iter,
        converged=fit.converged,
    )


def from_sites(kernel: Any, X: np.ndarray, mean: float, tau: np.ndarray, nu: np.ndarray) -> Functions:
    """The posterior that sites at points say, without a fit; on one thread, as fits are, for the same bits."""
    with one_blas_thread():
        return Posterior(Prior(covariance_of(kernel, X), mean), tau, nu).functions()


def fit_sparse(kernel: Any, points: TrainingPoints, sparse: Sparse, stop: Stop, search: KernelSearch) -> Machine:
    """Learn the kernel and find the posterior of inducing values by power EP.

    Of many points, the kernel that some of them say is where the search over all begins.
    """
    check_covariance(kernel, sparse.Z)
    learning = Stop(min(stop.max_iter, LEARNING_SWEEPS), max(stop.tol, LEARNING_TOL))
    n, some = len(points.X), max(LEAST_SOME, SOME_PER_INDUCING * len(sparse.Z))
    if n > 2 * some:
        rows = np.sort(search.rng.permutation(n)[:some])
        data = points.data._replace(y=points.data.y[rows])
        part = points._replace(X=points.X[rows], data=data)
        kernel = learn_kernel(kernel, InducingEvidence(part, sparse, learning), search)
        search = search._replace(restarts=0, ties=False, scale=1.0 / n)  # so that its first step is short
    kernel = learn_kernel(kernel, InducingEvidence(points, sparse, learning), search)
    fit: InducingFit = fit_inducing(kernel, points, sparse, stop)
    nothing = np.empty(0)
    return Machine(
        kernel=kernel,
        points=sparse.Z,
        mean=points.mean,
        tau=nothing,
        nu=nothing,
        functions=fit.functions,
        log_evidence=fit.log_evidence,
        n_iter=fit.n_iter,
        converged=fit.converged,
    )
