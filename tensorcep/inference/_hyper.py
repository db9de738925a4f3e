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
from scipy.stats import wishart

from tensorcep.posterior import ModePrior, offsets, unpack

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
    """

    kind: str
    mean: np.ndarray
    scale: np.ndarray
    free: np.ndarray


class NormalWishart(NamedTuple):
    """mu | Lam ~ N(mean, (rows * Lam)^-1) and Lam ~ Wishart(df, scatter^-1)."""

    mean: np.ndarray
    rows: float
    df: float
    scatter: np.ndarray


def normal_wishart(hyper: Hyper, k: int, mean: np.ndarray, cov: np.ndarray) -> NormalWishart:
    """Posterior of (mu_k, Lam_k), free columns only, from the moments of n rows: mean (n, R) and cov (n, R, R).

    Draws of rows have cov = 0.
    """
    free = hyper.free[k]
    centre, width = hyper.mean[k, free], hyper.scale[k, free]
    n, D = len(mean), int(free.sum())
    m = mean[:, free]
    average = m.mean(axis=0) if n else centre
    apart = average - centre
    scatter = np.diag(width**2) + cov.sum(axis=0)[np.ix_(free, free)] + (m - average).T @ (m - average)
    scatter += MEAN_ROWS * n / (MEAN_ROWS + n) * np.outer(apart, apart)
    return NormalWishart((MEAN_ROWS * centre + n * average) / (MEAN_ROWS + n), MEAN_ROWS + n, D + n, scatter)


def ard_precisions(hyper: Hyper, means: list[np.ndarray], covs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Shape and rate (R,) of the posterior of every component's precision, in units of the prior scale."""
    a, b = np.full(hyper.free.shape[1], ARD_SHAPE), np.full(hyper.free.shape[1], ARD_SHAPE)
    for k, (mean, cov) in enumerate(zip(means, covs, strict=True)):
        square = ((mean - hyper.mean[k]) ** 2).sum(axis=0) + np.einsum("nrr->r", cov)
        a += 0.5 * len(mean) * hyper.free[k]
        b += 0.5 * square / hyper.scale[k] ** 2 * hyper.free[k]
    return a, b


def expected_prior(hyper: Hyper, now: ModePrior, means: list[np.ndarray], covs: list[np.ndarray]) -> ModePrior:
    """The rows' prior under the posterior of its parameters: E[Lam_k] and E[Lam_k]^-1 E[Lam_k mu_k].

    Parameters
    ----------
    hyper : Hyper
    now : ModePrior
        Present prior, which columns that are not free keep.
    means, covs : list of (n, R) and (n, R, R), one item per mode
        Moments of the rows that have entries.
    """
    if hyper.kind == "ard":
        a, b = ard_precisions(hyper, means, covs)
        return _with_diagonal(hyper, now, a / b)
    mean, precision = now.mean.copy(), now.precision.copy()
    for k, free in enumerate(hyper.free):
        if free.any():
            found = normal_wishart(hyper, k, means[k], covs[k])
            mean[k, free] = found.mean
            precision[k][np.ix_(free, free)] = found.df * _inverse(found.scatter)
    return ModePrior(mean, precision)


def sampled_prior(hyper: Hyper, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
    """Draw the rows' prior given draws of the rows, (n_k, R) per mode."""
    none = [np.zeros((len(values), values.shape[1], values.shape[1])) for values in rows]
    if hyper.kind == "ard":
        a, b = ard_precisions(hyper, rows, none)
        return _with_diagonal(hyper, now, rng.gamma(a) / b)
    mean, precision = now.mean.copy(), now.precision.copy()
    for k, free in enumerate(hyper.free):
        if free.any():
            found = normal_wishart(hyper, k, rows[k], none[k])
            D = len(found.mean)
            drawn = np.reshape(wishart.rvs(found.df, _inverse(found.scatter), random_state=rng), (D, D))
            root = np.linalg.cholesky(found.rows * drawn)
            mean[k, free] = found.mean + np.linalg.solve(root.T, rng.standard_normal(D))
            precision[k][np.ix_(free, free)] = drawn
    return ModePrior(mean, precision)


def _with_diagonal(hyper: Hyper, now: ModePrior, relative: np.ndarray) -> ModePrior:
    precision = now.precision.copy()
    for k, free in enumerate(hyper.free):
        precision[k][np.ix_(free, free)] = np.diag((relative / hyper.scale[k] ** 2)[free])
    return ModePrior(np.where(hyper.free, hyper.mean, now.mean), precision)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    inverse = np.linalg.inv(matrix)
    return 0.5 * (inverse + inverse.T)


def moments_per_mode(
    mean: np.ndarray, cov: np.ndarray, seen: np.ndarray, shape: tuple[int, ...]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Means (n, R) and covariances (n, R, R) of the rows of each mode that have entries, from packed rows."""
    first = offsets(shape)
    rows = [a + np.flatnonzero(seen[a:b]) for a, b in itertools.pairwise(first)]
    return [mean[i] for i in rows], [unpack(cov[i], mean.shape[1]) for i in rows]


def damped(old: ModePrior, new: ModePrior, step: float) -> ModePrior:
    """The fraction `step` of the way from the old to the new natural parameters."""
    if step == 1.0:
        return new
    precision = old.precision + step * (new.precision - old.precision)
    natural_old, natural_new = (np.einsum("kij,kj->ki", p.precision, p.mean) for p in (old, new))
    natural = natural_old + step * (natural_new - natural_old)
    return ModePrior(np.linalg.solve(precision, natural[..., None])[..., 0], precision)
