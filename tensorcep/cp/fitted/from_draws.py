"""A Gaussian of every row that says what a sampler's draws say, for a stream to go on from.

Draws are aligned, and each row gets the mean and covariance of those that have the same components. That says what all
draws say only where these agree on the components; `left_over` tells how much is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.packing import offsets, pack
from tensorcep.cp.fitted.alignment import CHUNK, Aligned, RowLayout, aligned_rows, layout_of
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.fitted.predict import latent
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.posterior.belief import Dispersion, Draws, GammaNoise, Posterior
from tensorcep.cp.posterior.components import Components

# The share of the variance of the latent values that a summary may miss.
MOST_LEFT = 0.1


class GaussianSummary(NamedTuple):
    """What a stream begins with: the posterior, and mean (K, R) and covariance (K, R, R) of unknown rows."""

    posterior: Posterior
    mean: np.ndarray
    cov: np.ndarray


def summary_of(
    draws: Draws,
    belief: Components,
    found: Aligned,
    covs: list[np.ndarray],
    layout: RowLayout,
    free: np.ndarray,
    laws: tuple[GammaNoise | None, Dispersion | None],
) -> GaussianSummary:
    """The summary of draws whose alignment was found, with the covariances `covs` of the rows of each mode.

    `free` is (K, R) bool, the columns that are not clamped to 1; `laws` are those of the likelihood's parameter.
    """
    unknown = _unknown_rows(draws, belief, found, free)
    n, mean = int(found.like.sum()), unknown.mean(axis=0)
    centred = unknown - mean
    cov = np.einsum("dki,dkj->kij", centred, centred) / max(1, n - 1)
    parts = [
        _natural(found.mean[own], each, columns, n) for own, each, columns in zip(layout.rows, covs, free, strict=True)
    ]
    Lam, eta = (np.concatenate(part) for part in zip(*parts, strict=True))
    posterior = Posterior(draws.shape, draws.rank, Lam, eta, laws[0], draws.seen, laws[1])
    cov = np.stack([_proper(one[None], n)[0] for one in cov])
    return GaussianSummary(posterior, np.where(free, mean, 1.0), _clamped(cov, free))


def left_over(belief: Components, summary: GaussianSummary, rows: np.ndarray) -> float:
    """What the summary misses of the means of the latent values at packed rows (n, K), as a share of their variance."""
    mean, variance = latent(belief, rows)
    apart = mean - latent(summary.posterior.components(), rows)[0]
    return float(np.mean(apart**2) / max(float(np.var(mean) + np.mean(variance)), np.finfo(float).tiny))


def _unknown_rows(draws: Draws, belief: Components, found: Aligned, free: np.ndarray) -> np.ndarray:
    """Draws (n, K, R) of one more row of each mode, in the columns of the aligned ones."""
    ends, total = offsets(draws.shape)[1:], sum(draws.shape)
    modes = [tuple(np.flatnonzero(column).tolist()) for column in free.T]
    longer = layout_of([size + 1 for size in draws.shape], modes, np.insert(draws.seen, ends, False))
    reference, places = np.insert(found.reference, ends, 0.0, axis=0), ends + np.arange(len(ends))
    like = np.flatnonzero(found.like)
    size = max(1, CHUNK // max(1, reference.size))
    result = []
    for a in range(0, len(like), size):
        part = belief.mean[like[a : a + size]].astype(np.float64)
        both = np.insert(part[:, :total], ends, part[:, total:], axis=1)
        result.append(aligned_rows(both, reference, longer)[:, places])
    return np.concatenate(result)


def _proper(cov: np.ndarray, n_draws: int) -> np.ndarray:
    """Covariances (n, d, d) of few draws made positive definite: correlations count as one more draw per column less.

    No variance is below that of a clamped column.
    """
    d = cov.shape[1]
    variance = np.maximum(np.diagonal(cov, axis1=1, axis2=2), 1.0 / CLAMPED)
    cov = cov * (max(0, n_draws - 1) / (max(0, n_draws - 1) + d))
    cov[:, np.arange(d), np.arange(d)] = variance
    return cov


def _natural(mean: np.ndarray, cov: np.ndarray, free: np.ndarray, n_draws: int) -> Natural:
    """Natural parameters of rows with these moments, (n, R) and (n, R, R), in all columns."""
    f = np.flatnonzero(free)
    cov = _proper(cov[:, f[:, None], f[None, :]], n_draws)
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    scale = sd[:, :, None] * sd[:, None, :]
    Lam = np.linalg.inv(cov / scale) / scale
    Lam = 0.5 * (Lam + Lam.swapaxes(1, 2))
    return in_all(Natural(pack(Lam), np.einsum("nij,nj->ni", Lam, mean[:, f])), free)


def _clamped(cov: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Covariances (K, R, R) whose clamped columns vary as little as they may, and with no other."""
    both = free[:, :, None] & free[:, None, :]
    return np.where(both, cov, 0.0) + np.where(free, 0.0, 1.0 / CLAMPED)[:, :, None] * np.eye(free.shape[1])


def laws_of(draws: Draws, is_precision: bool, n_entries: int) -> tuple[GammaNoise | None, Dispersion | None]:
    """Gamma laws with the moments of the draws of the likelihood's parameter; none knows more than the entries tell."""
    if draws.theta is None:
        return None, None
    theta = draws.theta.reshape(-1, draws.theta.shape[-1])
    mean, most = theta.mean(axis=0), 0.5 * n_entries + 1.0
    a = np.minimum(mean**2 / np.maximum(theta.var(axis=0), mean**2 / most), most)
    if is_precision:
        return GammaNoise(float(a[0]), float(a[0] / mean[0])), None
    return None, Dispersion(draws.theta_mode, a, a / mean)
