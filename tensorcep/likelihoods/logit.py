"""Logit likelihood: P(y = 1 | f) = 1 / (1 + e^-f), for labels coded -1 and +1.

Tilted moments come from the adapted trapezoidal rule of `kernels.special`, in units of the cavity's standard
deviation. With q the likelihood of the entry's label and p = 1 - q, and E over the tilted density,

    alpha = y E[p],    beta = E[p] - 2 E[p^2] + E[p]^2 = E[q] - 2 E[q^2] + E[q]^2,

which are E[l'] and -(E[l''] + Var[l']) for l = log q. The form whose terms are small in the tail is used: p where the
mode of the tilted density is on the side where the label is likely, q on the other.

A Polya-Gamma variable omega ~ PG(1, f) makes a label Gaussian: e^(y f / 2) / (2 cosh(f / 2)).

"logit_mackay" has MacKay's closed-form approximation of the moments instead, for comparison.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import start_stream
from tensorcep.kernels.polya_gamma import draw_pg, pg_expected
from tensorcep.kernels.rank_update import TOGETHER
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import GAUSS_STEP, LOG_SQRT_2PI, REACH, TINY, count_nodes, exp, log, log1p_unit
from tensorcep.likelihoods.base import Augmentation, aligned
from tensorcep.likelihoods.binary import Labels, moments_of_points

LOG_2 = math.log(2.0)
# Up to this standard deviation the Gaussian limits the spacing; above it the poles of the logistic function at +-i pi
# do, which let an error of 1e-17 through at a frequency of about POLE + pi / (2 s^2), in units of f.
NARROW = 0.36
POLE = 13.0
MACKAY_SLOPE = math.pi / 8.0


@kernel
def _centres(m, v, right):
    """Return bounds from below and above on the modes of q N and of it times the weights that the sums need."""
    # They follow from the slopes: d log q / df = 1 - q lies in (0, 1), and in (0, 1/2) for f > 0.
    if right:
        return max(m - v, min(m, -LOG_2)), min(m + 0.5 * v, max(math.sqrt(v), m + 0.55))
    return m + 0.5 * v, min(m + 2.0 * v, max(LOG_2, m + v))


@kernel
def _sums(m, s, low, h, nodes, shift, right):
    """Return the sums of w, w t, w t^2 and g p over nodes f = m + s u, w = g q, where t is p (right) or q."""
    w0, w1, w2, missed = 0.0, 0.0, 0.0, 0.0
    for j in range(nodes):
        u = low + (j + 0.5) * h
        f = m + s * u
        e = exp(-abs(f))
        big = 1.0 / (1.0 + e)
        small = e * big
        p = small if f > 0.0 else big
        q = big if f > 0.0 else small
        # On the left e^min(f, 0) goes into the exponent, so that q cannot underflow.
        scaled = 0.0 if f > 0.0 else f
        scaled = 0.0 if right else scaled
        factor = q if right else big
        t = p if right else q
        g = exp(scaled - 0.5 * u * u - shift)
        w = g * factor
        w0 += w
        w1 += w * t
        w2 += w * t * t
        missed += g * p
    return w0, w1, w2, missed


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log E[q], alpha and beta; relative error 1e-13 or better for v <= 100."""
    for n in range(y.shape[0]):
        mean = y[n] * m[n]
        var = v[n] + TINY
        s = math.sqrt(var)
        right = mean + 0.5 * var >= 0.0  # the mode of the tilted density is at f >= 0
        low, high = _centres(mean, var, right)
        low = (low - mean) / s - REACH
        width = (high - mean) / s + REACH - low
        step = 2.0 * math.pi / (POLE * s + 0.5 * math.pi / s) if s > NARROW else GAUSS_STEP
        nodes = count_nodes(width, step)
        h = width / nodes
        peak = max(mean, 0.0) if right else min(mean + var, 0.0)
        shift = min(peak, 0.0) - 0.5 * (peak - mean) * ((peak - mean) / var)
        w0, w1, w2, missed = _sums(mean, s, low, h, nodes, shift, right)
        t1 = w1 / w0
        if mean >= 0.0:
            logz[n] = -log1p_unit(missed / w0)  # E[q] = 1 - E[p], and E[p] may be tiny
        else:
            logz[n] = shift + log(h * w0) - LOG_SQRT_2PI
        alpha[n] = y[n] * (t1 if right else 1.0 - t1)
        beta[n] = t1 - 2.0 * w2 / w0 + t1 * t1


@kernel
def node(f, log_g):
    """Return w = g q and p at a node f, without underflow of q."""
    e = exp(-abs(f))
    big = 1.0 / (1.0 + e)
    return big * exp(log_g + (0.0 if f > 0.0 else f)), (e * big if f > 0.0 else big)


@kernel
def derivatives(y, w0, w1, w2, w3, w4):
    """Return alpha, beta and their second derivatives in m from the sums of w p^k; q' = q p and p' = -p q."""
    e1, e2, e3, e4 = w1 / w0, w2 / w0, w3 / w0, w4 / w0
    z2 = 2.0 * e2 - e1
    z3 = 6.0 * (e3 - e2) + e1
    z4 = 24.0 * e4 - 36.0 * e3 + 14.0 * e2 - e1
    third = z3 - 3.0 * z2 * e1 + 2.0 * e1**3
    fourth = z4 - 4.0 * z3 * e1 - 3.0 * z2**2 + 12.0 * z2 * e1**2 - 6.0 * e1**4
    return y * e1, e1 * e1 - z2, y * third, -fourth


@kernel
def tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2):
    """Write what `tilted` does, and the second derivatives of alpha and beta in m; absolute error 1e-14."""
    for n in range(y.shape[0]):
        mean = y[n] * m[n]
        var = v[n] + TINY
        s = math.sqrt(var)
        width = s + 2.0 * REACH  # the mode of the tilted density lies between m and m + v
        step = 2.0 * math.pi / (POLE * s + 0.5 * math.pi / s) if s > NARROW else GAUSS_STEP
        nodes = count_nodes(width, step)
        h = width / nodes
        shift = mean + 0.5 * var if mean + var < 0.0 else 0.0
        w0, w1, w2, w3, w4 = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(nodes):
            u = (j + 0.5) * h - REACH
            w, p = node(mean + s * u, -0.5 * u * u - shift)
            w0 += w
            w1 += w * p
            w2 += w * (p * p)
            w3 += w * (p * p * p)
            w4 += w * (p * p) * (p * p)
        logz[n] = shift + log(h * w0) - LOG_SQRT_2PI
        alpha[n], beta[n], alpha2[n], beta2[n] = derivatives(y[n], w0, w1, w2, w3, w4)


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log q and its first two derivatives in f."""
    for n in range(y.shape[0]):
        t = y[n] * f[n]
        e = exp(-abs(t))
        big = 1.0 / (1.0 + e)
        small = e * big
        negative = 0.0 if t > 0.0 else t
        value[n] = negative - log1p_unit(e)
        d1[n] = y[n] * (small if t > 0.0 else big)
        d2[n] = -big * small


@block_kernel
def shares(f, one, zero):
    """Write the means (n,) of 1 / (1 + e^-f) and of 1 / (1 + e^f) over the lines of f (S, n)."""
    S, n = f.shape
    one[:] = 0.0
    zero[:] = 0.0
    for first in range(0, n, TOGETHER):
        last = min(first + TOGETHER, n)
        p, q = one[first:last], zero[first:last]
        for s in range(S):
            line = f[s, first:last]
            for i in range(line.shape[0]):
                e = exp(-abs(line[i]))
                big = 1.0 / (1.0 + e)
                small = e * big
                p[i] += big if line[i] > 0.0 else small
                q[i] += small if line[i] > 0.0 else big
        for i in range(p.shape[0]):
            p[i] /= S
            q[i] /= S


@kernel
def tilted_mackay(y, m, v, theta, logz, alpha, beta):
    """Write log sigma(z), z = y m / sqrt(1 + pi v / 8), its slope alpha in m, and beta."""
    # Source: Minka (2008), EP: a quick reference, eqs 62-65. Where we differ: in eq. 65 the denominator belongs to the
    # second term alone, and the mean is that of the cavity (as printed, beta is not minus the slope of alpha).
    for n in range(y.shape[0]):
        widened = 1.0 + MACKAY_SLOPE * v[n]
        z = y[n] * m[n] / math.sqrt(widened)
        e = exp(-abs(z))
        big = 1.0 / (1.0 + e)
        logz[n] = (0.0 if z > 0.0 else z) - log1p_unit(e)
        alpha[n] = y[n] * (e * big if z > 0.0 else big) / math.sqrt(widened)
        beta[n] = alpha[n] * (alpha[n] + MACKAY_SLOPE * m[n] / widened)


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of omega ~ PG(1, xi) with xi^2 = square, and what it adds to the bound."""
    target[:] = 1.0
    pg_expected(target, square, weight, constant)
    spread[:] = 0.0
    for n in range(y.shape[0]):
        target[n] = 0.5 * y[n]


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """weight = a draw of omega ~ PG(1, f); of an entry that counts `used` times of PG(used, f)."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                n = used[b, lane]
                weight[b, lane], target[b, lane] = draw_pg(s, n, f[b, lane]), 0.5 * n * y[b, lane]


class LogisticLabels(Labels):
    """P(y = 1 | f) = 1 / (1 + e^-f), by approximate moments."""

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(expit(f))


class Logit(LogisticLabels):
    """The same, by exact moments."""

    observes = "labels"
    f_is_log_odds = True

    def of_points(self, f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return moments_of_points(shares, f)

    def third(self, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return -p (1 - p) (1 - 2 p) with p = 1 / (1 + e^-f), whatever the label is."""
        p = expit(aligned(y, f, theta)[1])
        return np.asarray(-p * (1.0 - p) * (1.0 - 2.0 * p))


PG = Augmentation(expected, drawn, weighted=True, exponents=lambda y, theta: (np.ones((1,) * np.ndim(y)), 0.5 * y))
LOGIT = Logit("logit", tilted, loglik, pg=PG, tilted2=tilted2)
LOGIT_MACKAY = LogisticLabels("logit_mackay", tilted_mackay, loglik)
