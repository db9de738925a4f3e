"""Thresholds that cut a latent value into ordered levels: their prior, and what the entries say of them.

Of L levels there are L - 1 thresholds. The first is 0, since the latent values have a level of their own; the L - 2
others are learned through the gaps between neighbours, whose prior is Gamma(2, rate). Given latent values, or their
Gaussian marginals, the log posterior is concave in the thresholds (Pratt 1981, JASA 76), and Newton finds its top.

A sampler proposes a Newton step from where it is, with the inverse curvature there as its covariance, and the latent
normals integrated out (Cowles 1996, Statistics and Computing 6, integrates them out too; a step of that size is Qi and
Minka's 2002 Hessian-based Metropolis-Hastings). Given the latent normals thresholds would hardly move.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from tensorcep.core.compile import block_kernel
from tensorcep.core.executor import Executor
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.intervals import cut_slopes

# Shape of the gaps' prior: above 1, so that thresholds stay apart where a level has no entries.
GAP_SHAPE = 2.0
# E[g(f)] for f ~ N(m, v) as a weighted sum over m + sqrt(v) z.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
# Blocks of entries that are summed together, so that sums do not depend on threads.
BLOCKS = 256
# Newton steps; the expected gain, in nats, at which they end; the share of a gap that is left at least; halvings.
MAX_NEWTON, CLOSE, KEPT, HALVINGS = 30, 1e-8, 0.1, 20
# One proposal in so many is a walk of the log gaps by this, in case Newton's are never taken.
WALK_EVERY, WALK = 4, 0.1


@block_kernel
def sum_levels(first, last, y, used, f, sd, nodes, weights, cuts, logistic, out):
    """out[c, k] (6,) = for level k, sums of the weighted log P of its entries and of its derivatives (`cut_slopes`).

    y, used (0 in padding lanes), f and sd are (n_blocks, LANES); chunk c is BLOCKS of those.
    """
    for c in range(first, last):
        out[c] = 0.0
        for b in range(c * BLOCKS, min((c + 1) * BLOCKS, y.shape[0])):
            for lane in range(LANES):
                if used[b, lane] <= 0.0:
                    continue
                k = int(y[b, lane])
                for j in range(len(nodes)):
                    x = f[b, lane] + sd[b, lane] * nodes[j]
                    value, da, db, daa, dbb, dab = cut_slopes(cuts[k] - x, cuts[k + 1] - x, logistic)
                    w = used[b, lane] * weights[j]
                    total = out[c, k]
                    total[0] += w * value
                    total[1] += w * da
                    total[2] += w * db
                    total[3] += w * daa
                    total[4] += w * dbb
                    total[5] += w * dab


class ThresholdLaw(NamedTuple):
    """A law of the thresholds that are learned: the logs of the gaps are Gaussian.

    Attributes
    ----------
    mean : (m,) float64
    cov : (m, m) float64
    """

    mean: np.ndarray
    cov: np.ndarray

    @property
    def thresholds(self) -> np.ndarray:
        """The thresholds (m,) at the middle of the law."""
        return np.cumsum(np.exp(self.mean))


class Levels(NamedTuple):
    """How a latent value is cut into levels.

    Attributes
    ----------
    n : int
        Number of levels.
    start : (n - 2,) float64
        Thresholds to begin with, without the first, which is 0.
    logistic : bool
        Whether the noise is logistic; normal otherwise.
    """

    n: int
    start: np.ndarray
    logistic: bool

    @property
    def learned(self) -> bool:
        """Whether there is a threshold to learn."""
        return self.n > 2

    @property
    def rate(self) -> float:
        """Rate of the gaps' prior: their mean is that of levels which are equally likely under the noise alone."""
        if not self.learned:
            return 1.0
        even = np.linspace(0.0, 1.0, self.n + 1)[1:-1]
        places = np.log(even / (1.0 - even)) if self.logistic else ndtri(even)
        return float(GAP_SHAPE * (self.n - 2) / (places[-1] - places[0]))

    def cuts(self, thresholds: np.ndarray) -> np.ndarray:
        """All cuts (n + 1,) from thresholds (n - 2,): minus infinity, 0, those, and infinity."""
        return np.concatenate([[-np.inf, 0.0], thresholds[: self.n - 2], [np.inf]])

    def between(self, y: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper cut of entries at levels y, which kernels take as y and theta."""
        cuts, level = self.cuts(thresholds), y.astype(np.int64)
        return cuts[level], cuts[level + 1]

    def first_law(self) -> ThresholdLaw:
        """The law to begin with: the thresholds `start`, without uncertainty."""
        m = self.n - 2
        return ThresholdLaw(np.log(np.diff(self.start, prepend=0.0)), np.zeros((m, m)))


class Said(NamedTuple):
    """What entries and prior say of thresholds somewhere: log density, slopes (m,), minus second derivatives (m, m)."""

    value: float
    slope: np.ndarray
    curvature: np.ndarray

    @property
    def newton(self) -> np.ndarray:
        """The step to where the top would be."""
        return np.linalg.solve(self.curvature, self.slope)


class LevelEntries(NamedTuple):
    """Entries in lanes whose latent values are known, or have Gaussian marginals.

    Attributes
    ----------
    y, used : (n_blocks, LANES) float64
        Levels, and what each entry counts: 0 in padding lanes.
    f : (n_blocks, LANES) float64
        Latent values, or their means.
    sd : (n_blocks, LANES) float64 or None
        Their standard deviations, where they are uncertain.
    """

    y: np.ndarray
    used: np.ndarray
    f: np.ndarray
    sd: np.ndarray | None = None


def said(levels: Levels, thresholds: np.ndarray, entries: LevelEntries, executor: Executor) -> Said:
    """What entries and prior say at these thresholds (m,)."""
    chunks = -(-len(entries.y) // BLOCKS)
    out, cuts = np.zeros((chunks, levels.n, 6)), levels.cuts(thresholds)
    nodes, weights = (np.zeros(1), np.ones(1)) if entries.sd is None else (NODES, WEIGHTS)
    sd = entries.f if entries.sd is None else entries.sd
    record = (entries.y, entries.used, entries.f, sd, nodes, weights, cuts, levels.logistic, out)
    executor.run(sum_levels, 0, chunks, *record)
    value, da, db, daa, dbb, dab = out.sum(axis=0).T
    # threshold j is the lower cut of level j + 2 and the upper one of level j + 1
    slope = db[1:-1] + da[2:]
    curvature = np.diag(-(dbb[1:-1] + daa[2:])) - np.diag(dab[2:-1], 1) - np.diag(dab[2:-1], -1)
    prior = prior_of_thresholds(levels, thresholds)
    return Said(float(value.sum()) + prior.value, slope + prior.slope, curvature + prior.curvature)


def prior_of_thresholds(levels: Levels, thresholds: np.ndarray) -> Said:
    """The log density of the gaps' prior and its derivatives in the thresholds."""
    gaps, rate = np.diff(thresholds, prepend=0.0), levels.rate
    once, twice = (GAP_SHAPE - 1.0) / gaps - rate, (GAP_SHAPE - 1.0) / gaps**2
    both = twice[1:]
    value = float(((GAP_SHAPE - 1.0) * np.log(gaps) - rate * gaps).sum())
    value += len(gaps) * (GAP_SHAPE * math.log(rate) - math.lgamma(GAP_SHAPE))
    curvature = np.diag(twice + np.append(both, 0.0)) - np.diag(both, 1) - np.diag(both, -1)
    return Said(value, once - np.append(once[1:], 0.0), curvature)


def law_of_thresholds(levels: Levels, start: np.ndarray, entries: LevelEntries, executor: Executor) -> ThresholdLaw:
    """The law of the thresholds given the entries: Laplace's approximation, whose search begins at `start` (m,)."""
    now = np.array(start, dtype=np.float64)
    here = said(levels, now, entries, executor)
    for _ in range(MAX_NEWTON):
        step = here.newton
        if not step @ here.slope > CLOSE:
            break
        shrinking = -np.diff(step, prepend=0.0) / np.diff(now, prepend=0.0)
        step = step * min(1.0, (1.0 - KEPT) / max(float(shrinking.max()), 1e-300))
        for _ in range(HALVINGS):
            there = said(levels, now + step, entries, executor)
            if there.value >= here.value:
                break
            step = 0.5 * step
        else:
            break
        now, here = now + step, there
    gaps = np.diff(now, prepend=0.0)
    to_logs = (np.eye(len(now)) - np.eye(len(now), k=-1)) / gaps[:, None]
    cov = to_logs @ np.linalg.solve(here.curvature, to_logs.T)
    return ThresholdLaw(np.log(gaps), 0.5 * (cov + cov.T))


def draw_thresholds(
    levels: Levels, now: np.ndarray, entries: LevelEntries, rng: np.random.Generator, executor: Executor
) -> np.ndarray:
    """One Metropolis-Hastings step from the thresholds `now` (m,), given latent values."""
    walks, u = rng.random() * WALK_EVERY < 1.0, math.log1p(-rng.random())
    noise = rng.standard_normal(len(now))
    here = said(levels, now, entries, executor)
    if walks:
        new = np.cumsum(np.diff(now, prepend=0.0) * np.exp(WALK * noise))
    else:
        root = np.linalg.cholesky(here.curvature)
        new = now + here.newton + np.linalg.solve(root.T, noise)
    if not np.isfinite(new).all() or not (np.diff(new, prepend=0.0) > 0.0).all():
        return now
    there = said(levels, new, entries, executor)
    # a walk is even in the log gaps
    turn = WALK * float(noise.sum()) if walks else _log_proposal(there, new, now) - _log_proposal(here, now, new)
    return new if u < there.value - here.value + turn else now


def _log_proposal(here: Said, at: np.ndarray, to: np.ndarray) -> float:
    """The log density, but for a constant, of a Newton step from `at` that ends at `to`."""
    root = np.linalg.cholesky(here.curvature)
    z: Any = root.T @ (to - at - here.newton)
    return float(np.log(np.diag(root)).sum() - 0.5 * z @ z)
