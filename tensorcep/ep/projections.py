"""Other ways to a Gaussian than matched moments: powers of sites, and the nearest one in the Wasserstein distance."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, legendre
from scipy.special import ndtri

from tensorcep.core.compile import call_at, kernel
from tensorcep.kernels.special import DROP, INV_SQRT_2PI, LOG_SQRT_2PI
from tensorcep.likelihoods.base import Likelihood, log_density, tilted_moments
from tensorcep.likelihoods.binary import PROBIT

# Tilted moments of a power of a likelihood, for power EP, by quadrature of its log likelihood.

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
    call_at(address, y, one[0], theta, one[1], one[2], one[3])
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
    """Return logz, alpha and beta of p(y | f)^power with f ~ N(m, v), for the log likelihood at `address`."""
    # The trapezoidal rule on an interval around the mode; NaN for a variance not above 0. `one` is a (4, 1) buffer.
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


# Projection of a tilted distribution onto the nearest Gaussian in the L2 Wasserstein distance (quantile propagation).
#
# The mean is that of EP; the standard deviation is the integral of phi(Phi^-1(F(f))) over f, with F the distribution
# function of likelihood times cavity. It is never larger than EP's.
# Source: Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian
# processes, eq. 7. Where we differ: F by quadrature for any likelihood, instead of look-up tables of 320 MB.

# Panels of Gauss-Legendre nodes on each side of the middle.
PANELS, NODES = 8, 24
# Panels at 0 are no wider than about FINEST, and grow by this factor at most; by just this one from a jump of the
# density on, where phi(Phi^-1(F)) has a logarithm.
FINEST, GROWTH = 1.5, 6.0
# The density is followed until it has fallen by so many nats, and a Gaussian so many standard deviations out.
FALL, REACH = 40.0, 9.0
COARSE, ZOOMS = 96, 3
# Distributions at a time, so that the table of nodes stays small.
CHUNK = 512
# The table of the probit: k = y m / sqrt(1 + v) and log10 of the cavity's standard deviation.
K_RANGE, LOG_S_RANGE, TABLE_SIZE = 8.0, 2.0, (48, 28)


@cache
def _rule() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [-1, 1] with weights, and the matrix of the integrals from -1 up to each node."""
    node, weight = legendre.leggauss(NODES)
    basis = legendre.legvander(node, NODES - 1)
    upto = np.stack([legendre.legval(node, legendre.legint(row, lbnd=-1)) for row in np.eye(NODES)], axis=1)
    return node, weight, upto @ np.linalg.inv(basis)


class Tilted(NamedTuple):
    """Cavities N(m, v), each (n,), and the likelihoods that tilt them."""

    record: Likelihood
    y: np.ndarray
    theta: np.ndarray
    m: np.ndarray
    v: np.ndarray

    def part(self, which: slice | np.ndarray) -> Tilted:
        return Tilted(self.record, *(part[which] for part in self[1:]))

    def log_density(self, f: np.ndarray) -> np.ndarray:
        """Logarithm of likelihood times cavity without its constant, at (n, q) values."""
        record, (y, theta) = self.record, (np.repeat(a, f.shape[1]) for a in (self.y, self.theta))
        with np.errstate(divide="ignore", invalid="ignore"):
            if record.loglik is None:
                found = record.logpdf(y, f.ravel(), 0.0, theta)
            else:
                found = log_density(record.loglik, y, f.ravel(), theta)[0]
        return found.reshape(f.shape) - 0.5 * (f - self.m[:, None]) ** 2 / self.v[:, None]


def _span(tilted: Tilted, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends outside of which the density has fallen by FALL nats."""
    # Log-concave likelihoods fall no slower than the cavity beyond their mode, which lies within sqrt(3) standard
    # deviations of the mean; of an even one the mirror image counts too, where it is not negligible.
    reach = REACH * np.sqrt(tilted.v) + 2.0 * sd
    both = tilted.log_density(np.stack([mean, -mean], axis=1))
    mirrored = both[:, 1] > both[:, 0] - FALL
    low = np.where(mirrored, -np.abs(mean), mean) - reach
    high = np.where(mirrored, np.abs(mean), mean) + reach
    share = np.linspace(0.0, 1.0, COARSE)
    for _ in range(ZOOMS):
        f = low[:, None] + (high - low)[:, None] * share
        value = tilted.log_density(f)
        inside = value > value.max(axis=1, keepdims=True) - FALL
        first = np.maximum(np.argmax(inside, axis=1) - 1, 0)
        last = np.minimum(COARSE - np.argmax(inside[:, ::-1], axis=1), COARSE - 1)
        rows = np.arange(len(f))
        low, high = f[rows, first], f[rows, last]
    return low, high


def _parts(length: np.ndarray, jump: bool) -> np.ndarray:
    """Ends of the panels on one side of the middle, as shares of its length, (n, PANELS + 1)."""
    growth = np.linspace(1.0, GROWTH, 512)
    sizes = growth[:, None] ** np.arange(PANELS)
    wanted = np.interp(length / FINEST, sizes.sum(axis=1), growth)
    steps = np.where(jump, GROWTH, wanted)[:, None] ** np.arange(PANELS)
    upto = np.cumsum(steps, axis=1)
    return np.concatenate([np.zeros((len(length), 1)), upto / upto[:, -1:]], axis=1)


def _standard_deviation(tilted: Tilted, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    (node, weight, upto), n, (low, high) = _rule(), len(mean), _span(tilted, mean, sd)
    # panels are finer towards 0, where a likelihood of labels has its slope or its jump
    inside = (low < 0.0) & (high > 0.0)
    middle, jump = np.where(inside, 0.0, 0.5 * (low + high)), tilted.record.loglik is None
    left, right = middle - low, high - middle
    below = middle[:, None] - left[:, None] * _parts(left, jump)[:, ::-1]
    above = middle[:, None] + right[:, None] * _parts(right, jump)
    edges = np.concatenate([below, above[:, 1:]], axis=1)  # (n, 2 PANELS + 1)
    half = 0.5 * np.diff(edges, axis=1)
    f = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * node
    value = tilted.log_density(f.reshape(n, -1))
    density = np.exp(value - value.max(axis=1, keepdims=True)).reshape(f.shape) * half[:, :, None]
    mass = density @ weight
    left = np.cumsum(mass, axis=1) - mass
    right = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1] - mass
    below = density @ upto.T
    total = mass.sum(axis=1)[:, None, None]
    lower, upper = (left[:, :, None] + below) / total, (right + mass)[:, :, None] - below
    quantile = ndtri(np.clip(np.minimum(lower, upper / total), np.finfo(np.float64).tiny, 0.5))
    height = INV_SQRT_2PI * np.exp(-0.5 * quantile * quantile)
    return np.asarray(((height @ weight) * half).sum(axis=1))


def standard_deviations(tilted: Tilted, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Standard deviations (n,) of the nearest Gaussians, by quadrature, to 1e-14 for likelihoods without jumps."""
    mean, sd = tilted.m + tilted.v * alpha, np.sqrt(np.maximum(tilted.v * (1.0 - tilted.v * beta), 1e-300))
    result = np.empty_like(mean)
    for first in range(0, len(mean), CHUNK):
        rows = slice(first, first + CHUNK)
        result[rows] = _standard_deviation(tilted.part(rows), mean[rows], sd[rows])
    return result


@cache
def _probit_table() -> np.ndarray:
    """Chebyshev coefficients of the ratio to EP's standard deviation, minus 1."""
    k, log_s = (np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in TABLE_SIZE)
    k, log_s = (a.ravel() for a in np.meshgrid(K_RANGE * k, LOG_S_RANGE * log_s, indexing="ij"))
    v = 100.0**log_s
    y, m = np.ones_like(k), k * np.sqrt(1.0 + v)
    _, alpha, beta = tilted_moments(PROBIT.tilted, y, m, v, 1.0)
    ratio = standard_deviations(Tilted(PROBIT, y, y, m, v), alpha, beta) / np.sqrt(v * (1.0 - v * beta))
    values: np.ndarray = (ratio - 1.0).reshape(TABLE_SIZE)
    for axis, n in enumerate(TABLE_SIZE):
        basis = chebyshev.chebvander(np.cos(np.pi * (np.arange(n) + 0.5) / n), n - 1)
        values = np.moveaxis(np.linalg.solve(basis, np.moveaxis(values, axis, 0)), 0, axis)
    return values


def deviations_by_table(tilted: Tilted, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """As `standard_deviations` for the probit, within 3e-5: by a table of 1344 numbers, outside of it by quadrature."""
    k, log_s = tilted.y * tilted.m / np.sqrt(1.0 + tilted.v), 0.5 * np.log10(tilted.v)
    inside = (np.abs(k) <= K_RANGE) & (np.abs(log_s) <= LOG_S_RANGE)
    scaled = zip((k / K_RANGE, log_s / LOG_S_RANGE), TABLE_SIZE, strict=True)
    sides = [chebyshev.chebvander(np.where(inside, a, 0.0), n - 1) for a, n in scaled]
    ratio = 1.0 + np.einsum("nk,nk->n", sides[0] @ _probit_table(), sides[1])
    result = ratio * np.sqrt(np.maximum(tilted.v * (1.0 - tilted.v * beta), 0.0))
    if not inside.all():
        result[~inside] = standard_deviations(tilted.part(~inside), alpha[~inside], beta[~inside])
    return np.asarray(result)


RULES = {"quadrature": standard_deviations, "table": deviations_by_table}


def project(tilted: Tilted, alpha: np.ndarray, beta: np.ndarray, rule: str = "quadrature") -> np.ndarray:
    """beta such that the variance v (1 - v beta) is that of the nearest Gaussian; cavities with v <= 0 keep theirs."""
    good = (tilted.v > 0.0) & np.isfinite(alpha) & (tilted.v * beta < 1.0)
    some = tilted.part(good)
    sd = RULES[rule](some, alpha[good], beta[good])
    result = beta.copy()
    result[good] = (1.0 - sd * sd / some.v) / some.v
    return result
