"""Slow twins of the tilted moments: composite Gauss-Legendre quadrature with 40 digits, and closed forms."""

from __future__ import annotations

import functools

import mpmath as mp
import numpy as np

mp.mp.dps = 40


@functools.cache
def _legendre(n: int = 16):
    """Nodes and weights on [-1, 1]: numpy's, polished to 40 digits by Newton's method."""
    rule = []
    for start in np.polynomial.legendre.leggauss(n)[0]:
        x = mp.mpf(float(start))
        for _ in range(3):
            slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
            x -= mp.legendre(n, x) / slope
        slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
        rule.append((x, 2 / ((1 - x * x) * slope * slope)))
    return rule


def _integrate(functions, low, high, panel):
    """Integrals of several functions (given as one that returns a tuple) from low to high."""
    n_panels = int(mp.ceil((high - low) / panel))
    half = (high - low) / n_panels / 2
    totals = None
    for i in range(n_panels):
        centre = low + (2 * i + 1) * half
        for x, w in _legendre():
            values = [w * half * value for value in functions(centre + half * x)]
            totals = values if totals is None else [a + b for a, b in zip(totals, values, strict=True)]
    return totals


def _moments(terms, m, v, low, high, panel):
    """logz, alpha, beta from terms(f) -> (p, 1 - p, l', l''): alpha = E[l'], beta = -(E[l''] + Var[l'])."""
    scale = 1 / mp.sqrt(2 * mp.pi * v)

    def functions(f):
        g = scale * mp.exp(-((f - m) ** 2) / (2 * v))
        p, missed, d1, d2 = terms(f)
        return g * p, g * missed, g * p * d1, g * p * (d2 + d1 * d1)

    z, missed, first, second = _integrate(functions, low, high, panel)
    logz = mp.log1p(-missed) if z > mp.mpf(1) / 2 else mp.log(z)
    return logz, first / z, (first / z) ** 2 - second / z


def logit(y, m, v):
    m, v = mp.mpf(m), mp.mpf(v)
    s = mp.sqrt(v)

    def terms(f):
        q = 1 / (1 + mp.exp(-y * f))
        p = 1 / (1 + mp.exp(y * f))
        return q, p, y * p, -p * q

    reach = 12 * s + min(2 * v, abs(m) + 3)
    return _moments(terms, m, v, m - reach, m + reach, min(s, mp.mpf(1)))


def poisson(y, m, v):
    y, m, v = mp.mpf(y), mp.mpf(m), mp.mpf(v)
    s = mp.sqrt(v)
    f = max(m, mp.log(y)) if y > 0 else m
    f = min(f, m + v * y)
    for _ in range(200):  # Newton from the right of a convex increasing function
        step = (mp.exp(f) - y + (f - m) / v) / (mp.exp(f) + 1 / v)
        f -= step
        if abs(step) < mp.mpf(10) ** -25 * s:
            break
    sigma = 1 / mp.sqrt(mp.exp(f) + 1 / v)

    def fall(d, tilt):
        return mp.exp(f) * (mp.expm1(d) - d) + d * d / (2 * v) - tilt * d

    low, high = -sigma, sigma
    while fall(low, 0) < 75:
        low *= mp.mpf("1.2")
    while fall(high, 2) < 75:
        high *= mp.mpf("1.2")
    low, high = f + low, f + high
    if y == 0:  # 1 - p reaches over the whole cavity
        high = max(high, m + min(v, max(3 - m, 0)) + 12 * s)
    log_factorial = mp.loggamma(y + 1)

    def terms(f):
        rate = mp.exp(f)
        log_p = y * f - rate - log_factorial
        return mp.exp(log_p), -mp.expm1(log_p), y - rate, -rate

    return _moments(terms, m, v, low, high, min(sigma, mp.mpf(1)))


def _inverse_mills_excess(x):
    """phi(x) / Phi(-x) - x for large x, from the continued fraction 1 / (x + 2 / (x + 3 / ...))."""
    tail = mp.mpf(0)
    for k in range(300, 0, -1):
        tail = k / (x + tail)
    return tail


def normal_cdf(z):
    """log Phi(z), r = phi(z) / Phi(z) and z + r."""
    z = mp.mpf(z)
    if z < -50:
        excess = _inverse_mills_excess(-z)
        return -z * z / 2 - mp.log(mp.sqrt(2 * mp.pi) * (excess - z)), excess - z, excess
    upper = mp.erfc(z / mp.sqrt(2)) / 2
    with mp.workdps(60):
        lower = mp.erfc(-z / mp.sqrt(2)) / 2
        r = mp.npdf(z) / lower
        excess = z + r
    return (mp.log1p(-upper) if z > 0 else mp.log(lower)), r, excess


def probit(y, m, v):
    s = mp.sqrt(1 + mp.mpf(v))
    log_cdf, r, excess = normal_cdf(y * mp.mpf(m) / s)
    return log_cdf, y * r / s, r * excess / s**2


def gaussian(y, m, v, theta):
    variance = mp.mpf(v) + 1 / mp.mpf(theta)
    residual = mp.mpf(y) - mp.mpf(m)
    logz = -(mp.log(2 * mp.pi * variance) + residual**2 / variance) / 2
    return logz, residual / variance, 1 / variance


def negbinomial(y, m, v, r):
    y, m, v, r = mp.mpf(y), mp.mpf(m), mp.mpf(v), mp.mpf(r)
    n, low, high = y + r, m - r * v - 1, m + y * v + 1
    for _ in range(200):  # bisection for the mode
        f = (low + high) / 2
        p = 1 / (1 + mp.exp(-f))
        low, high = (f, high) if y - n * p - (f - m) / v > 0 else (low, f)
    sigma = 1 / mp.sqrt(n * p * (1 - p) + 1 / v)

    def log_density(x):
        return y * x - n * mp.log1p(mp.exp(x)) - (x - m) ** 2 / (2 * v)

    def edge(side):
        d = sigma
        while log_density(f) - log_density(f + side * d) < 90:
            d *= mp.mpf("1.3")
        return f + side * d

    peak = log_density(f)
    left, right = edge(-1), edge(1)

    def functions(x):
        w, q = mp.exp(log_density(x) - peak), 1 / (1 + mp.exp(-x))
        d1 = y - n * q
        return w, w * d1, w * (d1 * d1 - n * q * (1 - q))

    z, first, second = _integrate(functions, left, right, min((right - left) / 12, mp.mpf(1)))
    constant = mp.loggamma(n) - mp.loggamma(r) - mp.loggamma(y + 1)
    logz = constant + peak + mp.log(z / mp.sqrt(2 * mp.pi * v))
    return logz, first / z, (first / z) ** 2 - second / z


def tobit(y, m, v, theta):
    if y > 0:
        return gaussian(y, m, v, theta)
    s = mp.sqrt(mp.mpf(v) + 1 / mp.mpf(theta))
    log_cdf, r, excess = normal_cdf(-mp.mpf(m) / s)
    return log_cdf, -r / s, r * excess / s**2
