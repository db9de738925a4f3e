"""Labels 0/1: what their likelihoods share; probit and step, with moments in closed form; any whose zeros are sampled.

Inside, a label is +1 or -1; what goes in and comes out (labels, means, quantiles, draws) is 0 or 1. Probit has
P(y = 1 | f) = Phi(f). Step has P(y = 1 | f) = 1 - theta for f > 0 and theta below: theta is the slack, the probability
of a wrong label. It is 0 by default: a label then says on which side of 0 f lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, ndtr

from tensorcep.core.checks import check_fraction, check_values, check_zero_one
from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import start_stream, truncated_normal
from tensorcep.kernels import special
from tensorcep.kernels.rank_update import TOGETHER
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import INV_SQRT_2PI, LOG_SQRT_2PI, REACH, TINY, exp, log, normal_cdf_parts, upper_tail
from tensorcep.likelihoods.base import Augmentation, Likelihood, aligned, log_density


class Labels(Likelihood):
    """Labels 0/1 by `logpdf` and by the probability of a 1 at a latent value."""

    def probability(self, f: np.ndarray) -> np.ndarray:
        """P(y = 1 | f), in the shape of f."""
        raise NotImplementedError

    def check_y(self, y: ArrayLike) -> np.ndarray:
        return 2.0 * check_zero_one("y", check_values(y, name="y")) - 1.0

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        one, zero = (np.exp(self.logpdf(side, m, v, theta)) for side in (1.0, -1.0))
        return one, one * zero

    def quantile(self, q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        zero = np.exp(self.logpdf(-1.0, m, v, theta))
        return np.where(check_fraction("q", q) <= zero, 0.0, 1.0)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f = np.atleast_1d(np.asarray(f, dtype=np.float64))
        return (rng.random(f.shape) < self.probability(f)).astype(np.float64)

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        one, is_one = self.predict(m, v, theta)[0], np.asarray(y) > 0.0
        return np.where(is_one, 1.0, 1.0 - one), np.where(is_one, one, 1.0)


def moments_of_points(shares: Any, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Likelihood.of_points` by the kernel ``shares(f, one, zero)``, which writes the means of both probabilities."""
    one, zero = np.empty(f.shape[1]), np.empty(f.shape[1])
    shares(np.ascontiguousarray(f), one, zero)
    return one, one * zero


@dataclass(frozen=True)
class MixedLabels(Labels):
    """Predictions of labels by a likelihood at a share, and otherwise of a 1 with probability `one`; not fitted."""

    of: Any = None
    share: float = 1.0
    one: float = 0.5

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        constant = np.where(np.asarray(y) > 0.0, np.log(self.one), np.log1p(-self.one))
        own = np.log(self.share) + self.of.logpdf(y, m, v, theta)
        return np.logaddexp(own, np.log1p(-self.share) + constant)

    def probability(self, f: np.ndarray) -> np.ndarray:
        own = self.of.predict(f, np.zeros_like(f), np.ones_like(f))[0]
        return np.asarray(self.share * own + (1.0 - self.share) * self.one)


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log Phi(z), alpha = y r / s, beta = r (z + r) / s^2 with z = y m / s, s^2 = 1 + v, r = phi(z) / Phi(z)."""
    # For very negative z, z + r is about -1 / z: it comes from a fit of its own, not from the sum. Source: Minka
    # (2008), EP: a quick reference, eqs 49-51.
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(1.0 + v[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        r = alpha[n]
        alpha[n] = y[n] * r / math.sqrt(1.0 + v[n])
        beta[n] = r * beta[n] / (1.0 + v[n])


@kernel
def tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2):
    """Write what `tilted` does, and the second derivatives of alpha and beta in m, from r' = -r (z + r)."""
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(1.0 + v[n])
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        r, z_r, inv_s = alpha[n], beta[n], 1.0 / math.sqrt(1.0 + v[n])
        r1 = -r * z_r
        r2 = -r1 * z_r - r * (1.0 + r1)
        r3 = -r2 * z_r - 2.0 * r1 * (1.0 + r1) - r * r2
        alpha[n] = y[n] * r * inv_s
        beta[n] = -r1 * inv_s**2
        alpha2[n] = y[n] * r2 * inv_s**3
        beta2[n] = -r3 * inv_s**4


@kernel
def loglik(y, f, theta, value, d1, d2):
    """Write log Phi(y f) and its first two derivatives in f."""
    for n in range(y.shape[0]):
        d2[n] = y[n] * f[n]
    normal_cdf_parts(d2, value, d1)
    for n in range(y.shape[0]):
        r = d1[n]
        d1[n] = y[n] * r
        d2[n] = -r * d2[n]


@kernel
def expected(y, f, square, theta, weight, target, spread, constant):
    """Write the mean of the normal N(f, 1) that is known to have the sign y, and log Phi(y f) - target f + f^2 / 2."""
    for n in range(y.shape[0]):
        spread[n] = y[n] * f[n]
    normal_cdf_parts(spread, constant, target)
    for n in range(y.shape[0]):
        weight[n], spread[n] = 1.0, 0.0
        target[n] = f[n] + y[n] * target[n]
        constant[n] += f[n] * (0.5 * f[n] - target[n])


@block_kernel
def drawn(first, last, y, used, f, theta, key, weight, target, s):
    """target = a draw of the normal N(f, 1) that is known to have the sign y."""
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                target[b, lane] = f[b, lane] + y[b, lane] * truncated_normal(s, -y[b, lane] * f[b, lane])


@block_kernel
def shares(f, one, zero):
    """Write the means (n,) of Phi(f) and of Phi(-f) over the lines of f (S, n)."""
    S, n = f.shape
    one[:] = 0.0
    zero[:] = 0.0
    for first in range(0, n, TOGETHER):
        last = min(first + TOGETHER, n)
        p, q = one[first:last], zero[first:last]
        for s in range(S):
            line = f[s, first:last]
            for i in range(line.shape[0]):
                small = upper_tail(abs(line[i]), exp(-0.5 * line[i] * line[i]))
                big = 1.0 - small
                p[i] += big if line[i] > 0.0 else small
                q[i] += small if line[i] > 0.0 else big
        for i in range(p.shape[0]):
            p[i] /= S
            q[i] /= S


class Probit(Labels):
    """P(y = 1 | f) = Phi(f)."""

    observes = "labels"

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(f))

    def of_points(self, f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return moments_of_points(shares, f)

    def third(self, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return y r ((z + r) (z + 2 r) - 1) with z = y f and r = phi(z) / Phi(z)."""
        y, f, theta = aligned(y, f, theta)
        _, slope, curve = log_density(loglik, y, f, theta)
        r = y * slope
        z_plus_r = np.divide(-curve, r, out=np.zeros_like(r), where=r > 0.0)
        return np.asarray(y * r * (z_plus_r * (z_plus_r + r) - 1.0))


# Source of the latent normal: Albert and Chib (1993), JASA 88.
PROBIT = Probit("probit", tilted, loglik, normal=Augmentation(expected, drawn), tilted2=tilted2)


@kernel
def step_tilted(y, m, v, theta, logz, alpha, beta):
    """Write log Z, alpha = y r / s, beta = r (z + r) / s^2 with z = y m / s, s^2 = v, r = (1 - 2 theta) phi(z) / Z."""
    # Z = theta + (1 - 2 theta) Phi(z). Without slack z + r keeps its digits for very negative z; with slack beta may be
    # negative there. Source: Minka (2008), EP: a quick reference, eqs 51-55.
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(v[n] + TINY)
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        s = math.sqrt(v[n] + TINY)
        r, z_plus_r = alpha[n], beta[n]
        if theta[n] > 0.0:
            z = y[n] * m[n] / s
            mass = theta[n] + (1.0 - 2.0 * theta[n]) * exp(logz[n])
            r = (1.0 - 2.0 * theta[n]) * INV_SQRT_2PI * exp(-0.5 * z * z) / mass
            z_plus_r = z + r
            logz[n] = log(mass)
        alpha[n] = y[n] * r / s
        beta[n] = (r / s) * (z_plus_r / s)


class Step(Labels):
    """A label that says on which side of 0 f lies, up to the slack."""

    def probability(self, f: np.ndarray) -> np.ndarray:
        """That without slack."""
        return np.heaviside(f, 0.5)

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y = super().sample(rng, f, theta)
        return np.abs(y - (rng.random(y.shape) < np.asarray(theta)))


# The log likelihood has no derivative at 0, so methods that need one (Laplace, power EP) do not apply.
STEP = Step("step", step_tilted, default_theta=0.0)


# Labels of a population whose zeros were sampled: the likelihood of a new label, after a fit to the sample.
#
# The sample holds all ones and a share w of the zeros. Then at every latent value f the odds of a one in the population
# are w times those in the sample, whatever the link:
#
#     P(y = 1 | f) = w g(f) / (w g(f) + 1 - g(f)) = sigma(log w + a(f)),    a(f) = log g(f) - log(1 - g(f)).
#
# For the logit, a(f) = f and log w is added to the mean of f. For the probit the expectation over f ~ N(m, v) has no
# closed form; it is taken by the trapezoidal rule of `kernels.special`, on nodes that follow from bounds on a(f): its
# slope is at most |f| + 2, its curvature is below 1, and the nearest poles of sigma(log w + a(f)) lie about pi / a'(f0)
# from the real line, f0 being where sigma is 1/2.
#
# Source of the odds: Prentice and Pyke (1979), Logistic disease incidence models and case-control studies; King and
# Zeng (2001), Logistic regression in rare events data, sec. 4.1 (prior correction).

# exp(-POLE_NATS) is the error that a pole at its distance from the real line lets through.
POLE_NATS = 30.0
# Up to this variance the tilted density is close to the Gaussian: its precision is at least 1 / v - 1 >= 3 / (4 v).
NARROW = 0.25
# Beyond sqrt(a^2 + FAR) standard deviations a Gaussian has 1e-16 of its mass beyond a.
FAR = 75.0
# Beyond this |f| log odds of a probit exceed those of any rate that a double can hold.
LARGEST_F = 40.0
NODES_AT_ONCE = 1 << 18


def for_population(likelihood: Likelihood, zero_rate: float) -> Likelihood:
    """Return the likelihood of new labels of the population, by that fitted to all its ones and this share of zeros."""
    if zero_rate == 1.0:
        return likelihood
    shift, name = math.log(zero_rate), f"{likelihood.name}, zeros sampled"
    if likelihood.f_is_log_odds:
        return ShiftedLogOdds(name, of=likelihood, shift=shift)
    centre = float(brentq(lambda f: log_odds(likelihood, np.array([f]))[0] + shift, -LARGEST_F, LARGEST_F))
    return SampledZeros(name, of=likelihood, shift=shift, centre=centre)


@dataclass(frozen=True)
class ShiftedLogOdds(Labels):
    """Predictions of labels of which f is the log odds, but for a shift."""

    of: Any = None
    shift: float = 0.0

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return np.asarray(self.of.logpdf(y, np.asarray(m) + self.shift, v, theta))

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(expit(f + self.shift))

    def of_points(self, f: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.of.of_points(f + self.shift, theta)


@dataclass(frozen=True)
class SampledZeros(Labels):
    """Predictions of labels whose log odds are those of a symmetric link, but for a shift; they are even at centre."""

    of: Any = None
    shift: float = 0.0
    centre: float = 0.0

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, _ = aligned(y, m, v, theta)
        return _log_expected(self.of, y * m, v, y * self.shift, y * self.centre)

    def probability(self, f: np.ndarray) -> np.ndarray:
        return np.asarray(expit(log_odds(self.of, f) + self.shift))


def log_odds(likelihood: Likelihood, f: np.ndarray) -> np.ndarray:
    """Return log P(y = 1 | f) - log P(y = 0 | f) of a symmetric link, in the shape of f."""
    flat = np.ascontiguousarray(f, dtype=np.float64).ravel()
    one, zero, unused, theta = np.empty_like(flat), np.empty_like(flat), np.empty_like(flat), np.ones_like(flat)
    likelihood.loglik(theta, flat, theta, one, unused, np.empty_like(flat))
    likelihood.loglik(-theta, flat, theta, zero, unused, np.empty_like(flat))
    return np.asarray((one - zero).reshape(np.shape(f)))


def _log_expected(likelihood: Likelihood, m: Any, v: Any, shift: Any, centre: Any) -> np.ndarray:
    """Return log E[sigma(shift + a(f))] for f ~ N(m, v), all (n,); centre is where shift + a is 0."""
    out = np.empty_like(m)
    sure = v == 0.0
    out[sure] = -np.logaddexp(0.0, -(shift[sure] + log_odds(likelihood, m[sure])))
    # The nodes' upper end and largest spacing, in units of s from m. sigma grows with f, so the lower end of N(m, s^2)
    # will do. At the upper end, sigma <= 1 is compared with the mass beyond the centre, where sigma >= 1/2; a narrow
    # Gaussian hardly moves.
    s = np.sqrt(v)
    scale = np.maximum(s, math.sqrt(TINY))
    wide = np.sqrt(np.maximum((centre - m) / scale, 0.0) ** 2 + FAR)
    steepest = np.maximum(np.abs(m), np.abs(centre)) + 2.0
    narrow = steepest * s + REACH / math.sqrt(1.0 - NARROW)
    high = np.where(s * s <= NARROW, np.minimum(wide, narrow), wide)
    pole = np.pi / (np.abs(centre) + 2.0)
    step = np.minimum(special.GAUSS_STEP / np.sqrt(1.0 + s * s), 2.0 * np.pi * pole / (POLE_NATS * scale))
    count = np.minimum(np.ceil((high + REACH) / step) + 1.0, special.BLOCK * special.MAX_BLOCKS).astype(np.int64)
    order = np.argsort(count, kind="stable")
    order = order[~sure[order]]
    while order.size:  # those that need most nodes first, as many as fit
        nodes = int(count[order[-1]])
        order, some = np.split(order, [max(0, order.size - max(1, NODES_AT_ONCE // nodes))])
        h = (high[some] + REACH) / nodes
        u = (np.arange(nodes)[:, None] + 0.5) * h - REACH
        odds = shift[some] + log_odds(likelihood, m[some] + s[some] * u)
        out[some] = logsumexp(-np.logaddexp(0.0, -odds) - 0.5 * u * u, axis=0) + np.log(h) - LOG_SQRT_2PI
    return np.minimum(out, 0.0)  # rounding can lift a sure label above it
