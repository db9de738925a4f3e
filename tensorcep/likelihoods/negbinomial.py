"""Negative-binomial likelihood with logit link, for counts 0, 1, 2, ...

P(y | f) = Gamma(y + r) / (Gamma(r) y!) p^y (1 - p)^r with p = 1 / (1 + e^-f) and theta = r > 0 the dispersion of the
entry. The mean count is r e^f, its variance r e^f (1 + e^f). Tilted moments come from the adapted trapezoidal rule of
`kernels.special`, on an interval outside of which the tilted density and its products with the weights below have
fallen by DROP nats. With n = y + r and E over the tilted density,

    alpha = (E[f] - m) / v = y - n E[p],    beta = 1 / v - Var[f] / v^2 = n E[p (1 - p)] - n^2 Var[p];

the first is used where the count says more than the cavity, elsewhere the second, which does not cancel for small v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, digamma, polygamma

from tensorcep.core.arrays import LINES
from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.core.random import RandomStream, start_stream
from tensorcep.kernels.polya_gamma import draw_crt, draw_pg, pg_expected
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import DROP, LOG_SQRT_2PI, REACH, count_nodes, exp, log, logistic, newton_or_middle
from tensorcep.likelihoods.base import Augmentation, aligned
from tensorcep.likelihoods.counts import CountCDF, Counts, beta_cdf, poisson_draws
from tensorcep.likelihoods.parameters import base, scale_mixture
from tensorcep.likelihoods.parameters.base import EntryStats, Gamma, Parameter, ParameterDraw, ShapeRate, gammas
from tensorcep.likelihoods.parameters.scale_mixture import Evenness, FactorDraw, GroupSums
from tensorcep.likelihoods.poisson import MOST_MOVE

# Frequencies up to the larger of these bounds are needed for 1e-15: the first where the density is near a Gaussian of
# precision kappa, the second where the poles of the logistic function at +-i pi are what limits the spacing.
GAUSS_FREQUENCY, POLE_FREQUENCY, POLE_SLOPE, SHARP = 8.6, 27.0, math.pi / 4.0, 30.0
# Below this variance the likelihood's own derivatives are the moments, to rounding.
FLAT = 1e-15
MAX_NEWTON, EDGE_STEPS = 60, 5


@kernel
def _log_kernel(y, r, f):
    """Return y f - (y + r) log(1 + e^f)."""
    soft = logistic(f)[2]
    return (-r if f > 0.0 else y) * f - (y + r) * soft


@kernel
def _log_constant(y, r):
    """Return log Gamma(y + r) - log Gamma(r) - log y!."""
    return math.lgamma(y + r) - math.lgamma(r) - math.lgamma(y + 1.0)


@kernel
def in_latent(y, r, f):
    """Return the part of log p(y | f) that depends on f, and its first two derivatives in f."""
    p, q, _ = logistic(f)
    return _log_kernel(y, r, f), y * q - r * p, -(y + r) * p * q


@kernel
def _mode(y, r, m, v):
    """Return where the log of the tilted density, which is concave, is largest: Newton kept inside a bracket."""
    low, high = m - r * v, m + y * v
    f = min(max(m, low), high)
    before, close = 2.0 * (high - low), 1e-7 * math.sqrt(v)
    for _ in range(MAX_NEWTON):
        p, q, _ = logistic(f)
        slope = y * q - r * p - (f - m) / v
        if slope > 0.0:
            low = f
        else:
            high = f
        step = slope / ((y + r) * p * q + 1.0 / v)
        f, before = newton_or_middle(f, step, low, high, before, close)
        if abs(step) <= close or high - low <= 1e-12 * abs(f):
            break
    return f


@kernel
def _edge(y, r, m, v, f, side):
    """Return where, on one side of the mode f, the log density is DROP lower; Newton from outside stays outside."""
    top = _log_kernel(y, r, f) - 0.5 * (f - m) ** 2 / v
    x = f + side * (REACH * math.sqrt(v))
    for _ in range(EDGE_STEPS):
        p, q, _ = logistic(x)
        excess = top - DROP - (_log_kernel(y, r, x) - 0.5 * (x - m) ** 2 / v)
        slope = y * q - r * p - (x - m) / v
        if excess > 0.0 and slope * side < 0.0:
            x += excess / slope
    return x


@kernel
def _sums(y, r, m, half_precision, f, low, h, nodes):
    """Return the sum of w and the means of d, d^2, t, t^2, t (1 - t) over nodes f + d; t = p for f <= 0, else 1 - p."""
    w0, w1, w2, t1, t2, tq = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    offset = f - m
    peak = _log_kernel(y, r, f) - half_precision * offset * offset
    for j in range(nodes):
        d = low + (j + 0.5) * h
        p, q, _ = logistic(f + d)
        w = exp(_log_kernel(y, r, f + d) - half_precision * (offset + d) ** 2 - peak)
        t = q if f > 0.0 else p
        w0 += w
        w1 += w * d
        w2 += w * d * d
        t1 += w * t
        t2 += w * t * t
        tq += w * p * q
    return w0, w1 / w0, w2 / w0, t1 / w0, t2 / w0, tq / w0


@kernel
def tilted_in_latent(y, r, m, v):
    """Return logz, without what does not depend on f, alpha and beta of one entry."""
    n = y + r
    f = _mode(y, r, m, v)
    # The ends of the interval that the tilted density needs, also times p^2 (f < 0) or (1 - p)^2.
    left, right = _edge(y, r, m, v, f, -1.0), _edge(y, r, m, v, f, 1.0)
    if f < 0.0:
        right = max(right, _edge(y + 2.0, r, m, v, _mode(y + 2.0, r, m, v), 1.0))
    else:
        left = min(left, _edge(y, r + 2.0, m, v, _mode(y, r + 2.0, m, v), -1.0))
    # The spacing: the curvature is largest where the interval is nearest to 0.
    p, q, _ = logistic(max(0.0, left, -right))
    kappa = 1.0 / v + 1.3 * n * p * q
    frequency = GAUSS_FREQUENCY * math.sqrt(kappa) if kappa > SHARP else POLE_FREQUENCY + POLE_SLOPE * kappa
    nodes = count_nodes(right - left, 2.0 * math.pi / frequency)
    h = (right - left) / nodes
    w0, d1, d2, t1, t2, tq = _sums(y, r, m, 0.5 / v, f, left - f, h, nodes)
    spread = d2 - d1 * d1
    pull = (f - m) / v
    logz = _log_kernel(y, r, f) - 0.5 * (f - m) * pull
    logz += log(h * w0 / math.sqrt(v)) - LOG_SQRT_2PI
    if spread < 0.5 * v:
        return logz, pull + d1 / v, 1.0 / v - spread / (v * v)
    alpha = n * t1 - r if f > 0.0 else y - n * t1
    return logz, alpha, n * tq - n * n * (t2 - t1 * t1)


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log E[p(y | f)], alpha and beta; relative error 1e-10 or better for v <= 100."""
    for n in range(y.shape[0]):
        if v[n] >= 0.0 and v[n] <= FLAT:
            logz[n], alpha[n], beta[n] = in_latent(y[n], theta[n], m[n])
            beta[n] = -beta[n]
        else:
            logz[n], alpha[n], beta[n] = tilted_in_latent(y[n], theta[n], m[n], v[n])
        logz[n] += _log_constant(y[n], theta[n])


@kernel
def in_f(y, f, theta, value, d1, d2):
    """Write what of log p(y | f) depends on f, and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], d2[n] = in_latent(y[n], theta[n], f[n])


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], d2[n] = in_latent(y[n], theta[n], f[n])
        value[n] += _log_constant(y[n], theta[n])


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of omega ~ PG(y + r, xi) with xi^2 = square, and what it adds to the bound."""
    for n in range(y.shape[0]):
        target[n] = y[n] + theta[n]
    pg_expected(target, square, weight, constant)
    spread[:] = 0.0
    for n in range(y.shape[0]):
        target[n] = 0.5 * (y[n] - theta[n])


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """weight = a draw of omega ~ PG(y + r, f); of an entry that counts `used` times of PG(used (y + r), f)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                n, count = used[b, lane], y[b, lane] + theta[b, lane]
                weight[b, lane] = draw_pg(s, n * count, f[b, lane])
                target[b, lane] = 0.5 * n * (y[b, lane] - theta[b, lane])


@kernel
def matched(y, f, square, theta, weight, target, spread, constant):
    """Write the Gaussian that has the expected slope and curvature of the log likelihood (see `poisson.matched`)."""
    for i in range(y.shape[0]):
        spread[i] = math.sqrt(max(square[i] - f[i] * f[i], 0.0))
    expected_logistic(f, spread, target, weight, constant)
    for i in range(y.shape[0]):
        n = y[i] + theta[i]
        slope, soft = y[i] - n * target[i], constant[i]
        weight[i] = max(n * weight[i], abs(slope) / MOST_MOVE)
        target[i] = slope + weight[i] * f[i]
        spread[i] = 0.0
        constant[i] = y[i] * f[i] - n * soft - target[i] * f[i] + 0.5 * weight[i] * square[i]


class NegativeBinomial(Counts):
    """Counts of dispersion theta."""

    extent = "exposure"
    is_dispersed = True

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        return beta_cdf(m, v, lambda k, rows: (theta[rows], (k + 1.0) * theta[rows] / (k + 1.0 + theta[rows])))

    def log_rate(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """That of a Gamma(r) variable times e^f, which is the rate of a Poisson count."""
        return m + np.log(theta), v + 1.0 / theta

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return mean r exp(m + v/2) and variance of a new count; inf where they exceed the range of float64."""
        m, v, r = aligned(m, v, theta)
        with np.errstate(over="ignore"):
            mean = r * np.exp(m + 0.5 * v)
            # E[mu] + E[mu^2] / r + Var[mu] with mu = r e^f
            return mean, mean + mean * mean * (np.exp(v) / r + np.expm1(v))

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return Poisson counts whose rates are Gamma(r) draws times e^f."""
        f, r = aligned(f, theta)
        rate = rng.gamma(r)
        return poisson_draws(rng, f + np.log(np.maximum(rate, np.finfo(np.float64).tiny)))


# The common law of dispersions that rows of a mode have one each: r = r0 lambda, lambda ~ Gamma(alpha, alpha).
#
# Entries add l (tables of a Chinese restaurant) to the shape and s (softpluses) to the rate of the law of their r. With
# lambda integrated out they have the density of `tensorcep.likelihoods.parameters.scale_mixture`, in which n / 2 is l,
# S / 2 is s and tau is r0: what learns the noise of rows learns their dispersions. Rows of few entries shrink to r0,
# and one without any has the common law.
#
# Source: Zhou and Carin (2015), Negative binomial process count and mixture modeling, IEEE Trans. PAMI 37, for l and s.

# Where alpha starts in `ALPHAS`: dispersions are then about the same.
FIRST = len(scale_mixture.ALPHAS) - 1


def group_sums(shape: np.ndarray, rate: np.ndarray) -> GroupSums:
    """What entries add to shapes and rates (m,), as groups of entries whose noise differs."""
    return GroupSums(2.0 * shape, 2.0 * rate)


# The dispersion r of negative-binomial counts: a Gamma prior, and what the entries say of it.
#
# Samplers and PG-VB count the tables of a Chinese restaurant (Zhou and Carin 2015). Where only Gaussian marginals of
# the latent values are known, `law_of_entries` fits r to them together with one shift c of all its f, since the mean
# count r e^f stays where it was only if f follows r, which takes the rows several sweeps. Earlier entries, which the
# prior of a batch speaks for, have said as much of the level of f as of r, and c is as little free.

# E[g(f)] for f ~ N(m, v) as a weighted sum over m + sqrt(v) z.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
_NODES = tuple(zip(NODES.tolist(), WEIGHTS.tolist(), strict=True))
# Entries whose sums over the nodes stay in the cache.
AT_ONCE = 256
# Newton steps of (log r, c), the last of them; how near to its best c is for a step of r; the least curvature believed.
NEWTON_STEPS, CLOSE, NEAR, LEAST_CURVATURE = 30, 1e-6, 0.1, 1e-3
# How far log r may go at a time: what is left of the level of f is the rows' to follow.
MOST_STEP = 0.4


@block_kernel
def draw_tables(first, last, y, used, r, key, tables, s):
    """tables ~ CRT(y, r) of each entry."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            tables[b, lane] = draw_crt(s, y[b, lane], r[b, lane]) if used[b, lane] > 0.0 else 0.0


@inlined
def _add_node(z, w, f, sd, p, pq, soft):
    """What one node adds; over entries, which vectorises."""
    for i in range(f.shape[0]):
        x = f[i] + sd[i] * z
        big, small, tail = logistic(x)
        p[i] += w * big
        pq[i] += w * big * small
        soft[i] += w * (tail + max(x, 0.0))


@kernel
def expected_logistic(f, sd, p, pq, soft):
    """Write E[p], E[p (1 - p)] and E[log(1 + e^x)] of p = 1 / (1 + e^-x), x ~ N(f, sd^2)."""
    for first in range(0, f.shape[0], AT_ONCE):
        at = slice(first, min(first + AT_ONCE, f.shape[0]))
        p[at], pq[at], soft[at] = 0.0, 0.0, 0.0
        for j in range(len(_NODES)):
            _add_node(_NODES[j][0], _NODES[j][1], f[at], sd[at], p[at], pq[at], soft[at])


def expected_tables(y: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return the expected number of tables, E[CRT(y, r)]."""
    return np.asarray(r * (digamma(r + y) - digamma(r)))


def softplus(f: np.ndarray, square: np.ndarray | None = None) -> np.ndarray:
    """Return log(1 + e^f), or its tangent bound at E[f] = f and E[f^2] = square."""
    if square is None:
        return np.logaddexp(0.0, f)
    xi = np.sqrt(square)
    return np.asarray(0.5 * f + (0.5 * xi + np.log1p(np.exp(-xi))))


# Rounds of the updates of tables and law in an expected update: they cost little and would hold up the rows.
ROUNDS = 10


class DispersionLaw(NamedTuple):
    """The laws of dispersions; and, where rows of a mode have one each, r0 and alpha, which is one of `ALPHAS`."""

    law: Gamma
    pool: Evenness | None

    @property
    def theta(self) -> np.ndarray:
        """The numbers that stand for it, (m,)."""
        return self.law.mean


def pooled(pool: Evenness, prior: ShapeRate, law: Gamma) -> DispersionLaw:
    """The best common law given what entries added to the laws of all r under the one before; and these under it."""
    a, b = pool.law
    shape, rate = np.maximum(law.a - a, 0.0), np.maximum(law.b - b, 0.0)
    pool = scale_mixture.fitted(group_sums(shape, rate), prior, pool.tau, pool.place)
    a, b = pool.law
    return DispersionLaw(Gamma(a + shape, b + rate), pool)


@dataclass(frozen=True)
class DispersionParameter(Parameter[DispersionLaw]):
    """The dispersion r of negative-binomial counts, with a Gamma prior, of all entries or of the rows of a mode."""

    prior: ShapeRate = (1.0, 0.1)  # shape and rate; of a common law that of r0
    # From a large r (nearly Poisson counts) the factors first explain noise, and stay in a worse optimum when r falls.
    start: float = 1.0
    earlier: float = 0.0  # what earlier entries, of other batches, have added to the rate of the prior
    groups: base.Groups = base.UNBOUND
    has_pool: bool = False  # whether rows have a common law, which is learned; otherwise that is the prior
    # For expected updates by tables: the distinct pairs of a dispersion and a count, (n,) each, and how many entries
    # have them; none where Gaussian marginals of latent values tell the laws.
    counts: tuple[np.ndarray, ...] = ()
    name = "dispersion"
    is_theta = of_rows = True

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw | FactorDraw:
        theta = np.full(self.groups.size, self.start)
        return FactorDraw.even(theta, self.start, self.groups.size) if self.has_pool else ParameterDraw(theta)

    def first_law(self, n: int = 0) -> DispersionLaw:
        size = self.groups.size
        pool = Evenness(self.start, FIRST, 1.0) if self.has_pool else None
        a = (self.prior if pool is None else pool.law)[0]
        return DispersionLaw(Gamma(np.full(size, a), np.full(size, a / self.start)), pool)

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: base.Places = None) -> base.Pair:
        return y, self.groups.at(state.theta, place)

    def draw(self, state: Any, stats: EntryStats, key: base.DrawKey) -> tuple[Any, EntryStats]:
        """Draws given latent values, auxiliary variables integrated out; of a common law first, without them."""
        soft, used, tables = softplus(stats.f), stats.used, np.empty(stats.f.shape)
        record = (stats.y, used, stats.theta(), key.of_entries(RandomStream.TABLES), tables)
        stats.executor.run(draw_tables, 0, len(used), *record, scratch=base.room_for_stream)
        shape = self.groups.totals(lambda at: tables[at])
        rate = self.groups.totals(lambda at: used[at] * soft[at])
        rng = key.rng(RandomStream.DISPERSION)
        if self.has_pool:
            return draw_pooled(state, group_sums(shape, rate), self.prior, rng), stats
        return ParameterDraw(Gamma(self.prior[0] + shape, self.prior[1] + rate).draw(rng)), stats

    def with_observations(self, y: np.ndarray, used: np.ndarray) -> DispersionParameter:
        """With the distinct pairs of a dispersion and a count, and how many entries have each."""
        pairs: np.ndarray = np.zeros((2, 0))
        times: np.ndarray = np.zeros(0)
        for first in range(0, len(y), LINES):
            at = slice(first, first + LINES)
            some = np.stack([self.groups.of_entry[at][used[at] > 0], y[at][used[at] > 0]])
            every, count = np.concatenate([pairs, some], axis=1), np.append(times, np.ones(some.shape[1]))
            pairs, place = np.unique(every, axis=1, return_inverse=True)
            times = np.bincount(place.ravel(), count, minlength=pairs.shape[1])
        return replace(self, counts=(pairs[0].astype(np.int64), pairs[1], times))

    def after(self, law: Gamma, weight: float) -> DispersionParameter:
        """The parameter with a share `weight` of what is known of it as the prior and the start."""
        (a, b), (p, q) = (float(law.a[0]), float(law.b[0])), self.prior
        earlier = weight * (b - q)
        return replace(self, prior=(p + weight * (a - p), q + earlier), start=a / b, earlier=max(earlier, 0.0))

    def expect(self, state: DispersionLaw, stats: EntryStats, step: float | None = None) -> DispersionLaw:
        """The laws, given marginals of latent values or else with the expected tables, and the best common law."""
        n, law = stats.n, state.law
        if stats.marginals is None:
            used, f, square = stats.used, stats.f, stats.square
            law = self.law_of_counts(state, self.groups.totals(lambda at: used[at] * softplus(f[at], square[at])))
        else:
            place = self.groups.sample(n)
            group, share = None, np.array(len(place) / max(n, 1))
            if self.groups.mode is not None:
                group, size = self.groups.of_entry.ravel()[place], self.groups.size
                every = np.bincount(self.groups.of_entry.ravel()[:n], minlength=size)
                share = np.where(every == 0, 1.0, np.bincount(group, minlength=size) / np.maximum(every, 1))
            entries = (stats.y.ravel()[place], *stats.marginals(place), stats.used.ravel()[place])
            law = self.law_of_entries(state, entries, share, group) if len(place) else law
            if step is not None:
                law = Gamma(law.a, law.a / (state.law.mean ** (1.0 - step) * law.mean**step))
        return DispersionLaw(law, None) if state.pool is None else pooled(state.pool, self.prior, law)

    def law_of_entries(self, state: DispersionLaw, entries: tuple[np.ndarray, ...], share: Any, group: Any) -> Gamma:
        """The law of each r given counts with Gaussian latent values: Laplace's approximation in log r."""
        # `entries` are y, m and v of f ~ N(m, v), and how often each counts, (n,) each: a `share` of all of each r, the
        # others being like them; `group` (n,) says which r each has, None where there is but one. From the mean of the
        # present law log r goes no further than MOST_STEP.
        (y, m, v, used), prior, start = entries, self.prior_of(state), state.law.mean
        n, sd, law, counts, times, at = len(start), np.sqrt(v), group, y, used, 0 if group is None else group
        if law is None:  # the distinct counts, and how many there are; of several laws every count by itself
            counts, place = np.unique(y, return_inverse=True)
            law, times = np.zeros(len(counts), dtype=np.int64), np.bincount(place, used, minlength=len(counts))

        def total(values: np.ndarray) -> np.ndarray:
            each = used * values
            return np.array([each.sum()]) if group is None else np.bincount(group, each, minlength=n)

        def derivatives(shift: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, ...]:
            """Slopes in log r and c of the expected log posterior; minus its second derivatives (log r, both, c)."""
            p, pq, soft = np.empty(len(y)), np.empty(len(y)), np.empty(len(y))
            expected_logistic(m + shift[at], sd, p, pq, soft)
            mine = y + r[at]
            more = digamma(counts + r[law]) - digamma(r)[law], polygamma(1, r)[law] - polygamma(1, counts + r[law])
            once, twice = (np.bincount(law, times * values, minlength=n) for values in more)
            in_r = (once - total(soft)) / share + prior[0] / r - prior[1]
            twice_r = twice / share + prior[0] / r**2
            told = r * r * twice / share
            twice_c = total(mine * pq) / share
            held = twice_c * r * self.earlier / np.maximum(told, LEAST_CURVATURE)
            in_c = total(y - mine * p) / share - held * shift
            return r * in_r, in_c, r * r * twice_r - r * in_r, r * total(p) / share, twice_c + held

        log_r, shift, going = np.log(start), np.zeros(n), np.ones(n, dtype=bool)
        curvature = np.full(n, LEAST_CURVATURE)
        for _ in range(NEWTON_STEPS):
            slope, slope_c, bend, cross, bend_c = derivatives(shift, np.exp(log_r))
            bend_c = np.maximum(bend_c, LEAST_CURVATURE)
            curvature = np.where(going, np.maximum(bend - cross * cross / bend_c, LEAST_CURVATURE), curvature)
            # elsewhere the best c is not known yet, nor what r would gain
            near = going & (np.abs(slope_c) < NEAR * bend_c)
            step = np.clip((slope - cross * slope_c / bend_c) / curvature, -MOST_STEP, MOST_STEP)
            step = np.where(near, step, 0.0)
            log_r += step
            far = np.abs(log_r - np.log(start)) > 2.0 * MOST_STEP
            going &= ~(near & ((np.abs(step) < CLOSE) | far))
            if not going.any():
                break
            shift += np.where(going, np.clip((slope_c - cross * step) / bend_c, -1.0, 1.0), 0.0)
        r = np.exp(np.log(start) + np.clip(log_r - np.log(start), -MOST_STEP, MOST_STEP))
        return Gamma(curvature, curvature / r)

    def shift(self, before: DispersionLaw, after: DispersionLaw) -> np.ndarray | float:
        """Entries tell the mean count r e^f: as log r rises, rows will take f down."""
        log_ratio = np.log(before.law.mean / after.law.mean)
        return float(log_ratio[0]) if self.groups.mode is None else self.groups.at(log_ratio)

    def law_of_counts(self, state: DispersionLaw, rate: np.ndarray) -> Gamma:
        """The law after rounds in turn with the expected tables, at exp(E[log r]), given the sums of rates (m,)."""
        (a, b), (group, y, multiplicity) = self.prior_of(state), self.counts
        law = Gamma(state.law.a, b + rate)
        for _ in range(ROUNDS):
            tables = multiplicity * expected_tables(y, law.typical[group])
            law = Gamma(a + np.bincount(group, weights=tables, minlength=len(law.a)), law.b)
        return law

    def prior_of(self, state: DispersionLaw) -> tuple[float, float]:
        """Shape and rate of the present prior."""
        return self.prior if state.pool is None else state.pool.law

    def bound(self, state: DispersionLaw) -> float:
        """What the laws and the part of the likelihood that depends on them alone add to a lower bound."""
        group, y, multiplicity = self.counts
        # log Gamma(y + r) - log Gamma(r) - log y!, by the beta function, which differs less at large r
        r, some = state.law.typical[group], np.maximum(y, 1.0)
        constant = np.where(y > 0.0, -np.log(some) - betaln(r, some), 0.0)
        divergence = gammas(*state.law, *self.prior_of(state)).divergence
        common = 0.0 if state.pool is None else scale_mixture.log_prior(state.pool.tau, self.prior)
        return float((multiplicity * constant).sum()) - divergence + common

    def results(self, law: DispersionLaw) -> dict[str, tuple[Any, ...]]:
        common = () if law.pool is None else (law.pool.tau, law.pool.alpha)
        return {"dispersion": (self.groups.mode, *law.law, *common)}


def draw_pooled(state: FactorDraw, groups: GroupSums, prior: ShapeRate, rng: np.random.Generator) -> FactorDraw:
    """Dispersions given what entries add to their laws; mean and shape of their common law are drawn first."""
    drawn = scale_mixture.draw_factors_of_groups(state, groups, prior, rng)
    return drawn._replace(theta=drawn.own * drawn.factor, base=drawn.own).with_common(1.0)


PG = Augmentation(expected, drawn, weighted=True, exponents=lambda y, r: (y + r, 0.5 * (y - r)))
LEARNED, MATCHED = (DispersionParameter(),), Augmentation(matched, weighted=True, matched=True)
NEGBINOMIAL = NegativeBinomial("negbinomial", tilted, loglik, LEARNED, pg=PG, matched=MATCHED, in_f=in_f)
