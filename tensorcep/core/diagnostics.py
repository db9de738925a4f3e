"""Convergence of chains of draws: split R-hat and effective sample size, of one quantity or of many at once."""

from __future__ import annotations

import numpy as np


def split_r_hat(draws: np.ndarray) -> np.ndarray:
    """Split R-hat of each quantity: near 1 when the chains, and the halves of each, agree.

    Parameters
    ----------
    draws : (n_chains, n_draws, ...) float64
        At least four draws of each chain.

    Returns
    -------
    (...) float64; nan for fewer draws, 1 for a quantity that does not vary.

    Source: Gelman et al. (2013), Bayesian Data Analysis, 3rd ed., sec. 11.4.
    """
    half = draws.shape[1] // 2
    if half < 2:
        return np.full(draws.shape[2:], np.nan)
    parts = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((half - 1.0) / half + between / within)
    return np.where((within == 0.0) & (between == 0.0), 1.0, ratio)


def effective_size(draws: np.ndarray) -> np.ndarray:
    """Effective number of independent draws of each quantity, over all chains.

    Parameters
    ----------
    draws : (n_chains, n_draws, ...) float64

    Returns
    -------
    (...) float64; nan for fewer than four draws a chain, the number of draws for a quantity that does not vary.

    Source: Gelman et al. (2013), Bayesian Data Analysis, 3rd ed., sec. 11.5: split chains, autocorrelations through the
    Fourier transform, Geyer's initial monotone sequence.
    """
    half = draws.shape[1] // 2
    if half < 2:
        return np.full(draws.shape[2:], np.nan)
    parts = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    m, n = parts.shape[:2]
    centred = parts - parts.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    autocovariance = np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1.0)
    total = within * (n - 1.0) / n + parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - autocovariance) / total
    rho[0] = 1.0
    even = n - n % 2
    pairs = rho[0:even:2] + rho[1:even:2]
    pairs = np.where(np.cumprod(pairs > 0.0, axis=0), pairs, 0.0)
    pairs = np.minimum.accumulate(pairs, axis=0)
    # A chain that alternates may do better than independent draws, but no more than this is credited (Stan's bound).
    time = np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / np.log10(m * n))
    return np.where(total > 0.0, m * n / time, float(m * n))
