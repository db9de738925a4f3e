"""Thresholds between ordered levels: chances of intervals in compiled code, and the law that is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from tensorcep.core.arrays import LINES, empty_near
from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.core.random import RandomStream, interval_normal, start_stream
from tensorcep.kernels import special
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import GAUSS_STEP, INV_SQRT_2PI, LOG_SQRT_2PI, REACH, TINY, exp, log, log1p_unit
from tensorcep.likelihoods.parameters.base import DrawKey, EntryStats, Pair, Parameter, ParameterDraw, Places

# What is known of a latent value f when f plus standard noise lies between two cuts, a < b, either of them infinite.
#
# Of the noise there are two kinds, normal and logistic. Kernels have the lower cut in the place of y and the upper one
# in that of theta, and do their work for one entry after the other: `ordinal` makes likelihoods of ordered levels of
# them.

# Below this width times the distance from 0 the series in the width is exact to rounding; differences are not.
NARROW = 0.02
# Beyond this a cut is as good as infinite: nothing is outside.
FAR = 1e9
# As in `logit`; where both cuts are near, their poles are twice as many.
WIDE = 0.36
POLE = 15.0
NEWTON = 60


@kernel
def _normal_below(low, high):
    """As `normal_between`, where the cuts have a middle of at most 0."""
    # With r = phi / Phi, e = phi(low) / phi(high), q = Phi(low) / Phi(high): P = Phi(high) (1 - q). The sum high + r
    # comes from a fit of its own, so that nothing cancels far out.
    x = abs(high)
    excess = special.mills_excess(x)
    inv_mills = x + excess
    tail = INV_SQRT_2PI * exp(-0.5 * x * x) / inv_mills
    if high < 0.0:
        ratio, ratio_and_cut = inv_mills, excess
        log_cdf = -0.5 * x * x - LOG_SQRT_2PI - log(inv_mills)
    else:
        ratio = tail * inv_mills / (1.0 - tail)
        ratio_and_cut, log_cdf = high + ratio, log1p_unit(-tail)
    if low < -FAR:
        return log_cdf, -ratio, ratio * ratio_and_cut, 0.0, ratio
    e = exp(0.5 * (high - low) * (high + low))
    q = e * ratio / (special.mills_excess(-low) - low)
    own = ratio / (1.0 - q)
    logz = log_cdf + (log1p_unit(-q) if q <= 0.5 else log(1.0 - q))
    below_one = own * (ratio_and_cut + own * (q - e * (2.0 - e)) - low * e)
    return logz, own * (e - 1.0), below_one, own * e, own


@kernel
def normal_between(a, b):
    """Return log P, E[x], 1 - Var[x], phi(a) / P and phi(b) / P of a standard normal x given that a < x < b."""
    flip = a + b > 0.0
    low, high = (-b, -a) if flip else (a, b)
    logz, mean, below_one, at_low, at_high = 0.0, 0.0, 0.0, 0.0, 0.0
    if (high - low) * (1.0 + abs(low + high)) < NARROW:  # near cuts: by the series in their width
        mid, square = 0.5 * (low + high), (high - low) * (high - low)
        quartic = square * square / 1920.0
        m2 = mid * mid
        c = square / 24.0 * (m2 - 1.0) + quartic * (m2 * m2 - 6.0 * m2 + 3.0)
        c1 = square / 12.0 * mid + quartic * (4.0 * m2 - 12.0) * mid
        c2 = square / 12.0 + quartic * (12.0 * m2 - 12.0)
        slope = c1 / (1.0 + c)
        logz = -0.5 * m2 - LOG_SQRT_2PI + log(high - low) + log1p_unit(c)
        mean, below_one = mid - slope, 1.0 - c2 / (1.0 + c) + slope * slope
        at_low = exp(-0.5 * low * low - LOG_SQRT_2PI - logz)
        at_high = exp(-0.5 * high * high - LOG_SQRT_2PI - logz)
    else:
        logz, mean, below_one, at_low, at_high = _normal_below(low, high)
    below_one = min(max(below_one, 0.0), 1.0)
    return (logz, -mean, below_one, at_high, at_low) if flip else (logz, mean, below_one, at_low, at_high)


@kernel
def _log_logistic(x):
    """Return p = 1 / (1 + e^-x), 1 - p and log p."""
    p, q, soft = special.logistic(x)
    return p, q, min(x, 0.0) - soft


@kernel
def _gap(a, b):
    """Return log(1 - e^-d) and 1 / (e^d - 1) of the distance d of two cuts."""
    d = b - a
    if d > 700.0:
        return 0.0, 0.0
    grown = math.expm1(d)
    return math.log(grown) - d, 1.0 / grown


@kernel
def logistic_between(a, b):
    """Return log P, slope and minus the curvature in a shift of f, of a standard logistic x given that a < x < b."""
    # P = p(b) (1 - p(a)) (1 - e^(a - b)), its log has the slope p(a) - (1 - p(b)).
    below_a, above_a, _ = _log_logistic(a)
    below_b, above_b, log_b = _log_logistic(b)
    log_above, gap = _log_logistic(-a)[2], _gap(a, b)[0]
    return log_b + log_above + gap, below_a - above_b, below_a * above_a + below_b * above_b


@kernel
def normal_tilted(y, m, v, theta, logz, alpha, beta):
    """Write log P(y < f + noise < theta) for f ~ N(m, v) and normal noise, and its derivatives in m."""
    for n in range(y.shape[0]):
        inv_s = 1.0 / math.sqrt(1.0 + v[n])
        logz[n], mean, below_one, _, _ = normal_between((y[n] - m[n]) * inv_s, (theta[n] - m[n]) * inv_s)
        alpha[n] = mean * inv_s
        beta[n] = below_one * inv_s * inv_s


@kernel
def normal_loglik(y, f, theta, value, d1, d2):
    """Write log P(y < f + noise < theta) for normal noise and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], below_one, _, _ = normal_between(y[n] - f[n], theta[n] - f[n])
        d2[n] = -below_one


@kernel
def normal_expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of the normal N(f, 1) that is known to lie between the cuts, and what it adds to the bound."""
    for n in range(y.shape[0]):
        logz, mean, _, _, _ = normal_between(y[n] - f[n], theta[n] - f[n])
        weight[n], target[n], spread[n] = 1.0, f[n] + mean, 0.0
        constant[n] = logz + f[n] * (0.5 * f[n] - target[n])


@block_kernel
def normal_drawn(first, last, y, used, f, theta, key, weight, target, s):
    """target = a draw of the normal N(f, 1) that is known to lie between the cuts."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                x = f[b, lane]
                target[b, lane] = x + interval_normal(s, y[b, lane] - x, theta[b, lane] - x)


@kernel
def logistic_loglik(y, f, theta, value, d1, d2):
    """Write log P(y < f + noise < theta) for logistic noise and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], curvature = logistic_between(y[n] - f[n], theta[n] - f[n])
        d2[n] = -curvature


@kernel
def _mode(a, b, m, v):
    """Return where the log of the tilted density, which is concave, is largest: log P has slopes between -1 and 1."""
    low, high = m - v, m + v
    f, before, close = m, 4.0 * v, 1e-7 * math.sqrt(v)
    for _ in range(NEWTON):
        _, slope, curvature = logistic_between(a - f, b - f)
        slope -= (f - m) / v
        if slope > 0.0:
            low = f
        else:
            high = f
        step = slope / (curvature + 1.0 / v)
        f, before = special.newton_or_middle(f, step, low, high, before, close)
        if abs(step) <= close or high - low <= 1e-12 * (1.0 + abs(f)):
            break
    return f


@kernel
def logistic_tilted(y, m, v, theta, logz, alpha, beta):
    """Write log P(y < f + noise < theta) for f ~ N(m, v) and logistic noise, and its derivatives in m."""
    # With l = log P given f, alpha = E[l'] and beta = -(E[l''] + Var[l']) over the tilted density, whose nodes are
    # those of `logit.tilted`, around its mode: it is narrower than the cavity.
    for n in range(y.shape[0]):
        var = v[n] + TINY
        s = math.sqrt(var)
        f = _mode(y[n], theta[n], m[n], var)
        step = 2.0 * math.pi / (POLE * s + 0.5 * math.pi / s) if s > WIDE else GAUSS_STEP
        nodes = special.count_nodes(2.0 * REACH, step)
        h = 2.0 * REACH / nodes
        offset = (f - m[n]) / s
        peak = logistic_between(y[n] - f, theta[n] - f)[0] - 0.5 * offset * offset
        w0, w1, w2, curved = 0.0, 0.0, 0.0, 0.0
        for j in range(nodes):
            u = (j + 0.5) * h - REACH
            value, slope, curvature = logistic_between(y[n] - (f + s * u), theta[n] - (f + s * u))
            w = exp(value - 0.5 * (offset + u) * (offset + u) - peak)
            w0 += w
            w1 += w * slope
            w2 += w * slope * slope
            curved += w * curvature
        alpha[n] = w1 / w0
        logz[n] = peak + log(h * w0) - LOG_SQRT_2PI
        beta[n] = curved / w0 - (w2 / w0 - alpha[n] * alpha[n])


@inlined
def cut_slopes(a, b, logistic):
    """Return log P and its derivatives in the cuts: by a, by b, by a twice, by b twice, by both."""
    if logistic:
        below_a, above_a, _ = _log_logistic(a)
        below_b, above_b, _ = _log_logistic(b)
        logz = logistic_between(a, b)[0]
        own = _gap(a, b)[1]
        bent = own * (1.0 + own)
        return logz, -below_a - own, above_b + own, -below_a * above_a - bent, -below_b * above_b - bent, bent
    logz, _, _, at_a, at_b = normal_between(a, b)
    from_a = a * at_a if a > -FAR else 0.0
    from_b = b * at_b if b < FAR else 0.0
    return logz, -at_a, at_b, from_a - at_a * at_a, -from_b - at_b * at_b, at_a * at_b


# Thresholds that cut a latent value into ordered levels: their prior, and what the entries say of them.
#
# Of L levels there are L - 1 thresholds. The first is 0, since the latent values have a level of their own; the L - 2
# others are learned through the gaps between neighbours, whose prior is Gamma(2, rate). Given latent values, or their
# Gaussian marginals, the log posterior is concave in the thresholds (Pratt 1981, JASA 76), and Newton finds its top.
#
# A sampler proposes a Newton step from where it is, with the inverse curvature there as its covariance, and the latent
# normals integrated out (Cowles 1996, Statistics and Computing 6, integrates them out too; a step of that size is Qi
# and Minka's 2002 Hessian-based Metropolis-Hastings). Given the latent normals thresholds would hardly move.

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
    """out[c, k] (6,) = for level k, sums of the weighted log P of its entries and of its derivatives (`cut_slopes`)."""
    # y, used (0 in padding lanes), f and sd are (n_blocks, LANES); chunk c is BLOCKS of those.
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
    """A law of the thresholds that are learned: the logs of the gaps are Gaussian, of this mean (m,) and cov (m, m)."""

    mean: np.ndarray
    cov: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """The thresholds (m,) at the middle of the law."""
        return np.cumsum(np.exp(self.mean))


class Levels(NamedTuple):
    """How a latent value is cut into `n` levels."""

    n: int
    start: np.ndarray  # thresholds (n - 2,) to begin with, without the first, which is 0
    logistic: bool  # whether the noise is logistic; normal otherwise

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


class Said(NamedTuple):
    """What entries and prior say of thresholds somewhere: log density, slopes (m,), minus second derivatives (m, m)."""

    value: float
    slope: np.ndarray
    curvature: np.ndarray

    @property
    def newton(self) -> np.ndarray:
        """The step to where the top would be."""
        return np.linalg.solve(self.curvature, self.slope)


def said(levels: Levels, thresholds: np.ndarray, stats: EntryStats) -> Said:
    """What entries and prior say at these thresholds (m,)."""
    chunks = -(-len(stats.y) // BLOCKS)
    out = np.zeros((chunks, levels.n, 6))
    rule = (stats.f, np.zeros(1), np.ones(1)) if stats.sd is None else (stats.sd, NODES, WEIGHTS)
    record = (stats.y, stats.used, stats.f, *rule, levels.cuts(thresholds), levels.logistic, out)
    stats.executor.run(sum_levels, 0, chunks, *record)
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


def law_of_thresholds(levels: Levels, start: np.ndarray, stats: EntryStats) -> ThresholdLaw:
    """The law of the thresholds given the entries: Laplace's approximation, whose search begins at `start` (m,)."""
    now = np.array(start, dtype=np.float64)
    here = said(levels, now, stats)
    for _ in range(MAX_NEWTON):
        step = here.newton
        if not step @ here.slope > CLOSE:
            break
        shrinking = -np.diff(step, prepend=0.0) / np.diff(now, prepend=0.0)
        step = step * min(1.0, (1.0 - KEPT) / max(float(shrinking.max()), 1e-300))
        for _ in range(HALVINGS):
            there = said(levels, now + step, stats)
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


def draw_thresholds(levels: Levels, now: np.ndarray, stats: EntryStats, rng: np.random.Generator) -> np.ndarray:
    """One Metropolis-Hastings step from the thresholds `now` (m,), given latent values."""
    walks, u = rng.random() * WALK_EVERY < 1.0, math.log1p(-rng.random())
    noise = rng.standard_normal(len(now))
    here = said(levels, now, stats)
    if walks:
        new = np.cumsum(np.diff(now, prepend=0.0) * np.exp(WALK * noise))
    else:
        root = np.linalg.cholesky(here.curvature)
        new = now + here.newton + np.linalg.solve(root.T, noise)
    if not np.isfinite(new).all() or not (np.diff(new, prepend=0.0) > 0.0).all():
        return now
    there = said(levels, new, stats)
    # a walk is even in the log gaps
    turn = WALK * float(noise.sum()) if walks else _log_proposal(there, new, now) - _log_proposal(here, now, new)
    return new if u < there.value - here.value + turn else now


def _log_proposal(here: Said, at: np.ndarray, to: np.ndarray) -> float:
    """The log density, but for a constant, of a Newton step from `at` that ends at `to`."""
    root = np.linalg.cholesky(here.curvature)
    z: Any = root.T @ (to - at - here.newton)
    return float(np.log(np.diag(root)).sum() - 0.5 * z @ z)


@dataclass(frozen=True)
class ThresholdParameter(Parameter[ThresholdLaw]):
    """The thresholds between ordered levels; where there are two levels none is learned."""

    levels: Levels
    name = "thresholds"

    @property
    def learned(self) -> bool:
        return self.levels.learned

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        """Where the rows ask for them: rows that meet others lose their components."""
        start = self.levels.start
        if not self.learned:
            return ParameterDraw(start)
        return ParameterDraw(law_of_thresholds(self.levels, start, stats).theta)

    def first_law(self, n: int = 0) -> ThresholdLaw:
        """Those that the levels start with, without uncertainty."""
        start = self.levels.start
        return ThresholdLaw(np.log(np.diff(start, prepend=0.0)), np.zeros((len(start), len(start))))

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        """The lower and the upper cut."""
        if place is not None:
            return self.levels.between(y, state.theta)
        lower, upper = empty_near(y), empty_near(y)
        for at in (slice(first, first + LINES) for first in range(0, len(y), LINES)):
            lower[at], upper[at] = self.levels.between(y[at], state.theta)
        return lower, upper

    def shared(self, state: Any, theta: float, cuts: np.ndarray) -> tuple[float, np.ndarray]:
        return theta, self.levels.cuts(state.theta)

    def expect(self, state: ThresholdLaw, stats: EntryStats, step: float | None = None) -> ThresholdLaw:
        """The law whose middle has moved a share of the way to that of the entries."""
        stats = stats._replace(used=stats.power) if len(stats.power) else stats
        if stats.marginals is not None:
            m, v = stats.marginals(None)
            stats = stats._replace(f=m, sd=np.sqrt(v, out=v))
        new = law_of_thresholds(self.levels, state.theta, stats)
        return new if step is None else new._replace(mean=state.mean + step * (new.mean - state.mean))

    def draw(self, state: ParameterDraw, stats: EntryStats, key: DrawKey) -> tuple[ParameterDraw, EntryStats]:
        """A draw given latent values, latent normals integrated out."""
        if not self.learned:
            return state, stats
        return ParameterDraw(draw_thresholds(self.levels, state.theta, stats, key.rng(RandomStream.THRESHOLDS))), stats

    def bound(self, state: ThresholdLaw) -> float:
        return prior_of_thresholds(self.levels, state.theta).value

    def results(self, law: ThresholdLaw) -> dict[str, tuple[Any, ...]]:
        return {"thresholds": tuple(law)} if self.learned else {}
