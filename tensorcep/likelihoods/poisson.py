"""Poisson likelihoods of counts 0, 1, 2, ...: y ~ Poisson(e^f); below with the square link, f^2, and with softplus.

Tilted moments come from the adapted trapezoidal rule of `kernels.special`, centred on the mode of
(likelihood x cavity). Around it, with d = f - mode and rate = e^mode, the log density falls by
rate (e^d - 1 - d) + d^2 / (2 v), which says how far the nodes must reach. With E over the tilted density,

    alpha = (E[f] - m) / v = y - E[e^f],    beta = 1 / v - Var[f] / v^2 = E[e^f] - Var[e^f];

the first form is used where the count says more than the cavity, the second, which does not cancel for small v,
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.special import dawsn, digamma, gammaincc, gammaln, logsumexp

from tensorcep.core.compile import kernel
from tensorcep.kernels import special
from tensorcep.kernels.special import DROP, LOG_SQRT_2PI, REACH, SMALLEST, TINY, exp, exp_parts, log, log1p_unit
from tensorcep.likelihoods.base import Augmentation, Triple, aligned
from tensorcep.likelihoods.counts import CountCDF, Counts, mixture_cdf, poisson_draws

# The integrand decays along the frequency axis like a Gaussian of precision kappa when kappa is large, and at a rate of
# pi / 2, from where e^-(e^f) stops to decay, when it is small: frequencies up to min over both are needed for 1e-15.
GAUSS_FREQUENCY, STRIP_FREQUENCY, STRIP_SLOPE, SHARP = 8.6, 27.0, math.pi / 4.0, 30.0
# log y! by Stirling's series from here on: its first term left out is below 1e-18.
STIRLING_FROM = 16.0
# How far the Gaussian that stands for an entry may lie from the present f.
MOST_MOVE = 2.0
# Beyond so many times the count and 1 (a log) the expected rate, which can leave the finite numbers, is not followed.
MOST_EXCESS = 8.0


@kernel
def _mode(y, m, v):
    """Return the f where y f - e^f - (f - m)^2 / (2 v) is largest, to about 1e-6."""
    # t = v e^f solves t + log t = c (the Wright omega function). One step of Fritsch, Shafer and Crowley (1973, CACM
    # algorithm 443) and one of Newton; the sums hold exactly for any centre, so more digits would change nothing.
    log_v = log(v)
    c = m + v * y + log_v
    if c > 1.0:
        t = c - log(c)
    else:
        t = exp(c)
        t = t / (1.0 + t)
    r = c - t - log(t)
    a = (1.0 + t) * (1.0 + t + 2.0 / 3.0 * r)
    t *= 1.0 + r / (1.0 + t) * (a - 0.5 * r) / (a - r)
    f = log(t) - log_v if t > 1.0 else m + v * y - t
    rate = exp(f)
    return f - (v * (rate - y) + (f - m)) / (v * rate + 1.0)


@kernel
def _step(kappa):
    """Return the spacing in f for a tilted density with precision kappa at its mode."""
    frequency = GAUSS_FREQUENCY * math.sqrt(kappa) if kappa > SHARP else STRIP_FREQUENCY + STRIP_SLOPE * kappa
    return 2.0 * math.pi / frequency


@kernel
def _span(y, f, v, rate):
    """Return the first node's distance from the mode and the width, so that the density has fallen by DROP outside."""
    reach = REACH * math.sqrt(v)
    q = DROP / rate
    left = 0.5 * (q + math.sqrt(q * (q + 8.0)))  # e^-d - 1 + d >= d^2 / (2 + d)
    # The two falls add; the likelihood's, over d^2, shrinks with d, so this combination is on the safe side.
    left = reach / math.sqrt(1.0 + (reach / left) ** 2)
    # The weights e^f and e^2f move the mode up by no more than this.
    lift = min(2.0 * v / (rate * v + 1.0), max(0.0, log(y + 2.0) - f))
    q = DROP / exp(f + lift)
    right = min(reach, log(1.0 + q + math.sqrt(2.0 * q)))  # e^d - 1 - d = q has d <= sqrt(2 q)
    return -left, left + lift + right


@kernel
def _sums(low, h, nodes, rate, slope, half_precision):
    """Return the sum of w and the means of d, d^2, e^d - 1 and (e^d - 1)^2 over nodes d = f - mode."""
    w0, w1, w2, e1, e2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(nodes):
        d = low + (j + 0.5) * h
        _, excess = exp_parts(d)
        growth = excess + d
        w = exp(d * (slope - half_precision * d) - rate * excess)
        w0 += w
        w1 += w * d
        w2 += w * d * d
        e1 += w * growth
        e2 += w * growth * growth
    return w0, w1 / w0, w2 / w0, e1 / w0, e2 / w0


@kernel
def _log_peak(y):
    """Return log p(y | f = log y) = y log y - y - log y! without cancellation, for y > 0."""
    if y < STIRLING_FROM:
        return y * math.log(y) - y - math.lgamma(y + 1.0)
    x = 1.0 / (y * y)
    series = 1.0 / 1188.0 - x * (691.0 / 360360.0)
    series = 1.0 / 1260.0 - x * (1.0 / 1680.0 - x * series)
    series = (1.0 / 12.0 - x * (1.0 / 360.0 - x * series)) / y
    return -0.5 * log(y) - LOG_SQRT_2PI - series


@kernel
def _log_mass(y, f):
    """Return log p(y | f)."""
    if y > 0.0:
        _, excess = exp_parts(f - log(y))
        return _log_peak(y) - y * excess
    return -exp(f)


@kernel
def _tilted_rare(m, v):
    """Return logz, alpha and beta of y = 0 where zero is the expected count: logz = log(1 - E[1 - e^-rate])."""
    s = math.sqrt(v)
    high = min(m + 2.0 * v, 2.0)
    width = (high - m) / s + 2.0 * REACH
    nodes = special.count_nodes(width, _step(1.0 + 1.0 / v) / s)
    h, missed, e1, e2 = width / nodes, 0.0, 0.0, 0.0
    for j in range(nodes):
        u = -REACH + (j + 0.5) * h
        rate = exp(m + s * u)
        rate = 40.0 if rate > 40.0 else rate  # e^-40 is below rounding
        likelihood, excess = exp_parts(-rate)
        g = exp(-0.5 * u * u)
        missed += g * (rate - excess)
        e1 += g * likelihood * rate
        e2 += g * likelihood * rate * rate
    scale = h * math.exp(-LOG_SQRT_2PI)
    missed, e1, e2 = missed * scale, e1 * scale, e2 * scale
    mean = e1 / (1.0 - missed)
    return log1p_unit(-missed), -mean, mean - (e2 / (1.0 - missed) - mean * mean)


@kernel
def _tilted_one(y, m, v):
    """Return logz, alpha and beta of one entry, from nodes around the mode."""
    f = _mode(y, m, v)
    rate = exp(f)
    precision = 1.0 / v
    low, width = _span(y, f, v, rate)
    nodes = special.count_nodes(width, _step(rate + precision))
    h = width / nodes
    pull = (f - m) * precision
    w0, d1, d2, e1, e2 = _sums(low, h, nodes, rate, y - rate - pull, 0.5 * precision)
    spread = d2 - d1 * d1
    logz = _log_mass(y, f) - 0.5 * (f - m) * pull + log(h * w0 / math.sqrt(v)) - LOG_SQRT_2PI
    if spread < 0.5 * v:
        return logz, (f - m + d1) * precision, precision - spread * precision * precision
    return logz, y - rate * (1.0 + e1), rate * (1.0 + e1) - rate * rate * (e2 - e1 * e1)


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log E[p(y | f)], alpha and beta; relative error 1e-13 or better for v <= 100."""
    for n in range(y.shape[0]):
        var = v[n] + TINY
        if y[n] == 0.0 and m[n] < -1.0 - math.sqrt(var):
            logz[n], alpha[n], beta[n] = _tilted_rare(m[n], var)
        else:
            logz[n], alpha[n], beta[n] = _tilted_one(y[n], m[n], var)


@kernel
def in_f(y, f, theta, value, d1, d2):
    """Write what of log p(y | f) depends on f, and its first two derivatives in f."""
    for n in range(y.shape[0]):
        rate = exp(f[n])
        value[n] = y[n] * f[n] - rate
        d1[n] = y[n] - rate
        d2[n] = -rate


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        rate = exp(f[n])
        value[n] = _log_mass(y[n], f[n])
        d1[n] = y[n] - rate
        d2[n] = -rate


@kernel
def matched(y, f, square, theta, weight, target, spread, constant):
    """Write the Gaussian in f that has the expected slope and curvature of the log likelihood at E[f] and E[f^2]."""
    # With it the best Gaussian law of f is a fixed point (Khan and Lin 2017, conjugate-computation variational
    # inference). The weight is larger where the entry alone would move f by more than MOST_MOVE, and smaller where f
    # lies so high that its rate tells nothing but that: the Gaussian then leads back to MOST_EXCESS in one step, in
    # place of 1 per step with all the weight of e^f. Only the variance of surprising counts then differs.
    for n in range(y.shape[0]):
        log_rate = f[n] + 0.5 * max(square[n] - f[n] * f[n], 0.0)
        beyond = max(log_rate - log(y[n] + 1.0) - MOST_EXCESS, 0.0)
        rate = exp(log_rate - beyond)
        slope = y[n] - rate
        weight[n] = max(rate, abs(slope) / MOST_MOVE) / (1.0 + beyond)
        target[n] = slope + weight[n] * f[n]
        spread[n] = 0.0
        constant[n] = y[n] * f[n] - rate - target[n] * f[n] + 0.5 * weight[n] * square[n] - math.lgamma(y[n] + 1.0)


class Poisson(Counts):
    """y ~ Poisson(e^f)."""

    extent = "exposure"

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        return lambda k, rows: mixture_cdf(k, m[rows], v[rows])

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return mean exp(m + v/2) and variance of a new count; inf where they exceed the range of float64."""
        m, v, theta = aligned(m, v, theta)
        with np.errstate(over="ignore", divide="ignore"):
            mean = np.exp(m + 0.5 * v)
            log_spread = v + np.log(-np.expm1(-v))  # log(e^v - 1)
            return mean, mean + np.exp(log_spread + 2.0 * m + v)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return poisson_draws(rng, np.atleast_1d(np.asarray(f, dtype=np.float64)))

    def third(self, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return -e^f."""
        return np.asarray(-np.exp(aligned(y, f, theta)[1]))

    def averaged(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> Triple:
        """Return the mean of y f - e^f - log y! and its derivatives in m, by E[e^f] = e^(m + v / 2)."""
        y, m, v, _ = aligned(y, m, v, theta)
        with np.errstate(over="ignore"):
            rate = np.exp(m + 0.5 * v)
        return y * m - rate - gammaln(y + 1.0), y - rate, -rate

    def rough(self, y: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return Gaussians around log y of the precision y, with half a count more, so that 0 has a place."""
        y, _ = aligned(y, theta)
        return y + 0.5, (y + 0.5) * np.log(y + 0.5)


MATCHED = Augmentation(matched, weighted=True, matched=True)
POISSON = Poisson("poisson", tilted, loglik, matched=MATCHED, in_f=in_f)


# With square link: y ~ Poisson(f^2).
#
# The Gaussian N(f; m, v) times e^(-f^2) is a Gaussian in g of mean mu = |m| / (1 + 2 v) and variance w = v / (1 + 2 v),
# times a constant; so the moments are those of powers of g, p_n = E[g^n], whose recursion p_n = mu p_(n-1) + (n - 1) w
# p_(n-2) has no negative term. The likelihood is even in f: a prior mean away from 0 says which sign is meant.

# Moments are scaled by this when they leave the range where their products are safe.
LARGE, SMALL = 1e150, 1e-150
# Nodes per standard deviation of f for a distribution function, at least, and per unit of f.
NODES_PER_SD, NODES_PER_UNIT, MAX_NODES = 6.0, 10.0, 4096
# E[log f^2] by an integral up to this mean, in units of sqrt(2) standard deviations, and by its series beyond.
FAR, DAWSON_NODES = 12.0, 96


@kernel
def _powers(n, mu, w):
    """Return p_n's logarithm, p_(n-1) / p_n and p_(n-2) / p_n."""
    before, last, now, log_scale = 0.0, 0.0, 1.0, 0.0
    for j in range(1, n + 1):
        before, last, now = last, now, mu * now + (j - 1) * w * last
        top = max(last, now)
        if top > LARGE or top < SMALL:
            before, last, now = before / top, last / top, now / top
            log_scale += math.log(top)
    return math.log(now) + log_scale, last / now, before / now


@kernel
def square_tilted(y, m, v, theta, logz, alpha, beta):
    """Write logz, alpha and beta; the time grows with the counts."""
    # Source: Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation, eqs 53-59, as a recursion.
    for i in range(y.shape[0]):
        if not v[i] >= 0.0:
            logz[i], alpha[i], beta[i] = np.nan, np.nan, np.nan
            continue
        shrink = 1.0 / (1.0 + 2.0 * v[i])
        count = int(y[i])
        log_power, q1, q2 = _powers(2 * count, abs(m[i]) * shrink, v[i] * shrink)
        logz[i] = log_power - m[i] * m[i] * shrink + 0.5 * math.log(shrink) - math.lgamma(y[i] + 1.0)
        side = 1.0 if m[i] >= 0.0 else -1.0
        alpha[i] = 2.0 * shrink * (side * y[i] * q1 - m[i])
        beta[i] = 2.0 * shrink * (1.0 - y[i] * shrink * ((2.0 * y[i] - 1.0) * q2 - 2.0 * y[i] * q1 * q1))


@kernel
def square_loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) = 2 y log |f| - f^2 - log y! and its first two derivatives in f."""
    for i in range(y.shape[0]):
        value[i] = -f[i] * f[i] - math.lgamma(y[i] + 1.0)
        d1[i], d2[i] = -2.0 * f[i], -2.0
        if y[i] > 0.0:
            value[i] += 2.0 * y[i] * math.log(abs(f[i]))
            d1[i] += 2.0 * y[i] / f[i]
            d2[i] -= 2.0 * y[i] / (f[i] * f[i])


class SquarePoisson(Counts):
    """y ~ Poisson(f^2)."""

    observes = None

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        def cdf(k: np.ndarray, rows: np.ndarray) -> np.ndarray:
            s = np.sqrt(v[rows])
            n_nodes = 2.0 * REACH * min(NODES_PER_SD + NODES_PER_UNIT * s.max(initial=0.0), MAX_NODES / (2.0 * REACH))
            u = np.linspace(-REACH, REACH, int(n_nodes) + 1)
            weight = np.exp(-0.5 * u * u)
            below = gammaincc(k[:, None] + 1.0, (m[rows, None] + s[:, None] * u) ** 2)
            return np.asarray(below @ (weight / weight.sum()))

        return cdf

    def log_rate(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rate = np.maximum(m * m + v, 1e-300)
        return np.log(rate), 2.0 * v * (2.0 * m * m + v) / rate**2

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, _ = aligned(m, v, theta)
        mean = m * m + v
        return mean, mean + 2.0 * v * (2.0 * m * m + v)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return rng.poisson(np.atleast_1d(np.asarray(f, dtype=np.float64)) ** 2).astype(np.float64)

    def third(self, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return 4 y / f^3."""
        y, f, _ = aligned(y, f, theta)
        return np.divide(4.0 * y, f**3, out=np.zeros_like(f), where=y > 0.0)

    def averaged(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> Triple:
        """Return the mean of log p(y | f) and its derivatives in m, by that of log f^2."""
        # E[log f^2] has the slope 2 sqrt(2 / v) D(z) with z = m / sqrt(2 v) and D Dawson's function, though the mean of
        # the curve, 1 / f^2, does not exist. Source: Lloyd, Gunter, Osborne, Roberts (2015), Variational inference for
        # Gaussian process modulated Poisson processes, as an integral.
        counts, mean, var, _ = aligned(y, m, v, theta)
        var = np.maximum(var, TINY)
        z = mean / np.sqrt(2.0 * var)
        slope = 2.0 * np.sqrt(2.0 / var) * dawsn(z)
        curve = 2.0 / var * (1.0 - 2.0 * z * dawsn(z))
        node, weight = legendre.leggauss(DAWSON_NODES)
        near = np.minimum(np.abs(z), FAR)
        inner = 0.5 * near * (dawsn(0.5 * near[:, None] * (node + 1.0)) @ weight)
        w = 0.5 / np.maximum(np.abs(z), FAR) ** 2
        series = w * (1.0 + w * (1.5 + w * (5.0 + w * (26.25 + w * (189.0 + w * 1732.5)))))
        away = 2.0 * np.log(np.maximum(np.abs(mean), TINY)) - series
        log_square = np.where(np.abs(z) < FAR, np.log(2.0 * var) + digamma(0.5) + 4.0 * inner, away)
        value = counts * log_square - (mean * mean + var) - gammaln(counts + 1.0)
        return value, counts * slope - 2.0 * mean, counts * curve - 2.0

    def rough(self, y: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return Gaussians around sqrt(y), whose precision is about 4 whatever y is."""
        y, _ = aligned(y, theta)
        return np.full_like(y, 4.0), 4.0 * np.sqrt(y + 0.25)


# Its log predictive mass is exact (the paper's eq. 54).
POISSON_SQUARE = SquarePoisson("poisson_square", square_tilted, square_loglik)


# With softplus link: y ~ Poisson(log(1 + e^f)).
#
# Its log likelihood has a curvature that is bounded, which that with a log link has not: for Boehning's bound. It has
# no moments for message passing.

# E[g(f)] for f ~ N(m, v) as a weighted sum over m + sqrt(v) z; 20 Gauss-Hermite nodes are exact to 1e-6 for v < 10.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@kernel
def softplus_loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        e = exp(-abs(f[n]))
        big = 1.0 / (1.0 + e)
        slope = big if f[n] > 0.0 else e * big  # of the rate
        rate = (f[n] if f[n] > 0.0 else 0.0) + log1p_unit(e)
        rate = rate if rate > SMALLEST else SMALLEST
        excess = y[n] / rate - 1.0
        value[n] = y[n] * log(rate) - rate - math.lgamma(y[n] + 1.0)
        d1[n] = excess * slope
        d2[n] = excess * slope * (1.0 - slope) - y[n] * (slope / rate) ** 2


def _rate(f: np.ndarray) -> np.ndarray:
    return np.maximum(np.logaddexp(0.0, f), SMALLEST)


def _expected(g: Callable[[np.ndarray], np.ndarray], m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """E[g(f)] for f ~ N(m, v)."""
    sd, total = np.sqrt(v), np.zeros(m.shape)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        total += weight * g(m + sd * node)
    return total


class SoftplusPoisson(Counts):
    """y ~ Poisson(log(1 + e^f)); it is of matrices alone."""

    def cdf(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> CountCDF:
        return lambda k, rows: _expected(lambda f: gammaincc(k + 1.0, _rate(f)), m[rows], v[rows])

    def log_rate(self, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self.predict(m, v, theta)
        spread = np.log1p((variance - mean) / mean**2)
        return np.log(mean) - 0.5 * spread, spread

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, _ = aligned(m, v, theta)
        mean = _expected(lambda f: np.logaddexp(0.0, f), m, v)
        square = _expected(lambda f: np.logaddexp(0.0, f) ** 2, m, v)
        return mean, mean + square - mean**2

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, _ = aligned(y, m, v, theta)
        rate = _rate(m + np.sqrt(v) * NODES[:, None])
        return np.asarray(logsumexp(y * np.log(rate) - rate, axis=0, b=WEIGHTS[:, None]) - gammaln(y + 1.0))

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return rng.poisson(_rate(np.atleast_1d(np.asarray(f, dtype=np.float64)))).astype(np.float64)


SOFTPLUS_POISSON = SoftplusPoisson("softplus poisson", loglik=softplus_loglik)
