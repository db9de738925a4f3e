"""Slow plain twin of variational message passing on the CP model: dense matrices, and a bound summed term by term.

The bound is E[log p(everything)] plus the entropies of all factors, from scipy's distributions, and holds for any q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, log_ndtr
from scipy.stats import gamma, multivariate_normal, truncnorm


@dataclass
class Twin:
    """coords (N, K) of packed rows; prior_Lam (n_rows, R, R); noise_prior (a, b), or None for labels -1 and +1."""

    coords: np.ndarray
    y: np.ndarray
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    first: np.ndarray
    noise_prior: tuple[float, float] | None
    start: np.ndarray | None = None

    def __post_init__(self):
        self.prior_mean = np.linalg.solve(self.prior_Lam, self.prior_eta[..., None])[..., 0]
        self.S = np.linalg.inv(self.prior_Lam)
        self.m = (self.prior_mean if self.start is None else self.start).copy()
        self.target = self.y.astype(float).copy()
        self.noise = self.noise_prior or (1.0, 1.0)

    def second(self):
        return self.S + self.m[:, :, None] * self.m[:, None, :]

    def moments(self):
        """E[f] and E[f^2] of every entry."""
        f2 = self.second()[self.coords].prod(axis=1).sum(axis=(1, 2))
        return self.m[self.coords].prod(axis=1).sum(axis=1), f2

    def sweep(self):
        """One sweep in place."""
        K, R = self.coords.shape[1], self.m.shape[1]
        for k in range(K):
            others = self.coords[:, [j for j in range(K) if j != k]]
            z, Z2 = self.m[others].prod(axis=1), self.second()[others].prod(axis=1)
            tau = self.noise[0] / self.noise[1]
            for i in range(self.first[k], self.first[k + 1]):
                mine = self.coords[:, k] == i
                Lam = self.prior_Lam[i] + tau * Z2[mine].sum(axis=0).reshape(R, R)
                self.S[i] = np.linalg.inv(Lam)
                self.m[i] = self.S[i] @ (self.prior_eta[i] + tau * self.target[mine] @ z[mine])
            f, f2 = self.moments()
            if self.noise_prior is not None:
                a, b = self.noise_prior
                self.noise = (a + 0.5 * len(f), b + 0.5 * np.sum(self.y**2 - 2 * self.y * f + f2))
            else:
                self.target = self.y * self.auxiliary().mean()

    def auxiliary(self):
        """q(y t) of every entry: N(y E[f], 1) above 0 (and below 40, since scipy wants a finite end)."""
        centre = self.y * self.moments()[0]
        return truncnorm(-centre, 40.0, loc=centre)

    def bound(self):
        """The evidence lower bound of the present q; for labels with the optimal q(t)."""
        total = 0.0
        for i in range(len(self.m)):
            prior_S = np.linalg.inv(self.prior_Lam[i])
            d = self.m[i] - self.prior_mean[i]
            total += multivariate_normal(np.zeros(len(d)), prior_S).logpdf(d)
            total -= 0.5 * np.trace(self.prior_Lam[i] @ self.S[i])
            total += multivariate_normal(np.zeros(len(d)), self.S[i]).entropy()
        f, f2 = self.moments()
        if self.noise_prior is None:
            t = self.auxiliary()
            squares = t.var() + t.mean() ** 2 - 2 * self.y * t.mean() * f + f2
            return total + np.sum(-0.5 * np.log(2 * np.pi) - 0.5 * squares + t.entropy())
        (a0, b0), (a, b) = self.noise_prior, self.noise
        log_tau, tau = digamma(a) - np.log(b), a / b
        squares = self.y**2 - 2 * self.y * f + f2
        total += np.sum(0.5 * log_tau - 0.5 * np.log(2 * np.pi) - 0.5 * tau * squares)
        # E[log p(tau)]: the log density is linear in tau and log tau
        total += gamma(a0, scale=1 / b0).logpdf(1.0) + (a0 - 1) * log_tau - b0 * (tau - 1.0)
        return total + gamma(a, scale=1 / b).entropy()

    def train_score(self):
        """Mean log Phi(y E[f]) of labels."""
        return log_ndtr(self.y * self.moments()[0]).mean()
