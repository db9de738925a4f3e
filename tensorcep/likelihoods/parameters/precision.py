"""The precision of Gaussian noise, the same for all entries; and a parameter that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcep.core.arrays import room_of
from tensorcep.core.random import RandomStream
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.parameters.base import (
    NONE,
    DrawKey,
    DrawStage,
    EntryStats,
    Gamma,
    Pair,
    Parameter,
    ParameterDraw,
    Places,
    PrecisionStats,
    ResidualStats,
)

# Where the law of before makes no difference.
NO_LAW = Gamma(NONE, NONE)


@dataclass(frozen=True)
class KnownTheta(Parameter[Gamma]):
    """The theta of a likelihood of which nothing is learned, `value` for all entries without one of their own."""

    value: float
    stage = DrawStage.RESIDUAL
    learned = False

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        return ParameterDraw(np.full(1, self.value))

    def first_law(self, n: int = 0) -> Gamma:
        """A law of this mean."""
        return Gamma(np.full(1, self.value), np.ones(1))

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        """That of the entries, if they have one, or the value."""
        return y, alike(y, float(state.theta[0])) if theta is None else theta

    def draw(self, state: ParameterDraw, stats: ResidualStats, key: DrawKey) -> tuple[ParameterDraw, ResidualStats]:
        return state, scored(float(state.theta[0]), stats)


@dataclass(frozen=True)
class NoisePrecision(Parameter[Gamma]):
    """The precision tau of Gaussian noise, with a Gamma prior.

    An entry adds 1/2 to the shape and weight (target - f)^2 / 2 to the rate of its law.

    Attributes
    ----------
    prior : tuple of float
        Shape and rate; the default says nearly nothing.
    """

    prior: tuple[float, float] = (1e-3, 1e-3)
    name = "noise_precision"
    stage = DrawStage.RESIDUAL
    is_precision = True
    is_theta = True

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        """That of the data."""
        return ParameterDraw(np.full(1, 1.0 / spread))

    def first_law(self, n: int = 0) -> Gamma:
        return Gamma(np.full(1, self.prior[0]), np.full(1, self.prior[1]))

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        return y, alike(y, float(state.theta[0]))

    def precision(self, state: ParameterDraw | Gamma, power: float = 1.0) -> float:
        """That precision, or its mean."""
        if isinstance(state, Gamma):
            return power * float(state.a[0]) / float(state.b[0])
        return power * float(state.theta[0])

    def expect(self, state: Gamma, stats: ResidualStats | PrecisionStats, step: float | None = None) -> Gamma:
        a, b = self.prior
        a, b = a + 0.5 * stats.n, b + 0.5 * stats.total
        if step is not None:
            a, b = (float(old[0]) + step * (new - float(old[0])) for old, new in zip(state, (a, b), strict=True))
        return Gamma(np.array([a]), np.array([b]))

    def draw(self, state: ParameterDraw, stats: ResidualStats, key: DrawKey) -> tuple[ParameterDraw, ResidualStats]:
        """A draw from its law given the residuals, or given what entries left out say."""
        known = stats.validation
        law = self.expect(NO_LAW, stats) if known is None else known.law(self.prior)
        tau = law.draw(key.rng(RandomStream.PRECISION))
        return ParameterDraw(tau), scored(float(tau[0]), stats)

    def bound(self, state: Gamma) -> float:
        """The log normaliser of its law minus that of its prior: what entries and precision together add."""
        (a0, b0), a, b = self.prior, float(state.a[0]), float(state.b[0])
        return a0 * math.log(b0) - a * math.log(b) + math.lgamma(a) - math.lgamma(a0)

    def log_normaliser(self, n: float) -> float:
        """That of n Gaussians of precision 1."""
        return -0.5 * n * math.log(2.0 * math.pi)

    def results(self, law: Gamma) -> dict[str, tuple[Any, ...]]:
        return {"noise": (float(law.a[0]), float(law.b[0]))}


def alike(y: np.ndarray, theta: float) -> np.ndarray:
    """A parameter that all entries share, in an array like y."""
    of_all = room_of(y).empty(y.shape)
    of_all[:] = theta
    return of_all


def scored(tau: float, stats: ResidualStats) -> ResidualStats:
    """With the mean log density of the residuals, of this precision; nan of none."""
    if stats.drawn:
        return stats
    return stats._replace(score=mean_log_density(tau, stats.total, stats.n))


def mean_log_density(tau: float, squares: float, n: float) -> float:
    """The mean log density of n residuals of precision tau, whose squares add up to so much; nan of none."""
    return float(0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n) if n else np.nan
