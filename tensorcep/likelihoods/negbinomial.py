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

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import start_stream
from tensorcep.kernels.polya_gamma import draw_pg, pg_expected
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import DROP, LOG_SQRT_2PI, REACH, count_nodes, exp, log, logistic, newton_or_middle
from tensorcep.likelihoods.base import Augmentation, aligned
from tensorcep.likelihoods.counts import CountCDF, Counts, beta_cdf, poisson_draws
from tensorcep.likelihoods.parameters.dispersion import DispersionParameter, expected_logistic
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


PG = Augmentation(expected, drawn, weighted=True, exponents=lambda y, r: (y + r, 0.5 * (y - r)))
LEARNED, MATCHED = (DispersionParameter(),), Augmentation(matched, weighted=True, matched=True)
NEGBINOMIAL = NegativeBinomial("negbinomial", tilted, loglik, LEARNED, pg=PG, matched=MATCHED, in_f=in_f)
