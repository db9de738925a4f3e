"""From a posterior and coordinates to moments and draws of the latent value."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from tensorcep.models.cp import latent_moments, row_moments
from tensorcep.posterior import Posterior, offsets, unpack

CHUNK = 1 << 16


class RowMoments(NamedTuple):
    """Moments of every packed row: mean (n_rows, R) and packed covariance (n_rows, P)."""

    mean: np.ndarray
    cov: np.ndarray


def moments_of_rows(posterior: Posterior) -> RowMoments:
    """Mean and covariance of every factor row.

    Raises
    ------
    FloatingPointError
        If the precision of a row is not positive definite (a damaged posterior; the methods guard against it).
    """
    n, R = posterior.eta.shape
    mean, cov, good = np.empty((n, R)), np.empty_like(posterior.Lam), np.empty(n)
    if n:
        row_moments(0, n, posterior.Lam, posterior.eta, mean, cov, good)
    if not good.all():
        bad = int(np.argmin(good))
        raise FloatingPointError(f"the posterior precision of packed row {bad} is not positive definite; fit again.")
    return RowMoments(mean, cov)


def per_mode(moments: RowMoments, shape: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Means (n_k, R) and covariances (n_k, R, R) of each mode."""
    first = offsets(shape)
    R = moments.mean.shape[1]
    means = [moments.mean[a:b] for a, b in itertools.pairwise(first)]
    covs = [unpack(moments.cov[a:b], R) for a, b in itertools.pairwise(first)]
    return means, covs


def latent(moments: RowMoments, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the latent value at packed rows (n, K); the rows are independent given the data."""
    f, v = np.empty(len(rows)), np.empty(len(rows))
    latent_moments(np.ascontiguousarray(rows), moments.mean, moments.cov, f, v)
    return f, v


def draw_rows(moments: RowMoments, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of every row from the posterior, (n_draws, n_rows, R)."""
    R = moments.mean.shape[1]
    root = np.linalg.cholesky(unpack(moments.cov, R))
    noise = rng.standard_normal((n_draws, *moments.mean.shape))
    return moments.mean + np.einsum("nij,dnj->dni", root, noise)


def draw_latent(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value at packed rows (n, K) in each draw of `draw_rows`: (n_draws, n)."""
    out = np.empty((draws.shape[0], len(rows)))
    for a in range(0, len(rows), CHUNK):
        part = rows[a : a + CHUNK]
        product = draws[:, part[:, 0]]
        for k in range(1, rows.shape[1]):
            product = product * draws[:, part[:, k]]
        out[:, a : a + CHUNK] = product.sum(axis=2)
    return out
