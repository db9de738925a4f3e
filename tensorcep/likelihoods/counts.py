"""Counts: what their likelihoods share, distribution functions, quantiles and draws; and structural zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, digamma, entr, expit, gammaincc, ndtr, ndtri

from tensorcep.core.checks import check_counts, check_fraction, check_values
from tensorcep.core.random import RandomStream
from tensorcep.kernels.special import DROP, REACH
from tensorcep.likelihoods.base import Likelihood, aligned
from tensorcep.likelihoods.parameters.base import DrawKey, DrawStage, EntryStats, Pair, Parameter, ParameterDraw

CHUNK = 2048  # entries at a time
# Above this the count's own noise moves a quantile by less than 1 part in 1e7 and floats no longer hold every integer.
CONTINUOUS_FROM = 2.0**52
# Draws with a rate above e^41 are normal to 1 part in 1e9, and beyond the sampler's range from e^43.6.
NORMAL_FROM = 41.0
# Nodes per unit of sqrt(1 + v kappa) for a distribution function whose steepness in f is that of a normal one of
# precision kappa; a quantile needs no more than the largest number of them.
NODES, MAX_NODES = 24.0, 512

# cdf(k, rows): P(y <= k) for the entries `rows`
CountCDF = Callable[[np.ndarray, np.ndarray], np.ndarray]


def mixture_cdf(k: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return P(y <= k) for y ~ Poisson(e^f), f ~ N(m, v), each argument (n,), k >= 0 whole."""
    # P(y <= k | rate) = P(X > rate) with X ~ Gamma(k + 1): the mean is taken over f where f is the narrower of the two,
    # and over log X, of the normal probability that f is below it, where log X is.
    s, result = np.sqrt(v), np.empty_like(m)
    narrow, small = s * np.sqrt(k + 1.0) <= 1.0, k < 8.0
    for rows, n_nodes in ((narrow, 0), (~narrow & small, 192), (~narrow & ~small, 64)):
        for part in np.array_split(np.flatnonzero(rows), 1 + rows.sum() // CHUNK):
            shape, centre, sd = k[part, None] + 1.0, m[part, None], s[part, None]
            if not n_nodes:
                u = np.linspace(-REACH, REACH, 64)
                weight = np.exp(-0.5 * u * u)
                with np.errstate(over="ignore"):
                    below = gammaincc(shape, np.exp(centre + sd * u))
                result[part] = below @ (weight / weight.sum())
                continue
            q = DROP / shape
            low, high = -0.5 * (q + np.sqrt(q * (q + 8.0))), np.log1p(q + np.sqrt(2.0 * q))
            d = low + (high - low) * np.linspace(0.0, 1.0, n_nodes)
            weight = np.exp(-shape * (np.expm1(d) - d))
            below = ndtr((np.log(shape) + d - centre) / sd)
            result[part] = np.einsum("nj,nj->n", weight, below) / weight.sum(axis=1)
    return result


def _bracket(q: float, m: np.ndarray, v: np.ndarray, cdf: CountCDF) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers low < high with P(y <= low) < q <= P(y <= high); -1 stands for no count at all."""
    z = ndtri(q)
    rate = np.exp(m + z * np.sqrt(v))
    guess = np.floor(rate + z * np.sqrt(rate) / (1.0 + np.sqrt(v * rate)))
    low, high = np.maximum(guess - 1.0, -1.0), np.maximum(guess, 0.0)
    width = np.maximum(1.0, np.floor(0.02 * guess))
    open_high = np.arange(m.size)
    while open_high.size:
        short = cdf(high[open_high], open_high) < q
        open_high = open_high[short]
        low[open_high] = high[open_high]
        high[open_high] += width[open_high]
        width[open_high] *= 2.0
    width = np.maximum(1.0, np.floor(0.02 * guess))
    open_low = np.flatnonzero(low >= 0.0)
    while open_low.size:
        open_low = open_low[cdf(low[open_low], open_low) >= q]
        high[open_low] = low[open_low]
        low[open_low] = np.maximum(low[open_low] - width[open_low], -1.0)
        width[open_low] *= 2.0
        open_low = open_low[low[open_low] >= 0.0]
    return low, high


def halved(q: float, low: np.ndarray, high: np.ndarray, cdf: CountCDF) -> np.ndarray:
    """Return the smallest whole k with cdf(k) >= q where low < k <= high, (n,) each, by halves of what is between."""
    active = np.flatnonzero(high - low > 1.0)
    while active.size:
        middle = np.floor(0.5 * (low[active] + high[active]))
        enough = cdf(middle, active) >= q
        high[active] = np.where(enough, middle, high[active])
        low[active] = np.where(enough, low[active], middle)
        active = active[high[active] - low[active] > 1.0]
    return high


def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray, cdf: CountCDF) -> np.ndarray:
    """Return the smallest whole k with cdf(k) >= q, inf beyond floats; m, v: about those of the log rate, to start."""
    with np.errstate(over="ignore"):
        result = np.exp(m + ndtri(q) * np.sqrt(v))
        upper = np.exp(m + max(ndtri(q), 0.0) * np.sqrt(v))
    rows = np.flatnonzero(upper < CONTINUOUS_FROM)

    def of_rows(k: np.ndarray, part: np.ndarray) -> np.ndarray:
        return cdf(k, rows[part])

    result[rows] = halved(q, *_bracket(q, m[rows], v[rows], of_rows), of_rows)
    return np.where(np.isnan(result), result, np.floor(result))


def beta_cdf(m: np.ndarray, v: np.ndarray, law: Callable[..., tuple[np.ndarray, np.ndarray]]) -> CountCDF:
    """The distribution function P(y <= k) = E[I(a, k + 1; 1 / (1 + e^f))] for f ~ N(m, v), each (n,)."""

    # ``law(k, rows) -> (a, kappa)``, kappa being the precision of the normal law that is as steep in f.
    def cdf(k: np.ndarray, rows: np.ndarray) -> np.ndarray:
        result = np.empty_like(k)
        for part in np.array_split(np.arange(len(k)), 1 + len(k) // CHUNK):
            if part.size:
                at, (a, kappa) = rows[part], law(k[part], rows[part])
                n_nodes = int(np.ceil(NODES * np.sqrt(1.0 + (v[at] * kappa).max())))
                u = np.linspace(-REACH, REACH, min(n_nodes, MAX_NODES)) if v[at].any() else np.zeros(1)
                weight = np.exp(-0.5 * u * u)
                f = m[at, None] + np.sqrt(v[at, None]) * u
                result[part] = betainc(a[:, None], k[part, None] + 1.0, expit(-f)) @ (weight / weight.sum())
        return result

    return cdf


def poisson_draws(rng: np.random.Generator, log_rate: np.ndarray) -> np.ndarray:
    """Return a Poisson draw for each log rate (n,); inf where it exceeds the range of float64."""
    draws = rng.poisson(np.exp(np.minimum(log_rate, NORMAL_FROM))).astype(np.float64)
    large = log_rate > NORMAL_FROM
    with np.errstate(over="ignore"):
        rate = np.exp(log_rate[large])
    spread = np.sqrt(np.minimum(rate, np.finfo(np.float64).max))  # inf stays inf, and finite noise does not matter
    draws[large] = np.rint(rate + spread * rng.standard_normal(rate.shape))
    return draws


class Counts(Likelihood):
    """Counts 0, 1, 2, ..., by their distribution function."""

    observes: ClassVar[str | None] = "counts"

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        """The distribution function of counts with f ~ N(m, v), each argument (n,)."""
        raise NotImplementedError

    def log_rate(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """About the moments of the log of the rate, from which the search of a quantile starts, in the shape of m."""
        return m, v

    def check_y(self, y: ArrayLike) -> np.ndarray:
        return check_counts("y", check_values(y, name="y"))

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Return the smallest count with a probability of at least q of not being exceeded."""
        cdfs = [self.cdf(*component) for component in zip(m, v, theta, strict=True)]
        centre, spread = self.log_rate(m, v, theta)
        m, v, q = centre.mean(axis=0), spread.mean(axis=0) + centre.var(axis=0), check_fraction("q", q)
        return mixture_quantile(q, m, v, lambda k, rows: np.mean([one(k, rows) for one in cdfs], axis=0))

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, theta = aligned(y, m, v, theta)
        cdf = self.cdf(m, v, theta)
        lower, upper = cdf(y, np.arange(len(y))), np.ones_like(y)
        some = np.flatnonzero(y > 0.0)
        upper[some] = 1.0 - cdf(y[some] - 1.0, some)
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    @property
    def zeros(self) -> ZeroInflation | None:
        return next((one for one in self.parameters if isinstance(one, ZeroInflation)), None)

    def as_fitted(self, theta: np.ndarray) -> Likelihood:
        return self if self.parameter is None else replace(self, default_theta=float(np.exp(np.log(theta).mean())))

    def by_component(self, values: np.ndarray) -> Likelihood:
        """Of counts with structural zeros, whose lines of values are dispersion and share."""
        dispersion = np.full(len(values), self.default_theta) if self.parameter is None else values[:, 0]
        others = replace(self, parameters=tuple(one for one in self.parameters if one is not self.zeros))
        lines = dispersion, values[:, -1]

        def loglik(y: Any, f: Any, theta: Any, value: Any, *unused: Any) -> None:  # of no derivatives
            r, p = (part[theta.astype(np.int64)] for part in lines)
            others.loglik(y, f, r, value, *unused)
            value[:] = with_zeros(y, value, p)

        return InflatedCounts(self.name, None, loglik, others.parameters, self.default_theta, of=others, lines=lines)


# Structural zeros: an entry is 0, whatever its latent value, with a probability that is learned.
#
# P(y | f) = pi [y = 0] + (1 - pi) p(y | f), the share pi having a Beta prior. Given which zeros are structural, the
# others are counts of the likelihood p, and pi is known by how many there are of each. A zero is not structural with
# the probability (1 - pi) p(0 | f) / P(0 | f): samplers draw that, mean-field methods take it as the weight of the
# entry.
#
# Source: Lambert (1992), Zero-inflated Poisson regression, Technometrics 34; Neelon (2019), Bayesian zero-inflated
# negative binomial regression based on Polya-Gamma mixtures, Bayesian Analysis 14, for the sampler.


class Beta(NamedTuple):
    """Beta law of a share: a counts what has the property, b what has it not."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """E[p]."""
        return self.a / (self.a + self.b)

    @property
    def theta(self) -> np.ndarray:
        """The number that stands for it, (1,)."""
        return np.array([self.mean])

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


@dataclass(frozen=True)
class ZeroInflation(Parameter[Beta]):
    """The share of structural zeros, with a Beta prior."""

    prior: tuple[float, float] = (1.0, 1.0)
    start: float = 0.1
    loglik: Any = None  # the kernel of the other counts
    name = "zero_share"
    stage = DrawStage.PRESENCE

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        return ParameterDraw(np.full(1, self.start))

    def first_law(self, n: int = 0) -> Beta:
        return self.law_of(n * self.start, n * (1.0 - self.start))

    def law_of(self, n_structural: float, n_others: float) -> Beta:
        """The law given how many entries are structural zeros, and how many are not."""
        return Beta(self.prior[0] + n_structural, self.prior[1] + n_others)

    def shared(self, state: Any, theta: float, cuts: np.ndarray) -> tuple[float, np.ndarray]:
        """Those of the other counts."""
        return theta, cuts

    def expect(self, state: Beta, stats: EntryStats, step: float | None = None) -> Beta:
        """The best law, `used` being how probably every entry is none, of which there are `n`."""
        n_present = float(stats.used.sum())
        return self.law_of(stats.n - n_present, n_present)

    def draw(self, state: ParameterDraw, stats: EntryStats, key: DrawKey) -> tuple[ParameterDraw, EntryStats]:
        """Which zeros are structural, given latent values, which then say nothing; and their share."""
        rng, f = key.rng(RandomStream.ZEROS), stats.f
        at = (stats.y == 0.0) & (stats.used > 0.0)
        y, theta = stats.y[at], stats.theta()[at]
        log_mass = np.empty_like(y)
        self.loglik(y, f[at], theta, log_mass, np.empty_like(y), np.empty_like(y))
        present = stats.used.copy()
        present[at] = rng.random(len(y)) < presence(y, log_mass, float(state.theta[0]))
        n, n_present = float(stats.used.sum()), float(present.sum())
        return ParameterDraw(np.full(1, self.law_of(n - n_present, n_present).draw(rng))), stats._replace(used=present)

    def mixed(self, state: ParameterDraw, y: np.ndarray, log_density: np.ndarray) -> np.ndarray:
        return with_zeros(y, log_density, float(state.theta[0]))

    def weigh_expected(self, state: Beta, y: np.ndarray, moments: Pair, parts: tuple[np.ndarray, ...]) -> np.ndarray:
        """Weigh what entries say by the probability, which is returned, that they are no structural zeros; in place."""
        weight, target, _, constant = parts
        log_share, log_rest = state.log_means
        log_mass = constant + target * moments[0] - 0.5 * weight * moments[1]
        present = np.where(y > 0.0, 1.0, expit(log_rest - log_share + log_mass))
        for part in parts:
            part *= present
        # what the indicators add to a lower bound: their expected log probability and their entropy
        constant += present * log_rest + (1.0 - present) * log_share + entr(present) + entr(1.0 - present)
        return present

    def bound(self, state: Beta) -> float:
        return -state.divergence(self.prior)

    def results(self, law: Beta) -> dict[str, tuple[Any, ...]]:
        return {"zeros": tuple(law)}


def with_zeros(y: np.ndarray, log_mass: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """log P(y) of counts with a share of structural zeros, from the log mass of the others."""
    with np.errstate(divide="ignore"):
        own, log_share = np.log1p(-np.asarray(share)) + log_mass, np.log(share)
    return np.where(y > 0.0, own, np.logaddexp(log_share, own))


def presence(y: np.ndarray, log_mass: np.ndarray, share: float) -> np.ndarray:
    """The probability that each count is no structural zero, from the log mass of such at its latent value."""
    return np.where(y > 0.0, 1.0, expit(np.log1p(-share) - np.log(share) + log_mass))


def zero_inflated(counts: Likelihood, zeros: ZeroInflation) -> Likelihood:
    """Return the likelihood of counts, "poisson" or "negbinomial", some of which are structural zeros."""
    # Its kernels are those of the other counts: methods that know of `zeros` weigh entries. Learned of all entries
    # together are the dispersion, of no meaning where it is given or there is none, and the share.
    return replace(counts, parameters=(*counts.parameters, replace(zeros, loglik=counts.loglik)))


@dataclass(frozen=True)
class InflatedCounts(Counts):
    """Predictions of counts some of which are structural zeros; theta is the number of a line (see `by_component`)."""

    of: Any = None  # the other counts
    lines: tuple[np.ndarray, ...] = ()  # dispersions (C,) and shares (C,)
    extent = "exposure"

    def _parts(self, *args: ArrayLike) -> list[np.ndarray]:
        """The arguments as arrays, with dispersions and shares in the place of theta, which is the last."""
        *others, theta = aligned(*args)
        return [*others, *(part[theta.astype(np.int64)] for part in self.lines)]

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, r, p = self._parts(y, m, v, theta)
        return with_zeros(y, self.of.logpdf(y, m, v, r), p)

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, r, p = self._parts(m, v, theta)
        mean, variance = self.of.predict(m, v, r)
        with np.errstate(over="ignore"):
            return (1.0 - p) * mean, (1.0 - p) * (variance + p * mean * mean)

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, r, p = self._parts(y, m, v, theta)
        lower, upper = self.of.tails(y, m, v, r)
        return p + (1.0 - p) * lower, np.where(y > 0.0, (1.0 - p) * upper, 1.0)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, r, p = self._parts(f, theta)
        return np.where(rng.random(f.shape) < p, 0.0, self.of.sample(rng, f, r))

    def mixture_quantile(self, q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The q-quantile is that at (q - p) / (1 - p) of what is left when the mean share p of zeros is taken away."""
        q = check_fraction("q", q)
        m, v, r, share = self._parts(m, v, theta)
        cdfs = [self.of.cdf(*component) for component in zip(m, v, r, strict=True)]
        p, result = share.mean(axis=0), np.zeros(m.shape[1])
        rate, own_spread = self.of.log_rate(m, v, r)
        centre, spread = rate.mean(axis=0), own_spread.mean(axis=0) + rate.var(axis=0)
        for own in np.unique(p[p < q]):
            rows = np.flatnonzero(p == own)

            def cdf(k: np.ndarray, some: np.ndarray, rows: np.ndarray = rows, own: float = own) -> np.ndarray:
                at = rows[some]
                each = [s[at] + (1.0 - s[at]) * one(k, at) for s, one in zip(share, cdfs, strict=True)]
                return np.asarray((np.mean(each, axis=0) - own) / (1.0 - own))

            result[rows] = mixture_quantile((q - own) / (1.0 - own), centre[rows], spread[rows], cdf)
        return result
