"""The null model: the law of all entries alike, and what predictions count beside it.

The law is one latent value, and one parameter of the likelihood, fitted to values (`constant_law`). What a model counts
beside it follows from the log scores of both for values that neither had learned. The share w of the mixture
w model + (1 - w) constant is 0 with probability 1/2, since a constant is a model of its own, 1 with probability 1/4,
and else uniform between 0 and 1. Predictions take its posterior mean, which is the best bet on it: over all values that
come, such bets lose no more against the best share in hindsight than the log of about their number. With little
evidence the constant counts most, as it should: the best share of few scores is chance.

Of labels, of which each tells less than a value and costs little more than the constant's log 2, 0 has probability .7,
and the others as much less: bets lose no more than log(1 / .7) against the constant, over all labels.

Source: Cover (1991), Universal portfolios; Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
predictive distributions. The prior is ours.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logit, logsumexp, ndtri

from tensorcep.core.arrays import variance
from tensorcep.core.diagnostics import THRESHOLDS, beyond_chance
from tensorcep.core.packing import offsets
from tensorcep.cp.calibration.holdout import LEAST_SHARE, LEAST_WEIGHT, HeldOut
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.subsets import telling_values
from tensorcep.cp.posterior import Draws
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.ordinal import constant_of, ordinal, shares_of
from tensorcep.likelihoods.parameters.scale_mixture import GroupSums, fitted, student_logpdf
from tensorcep.priors.base import RowPrior
from tensorcep.priors.ou_process import constant_lines

# Values that it is fitted to where there is no formula.
FITTED_ENTRIES = 5000


class ConstantLaw(NamedTuple):
    """A latent value and the parameter of the likelihood."""

    f: float
    theta: float

    def logpdf(self, likelihood: Likelihood, values: np.ndarray, extent: np.ndarray | None = None) -> np.ndarray:
        """Log density or mass (n,) of values, with extents (n,) if they have some."""
        f, v, theta = (np.full(len(values), number) for number in (self.f, 0.0, self.theta))
        f, theta = (f, theta) if extent is None else likelihood.at(f, theta, extent)
        return likelihood.logpdf(values, f, v, theta)


def constant_law(likelihood: Likelihood, y: np.ndarray, start: float, extent: np.ndarray | None = None) -> ConstantLaw:
    """The law that fits values; `start` is its latent value with no parameter or a Gaussian's, elsewhere a guess."""
    parameter = likelihood.parameter
    if parameter is None:
        return ConstantLaw(start, likelihood.default_theta)
    theta = float(np.divide(1.0, variance(y))) if parameter.is_precision else likelihood.default_theta
    if parameter.is_precision and not likelihood.censored:
        return ConstantLaw(start, theta)
    few = slice(None, None, -(-len(y) // FITTED_ENTRIES))
    some, extents = y[few], None if extent is None else extent[few]
    step = theta**-0.5 if parameter.is_precision else 1.0

    def law(x: np.ndarray) -> ConstantLaw:
        return ConstantLaw(start + step * float(x[0]), theta * float(np.exp(x[1])))

    best = minimize(lambda x: -float(law(x).logpdf(likelihood, some, extents).mean()), [0.0, 0.0], method="Nelder-Mead")
    return law(best.x)


SHARES = np.linspace(0.0, 1.0, 51)
# How probable the constant alone is before any score, and before those of labels.
CONSTANT, CONSTANT_OF_LABELS = 0.5, 0.7
# Elements of the arrays that a pass over scores works with.
CHUNK = 1 << 14


def evidence_of_shares(model: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """The log score of all values (n,) by the mixture at each of `SHARES`, beside that of the constant alone."""
    gain, between = model - constant, SHARES[1:-1]
    most, total = np.maximum(gain, 0.0), np.zeros(len(between))
    better, worse = np.exp(gain - most), np.exp(-most)
    for first in range(0, len(gain), CHUNK):
        part = slice(first, first + CHUNK)
        total += np.log(np.outer(between, better[part]) + np.outer(1.0 - between, worse[part])).sum(axis=1)
    return np.concatenate([[0.0], total + most.sum(), [gain.sum()]])


def mean_share(evidence: np.ndarray, chosen: float = 0.0, constant: float = CONSTANT) -> float:
    """The posterior mean of the share; `chosen` numbers were by the same scores (Akaike), `constant` is its prior."""
    half, n_between = 0.5 * (1.0 - constant), len(SHARES) - 2
    prior = np.concatenate([[constant], np.full(n_between, half / n_between), [half]])
    log_weight = np.log(prior) + evidence - chosen * (SHARES > 0.0)
    return float(np.exp(log_weight - logsumexp(log_weight)) @ SHARES)


# How far the predictions of values and labels are shrunk to the constant, by the entries that chains left out.
#
# Chains and quick fits that follow the noise of few entries predict with the right spread, perhaps, but worse than the
# constant. The mean m of all of them is then better multiplied by the slope b of the values left out on it, between 0
# and 1. As few entries with large m can make b large by chance, it counts as b (1 - (se / b)^2), with its standard
# error from the residuals of the entries had each been left out (HC3; MacKinnon and White 1985, Journal of Econometrics
# 29, p. 305). Where nothing is to be shrunk this costs about 1 / (2 n) of the squared error for n entries. Predictions
# are products of rows and err the more the larger they are: se / b is also found with weights 1 / (c^2 + m^2), c being
# the median of |m|, and the larger of both counts. Chains that have found nothing can get the signs of the few largest
# values right.
#
# Labels, levels, and values at a limit, are predicted by a mixture with the constant law, at the share that the log
# scores of those left out tell (above): of few ones they tell little, and the constant then counts most. Values at a
# limit are so at most at the share that the slope leaves, since noise of many sizes can gain log scores, too. Counts
# are such a mixture as well. One far above its mean would cost all that the others gain: of n that were left out the
# constant counts 1 / (n + 1) or more (Laplace's rule of succession, had it been the only one to expect the next one).
#
# In place of a share of the draws come draws that say nothing but the constant, with the noise that it leaves. Latent
# values may be anything that the draws say of them, and of real values at most a share of that noise.

# What is not noise of the variance about the constant is at most this share of it, as of the chains' own
# (`holdout.LEAST_SHARE`).
MOST_DOUBT = 1.0 - LEAST_SHARE
TINY = np.finfo(float).tiny
LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def can_shrink(likelihood: Likelihood) -> bool:
    """Whether predictions can be shrunk: of labels, levels and values, and of counts without structural zeros."""
    return likelihood.learns_precision or likelihood.observes in ("labels", "levels") or likelihood.is_of_rates


def shrink(held: HeldOut, problem: Problem) -> HeldOut:
    """What all together count beside the constant, that constant, and the score of both."""
    likelihood = problem.likelihood
    if likelihood.observes in ("labels", "levels") or likelihood.censored or likelihood.is_of_rates:
        if _main_column(problem.free) is None:  # none that can hold the constant
            return held
        others, exposure = telling_values(problem, held.place)  # of entries that were not left out
        if likelihood.levels is not None:
            link = "logit" if likelihood.levels.logistic else "probit"
            shares = shares_of(others, likelihood.levels.n)
            record = ordinal(link, shares)
            law = ConstantLaw(constant_of(link, shares), record.default_theta)
            held = _beside_law(held, law, problem._replace(likelihood=record))
            return held._replace(constant_theta=record.levels.start) if record.levels is not None else held
        if likelihood.is_of_rates:
            total = float(len(others) if exposure is None else exposure.sum())
            start = float(np.log(max(float(others.sum()), 0.5) / total))
            return _beside_law(held, constant_law(likelihood, others, start, exposure), problem)
        if likelihood.observes == "labels":
            p = (np.count_nonzero(others > 0.0) + 0.5) / (len(others) + 1.0)
            f = float(logit(p) if likelihood.f_is_log_odds else ndtri(p))
            return _beside_law(held, ConstantLaw(f, likelihood.default_theta), problem)
        if not np.ptp(others):
            return held
        return _beside_law(held, constant_law(likelihood, others, float(others.mean())), problem)
    y = held.y if len(held.y) >= THRESHOLDS.fewest else telling_values(problem)[0]  # too few do not tell their square
    law = ConstantLaw(0.0, 1.0 / max(float(np.mean(y**2)), TINY))
    nothing: np.ndarray = 0.5 * np.log(law.theta) - LOG_SQRT_2PI - 0.5 * law.theta * held.y**2
    if problem.uneven is not None and problem.uneven.mode is None and problem.noise_prior is not None:
        prior = problem.noise_prior.a, problem.noise_prior.b
        found = fitted(GroupSums(np.array(1.0), held.y**2), prior, law.theta, 0)
        nothing = student_logpdf(held.y, np.array(found.tau), np.array(found.alpha))
        law, held = ConstantLaw(0.0, found.tau), held._replace(constant_shape=found.alpha)
    return _mix(_with_doubt(held, law, MOST_DOUBT / law.theta), slope_of(held.y, held.mean_of_all), nothing, law)


def _with_doubt(held: HeldOut, law: ConstantLaw, most: float) -> HeldOut:
    """With what no draw could tell of the latent values, at most so much, beside the constant."""
    square = float(np.mean((held.mean_of_all - law.f) ** 2 + held.spread_of_all))
    return held._replace(doubt=min(square, most))


def _beside_law(held: HeldOut, law: ConstantLaw, problem: Problem) -> HeldOut:
    nothing = law.logpdf(problem.likelihood, held.y, np.exp(held.known) if problem.likelihood.is_of_rates else None)
    own: Any = held.weights
    equal = np.ptp(own) == 0.0 and not held.beside.any()
    chosen = 0 if equal else int(np.count_nonzero(own) + np.count_nonzero(held.beside)) - 1
    held = _with_doubt(held, law, MOST_DOUBT / law.theta if problem.noise_prior is not None else np.inf)
    before = CONSTANT_OF_LABELS if problem.likelihood.observes == "labels" else CONSTANT
    share = mean_share(evidence_of_shares(held.score, nothing), chosen, before)
    if problem.likelihood.is_of_rates:  # the next one may be one that nothing but the constant expects
        most = 1.0 - 1.0 / (len(held.y) + 1.0)
        return _mix(held, min(share, most), nothing, law, most)
    if problem.likelihood.censored:
        # log scores gain, too, where draws with noise of many sizes have longer tails than the constant's
        likelihood: Any = problem.likelihood
        noise = float(np.average(held.noise, weights=own if held.alive.size else None))
        mean, _ = likelihood.predict(held.mean_of_all, held.spread_of_all, np.full(len(held.y), 1.0 / noise))
        flat, _ = likelihood.predict(*(np.full(len(held.y), number) for number in (law.f, 0.0, law.theta)))
        y, mean = likelihood.back(held.y) - flat, mean - flat
        share = min(share, 1.0 if beyond_chance(y**2 - (y - mean) ** 2) else slope_of(y, mean))
    return _mix(held, share, nothing, law)


def _mix(
    held: HeldOut, share: float, nothing: np.ndarray, law: ConstantLaw, most: float = 1.0 - LEAST_WEIGHT
) -> HeldOut:
    """All together at a share, above `most` at 1, beside the constant, of which the log densities are `nothing`."""
    if share > most:
        return held
    with np.errstate(divide="ignore"):
        score = np.logaddexp(np.log(share) + held.score, np.log1p(-share) + nothing)
    return held._replace(share=share, score=score, constant=law.f, constant_theta=law.theta)


def slope_of(y: np.ndarray, mean: np.ndarray) -> float:
    """The share of a prediction that counts, between 0 and 1."""
    typical = float(np.median(np.abs(mean)))
    slope, sure = _regress(y, mean, np.ones_like(mean))
    _, also = _regress(y, mean, 1.0 / (typical**2 + mean**2 + TINY))
    return float(np.clip(slope * min(sure, also), 0.0, 1.0))


def _regress(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The slope of y on the mean by weighted least squares, and how much of it its standard error leaves."""
    square = float(weight @ mean**2)
    slope = float(weight @ (y * mean)) / square if square > 0.0 else 0.0
    if slope <= 0.0:
        return 0.0, 0.0
    without = np.maximum(1.0 - weight * mean**2 / square, TINY)  # the residual of an entry that did not tell the slope
    variance = float(np.sum((weight * mean * (y - slope * mean) / without) ** 2)) / square**2
    return slope, max(0.0, 1.0 - variance / slope**2)


def with_constant(draws: Draws, held: HeldOut, free: np.ndarray | None, prior: RowPrior | None = None) -> Draws:
    """Draws of which those that do not count, evenly spread, say nothing but the constant."""
    # their rows, which are large, are changed in place; `free` (K, R) bool tells columns that are not held at 1, None:
    # all; the rows' `prior` may say that some modes are series
    if held.share >= 1.0:
        return draws
    number = np.arange(draws.rows.shape[0] * draws.rows.shape[1]).reshape(draws.rows.shape[:2])
    off = np.floor((number + 1) * (1.0 - held.share)) > np.floor(number * (1.0 - held.share))
    if not off.any() and number.size * (1.0 - held.share) >= 0.5:
        off[-1, -1] = True
    rows, clamped = draws.rows, np.zeros((len(draws.shape), draws.rank)) if free is None else ~free
    one = clamped.astype(rows.dtype)
    column = _main_column(free)
    if column is not None:
        one[0, column] = held.constant
    for line, (a, b) in zip(one, itertools.pairwise(offsets(draws.shape)), strict=True):
        rows[off, a:b] = line
    if draws.unknown is not None:
        draws.unknown[off] = one
    known: dict[str, Any] = {"theta": held.constant_theta, "uneven": (held.constant_theta, held.constant_shape)}
    if draws.drifts is not None and prior is not None:
        lines = [constant_lines(own, row) for own, row in zip(prior.clocks, one, strict=True) if own is not None]
        known["drifts"] = np.concatenate(lines)
    changed = {name: getattr(draws, name).copy() for name in known if getattr(draws, name) is not None}
    for name, own in changed.items():
        own[off] = known[name]
    return draws._replace(doubt=np.where(off, held.doubt, 0.0) if held.doubt > 0.0 else None, **changed)


def _main_column(free: np.ndarray | None) -> int | None:
    """The column of the main effect of the first mode, which can hold the constant; None where there is none."""
    found = np.zeros(0, dtype=int) if free is None else np.flatnonzero(free[0] & (free.sum(axis=0) == 1))
    return int(found[0]) if len(found) else None
