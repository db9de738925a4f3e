"""What predictions count beside a constant law, given the log scores of both for values that neither had learned.

The share w of the mixture w model + (1 - w) constant is 0 with probability .7, since a constant is a model of its own,
1 with probability .15, and else uniform between 0 and 1. Predictions take its posterior mean, which is the best bet on
it: over all values that come, such bets lose no more against the best share in hindsight than the log of about their
number, and against the constant no more than log(1 / .7), since to do worse than it is what nobody forgives. With
little evidence the constant counts most, as it should: the best share of few scores is chance.

Source: Cover (1991), Universal portfolios; Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
predictive distributions. The prior is ours.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

SHARES = np.linspace(0.0, 1.0, 51)
_LOG_PRIOR = np.log(np.concatenate([[0.7], np.full(len(SHARES) - 2, 0.15 / (len(SHARES) - 2)), [0.15]]))
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


def mean_share(evidence: np.ndarray, chosen: float = 0.0) -> float:
    """The posterior mean of the share; `chosen` numbers of the model were chosen by the same scores (Akaike)."""
    log_weight = _LOG_PRIOR + evidence - chosen * (SHARES > 0.0)
    return float(np.exp(log_weight - logsumexp(log_weight)) @ SHARES)
