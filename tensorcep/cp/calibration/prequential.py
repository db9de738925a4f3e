"""Prequential predictions: how entries were predicted before they were learned, beside one law for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import warn_user
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.cp.calibration.null_model import CONSTANT_OF_LABELS, ConstantLaw, evidence_of_shares, mean_share
from tensorcep.cp.model.entries import OfEach
from tensorcep.cp.model.subsets import LEAST_TELLING, tells
from tensorcep.likelihoods.base import Likelihood

# Entries that predictions are judged by where a warning is due; of those before the last ones only a share.
WARNED, RECENT = 1000, 10_000
# Entries after which what was said of the share of the model counts a third of what it did: a stream goes on learning.
REMEMBERED = 2000
# Predictions that are the constant gain so much an entry by rounding.
ROUNDING = 1e-9
# No entry gains or loses more than this in log score: one that was held for impossible would decide for ever.
MOST = 100.0
# The least log score that is counted, and variance of a constant.
LEAST_SCORE, LEAST_SPREAD = -1e6, 1e-300
# Dispersions are looked for between these; the step of the second difference of log r.
RANGE, STEP = (1e-3, 1e4), 0.05
# The least probability of a failure of the constant.
TINY = 1e-6


class Predicted(NamedTuple):
    """Means, log scores and, where these are asked for, variances (n,) of predictions."""

    mean: np.ndarray
    score: np.ndarray
    variance: np.ndarray | None = None

    def at(self, where: np.ndarray) -> Predicted:
        return Predicted(self.mean[where], self.score[where], None if self.variance is None else self.variance[where])


class LogDispersion(NamedTuple):
    """What is known of log r of the constant: a Gaussian. One to begin with says little."""

    mean: float = 0.0
    precision: float = 0.1

    def after(self, likelihood: Likelihood, values: np.ndarray, mean: float, extent: OfEach = None) -> LogDispersion:
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


def _log_mass(likelihood: Likelihood, values: np.ndarray, mean: float, theta: float, extent: OfEach) -> np.ndarray:
    """Log mass of counts of this mean, at an extent of 1."""
    # the mean of a Poisson count is e^f, its theta being 1, of negative-binomial ones theta e^f, of a trial sigma(f)
    of_trials = likelihood.extent == "trials"
    f = np.log(max(mean, 1e-300)) - (np.log(max(1.0 - mean, TINY)) if of_trials else np.log(theta))
    return ConstantLaw(f, theta).logpdf(likelihood, values, extent)


class Standing(NamedTuple):
    """Predictions of entries before they were learned, beside a constant that is fitted to all earlier values."""

    n: float = 0.0  # entries that were predicted; beyond `RECENT` older ones count less
    # what a prediction gained is a log score for labels and counts, whose errors may be large where they are as
    # expected; for real values a squared error, in units of the constant's
    gain: float = 0.0  # sum of what each prediction gained
    square: float = 0.0  # sum of the squares of that
    seen: int = 0  # values so far
    mean: float = 0.0  # of these
    warned: bool = False  # whether the user was told that nothing is gained
    dispersion: LogDispersion = LogDispersion()  # of the constant, where it has one
    # of labels, what each share of the model beside the constant has gained (`null_model`); empty before any prediction
    shares: tuple[float, ...] = ()
    extent: float = 0.0  # sum of the extents of all values, 1 where they have none: the mean is of an extent of 1
    spread: float = 0.0  # mean square of what real values were apart from the mean of those before them
    change: float = 0.0  # evidence that values which were impossible by what was known are those of a change
    score: float = 0.0  # sum of the log scores of the predictions
    # by how much a fit to the entries before them predicts entries better, in log score of one, where it gains more
    # than twice as much beyond chance, by the last comparison (`tensorcep.cp.stream.cold_start`); 0 elsewhere
    lag: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self.mean * (self.extent or self.seen)

    def after(
        self,
        likelihood: Likelihood,
        values: np.ndarray,
        predicted: Predicted | None = None,
        extent: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> Standing:
        """The standing after entries, with extents and weights if they have some: those that tell are judged."""
        if weight is not None:
            # which may all be light beside those before them
            before = self.extent or float(self.seen)
            told = tells(weight) & (weight >= LEAST_TELLING * before / max(1, self.seen))
            own, said = None if extent is None else extent[told], None if predicted is None else predicted.at(told)
            judged = self.after(likelihood, values[told], said, own) if told.any() else self
            each = weight * (1.0 if extent is None else extent)
            total = before + float(each.sum())
            mean = self.mean + float(np.sum(weight * values - self.mean * each)) / total
            return judged._replace(mean=mean, extent=total)
        each = np.ones(len(values)) if extent is None else extent
        seen, total = self.seen + len(values), (self.extent or float(self.seen)) + float(each.sum())
        mean = self.mean + float(np.sum(values - self.mean * each)) / total
        found = self._replace(seen=seen, mean=mean, extent=total)
        if likelihood.observes == "values":
            apart, before = (values - (self.mean if self.seen else mean)) ** 2, self.seen if self.spread else 0
            found = found._replace(spread=(before * self.spread + float(apart.sum())) / (before + len(values)))
        if likelihood.learns_dispersion:
            found = found._replace(dispersion=self.dispersion.after(likelihood, values, found.mean, extent))
        if predicted is None or not self.seen:
            return found
        if is_judged_by_score(likelihood):
            gain = np.clip(predicted.score - self.constant(likelihood, values, extent), -MOST, MOST)
        else:  # squares, in units of those of the constant: of these values, or, where they are few, of all so far
            apart = (values - self.mean) ** 2
            unit = float(apart.mean()) if len(values) >= THRESHOLDS.fewest_in_stream else found.spread
            if not unit > 0.0:  # the constant leaves nothing to gain
                return found
            gain = (apart - (values - predicted.mean) ** 2) / unit
        left, score = min(1.0, RECENT / (self.n + len(values))), np.fmax(predicted.score, LEAST_SCORE)
        pairs = ((self.n, len(gain)), (self.gain, gain.sum()), (self.square, gain @ gain), (self.score, score.sum()))
        n, total, square, summed = (left * (old + float(new)) for old, new in pairs)
        found = found._replace(n=n, gain=total, square=square, score=summed)
        if likelihood.observes != "labels":
            return found
        before = np.exp(-len(gain) / REMEMBERED) * np.array(self.shares or 0.0)
        return found._replace(shares=tuple((before + evidence_of_shares(gain, np.zeros(len(gain)))).tolist()))

    @property
    def share(self) -> float:
        """What the model counts in predictions of labels; the rest is the constant's."""
        return mean_share(np.array(self.shares), constant=CONSTANT_OF_LABELS) if self.shares else 1.0

    @property
    def share_of_ones(self) -> float:
        """The constant that labels are predicted by."""
        return (self.mean * self.seen + 0.5) / (self.seen + 1.0)

    def mixed(self, likelihood: Likelihood, values: np.ndarray, predicted: Predicted) -> Predicted:
        """The predictions of entries with these values, of which the model alone predicts this."""
        share = self.share
        if share == 1.0:
            return predicted
        score = np.logaddexp(np.log(share) + predicted.score, np.log1p(-share) + self.constant(likelihood, values))
        return Predicted(share * predicted.mean + (1.0 - share) * self.share_of_ones, score)

    def constant(self, likelihood: Likelihood, values: np.ndarray, extent: np.ndarray | None = None) -> np.ndarray:
        """The log scores (n,) of values by one law for all of them, which is fitted to all values so far."""
        # of labels that is the share of ones; of counts, with extents (n,) if they have some, the likelihood's own
        # family with the mean so far, and a dispersion of its own where the likelihood learns one
        if likelihood.observes == "labels":
            p = self.share_of_ones
            return np.asarray(np.where(values > 0.5, np.log(p), np.log1p(-p)))
        if likelihood.observes == "counts":
            r = np.exp(self.dispersion.mean) if likelihood.learns_dispersion else likelihood.default_theta
            return _log_mass(likelihood, values, max(self.mean, 0.5 / self.seen), float(r), extent)
        spread = max(self.spread, LEAST_SPREAD)
        return np.asarray(-0.5 * (np.log(2.0 * np.pi * spread) + (values - self.mean) ** 2 / spread))

    @property
    def is_doubtful(self) -> bool:
        """Whether predictions enough to judge by are no better than a constant, or far worse than a fit's."""
        gains = self.gain > THRESHOLDS.standard_errors * self.square**0.5 + ROUNDING * self.n
        return self.n >= THRESHOLDS.fewest_in_stream and (self.lag > 0.0 or not gains)

    def told(self) -> tuple[Standing, bool]:
        """The standing after a warning, if one is due; and whether it is."""
        due = self.is_doubtful and (self.n >= WARNED or self.lag > 0.0) and not self.warned
        return self._replace(warned=self.warned or due), due

    def figures(self, likelihood: Likelihood) -> dict[str, Any] | None:
        """What a user who was warned of this standing, while it lasts, is told beside it; None otherwise."""
        if not (self.warned and self.is_doubtful):
            return None
        score, gain, error = self.score / self.n, self.gain / self.n, self.square**0.5 / self.n
        found = {"score": score, "n_held_out": int(self.n), "gain_error": error, "constant_score": score - gain}
        if not is_judged_by_score(likelihood):
            constant = -0.5 * (np.log(2.0 * np.pi * max(self.spread, LEAST_SPREAD)) + 1.0)
            found |= {"constant_score": float(constant), "explained": gain, "explained_error": error}
        return found


def warn_of_no_gain(standing: Standing) -> None:
    """Warn that the stream learns nothing, or far less than a fit."""
    sentence = (
        f"the stream predicts its last {standing.n:.0f} entries no better than a constant: its factors are at their "
        "prior; give it more entries, a larger first_batch, another rank or prior, or fit the first entries together."
    )
    if standing.lag > 0.0:
        sentence = (
            "the stream gains less than half of what a fit to its first entries would, beside a constant, and "
            f"{standing.lag:.2g} less in the log score of an entry: what its first batches made of the factors was not "
            "mended; leave the prior open (prior='auto'), or give a larger first_batch."
        )
    warn_user(sentence, ConvergenceWarning)
