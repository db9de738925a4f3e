"""Whether counts vary more than Poisson ones about a cheap fit of main effects, and by how much."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.checks import warn_user
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import presence

# Rounds of fitting the margins in turn; each row's effect is that of its counts and one more at the mean.
ROUNDS = 10
# Standard errors of the score of Poisson counts from which they count as overdispersed.
CLEAR = 3.0
# An entry's leverage counts as at most so much. A count above FEW that has it was explained by effects of its own.
MOST_LEVERAGE, FEW = 0.9, 2.0
# Counts whose variance is a smaller share of Poisson ones' get intervals that hold much more than they should: nominal
# 90 % hold 97 % at this share. It is told of entries whose means follow themselves by less than HALF.
EVEN, HALF = 0.6, 0.5
# Counts of so small a mean are often 1 or more because those of 0 were not written down.
TRUNCATED = 5.0
# Dispersions at which a fit may start.
STARTS = (0.05, 100.0)
# A count that is so many times as large as all others together is told of.
WILD = 100.0


class Overdispersion(NamedTuple):
    """The score of overdispersion in standard errors, the r that explains it, and the share of structural zeros.

    `blind` says whether there are counts of which the score cannot tell: their rows have little else. `spread` is the
    variance as a share of that of Poisson counts where it is clearly less, else 1.
    """

    score: float
    r: float
    share: float = 0.0
    blind: bool = False
    spread: float = 1.0

    @property
    def clear(self) -> bool:
        """Whether Poisson counts would not vary so much."""
        return self.score > CLEAR

    @property
    def possible(self) -> bool:
        """Whether they vary more, or may: one that is far above its mean costs Poisson counts hundreds of nats."""
        return self.clear or self.blind


def log_linear_means(
    coords: np.ndarray, y: np.ndarray, exposure: np.ndarray, inflated: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means (n,) of counts with main effects alone, mu = exposure c prod_k a_k[i_k], fitted to margins.

    With `inflated` zeros may be structural (by EM, Lambert 1992); the probability (n,) that each count is not comes
    second. Last is how far each mean follows its own count (n,), the leverage.
    """
    mu, present = exposure * max(float(y.mean()), 0.5 / len(y)), np.ones(len(y))
    share = 0.5 * float(np.mean(y == 0.0))
    for _ in range(ROUNDS):
        if inflated and share > 0.0:
            present = presence(y, -mu, share)
            share = 1.0 - float(present.mean())
        for column in coords.T:
            expected = np.bincount(column, weights=present * mu)
            mu *= ((np.bincount(column, weights=y) + 1.0) / (expected + 1.0))[column]
    told = [np.bincount(column, weights=present * mu)[column] + 1.0 for column in coords.T]
    return mu, present, np.minimum(sum(present * mu / own for own in told), MOST_LEVERAGE)


def overdispersion_of(
    coords: np.ndarray, y: np.ndarray, exposure: np.ndarray | None = None, inflated: bool = False
) -> Overdispersion:
    """How much counts, of exposures with mean 1, vary beyond Poisson ones about main effects.

    What components would explain counts as variation too: the dispersion is the least that fits need. With `inflated`
    it is that of counts which are no structural zeros. The score is of errors, of which residuals are a part only where
    a mean follows its own count: of few entries per row main effects explain much by chance. That of residuals alone
    is the dispersion, so that fits begin where components may explain most.

    Source: Dean and Lawless (1989), Tests for detecting overdispersion in Poisson regression models.
    """
    order = np.lexsort((y, *coords.T))  # sums then do not depend on the order of the input
    coords, y, exposure = coords[order], y[order], np.ones(len(y)) if exposure is None else exposure[order]
    mu, present, leverage = log_linear_means(coords, y, exposure, inflated)
    errors, square = (y - mu) ** 2, float((present * mu * mu).sum())
    excess, least = (float((present * (own - y)).sum()) for own in (errors / (1.0 - leverage), errors))
    r = square / least if least > 0.0 else STARTS[1]
    blind = bool(np.any((y > FEW) & (leverage >= MOST_LEVERAGE)))
    share = 1.0 - float(present.mean())
    score, r = excess / np.sqrt(2.0 * square), float(np.clip(r, *STARTS))
    return Overdispersion(score, r, share, blind, _spread(y, mu, present, leverage))


def _spread(y: np.ndarray, mu: np.ndarray, present: np.ndarray, leverage: np.ndarray) -> float:
    """Variance of counts as a share of that of Poisson ones where their score says that it is less, else 1."""
    weight = present * (leverage < HALF)
    own, poisson = float(weight @ ((y - mu) ** 2 / (1.0 - leverage))), float(weight @ mu)
    clear = float(weight @ y) - own > CLEAR * np.sqrt(2.0 * float(weight @ mu**2))
    return own / poisson if clear else 1.0


def has_wild_count(y: np.ndarray) -> bool:
    """Whether one count is far larger than all others together."""
    largest, total = float(np.max(y, initial=0.0)), float(np.sum(y))
    return len(y) > 1 and largest > WILD * max(total - largest, 1.0)


def warn_of_wild_count(y: np.ndarray) -> None:
    """Warn if one count is far larger than all others together."""
    if has_wild_count(y):
        warn_user(
            f"one count, {y.max():g}, is more than {WILD:g} times the {len(y) - 1} others together and can "
            "decide the fit; check it, or leave it out.",
            UserWarning,
        )


def warn_of_even_counts(y: np.ndarray, found: Overdispersion) -> None:
    """Warn of counts that vary much less than any law of counts here lets them."""
    if found.spread >= EVEN:
        return
    if np.max(y) <= 1.0:
        what = "CPClassifier is made for counts of 0 and 1"
    elif np.min(y) >= 1.0 and np.mean(y) < TRUNCATED:
        what = "if cells that are not given hold zeros, add some (with_zeros)"
    else:
        what = "CPRegressor learns how much they vary; of counts out of a known number take likelihood='binomial'"
    warn_user(
        f"the counts vary less than Poisson ones: their variance about what their rows say is {found.spread:.2g} of "
        f"the mean, and intervals will be too wide; {what}.",
        UserWarning,
    )


def with_dispersion(name: str, fixed: float | None) -> Likelihood:
    """The likelihood of this name, with its dispersion fixed if a number is given."""
    record = get_likelihood(name)
    if fixed is None or record.parameter is None:
        return record
    return record._replace(default_theta=fixed, parameter=None)


def log_dispersion(likelihood: Likelihood) -> float:
    """Log of the dispersion that a fit starts with; 0 for Poisson counts."""
    start = None if likelihood.parameter is None else likelihood.parameter.start
    return 0.0 if likelihood.name != "negbinomial" else float(np.log(start or likelihood.default_theta))
