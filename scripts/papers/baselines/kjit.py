"""Kernel-based just-in-time EP: a regression learns the tilted moments, importance sampling answers where it is unsure.

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

import numpy as np
from scipy.special import ndtri

from scripts.papers.baselines.sampled_ep import CDF
from tensorcep.linear.problem import GLMProblem

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
        self._cov = np.eye(FEATURES)
        self._weights = np.zeros((FEATURES, 2))

    def features(self, inputs: np.ndarray) -> np.ndarray:
        return np.sqrt(2.0 / FEATURES) * np.cos(inputs @ self._frequency + self._phase)

    def variance(self, features: np.ndarray) -> np.ndarray:
        return np.einsum("nf,nf->n", features @ self._cov, features)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return features @ self._weights

    def learn(self, feature: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Learn one answer; return the vector u by which the covariance fell, u u'."""
        along = self._cov @ feature
        total = NOISE + float(feature @ along)
        self._weights += np.outer(along, target - feature @ self._weights) / total
        fall = along / np.sqrt(total)
        self._cov -= np.outer(fall, fall)
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
        variance = regression.variance(seen)
        asked: dict[int, np.ndarray] = {}
        while variance.max(initial=0.0) > GATE**2:
            at = int(variance.argmax())
            row = int(moved[at])
            answer = scale[row] * self.oracle(float(m[row]), float(v[row]))
            asked[row] = answer
            if np.isfinite(answer).all():
                variance -= (seen @ regression.learn(seen[at], answer)) ** 2
            variance[at] = 0.0
        outgoing = regression.predict(features)
        for row, answer in asked.items():
            outgoing[row] = answer
        return outgoing / scale

    def __call__(self, mu: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, v = (self._x * mu).sum(axis=1), (self._x**2 * s).sum(axis=1)
        alpha, beta = self.scalar(self._y * m, v).T
        return self._x * (self._y * alpha)[:, None], self._x**2 * beta[:, None]
