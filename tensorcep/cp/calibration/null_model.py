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

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from tensorcep.core.arrays import variance
from tensorcep.likelihoods.base import Likelihood

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
    """The law that fits values y.

    `start` is the latent value where the likelihood has no parameter or is Gaussian; elsewhere a guess.
    """
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

    return law(
        minimize(lambda x: -float(law(x).logpdf(likelihood, some, extents).mean()), [0.0, 0.0], method="Nelder-Mead").x
    )


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
    """The posterior mean of the share; `chosen` numbers of the model were chosen by the same scores (Akaike).

    `constant` is the prior probability of the constant alone.
    """
    half, n_between = 0.5 * (1.0 - constant), len(SHARES) - 2
    prior = np.concatenate([[constant], np.full(n_between, half / n_between), [half]])
    log_weight = np.log(prior) + evidence - chosen * (SHARES > 0.0)
    return float(np.exp(log_weight - logsumexp(log_weight)) @ SHARES)
