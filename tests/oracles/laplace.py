"""Slow plain twin of Laplace propagation on the CP model: dense matrices, one entry at a time, Newton for the mode.

Written from the statement of the algorithm: the mode of the K rows of an entry under cavities x likelihood is found by
Newton's method on all K R numbers with the full Hessian, halved until the density rises.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, log_expit, log_ndtr


def gaussian(y, f, tau):
    """log N(y; f, 1/tau) and its first two derivatives in f."""
    return 0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * (y - f) ** 2, tau * (y - f), -tau


def probit(y, f, tau):
    log_p = log_ndtr(y * f)
    r = np.exp(-0.5 * f * f - 0.5 * np.log(2 * np.pi) - log_p)
    return log_p, y * r, -r * (y * f + r)


def logit(y, f, tau):
    return log_expit(y * f), y * expit(-y * f), -expit(f) * expit(-f)


def poisson(y, f, tau):
    return y * f - np.exp(f), y - np.exp(f), -np.exp(f)


LOGLIK = {"gaussian": gaussian, "probit": probit, "logit": logit, "poisson": poisson}


@dataclass
class Twin:
    """Everything that a run holds: entries, prior, messages, rows and the noise.

    coords (N, K) of packed rows; prior_Lam (n_rows, R, R), prior_eta (n_rows, R); noise_prior (a, b) or None.
    """

    coords: np.ndarray
    y: np.ndarray
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    likelihood: str
    noise_prior: tuple[float, float] | None
    start: np.ndarray
    msg_Lam: np.ndarray = field(init=False)
    msg_eta: np.ndarray = field(init=False)

    def __post_init__(self):
        (N, K), R = self.coords.shape, self.prior_eta.shape[1]
        self.msg_Lam, self.msg_eta = np.zeros((N, K, R, R)), np.zeros((N, K, R))
        self.a, self.b = np.full(N, 0.5), np.full(N, 0.5 * np.mean(self.y**2))
        self.Lam = self.prior_Lam.copy()
        self.eta = np.einsum("nij,nj->ni", self.Lam, self.start)

    def noise(self):
        return self.noise_prior[0] + self.a.sum(), self.noise_prior[1] + self.b.sum()

    def total(self, modes):
        """Rows of these modes = prior + messages."""
        for k in modes:
            rows = np.unique(self.coords[:, k])
            self.Lam[rows], self.eta[rows] = self.prior_Lam[rows], self.prior_eta[rows]
            np.add.at(self.Lam, self.coords[:, k], self.msg_Lam[:, k])
            np.add.at(self.eta, self.coords[:, k], self.msg_eta[:, k])


def gradients(u):
    """Of the latent value in every row: the product of the others, (K, R)."""
    return np.stack([np.delete(u, k, axis=0).prod(axis=0) for k in range(len(u))])


def joint_mode(loglik, y, theta, precision, mean, u):
    """The mode of the rows u (K, R) under N(mean_k, precision_k^-1) x likelihood, by damped Newton steps."""
    K, R = u.shape

    def density(u):
        d = u - mean
        return loglik(y, u.prod(axis=0).sum(), theta)[0] - 0.5 * np.einsum("ki,kij,kj", d, precision, d)

    for _ in range(100):
        z, (_, slope, curvature) = gradients(u), loglik(y, u.prod(axis=0).sum(), theta)
        gradient = slope * z - np.einsum("kij,kj->ki", precision, u - mean)
        hessian = curvature * np.einsum("ki,lj->kilj", z, z)
        for k in range(K):
            hessian[k, :, k, :] -= precision[k]
            for j in set(range(K)) - {k}:
                both = np.delete(u, [k, j], axis=0).prod(axis=0)  # d z_k / d u_j
                hessian[k, :, j, :] += slope * np.diag(both)
        hessian = hessian.reshape(K * R, K * R)
        lift = max(0.0, 1e-6 + np.linalg.eigvalsh(hessian)[-1])  # uphill also where the density is not concave
        move = np.linalg.solve(lift * np.eye(K * R) - hessian, gradient.ravel()).reshape(K, R)
        length, least = 1.0, density(u) - 1e-12 * (1.0 + abs(density(u)))
        with np.errstate(over="ignore"):  # the density of a step that is too long may be 0
            while density(u + length * move) < least:
                length *= 0.5
        u = u + length * move
        if np.abs(move).max() < 1e-10:  # Newton's next one would be of the order of its square
            break
    return u


def proposed(twin, n, theta, curvature):
    """New messages (Lam, eta) to all modes of entry n, and the expected squared error."""
    rows, loglik = twin.coords[n], LOGLIK[twin.likelihood]
    precision = twin.Lam[rows] - twin.msg_Lam[n]
    S = np.linalg.inv(precision)
    mean = np.einsum("kij,kj->ki", S, twin.eta[rows] - twin.msg_eta[n])
    start = np.linalg.solve(twin.Lam[rows], twin.eta[rows][..., None])[..., 0]
    u = joint_mode(loglik, twin.y[n], theta, precision, mean, start)
    f, z = u.prod(axis=0).sum(), gradients(u)
    second = loglik(twin.y[n], f, theta)[2]
    v = np.einsum("ki,kij,kj->k", z, S, z)
    Lam, eta = [], []
    for k in range(len(u)):
        h = -second
        if curvature == "marginal":  # block k of the inverse of the joint curvature, less the cavity
            joint = -second * np.einsum("ki,lj->kilj", z, z)
            for j in range(len(u)):
                joint[j, :, j, :] += precision[j]
            R = u.shape[1]
            cov = np.linalg.inv(joint.reshape(u.size, u.size))[k * R : (k + 1) * R, k * R : (k + 1) * R]
            Lam.append(np.linalg.inv(cov) - precision[k])
        else:
            Lam.append(h * np.outer(z[k], z[k]))
        # the mean of the row stays at its mode
        eta.append((precision[k] + Lam[k]) @ u[k] - precision[k] @ mean[k])
    spread = v.sum() / (1 - second * v.sum()) if curvature == "marginal" else (v / (1 - second * v)).sum()
    return np.array(Lam), np.array(eta), (twin.y[n] - f) ** 2 + spread


def sweep(twin, schedule="modewise", curvature="conditional", damping=0.0, power=1.0):
    """One sweep in place. The noise is updated with the last mode; new messages count `power` times."""
    K, step = twin.coords.shape[1], 1.0 - damping
    for modes in [range(K)] if schedule == "parallel" else [[k] for k in range(K)]:
        new_Lam, new_eta, new_a, new_b = (x.copy() for x in (twin.msg_Lam, twin.msg_eta, twin.a, twin.b))
        noise = twin.noise() if twin.noise_prior is not None else None
        for n in range(len(twin.y)):
            theta = 1.0 if noise is None else (noise[0] - twin.a[n]) / (noise[1] - twin.b[n])
            Lam, eta, error = proposed(twin, n, theta, curvature)
            for k in modes:
                new_Lam[n, k] += step * (power * Lam[k] - new_Lam[n, k])
                new_eta[n, k] += step * (power * eta[k] - new_eta[n, k])
            if K - 1 in modes:
                new_a[n] += step * (0.5 - new_a[n])
                new_b[n] += step * (0.5 * error - new_b[n])
        twin.msg_Lam, twin.msg_eta, twin.a, twin.b = new_Lam, new_eta, new_a, new_b
        twin.total(modes)
