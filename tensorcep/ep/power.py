"""Tilted moments of a power of a likelihood, for power EP, by quadrature of its log likelihood."""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import call_loglik, kernel
from tensorcep.kernels.quadrature import DROP
from tensorcep.kernels.special import LOG_SQRT_2PI

# Nodes per scale of the integrand, the smaller of those at its mode and of the cavity; and the most that are used.
NODES_PER_SCALE = 5.0
MAX_NODES = 2048
NEWTON_STEPS = 60
# Steps of growing length away from the mode until the integrand has dropped by DROP nats.
OUTWARD_STEPS = 60


@kernel
def _slopes(address, y, theta, f, m, v, power, one):
    """Return power * log p(y | f) - (f - m)^2 / 2 v and its first and minus its second derivative in f."""
    one[0, 0] = f
    call_loglik(address, y, one[0], theta, one[1], one[2], one[3])
    value = power * one[1, 0] - 0.5 * (f - m) * ((f - m) / v)
    return value, power * one[2, 0] - (f - m) / v, 1.0 / v - power * one[3, 0]


@kernel
def _mode(address, y, theta, m, v, power, one):
    """Return the mode, the value there and the scale, by Newton steps halved until the value rises."""
    f = m
    value, slope, curve = _slopes(address, y, theta, f, m, v, power, one)
    for _ in range(NEWTON_STEPS):
        step = slope / max(curve, 1e-3 / v)
        for _ in range(NEWTON_STEPS):
            ahead = _slopes(address, y, theta, f + step, m, v, power, one)
            if ahead[0] >= value:
                break
            step *= 0.5
        else:
            break
        f, gain = f + step, ahead[0] - value
        value, slope, curve = ahead
        if gain <= 1e-10:
            break
    return f, value, math.sqrt(1.0 / max(curve, 1e-3 / v))


@kernel
def _end(address, y, theta, f, value, m, v, power, step, one):
    """Return a point on the side of `step` where the integrand is below its value at the mode by DROP nats."""
    for _ in range(OUTWARD_STEPS):
        f += step
        step *= 1.2
        if _slopes(address, y, theta, f, m, v, power, one)[0] < value - DROP:
            break
    return f


@kernel
def power_tilted(address, y, m, v, theta, power, one):
    """Return logz, alpha and beta of p(y | f)^power with f ~ N(m, v), for the log likelihood at `address`.

    The trapezoidal rule on an interval around the mode; NaN for a variance that is not positive. `one` is a (4, 1)
    buffer.
    """
    if not v > 0.0:
        return np.nan, np.nan, np.nan
    f, value, scale = _mode(address, y, theta, m, v, power, one)
    low = _end(address, y, theta, f, value, m, v, power, -scale, one)
    high = _end(address, y, theta, f, value, m, v, power, scale, one)
    count = min(MAX_NODES, int(NODES_PER_SCALE * (high - low) / min(scale, math.sqrt(v))) + 8)
    h = (high - low) / count
    w0, w1, w2 = 0.0, 0.0, 0.0
    for j in range(count):
        at = low + (j + 0.5) * h
        w = math.exp(_slopes(address, y, theta, at, m, v, power, one)[0] - value)
        w0, w1, w2 = w0 + w, w1 + w * (at - f), w2 + w * (at - f) * (at - f)
    shift, spread = w1 / w0, w2 / w0 - (w1 / w0) * (w1 / w0)
    logz = value + math.log(h * w0) - LOG_SQRT_2PI - 0.5 * math.log(v)
    return logz, (f + shift - m) / v, (1.0 - spread / v) / v
