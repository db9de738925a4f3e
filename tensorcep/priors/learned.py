"""Learned priors of the factor rows: a Normal-Wishart prior per mode, or a Gamma precision per component (ARD).

The prior of the rows of mode k is N(mu_k, Lam_k^-1). "learned" puts a Normal-Wishart prior on (mu_k, Lam_k); "ard"
keeps mu_k and takes Lam_k diagonal, each component's precision being shared by all modes with a Gamma prior, so that a
component without use shrinks in every mode at once. Both are conjugate: what the methods need follows from first and
second moments of the rows.

Source: Salakhutdinov and Mnih, "Bayesian Probabilistic Matrix Factorization using MCMC", eqs 14-15 (Normal-Wishart);
Zhao, Zhang and Cichocki, "Bayesian CP Factorization of Incomplete Tensors", sec. 3 (ARD). Where we differ: expected
instead of sampled rows serve the deterministic methods, the priors are in units of the data, and rows without entries
are left out (they would only repeat the prior).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, multigammaln

from tensorcep.core.belief import ModePrior
from tensorcep.core.packing import offsets, unpack

KINDS = ("learned", "ard")
# The prior of a mode's mean counts as this many rows, that of its covariance as as many as there are columns: weak,
# but proper for any number of rows. Larger values widen the covariance of a mode whose mean is many deviations from 0.
MEAN_ROWS = 0.1
# Shape and rate of the Gamma prior of an ARD precision, in units of the prior scale.
ARD_SHAPE = 1e-3


class Hyper(NamedTuple):
    """Prior of the rows' priors.

    Attributes
    ----------
    kind : {"learned", "ard"}
    mean : (K, R) float64
        Centre of the prior of mu_k; with "ard" mu_k itself.
    scale : (K, R) float64
        Standard deviation of a factor element to expect.
    free : (K, R) bool
        Columns that are inferred; the others keep the prior that they have.
    component : (K, R) int64 or None
        The component that each column of a mode belongs to, where that is not the column's number.
    strength : float
        How many times as much as by default it counts. Without bound, the rows' prior stays at its expectation.
    """

    kind: str
    mean: np.ndarray
    scale: np.ndarray
    free: np.ndarray
    component: np.ndarray | None = None
    strength: float = 1.0

    @property
    def components(self) -> np.ndarray:
        """The component that each column belongs to, (K, R)."""
        if self.component is None:
            return np.broadcast_to(np.arange(self.free.shape[1]), self.free.shape)
        return self.component


class NormalWishart(NamedTuple):
    """mu | Lam ~ N(mean, (rows * Lam)^-1) and Lam ~ Wishart(df, scatter^-1)."""

    mean: np.ndarray
    rows: float
    df: float
    scatter: np.ndarray


class LearnedPrior(NamedTuple):
    """Posterior of the rows' prior.

    Attributes
    ----------
    modes : tuple of (NormalWishart or None)
        Per mode, None where no column is free; empty with "ard".
    a, b : (R components,)
        Gamma posteriors of the precisions, in units of the prior scale; empty with "learned".
    counts : tuple of int
        Rows of each mode that it was learned from.
    """

    modes: tuple[NormalWishart | None, ...]
    a: np.ndarray
    b: np.ndarray
    counts: tuple[int, ...]


def normal_wishart(hyper: Hyper, k: int, mean: np.ndarray, cov: np.ndarray) -> NormalWishart:
    """Posterior of (mu_k, Lam_k), free columns only, from n rows: their means (n, R) and the sum of their covariances.

    Draws of rows have none: cov is then 0.
    """
    free = hyper.free[k]
    centre, width = hyper.mean[k, free], hyper.scale[k, free]
    n, D = len(mean), int(free.sum())
    m = mean[:, free]
    average = m.mean(axis=0) if n else centre
    apart = average - centre
    rows, strength = hyper.strength * MEAN_ROWS, hyper.strength
    scatter = strength * np.diag(width**2) + cov[np.ix_(free, free)] + (m - average).T @ (m - average)
    scatter += rows * n / (rows + n) * np.outer(apart, apart)
    return NormalWishart((rows * centre + n * average) / (rows + n), rows + n, strength * D + n, scatter)


def ard_precisions(hyper: Hyper, means: list[np.ndarray], covs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Shape and rate (R components) of the posterior of every component's precision, in units of the prior scale."""
    n_components = int(hyper.components.max()) + 1
    a, b = (np.full(n_components, hyper.strength * ARD_SHAPE) for _ in range(2))
    for k, (mean, cov) in enumerate(zip(means, covs, strict=True)):
        square = ((mean - hyper.mean[k]) ** 2).sum(axis=0) + np.diagonal(cov)
        np.add.at(a, hyper.components[k], 0.5 * len(mean) * hyper.free[k])
        np.add.at(b, hyper.components[k], 0.5 * square / hyper.scale[k] ** 2 * hyper.free[k])
    return a, b


def prior_posterior(hyper: Hyper, means: list[np.ndarray], covs: list[np.ndarray]) -> LearnedPrior:
    """Posterior of the rows' prior from the rows that have entries: per mode means (n, R) and a sum of covariances."""
    counts, none = tuple(len(mean) for mean in means), np.zeros(0)
    if hyper.kind == "ard":
        return LearnedPrior((), *ard_precisions(hyper, means, covs), counts)
    found = (normal_wishart(hyper, k, means[k], covs[k]) if free.any() else None for k, free in enumerate(hyper.free))
    return LearnedPrior(tuple(found), none, none, counts)


def expectation(hyper: Hyper, now: ModePrior, found: LearnedPrior) -> ModePrior:
    """E[Lam_k] and E[Lam_k]^-1 E[Lam_k mu_k] of the free columns; the others keep their present prior `now`."""
    if hyper.kind == "ard":
        return _with_diagonal(hyper, now, found.a / found.b)
    mean, precision = now.mean.copy(), now.precision.copy()
    for k, q in enumerate(found.modes):
        if q is not None:
            free = hyper.free[k]
            mean[k, free] = q.mean
            precision[k][np.ix_(free, free)] = q.df * _inverse(q.scatter)
    return ModePrior(mean, precision)


def expected_prior(hyper: Hyper, now: ModePrior, means: list[np.ndarray], covs: list[np.ndarray]) -> ModePrior:
    """The rows' prior under the posterior of its parameters (see `prior_posterior` and `expectation`)."""
    return expectation(hyper, now, prior_posterior(hyper, means, covs))


def bound_of_prior(hyper: Hyper, found: LearnedPrior) -> float:
    """What a learned prior adds to a lower bound that takes its expectation for the rows' prior.

    The rows' expected log prior is that of the expectation plus (E[log|Lam_k|] - log|E[Lam_k]| - E[(mu_k - E mu_k)'
    Lam_k (mu_k - E mu_k)]) / 2 per row; the divergence of the posterior `found` from its own prior comes off. This
    holds for any `found`, whether or not the rows have changed since.
    """
    if hyper.kind == "ard":
        shape = hyper.strength * ARD_SHAPE
        used = np.zeros(len(found.a))
        for k, n in enumerate(found.counts):
            np.add.at(used, hyper.components[k], n * hyper.free[k])
        a, b = found.a, found.b
        divergence = (a - shape) * digamma(a) - gammaln(a) + gammaln(shape)
        divergence += shape * np.log(b / shape) + a * (shape - b) / b
        return float((0.5 * used * (digamma(a) - np.log(a)) - divergence).sum())
    total = 0.0
    for k, (q, n) in enumerate(zip(found.modes, found.counts, strict=True)):
        if q is not None:
            before, D = _without_rows(hyper, k), len(q.mean)
            dispersed = _expected_log_det(q) - np.linalg.slogdet(q.df * _inverse(q.scatter))[1]
            total += 0.5 * n * (dispersed - D / q.rows) - _divergence(q, before)
    return total


def _without_rows(hyper: Hyper, k: int) -> NormalWishart:
    R = hyper.free.shape[1]
    return normal_wishart(hyper, k, np.zeros((0, R)), np.zeros((R, R)))


def _expected_log_det(q: NormalWishart) -> float:
    """E[log |Lam|]."""
    D = len(q.mean)
    half = 0.5 * (q.df - np.arange(D))
    return float(digamma(half).sum() + D * np.log(2.0) - np.linalg.slogdet(q.scatter)[1])


def _divergence(q: NormalWishart, p: NormalWishart) -> float:
    """KL of two Normal-Wisharts: that of the Wisharts, and the expected one of the Gaussians given Lam."""
    D, apart = len(q.mean), q.mean - p.mean
    expected = q.df * _inverse(q.scatter)
    log_det_q, log_det_p = (np.linalg.slogdet(x.scatter)[1] for x in (q, p))
    wisharts = 0.5 * (q.df - p.df) * _expected_log_det(q) + 0.5 * np.einsum("ij,ji->", expected, p.scatter)
    wisharts += 0.5 * (q.df * log_det_q - p.df * log_det_p) - 0.5 * D * (q.df + np.log(2.0) * (q.df - p.df))
    wisharts += multigammaln(0.5 * p.df, D) - multigammaln(0.5 * q.df, D)
    ratio = p.rows / q.rows
    gaussians = 0.5 * (D * (ratio - np.log(ratio) - 1.0) + p.rows * apart @ expected @ apart)
    return float(wisharts + gaussians)


def sampled_prior(hyper: Hyper, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
    """Draw the rows' prior given draws of the rows, (n_k, R) per mode."""
    none = np.zeros((now.mean.shape[1],) * 2)
    if hyper.kind == "ard":
        a, b = ard_precisions(hyper, rows, [none] * len(rows))
        return _with_diagonal(hyper, now, rng.gamma(a) / b)
    mean, precision = now.mean.copy(), now.precision.copy()
    for k, free in enumerate(hyper.free):
        if free.any():
            mean[k, free], precision[k][np.ix_(free, free)] = _draw(normal_wishart(hyper, k, rows[k], none), rng)
    return ModePrior(mean, precision)


def _draw(q: NormalWishart, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw (mu, Lam), by Bartlett's decomposition: scipy's Wishart takes several times as long as the rows of Enron."""
    D = len(q.mean)
    lower = np.tril(rng.standard_normal((D, D)), -1)
    lower[np.diag_indices(D)] = np.sqrt(rng.chisquare(q.df - np.arange(D)))
    root = np.linalg.solve(np.linalg.cholesky(q.scatter).T, lower)  # Lam = root root'
    return q.mean + np.linalg.solve(root.T, rng.standard_normal(D)) / np.sqrt(q.rows), root @ root.T


def _with_diagonal(hyper: Hyper, now: ModePrior, relative: np.ndarray) -> ModePrior:
    precision = now.precision.copy()
    for k, free in enumerate(hyper.free):
        precision[k][np.ix_(free, free)] = np.diag((relative[hyper.components[k]] / hyper.scale[k] ** 2)[free])
    return ModePrior(np.where(hyper.free, hyper.mean, now.mean), precision)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    inverse = np.linalg.inv(matrix)
    return 0.5 * (inverse + inverse.T)


def moments_per_mode(
    mean: np.ndarray, cov: np.ndarray, seen: np.ndarray, shape: tuple[int, ...]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Means (n, R) of the rows of each mode that have entries, and the sum of their covariances (R, R)."""
    first = offsets(shape)
    rows = [a + np.flatnonzero(seen[a:b]) for a, b in itertools.pairwise(first)]
    return [mean[i] for i in rows], [unpack(cov[i].sum(axis=0), mean.shape[1]) for i in rows]


def damped(old: ModePrior, new: ModePrior, step: float) -> ModePrior:
    """The fraction `step` of the way from the old to the new natural parameters."""
    if step == 1.0:
        return new
    precision = old.precision + step * (new.precision - old.precision)
    natural_old, natural_new = (np.einsum("kij,kj->ki", p.precision, p.mean) for p in (old, new))
    natural = natural_old + step * (natural_new - natural_old)
    return ModePrior(np.linalg.solve(precision, natural[..., None])[..., 0], precision)
