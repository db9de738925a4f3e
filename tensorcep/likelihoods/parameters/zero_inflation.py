"""The share of structural zeros among counts: its Beta law, and which zeros are structural."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, digamma, entr, expit

from tensorcep.core.random import RandomStream
from tensorcep.likelihoods.parameters.base import DrawKey, DrawStage, EntryStats, Pair, Parameter, ParameterDraw


class Beta(NamedTuple):
    """Beta law of a share: a counts what has the property, b what has it not."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """E[p]."""
        return self.a / (self.a + self.b)

    @property
    def theta(self) -> np.ndarray:
        """The number that stands for it, (1,)."""
        return np.array([self.mean])

    @property
    def variance(self) -> float:
        """Var[p]."""
        return self.mean * (1.0 - self.mean) / (self.a + self.b + 1.0)

    @property
    def log_means(self) -> tuple[float, float]:
        """E[log p] and E[log (1 - p)]."""
        both = digamma(self.a + self.b)
        return float(digamma(self.a) - both), float(digamma(self.b) - both)

    def divergence(self, prior: tuple[float, float]) -> float:
        """Divergence from the Beta prior of these two numbers."""
        log_p, log_q = self.log_means
        rest = (self.a - prior[0]) * log_p + (self.b - prior[1]) * log_q
        return float(betaln(*prior) - betaln(self.a, self.b) + rest)

    def draw(self, rng: np.random.Generator) -> float:
        """A draw, never 0 nor 1."""
        return float(np.clip(rng.beta(self.a, self.b), np.finfo(float).tiny, 1.0 - np.finfo(float).eps))


# Structural zeros of counts: an entry is 0, whatever its latent value, with a probability that is learned.
#
# P(y | f) = pi [y = 0] + (1 - pi) p(y | f), the share pi having a Beta prior. Given which zeros are structural, the
# others are counts of the likelihood p, and pi is known by how many there are of each. A zero is not structural with
# the probability (1 - pi) p(0 | f) / P(0 | f): samplers draw that, mean-field methods take it as the weight of the
# entry.
#
# Source: Lambert (1992), Zero-inflated Poisson regression, Technometrics 34; Neelon (2019), Bayesian zero-inflated
# negative binomial regression based on Polya-Gamma mixtures, Bayesian Analysis 14, for the sampler.


@dataclass(frozen=True)
class ZeroInflation(Parameter[Beta]):
    """The share of structural zeros, with a Beta prior."""

    prior: tuple[float, float] = (1.0, 1.0)
    start: float = 0.1
    loglik: Any = None  # the kernel of the other counts
    name = "zero_share"
    stage = DrawStage.PRESENCE

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        return ParameterDraw(np.full(1, self.start))

    def first_law(self, n: int = 0) -> Beta:
        return self.law_of(n * self.start, n * (1.0 - self.start))

    def law_of(self, n_structural: float, n_others: float) -> Beta:
        """The law given how many entries are structural zeros, and how many are not."""
        return Beta(self.prior[0] + n_structural, self.prior[1] + n_others)

    def shared(self, state: Any, theta: float, cuts: np.ndarray) -> tuple[float, np.ndarray]:
        """Those of the other counts."""
        return theta, cuts

    def expect(self, state: Beta, stats: EntryStats, step: float | None = None) -> Beta:
        """The best law, `used` being how probably every entry is none, of which there are `n`."""
        n_present = float(stats.used.sum())
        return self.law_of(stats.n - n_present, n_present)

    def draw(self, state: ParameterDraw, stats: EntryStats, key: DrawKey) -> tuple[ParameterDraw, EntryStats]:
        """Which zeros are structural, given latent values, which then say nothing; and their share."""
        rng, f = key.rng(RandomStream.ZEROS), stats.f
        at = (stats.y == 0.0) & (stats.used > 0.0)
        y, theta = stats.y[at], stats.theta()[at]
        log_mass = np.empty_like(y)
        self.loglik(y, f[at], theta, log_mass, np.empty_like(y), np.empty_like(y))
        present = stats.used.copy()
        present[at] = rng.random(len(y)) < presence(y, log_mass, float(state.theta[0]))
        n, n_present = float(stats.used.sum()), float(present.sum())
        share = self.law_of(n - n_present, n_present).draw(rng)
        return ParameterDraw(np.full(1, share)), stats._replace(used=present)

    def mixed(self, state: ParameterDraw, y: np.ndarray, log_density: np.ndarray) -> np.ndarray:
        return with_zeros(y, log_density, float(state.theta[0]))

    def weigh_expected(self, state: Beta, y: np.ndarray, moments: Pair, parts: tuple[np.ndarray, ...]) -> np.ndarray:
        """Weigh what entries say by the probability, which is returned, that they are no structural zeros; in place."""
        weight, target, _, constant = parts
        log_share, log_rest = state.log_means
        log_mass = constant + target * moments[0] - 0.5 * weight * moments[1]
        present = np.where(y > 0.0, 1.0, expit(log_rest - log_share + log_mass))
        for part in parts:
            part *= present
        # what the indicators add to a lower bound: their expected log probability and their entropy
        constant += present * log_rest + (1.0 - present) * log_share + entr(present) + entr(1.0 - present)
        return present

    def bound(self, state: Beta) -> float:
        return -state.divergence(self.prior)

    def results(self, law: Beta) -> dict[str, tuple[Any, ...]]:
        return {"zeros": tuple(law)}


def with_zeros(y: np.ndarray, log_mass: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """log P(y) of counts with a share of structural zeros, from the log mass of the others."""
    with np.errstate(divide="ignore"):
        own, log_share = np.log1p(-np.asarray(share)) + log_mass, np.log(share)
    return np.where(y > 0.0, own, np.logaddexp(log_share, own))


def presence(y: np.ndarray, log_mass: np.ndarray, share: float) -> np.ndarray:
    """The probability that each count is no structural zero, from the log mass of such at its latent value."""
    return np.where(y > 0.0, 1.0, expit(np.log1p(-share) - np.log(share) + log_mass))
