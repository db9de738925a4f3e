"""Slow plain twin of variational message passing on the CP model: dense matrices, and a bound summed term by term.

The bound is E[log p(everything)] plus the entropies of all factors, from scipy's distributions, and holds for any q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, log_ndtr, multigammaln
from scipy.stats import gamma, multivariate_normal, truncnorm, wishart


@dataclass
class Twin:
    """coords (N, K) of packed rows; prior_Lam (n_rows, R, R); noise_prior (a, b), or None for labels -1 and +1.

    `learned` is the prior of the rows' prior, for rows that all have entries: ("learned", centre, rows, df, width) for
    mu, Lam ~ N(centre, (rows Lam)^-1) W(df, ((df / R) width^2 I)^-1), or ("ard", centre, shape, rate, width) for
    Lam = diag(alpha) / width^2 with alpha ~ Gamma(shape, rate) shared by the modes.
    """

    coords: np.ndarray
    y: np.ndarray
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    first: np.ndarray
    noise_prior: tuple[float, float] | None
    start: np.ndarray | None = None
    learned: tuple | None = None

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
        if self.learned is not None:
            self.learn()
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

    def modes(self):
        return [np.arange(a, b) for a, b in zip(self.first[:-1], self.first[1:], strict=True)]

    def learn(self):
        """The optimal q of the rows' prior, and its expectations for the rows."""
        kind, centre, before, shape, width = self.learned
        if kind not in ("learned", "ard"):
            raise NotImplementedError(f"write the prior {kind!r} into `learn` and `learned_terms` of this twin")
        R, self.found = self.m.shape[1], []
        if kind == "ard":
            away = (self.m - centre) ** 2 + np.einsum("nrr->nr", self.S)
            a, b = before + 0.5 * len(self.m), shape + 0.5 * away.sum(axis=0) / width**2
            self.found = [(a, b[r]) for r in range(R)]
            self.prior_Lam = np.tile(np.diag(a / b) / width**2, (len(self.m), 1, 1))
            self.prior_mean = np.full_like(self.m, centre)
        for i in self.modes() if kind == "learned" else []:
            n, average, start = len(i), self.m[i].mean(axis=0), np.full(R, centre)
            scatter = shape / R * width**2 * np.eye(R) + self.S[i].sum(axis=0)
            scatter += sum(np.outer(x - average, x - average) for x in self.m[i])
            scatter += before * n / (before + n) * np.outer(average - start, average - start)
            q = ((before * start + n * average) / (before + n), before + n, shape + n, np.linalg.inv(scatter))
            self.found.append(q)
            self.prior_Lam[i], self.prior_mean[i] = q[2] * q[3], q[0]
        self.prior_eta = np.einsum("nij,nj->ni", self.prior_Lam, self.prior_mean)

    def learned_terms(self):
        """E[log p(rows | prior)] + E[log p(prior)] - E[log q(prior)]."""
        kind, centre, before, shape, width = self.learned
        R, total = self.m.shape[1], 0.0
        if kind == "ard":
            for r, (a, b) in enumerate(self.found):
                log_alpha, alpha = digamma(a) - np.log(b), a / b
                squares = ((self.m[:, r] - centre) ** 2 + self.S[:, r, r]) / width**2
                total += np.sum(0.5 * (log_alpha - np.log(2 * np.pi * width**2)) - 0.5 * alpha * squares)
                total += gamma(before, scale=1 / shape).logpdf(1.0) + (before - 1) * log_alpha - shape * (alpha - 1.0)
                total += gamma(a, scale=1 / b).entropy()
            return total
        for i, (mean, rows, df, scale) in zip(self.modes(), self.found, strict=True):
            Lam = df * scale
            log_det = digamma(0.5 * (df - np.arange(R))).sum() + R * np.log(2) + np.linalg.slogdet(scale)[1]
            for x, S in zip(self.m[i], self.S[i], strict=True):
                squares = (x - mean) @ Lam @ (x - mean) + np.trace(Lam @ S) + R / rows
                total += 0.5 * (log_det - R * np.log(2 * np.pi) - squares)
            squares = before * ((mean - centre) @ Lam @ (mean - centre) + R / rows)  # E[log p(mu | Lam)]
            total += 0.5 * (log_det + R * np.log(before / (2 * np.pi)) - squares)
            total -= 0.5 * (log_det + R * np.log(rows / (2 * np.pi)) - R)  # E[log q(mu | Lam)]
            inverse = shape / R * width**2 * np.eye(R)  # E[log p(Lam)], linear in log|Lam| and Lam
            total += 0.5 * (shape - R - 1) * log_det - 0.5 * np.trace(inverse @ Lam)
            total += 0.5 * shape * (np.linalg.slogdet(inverse)[1] - R * np.log(2)) - multigammaln(0.5 * shape, R)
            total += wishart(df, scale).entropy() if R > 1 else gamma(0.5 * df, scale=2 * scale.item()).entropy()
        return total

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
            total += multivariate_normal(np.zeros(len(d)), self.S[i]).entropy()
            if self.learned is None:
                total += multivariate_normal(np.zeros(len(d)), prior_S).logpdf(d)
                total -= 0.5 * np.trace(self.prior_Lam[i] @ self.S[i])
        if self.learned is not None:
            total += self.learned_terms()
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
