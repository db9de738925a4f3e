"""Inducing points by power EP, in minibatches: the posterior of M values stands for that of n.

f_i = w_i'u + noise of variance d_i = k_ii - q_ii, with w_i = K_uu^-1 k_ui: a site is a Gaussian factor in w_i'u, and
its tilted moments are those of p(y_i | f_i)^power with the variance d_i added to the cavity's. Power 1 is FITC, towards
0 it is VFE (Titsias). In coordinates u = L v with K_uu = L L', v ~ N(0, I), w_i'u = a_i'v with A = K_fu L^-T.

Source: Bui, Yan and Turner (2017), A unifying framework for Gaussian process pseudo-point approximations using power
expectation propagation, sec. 3 and eqs 12-16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from tensorcep.core.checks import fail_value
from tensorcep.ep.gaussian import MAX_HALVINGS, MOST_DAMPING, SLOWER, Functions
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import Terms
from tensorcep.gaussian_process.engine import Stop
from tensorcep.gaussian_process.evidence import TrainingPoints, contract

# Added to the diagonal of K_uu, relative to its largest element.
JITTER = 1e-8


class Sparse(NamedTuple):
    """How n values are told from few."""

    Z: np.ndarray  # (M, d) inducing points
    power: float  # 1 for FITC; towards 0 for VFE
    batch: int  # points whose sites are refined from one posterior


class InducingFit(NamedTuple):
    """A fit; `sites` are those of a_i'v, and what the gradient needs stands beside the posterior."""

    sites: Sites
    functions: Functions
    log_evidence: float
    n_iter: int
    converged: bool
    A: np.ndarray  # (n, M)
    chol: np.ndarray  # the factor L of K_uu
    precision_chol: np.ndarray
    by_noise: np.ndarray  # dlogZ / dv of every point


Gaussian = tuple[np.ndarray, np.ndarray, np.ndarray]  # precision of v, precision times mean, Cholesky factor


def fit_inducing(
    kernel: Any, points: TrainingPoints, sparse: Sparse, stop: Stop, start: Sites | None = None
) -> InducingFit:
    """Power EP at a kernel, batch by batch, the posterior made anew in the end; FloatingPointError if there is none."""
    K, X, mean, n = kernel(sparse.Z), points.X, points.mean, len(points.X)
    K[np.diag_indices_from(K)] += JITTER * np.diag(K).max()
    L = _chol(K, "the kernel matrix of the inducing points is not positive definite")
    A = linalg.solve_triangular(L, kernel(sparse.Z, X), lower=True).T
    noise = np.maximum(kernel.diag(X) - np.einsum("ij,ij->i", A, A), 0.0)
    A = np.ascontiguousarray(A)
    terms = Terms(points.data.likelihood, points.data.y, points.data.theta, sparse.power)
    sites = terms.start_sites(start)
    by_noise, damping, last = np.zeros(n), 0.0, np.inf
    P, eta, chol = _natural(A, sites, mean)
    n_iter, worst, left_out = 0, np.inf, 0
    while n_iter < stop.max_iter:
        n_iter += 1
        worst, left_out = 0.0, 0
        for first in range(0, n, sparse.batch):
            rows = slice(first, min(first + sparse.batch, n))
            inverse = linalg.solve_triangular(chol, np.eye(len(chol)), lower=True)
            half = A[rows] @ inverse.T
            f, s = half @ (inverse @ eta), np.einsum("ij,ij->i", half, half)
            before = Sites(*(part[rows].copy() for part in sites))
            change, skipped = terms.refine(first, f + mean, s, sites, damping, noise[rows])
            alpha, beta, v = (part[: f.size] for part in (terms.work.alpha, terms.work.beta, terms.work.v))
            by_noise[rows] = np.where(v > 0.0, 0.5 * (alpha**2 - beta) / sparse.power, 0.0)
            worst, left_out = max(worst, change), left_out + skipped
            P, eta, chol = _step(A[rows], (P, eta, chol), before, Sites(*(part[rows] for part in sites)), mean)
        if worst < stop.tol and not left_out:
            break
        if worst >= last:
            damping = min(1.0 - SLOWER * (1.0 - damping), MOST_DAMPING)
        last = worst
    P, eta, chol = _natural(A, sites, mean)
    v = linalg.cho_solve((chol, True), eta)
    offset = (sites.nu - 0.5 * sites.tau * mean) * mean
    log_evidence = sites.logc.sum() + offset.sum() + 0.5 * (eta @ v) - np.log(np.diag(chol)).sum()
    back = linalg.solve_triangular(L, np.eye(len(P)), lower=True)
    gap = np.eye(len(P)) - linalg.cho_solve((chol, True), np.eye(len(P)))
    functions, converged = Functions(back.T @ v, back.T @ gap @ back), worst < stop.tol and not left_out
    return InducingFit(sites, functions, float(log_evidence), n_iter, converged, A, L, chol, by_noise)


def _natural(A: np.ndarray, sites: Sites, mean: float) -> Gaussian:
    """The posterior of v from all sites."""
    P = A.T @ (sites.tau[:, None] * A)
    P[np.diag_indices_from(P)] += 1.0
    return P, A.T @ (sites.nu - sites.tau * mean), _chol(P)


def _chol(P: np.ndarray, why: str = "the sites leave no Gaussian posterior of the inducing values") -> np.ndarray:
    try:
        return np.asarray(linalg.cholesky(P, lower=True))
    except linalg.LinAlgError:
        raise FloatingPointError(why) from None


def _step(A: np.ndarray, at: Gaussian, before: Sites, sites: Sites, mean: float) -> Gaussian:
    """The posterior of v after a batch's sites moved, with its factor."""
    # Sites of a likelihood that is not log-concave may have negative precisions and, moved all at once, leave none: the
    # step is then halved, in place, until they do, as `fit_sites` does.
    P, eta, chol = at
    for _ in range(MAX_HALVINGS):
        dtau, dnu = sites.tau - before.tau, sites.nu - before.nu
        try:
            return (new := P + A.T @ (dtau[:, None] * A)), eta + A.T @ (dnu - dtau * mean), _chol(new)
        except FloatingPointError:
            for new_part, old_part in zip(sites, before, strict=True):
                new_part[:] = 0.5 * (new_part + old_part)
    for new_part, old_part in zip(sites, before, strict=True):
        new_part[:] = old_part
    return P, eta, chol


class InducingEvidence:
    """Power EP's evidence at kernels, and its gradient at the fixed point; each fit starts at the sites of the last."""

    # With Q = K_fu K_uu^-1 K_uf, the evidence moves by (b b' - R) / 2 with Q, and with d by that of the terms.
    def __init__(self, points: TrainingPoints, sparse: Sparse, stop: Stop):
        self.points, self.sparse, self.stop = points, sparse, stop
        self._sites: Sites | None = None

    def __call__(self, kernel: Any, gradient: bool) -> tuple[float, np.ndarray]:
        fit = fit_inducing(kernel, self.points, self.sparse, self.stop, self._sites)
        self._sites = fit.sites
        if not gradient:
            return fit.log_evidence, np.empty(0)
        X, Z, A, chol, (tau, nu, _) = self.points.X, self.sparse.Z, fit.A, fit.chol, fit.sites
        back = linalg.solve_triangular(chol, np.eye(len(chol)), lower=True)
        P_inverse = linalg.cho_solve((fit.precision_chol, True), np.eye(len(chol)))
        pull = nu - tau * self.points.mean
        b = pull - tau * (A @ (P_inverse @ (A.T @ pull)))
        C = A @ back  # K_fu K_uu^-1
        weighted = tau[:, None] * A
        R_C = tau[:, None] * C - weighted @ (P_inverse @ (weighted.T @ C))
        G_C = 0.5 * (np.outer(b, b @ C) - R_C) - fit.by_noise[:, None] * C
        cross = contract(kernel, X, Z, 2.0 * G_C)
        own = contract(kernel, Z, None, -(C.T @ G_C))
        # the derivative of k(x, x), point by point unless it is the same at all
        some, weight = (X, fit.by_noise) if np.ptp(kernel.diag(X)) > 0.0 else (X[:1], fit.by_noise.sum(keepdims=True))
        each = [contract(kernel, x[None], None, np.array([[w]])) for x, w in zip(some, weight, strict=True)]
        return fit.log_evidence, np.asarray(cross + own + np.sum(each, axis=0))


def inducing_points(X: np.ndarray, n_inducing: int, rng: np.random.Generator) -> np.ndarray:
    """Centres of k-means over a sample of the points, or all distinct points where there are no more."""
    from sklearn.cluster import MiniBatchKMeans

    distinct = np.unique(X, axis=0)
    if n_inducing > len(X):
        fail_value(f"n_inducing must be an integer from 1 to the number of points, {len(X)}; got {n_inducing}.")
    if n_inducing >= len(distinct):
        return distinct
    sample = distinct[rng.permutation(len(distinct))[: max(20_000, 10 * n_inducing)]]
    scale = sample.std(axis=0)
    scale[scale == 0.0] = 1.0
    seed = int(rng.integers(2**31 - 1))
    means = MiniBatchKMeans(n_inducing, random_state=seed, n_init=1, batch_size=2048, max_iter=30).fit(sample / scale)
    return np.asarray(means.cluster_centers_ * scale, dtype=np.float64)
