"""Polya-Gamma and Chinese-restaurant-table variables: draws, means and variances.

omega ~ PG(b, c) makes the logistic terms Gaussian in f: e^(y f) / (1 + e^f)^b = 2^-b e^(kappa f) E[e^(-omega f^2 / 2)],
kappa = y - b / 2, over omega ~ PG(b, 0); given f, omega ~ PG(b, f).

Source: Polson, Scott and Windle (2013, JASA 108); Klami (2014), "Polya-Gamma augmentations for factor models" (PG)
sec. 3, whose density lacks a factor (its Gamma(2 n + b) is 2 n + b). CRT: Zhou and Carin (2015, IEEE TPAMI 37).
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import exponential, gamma, normal, uniform
from tensorcep.kernels.special import exp_parts, log1p_unit

# Where the two series of the density of J*(1, 0) = 4 PG(1, 0) take over from one another (Devroye 2009).
SWITCH = 0.64
# Up to this b the whole part of b is a sum of exact PG(1, c) draws; that costs time in proportion to b.
MAX_EXACT = 64.0
# Terms of the gamma series; one more gamma variable stands for the others, with their mean and variance. What is left
# is the error of its third cumulant: 1e-7 of that of PG(b, 0) for 10 terms.
TERMS = 10
# From here on to 1 the variance comes from a series, as its closed form cancels.
SERIES_BELOW = 1.0
TINY = 1e-150
# Tables of CRT up to here are drawn one by one; the longest step beyond, in logs; and as many as are drawn together,
# as normal ones: their skewness is a tenth, and what is made of them are sums over all entries.
ONE_BY_ONE, FURTHEST, MANY = 512, 600.0, 100.0
PI = math.pi
SQRT_HALF = math.sqrt(0.5)
# The probabilities of `_right_share` at so many z in every unit, below MOST_KNOWN. Lines between them are nearer to it
# than NEAR, and beyond the last it is below that: most draws need none of its functions.
KNOWN_IN_UNIT, MOST_KNOWN, NEAR = 64, 8, 1e-4
# The second term of the series is at most this share of the first one, wherever x is: 3 exp(-2 * 2 / SWITCH) below
# SWITCH, and 3 exp(-PI^2 SWITCH) above it. Below what is left of that a uniform number lies under the whole series.
SECOND_TERM = 0.006


def share_above(z: float, rate: float) -> float:
    """The probability that the proposal for J*(1, z) lies above SWITCH."""
    root = math.sqrt(1.0 / SWITCH)
    below = math.log(0.5 * math.erfc(-root * (SWITCH * z - 1.0) * SQRT_HALF))
    above = math.log(0.5 * math.erfc(root * (SWITCH * z + 1.0) * SQRT_HALF))
    level = math.log(rate) + rate * SWITCH
    return 1.0 / (1.0 + 4.0 / PI * (math.exp(level - z + below) + math.exp(level + z + above)))


_right_share = block_kernel(share_above)
_GRID = [n / KNOWN_IN_UNIT for n in range(MOST_KNOWN * KNOWN_IN_UNIT + 2)]
_KNOWN = np.array([share_above(z, 0.5 * z**2 + PI * PI / 8.0) for z in _GRID])


@block_kernel
def goes_right(u, z, rate):
    """Whether u is below `_right_share`, which is found only where lines between known ones do not tell."""
    at = min(z, float(MOST_KNOWN)) * KNOWN_IN_UNIT
    n = int(at)
    share = _KNOWN[n] + (at - n) * (_KNOWN[n + 1] - _KNOWN[n])
    if u < share - NEAR or u > share + NEAR:
        return u < share
    return u < _right_share(z, rate)


@block_kernel
def _left_proposal(s, z):
    """An inverse Gaussian draw of mean 1 / z and shape 1, given that it is at most SWITCH."""
    if z * SWITCH < 1.0:
        while True:
            e = exponential(s)
            u, square = uniform(s), 0.5 * e * e * SWITCH
            # 1 - u <= -log u, and 1 - t <= exp(-t): most need no more functions
            if square <= 1.0 - u or square <= -math.log(u):
                root = 1.0 + e * SWITCH
                x = SWITCH / (root * root)
                u, tilt = uniform(s), 0.5 * z * z * x
                if u <= 1.0 - tilt or u <= math.exp(-tilt):
                    return x
    mu = 1.0 / z
    x = 2.0 * SWITCH
    while x > SWITCH:
        y = normal(s)
        y *= mu * y
        x = mu + 0.5 * mu * (y - math.sqrt(4.0 * y + y * y))
        if uniform(s) * (mu + x) > mu:
            x = mu * mu / x
    return x


@block_kernel
def coefficient(n, x):
    """Term n of the alternating series for the density of J*(1, 0) at x, up to what the terms share with n = 0."""
    half = n + 0.5
    if x > SWITCH:
        return 2.0 * half * math.exp(-0.5 * PI * PI * x * (half * half - 0.25))
    return 2.0 * half * math.exp(-2.0 * (half * half - 0.25) / x)


@block_kernel
def draw_pg_one(s, c):
    """An exact draw from PG(1, c) with the stream s (Devroye's alternating series)."""
    z = 0.5 * abs(c)
    rate = 0.5 * z * z + PI * PI / 8.0
    while True:
        x = SWITCH + exponential(s) / rate if goes_right(uniform(s), z, rate) else _left_proposal(s, z)
        total = 1.0
        y = uniform(s)
        if y <= 1.0 - SECOND_TERM:
            return 0.25 * x
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= coefficient(n, x)
                if y <= total:
                    return 0.25 * x
            else:
                total += coefficient(n, x)
                if y > total:
                    break


@block_kernel
def _draw_pg_series(s, b, c):
    """A draw from sum_k g_k / (2 pi^2 ((k - 1/2)^2 + c^2 / (4 pi^2))), g_k ~ Gamma(b): TERMS of them, then the rest."""
    square = c * c / (4.0 * PI * PI)
    total, mean, variance = 0.0, 0.0, 0.0
    for k in range(TERMS):
        scale = 1.0 / (2.0 * PI * PI * ((k + 0.5) * (k + 0.5) + square))
        total += scale * gamma(s, b)
        mean += scale
        variance += scale * scale
    mean = pg_mean(1.0, c) - mean
    variance = pg_variance(1.0, c) - variance
    return total + variance / mean * gamma(s, b * mean * mean / variance)


@block_kernel
def draw_pg(s, b, c):
    """A draw from PG(b, c), b > 0, with the stream s."""
    # Exact for whole b up to MAX_EXACT. Otherwise the fraction of b (all of a b above MAX_EXACT) comes from the gamma
    # series, cut after TERMS and with the mean and the variance of what was cut put back.
    if b > MAX_EXACT:
        return _draw_pg_series(s, b, c)
    whole = math.floor(b)
    total = 0.0
    for _ in range(int(whole)):
        total += draw_pg_one(s, c)
    return total + _draw_pg_series(s, b - whole, c) if b > whole else total


@kernel
def pg_mean(b, c):
    """Mean of PG(b, c): b tanh(c / 2) / (2 c)."""
    c = abs(c) + TINY
    e, excess = exp_parts(-c)
    return 0.5 * b * (c - excess) / ((1.0 + e) * c)


@kernel
def pg_variance(b, c):
    """Variance of PG(b, c): b (sinh c - c) / (2 c^3 (1 + cosh c))."""
    c = abs(c)
    e, _ = exp_parts(-c)
    if c < SERIES_BELOW:
        q = c * c
        series = 1.0 + q / 20.0 * (1.0 + q / 42.0 * (1.0 + q / 72.0 * (1.0 + q / 110.0 * (1.0 + q / 156.0))))
        return b * series / 6.0 * e / ((1.0 + e) * (1.0 + e))
    return 0.5 * b * ((1.0 - e * e) - 2.0 * c * e) / ((1.0 + e) * (1.0 + e) * c * c * c)


@kernel
def pg_expected(b, square, omega, constant):
    """Means omega of PG(b, xi) at xi^2 = square, and constant = omega xi^2 / 2 - b log(2 cosh(xi / 2)), (n,) each."""
    # constant + kappa f - omega f^2 / 2 is a lower bound of kappa f - b log(2 cosh(f / 2)), tight at f = +-xi. Each
    # loop has few arrays, so that it vectorises.
    for n in range(omega.shape[0]):
        omega[n] = pg_mean(b[n], math.sqrt(square[n]))
    for n in range(omega.shape[0]):
        xi = math.sqrt(square[n])
        e, _ = exp_parts(-xi)
        constant[n] = 0.5 * omega[n] * square[n] - b[n] * (0.5 * xi + log1p_unit(e))


@block_kernel
def draw_crt(s, x, r):
    """A draw from CRT(x, r), the number of tables: sum over n < x of Bernoulli(r / (r + n)); time grows with log x."""
    # From ONE_BY_ONE on tables are those n in whose unit of time a Poisson process of rate log(1 + r / n) has an event;
    # its events are among those of rate r / (t - 1). MANY of them are normal, by digamma's and trigamma's series.
    tables = 0.0
    for n in range(min(int(x), ONE_BY_ONE)):
        if uniform(s) * (r + n) <= r:
            tables += 1.0
    t, low, high = float(ONE_BY_ONE), ONE_BY_ONE + r, x + r
    mean = r * (math.log1p((high - low) / low) + 0.5 / low - 0.5 / high) if x > t else 0.0
    if mean > MANY:
        known = r * r * (1.0 / low - 1.0 / high + 0.5 / (low * low) - 0.5 / (high * high))
        return tables + max(0.0, np.rint(mean + math.sqrt(max(mean - known, 0.0)) * normal(s)))
    while t < x:
        t = 1.0 + (t - 1.0) * math.exp(min(exponential(s) / r, FURTHEST))
        n = np.floor(t)
        if t < x and uniform(s) * r < math.log1p(r / n) * (t - 1.0):
            tables += 1.0
            t = n + 1.0
    return tables
