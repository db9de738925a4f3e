"""Likelihood of ordered levels 0, 1, ...: the level counts the thresholds that f plus standard noise exceeds.

The noise is normal ("ordinal_probit") or logistic ("ordinal_logit"). Of two levels the first is the probit likelihood,
the second the logit one. The thresholds are learned (`parameters.thresholds`).

Source: McCullagh (1980), JRSS B 42; Albert and Chib (1993), JASA 88, sec. 4, for the latent normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri

from tensorcep.core.arrays import leaves
from tensorcep.core.checks import check_fraction, check_values, fail_value
from tensorcep.likelihoods.base import Augmentation, Likelihood, aligned, tilted_moments
from tensorcep.likelihoods.parameters import thresholds
from tensorcep.likelihoods.parameters.thresholds import Levels, ThresholdParameter

LINKS = ("probit", "logit")
# How many levels there may be.
FEWEST, MOST = 2, 20


def ordinal(link: str, shares: ArrayLike, values: Sequence[float] | None = None) -> Likelihood:
    """Return the likelihood of L ordered levels, whose noise is that of the link, "probit" or "logit"."""
    # What goes in and comes out (observations, quantiles, draws) are the levels 0 to L - 1; means are of their values,
    # in growing order, by default the same. Thresholds start where a constant latent value has these shares (L,).
    share, L = np.asarray(shares, dtype=np.float64), len(np.asarray(shares))
    worth = np.arange(L, dtype=np.float64) if values is None else np.asarray(values, dtype=np.float64)
    below = np.cumsum(share / share.sum())[:-1]
    places = logit(below) if link == "logit" else ndtri(below)
    levels = Levels(L, places[1:] - places[0], link == "logit")
    kernels, normal = (thresholds.logistic_tilted, thresholds.logistic_loglik), None
    if link == "probit":
        kernels = thresholds.normal_tilted, thresholds.normal_loglik
        normal = Augmentation(thresholds.normal_expected, thresholds.normal_drawn)
    learned, cuts = (ThresholdParameter(levels),), levels.cuts(levels.start)[None]
    return Ordinal(f"ordinal_{link}", *kernels, learned, 0.0, normal, worth=worth, cuts=cuts)


def constant_of(link: str, shares: ArrayLike) -> float:
    """The latent value at which the levels of `ordinal` are as likely as they were said to be."""
    first = float(np.asarray(shares)[0] / np.sum(shares))
    return float(-logit(first) if link == "logit" else -ndtri(first))


def shares_of(y: np.ndarray, L: int, weight: np.ndarray | None = None) -> np.ndarray:
    """How often every level occurs among y, by weights (N,) if these are given, with half an entry more of each."""
    counts = np.zeros(L)
    for a, b in leaves(len(y)):
        own = None if weight is None else weight[a:b]
        counts += np.bincount(np.asarray(y[a:b], dtype=np.int64), own, minlength=L)
    return counts + 0.5


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Ordered levels; theta is the number of a line of cuts."""

    worth: Any = None  # what each level is worth, in growing order, (L,) float64
    cuts: Any = None  # all cuts of equally likely components, with minus infinity and infinity, (C, L + 1) float64
    observes = "levels"

    @property
    def levels(self) -> Levels:
        (own,) = self.parameters
        return own.levels  # type: ignore[attr-defined]

    def as_fitted(self, theta: np.ndarray) -> Likelihood:
        return self.with_parameter(ThresholdParameter(self.levels._replace(start=theta)))

    def by_component(self, values: np.ndarray) -> Likelihood:
        """Of thresholds (C, L - 2), the first left out."""
        return replace(self, cuts=np.stack([self.levels.cuts(line) for line in values]))

    def check_y(self, y: ArrayLike) -> np.ndarray:
        level, L = check_values(y, name="y"), len(self.worth)
        wrong = (level != np.rint(level)) | (level < 0.0) | (level >= L)
        if wrong.any():
            fail_value(f"y must hold whole levels from 0 to {L - 1}; got {level[wrong][0]:g}; code them in order.")
        return level

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, theta = aligned(y, m, v, theta)
        line, level = theta.astype(np.int64), y.astype(np.int64)
        return tilted_moments(self.tilted, self.cuts[line, level], m, v, self.cuts[line, level + 1])[0]

    def above(self, j: int, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The probability of level j or a higher one for f ~ N(m, v), in the shape of m."""
        cut = self.cuts[theta.astype(np.int64), j]
        if not self.levels.logistic:
            return np.asarray(ndtr((m - cut) / np.sqrt(1.0 + v)))
        if not np.any(v):
            return np.asarray(expit(m - cut))
        flat = (np.ascontiguousarray(part).ravel() for part in (cut, m, v, np.full(m.shape, np.inf)))
        return np.exp(tilted_moments(self.tilted, *flat)[0]).reshape(m.shape)

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, theta = aligned(m, v, theta)
        worth, first, square = self.worth, np.zeros_like(m), np.zeros_like(m)
        from_least = worth - worth[0]
        for j in range(1, len(worth)):
            p = self.above(j, m, v, theta)
            first += (worth[j] - worth[j - 1]) * p
            square += (from_least[j] ** 2 - from_least[j - 1] ** 2) * p
        return worth[0] + first, np.maximum(square - first * first, 0.0)

    def probabilities(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Probabilities (n, L) of the levels under equally likely components, whose m, v and theta are (C, n)."""
        below = (1.0 - self.above(j, m, v, theta) for j in range(1, len(self.worth)))
        cdf = np.stack([part.mean(axis=0) for part in below], axis=1)
        return np.maximum(np.diff(cdf, axis=1, prepend=0.0, append=1.0), 0.0)

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        check_fraction("q", q)
        exceeded = [self.above(j, m, v, theta).mean(axis=0) > 1.0 - q for j in range(1, len(self.worth))]
        return np.sum(exceeded, axis=0).astype(np.float64)

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, theta = aligned(y, m, v, theta)
        between = (self.above(j, m, v, theta) for j in range(1, len(self.worth)))
        above, level = np.stack([np.ones_like(m), *between, np.zeros_like(m)]), y.astype(np.int64)
        return 1.0 - above[level + 1, np.arange(len(m))], above[level, np.arange(len(m))]

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        noise = rng.logistic(size=f.shape) if self.levels.logistic else rng.standard_normal(f.shape)
        return np.asarray((f + noise)[:, None] > self.cuts[theta.astype(np.int64), 1:-1]).sum(axis=1).astype(np.float64)
