"""The dispersion of negative-binomial counts: its law, learned over all entries or by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, digamma, polygamma

from tensorcep.core.arrays import LINES
from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.core.random import RandomStream, start_stream
from tensorcep.kernels.polya_gamma import draw_crt
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import logistic
from tensorcep.likelihoods.parameters import base, scale_mixture
from tensorcep.likelihoods.parameters.base import EntryStats, Gamma, Parameter, ParameterDraw, ShapeRate, gammas
from tensorcep.likelihoods.parameters.scale_mixture import Evenness, FactorDraw, GroupSums

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
MAX_NEWTON, CLOSE, NEAR, LEAST_CURVATURE = 30, 1e-6, 0.1, 1e-3
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
        for _ in range(MAX_NEWTON):
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
