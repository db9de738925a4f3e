"""Noise that differs: the precision of an entry is tau lambda, its factor lambda ~ Gamma(alpha, alpha) of mean one.

The entries of a group share a factor: those of a row of a mode, or an entry by itself, whose noise then has a Student t
law of 2 alpha degrees of freedom. With the factors integrated out, n entries of a group whose squared residuals add up
to S have the log density n (log tau - log 2 pi) / 2 + log c, where

    c = alpha^alpha Gamma(alpha + n / 2) / (Gamma(alpha) (alpha + tau S / 2)^(alpha + n / 2)),

and given tau and alpha the factor is Gamma(alpha + n / 2, rate alpha + tau S / 2).

Source: Lange, Little and Taylor (1989), J. Amer. Statist. Assoc. 84, for t noise as a scale mixture; Liu (1996),
Statistica Sinica 6, for drawing alpha with the factors integrated out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv, gammaln, lambertw, logsumexp, stdtrit

from tensorcep.core.compile import block_kernel
from tensorcep.core.random import RandomStream, gamma, start_stream
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.parameters import base
from tensorcep.likelihoods.parameters.base import DrawKey, Gamma, NoisePrecision, ResidualStats, ShapeRate

# What alpha may be, evenly spaced in its log, each equally likely beforehand: from noise whose variance just exists
# (2.2 degrees of freedom) to noise that is nearly the same everywhere (factors vary by 3 %).
ALPHAS = 1.1 * 2.0 ** (0.5 * np.arange(21))
# A shape at which a Gamma factor of mean one is 1 to three digits.
EVEN = 1e6
# Where chains start in `ALPHAS`: noise is then hardly heavier than a normal law.
FIRST_DRAWN = 8
# Rows that can follow half of their entries would take the others for outliers: Student noise, its precision and shape,
# is told by entries that the burn-in leaves out: the steps of EM each time, and the relative change that ends these.
EM_STEPS, CLOSE = 3, 1e-4
# Newton steps of log tau: at most, and the step that ends them.
STEPS, SETTLED = 30, 1e-6
# Multiples of it are spread evenly between whole numbers, however many there are.
GOLDEN = 0.5 * (5.0**0.5 - 1.0)
# Quadrature over the log of a factor: nodes, how many nats below the mode it reaches at large and at small factors,
# which are those of outliers, and the least log: that of an outlier of 20,000 standard deviations.
NODES, NATS, LEAST_LOG = 48, (36.0, 150.0), -20.0


@block_kernel
def draw_factors(first, last, target, used, f, law, key, weight, s):
    """Draw weight ~ Gamma(alpha + 1/2, rate alpha + tau (target - f)^2 / 2); law is (tau, alpha)."""
    tau, alpha = law
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                rest = target[b, lane] - f[b, lane]
                weight[b, lane] = gamma(s, alpha + 0.5) / (alpha + 0.5 * tau * rest * rest)


@block_kernel
def sums_of_squares(first, last, y, f, weight, used, present, sums):
    """sums[b] = the sums of weight (y - f)^2 over the entries in use, and of (y - f)^2 over all, for blocks."""
    for b in range(first, last):
        told, total = 0.0, 0.0
        for lane in range(LANES):
            rest = y[b, lane] - f[b, lane]
            told += used[b, lane] * weight[b, lane] * rest * rest
            total += present[b, lane] * rest * rest
        sums[b, 0], sums[b, 1] = told, total


class GroupSums(NamedTuple):
    """What is known of the groups: how many entries (n) and squared residuals (S) each, and how often each counts."""

    n: np.ndarray
    squares: np.ndarray
    times: np.ndarray | float = 1.0


class Evenness(NamedTuple):
    """tau and alpha (by its place in `ALPHAS`), and minus the second derivative of the log density in log tau."""

    tau: float
    place: int
    curvature: float

    @property
    def alpha(self) -> float:
        """Shape and rate of the factors' law."""
        return float(ALPHAS[self.place])

    @property
    def law(self) -> ShapeRate:
        """Shape and rate of the law of tau times a factor."""
        return self.alpha, self.alpha / self.tau


def law_of_factors(groups: GroupSums, tau: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Shape and rate of the factor of every group."""
    return alpha + 0.5 * groups.n, alpha + 0.5 * tau * groups.squares


def log_evidence(groups: GroupSums, tau: float, alpha: float) -> float:
    """The log density of the residuals of all groups, factors integrated out."""
    a, b = law_of_factors(groups, tau, alpha)
    each = alpha * np.log(alpha) - gammaln(alpha) + gammaln(a) - a * np.log(b)
    n = float(np.broadcast_to(groups.times * groups.n, groups.squares.shape).sum())
    return float(np.sum(groups.times * each)) + 0.5 * n * (np.log(tau) - np.log(2.0 * np.pi))


def log_evidences(groups: GroupSums, tau: float) -> np.ndarray:
    """`log_evidence` at each of `ALPHAS`, less what does not depend on alpha."""
    (sizes, times), alpha = np.unique(groups.n, return_counts=True), ALPHAS[:, None]
    of_sizes = alpha * np.log(alpha) - gammaln(alpha) + gammaln(alpha + 0.5 * sizes)
    logs = np.log(alpha + 0.5 * tau * groups.squares)
    return np.asarray(of_sizes @ times - ALPHAS * logs.sum(axis=1) - logs @ (0.5 * groups.n))


def best_tau(groups: GroupSums, prior: ShapeRate, tau: float, alpha: float) -> tuple[float, float]:
    """The tau of the highest density, concave in log tau, under a Gamma prior, from one to start with; curvature."""
    half = 0.5 * float(np.broadcast_to(groups.times * groups.n, groups.squares.shape).sum()) + prior[0]
    log_tau, curvature = np.log(tau), half
    for _ in range(STEPS):
        tau = float(np.exp(log_tau))
        a, b = law_of_factors(groups, tau, alpha)
        pull = groups.times * a * (b - alpha) / b
        slope = half - float(pull.sum()) - prior[1] * tau
        curvature = max(float((pull * (alpha / b)).sum()) + prior[1] * tau, np.finfo(float).tiny)
        step = float(np.clip(slope / curvature, -2.0, 2.0))
        log_tau += step
        if abs(step) < SETTLED:
            break
    return float(np.exp(log_tau)), curvature


def fitted(groups: GroupSums, prior: ShapeRate, tau: float, place: int) -> Evenness:
    """tau and alpha of the highest density, from some to start with, by steps to the better neighbour in `ALPHAS`."""
    known: dict[int, tuple[float, Evenness]] = {}

    def at(i: int, start: float) -> float:
        if i not in known:
            found, curvature = best_tau(groups, prior, start, float(ALPHAS[i]))
            height = log_evidence(groups, found, float(ALPHAS[i])) + prior[0] * np.log(found) - prior[1] * found
            known[i] = (height, Evenness(found, i, curvature))
        return known[i][0]

    at(place, tau)
    while True:
        here = known[place][1].tau
        beside = [i for i in (place - 1, place + 1) if 0 <= i < len(ALPHAS)]
        better = max(beside, key=lambda i: at(i, here))
        if known[better][0] <= known[place][0]:
            return known[place][1]
        place = better


def log_prior(tau: float, prior: ShapeRate) -> float:
    """The log density of log tau under the Gamma prior of tau, and of alpha."""
    a, b = prior
    return float(a * np.log(b) - gammaln(a) + a * np.log(tau) - b * tau) - float(np.log(len(ALPHAS)))


def nodes(shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (NODES, ...) and their log weights, for means over factors of these shapes (...): a trapezoidal rule."""
    # The integrand is smooth in the log of a factor and vanishes at both ends: the rule converges exponentially.
    shape = np.asarray(shape, dtype=float)
    above, below = (1.0 + nats / shape for nats in NATS)
    high = -above - lambertw(-np.exp(-above), -1).real
    low = np.maximum(-below - lambertw(-np.exp(-below), 0).real, LEAST_LOG)
    share = np.linspace(0.0, 1.0, NODES).reshape(-1, *np.ones(shape.ndim, dtype=int))
    log_factor = low + share * (high - low)
    log_weight = shape * (log_factor - np.exp(log_factor))
    log_weight -= log_weight.max(axis=0)
    return np.exp(log_factor), log_weight - np.log(np.exp(log_weight).sum(axis=0))


def student_logpdf(residual: np.ndarray, tau: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The log density of residuals of precision tau lambda, lambda ~ Gamma(shape, shape)."""
    half = 0.5 * tau * residual * residual / shape
    constant = gammaln(shape + 0.5) - gammaln(shape) - 0.5 * np.log(shape)
    return np.asarray(constant + 0.5 * np.log(tau) - LOG_SQRT_2PI - (shape + 0.5) * np.log1p(half))


def seen_through(squares: np.ndarray, spread: np.ndarray, tau: float, alpha: float) -> tuple[float, float]:
    """The log density of residuals of these squares (n,) that also vary by `spread` (n,); a better tau, by EM."""
    factor, log_weight = nodes(np.array(alpha))
    noise = 1.0 / (tau * factor)
    total = spread[:, None] + noise
    each = log_weight - 0.5 * (np.log(total) + squares[:, None] / total)
    log_density = logsumexp(each, axis=1)
    share, mine = np.exp(each - log_density[:, None]), noise / total
    expected = (share * factor * mine * (mine * squares[:, None] + spread[:, None])).sum(axis=1)
    return float(log_density.sum()) - len(squares) * LOG_SQRT_2PI, 1.0 / float(expected.mean())


def same_size(tau: float, alpha: float, other: float) -> float:
    """The tau with which Student noise of the shape `other` has the quartiles that tau gives it at `alpha`."""
    return float(tau * (stdtrit(2.0 * other, 0.75) / stdtrit(2.0 * alpha, 0.75)) ** 2)


def strata(shape: np.ndarray, n: int) -> np.ndarray:
    """Factors (n, C, ...) of these shapes (C, ...), each from one of n equally likely parts of their law."""
    # where in its part it lies differs between components, whose factors together fill the law evenly
    at = np.array([0.5]) if len(shape) == 1 else np.mod((np.arange(len(shape)) + 0.5) * GOLDEN, 1.0)
    levels = ((np.arange(n)[:, None] + at) / n).reshape(n, len(shape), *np.ones(shape.ndim - 1, dtype=int))
    return np.asarray(gammaincinv(shape, levels) / shape)


class FactorDraw(NamedTuple):
    """A draw of numbers that differ by factors about a common one."""

    theta: np.ndarray  # the numbers, (m,)
    common: np.ndarray  # (2,): their mean over rows or entries, and the shape of the law of their factors
    base: float  # the precision, or mean, that factors multiply
    place: int  # of their shape in `ALPHAS`
    own: float  # the precision that the residuals of entries that take part tell; of rows alone
    factor: np.ndarray  # those of rows, (m,); m = 0 for entries
    of_entry: np.ndarray  # those of entries where targets are drawn beside them, changed in place; else no blocks

    @staticmethod
    def even(theta: np.ndarray, mean: float, m: int, blocks: tuple[int, ...] = (0, 0)) -> FactorDraw:
        """All factors at 1, to begin with; `blocks` is the form of those of entries."""
        return FactorDraw(theta, base.NONE, mean, FIRST_DRAWN, mean, np.ones(m), np.ones(blocks)).with_common(1.0)

    @property
    def alpha(self) -> float:
        """The shape of the factors' law."""
        return float(ALPHAS[self.place])

    def with_common(self, level: float) -> FactorDraw:
        """With mean and shape, the factors having this geometric mean."""
        return self._replace(common=np.array([self.base * level, self.alpha]))


def draw_factors_of_groups(state: FactorDraw, groups: GroupSums, prior: ShapeRate, rng: Any) -> FactorDraw:
    """Draw the shape given the precision, the precision given the shape, both without the factors, then these."""
    own = state.own
    log_mass = log_evidences(groups, own)
    mass = np.cumsum(np.exp(log_mass - logsumexp(log_mass)))
    place = min(int(np.searchsorted(mass, rng.random() * mass[-1])), len(ALPHAS) - 1)
    alpha = float(ALPHAS[place])
    mode, k = best_tau(groups, prior, own, alpha)
    new = float(rng.gamma(k)) * mode / k

    def height(tau: float) -> float:  # of the density of log tau beside that of the proposal
        log_density = log_evidence(groups, tau, alpha) + prior[0] * np.log(tau) - prior[1] * tau
        return float(log_density - k * np.log(tau) + k * tau / mode)

    if new > 0.0 and np.log(rng.random()) < height(new) - height(own):
        own = new
    a, b = law_of_factors(groups, own, alpha)
    return state._replace(place=place, own=own, factor=np.maximum(rng.gamma(a), base.TINY) / b)


class MixtureLaw(NamedTuple):
    """A law of noise that differs: its precision, and the factors."""

    noise: Gamma  # of the precision that factors multiply
    found: Evenness  # that precision, and the shape of their prior
    law: Gamma  # those of rows; nothing where entries have them
    mean: np.ndarray  # that of every entry's, (n_blocks, LANES)
    evidence: float  # what entries and factors add to a lower bound, at the precision and shape as they are

    @property
    def theta(self) -> np.ndarray:
        """The number that stands for the precision, (1,)."""
        return self.noise.mean


@dataclass(frozen=True)
class ScaleMixture(base.Parameter[MixtureLaw]):
    """Noise that differs between the rows of a mode, or between entries."""

    # Given the squared residuals, shape and factors are drawn as one: the shape with the factors integrated out, then
    # these (a shape given many factors would hardly move). Those of entries come before the rows and weigh the entries;
    # a Metropolis step takes their shape to a neighbour in `ALPHAS`. Those of rows come after, their shape is drawn
    # from all of `ALPHAS`, and the precision that they multiply by an independence Metropolis step, with the factors
    # integrated out too: given them it would hardly move either. Where entries left out tell the noise, they tell how
    # large the precisions of rows are on average; what rows are beside each other their own residuals tell, with a
    # precision of their own. Of Student noise they tell precision and shape both.
    prior: ShapeRate  # shape and rate of the Gamma prior of tau
    # which entries share a factor: those of a row, or, of mode None, every entry has its own
    groups: base.Groups = base.UNBOUND
    by_sums: bool = False  # whether sums over the entries of each row say all: of drawn rows, of targets that are not
    keeps_factors: bool = False  # whether targets of entries with a factor are drawn beside it
    name = "noise_precision"
    stage = base.DrawStage.RESIDUAL
    is_precision = uneven = True

    @property
    def weighs(self) -> bool:
        return not self.by_sums

    @property
    def m(self) -> int:
        """How many factors there are beside those of entries."""
        return 0 if self.groups.mode is None else self.groups.size

    def first_draw(self, spread: float, stats: base.EntryStats) -> FactorDraw:
        """All factors at 1, the precision that of the data."""
        tau = 1.0 / spread
        blocks = self.groups.of_entry.shape if self.keeps_factors else (0, 0)
        return FactorDraw.even(np.full(self.groups.size, tau), tau, self.m, blocks)

    def first_law(self, n: int = 0) -> MixtureLaw:
        law, noise = Gamma(np.full(self.m, EVEN), np.full(self.m, EVEN)), NoisePrecision(self.prior).first_law()
        start = Evenness(1.0, len(ALPHAS) - 1, 1.0)
        return MixtureLaw(noise, start, law, np.ones(self.groups.of_entry.shape), -np.inf)

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: base.Places = None) -> base.Pair:
        """The precision as theta: of a row; of entries without their factor in a draw, and with its mean in a law."""
        if isinstance(state, MixtureLaw):
            return y, base.alike(y, float(state.theta[0])) * np.where(state.mean > 0.0, state.mean, 1.0)
        return y, self.groups.at(state.theta, place)

    def precision(self, state: FactorDraw | MixtureLaw, power: float = 1.0) -> float | base.RowPrecision:
        """What weights are multiplied by: that of rows, or the one that factors multiply."""
        if isinstance(state, MixtureLaw):
            return NoisePrecision(self.prior).precision(state.noise, power)
        mode = self.groups.mode
        return base.RowPrecision(mode, state.theta) if self.by_sums and mode is not None else state.base

    def of_sites(self, state: FactorDraw, theta: np.ndarray) -> np.ndarray:
        return theta * state.of_entry if state.of_entry.size else theta

    def factors(self, state: FactorDraw, place: np.ndarray) -> tuple[np.ndarray, float]:
        """Those of rows; of entries the shape of their law."""
        if self.groups.mode is None:
            return np.ones(len(place)), state.alpha
        return self.groups.at(state.theta, place) / state.base, np.inf

    def weigh(self, state: FactorDraw, stats: ResidualStats, key: DrawKey) -> FactorDraw:
        """Weights of the entries, those of entries drawn, and with them their targets, in place."""
        weight, values = stats.weight, stats.target if stats.drawn else stats.y
        if stats.even:
            weight[:] = 1.0
        elif self.groups.mode is None:
            if stats.validation is None:
                used, rng = stats.used > 0.0, key.rng(RandomStream.EVENNESS)
                groups, new = GroupSums(np.array(1.0), (values[used] - stats.f[used]) ** 2), neighbour(state.place, rng)
                if 0 <= new < len(ALPHAS):  # a Metropolis step of the shape, factors integrated out
                    here, there = (log_evidence(groups, state.base, float(ALPHAS[i])) for i in (state.place, new))
                    state = state._replace(place=new) if np.log(rng.random()) < there - here else state
            law, streams = (state.base, state.alpha), key.of_entries(RandomStream.FACTORS)
            record = (values, stats.present, stats.f, law, streams, weight)
            stats.executor.run(draw_factors, 0, len(weight), *record, scratch=base.room_for_stream)
        else:
            weight[:] = (state.theta / state.base)[self.groups.of_entry]
        np.multiply(weight, values, out=stats.target)
        if state.of_entry.size:
            state.of_entry[:] = weight
        return state

    def draw(self, state: FactorDraw, stats: ResidualStats, key: DrawKey) -> tuple[FactorDraw, ResidualStats]:
        """Precision, and the factors of rows and their shape, given latent values and weights."""
        if self.by_sums:
            squares, n = np.maximum(stats.sums, 0.0), stats.sizes.astype(float)
            theta, total = state.theta, float(n.sum())
            new = self._drawn(state, (total, float(theta @ squares) / state.base), GroupSums(n, squares), stats, key)
            height = 0.5 * float(n @ np.log(theta)) - 0.5 * float(theta @ squares)
            return new, stats._replace(score=height / total - LOG_SQRT_2PI if total else np.nan)
        if self.groups.mode is None and not stats.drawn:
            sums = np.empty((len(stats.f), 2))
            record = (stats.y, stats.f, stats.weight, stats.used, stats.present, sums)
            stats.executor.run(sums_of_squares, 0, len(sums), *record)
            told, total = sums.sum(axis=0).tolist()
            new = self._drawn(state, (stats.n, told), None, stats, key)
            score = base.mean_log_density(float(new.theta[0]), total, stats.n + len(stats.left_out))
            return new, stats._replace(score=score)
        some = stats.used > 0.0
        weight, groups = stats.weight[some], None
        squares = (stats.target[some] / weight - stats.f[some]) ** 2
        if self.groups.mode is not None:
            row, m = self.groups.of_entry[some], self.m
            groups = GroupSums(np.bincount(row, minlength=m).astype(float), np.bincount(row, squares, minlength=m))
        return self._drawn(state, (len(squares), float(weight @ squares)), groups, stats, key), stats

    def _drawn(
        self, state: FactorDraw, sums: tuple[float, float], groups: GroupSums | None, stats: ResidualStats, key: DrawKey
    ) -> FactorDraw:
        """Draw given the number of entries, the sum of weight times squared residual, and those of each row."""
        rng, told, noise = key.rng(RandomStream.PRECISION), stats.validation, NoisePrecision(self.prior)
        if groups is not None and not stats.even:
            state = draw_factors_of_groups(state, groups, self.prior, rng)
        else:
            state = state._replace(own=float(noise.expect(base.NO_LAW, base.PrecisionStats(*sums)).draw(rng)[0]))
        tau = state.own if told is None else float(noise.expect(base.NO_LAW, told.stats).draw(rng)[0])
        level, state = 1.0, state._replace(base=tau)
        if self.groups.mode is None:
            return state._replace(theta=np.full(1, tau)).with_common(level)
        if told is not None:  # the factors get a geometric mean of 1 over entries left out
            level = float(np.exp(-np.log(state.factor[self.groups.of_entry.ravel()[told.place]]).mean()))
        return state._replace(theta=tau * (level * state.factor)).with_common(level)

    def follow(self, state: FactorDraw, rest: base.Pair, variance: float, rng: Any) -> tuple[FactorDraw, float]:
        """Precision and shape of Student noise; nan for rows, which tell their noise by themselves."""
        if self.groups.mode is not None:
            return state, np.nan
        alpha, new = state.alpha, neighbour(state.place, rng)
        tau = tau_seen_through(*rest, 1.0 / variance, alpha, EM_STEPS)
        if 0 <= new < len(ALPHAS):
            there = same_size(tau, alpha, float(ALPHAS[new]))
            gain = seen_through(*rest, there, float(ALPHAS[new]))[0] - seen_through(*rest, tau, alpha)[0]
            if np.log(rng.random()) < gain:
                state, tau = state._replace(place=new), there
        return state, 1.0 / tau

    def expect(self, state: MixtureLaw, stats: Any, step: float | None = None) -> MixtureLaw:
        """The best law of the precision given sums of squares; factors, precision and shape given `ExpectedSquares`."""
        if not isinstance(stats, base.ExpectedSquares):
            return state._replace(noise=NoisePrecision(self.prior).expect(state.noise, stats))
        power, squares = stats
        used, mean, totals = power > 0.0, np.zeros(power.shape), self.groups.totals
        if self.groups.mode is None:
            groups = GroupSums(np.array(1.0), squares[used], power[used])
        else:
            groups = GroupSums(totals(lambda at: power[at]), totals(lambda at: power[at] * squares[at]))
        # factors are integrated out exactly given precision and shape, the points where the bound given rows is highest
        found = fitted(groups, self.prior, float(state.theta[0]), state.found.place)
        a, b = law_of_factors(groups, found.tau, found.alpha)
        if self.groups.mode is None:
            mean[used], law = a / b, state.law
        else:
            mean[:], law = (a / b)[self.groups.of_entry] * used, Gamma(a, b)
        noise = Gamma(np.array([found.curvature]), np.array([found.curvature / found.tau]))
        evidence = log_evidence(groups, found.tau, found.alpha) + log_prior(found.tau, self.prior)
        return MixtureLaw(noise, found, law, mean, evidence)

    def bound(self, state: MixtureLaw) -> float:
        return state.evidence

    def results(self, law: MixtureLaw) -> dict[str, tuple[Any, ...]]:
        uneven = (self.groups.mode, law.found.alpha, *law.law)
        return {"noise": (float(law.noise.a[0]), float(law.noise.b[0])), "uneven": uneven}


def neighbour(place: int, rng: np.random.Generator) -> int:
    """The place before or after one in `ALPHAS`."""
    return place + (1 if rng.random() < 0.5 else -1)


def tau_seen_through(squares: np.ndarray, spread: np.ndarray, tau: float, alpha: float, steps: int) -> float:
    """The tau after steps of EM (see `seen_through`)."""
    for _ in range(steps):
        old, tau = tau, seen_through(squares, spread, tau, alpha)[1]
        if abs(tau - old) < CLOSE * tau:
            break
    return tau
