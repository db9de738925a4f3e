"""Slow plain twin of CEP on the CP model: dense R x R matrices, one entry at a time, nothing shared with the package.

Written from the statement of the algorithm (CEP sec. 4.1, eqs 10, 14-18 and supplement 8.1): matrices are inverted, and
a message is the difference of two precisions. Second order differentiates in z by stencils of high order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr


def gaussian(y, m, v, tau):
    """log N(y; m, v + 1/tau), its first and minus its second derivative in m."""
    s = v + 1.0 / tau
    return -0.5 * np.log(2 * np.pi * s) - 0.5 * (y - m) ** 2 / s, (y - m) / s, 1.0 / s


def probit(y, m, v, tau=1.0):
    """log Phi(y m / sqrt(1 + v)) and derivatives, y = -1 or +1."""
    s = np.sqrt(1.0 + v)
    z = y * m / s
    logz = log_ndtr(z)
    r = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - logz)
    return logz, y * r / s, r * (z + r) / s**2


TILTED = {"gaussian": gaussian, "probit": probit}


def limit_site(m, v, tau):
    """Natural parameters of the Gaussian that turns N(f; m, v) into the moments of f given t <= 0, t ~ N(f, 1/tau)."""
    _, alpha, beta = probit(-1.0, m * np.sqrt(tau), v * tau)
    new_m, new_v = m + v * np.sqrt(tau) * alpha, v - v**2 * tau * beta
    return 1.0 / new_v - 1.0 / v, new_m / new_v - m / v


def noise_of_limit(m, v, tau):
    """E[(t - f)^2] given t <= 0, integrated over f."""
    f = m + np.sqrt(v) * np.linspace(-12.0, 12.0, 4001)
    z = -f * np.sqrt(tau)
    log_p = log_ndtr(z)
    weight = np.exp(log_p - 0.5 * (f - m) ** 2 / v)
    square = (np.exp(log_p) - z * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)) / tau
    return np.sum(square * np.exp(-0.5 * (f - m) ** 2 / v)) / np.sum(weight)


@dataclass
class Twin:
    """Everything that a run holds: entries, prior, messages, rows and the noise.

    coords (N, K) of packed rows; prior_Lam (n_rows, R, R), prior_eta (n_rows, R); noise_prior (a, b) or None.
    """

    coords: np.ndarray
    y: np.ndarray
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    first: np.ndarray
    likelihood: str = "gaussian"
    noise_prior: tuple[float, float] | None = (1e-3, 1e-3)
    start: np.ndarray | None = None
    message_precision: float = 0.0
    message_noise: tuple[float, float] | None = None
    msg_Lam: np.ndarray = field(init=False)
    msg_eta: np.ndarray = field(init=False)
    skipped: int = 0

    def __post_init__(self):
        (N, K), R = self.coords.shape, self.prior_eta.shape[1]
        self.msg_Lam = np.zeros((N, K, R, R)) + self.message_precision * np.eye(R)
        self.msg_eta = np.zeros((N, K, R))
        a, b = self.message_noise or (0.5, 0.5 * np.mean(self.y**2))
        self.a, self.b = np.full(N, a), np.full(N, b)
        self.total()
        if self.start is not None:
            self.eta = np.einsum("nij,nj->ni", self.Lam, self.start)

    def total(self, modes=None):
        """Rows = prior + messages, for all modes or those given."""
        if modes is None:
            self.Lam, self.eta = self.prior_Lam.copy(), self.prior_eta.copy()
            modes = range(self.coords.shape[1])
        for k in modes:
            rows = slice(self.first[k], self.first[k + 1])
            self.Lam[rows], self.eta[rows] = self.prior_Lam[rows], self.prior_eta[rows]
            np.add.at(self.Lam, self.coords[:, k], self.msg_Lam[:, k])
            np.add.at(self.eta, self.coords[:, k], self.msg_eta[:, k])

    def noise(self):
        """(a, b) of the noise posterior."""
        return self.noise_prior[0] + self.a.sum(), self.noise_prior[1] + self.b.sum()

    def means(self):
        return np.linalg.solve(self.Lam, self.eta[..., None])[..., 0]

    def latent(self):
        """Posterior mean of f at every entry."""
        return self.means()[self.coords].prod(axis=1).sum(axis=1)


def cavity(twin, n, k):
    """Covariance and mean of row k of entry n without the entry's own message; None when it is not a Gaussian."""
    row = twin.coords[n, k]
    Lam, eta = twin.Lam[row] - twin.msg_Lam[n, k], twin.eta[row] - twin.msg_eta[n, k]
    if np.linalg.eigvalsh(Lam)[0] <= 0:
        return None
    S = np.linalg.inv(Lam)
    return S, S @ eta


def posterior(twin, n, k):
    S = np.linalg.inv(twin.Lam[twin.coords[n, k]])
    return S, S @ twin.eta[twin.coords[n, k]]


def counted_share(alpha, beta, positive):
    """The share of the variance of the conditional mean that counts: at most beta / alpha^2 to keep A positive."""
    return max(beta, 0.0) / alpha**2 if positive and alpha**2 > beta else 1.0


def first_order(tilted, y, theta, z, Z2, S, m, positive=False):
    """g and A for the expected conditional moments m + S g and S - S A S."""
    _, alpha, beta = tilted(y, z @ m, np.sum(Z2 * S), theta)
    counted = counted_share(alpha, beta, positive) * alpha**2
    return alpha * z, beta * Z2 - counted * (Z2 - np.outer(z, z))


# Central differences of 8th order: weights of f(x + j h), j = -4..4, for the first and the second derivative.
FIRST = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
SECOND = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])


def hessian_trace(function, z, Om, h=0.01):
    """sum_cd Om_cd d2 function / dz_c dz_d at z, along the eigenvectors of Om; function may return an array."""
    values, vectors = np.linalg.eigh(Om)
    total = 0.0
    for value, x in zip(values, vectors.T, strict=True):
        points = [function(z + j * h * x) for j in range(-4, 5)]
        total = total + value * sum(w * p for w, p in zip(SECOND, points, strict=True)) / h**2
    return total


def jacobian(function, z, h=0.01):
    """d function_i / dz_j at z."""
    columns = []
    for x in np.eye(len(z)):
        points = [function(z + j * h * x) for j in range(-4, 5)]
        columns.append(sum(w * p for w, p in zip(FIRST, points, strict=True)) / h)
    return np.stack(columns, axis=1)


def second_order(tilted, y, theta, z, Z2, S, m, positive=False):
    """E[z alpha] and E[z z' beta] - cov(z alpha) to second order in z about its mean, by differences of the functions.

    The new covariance is that of the expected conditional second moment, hence the second term.
    """
    Om = Z2 - np.outer(z, z)

    def g(x):
        return x * tilted(y, x @ m, x @ S @ x, theta)[1]

    def a(x):
        return np.outer(x, x) * tilted(y, x @ m, x @ S @ x, theta)[2]

    J = jacobian(g, z)
    _, alpha, beta = tilted(y, z @ m, z @ S @ z, theta)
    spread = counted_share(alpha, beta, positive) * (J @ Om @ J.T)
    return g(z) + 0.5 * hessian_trace(g, z, Om), a(z) + 0.5 * hessian_trace(a, z, Om) - spread


def proposed(twin, n, k, theta, others, own, order, positive):
    """New message (Lam, eta) of entry n to its row of mode k; None where the new covariance is no covariance.

    ``others[l]`` and ``own`` are (S, m).
    """
    z = np.prod([m for j, (S, m) in enumerate(others) if j != k], axis=0)
    Z2 = np.prod([S + np.outer(m, m) for j, (S, m) in enumerate(others) if j != k], axis=0)
    if twin.likelihood == "tobit" and twin.y[n] <= 0:
        site_Lam, site_eta = limit_site(*moments_of_f(others), theta)
        return site_Lam * Z2, site_eta * z
    if twin.noise_prior is not None and order == 1:
        return theta * Z2, theta * twin.y[n] * z
    S, m = own
    rule = first_order if order == 1 else second_order
    g, A = rule(TILTED[twin.likelihood], twin.y[n], theta, z, Z2, S, m, positive)
    new_S, new_m = S - S @ A @ S, m + S @ g
    if np.linalg.eigvalsh(new_S)[0] <= 0:
        return None
    new_Lam, cavity_Lam = np.linalg.inv(new_S), np.linalg.inv(S)
    return new_Lam - cavity_Lam, new_Lam @ new_m - cavity_Lam @ m


def moments_of_f(others):
    """Mean and variance of f with all second moments."""
    f = np.prod([m for S, m in others], axis=0).sum()
    return f, np.prod([S + np.outer(m, m) for S, m in others], axis=0).sum() - f * f


def residual(twin, n, others, theta, tilted):
    """E[(y - f)^2] with all second moments; if tilted, or with a limit, under the law that y makes of f."""
    f, v = moments_of_f(others)
    f2 = v + f * f
    if twin.likelihood == "tobit" and twin.y[n] <= 0:
        return noise_of_limit(f, v, theta)
    if tilted or twin.likelihood == "tobit":
        new_v = 1.0 / (1.0 / v + theta)
        return (twin.y[n] - new_v * (f / v + theta * twin.y[n])) ** 2 + new_v
    return twin.y[n] ** 2 - 2 * twin.y[n] * f + f2


def sweep(
    twin, schedule="modewise", moments="cavity", order=1, damping=0.0, positive=True, power=1.0, noise_moments="tilted"
):
    """One sweep in place; `twin.skipped` counts the updates left out. The noise is updated with the last mode.

    New messages count `power` times. A Gaussian message of first order does not depend on its own mode, whose moments
    are then not needed.
    """
    K = twin.coords.shape[1]
    step = 1.0 - damping
    for modes in [range(K)] if schedule == "parallel" else [[k] for k in range(K)]:
        old_Lam, old_eta = twin.msg_Lam.copy(), twin.msg_eta.copy()
        a, b = twin.a.copy(), twin.b.copy()
        noise = twin.noise() if twin.noise_prior is not None else None
        for n in range(len(twin.y)):
            cavities = [cavity(twin, n, k) for k in range(K)]
            others = [posterior(twin, n, k) for k in range(K)] if moments == "posterior" else cavities
            whole = K - 1 in modes or order == 2 or noise is None or twin.likelihood == "tobit"
            needed = others if whole else [*others[: modes[0]], *others[modes[0] + 1 :]]
            if any(item is None for item in needed):
                twin.skipped += len(modes)
                continue
            theta = 1.0
            if noise is not None:
                theta = noise[0] / noise[1]
                if moments == "cavity":
                    theta = (noise[0] - twin.a[n]) / (noise[1] - twin.b[n])
                if K - 1 in modes:
                    a[n] += step * (0.5 - a[n])
                    tilted = moments == "cavity" and noise_moments == "tilted"
                    b[n] += step * (0.5 * residual(twin, n, others, theta, tilted) - b[n])
            for k in modes:
                new = (
                    proposed(twin, n, k, theta, others, cavities[k], order, positive)
                    if cavities[k] is not None
                    else None
                )
                if new is None:
                    twin.skipped += 1
                    continue
                old_Lam[n, k] += step * (power * new[0] - old_Lam[n, k])
                old_eta[n, k] += step * (power * new[1] - old_eta[n, k])
        twin.msg_Lam, twin.msg_eta, twin.a, twin.b = old_Lam, old_eta, a, b
        twin.total(modes)
