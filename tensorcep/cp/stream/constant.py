"""The constant that the predictions of labels and counts of a stream are held against: one law for all entries.

It is of the likelihood's own family: the share of ones, or counts of the mean so far, with a dispersion of their own
where the likelihood learns one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from tensorcep.likelihoods.record import Likelihood

# Dispersions are looked for between these; the step of the second difference of log r.
RANGE, STEP = (1e-3, 1e4), 0.05
# The least probability of a failure of the constant.
TINY = 1e-6


class LogDispersion(NamedTuple):
    """What is known of log r of the constant: a Gaussian. One to begin with says little."""

    mean: float = 0.0
    precision: float = 0.1

    def after(
        self, likelihood: Likelihood, values: np.ndarray, mean: float, extent: np.ndarray | None = None
    ) -> LogDispersion:
        """The Gaussian after counts (n,) of a known mean: the mode and the curvature there of what both say."""

        def loss(log_r: float) -> float:
            score = float(np.sum(_log_mass(likelihood, values, mean, np.exp(log_r), extent)))
            return 0.5 * self.precision * (log_r - self.mean) ** 2 - score

        best = float(minimize_scalar(loss, bounds=tuple(np.log(RANGE)), method="bounded").x)
        curvature = (loss(best + STEP) - 2.0 * loss(best) + loss(best - STEP)) / STEP**2
        return LogDispersion(best, max(self.precision, curvature))


def is_judged_by_score(likelihood: Likelihood) -> bool:
    """Whether predictions are judged by their log scores; those of real values are by squared errors."""
    return likelihood.observes in ("labels", "counts")


def learns_dispersion(likelihood: Likelihood) -> bool:
    """Whether the constant has a dispersion of its own."""
    return likelihood.observes == "counts" and likelihood.parameter is not None


def share_of_ones(mean: float, seen: int) -> float:
    """The probability of a one after so many labels with this mean."""
    return (mean * seen + 0.5) / (seen + 1.0)


def constant_scores(
    likelihood: Likelihood,
    values: np.ndarray,
    mean: float,
    seen: int,
    known: LogDispersion,
    extent: np.ndarray | None = None,
) -> np.ndarray:
    """Log mass (n,) of labels 0 and 1, or of counts, under the constant after `seen` values with this mean.

    Of counts with extents (n,) the mean is that of an extent of 1.
    """
    if likelihood.observes == "labels":
        p = share_of_ones(mean, seen)
        return np.asarray(np.where(values > 0.5, np.log(p), np.log1p(-p)))
    r = np.exp(known.mean) if learns_dispersion(likelihood) else likelihood.default_theta
    return _log_mass(likelihood, values, max(mean, 0.5 / seen), float(r), extent)


def _log_mass(
    likelihood: Likelihood, values: np.ndarray, mean: float, theta: float, extent: np.ndarray | None
) -> np.ndarray:
    """Log mass of counts of this mean, at an extent of 1.

    The mean of a Poisson count is e^f, its theta being 1, of negative-binomial ones theta e^f, of a trial sigma(f).
    """
    of_trials = likelihood.extent == "trials"
    f = np.log(max(mean, 1e-300)) - (np.log(max(1.0 - mean, TINY)) if of_trials else np.log(theta))
    m, thetas, none = np.full(len(values), f), np.full(len(values), theta), np.zeros(len(values))
    if extent is not None:
        m, thetas = likelihood.at(m, thetas, extent)
    return likelihood.logpdf(values, m, none, thetas)
