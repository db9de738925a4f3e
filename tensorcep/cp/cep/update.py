"""CEP's update of an entry (equations 10 to 18), its work array, and the pass over all entries."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import block_kernel, call_at, inlined
from tensorcep.core.executor import Pass
from tensorcep.cp.messages.cavities import (
    PASS_SUMS,
    cavity_moments,
    clear_sums,
    kept_moments,
    load_values,
    offset_mean,
    offset_moments,
    store_message,
    store_noise,
    table_products,
)
from tensorcep.cp.model.columns import Places
from tensorcep.kernels.lanes import (
    add_outer,
    layout,
    scaled_site_precision,
    site_precision,
    symmetric_times_vector,
    trace_product,
)
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, PIVOT_FLOOR, axpy, copy, dot, multiply, scale, subtract

# Names of the slots in which CEP works on one block of lanes, and the rule by which it makes messages.

# Where things lie in the work array of one thread, in this order (see `tensorcep.kernels.lanes`).
Slots = namedtuple(
    "Slots",
    "S m vt "  # K + 1 packed cavity covariances (the last beside posterior moments), means, inverse Cholesky factors
    "G z Z2 "  # K second moments of the modes; moments of z
    "T eta g A "  # the message: precision and natural mean; the new mean is m + S g, the new covariance S - S A S
    "a t inv_diag full v Y Yt product "  # work space of the algebra
    "y theta ok site_ok zero one "  # the entry: value, parameter, whether it counts, whether its message is one
    "f_mean f_var logz alpha beta spread "  # its latent value, and the tilted moments there
    "precision pull error step power "  # the Gaussian observation of f for it, E[(y - f)^2], how messages are stored
    "known "  # what is known of the latent value beside the rows
    "offset square cross "  # E[c], E[c^2], E[z c] of the sum c of the columns that are clamped in the mode
    "Om Sz Om_m Om_Sz grad_alpha grad_beta "  # second order: Om = cov(z), products with it, gradients
    "m_Om_m m_Om_Sz Sz_Om_Sz trace_Om_S "  # its contractions of Om
    "h_m h_v at_m at_v alpha_at beta_at "  # its stencil: steps, points and values there
    "d_alpha d_beta "  # derivatives of alpha and beta by m, v, mm, mv, vv
    "by_z by_zz by_Om by_grad "  # factors of the terms
    "flat "  # work space without lanes
    "size",
)


@functools.cache
def cep_slots(K: int, R: int, C: int = 0) -> Slots:
    """Slots of the work array for order K and rank R, and C columns that are clamped."""
    P, Q = R * (R + 1) // 2, R * R
    sizes = {"S": (K + 1) * P, "m": (K + 1) * R, "vt": (K + 1) * Q, "G": K * P}
    sizes |= dict.fromkeys(("Z2", "T", "A", "a", "v", "Om"), P)
    sizes |= dict.fromkeys(("full", "Y", "Yt"), Q)
    vectors = ("z", "eta", "g", "t", "inv_diag", "cross", "Sz", "Om_m", "Om_Sz", "grad_alpha", "grad_beta")
    flat = -(-(P + R * C + C * (C + 1) // 2 + R + C) // LANES)
    return layout(Slots, **sizes, flat=flat, **dict.fromkeys(vectors, R), d_alpha=5, d_beta=5)


def places_of_modes(K: int, R: int) -> list[Places]:
    """Where every mode's second moments and means lie."""
    at = cep_slots(K, R)
    return [Places(at.G + k * (R * (R + 1) // 2), at.m + k * R, at.one, at.zero) for k in range(K)]


class Rule(NamedTuple):
    """How messages are computed."""

    step: float  # fraction of the way from the old to the new natural parameters
    power: float  # factor of new messages: 1, or more while annealing
    theta: float  # the likelihood's parameter, for likelihoods without a noise posterior
    tilted: int  # address of the likelihood's tilted moments
    gaussian: bool  # Gaussian likelihood: theta is the expected noise precision, which has messages of its own
    # Gaussian likelihood with a limit: some values side y <= 0 say only that side times the noisy value is not above 0;
    # 0 where no value is censored.
    side: float
    from_posterior: bool  # take the other modes' moments from the posterior instead of the cavity
    order: int  # 1 or 2: order of the Taylor approximation
    # Addresses of the first-order message of a likelihood that is not Gaussian, of the second-order one, and of the
    # products with columns that are clamped; 0 where there are none (`method`).
    first: int
    second: int
    clamped: int
    positive: bool  # keep messages positive (see `first_order`)
    tilted_noise: bool  # messages to the noise count y in the moments of f (`squared_errors`)
    cuts: np.ndarray  # (L + 1,) float64: where ordered levels are cut; nothing for other likelihoods


# CEP's update: the message of one entry to the row of one mode, for a block of lanes at once.
#
# The latent value is f = z'u + c: u is the row, z the elementwise product of the other modes' rows and c the sum of the
# columns that are clamped in this mode (0 in the CP model). Without the entry's own message the row is N(m, S), its
# cavity, and z has mean z and second moment Z2. An entry of mean and precision (y, tau) that is Gaussian in f sends a
# message in closed form (`gaussian_message`). Of any other likelihood the conditional moments of u given z are
#
#     mean m + S z alpha,    covariance S - S z z' S beta,    (alpha, beta) tilted moments at f ~ N(z'm + c, z'Sz);
#
# their expectation over z is taken to first or second order and written as a mean m + S g and a covariance S - S A S,
# and the message is what turns the cavity into those (`first_order_message`; `second_order_message`).
#
# One pass visits every entry of its chunks, block by block: (a) moments of the K rows of each entry, on lanes; (b) the
# likelihood's tilted moments, through its address; (c) new messages, damped, and their sums per row, on lanes
# (`messages.cavities`). What follows stands in the order in which it runs.
#
# Source: Wang and Zhe, "Conditional Expectation Propagation" (CEP), sec. 3-4 and supplement 8.1.


@inlined
def load_block(b, modes, unused, entries, rows, messages, kept, noise, rule, w, at):
    """Step (a): values, likelihood parameter and moments of the modes of block b, but for the unused one."""
    load_values(b, rule.from_posterior, entries, messages, noise, rule, w, at)
    P, R = rows.cov.shape[1], rows.eta.shape[1]
    for k in range(entries.rows.shape[1]):
        index = entries.rows[b, k]
        if k == unused:
            continue
        if rule.from_posterior:
            gather(index, rows.cov, w, at.S + k * P)
            gather(index, rows.mean, w, at.m + k * R)
        elif modes[0] <= k < modes[1] and rule.order == 2:
            # vt is needed as well, which takes longer to read than to compute
            cavity_moments(index, rows.Lam, rows.eta, messages.Lam[b, k], messages.eta[b, k], w, at, k, at.ok)
        else:
            kept_moments(b, k, entries, rows, messages, kept, w, at)
        if rule.gaussian or modes != (k, k + 1):  # z has no part of the mode's own, only E[f^2] of real values
            m = at.m + k * R
            add_outer(w, at.S + k * P, m, m, at.G + k * P, R)


@inlined
def products_of_others(k, K, R, w, at):
    """z and Z2 of mode k (CEP eqs 16-17)."""
    P = R * (R + 1) // 2
    first = 1 if k == 0 else 0
    copy(w, at.z, at.m + first * R, R)
    copy(w, at.Z2, at.G + first * P, P)
    for j in range(first + 1, K):
        if j != k:
            multiply(w, at.z, at.z, at.m + j * R, R)
            multiply(w, at.Z2, at.Z2, at.G + j * P, P)


@block_kernel
def products_with_clamped(k, columns, gaussian, censored, order, R, w, at):
    """z and Z2 of the free columns of mode k, and the moments of c."""
    table_products(columns.z[k], w, at.z)
    table_products(columns.Z2[k], w, at.Z2)
    offset_mean(k, columns, w, at)
    if gaussian or order == 2:
        with_square = censored or order == 2 or k == columns.z.shape[0] - 1
        offset_moments(k, with_square, columns, R, w, at)


@inlined
def latent_moments(k, structured, R, w, at):
    """E[f] and var f with all second moments, from z, Z2 and the moments of mode k."""
    dot(w, at.f_mean, at.z, at.m + k * R, R)
    trace_product(w, at.Z2, at.G + k * (R * (R + 1) // 2), at.f_var, R)
    if structured:  # E[f^2] of f = z'u + c
        dot(w, at.product, at.cross, at.m + k * R, R)
        for lane in range(LANES):
            w[at.f_mean, lane] += w[at.offset, lane]
            w[at.f_var, lane] += 2.0 * w[at.product, lane] + w[at.square, lane]
    for lane in range(LANES):
        w[at.f_var, lane] = max(0.0, w[at.f_var, lane] - w[at.f_mean, lane] ** 2)


@inlined
def observe(rule, w, at):
    """Slots precision and pull: the Gaussian observation of f that a value is, N(y'; f, 1 / lam), as lam and lam y'."""
    # A measured value has lam = E[tau] and y' = y. A censored one says only t <= 0 of the noisy value
    # t ~ N(f, 1 / tau), and t >= 0 at an upper limit. At the cavity's mean m and variance v of f (`latent_moments`) its
    # tilted moments (alpha, beta) are those that
    #   lam = beta / (1 - v beta),    lam y' = (alpha + beta m) / (1 - v beta)
    # gives. Since 0 < lam < tau messages stay positive definite.
    for lane in range(LANES):
        w[at.precision, lane] = w[at.theta, lane]
        w[at.pull, lane] = w[at.theta, lane] * w[at.y, lane]
    if rule.side == 0.0:
        return
    call_at(rule.tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    for lane in range(LANES):
        m, v, alpha, beta = w[at.f_mean, lane], w[at.f_var, lane], w[at.alpha, lane], w[at.beta, lane]
        if rule.side * w[at.y, lane] <= 0.0:
            left = 1.0 / (1.0 - v * beta)
            w[at.precision, lane] = beta * left
            w[at.pull, lane] = (alpha + beta * m) * left


@inlined
def squared_errors(rule, w, at):
    """Slot error = E[(y - f)^2] with all second moments (CEP eq. 18); y is the noisy value t where y is censored."""
    # Under the cavity f has mean m and variance v: the error is (y - m)^2 + v. Tilted, with y added to what f is known
    # by: t lies s = v + 1 / tau from m, and given t the error has mean (t - m) / (tau s) and variance v / (tau s). The
    # first puts the noise too large by twice v. Censored, E[(t - m)^2] = s + s^2 (alpha^2 - beta).
    for lane in range(LANES):
        v, theta = w[at.f_var, lane], w[at.theta, lane]
        share = 1.0 / (1.0 + v * theta)
        apart = (w[at.y, lane] - w[at.f_mean, lane]) ** 2
        if rule.side != 0.0 and rule.side * w[at.y, lane] <= 0.0:
            s = v + 1.0 / theta
            apart = s + s * s * (w[at.alpha, lane] ** 2 - w[at.beta, lane])
        w[at.error, lane] = share * (share * apart + v) if rule.tilted_noise or rule.side != 0.0 else apart + v


@inlined
def prepare(k, columns, rule, K, R, w, at):
    """z and Z2 of mode k; for the Gaussian, of f what its message and, with the last mode, the noise need."""
    structured = columns.z.shape[2] > 0
    if structured:
        call_at(rule.clamped, k, columns, rule.gaussian, rule.side != 0.0, rule.order, R, w, at)
    else:
        products_of_others(k, K, R, w, at)
    copy(w, at.site_ok, at.ok, 1)
    if not rule.gaussian:
        return
    if rule.side != 0.0 or k == K - 1:
        latent_moments(k, structured, R, w, at)
    observe(rule, w, at)
    if k == K - 1:
        squared_errors(rule, w, at)


@inlined
def gaussian_message(structured, R, w, at):
    """T = lam Z2 and eta = lam (y' z - E[z c]) (CEP eqs 14-15, first order)."""
    scale(w, at.T, at.Z2, R * (R + 1) // 2, at.precision)
    scale(w, at.eta, at.z, R, at.pull)
    if structured:
        for lane in range(LANES):
            w[at.product, lane] = -w[at.precision, lane]
        axpy(w, at.eta, at.eta, at.cross, R, at.product)


@block_kernel
def counted_spread(positive, w, at):
    """Slot spread: the share of cov(z alpha), the variance of the conditional mean, that an update counts."""
    # In full it gives the covariance of the expected conditional second moment, but for an observation far from its
    # prediction (alpha^2 > beta) a negative message precision, and a sum of many of those outweighs any prior. Under
    # the model E[alpha^2] = beta, so the share min(1, beta / alpha^2) keeps every message of a log-concave likelihood
    # positive while changing only the updates of such observations.
    for lane in range(LANES):
        square = w[at.alpha, lane] ** 2
        w[at.spread, lane] = max(0.0, w[at.beta, lane]) / square if positive and square > w[at.beta, lane] else 1.0


@block_kernel
def first_order(tilted, positive, S, m, R, w, at):
    """g = alpha z and A = beta Z2 - alpha^2 (Z2 - z z') at (z'm + E[c], tr(Z2 S)) (CEP eq. 10, supplement 8.1.2)."""
    # A = b Z2 + c z z' is left as its two factors: b in the slot beta, c in the slot spread. `positive` limits the
    # second term (`counted_spread`); `tilted` is an address (`Rule`).
    dot(w, at.f_mean, at.z, m, R)
    axpy(w, at.f_mean, at.f_mean, at.offset, 1, at.one)
    axpy(w, at.f_mean, at.f_mean, at.known, 1, at.one)
    trace_product(w, at.Z2, S, at.f_var, R)
    call_at(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    counted_spread(positive, w, at)
    for lane in range(LANES):
        w[at.spread, lane] *= w[at.alpha, lane] ** 2
        w[at.beta, lane] -= w[at.spread, lane]
    scale(w, at.g, at.z, R, at.alpha)


@inlined
def natural_mean(R, w, at):
    """eta = g + T (m + S g), the mean being in slots t; a message that is no number is none."""
    symmetric_times_vector(w, at.T, at.t, at.eta, R)
    axpy(w, at.eta, at.eta, at.g, R, at.one)
    for r in range(R):
        for lane in range(LANES):
            if not np.isfinite(w[at.eta + r, lane]):
                w[at.site_ok, lane] = 0.0


@inlined
def first_order_message(S, m, work, R, w, at):
    """What turns the cavity (m, S) into the moments of `first_order`, whose A = b Z2 + c z z', b and c being slots."""
    # T of b Z2 alone turns z into h = z + T S z, and c z z' adds c h h' / (1 - c z'S h). Slots `work` hold a square.
    e, y, a = at.Yt, at.Y, at.a
    scaled_site_precision(w, at.Z2, at.beta, S, e, work, at.full, y, a, at.inv_diag, at.one, at.site_ok, at.T, R)
    symmetric_times_vector(w, S, at.z, at.Sz, R)
    symmetric_times_vector(w, at.T, at.Sz, at.t, R)
    axpy(w, at.t, at.t, at.z, R, at.one)
    dot(w, at.product, at.Sz, at.t, R)
    for lane in range(LANES):
        c = w[at.spread, lane]
        left = 1.0 - c * w[at.product, lane]
        if not left > PIVOT_FLOOR:
            w[at.site_ok, lane] = 0.0
        w[at.product, lane] = c / left
    scale(w, at.eta, at.t, R, at.product)
    add_outer(w, at.T, at.eta, at.t, at.T, R)
    axpy(w, at.t, m, at.Sz, R, at.alpha)
    natural_mean(R, w, at)


@block_kernel
def likelihood_message(tilted, positive, S, m, vt, R, w, at):
    """The message of a likelihood that is not Gaussian to the row of the cavity S and m, to first order."""
    first_order(tilted, positive, S, m, R, w, at)
    first_order_message(S, m, vt, R, w, at)


# Expected conditional moments to second order, in the same notation.

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
            call_at(tilted, w[at.y], at_m, at_v, w[at.theta], w[at.logz], alpha_at, beta_at)
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
    """Om = cov(z), Om m, Om S z and their contractions, with the mean and variance of f."""
    # With clamped columns it is (z, c) that varies and (m, 1) that it meets: Om m and m'Om m then count cov(z, c) and
    # var(c) too. S has nothing for c.
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
    """g = E[z alpha] and A = E[z z' beta] - cov(z alpha) to second order in z about its mean (CEP eq. 11)."""
    # CEP takes the expectation of the conditional first and second moments of u, so the new covariance is that of the
    # expected second moment: it holds the variance of the conditional mean, S cov(z alpha) S. With
    # Om = cov(z) = Z2 - zz' and D2 h = sum_cd Om_cd d2h / dz_c dz_d (`_contract`), and grad h = h_m m + 2 h_v S z:
    #   g             = z (alpha + D2 alpha / 2) + Om grad(alpha)
    #   E[z z' beta]  = z z' (beta + D2 beta / 2) + Om beta + z (Om grad beta)' + (Om grad beta) z'
    #   cov(z alpha)  = alpha^2 Om + alpha (z (Om grad alpha)' + (Om grad alpha) z') + z z' grad(alpha)' Om grad(alpha)
    # The derivatives of alpha and beta in (m, v) are central differences, so any likelihood with tilted moments serves.
    # ``positive`` limits cov(z alpha) (`counted_spread`).
    _products_with_spread(S, m, R, w, at)
    call_at(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
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
    """The message to the row of the cavity S and m, to second order: S = V'V, vt as `invert_triangle`."""
    # It turns the cavity into the mean m + S g and covariance S - S A S. Since the cavity has Lam m = eta, the message
    # is T = A (I - S A)^-1 and eta = g + T (m + S g).
    second_order(tilted, positive, w, at, S, m, R)
    site_precision(w, at.A, vt, at.full, at.v, at.Y, at.Yt, at.a, at.inv_diag, at.one, at.site_ok, at.T, R)
    symmetric_times_vector(w, S, at.g, at.t, R)
    axpy(w, at.t, at.t, m, R, at.one)
    natural_mean(R, w, at)


@inlined
def propose(own, structured, rule, R, w, at):
    """Step (b): the message to one row, T and eta, given that its cavity is number `own` of S, m and vt."""
    if rule.gaussian and rule.order == 1:
        gaussian_message(structured, R, w, at)
        return
    S, m, vt = at.S + own * (R * (R + 1) // 2), at.m + own * R, at.vt + own * R * R
    if rule.order == 1:
        call_at(rule.first, rule.tilted, rule.positive, S, m, vt, R, w, at)
    else:
        call_at(rule.second, rule.tilted, rule.positive, S, m, vt, R, w, at)


@block_kernel
def cep_chunks(first, last, modes, entries, columns, rows, messages, kept, sums, noise, rule, w, at):
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last."""
    # All messages of one entry are computed from the same state (the parallel schedule when modes covers all of them).
    # `columns` tells which columns are clamped, if any are. New messages replace old ones in place; their sums per row
    # of the updated modes go to ``sums``. ``noise`` is the (a, b) of the noise posterior, whose messages are updated
    # with those of the last mode.
    K, R = entries.rows.shape[1], rows.eta.shape[1]
    closed_form, structured = rule.gaussian and rule.order == 1, columns.z.shape[2] > 0
    # the Gaussian message to a mode does not depend on that mode unless there are limits; its moments serve the noise
    alone = modes[1] == modes[0] + 1 and modes[1] < K
    unused = modes[0] if closed_form and alone and rule.side == 0.0 else -1
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_block(b, modes, unused, entries, rows, messages, kept, noise, rule, w, at)
            for k in range(modes[0], modes[1]):
                index, Lam, eta, own = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k], k
                prepare(k, columns, rule, K, R, w, at)
                if rule.gaussian and k == K - 1:
                    store_noise(entries.weight[b], messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
                if rule.from_posterior and not closed_form:
                    own = K  # beside the posterior's moments
                    cavity_moments(index, rows.Lam, rows.eta, Lam, eta, w, at, own, at.site_ok)
                propose(own, structured, rule, R, w, at)
                skipped += store_message(index, entries.weight[b], Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
        sums.skipped[c] = skipped


CEP_PASS = Pass(cep_chunks, over="chunks", reads=("rows.Lam", "rows.eta"), keeps="messages", sums=PASS_SUMS)
