"""Slow plain twin of mean-field inference with Polya-Gamma variables on the CP model: dense matrices, all columns.

Rows are updated one after the other. The bound is summed term by term: the tangent bound of Jaakkola and Jordan for the
logistic terms, the Gaussians' and the Gammas' divergences from their definitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, expit, gammaln
from scipy.stats import gamma


@dataclass
class Twin:
    """coords (N, K) of packed rows; prior_Lam (n_rows, R, R); y are labels -1 and +1, or counts.

    For counts `prior` (a, b) is that of the dispersions, and `group` (N,) tells which of them an entry has.
    """

    coords: np.ndarray
    y: np.ndarray
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    first: np.ndarray
    start: np.ndarray
    prior: tuple[float, float] | None = None
    group: np.ndarray | None = None
    rounds: int = 10

    def __post_init__(self):
        self.S, self.m = np.linalg.inv(self.prior_Lam), self.start.copy()
        if self.prior is not None:
            size = int(self.group.max()) + 1
            self.a, self.b = np.full(size, self.prior[0]), np.full(size, self.prior[0])  # r = 1

    def moments(self):
        """E[f] and E[f^2] of every entry."""
        second = self.S + self.m[:, :, None] * self.m[:, None, :]
        f2 = second[self.coords].prod(axis=1).sum(axis=(1, 2))
        return self.m[self.coords].prod(axis=1).sum(axis=1), f2

    def form(self):
        """kappa and the number of trials of every entry."""
        if self.prior is None:
            return 0.5 * self.y, np.ones(len(self.y))
        r = (self.a / self.b)[self.group]
        return 0.5 * (self.y - r), self.y + r

    def sweep(self):
        """One sweep in place."""
        K, R = self.coords.shape[1], self.m.shape[1]
        kappa, trials = self.form()
        for k in range(K):
            xi = np.sqrt(self.moments()[1])
            omega = trials * np.tanh(0.5 * xi) / (2.0 * xi)
            others = self.coords[:, [j for j in range(K) if j != k]]
            second = self.S + self.m[:, :, None] * self.m[:, None, :]
            z, Z2 = self.m[others].prod(axis=1), second[others].prod(axis=1)
            for i in range(self.first[k], self.first[k + 1]):
                mine = self.coords[:, k] == i
                Lam = self.prior_Lam[i] + np.einsum("n,nij->ij", omega[mine], Z2[mine]).reshape(R, R)
                self.S[i] = np.linalg.inv(Lam)
                self.m[i] = self.S[i] @ (self.prior_eta[i] + kappa[mine] @ z[mine])
        if self.prior is not None:
            self.update_dispersion()

    def update_dispersion(self):
        f, f2 = self.moments()
        for g in range(len(self.a)):
            mine = self.group == g
            self.b[g] = self.prior[1] + np.sum(0.5 * f[mine] + np.log(2.0 * np.cosh(0.5 * np.sqrt(f2[mine]))))
            for _ in range(self.rounds):
                r = np.exp(digamma(self.a[g])) / self.b[g]
                tables = sum(r / (r + n) for y in self.y[mine] for n in range(int(y)))
                self.a[g] = self.prior[0] + tables

    def bound(self):
        """The evidence lower bound of the present q."""
        f, f2 = self.moments()
        xi, (kappa, trials) = np.sqrt(f2), self.form()
        total = np.sum(kappa * f + trials * (np.log(expit(xi)) - 0.5 * xi))
        prior_mean = np.linalg.solve(self.prior_Lam, self.prior_eta[..., None])[..., 0]
        for i in range(len(self.m)):
            d, Lam = self.m[i] - prior_mean[i], self.prior_Lam[i]
            total -= 0.5 * (np.trace(Lam @ self.S[i]) + d @ Lam @ d - len(d) - np.linalg.slogdet(Lam @ self.S[i])[1])
        if self.prior is not None:
            r = (np.exp(digamma(self.a)) / self.b)[self.group]
            total += np.sum(gammaln(self.y + r) - gammaln(r) - gammaln(self.y + 1.0))
            (a0, b0), log_r = self.prior, digamma(self.a) - np.log(self.b)
            for a, b, mean_log in zip(self.a, self.b, log_r, strict=True):
                total += gamma(a0, scale=1 / b0).logpdf(1.0) + (a0 - 1) * mean_log - b0 * (a / b - 1.0)
                total += gamma(a, scale=1 / b).entropy()
        return total
