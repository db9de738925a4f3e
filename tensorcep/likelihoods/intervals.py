"""What is known of a latent value f when f plus standard noise lies between two cuts, a < b, either of them infinite.

Of the noise there are two kinds, normal and logistic. Kernels have the lower cut in the place of y and the upper one in
that of theta, and do their work for one entry after the other: `ordinal` makes likelihoods of ordered levels of them.
"""

from __future__ import annotations

import math

from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.core.random import interval_normal, start_stream
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import (
    GAUSS_STEP,
    INV_SQRT_2PI,
    LOG_SQRT_2PI,
    REACH,
    TINY,
    count_nodes,
    exp,
    log,
    log1p_unit,
    logistic,
    mills_excess,
    newton_or_middle,
)

# Below this width times the distance from 0 the series in the width is exact to rounding; differences are not.
NARROW = 0.02
# Beyond this a cut is as good as infinite: nothing is outside.
FAR = 1e9
# As in `logit`; where both cuts are near, their poles are twice as many.
WIDE = 0.36
POLE = 15.0
NEWTON = 60


@kernel
def _narrow(low, high):
    """Return log P, E[x] and 1 - Var[x] of a standard normal x between two near cuts, by the series in their width."""
    mid, square = 0.5 * (low + high), (high - low) * (high - low)
    quartic = square * square / 1920.0
    m2 = mid * mid
    c = square / 24.0 * (m2 - 1.0) + quartic * (m2 * m2 - 6.0 * m2 + 3.0)
    c1 = square / 12.0 * mid + quartic * (4.0 * m2 - 12.0) * mid
    c2 = square / 12.0 + quartic * (12.0 * m2 - 12.0)
    slope = c1 / (1.0 + c)
    logz = -0.5 * m2 - LOG_SQRT_2PI + log(high - low) + log1p_unit(c)
    return logz, mid - slope, 1.0 - c2 / (1.0 + c) + slope * slope


@kernel
def _normal_below(low, high):
    """The same, and the densities at both cuts over P, where the cuts have a middle of at most 0.

    With r = phi / Phi, e = phi(low) / phi(high), q = Phi(low) / Phi(high): P = Phi(high) (1 - q). The sum high + r
    comes from a fit of its own, so that nothing cancels far out.
    """
    x = abs(high)
    excess = mills_excess(x)
    inv_mills = x + excess
    tail = INV_SQRT_2PI * exp(-0.5 * x * x) / inv_mills
    if high < 0.0:
        ratio, ratio_and_cut = inv_mills, excess
        log_cdf = -0.5 * x * x - LOG_SQRT_2PI - log(inv_mills)
    else:
        ratio = tail * inv_mills / (1.0 - tail)
        ratio_and_cut, log_cdf = high + ratio, log1p_unit(-tail)
    if low < -FAR:
        return log_cdf, -ratio, ratio * ratio_and_cut, 0.0, ratio
    e = exp(0.5 * (high - low) * (high + low))
    q = e * ratio / (mills_excess(-low) - low)
    own = ratio / (1.0 - q)
    logz = log_cdf + (log1p_unit(-q) if q <= 0.5 else log(1.0 - q))
    below_one = own * (ratio_and_cut + own * (q - e * (2.0 - e)) - low * e)
    return logz, own * (e - 1.0), below_one, own * e, own


@kernel
def normal_between(a, b):
    """Return log P, E[x], 1 - Var[x], phi(a) / P and phi(b) / P of a standard normal x given that a < x < b."""
    flip = a + b > 0.0
    low, high = (-b, -a) if flip else (a, b)
    logz, mean, below_one, at_low, at_high = 0.0, 0.0, 0.0, 0.0, 0.0
    if (high - low) * (1.0 + abs(low + high)) < NARROW:
        logz, mean, below_one = _narrow(low, high)
        at_low = exp(-0.5 * low * low - LOG_SQRT_2PI - logz)
        at_high = exp(-0.5 * high * high - LOG_SQRT_2PI - logz)
    else:
        logz, mean, below_one, at_low, at_high = _normal_below(low, high)
    below_one = min(max(below_one, 0.0), 1.0)
    return (logz, -mean, below_one, at_high, at_low) if flip else (logz, mean, below_one, at_low, at_high)


@kernel
def _log_logistic(x):
    """Return p = 1 / (1 + e^-x), 1 - p and log p."""
    p, q, soft = logistic(x)
    return p, q, min(x, 0.0) - soft


@kernel
def _gap(a, b):
    """Return log(1 - e^-d) and 1 / (e^d - 1) of the distance d of two cuts."""
    d = b - a
    if d > 700.0:
        return 0.0, 0.0
    grown = math.expm1(d)
    return math.log(grown) - d, 1.0 / grown


@kernel
def logistic_between(a, b):
    """Return log P, slope and minus the curvature in a shift of f, of a standard logistic x given that a < x < b.

    P = p(b) (1 - p(a)) (1 - e^(a - b)), its log has the slope p(a) - (1 - p(b)).
    """
    below_a, above_a, _ = _log_logistic(a)
    below_b, above_b, log_b = _log_logistic(b)
    log_above, gap = _log_logistic(-a)[2], _gap(a, b)[0]
    return log_b + log_above + gap, below_a - above_b, below_a * above_a + below_b * above_b


@kernel
def normal_tilted(y, m, v, theta, logz, alpha, beta):
    """Write log P(y < f + noise < theta) for f ~ N(m, v) and normal noise, and its derivatives in m."""
    for n in range(y.shape[0]):
        inv_s = 1.0 / math.sqrt(1.0 + v[n])
        logz[n], mean, below_one, _, _ = normal_between((y[n] - m[n]) * inv_s, (theta[n] - m[n]) * inv_s)
        alpha[n] = mean * inv_s
        beta[n] = below_one * inv_s * inv_s


@kernel
def normal_loglik(y, f, theta, value, d1, d2):
    """Write log P(y < f + noise < theta) for normal noise and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], below_one, _, _ = normal_between(y[n] - f[n], theta[n] - f[n])
        d2[n] = -below_one


@kernel
def normal_expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of the normal N(f, 1) that is known to lie between the cuts, and what it adds to the bound."""
    for n in range(y.shape[0]):
        logz, mean, _, _, _ = normal_between(y[n] - f[n], theta[n] - f[n])
        weight[n], target[n], spread[n] = 1.0, f[n] + mean, 0.0
        constant[n] = logz + f[n] * (0.5 * f[n] - target[n])


@block_kernel
def normal_drawn(first, last, y, used, f, theta, key, weight, target, s):
    """target = a draw of the normal N(f, 1) that is known to lie between the cuts."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                x = f[b, lane]
                target[b, lane] = x + interval_normal(s, y[b, lane] - x, theta[b, lane] - x)


@kernel
def logistic_loglik(y, f, theta, value, d1, d2):
    """Write log P(y < f + noise < theta) for logistic noise and its first two derivatives in f."""
    for n in range(y.shape[0]):
        value[n], d1[n], curvature = logistic_between(y[n] - f[n], theta[n] - f[n])
        d2[n] = -curvature


@kernel
def _mode(a, b, m, v):
    """Return where the log of the tilted density, which is concave, is largest: log P has slopes between -1 and 1."""
    low, high = m - v, m + v
    f, before, close = m, 4.0 * v, 1e-7 * math.sqrt(v)
    for _ in range(NEWTON):
        _, slope, curvature = logistic_between(a - f, b - f)
        slope -= (f - m) / v
        if slope > 0.0:
            low = f
        else:
            high = f
        step = slope / (curvature + 1.0 / v)
        f, before = newton_or_middle(f, step, low, high, before, close)
        if abs(step) <= close or high - low <= 1e-12 * (1.0 + abs(f)):
            break
    return f


@kernel
def logistic_tilted(y, m, v, theta, logz, alpha, beta):
    """Write log P(y < f + noise < theta) for f ~ N(m, v) and logistic noise, and its derivatives in m.

    With l = log P given f, alpha = E[l'] and beta = -(E[l''] + Var[l']) over the tilted density, whose nodes are those
    of `logit.tilted`, around its mode: it is narrower than the cavity.
    """
    for n in range(y.shape[0]):
        var = v[n] + TINY
        s = math.sqrt(var)
        f = _mode(y[n], theta[n], m[n], var)
        step = 2.0 * math.pi / (POLE * s + 0.5 * math.pi / s) if s > WIDE else GAUSS_STEP
        nodes = count_nodes(2.0 * REACH, step)
        h = 2.0 * REACH / nodes
        offset = (f - m[n]) / s
        peak = logistic_between(y[n] - f, theta[n] - f)[0] - 0.5 * offset * offset
        w0, w1, w2, curved = 0.0, 0.0, 0.0, 0.0
        for j in range(nodes):
            u = (j + 0.5) * h - REACH
            value, slope, curvature = logistic_between(y[n] - (f + s * u), theta[n] - (f + s * u))
            w = exp(value - 0.5 * (offset + u) * (offset + u) - peak)
            w0 += w
            w1 += w * slope
            w2 += w * slope * slope
            curved += w * curvature
        alpha[n] = w1 / w0
        logz[n] = peak + log(h * w0) - LOG_SQRT_2PI
        beta[n] = curved / w0 - (w2 / w0 - alpha[n] * alpha[n])


@inlined
def cut_slopes(a, b, logistic):
    """Return log P and its derivatives in the cuts: by a, by b, by a twice, by b twice, by both."""
    if logistic:
        below_a, above_a, _ = _log_logistic(a)
        below_b, above_b, _ = _log_logistic(b)
        logz = logistic_between(a, b)[0]
        own = _gap(a, b)[1]
        bent = own * (1.0 + own)
        return logz, -below_a - own, above_b + own, -below_a * above_a - bent, -below_b * above_b - bent, bent
    logz, _, _, at_a, at_b = normal_between(a, b)
    from_a = a * at_a if a > -FAR else 0.0
    from_b = b * at_b if b < FAR else 0.0
    return logz, -at_a, at_b, from_a - at_a * at_a, -from_b - at_b * at_b, at_a * at_b
