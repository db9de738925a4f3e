"""Expected conditional moments of CEP to second order, for one block of lanes (see `update` for the notation)."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import block_kernel, call_tilted
from tensorcep.cp.cep.update import counted_spread, natural_mean
from tensorcep.kernels.lanes import add_outer, site_precision, symmetric_times_vector, trace_product
from tensorcep.kernels.slots import LANES, axpy, dot, scale, subtract

# The tilted moments are differentiated on a 3 x 3 stencil. A step of 1e-3 of the scale on which they vary balances
# truncation (1e-6) against rounding (1e-10).
STENCIL = 1e-3


@block_kernel
def _differentiate(tilted, w, at):
    """Derivatives of alpha (d_alpha) and beta (d_beta) by m, v, mm, mv, vv: central differences."""
    h_m, h_v, at_m, at_v, alpha_at, beta_at = (
        w[at.h_m], w[at.h_v], w[at.at_m], w[at.at_v], w[at.alpha_at], w[at.beta_at],
    )  # fmt: skip
    f_mean, f_var, alpha, beta = w[at.f_mean], w[at.f_var], w[at.alpha], w[at.beta]
    for lane in range(LANES):
        size = min(1.0 + f_var[lane], 1.0 / max(abs(beta[lane]), 1e-12))
        h_m[lane] = STENCIL * np.sqrt(size)
        h_v[lane] = min(STENCIL * size, 0.5 * f_var[lane])
    w[at.d_alpha : at.d_alpha + 5] = 0.0
    w[at.d_beta : at.d_beta + 5] = 0.0
    for i in range(-1, 2):
        for j in range(-1, 2):
            if i == 0 and j == 0:
                continue
            for lane in range(LANES):
                at_m[lane] = f_mean[lane] + i * h_m[lane]
                at_v[lane] = f_var[lane] + j * h_v[lane]
            call_tilted(tilted, w[at.y], at_m, at_v, w[at.theta], w[at.logz], alpha_at, beta_at)
            for which in range(2):
                d = w[at.d_beta : at.d_beta + 5] if which else w[at.d_alpha : at.d_alpha + 5]
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
def _contract(d, w, at, lane):
    """D2 h = h_mm m'Om m + 4 h_mv m'Om S z + 4 h_vv (Sz)'Om(Sz) + 2 h_v tr(Om S); d holds h_*."""
    return (
        d[2, lane] * w[at.m_Om_m, lane]
        + 4.0 * (d[3, lane] * w[at.m_Om_Sz, lane] + d[4, lane] * w[at.Sz_Om_Sz, lane])
        + (2.0 * d[1, lane] * w[at.trace_Om_S, lane])
    )


@block_kernel
def _products_with_spread(S, m, R, w, at):
    """Om = cov(z), Om m, Om S z and their contractions, with the mean and variance of f.

    With clamped columns it is (z, c) that varies and (m, 1) that it meets: Om m and m'Om m then count cov(z, c) and
    var(c) too. S has nothing for c.
    """
    for r in range(R):
        subtract(w, at.t + r, at.zero, at.z + r, 1)
    add_outer(w, at.Z2, at.t, at.z, at.Om, R)
    symmetric_times_vector(w, S, at.z, at.Sz, R)
    symmetric_times_vector(w, at.Om, m, at.Om_m, R)
    symmetric_times_vector(w, at.Om, at.Sz, at.Om_Sz, R)
    dot(w, at.f_mean, at.z, m, R)
    dot(w, at.f_var, at.z, at.Sz, R)
    scale(w, at.t, at.z, R, at.offset)
    subtract(w, at.t, at.cross, at.t, R)  # cov(z, c)
    axpy(w, at.Om_m, at.Om_m, at.t, R, at.one)
    dot(w, at.m_Om_m, m, at.Om_m, R)
    dot(w, at.product, m, at.t, R)
    for lane in range(LANES):
        w[at.m_Om_m, lane] += w[at.product, lane] + w[at.square, lane] - w[at.offset, lane] ** 2
        w[at.f_mean, lane] += w[at.offset, lane] + w[at.known, lane]
    dot(w, at.m_Om_Sz, at.Sz, at.Om_m, R)
    dot(w, at.Sz_Om_Sz, at.Sz, at.Om_Sz, R)
    trace_product(w, at.Om, S, at.trace_Om_S, R)


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
    ``positive`` limits cov(z alpha) (`update.counted_spread`).
    """
    _products_with_spread(S, m, R, w, at)
    call_tilted(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    counted_spread(positive, w, at)
    _differentiate(tilted, w, at)
    d_alpha, d_beta = w[at.d_alpha : at.d_alpha + 5], w[at.d_beta : at.d_beta + 5]
    for lane in range(LANES):
        # the factors of z in g, of z z' in A, of Om in A, of Om grad(alpha) in A, and the derivatives by v doubled
        alpha, share = w[at.alpha, lane], w[at.spread, lane]
        by_m, by_v = d_alpha[0, lane], 2.0 * d_alpha[1, lane]
        along = by_m * by_m * w[at.m_Om_m, lane] + 2.0 * by_m * by_v * w[at.m_Om_Sz, lane]
        along += by_v * by_v * w[at.Sz_Om_Sz, lane]
        w[at.by_z, lane] = alpha + 0.5 * _contract(d_alpha, w, at, lane)
        w[at.by_zz, lane] = w[at.beta, lane] + 0.5 * _contract(d_beta, w, at, lane) - share * along
        w[at.by_Om, lane] = w[at.beta, lane] - share * alpha * alpha
        w[at.by_grad, lane] = -share * alpha
        d_alpha[1, lane] *= 2.0
        d_beta[1, lane] *= 2.0
    scale(w, at.grad_alpha, at.Om_m, R, at.d_alpha)
    axpy(w, at.grad_alpha, at.grad_alpha, at.Om_Sz, R, at.d_alpha + 1)
    axpy(w, at.g, at.grad_alpha, at.z, R, at.by_z)
    scale(w, at.grad_beta, at.Om_m, R, at.d_beta)
    axpy(w, at.grad_beta, at.grad_beta, at.Om_Sz, R, at.d_beta + 1)
    axpy(w, at.grad_beta, at.grad_beta, at.grad_alpha, R, at.by_grad)
    axpy(w, at.t, at.grad_beta, at.z, R, at.by_zz)
    scale(w, at.A, at.Om, R * (R + 1) // 2, at.by_Om)
    add_outer(w, at.A, at.t, at.z, at.A, R)
    add_outer(w, at.A, at.z, at.grad_beta, at.A, R)


@block_kernel
def second_order_message(tilted, positive, S, m, vt, R, w, at):
    """The message to the row of the cavity S and m, to second order: S = V'V, vt as `invert_triangle`.

    It turns the cavity into the mean m + S g and covariance S - S A S. Since the cavity has Lam m = eta, the message is
    T = A (I - S A)^-1 and eta = g + T (m + S g).
    """
    second_order(tilted, positive, w, at, S, m, R)
    site_precision(w, at.A, vt, at.full, at.v, at.Y, at.Yt, at.a, at.inv_diag, at.one, at.site_ok, at.T, R)
    symmetric_times_vector(w, S, at.g, at.t, R)
    axpy(w, at.t, at.t, m, R, at.one)
    natural_mean(R, w, at)
