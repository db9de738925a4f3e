"""Expected conditional moments of CEP, to first and second order, for one block of lanes.

Given z, f = z'u has cavity mean z'm and variance z'Sz. With the tilted moments (logz, alpha, beta) there, the
conditional mean of u is m + S z alpha and its conditional covariance S - S z z' S beta. CEP needs their expectations
over z, which are written as a mean m + S g and a covariance S - S A S.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, call_tilted
from tensorcep.kernels.lanes import add_outer, symmetric_times_vector, trace_product
from tensorcep.kernels.slots import LANES, axpy, dot, scale, subtract

# Second-order CEP differentiates the tilted moments on a 3 x 3 stencil. A step of 1e-3 of the scale on which they vary
# balances truncation (1e-6) against rounding (1e-10).
STENCIL = 1e-3


class Slots(NamedTuple):
    """Where things lie in the work array of one thread (slots of one lane array; see `layout`)."""

    S: int  # K + 1 packed covariances (the last for a cavity beside posterior moments)
    m: int  # K + 1 means
    vt: int  # K + 1 inverse Cholesky factors
    G: int  # K second moments
    z: int
    Z2: int
    T: int  # proposed message
    eta: int
    g: int
    A: int
    a: int  # packed work
    t: int  # vector work
    inv_diag: int
    full: int  # square work
    v: int
    Y: int
    Yt: int
    Om: int
    Sz: int
    Om_m: int
    Om_Sz: int
    grad_alpha: int
    grad_beta: int
    y: int
    theta: int
    ok: int
    site_ok: int
    zero: int
    one: int
    f_mean: int
    f_var: int
    logz: int
    alpha: int
    beta: int
    spread: int
    scalar: int  # 20 slots: stencil steps, points and values (0:6), contractions (6:10), derivatives (10:20)
    offset: int  # mean of the sum c of the columns that are clamped in the mode being updated (0 without such)
    square: int  # E[c^2]
    product: int
    cross: int  # E[z c]
    size: int


def layout(K: int, R: int) -> Slots:
    """Slots of the work array for order K and rank R."""
    P, Q = R * (R + 1) // 2, R * R
    S = 0
    m = S + (K + 1) * P
    vt = m + (K + 1) * R
    G = vt + (K + 1) * Q
    z = G + K * P
    Z2 = z + R
    T = Z2 + P
    eta = T + P
    g = eta + R
    A = g + R
    a = A + P
    t = a + P
    inv_diag = t + R
    full = inv_diag + R
    v = full + Q
    Y = v + P
    Yt = Y + Q
    Om = Yt + Q
    x = Om + P
    y = x + 5 * R
    return Slots(
        S, m, vt, G, z, Z2, T, eta, g, A, a, t, inv_diag, full, v, Y, Yt, Om, x, x + R, x + 2 * R, x + 3 * R, x + 4 * R,
        y, y + 1, y + 2, y + 3, y + 4, y + 5, y + 6, y + 7, y + 8, y + 9, y + 10, y + 11, y + 12,
        y + 32, y + 33, y + 34, y + 35, y + 35 + R,
    )  # fmt: skip


@block_kernel
def _spread(positive, w, at):
    """Slot spread: the share of cov(z alpha), the variance of the conditional mean, that an update counts.

    In full it gives the covariance of the expected conditional second moment, but for an observation far from its
    prediction (alpha^2 > beta) a negative message precision, and a sum of many of those outweighs any prior. Under the
    model E[alpha^2] = beta, so the share min(1, beta / alpha^2) keeps every message of a log-concave likelihood
    positive while changing only the updates of such observations.
    """
    for lane in range(LANES):
        square = w[at.alpha, lane] ** 2
        w[at.spread, lane] = max(0.0, w[at.beta, lane]) / square if positive and square > w[at.beta, lane] else 1.0


@block_kernel
def first_order(tilted, positive, w, at, S, m, R):
    """g = alpha z and A = beta Z2 - alpha^2 (Z2 - z z') at (z'm, tr(Z2 S)) (CEP eq. 10, supplement 8.1.2).

    ``positive`` limits the second term (`_spread`).
    """
    dot(w, at.f_mean, w, at.z, w, m, R, w, 0)
    axpy(w, at.f_mean, w, at.f_mean, w, at.offset, 1, w, at.one)
    trace_product(w, at.Z2, S, at.f_var, R)
    call_tilted(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    _spread(positive, w, at)
    for lane in range(LANES):
        w[at.spread, lane] *= w[at.alpha, lane] ** 2
        w[at.beta, lane] -= w[at.spread, lane]
    scale(w, at.g, w, at.z, w, 0, R, w, at.alpha)
    scale(w, at.t, w, at.z, w, 0, R, w, at.spread)
    scale(w, at.A, w, at.Z2, w, 0, R * (R + 1) // 2, w, at.beta)
    add_outer(w, at.A, at.t, at.z, at.A, R)


@block_kernel
def _differentiate(tilted, w, at):
    """Derivatives of alpha (scalar[10:15]) and beta (scalar[15:20]) by m, v, mm, mv, vv: central differences."""
    s = w[at.scalar : at.scalar + 20]
    h_m, h_v, at_m, at_v, alpha_at, beta_at = s[0], s[1], s[2], s[3], s[4], s[5]
    f_mean, f_var, alpha, beta = w[at.f_mean], w[at.f_var], w[at.alpha], w[at.beta]
    for lane in range(LANES):
        size = min(1.0 + f_var[lane], 1.0 / max(abs(beta[lane]), 1e-12))
        h_m[lane] = STENCIL * np.sqrt(size)
        h_v[lane] = min(STENCIL * size, 0.5 * f_var[lane])
    s[10:20] = 0.0
    for i in range(-1, 2):
        for j in range(-1, 2):
            if i == 0 and j == 0:
                continue
            for lane in range(LANES):
                at_m[lane] = f_mean[lane] + i * h_m[lane]
                at_v[lane] = f_var[lane] + j * h_v[lane]
            call_tilted(tilted, w[at.y], at_m, at_v, w[at.theta], w[at.logz], alpha_at, beta_at)
            for which in range(2):
                d = s[10 + 5 * which : 15 + 5 * which]
                for lane in range(LANES):
                    step = beta_at[lane] - beta[lane] if which else alpha_at[lane] - alpha[lane]
                    if j == 0:
                        d[0, lane] += 0.5 * i * step / h_m[lane]
                        d[2, lane] += step / (h_m[lane] * h_m[lane])
                    elif i == 0:
                        d[1, lane] += 0.5 * j * step / h_v[lane]
                        d[4, lane] += step / (h_v[lane] * h_v[lane])
                    else:
                        d[3, lane] += 0.25 * i * j * step / (h_m[lane] * h_v[lane])


@block_kernel
def _contract(d, c, lane):
    """D2 h = h_mm m'Om m + 4 h_mv m'Om S z + 4 h_vv (Sz)'Om(Sz) + 2 h_v tr(Om S); d holds h_*, c the contractions."""
    return (
        d[2, lane] * c[0, lane]
        + 4.0 * (d[3, lane] * c[1, lane] + d[4, lane] * c[2, lane])
        + (2.0 * d[1, lane] * c[3, lane])
    )


@block_kernel
def second_order(tilted, positive, w, at, S, m, R):
    """g = E[z alpha] and A = E[z z' beta] - cov(z alpha) to second order in z about its mean (CEP eq. 11).

    CEP takes the expectation of the conditional first and second moments of u, so the new covariance is that of the
    expected second moment: it holds the variance of the conditional mean, S cov(z alpha) S. With Om = cov(z) = Z2 - zz'
    and D2 h = sum_cd Om_cd d2h / dz_c dz_d (`_contract`), and grad h = h_m m + 2 h_v S z:

        g             = z (alpha + D2 alpha / 2) + Om grad(alpha)
        E[z z' beta]  = z z' (beta + D2 beta / 2) + Om beta + z (Om grad beta)' + (Om grad beta) z'
        cov(z alpha)  = alpha^2 Om + alpha (z (Om grad alpha)' + (Om grad alpha) z') + z z' grad(alpha)' Om grad(alpha)

    The derivatives of alpha and beta in (m, v) are central differences, so any likelihood with tilted moments serves.
    ``positive`` limits cov(z alpha) (`_spread`).
    """
    P = R * (R + 1) // 2
    for r in range(R):
        subtract(w, at.t + r, w, at.zero, w, at.z + r, 1, w, 0)
    add_outer(w, at.Z2, at.t, at.z, at.Om, R)
    symmetric_times_vector(w, S, at.z, at.Sz, R)
    symmetric_times_vector(w, at.Om, m, at.Om_m, R)
    symmetric_times_vector(w, at.Om, at.Sz, at.Om_Sz, R)
    dot(w, at.f_mean, w, at.z, w, m, R, w, 0)
    dot(w, at.f_var, w, at.z, w, at.Sz, R, w, 0)
    dot(w, at.scalar + 6, w, m, w, at.Om_m, R, w, 0)
    dot(w, at.scalar + 7, w, m, w, at.Om_Sz, R, w, 0)
    dot(w, at.scalar + 8, w, at.Sz, w, at.Om_Sz, R, w, 0)
    trace_product(w, at.Om, S, at.scalar + 9, R)
    call_tilted(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    _spread(positive, w, at)
    _differentiate(tilted, w, at)
    c = w[at.scalar + 6 : at.scalar + 10]
    d_alpha, d_beta = w[at.scalar + 10 : at.scalar + 15], w[at.scalar + 15 : at.scalar + 20]
    for lane in range(LANES):
        # the factors of z in g, of z z' in A, of Om in A, of Om grad(alpha) in A, and the derivatives by v doubled
        alpha, share = w[at.alpha, lane], w[at.spread, lane]
        by_m, by_v = d_alpha[0, lane], 2.0 * d_alpha[1, lane]
        along = by_m * by_m * c[0, lane] + 2.0 * by_m * by_v * c[1, lane] + by_v * by_v * c[2, lane]
        w[at.scalar, lane] = alpha + 0.5 * _contract(d_alpha, c, lane)
        w[at.scalar + 1, lane] = w[at.beta, lane] + 0.5 * _contract(d_beta, c, lane) - share * along
        w[at.scalar + 2, lane] = w[at.beta, lane] - share * alpha * alpha
        w[at.scalar + 3, lane] = -share * alpha
        d_alpha[1, lane] *= 2.0
        d_beta[1, lane] *= 2.0
    scale(w, at.grad_alpha, w, at.Om_m, w, 0, R, w, at.scalar + 10)
    axpy(w, at.grad_alpha, w, at.grad_alpha, w, at.Om_Sz, R, w, at.scalar + 11)
    axpy(w, at.g, w, at.grad_alpha, w, at.z, R, w, at.scalar)
    scale(w, at.grad_beta, w, at.Om_m, w, 0, R, w, at.scalar + 15)
    axpy(w, at.grad_beta, w, at.grad_beta, w, at.Om_Sz, R, w, at.scalar + 16)
    axpy(w, at.grad_beta, w, at.grad_beta, w, at.grad_alpha, R, w, at.scalar + 3)
    axpy(w, at.t, w, at.grad_beta, w, at.z, R, w, at.scalar + 1)
    scale(w, at.A, w, at.Om, w, 0, P, w, at.scalar + 2)
    add_outer(w, at.A, at.t, at.z, at.A, R)
    add_outer(w, at.A, at.z, at.grad_beta, at.A, R)
