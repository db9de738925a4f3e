"""Factorised EP whose tilted moments come from a function that may sample or predict: the paper's baseline IS.

Every row of X sends each of its weights one Gaussian message; all messages of a sweep are made from the same posterior
and go a fraction of the way to their new values, as in the published code.

Source: Wang and Zhe, "Conditional Expectation Propagation", sec. 6.1. The text says 500,000 draws for every moment;
the published code takes 100,000, from the standard normal prior, and so do we.

Kernel-based just-in-time EP: a regression learns the tilted moments, importance sampling answers where it is unsure.
The messages that come in to a row are the mean m and variance v of x'w under the cavities; what goes out follows from
alpha and beta, the likelihood's answer (mean m + v alpha, variance v - v^2 beta). Random Fourier features of the
incoming parameters feed a Bayesian linear regression on the outgoing ones. Where its predictive standard deviation is
above the gate, the oracle is asked, its answer is used, and the regression learns it.

Source: Jitkrittum et al. (2015), "Kernel-based just-in-time learning for passing expectation propagation messages";
the paper's baseline in Wang and Zhe, "Conditional Expectation Propagation", sec. 6.1. Where we differ from the original
code (C#, Infer.NET): the kernel is Gaussian in the parameters of the message instead of on its mean embedding, the
features' widths are fixed instead of cross-validated, the most uncertain row is asked first, and the posterior of the
weights is factorised, as it is for the methods beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

from tensorcep.core.loop import Run
from tensorcep.linear.problem import GLMPosterior, GLMProblem

CDF = {"probit": ndtr, "logit": expit}
MESSAGE_PRECISION = 1e-6
# Sampled moments of a message above this precision have collapsed onto one draw.
MOST_PRECISION = 1e12
# A variance below this part of the second moment is rounding (of float32): one draw has all the weight.
ROUNDING = 1e-6
# Weights of this many rows' draws are held at a time.
BLOCK_NUMBERS = 1 << 20

# moments(mu, s) -> (a, b): the cavities N(mu, s) of all weights, (n, d), turn into mean mu + s a, variance s - s^2 b.
Moments = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class State(NamedTuple):
    """Means and variances of the weights after a sweep."""

    mean: np.ndarray
    var: np.ndarray


def sampled_ep(
    problem: GLMProblem,
    moments: Moments,
    *,
    damping: float,
    stop: str,
    max_iter: int,
    tol: float,
    score: Callable[[int, Any, State], Any] | None = None,
) -> Run:
    """Sweep until the change that `stop` names, the "published" one or the largest undamped move, is not above tol.

    A run that stops with messages which could not be renewed, because their moments have collapsed, has not converged;
    the trace tells what part of them that is in the last sweep.
    """
    live = problem.X.toarray() != 0.0
    tau, nu = np.where(live, MESSAGE_PRECISION, 0.0), np.zeros(live.shape)
    state, seconds, lost, converged = _posterior(problem, tau, nu), [], 0.0, False
    for sweep in range(1, max_iter + 1):
        begin = time.perf_counter()
        new_tau, new_nu, renewed = _proposals(state, tau, nu, moments)
        dtau, dnu = np.where(live, new_tau - tau, 0.0), np.where(live, new_nu - nu, 0.0)
        if stop == "published":
            change = float(np.sum(((1.0 - damping) * dnu) ** 2)) / len(dnu)
        else:
            total_tau, total_nu = dtau.sum(axis=0), dnu.sum(axis=0)
            shift = np.abs(total_nu - state.mean * total_tau) * np.sqrt(state.var)
            change = float(np.maximum(np.abs(total_tau) * state.var, shift).max(initial=0.0))
        tau, nu = tau + (1.0 - damping) * dtau, nu + (1.0 - damping) * dnu
        state, lost = _posterior(problem, tau, nu), 1.0 - float(renewed[live].mean())
        seconds.append(time.perf_counter() - begin)
        if score is not None:
            score(sweep, change, state)
        if change <= tol:
            converged = lost == 0.0
            break
    posterior = GLMPosterior(state.mean, state.var, problem.prior_cov, np.nan)
    trace = {"seconds": np.array(seconds), "lost": np.array(lost)}
    return Run(posterior, len(seconds), converged, False, trace, None)


def _proposals(state: State, tau: np.ndarray, nu: np.ndarray, moments: Moments) -> tuple[np.ndarray, ...]:
    """Messages that match the moments, and whether they are finite: those that are not stay as they were.

    As in the published code, a message of no precision gets the first one's, and keeps its natural mean.
    """
    left = 1.0 - state.var * tau
    mu, s = (state.mean - state.var * nu) / left, state.var / left
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        a, b = moments(mu, s)
        kept = 1.0 - s * b
        new_tau = b / kept
        new_nu = a / kept + mu * new_tau
    finite = np.isfinite(new_tau) & np.isfinite(new_nu) & (np.abs(new_tau) < MOST_PRECISION)
    positive = finite & (new_tau > 0.0) & (kept > 0.0)
    new_tau = np.where(positive, new_tau, np.where(finite, MESSAGE_PRECISION, tau))
    return new_tau, np.where(positive, new_nu, nu), finite


def _posterior(problem: GLMProblem, tau: np.ndarray, nu: np.ndarray) -> State:
    var = 1.0 / (1.0 / problem.prior_cov + tau.sum(axis=0))
    return State(var * (problem.prior_mean / problem.prior_cov + nu.sum(axis=0)), var)


def importance_moments(problem: GLMProblem, draws: int) -> Moments:
    """Self-normalised importance sampling of each row's tilted density with proposals from N(0, I).

    The weight of a draw is likelihood x cavity / N(0, I) over the row's own weights. Where the cavity is narrow, or has
    many dimensions, few draws have any weight and the moments are poor: that is what the baseline shows. Every row sees
    the same draws through its own order and signs of the coordinates, which leave N(0, I) as it is: errors of different
    rows are nearly independent, as with draws of their own, and a sweep is two matrix products. The likelihood of the
    draws is the same in every sweep and kept. Numbers are float32: their error, 1e-6 of the second moment, is far below
    that of the draws.
    """
    x, cdf = problem.X.toarray(), CDF[problem.likelihood.name]
    rng = np.random.default_rng(problem.seed)
    order = rng.permuted(np.tile(np.arange(x.shape[1]), (len(x), 1)), axis=1)
    absent = np.take_along_axis(x == 0.0, order, axis=1)
    most = max(1, int(x.shape[1] - absent.sum(axis=1).min()))
    order = np.take_along_axis(order, np.argsort(absent, axis=1, kind="stable"), axis=1)[:, :most]
    w, sign = rng.standard_normal((draws, most), dtype=np.float32), rng.choice([-1.0, 1.0], order.shape)
    turned = sign * np.take_along_axis(x * problem.y[:, None], order, axis=1)
    live, size = turned != 0.0, max(1, BLOCK_NUMBERS // draws)
    known, powers = cdf(turned.astype(np.float32) @ w.T), np.hstack([w, w * w])
    across = np.ascontiguousarray(powers.T)

    def moments(mu: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, mean, var = np.empty((len(x), powers.shape[1])), mu.copy(), s.copy()
        linear = np.where(live, sign * np.take_along_axis(mu / s, order, axis=1), 0.0)
        quadratic = np.where(live, 0.5 - 0.5 / np.take_along_axis(s, order, axis=1), 0.0)
        natural = np.hstack([linear, quadratic]).astype(np.float32)
        for begin in range(0, len(x), size):
            rows = slice(begin, begin + size)
            weight = natural[rows] @ across
            weight -= weight.max(axis=1, keepdims=True)
            np.exp(weight, out=weight)
            weight *= known[rows]
            sums[rows] = (weight @ powers).astype(float) / weight.sum(axis=1, keepdims=True, dtype=float)
        first, second = np.hsplit(sums, 2)
        spread = second - first**2
        np.put_along_axis(mean, order, sign * first, axis=1)
        np.put_along_axis(var, order, np.where(spread > ROUNDING * second, spread, 0.0), axis=1)
        return (mean - mu) / s, (s - var) / s**2

    return moments


FEATURES = 300
# Width of the kernel in each input, variance of the oracle's error, and predictive standard deviation that is too much;
# inputs and outputs are in units of sqrt(1 + v), the width of a smoothed likelihood.
WIDTHS = np.array([1.5, 1.5])
NOISE = 1e-6
GATE = 0.003
# A row that was sure is looked at again when an input has moved by this part of the kernel's width.
MOVED = 0.01


class Oracle:
    """Importance sampling of (likelihood x N(m, v)), with draws from N(m, v); counts how often it is asked.

    The standard normal draws are stratified, one in each of equally probable intervals. The third moment of 100,000
    plain draws is about 0.008 instead of 0, and where v is small beta misses by that over sqrt(v), in all rows alike,
    since the draws are the same: that moves the posterior of thousands of rows by many standard deviations. Mean and
    variance are 0 and 1 exactly, so that a flat likelihood gives alpha = beta = 0.
    """

    def __init__(self, problem: GLMProblem, draws: int):
        z = ndtri((np.arange(draws) + np.random.default_rng(problem.seed).uniform(size=draws)) / draws)
        self._z = (z - z.mean()) / z.std()
        self._cdf = CDF[problem.likelihood.name]
        self.asked = 0

    def __call__(self, m: float, v: float) -> tuple[float, float]:
        """Return alpha and beta for the label 1."""
        self.asked += 1
        weight = self._cdf(m + np.sqrt(v) * self._z)
        total = weight.sum()
        if not total > 0.0:
            return np.nan, np.nan
        shift = float(weight @ self._z / total)
        spread = float(weight @ (self._z - shift) ** 2 / total)
        return shift / np.sqrt(v), (1.0 - spread) / v


class Regression:
    """Bayesian linear regression from random Fourier features to alpha and beta, one observation at a time."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self._frequency = rng.standard_normal((2, FEATURES)) / WIDTHS[:, None]
        self._phase = rng.uniform(0.0, 2.0 * np.pi, FEATURES)
        self.cov, self.weights = np.eye(FEATURES), np.zeros((FEATURES, 2))

    def features(self, inputs: np.ndarray) -> np.ndarray:
        return np.sqrt(2.0 / FEATURES) * np.cos(inputs @ self._frequency + self._phase)

    def learn(self, feature: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Learn one answer; return the vector u by which the covariance fell, u u'."""
        along = self.cov @ feature
        total = NOISE + float(feature @ along)
        self.weights += np.outer(along, target - feature @ self.weights) / total
        fall = along / np.sqrt(total)
        self.cov -= np.outer(fall, fall)
        return fall


class JustInTime:
    """Tilted moments of all rows by the regression, and by the oracle where it is not sure."""

    def __init__(self, problem: GLMProblem, draws: int):
        self._x, self._y = problem.X.toarray(), problem.y
        self._regression = Regression(problem.seed)
        self._sure = np.full((len(self._x), 2), np.inf)
        self.oracle = Oracle(problem, draws)

    def scalar(self, m: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return alpha and beta, (n, 2), for the label 1."""
        regression, scale = self._regression, np.column_stack([np.sqrt(1.0 + v), 1.0 + v])
        inputs = np.column_stack([m / scale[:, 0], np.log1p(v)])
        features = regression.features(inputs)
        moved = np.flatnonzero((np.abs(inputs - self._sure) > MOVED * WIDTHS).any(axis=1))
        self._sure[moved] = inputs[moved]
        seen = features[moved]
        variance = np.einsum("nf,nf->n", seen @ regression.cov, seen)
        asked: dict[int, np.ndarray] = {}
        while variance.max(initial=0.0) > GATE**2:
            at = int(variance.argmax())
            row = int(moved[at])
            answer = scale[row] * self.oracle(float(m[row]), float(v[row]))
            asked[row] = answer
            if np.isfinite(answer).all():
                variance -= (seen @ regression.learn(seen[at], answer)) ** 2
            variance[at] = 0.0
        outgoing = features @ regression.weights
        for row, answer in asked.items():
            outgoing[row] = answer
        return outgoing / scale

    def __call__(self, mu: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, v = (self._x * mu).sum(axis=1), (self._x**2 * s).sum(axis=1)
        alpha, beta = self.scalar(self._y * m, v).T
        return self._x * (self._y * alpha)[:, None], self._x**2 * beta[:, None]
