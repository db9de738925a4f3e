"""Variance of latent values that a Gaussian posterior of few entries lacks, by what it says of entries left out.

Of few entries a fit that has found little takes what it has not found for noise, or is sure of what it found by chance.
Entries left out do not tell the two apart: they have the noise, too, which holds it already. They tell what
the fit counts beside a constant, as they do for chains (`tensorcep.cp.gibbs.shrinkage`); to the other share latent
values lie about the constant as far as the observations let them. Of labels, that is anywhere: every chance between 0
and 1 is then as likely as another, and latent values have the law of a label's noise. Counts whose dispersion is not
learned vary more than one of one mean would, by what latent values vary; before, every share of these beside the noise
of a count is as likely as another, of which the relative variance is at most 1, as it is of labels. Elsewhere latent
values are as far off as the fit and its means are. Means stay where they are, and so do predictions of observations:
the doubt is of latent values alone.

Source: Christiansen and Morris (1997), Hierarchical Poisson regression modeling, for the prior of counts.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from tensorcep.core.loop import LeftOut
from tensorcep.cp.constant_law import ConstantLaw
from tensorcep.cp.extents import known_at
from tensorcep.cp.gibbs.shrinkage import MOST_DOUBT, is_of_rates, slope_of
from tensorcep.cp.problem import Problem
from tensorcep.cp.share import CONSTANT, CONSTANT_OF_LABELS, evidence_of_shares, mean_share
from tensorcep.cp.telling import places_telling

# Relative variances of rates: the least beside that of a count, and the most.
LEAST_SPREAD, MOST_SPREAD = 0.01, 50.0


def doubt_of(
    told: LeftOut, scores: tuple[np.ndarray, np.ndarray], law: ConstantLaw, problem: Problem, noise: float | None
) -> float:
    """The variance to add to latent values.

    Parameters
    ----------
    told : LeftOut
        What the fit, or one like it, says of entries that it was not given.
    scores : (n,) float64, (n,) float64
        Their log scores by it, and by a constant.
    law : ConstantLaw
        The constant.
    problem : Problem
    noise : float or None
        The fit's standard deviation of Gaussian noise, which holds the doubt.
    """
    off = told.mean - known_at(problem, told.place) - law.f
    before = CONSTANT_OF_LABELS if problem.likelihood.observes == "labels" else CONSTANT
    share = mean_share(evidence_of_shares(*scores), constant=before)
    if problem.noise_prior is not None and not problem.likelihood.censored:
        # scores gain by another spread, too; the slope, by the signs of what are next to constants
        share = min(share, slope_of(problem.entries.y.ravel()[told.place] - law.f, off))
    square, own = float(np.mean(off**2)), float(np.mean(told.variance))
    beside, most = _about_constant(law, problem, square + own), np.inf
    if noise is not None:
        beside, most = MOST_DOUBT / law.theta, MOST_DOUBT * noise**2
    return float(np.clip((1.0 - share) * (beside + square - own), 0.0, most))


def _about_constant(law: ConstantLaw, problem: Problem, otherwise: float) -> float:
    """The mean square of latent values about the constant where nothing is known of them but what values they have."""
    likelihood = problem.likelihood
    if likelihood.observes == "labels":
        return np.pi**2 / 3.0 if likelihood.f_is_log_odds else 1.0
    if likelihood.parameter is not None or not is_of_rates(likelihood):
        return otherwise
    place = places_telling(problem)
    y, f = problem.entries.y.ravel()[place], np.full(len(place), law.f) + known_at(problem, place)
    theta = np.full_like(f, law.theta)
    mean, variance = likelihood.predict(np.full(1, law.f), np.zeros(1), theta[:1])
    noise = min(1.0, float(variance[0] / mean[0] ** 2))
    spread = np.geomspace(LEAST_SPREAD * noise, MOST_SPREAD, 64)  # relative variances of rates
    share, variances = spread / (spread + noise), np.log1p(spread)
    evidence = [likelihood.logpdf(y, f - 0.5 * v, np.full_like(f, v), theta).sum() for v in variances]
    weight = softmax(evidence + np.log(share * (1.0 - share)))  # shares are uniform, the steps those of log spread
    return float(weight @ (variances + 0.25 * variances**2))
