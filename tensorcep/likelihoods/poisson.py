"""Poisson likelihood with log link: y ~ Poisson(e^f), for counts 0, 1, 2, ...

Tilted moments come from the adapted trapezoidal rule of `kernels.special`, centred on the mode of
(likelihood x cavity). Around it, with d = f - mode and rate = e^mode, the log density falls by
rate (e^d - 1 - d) + d^2 / (2 v), which says how far the nodes must reach. With E over the tilted density,

    alpha = (E[f] - m) / v = y - E[e^f],    beta = 1 / v - Var[f] / v^2 = E[e^f] - Var[e^f];

the first form is used where the count says more than the cavity, the second, which does not cancel for small v,
elsewhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from tensorcep.core.checks import check_counts, check_fraction, check_values
from tensorcep.core.compile import kernel
from tensorcep.kernels.special import DROP, LOG_SQRT_2PI, REACH, TINY, count_nodes, exp, exp_parts, log, log1p_unit
from tensorcep.likelihoods.arrays import aligned, tilted_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import (
    mixture_cdf_of,
    mixture_quantile,
    poisson_draws,
    poisson_in_f,
    quantile_of_components,
    tails_of_counts,
)

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
    """Return the f where y f - e^f - (f - m)^2 / (2 v) is largest, to about 1e-6.

    t = v e^f solves t + log t = c (the Wright omega function). One step of Fritsch, Shafer and Crowley (1973, CACM
    algorithm 443) and one of Newton; the sums hold exactly for any centre, so more digits would change nothing.
    """
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
def _zero_sums(m, s, low, h, nodes):
    """Return E[1 - e^-rate], E[rate e^-rate] and E[rate^2 e^-rate] with rate = e^f, f ~ N(m, s^2)."""
    missed, e1, e2 = 0.0, 0.0, 0.0
    for j in range(nodes):
        u = low + (j + 0.5) * h
        rate = exp(m + s * u)
        rate = 40.0 if rate > 40.0 else rate  # e^-40 is below rounding
        likelihood, excess = exp_parts(-rate)
        g = exp(-0.5 * u * u)
        missed += g * (rate - excess)
        e1 += g * likelihood * rate
        e2 += g * likelihood * rate * rate
    scale = h * math.exp(-LOG_SQRT_2PI)
    return missed * scale, e1 * scale, e2 * scale


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
    nodes = count_nodes(width, _step(1.0 + 1.0 / v) / s)
    missed, e1, e2 = _zero_sums(m, s, -REACH, width / nodes, nodes)
    mean = e1 / (1.0 - missed)
    return log1p_unit(-missed), -mean, mean - (e2 / (1.0 - missed) - mean * mean)


@kernel
def _tilted_one(y, m, v):
    """Return logz, alpha and beta of one entry, from nodes around the mode."""
    f = _mode(y, m, v)
    rate = exp(f)
    precision = 1.0 / v
    low, width = _span(y, f, v, rate)
    nodes = count_nodes(width, _step(rate + precision))
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
def loglik(y, f, theta, value, d1, d2):
    """Write log p(y | f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        rate = exp(f[n])
        value[n] = _log_mass(y[n], f[n])
        d1[n] = y[n] - rate
        d2[n] = -rate


@kernel
def matched(y, f, square, theta, weight, target, spread, constant):
    """Write the Gaussian in f that has the expected slope and curvature of the log likelihood at E[f] and E[f^2].

    With it the best Gaussian law of f is a fixed point (Khan and Lin 2017, conjugate-computation variational
    inference). The weight is larger where the entry alone would move f by more than MOST_MOVE, and smaller where f lies
    so high that its rate tells nothing but that: the Gaussian then leads back to MOST_EXCESS in one step, in place of 1
    per step with all the weight of e^f. Only the variance of surprising counts then differs.
    """
    for n in range(y.shape[0]):
        log_rate = f[n] + 0.5 * max(square[n] - f[n] * f[n], 0.0)
        beyond = max(log_rate - log(y[n] + 1.0) - MOST_EXCESS, 0.0)
        rate = exp(log_rate - beyond)
        slope = y[n] - rate
        weight[n] = max(rate, abs(slope) / MOST_MOVE) / (1.0 + beyond)
        target[n] = slope + weight[n] * f[n]
        spread[n] = 0.0
        constant[n] = y[n] * f[n] - rate - target[n] * f[n] + 0.5 * weight[n] * square[n] - math.lgamma(y[n] + 1.0)


def check_y(y: ArrayLike) -> np.ndarray:
    """Return counts as (n,) float64."""
    return check_counts("y", check_values(y, name="y"))


def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return mean exp(m + v/2) and variance of a new count; inf where they exceed the range of float64."""
    m, v, theta = aligned(m, v, theta)
    with np.errstate(over="ignore", divide="ignore"):
        mean = np.exp(m + 0.5 * v)
        log_spread = v + np.log(-np.expm1(-v))  # log(e^v - 1)
        return mean, mean + np.exp(log_spread + 2.0 * m + v)


def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the smallest count with a predictive probability of at least q of not being exceeded."""
    m, v, theta = aligned(m, v, theta)
    return mixture_quantile(check_fraction("q", q), m, v, mixture_cdf_of(m, v))


def quantile_of_mixture(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the quantile of the mixture of equally likely components, whose m and v are (C, n)."""
    cdfs = [mixture_cdf_of(*component) for component in zip(m, v, strict=True)]
    return quantile_of_components(check_fraction("q", q), m, v, cdfs)


def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return the log predictive mass."""
    return tilted_moments(tilted, y, m, v, theta)[0]


def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of a count of at most, and of at least, y."""
    y, m, v = aligned(y, m, v)
    return tails_of_counts(y, mixture_cdf_of(m, v))


def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return a draw of y for each f."""
    return poisson_draws(rng, np.atleast_1d(np.asarray(f, dtype=np.float64)))


def third(y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """Return -e^f."""
    return np.asarray(-np.exp(aligned(y, f, theta)[1]))


def averaged(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of y f - e^f - log y! and its derivatives in m, by E[e^f] = e^(m + v / 2)."""
    y, m, v, _ = aligned(y, m, v, theta)
    with np.errstate(over="ignore"):
        rate = np.exp(m + 0.5 * v)
    return y * m - rate - gammaln(y + 1.0), y - rate, -rate


def rough(y: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussians around log y of the precision y, with half a count more, so that 0 has a place."""
    y, _ = aligned(y, theta)
    return y + 0.5, (y + 0.5) * np.log(y + 0.5)


POISSON = Likelihood(
    "poisson",
    1.0,
    check_y,
    tilted,
    loglik,
    predict,
    quantile,
    logpdf,
    sample,
    matched=Augmentation(matched, weighted=True, matched=True),
    mixture_quantile=quantile_of_mixture,
    third=third,
    averaged=averaged,
    rough=rough,
    observes="counts",
    tails=tails,
    extent="exposure",
    in_f=poisson_in_f,
)
