"""Likelihood of ordered levels 0, 1, ...: the level counts the thresholds that f plus standard noise exceeds.

The noise is normal ("ordinal_probit") or logistic ("ordinal_logit"). Of two levels the first is the probit likelihood,
the second the logit one. The thresholds are learned (`parameters.thresholds`).

Source: McCullagh (1980), JRSS B 42; Albert and Chib (1993), JASA 88, sec. 4, for the latent normal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri

from tensorcep.core.arrays import leaves
from tensorcep.core.checks import check_fraction, check_values, fail_value
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.thresholds import (
    Levels,
    ThresholdParameter,
    logistic_loglik,
    logistic_tilted,
    normal_drawn,
    normal_expected,
    normal_loglik,
    normal_tilted,
)

LINKS = ("probit", "logit")
# How many levels there may be.
FEWEST, MOST = 2, 20


def ordinal(link: str, shares: ArrayLike, values: Sequence[float] | None = None) -> Likelihood:
    """Return the record of L ordered levels.

    What goes in and comes out (observations, quantiles, draws) are the levels 0 to L - 1; means are of their values.

    Parameters
    ----------
    link : {"probit", "logit"}
        The noise.
    shares : (L,) array-like
        How likely each level is at a constant latent value, from which the thresholds start.
    values : sequence of L floats, optional
        What each level is worth, in growing order; by default 0 to L - 1.
    """
    share = np.asarray(shares, dtype=np.float64)
    L = len(share)
    worth = np.arange(L, dtype=np.float64) if values is None else np.asarray(values, dtype=np.float64)
    below = np.cumsum(share / share.sum())[:-1]
    places = logit(below) if link == "logit" else ndtri(below)
    levels = Levels(L, places[1:] - places[0], link == "logit")
    return _record(link, levels, worth, levels.start[None])


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


def _record(link: str, levels: Levels, worth: np.ndarray, thresholds: np.ndarray) -> Likelihood:
    """The record whose theta is the number of a line of the thresholds (C, L - 2)."""
    L, logistic = levels.n, levels.logistic
    cuts = np.stack([levels.cuts(line) for line in thresholds])
    tilted = logistic_tilted if logistic else normal_tilted
    above = _exceeding(cuts, logistic)

    def check_y(y: ArrayLike) -> np.ndarray:
        level = check_values(y, name="y")
        wrong = (level != np.rint(level)) | (level < 0.0) | (level >= L)
        if wrong.any():
            fail_value(f"y must hold whole levels from 0 to {L - 1}; got {level[wrong][0]:g}; code them in order.")
        return level

    def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, theta = aligned(y, m, v, theta)
        line, level = theta.astype(np.int64), y.astype(np.int64)
        return tilted_moments(tilted, cuts[line, level], m, v, cuts[line, level + 1])[0]

    def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, theta = aligned(m, v, theta)
        first, square = np.zeros_like(m), np.zeros_like(m)
        from_least = worth - worth[0]
        for j in range(1, L):
            p = above(j, m, v, theta)
            first += (worth[j] - worth[j - 1]) * p
            square += (from_least[j] ** 2 - from_least[j - 1] ** 2) * p
        return worth[0] + first, np.maximum(square - first * first, 0.0)

    def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return mixture_quantile(q, *(part[None] for part in aligned(m, v, theta)))

    def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        check_fraction("q", q)
        exceeded = [above(j, m, v, theta).mean(axis=0) > 1.0 - q for j in range(1, L)]
        return np.sum(exceeded, axis=0).astype(np.float64)

    def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, theta = aligned(y, m, v, theta)
        lower, upper = np.ones_like(m), np.ones_like(m)
        for j in range(1, L):
            p = above(j, m, v, theta)
            upper = np.where(y == j, p, upper)
            lower = np.where(y == j - 1, 1.0 - p, lower)
        return lower, upper

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        noise = rng.logistic(size=f.shape) if logistic else rng.standard_normal(f.shape)
        return np.asarray((f + noise)[:, None] > cuts[theta.astype(np.int64), 1:-1]).sum(axis=1).astype(np.float64)

    parts = (check_y, tilted, logistic_loglik if logistic else normal_loglik, predict, quantile, logpdf, sample)
    return Likelihood(
        f"ordinal_{link}",
        0.0,
        *parts,
        normal=None if logistic else Augmentation(normal_expected, normal_drawn),
        mixture_quantile=mixture_quantile,
        observes="levels",
        tails=tails,
        parameters=(ThresholdParameter(levels),),
        by_component=lambda values: _record(link, levels, worth, values),
    )


def _exceeding(cuts: np.ndarray, logistic: bool) -> Callable[..., np.ndarray]:
    """``above(j, m, v, theta)``: the probability of level j or a higher one for f ~ N(m, v)."""

    def above(j: int, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        cut = cuts[theta.astype(np.int64), j]
        if not logistic:
            return np.asarray(ndtr((m - cut) / np.sqrt(1.0 + v)))
        if not np.any(v):
            return np.asarray(expit(m - cut))
        flat = (np.ascontiguousarray(part).ravel() for part in (cut, m, v, np.full(m.shape, np.inf)))
        return np.exp(tilted_moments(logistic_tilted, *flat)[0]).reshape(m.shape)

    return above


def probabilities_of_levels(likelihood: Likelihood, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Probabilities (n, L) of the levels under equally likely components, whose m, v and theta are (C, n)."""
    levels = likelihood.levels
    if levels is None:
        raise TypeError(f"the likelihood {likelihood.name!r} has no levels.")
    # P(y <= k) of every level but the last
    below = [likelihood.tails(np.full(m.size, k), *(x.ravel() for x in (m, v, theta)))[0] for k in range(levels.n - 1)]  # type: ignore[misc]
    cdf = np.stack([part.reshape(m.shape).mean(axis=0) for part in below], axis=1)
    return np.maximum(np.diff(cdf, axis=1, prepend=0.0, append=1.0), 0.0)
