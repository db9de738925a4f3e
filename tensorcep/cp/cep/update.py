"""CEP's update: the message of one entry to the row of one mode, for a block of lanes at once.

The latent value is f = z'u + c: u is the row, z the elementwise product of the other modes' rows and c the sum of the
columns that are clamped in this mode (0 in the CP model). Without the entry's own message the row is N(m, S), its
cavity, and z has mean z and second moment Z2. An entry of mean and precision (y, tau) that is Gaussian in f sends a
message in closed form (`gaussian_message`). Of any other likelihood the conditional moments of u given z are

    mean m + S z alpha,    covariance S - S z z' S beta,    (alpha, beta) tilted moments at f ~ N(z'm + c, z'Sz);

their expectation over z is taken to first or second order and written as a mean m + S g and a covariance S - S A S, and
the message is what turns the cavity into those (`first_order_message`; `second_order.tilted_message`).

Source: Wang and Zhe, "Conditional Expectation Propagation" (CEP), sec. 3-4 and supplement 8.1.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.jit import block_kernel, call_narrow, call_tilted, inlined
from tensorcep.cp.messages.columns import offset_mean, offset_moments, table_products
from tensorcep.kernels.lanes import add_outer, scaled_site_precision, symmetric_times_vector, trace_product
from tensorcep.kernels.nearest import SCRATCH
from tensorcep.kernels.slots import LANES, PIVOT_FLOOR, axpy, copy, dot, multiply, scale


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
    """Slots precision and pull: the Gaussian observation of f that a value is, N(y'; f, 1 / lam), as lam and lam y'.

    A measured value has lam = E[tau] and y' = y. A censored one says only t <= 0 of the noisy value t ~ N(f, 1 / tau),
    and t >= 0 at an upper limit. At the cavity's mean m and variance v of f (`latent_moments`) its tilted moments
    (alpha, beta) are those that

        lam = beta / (1 - v beta),    lam y' = (alpha + beta m) / (1 - v beta)

    gives. Since 0 < lam < tau messages stay positive definite.
    """
    for lane in range(LANES):
        w[at.precision, lane] = w[at.theta, lane]
        w[at.pull, lane] = w[at.theta, lane] * w[at.y, lane]
    if rule.side == 0.0:
        return
    call_tilted(rule.tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    for lane in range(LANES):
        m, v, alpha, beta = w[at.f_mean, lane], w[at.f_var, lane], w[at.alpha, lane], w[at.beta, lane]
        if rule.side * w[at.y, lane] <= 0.0:
            left = 1.0 / (1.0 - v * beta)
            w[at.precision, lane] = beta * left
            w[at.pull, lane] = (alpha + beta * m) * left


@inlined
def squared_errors(rule, w, at):
    """Slot error = E[(y - f)^2] with all second moments (CEP eq. 18); y is the noisy value t where y is censored.

    Under the cavity f has mean m and variance v: the error is (y - m)^2 + v. Tilted, with y added to what f is known
    by: t lies s = v + 1 / tau from m, and given t the error has mean (t - m) / (tau s) and variance v / (tau s). The
    first puts the noise too large by twice v. Censored, E[(t - m)^2] = s + s^2 (alpha^2 - beta).
    """
    for lane in range(LANES):
        v, theta = w[at.f_var, lane], w[at.theta, lane]
        share = 1.0 / (1.0 + v * theta)
        apart = (w[at.y, lane] - w[at.f_mean, lane]) ** 2
        if rule.side != 0.0 and rule.side * w[at.y, lane] <= 0.0:
            s = v + 1.0 / theta
            apart = s + s * s * (w[at.alpha, lane] ** 2 - w[at.beta, lane])
        w[at.error, lane] = share * (share * apart + v) if rule.tilted_noise or rule.side != 0.0 else apart + v


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
def first_order(tilted, positive, nearest, narrow, loglik, S, m, R, w, at):
    """g = alpha z and A = beta Z2 - alpha^2 (Z2 - z z') at (z'm + E[c], tr(Z2 S)) (CEP eq. 10, supplement 8.1.2).

    A = b Z2 + c z z' is left as its two factors: b in the slot beta, c in the slot spread. `positive` limits the second
    term (`counted_spread`). With `nearest` beta is that of the nearest Gaussian of f, and by the locality of the
    projection that of u given z. `tilted`, `narrow` and `loglik` are addresses (`slots.Rule`).
    """
    dot(w, at.f_mean, at.z, m, R)
    axpy(w, at.f_mean, at.f_mean, at.offset, 1, at.one)
    axpy(w, at.f_mean, at.f_mean, at.known, 1, at.one)
    trace_product(w, at.Z2, S, at.f_var, R)
    y, f_mean, f_var, theta, alpha, beta = (
        w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.alpha], w[at.beta],
    )  # fmt: skip
    call_tilted(tilted, y, f_mean, f_var, theta, w[at.logz], alpha, beta)
    if nearest:
        scratch = w[at.nodes : at.nodes + SCRATCH]
        call_narrow(narrow, loglik, y, f_mean, f_var, theta, alpha, beta, scratch)
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
    """What turns the cavity (m, S) into the moments of `first_order`, whose A = b Z2 + c z z', b and c being slots.

    T of b Z2 alone turns z into h = z + T S z, and c z z' adds c h h' / (1 - c z'S h). Slots `work` hold a square.
    """
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
def likelihood_message(tilted, positive, nearest, narrow, loglik, S, m, vt, R, w, at):
    """The message of a likelihood that is not Gaussian to the row of the cavity S and m, to first order."""
    first_order(tilted, positive, nearest, narrow, loglik, S, m, R, w, at)
    first_order_message(S, m, vt, R, w, at)
