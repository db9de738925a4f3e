"""Diagnostics of chains, and whether a gain is more than chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

# Convergence of chains of draws: R-hat and effective sample sizes, of one quantity or of many at once.
# Source: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Rank-normalization, folding, and localization: an
# improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16, p. 667.

TAILS = (0.05, 0.95)


def r_hat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat (...) of draws (n_chains, n_draws, ...): near 1 where chains, in halves, agree."""
    parts = _halves(draws)
    if parts.shape[1] < 2:
        return np.full(draws.shape[2:], np.nan)
    # So chains that differ in location, and in scale, are seen, and heavy tails do no harm.
    distances = np.abs(parts - np.median(_pool(parts), axis=0))
    return np.maximum(_r_hat(_normal_scores(parts)), _r_hat(_normal_scores(distances)))


def bulk_size(draws: np.ndarray) -> np.ndarray:
    """Effective number of independent draws of each quantity's centre; `_size` of the normalised ranks."""
    return _size(_normal_scores(_halves(draws)))


def tail_size(draws: np.ndarray) -> np.ndarray:
    """Effective number of independent draws of each quantity's tails, the smaller one of those beyond 5 % and 95 %."""
    bounds = np.quantile(_pool(draws), TAILS, axis=0)
    lower, upper = (_size(_halves((draws <= bound).astype(float))) for bound in bounds)
    return np.minimum(lower, upper)


def _halves(draws: np.ndarray) -> np.ndarray:
    """The halves of each chain (n_chains, n_draws, ...), as chains; a draw in the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _pool(parts: np.ndarray) -> np.ndarray:
    """The draws (m * n, ...) of all chains (m, n, ...)."""
    return parts.reshape(parts.shape[0] * parts.shape[1], *parts.shape[2:])


def _normal_scores(parts: np.ndarray) -> np.ndarray:
    """Standard normal quantiles of the ranks of draws (m, n, ...), over all chains."""
    flat = _pool(parts)
    ranks = rankdata(flat, axis=0) if flat.size else flat
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(parts.shape)


def _r_hat(parts: np.ndarray) -> np.ndarray:
    """R-hat (...) of chains (m, n, ...); 1 where nothing varies."""
    n = parts.shape[1]
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((n - 1.0) / n + between / within)
    return np.where((within == 0.0) & (between == 0.0), 1.0, ratio)


def _size(parts: np.ndarray) -> np.ndarray:
    """Effective size (...) of chains (m, n, ...), by Fourier transform and Geyer's monotone sequence; nan for n < 2."""
    m, n = parts.shape[:2]
    if n < 2:
        return np.full(parts.shape[2:], np.nan)
    centred = parts - parts.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    autocovariance = np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1.0)
    total = within * (n - 1.0) / n + parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - autocovariance) / total
    rho[0] = 1.0
    even, odd = rho[0 : n - n % 2 : 2], rho[1::2]
    last = max(0, (n - 3) // 2)
    positive = np.cumprod(even[:last] + odd[:last] > 0.0, axis=0)
    pairs = np.minimum.accumulate(np.where(positive, even[:last] + odd[:last], 0.0), axis=0)
    # The first lag after the sequence, which is even, counts once where it is positive.
    after = np.take_along_axis(even, positive.sum(axis=0, dtype=int)[None], axis=0)[0]
    # A chain that alternates may do better than independent draws, but no more than this is credited (Stan's bound).
    time = np.maximum(2.0 * pairs.sum(axis=0) - 1.0 + np.maximum(after, 0.0), 1.0 / np.log10(m * n))
    return np.where(total > 0.0, m * n / time, float(m * n))


class ChoiceThresholds(NamedTuple):
    """How many entries are left out of a choice, and from where on what they say, in nats per entry, decides it."""

    # Of the entries, at least; of small data at most, to have `fewest`; and to have `fewest_of_few`
    share: float = 0.1
    share_of_small: float = 0.2
    share_of_few: float = 1.0 / 3.0
    # Entries that tell noise and choices (50: the noise to a fifth of its value), that tell what was found from a
    # constant, and without which none are left out
    fewest: int = 50
    fewest_of_few: int = 10
    fewest_of_all: int = 4
    # Entries of a stream of which some are left out: its prior is worth more than how surely it is chosen; and of which
    # it is `share_of_small`, `share` of more
    fewest_in_stream: int = 20
    few_in_stream: int = 500
    folds: int = 5  # parts of the entries that are left out in turn
    standard_errors: float = 2.0  # from which on a gain is no chance
    # The same where there are many to choose among, as in spectra, or a choice ends before all entries were asked
    surely: float = 4.0
    # Of log scores that matters; of a stream's fits those that are worse by less have not gone astray: with 0.01 a fit
    # whose start missed what a trial found stood for one
    least_difference: float = 0.01
    # Of the log score by which a quick fit goes on: with 0.01 it ends before chains that start there agree
    least_gain: float = 1e-3
    least_difference_in_stream: float = 0.1
    least_explained: float = 0.05  # the share of the variance that matters
    # Where all but the constant count no more than this, nothing else is predicted, whatever chance says of scores
    least_found: float = 0.02
    # What a power of values gains, whatever their cells, where it is tried: what a standard deviation wrong by a factor
    # of 1.3 would cost. Exponential values gain 0.37, log-normal ones 0.25 where the standard deviation of their
    # logarithms is 0.58.
    least_gain_by_power: float = 0.25
    most_off: float = 2.0  # mean squares of errors that are so many times those of another fit are far off
    # The share of its components that a fit uses where more could find something; the fit by chance leaves some
    mostly: float = 0.8

    def share_of(self, n: int) -> float:
        """The share of n entries to leave out."""
        return max(self.share, min(self.fewest / max(1, n), self.share_of_small))

    def share_in_stream(self, n: int) -> float:
        """The same of the first entries of a stream: with that of fits labels of noise kept a share of 0.34."""
        return self.share if n >= self.few_in_stream else self.share_of_small


THRESHOLDS = ChoiceThresholds()


def beyond_chance(gain: np.ndarray, standard_errors: float = THRESHOLDS.standard_errors) -> bool:
    """Whether the mean of independent gains (n,) lies so many of its standard errors above 0."""
    return bool(gain.mean() > standard_errors * gain.std() / np.sqrt(len(gain)))
