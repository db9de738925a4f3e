"""Noise that differs: the precision of an entry is tau lambda, its factor lambda ~ Gamma(alpha, alpha) of mean one.

The entries of a group share a factor: those of a row of a mode, or an entry by itself, whose noise then has a Student t
law of 2 alpha degrees of freedom. With the factors integrated out, n entries of a group whose squared residuals add up
to S have the log density n (log tau - log 2 pi) / 2 + log c, where

    c = alpha^alpha Gamma(alpha + n / 2) / (Gamma(alpha) (alpha + tau S / 2)^(alpha + n / 2)),

and given tau and alpha the factor is Gamma(alpha + n / 2, rate alpha + tau S / 2).

Source: Lange, Little and Taylor (1989), J. Amer. Statist. Assoc. 84, for t noise as a scale mixture; Liu (1996),
Statistica Sinica 6, for drawing alpha with the factors integrated out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaincinv, gammaln, lambertw, logsumexp, stdtrit

from tensorcep.core.compile import block_kernel
from tensorcep.core.random import gamma, start_stream
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import LOG_SQRT_2PI

if TYPE_CHECKING:
    from tensorcep.likelihoods.base import Likelihood

# What alpha may be, evenly spaced in its log, each equally likely beforehand: from noise whose variance just exists
# (2.2 degrees of freedom) to noise that is nearly the same everywhere (factors vary by 3 %).
ALPHAS = 1.1 * 2.0 ** (0.5 * np.arange(21))
# Newton steps of log tau: at most, and the step that ends them.
STEPS, SETTLED = 30, 1e-6
# Multiples of it are spread evenly between whole numbers, however many there are.
GOLDEN = 0.5 * (5.0**0.5 - 1.0)
# Quadrature over the log of a factor: nodes, how many nats below the mode it reaches at large and at small factors,
# which are those of outliers, and the least log: that of an outlier of 20,000 standard deviations.
NODES, NATS, LEAST_LOG = 48, (36.0, 150.0), -20.0


@block_kernel
def draw_factors(first, last, target, used, f, law, key, weight, s):
    """Draw weight ~ Gamma(alpha + 1/2, rate alpha + tau (target - f)^2 / 2); law is (tau, alpha)."""
    tau, alpha = law
    for b in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + b)
        for lane in range(LANES):
            if used[b, lane] > 0.0:
                rest = target[b, lane] - f[b, lane]
                weight[b, lane] = gamma(s, alpha + 0.5) / (alpha + 0.5 * tau * rest * rest)


@block_kernel
def sums_of_squares(first, last, y, f, weight, used, present, sums):
    """sums[b] = the sums of weight (y - f)^2 over the entries in use, and of (y - f)^2 over all, for blocks."""
    for b in range(first, last):
        told, total = 0.0, 0.0
        for lane in range(LANES):
            rest = y[b, lane] - f[b, lane]
            told += used[b, lane] * weight[b, lane] * rest * rest
            total += present[b, lane] * rest * rest
        sums[b, 0], sums[b, 1] = told, total


class GroupSums(NamedTuple):
    """What is known of the groups: how many entries (n) and squared residuals (S) each, and how often each counts."""

    n: np.ndarray
    squares: np.ndarray
    times: np.ndarray | float = 1.0


class Evenness(NamedTuple):
    """tau and alpha (by its place in `ALPHAS`), and minus the second derivative of the log density in log tau."""

    tau: float
    place: int
    curvature: float

    @property
    def alpha(self) -> float:
        """Shape and rate of the factors' law."""
        return float(ALPHAS[self.place])


def law_of_factors(groups: GroupSums, tau: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Shape and rate of the factor of every group."""
    return alpha + 0.5 * groups.n, alpha + 0.5 * tau * groups.squares


def log_evidence(groups: GroupSums, tau: float, alpha: float) -> float:
    """The log density of the residuals of all groups, factors integrated out."""
    a, b = law_of_factors(groups, tau, alpha)
    each = alpha * np.log(alpha) - gammaln(alpha) + gammaln(a) - a * np.log(b)
    n = float(np.broadcast_to(groups.times * groups.n, groups.squares.shape).sum())
    return float(np.sum(groups.times * each)) + 0.5 * n * (np.log(tau) - np.log(2.0 * np.pi))


def log_evidences(groups: GroupSums, tau: float) -> np.ndarray:
    """`log_evidence` at each of `ALPHAS`, less what does not depend on alpha."""
    sizes, which = np.unique(groups.n, return_inverse=True)
    times = np.bincount(which, minlength=len(sizes))
    alpha = ALPHAS[:, None]
    of_sizes = alpha * np.log(alpha) - gammaln(alpha) + gammaln(alpha + 0.5 * sizes)
    logs = np.log(alpha + 0.5 * tau * groups.squares)
    return np.asarray(of_sizes @ times - ALPHAS * logs.sum(axis=1) - logs @ (0.5 * groups.n))


def best_tau(groups: GroupSums, prior: tuple[float, float], tau: float, alpha: float) -> tuple[float, float]:
    """The tau of the highest density in log tau under a Gamma prior, from one to start with; minus its curvature.

    The log density is concave in log tau.
    """
    half = 0.5 * float(np.broadcast_to(groups.times * groups.n, groups.squares.shape).sum()) + prior[0]
    log_tau, curvature = np.log(tau), half
    for _ in range(STEPS):
        tau = float(np.exp(log_tau))
        a, b = law_of_factors(groups, tau, alpha)
        pull = groups.times * a * (b - alpha) / b
        slope = half - float(pull.sum()) - prior[1] * tau
        curvature = max(float((pull * (alpha / b)).sum()) + prior[1] * tau, np.finfo(float).tiny)
        step = float(np.clip(slope / curvature, -2.0, 2.0))
        log_tau += step
        if abs(step) < SETTLED:
            break
    return float(np.exp(log_tau)), curvature


def fitted(groups: GroupSums, prior: tuple[float, float], tau: float, place: int) -> Evenness:
    """tau and alpha of the highest density, from some to start with, by steps to the better neighbour in `ALPHAS`."""
    known: dict[int, tuple[float, Evenness]] = {}

    def at(i: int, start: float) -> float:
        if i not in known:
            found, curvature = best_tau(groups, prior, start, float(ALPHAS[i]))
            height = log_evidence(groups, found, float(ALPHAS[i])) + prior[0] * np.log(found) - prior[1] * found
            known[i] = (height, Evenness(found, i, curvature))
        return known[i][0]

    at(place, tau)
    while True:
        here = known[place][1].tau
        beside = [i for i in (place - 1, place + 1) if 0 <= i < len(ALPHAS)]
        better = max(beside, key=lambda i: at(i, here))
        if known[better][0] <= known[place][0]:
            return known[place][1]
        place = better


def log_prior(tau: float, prior: tuple[float, float]) -> float:
    """The log density of log tau under the Gamma prior of tau, and of alpha."""
    a, b = prior
    return float(a * np.log(b) - gammaln(a) + a * np.log(tau) - b * tau) - float(np.log(len(ALPHAS)))


def nodes(shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (NODES, ...) and their log weights, for means over factors of these shapes (...): a trapezoidal rule.

    The integrand is smooth in the log of a factor and vanishes at both ends, where the rule converges exponentially.
    """
    shape = np.asarray(shape, dtype=float)
    above, below = (1.0 + nats / shape for nats in NATS)
    high = -above - lambertw(-np.exp(-above), -1).real
    low = np.maximum(-below - lambertw(-np.exp(-below), 0).real, LEAST_LOG)
    share = np.linspace(0.0, 1.0, NODES).reshape(-1, *np.ones(shape.ndim, dtype=int))
    log_factor = low + share * (high - low)
    log_weight = shape * (log_factor - np.exp(log_factor))
    log_weight -= log_weight.max(axis=0)
    return np.exp(log_factor), log_weight - np.log(np.exp(log_weight).sum(axis=0))


def student_logpdf(residual: np.ndarray, tau: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The log density of residuals of precision tau lambda, lambda ~ Gamma(shape, shape)."""
    half = 0.5 * tau * residual * residual / shape
    constant = gammaln(shape + 0.5) - gammaln(shape) - 0.5 * np.log(shape)
    return np.asarray(constant + 0.5 * np.log(tau) - LOG_SQRT_2PI - (shape + 0.5) * np.log1p(half))


def log_likelihoods(
    likelihood: Likelihood, y: np.ndarray, theta: np.ndarray, f: np.ndarray, shape: np.ndarray | None
) -> np.ndarray:
    """log p(y | f) for latent values f (C, n); of factors of this shape where these multiply the precisions."""
    if shape is not None and not likelihood.censored:
        return student_logpdf(y - f, theta, shape)
    if shape is not None:
        factors, log_weight = nodes(shape)
        each = [log_likelihoods(likelihood, y, theta * factor, f, None) for factor in factors]
        return np.asarray(logsumexp(np.stack(each) + log_weight, axis=0))
    flat = y.ravel(), f.ravel(), theta.ravel()
    value, d1, d2 = np.empty(f.size), np.empty(f.size), np.empty(f.size)
    likelihood.loglik(*flat, value, d1, d2)
    return value.reshape(f.shape)


def seen_through(squares: np.ndarray, spread: np.ndarray, tau: float, alpha: float) -> tuple[float, float]:
    """Of residuals that also vary by `spread` (n,): their log density, and a better tau, by a step of EM.

    `squares` (n,) are those of the residuals; each has a factor of its own.
    """
    factor, log_weight = nodes(np.array(alpha))
    noise = 1.0 / (tau * factor)
    total = spread[:, None] + noise
    each = log_weight - 0.5 * (np.log(total) + squares[:, None] / total)
    log_density = logsumexp(each, axis=1)
    share, mine = np.exp(each - log_density[:, None]), noise / total
    expected = (share * factor * mine * (mine * squares[:, None] + spread[:, None])).sum(axis=1)
    return float(log_density.sum()) - len(squares) * LOG_SQRT_2PI, 1.0 / float(expected.mean())


def same_size(tau: float, alpha: float, other: float) -> float:
    """The tau with which Student noise of the shape `other` has the quartiles that tau gives it at `alpha`."""
    return float(tau * (stdtrit(2.0 * other, 0.75) / stdtrit(2.0 * alpha, 0.75)) ** 2)


def strata(shape: np.ndarray, n: int) -> np.ndarray:
    """Factors (n, C, ...) of these shapes (C, ...), each from one of n equally likely parts of their law.

    Where in its part it lies differs between the components C, whose factors together fill the law evenly.
    """
    at = np.array([0.5]) if len(shape) == 1 else np.mod((np.arange(len(shape)) + 0.5) * GOLDEN, 1.0)
    levels = ((np.arange(n)[:, None] + at) / n).reshape(n, len(shape), *np.ones(shape.ndim - 1, dtype=int))
    return np.asarray(gammaincinv(shape, levels) / shape)
