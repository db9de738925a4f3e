"""Labels of a population whose zeros were sampled: the likelihood of a new label, after a fit to the sample.

The sample holds all ones and a share w of the zeros. Then at every latent value f the odds of a one in the population
are w times those in the sample, whatever the link:

    P(y = 1 | f) = w g(f) / (w g(f) + 1 - g(f)) = sigma(log w + a(f)),    a(f) = log g(f) - log(1 - g(f)).

For the logit, a(f) = f and log w is added to the mean of f. For the probit the expectation over f ~ N(m, v) has no
closed form; it is taken by the trapezoidal rule of `kernels.special`, on nodes that follow from bounds on a(f): its
slope is at most |f| + 2, its curvature is below 1, and the nearest poles of sigma(log w + a(f)) lie about pi / a'(f0)
from the real line, f0 being where sigma is 1/2.

Source of the odds: Prentice and Pyke (1979), Logistic disease incidence models and case-control studies; King and Zeng
(2001), Logistic regression in rare events data, sec. 4.1 (prior correction).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from tensorcep.kernels.special import BLOCK, GAUSS_STEP, LOG_SQRT_2PI, MAX_BLOCKS, REACH, TINY
from tensorcep.likelihoods.base import Likelihood, aligned
from tensorcep.likelihoods.binary import Labels

# exp(-POLE_NATS) is the error that a pole at its distance from the real line lets through.
POLE_NATS = 30.0
# Up to this variance the tilted density is close to the Gaussian: its precision is at least 1 / v - 1 >= 3 / (4 v).
NARROW = 0.25
# Beyond sqrt(a^2 + FAR) standard deviations a Gaussian has 1e-16 of its mass beyond a.
FAR = 75.0
# Beyond this |f| log odds of a probit exceed those of any rate that a double can hold.
LARGEST_F = 40.0
NODES_AT_ONCE = 1 << 18


def for_population(likelihood: Likelihood, zero_rate: float) -> Likelihood:
    """Return the likelihood of new labels of the population, by that fitted to all its ones and this share of zeros."""
    if zero_rate == 1.0:
        return likelihood
    shift, name = math.log(zero_rate), f"{likelihood.name}, zeros sampled"
    if likelihood.f_is_log_odds:
        return ShiftedLogOdds(name, of=likelihood, shift=shift)
    centre = float(brentq(lambda f: log_odds(likelihood, np.array([f]))[0] + shift, -LARGEST_F, LARGEST_F))
    return SampledZeros(name, of=likelihood, shift=shift, centre=centre)


@dataclass(frozen=True)
class ShiftedLogOdds(Labels):
    """Predictions of labels of which f is the log odds, but for a shift."""

    of: Any = None
    shift: float = 0.0

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return np.asarray(self.of.logpdf(y, np.asarray(m) + self.shift, v, theta))

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(expit(f + self.shift))

    def of_points(self, f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self.of.of_points(f + self.shift, theta)
        return mean, variance


@dataclass(frozen=True)
class SampledZeros(Labels):
    """Predictions of labels whose log odds are those of a symmetric link, but for a shift; they are even at centre."""

    of: Any = None
    shift: float = 0.0
    centre: float = 0.0

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, _ = aligned(y, m, v, theta)
        return _log_expected(self.of, y * m, v, y * self.shift, y * self.centre)

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(expit(log_odds(self.of, f) + self.shift))


def log_odds(likelihood: Likelihood, f: np.ndarray) -> np.ndarray:
    """Return log P(y = 1 | f) - log P(y = 0 | f) of a symmetric link, in the shape of f."""
    flat = np.ascontiguousarray(f, dtype=np.float64).ravel()
    one, zero, unused, theta = np.empty_like(flat), np.empty_like(flat), np.empty_like(flat), np.ones_like(flat)
    likelihood.loglik(theta, flat, theta, one, unused, np.empty_like(flat))
    likelihood.loglik(-theta, flat, theta, zero, unused, np.empty_like(flat))
    return np.asarray((one - zero).reshape(np.shape(f)))


def _log_expected(likelihood: Likelihood, m: Any, v: Any, shift: Any, centre: Any) -> np.ndarray:
    """Return log E[sigma(shift + a(f))] for f ~ N(m, v), all (n,); centre is where shift + a is 0."""
    out = np.empty_like(m)
    sure = v == 0.0
    out[sure] = -np.logaddexp(0.0, -(shift[sure] + log_odds(likelihood, m[sure])))
    # The nodes' upper end and largest spacing, in units of s from m. sigma grows with f, so the lower end of N(m, s^2)
    # will do. At the upper end, sigma <= 1 is compared with the mass beyond the centre, where sigma >= 1/2; a narrow
    # Gaussian hardly moves.
    s = np.sqrt(v)
    scale = np.maximum(s, math.sqrt(TINY))
    wide = np.sqrt(np.maximum((centre - m) / scale, 0.0) ** 2 + FAR)
    steepest = np.maximum(np.abs(m), np.abs(centre)) + 2.0
    narrow = steepest * s + REACH / math.sqrt(1.0 - NARROW)
    high = np.where(s * s <= NARROW, np.minimum(wide, narrow), wide)
    pole = np.pi / (np.abs(centre) + 2.0)
    step = np.minimum(GAUSS_STEP / np.sqrt(1.0 + s * s), 2.0 * np.pi * pole / (POLE_NATS * scale))
    count = np.minimum(np.ceil((high + REACH) / step) + 1.0, BLOCK * MAX_BLOCKS).astype(np.int64)
    order = np.argsort(count, kind="stable")
    order = order[~sure[order]]
    while order.size:  # those that need most nodes first, as many as fit
        nodes = int(count[order[-1]])
        order, some = np.split(order, [max(0, order.size - max(1, NODES_AT_ONCE // nodes))])
        h = (high[some] + REACH) / nodes
        u = (np.arange(nodes)[:, None] + 0.5) * h - REACH
        odds = shift[some] + log_odds(likelihood, m[some] + s[some] * u)
        out[some] = logsumexp(-np.logaddexp(0.0, -odds) - 0.5 * u * u, axis=0) + np.log(h) - LOG_SQRT_2PI
    return np.minimum(out, 0.0)  # rounding can lift a sure label above it
