"""Variance of latent values that a Gaussian posterior of few entries lacks, by what it says of entries left out.

Of few entries a fit that has found little takes what it has not found for noise, or is sure of what it found by chance.
Entries left out do not tell the two apart: they have the noise, too, which holds it already. They tell what
the fit counts beside a constant, as they do for chains (`tensorcep.cp.gibbs.shrinkage`); to the other share latent
values lie about the constant as far as chains that count for nothing let them. Means stay where they are, and so do
predictions of observations: the doubt is of latent values alone.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.loop import LeftOut
from tensorcep.cp.constant_law import ConstantLaw
from tensorcep.cp.extents import known_at
from tensorcep.cp.gibbs.shrinkage import MOST_DOUBT, slope_of
from tensorcep.cp.problem import Problem
from tensorcep.cp.share import CONSTANT, CONSTANT_OF_LABELS, evidence_of_shares, mean_share


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
    beside, most = square + own, np.inf
    if noise is not None:
        beside, most = MOST_DOUBT / law.theta, MOST_DOUBT * noise**2
    return float(np.clip((1.0 - share) * (beside + square - own), 0.0, most))
