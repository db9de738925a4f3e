"""Beta distribution of a share, and its part of a lower bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, digamma


class Beta(NamedTuple):
    """Beta law of a share: a counts what has the property, b what has it not."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """E[p]."""
        return self.a / (self.a + self.b)

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
