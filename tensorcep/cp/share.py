"""What predictions count beside a constant law, given the log scores of both for values that neither had learned.

The share w of the mixture w model + (1 - w) constant is 0 with probability 1/2, since a constant is a model of its own,
1 with probability 1/4, and else uniform between 0 and 1. Predictions take its posterior mean, which is the best bet on
it: over all values that come, such bets lose no more against the best share in hindsight than the log of about their
number. With little evidence the constant counts most, as it should: the best share of few scores is chance.

Of labels, of which each tells less than a value and costs little more than the constant's log 2, 0 has probability .7,
and the others as much less: bets lose no more than log(1 / .7) against the constant, over all labels.

Source: Cover (1991), Universal portfolios; Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
predictive distributions. The prior is ours.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

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
