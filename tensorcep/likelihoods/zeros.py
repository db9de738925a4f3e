"""Structural zeros of counts: an entry is 0, whatever its latent value, with a probability that is learned.

P(y | f) = pi [y = 0] + (1 - pi) p(y | f), the share pi having a Beta prior. Given which zeros are structural, the
others are counts of the likelihood p, and pi is known by how many there are of each. A zero is not structural with the
probability (1 - pi) p(0 | f) / P(0 | f): samplers draw that, mean-field methods take it as the weight of the entry.

Source: Lambert (1992), Zero-inflated Poisson regression, Technometrics 34; Neelon (2019), Bayesian zero-inflated
negative binomial regression based on Polya-Gamma mixtures, Bayesian Analysis 14, for the sampler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import entr, expit

from tensorcep.core.betas import Beta


class Zeros(NamedTuple):
    """What is learned of structural zeros: their share, by its Beta prior, and where it starts."""

    prior: tuple[float, float] = (1.0, 1.0)
    start: float = 0.1

    def first_law(self, n: int) -> Beta:
        """The law to begin with, of n entries."""
        return self.law_of(n * self.start, n * (1.0 - self.start))

    def law_of(self, n_structural: float, n_others: float) -> Beta:
        """The law given how many entries are structural zeros, and how many are not."""
        return Beta(self.prior[0] + n_structural, self.prior[1] + n_others)


def with_zeros(y: np.ndarray, log_mass: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """log P(y) of counts with a share of structural zeros, from the log mass of the others."""
    with np.errstate(divide="ignore"):
        own, log_share = np.log1p(-np.asarray(share)) + log_mass, np.log(share)
    return np.where(y > 0.0, own, np.logaddexp(log_share, own))


def presence(y: np.ndarray, log_mass: np.ndarray, share: float) -> np.ndarray:
    """The probability that each count is no structural zero, from the log mass of such at its latent value."""
    return np.where(y > 0.0, 1.0, expit(np.log1p(-share) - np.log(share) + log_mass))


def weigh(
    y: np.ndarray, moments: tuple[np.ndarray, np.ndarray], law: Beta, parts: tuple[np.ndarray, ...]
) -> np.ndarray:
    """Weigh what entries say by the probability, which is returned, that they are no structural zeros; in place.

    Parameters
    ----------
    y : array
    moments : tuple of two arrays like y
        E[f] and E[f^2].
    law : Beta
        Of the share.
    parts : tuple of four arrays like y
        Weight, target, spread and constant of `Augmentation.expected`. To the constant is added what the indicators add
        to a lower bound: their entropy and their expected log probability.
    """
    weight, target, _, constant = parts
    log_share, log_rest = law.log_means
    log_mass = constant + target * moments[0] - 0.5 * weight * moments[1]
    present = np.where(y > 0.0, 1.0, expit(log_rest - log_share + log_mass))
    for part in parts:
        part *= present
    constant += present * log_rest + (1.0 - present) * log_share + entr(present) + entr(1.0 - present)
    return present
