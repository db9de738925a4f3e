"""One latent function: its kernel, the points that it is known at, its posterior anywhere, and its record in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from tensorcep.core.arrays import memory_of_machine
from tensorcep.core.checks import fail_value
from tensorcep.core.executor import one_blas_thread
from tensorcep.core.persist.models import StoredModel, check_names, fitted_record, text_array, write_model
from tensorcep.core.persist.records import RECORD
from tensorcep.ep.gaussian import Functions
from tensorcep.gaussian_process import evidence
from tensorcep.gaussian_process.engine import Posterior, Prior, Stop, fit_sites
from tensorcep.gaussian_process.evidence import KERNELS, KernelSearch, TrainingPoints, covariance_of, learn_kernel
from tensorcep.gaussian_process.inducing import InducingEvidence, Sparse, fit_inducing
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
    """A fitted latent function."""

    kernel: Any
    points: np.ndarray  # (m, d) training points, or inducing ones
    mean: float  # of the prior
    tau: np.ndarray  # (m,) sites of the latent values at the points; of inducing points (0,)
    nu: np.ndarray
    functions: Functions  # mean and covariance of f anywhere, from its covariances with the points
    log_evidence: float
    n_iter: int
    converged: bool

    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at points, (q,) each."""
        parts = np.array_split(X, -(-len(X) // CHUNK))
        found = [self.functions.latent(self.kernel(part, self.points), self.kernel.diag(part)) for part in parts]
        mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return self.mean + mean, variance

    def draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Joint draws of f at points, (q, n_draws)."""
        mean, cov = self.functions.joint(self.kernel(X, self.points), self.kernel(X))
        values, vectors = np.linalg.eigh(0.5 * (cov + cov.T))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray((self.mean + mean)[:, None] + root @ rng.standard_normal((len(X), n_draws)))


def check_exact_size(n: int, more: int = 0) -> None:
    """Refuse an exact fit whose matrices, with so many more, are too large, before any work."""
    needed = 8.0 * (MATRICES + more) * n * n
    there = min(MOST_BYTES, memory_of_machine() or MOST_BYTES)
    if needed > there:
        takes = f"takes about {needed / 1e9:.3g} GB for matrices of {n} x {n}, more than {there / 1e9:.3g} GB"
        fail_value(f"an exact Gaussian process of {n} points {takes}; set n_inducing, such as n_inducing=200.")


def fit_exact(kernel: Any, points: TrainingPoints, settings: GPSettings, stop: Stop, search: KernelSearch) -> Machine:
    """Learn the kernel and find the posterior of a method."""
    # the derivatives of kernels that are not common take matrices of n^2 numbers beside those of a fit
    common = search.optimizer is None or all(type(part) in evidence.RULES for part in evidence.parts_of(kernel))
    check_exact_size(len(points.X), 0 if common else 2 * kernel.n_dims)
    evidence.check_covariance(kernel, points.X)
    kernel = learn_kernel(kernel, evidence.ExactEvidence(points, settings, stop), search)
    prior = Prior(covariance_of(kernel, points.X), points.mean)
    fit = fit_sites(prior, points.data, settings, stop)
    (tau, nu, _), functions = fit.sites, fit.posterior.functions()
    return Machine(kernel, points.X, points.mean, tau, nu, functions, *fit[2:])


def fit_sparse(kernel: Any, points: TrainingPoints, sparse: Sparse, stop: Stop, search: KernelSearch) -> Machine:
    """Learn the kernel, of many points first of some, and find the posterior of inducing values by power EP."""
    evidence.check_covariance(kernel, sparse.Z)
    learning = Stop(min(stop.max_iter, LEARNING_SWEEPS), max(stop.tol, LEARNING_TOL))
    n, some = len(points.X), max(LEAST_SOME, SOME_PER_INDUCING * len(sparse.Z))
    if n > 2 * some:
        rows = np.sort(search.rng.permutation(n)[:some])
        data = points.data._replace(y=points.data.y[rows])
        part = points._replace(X=points.X[rows], data=data)
        kernel = learn_kernel(kernel, InducingEvidence(part, sparse, learning), search)
        search = search._replace(restarts=0, ties=False, scale=1.0 / n)  # so that its first step is short
    kernel = learn_kernel(kernel, InducingEvidence(points, sparse, learning), search)
    fit, nothing = fit_inducing(kernel, points, sparse, stop), np.empty(0)
    return Machine(kernel, sparse.Z, points.mean, nothing, nothing, *fit[1:5])


# Files of Gaussian processes: kernels as records by name and parameters, sites and points as arrays.

SHARED = ("_X_fit", "_y_fit", "n_features_in_")
IF_THERE = ("classes_", "feature_names_in_", "prior_mean_")
NAMES = (*SHARED, *IF_THERE, "tau", "nu", "points", "dual", "cov", "means", "evidence", "n_iter", "converged", "trace_")


def kernel_record(kernel: Any) -> dict[str, Any]:
    """A kernel, which must be one of `KERNELS`, as a tree of names and parameters."""
    kind = type(kernel).__name__
    if KERNELS.get(kind) is not type(kernel):
        fail_value(f"kernel must be made of {', '.join(KERNELS)} to be saved; got {kind}, which files cannot hold.")
    params = kernel.get_params(deep=False)
    for name, value in params.items():
        if isinstance(value, Kernel):
            params[name] = kernel_record(value)
        elif not isinstance(value, str):
            params[name] = np.asarray(value, dtype=np.float64).tolist()
    return {RECORD: kind, **params}


def kernel_of(tree: Any) -> Any:
    """The kernel that a tree says; a name that is not among `KERNELS` raises KeyError."""
    params = {name: value for name, value in tree.items() if name != RECORD}
    for name, value in params.items():
        if isinstance(value, dict):
            params[name] = kernel_of(value)
        elif isinstance(value, list) and name.endswith("_bounds"):
            params[name] = tuple(value) if np.ndim(value) == 1 else np.asarray(value, dtype=np.float64)
    kernel = KERNELS[tree[RECORD]](**params)
    if not np.isfinite(kernel.theta).all():
        raise ValueError("a kernel's parameters are not finite")
    return kernel


def write_machines(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted Gaussian process."""
    machines: Sequence[Machine] = model._machines
    fitted: dict[str, Any] = {name: getattr(model, name) for name in SHARED}
    fitted |= {name: text_array(getattr(model, name)) for name in IF_THERE if hasattr(model, name)}
    each: Any = Machine._make(zip(*machines, strict=True))  # in every field those of all
    fitted |= {"evidence": np.array(each.log_evidence), "means": np.array(each.mean)}
    fitted |= {"n_iter": np.array(each.n_iter), "converged": np.array(each.converged)}
    if machines[0].tau.size == 0:  # inducing points
        dual, cov = (np.stack(parts) for parts in zip(*each.functions, strict=True))
        fitted |= {"points": machines[0].points, "dual": dual, "cov": cov}
    else:
        fitted |= {"tau": np.stack(each.tau), "nu": np.stack(each.nu)}
    given = None if model.kernel is None else kernel_record(model.kernel)
    kernels = {"given": given, "fitted": [kernel_record(machine.kernel) for machine in machines]}
    write_model(path, model, fitted, {"kernels": kernels}, read=read_attributes)


def read_attributes(stored: StoredModel, _own: Sequence[str] = ()) -> dict[str, Any]:
    """The fitted attributes and given kernel that a file holds; one of `UNREADABLE` if any is missing or wrong."""
    fitted = dict(fitted_record(stored, dict[str, Any]))
    check_names(fitted, NAMES)
    for name in set(fitted) & {"_X_fit", "_y_fit", "tau", "nu", "points", "dual", "cov", "means", "evidence"}:
        if fitted[name].dtype.kind not in "fi" or not np.isfinite(fitted[name]).all():
            raise ValueError(f"{name} does not hold finite real numbers")
    kernels = stored.header["kernels"]
    given = None if kernels["given"] is None else kernel_of(kernels["given"])
    machines, X = [], fitted["_X_fit"]
    for i, kernel in enumerate(map(kernel_of, kernels["fitted"])):
        mean, points, tau, nu = float(fitted["means"][i]), X, np.empty(0), np.empty(0)
        if "points" in fitted:
            points, functions = fitted["points"], Functions(fitted["dual"][i], fitted["cov"][i])
        else:
            tau, nu = fitted["tau"][i], fitted["nu"][i]
            if tau.shape != (len(X),) or nu.shape != (len(X),):
                raise ValueError("the arrays do not fit its shape: there is not one site for each point")
            with one_blas_thread():  # as fits are, for the same bits
                functions = Posterior(Prior(covariance_of(kernel, X), mean), tau, nu).functions()
        about = float(fitted["evidence"][i]), int(fitted["n_iter"][i]), bool(fitted["converged"][i])
        machines.append(Machine(kernel, points, mean, tau, nu, functions, *about))
    attributes = {name: fitted[name] for name in (*SHARED, *IF_THERE) if name in fitted}
    return {**attributes, "_machines": tuple(machines), "kernel": given}
