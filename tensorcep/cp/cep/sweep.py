"""The compiled pass of conditional expectation propagation over the entries of a CP model.

One pass visits every entry of its chunks, block by block: (a) moments of the K rows of each entry, on lanes; (b) the
likelihood's tilted moments, through its address; (c) new messages, damped, and their sums per row, on lanes.

Notation as in the paper (CEP sec. 4.1): z = elementwise product of the other modes' means, Z2 = elementwise product of
their second moments, S and m = cavity covariance and mean of the row being updated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, inlined
from tensorcep.cp.cep.columns import offset_moments, remove_offset, structured_products
from tensorcep.cp.cep.limits import censored_message, censored_noise, censored_sites
from tensorcep.cp.cep.moments import first_order, second_order
from tensorcep.kernels.lanes import add_outer, moments, site_precision, symmetric_times_vector, trace_product
from tensorcep.kernels.rows import gather, scatter_add
from tensorcep.kernels.slots import LANES, axpy, copy, damp, dot, multiply, scale, subtract


class Messages(NamedTuple):
    """Natural parameters of the messages, in lanes. Lam and eta are float64 or float32; arithmetic is float64.

    Attributes
    ----------
    Lam : (n_blocks, K, P, LANES)
    eta : (n_blocks, K, R, LANES)
    a, b : (n_blocks, LANES) float64
        Additive messages to the Gamma posterior of the noise precision (no blocks when the likelihood has none).
    """

    Lam: np.ndarray
    eta: np.ndarray
    a: np.ndarray
    b: np.ndarray


class Sums(NamedTuple):
    """Sums of messages per chunk: Lam (C, n_rows, P), eta (C, n_rows, R), noise (C, 2), skipped updates (C,).

    counts (n_rows,) is the number of messages that a row gets, one from each of its entries.
    """

    Lam: np.ndarray
    eta: np.ndarray
    noise: np.ndarray
    skipped: np.ndarray
    counts: np.ndarray


class Rule(NamedTuple):
    """How messages are computed.

    Attributes
    ----------
    step : float
        Fraction of the way from the old to the new natural parameters.
    theta : float
        The likelihood's parameter, for likelihoods without a noise posterior.
    tilted : int
        Address of the likelihood's tilted moments.
    gaussian : bool
        Gaussian likelihood: theta is the expected noise precision, which has messages of its own.
    from_posterior : bool
        Take the other modes' moments from the posterior instead of the cavity.
    order : int
        1 or 2: order of the Taylor approximation.
    positive : bool
        Keep messages positive (see `moments.first_order`).
    power : float
        Factor of new messages: 1, or more while annealing.
    censored : bool
        Gaussian likelihood with a limit: some values y <= 0 say only that the noisy value is not above 0.
    tilted_noise : bool
        Messages to the noise count y in the moments of f (`squared_error`).
    """

    step: float
    theta: float
    tilted: int
    gaussian: bool
    from_posterior: bool
    order: int
    positive: bool
    power: float
    censored: bool
    tilted_noise: bool


@block_kernel
def cavity_moments(rows, Lam, eta, msg_Lam, msg_eta, w, at, slot, ok):
    """Moments of the rows of one block without the entries' own messages, to number `slot` of S, m and vt."""
    P, R = Lam.shape[1], eta.shape[1]
    gather(rows, Lam, w, at.a)
    gather(rows, eta, w, at.t)
    subtract(w, at.a, w, at.a, msg_Lam, 0, P, w, 0)
    subtract(w, at.t, w, at.t, msg_eta, 0, R, w, 0)
    moments(w, at.a, at.t, at.S + slot * P, at.m + slot * R, at.vt + slot * R * R, at.inv_diag, ok, R)


@block_kernel
def products_of_others(k, K, R, w, at):
    """z and Z2 of mode k (CEP eqs 16-17)."""
    P = R * (R + 1) // 2
    first = 1 if k == 0 else 0
    copy(w, at.z, w, at.m + first * R, w, 0, R, w, 0)
    copy(w, at.Z2, w, at.G + first * P, w, 0, P, w, 0)
    for j in range(first + 1, K):
        if j != k:
            multiply(w, at.z, w, at.z, w, at.m + j * R, R, w, 0)
            multiply(w, at.Z2, w, at.Z2, w, at.G + j * P, P, w, 0)


@block_kernel
def gaussian_message(R, w, at):
    """T = E[tau] Z2 and eta = E[tau] y z (CEP eqs 14-15, first order)."""
    multiply(w, at.scalar, w, at.theta, w, at.y, 1, w, 0)
    scale(w, at.T, w, at.Z2, w, 0, R * (R + 1) // 2, w, at.theta)
    scale(w, at.eta, w, at.z, w, 0, R, w, at.scalar)


@block_kernel
def tilted_message(rule, slot, R, w, at):
    """Message of any likelihood: new covariance S - S A S and new mean m + S g, minus the cavity.

    Since the cavity has Lam m = eta, the message is T = A (I - S A)^-1 and eta = g + T (m + S g).
    """
    S, m, vt = at.S + slot * (R * (R + 1) // 2), at.m + slot * R, at.vt + slot * R * R
    if rule.order == 1:
        first_order(rule.tilted, rule.positive, w, at, S, m, R)
    else:
        second_order(rule.tilted, rule.positive, w, at, S, m, R)
    site_precision(w, at.A, vt, at.full, at.v, at.Y, at.Yt, at.a, at.inv_diag, at.one, at.site_ok, at.T, R)
    symmetric_times_vector(w, S, at.g, at.t, R)
    axpy(w, at.t, w, at.t, w, m, R, w, at.one)
    symmetric_times_vector(w, at.T, at.t, at.eta, R)
    axpy(w, at.eta, w, at.eta, w, at.g, R, w, at.one)
    for r in range(R):
        for lane in range(LANES):
            if not np.isfinite(w[at.eta + r, lane]):
                w[at.site_ok, lane] = 0.0


@block_kernel
def store_message(rows, weight, Lam, eta, sum_Lam, sum_eta, rule, w, at):
    """Step (c): damp in natural parameters and add to the row sums; returns the number of skipped updates."""
    skipped = 0
    for lane in range(LANES):
        w[at.scalar, lane] = rule.step * w[at.site_ok, lane]
        w[at.scalar + 1, lane] = rule.power
        if weight[lane] > 0.0 and w[at.site_ok, lane] == 0.0:
            skipped += 1
    if rule.power != 1.0:
        scale(w, at.T, w, at.T, w, 0, Lam.shape[0], w, at.scalar + 1)
        scale(w, at.eta, w, at.eta, w, 0, eta.shape[0], w, at.scalar + 1)
    damp(Lam, 0, Lam, 0, w, at.T, Lam.shape[0], w, at.scalar)
    damp(eta, 0, eta, 0, w, at.eta, eta.shape[0], w, at.scalar)
    scatter_add(rows, Lam, sum_Lam)
    scatter_add(rows, eta, sum_eta)
    return skipped


@inlined
def squared_error(tilted, lane, w, at):
    """E[(y - f)^2] from E[f] in slot f_mean and E[f^2] in slot f_var; tilted: with y added to what f is known by.

    Without its own entry the latent value has variance v and y lies s + v from its mean, s the noise variance: the
    error is s + 2 v, and the noise would be put twice as large as it is where v is near s / 2. Given y it is s again.
    """
    y, f1, f2 = w[at.y, lane], w[at.f_mean, lane], w[at.f_var, lane]
    if not tilted:
        return y * y - 2.0 * y * f1 + f2
    v = max(0.0, f2 - f1 * f1)
    kept = 1.0 / (1.0 + v * w[at.theta, lane])
    return kept * kept * (y - f1) ** 2 + kept * v


@inlined
def _latent_moments(k, structured, R, w, at):
    """E[f] and E[f^2] with all second moments, from z, Z2 and the moments of mode k."""
    dot(w, at.f_mean, w, at.z, w, at.m + k * R, R, w, 0)
    trace_product(w, at.Z2, at.G + k * (R * (R + 1) // 2), at.f_var, R)
    if structured:  # E[f^2] of f = z'u + c
        dot(w, at.product, w, at.cross, w, at.m + k * R, R, w, 0)
        for lane in range(LANES):
            w[at.f_mean, lane] += w[at.offset, lane]
            w[at.f_var, lane] += 2.0 * w[at.product, lane] + w[at.square, lane]


@inlined
def _noise_message(k, structured, a, b, total, rule, R, w, at):
    """a = 1/2 and b = E[(y - f)^2] / 2 with all second moments (CEP eq. 18), from z, Z2 and the moments of mode k."""
    _latent_moments(k, structured, R, w, at)
    for lane in range(LANES):
        if w[at.ok, lane] > 0.0:
            a[lane] += rule.step * (0.5 - a[lane])
            b[lane] += rule.step * (0.5 * squared_error(rule.tilted_noise, lane, w, at) - b[lane])
        total[0] += a[lane]
        total[1] += b[lane]


@block_kernel
def _load_block(b, unused, entries, state, messages, noise, rule, w, at):
    """Step (a): values, likelihood parameter and moments of the modes of block b, but for the unused one."""
    for lane in range(LANES):
        w[at.ok, lane] = entries.weight[b, lane]
        w[at.y, lane] = entries.y[b, lane]
        w[at.theta, lane] = rule.theta
        if rule.gaussian and rule.from_posterior:
            w[at.theta, lane] = noise[0] / noise[1]
        elif rule.gaussian:
            w[at.theta, lane] = (noise[0] - messages.a[b, lane]) / (noise[1] - messages.b[b, lane])
    P, R = state.cov.shape[1], state.eta.shape[1]
    for k in range(entries.rows.shape[1]):
        rows = entries.rows[b, k]
        if k == unused:
            continue
        if rule.from_posterior:
            gather(rows, state.cov, w, at.S + k * P)
            gather(rows, state.mean, w, at.m + k * R)
        else:
            cavity_moments(rows, state.Lam, state.eta, messages.Lam[b, k], messages.eta[b, k], w, at, k, at.ok)
        m = at.m + k * R
        add_outer(w, at.S + k * P, m, m, at.G + k * P, R)


@block_kernel
def sweep_chunks(chunks, modes, entries, columns, state, messages, sums, noise, rule, w, at):
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks ``chunks[0]:chunks[1]``.

    All messages of one entry are computed from the same state (the parallel schedule when modes covers all of them).
    `columns` tells which columns are clamped, if any are. New messages replace old ones in place; their sums per row of
    the updated modes go to ``sums``. ``noise`` is the (a, b) of the noise posterior, whose messages are updated with
    those of the last mode.
    """
    K, R = entries.rows.shape[1], state.eta.shape[1]
    closed_form = rule.gaussian and rule.order == 1
    structured = columns.z.shape[2] > 0
    # the Gaussian message to a mode does not depend on that mode unless there are limits; its moments serve the noise
    unused = modes[0] if closed_form and not rule.censored and modes[1] == modes[0] + 1 and modes[1] < K else -1
    first_row, last_row = entries.offsets[modes[0]], entries.offsets[modes[1]]
    for c in range(chunks[0], chunks[1]):
        sums.Lam[c, first_row:last_row] = 0.0
        sums.eta[c, first_row:last_row] = 0.0
        sums.noise[c] = 0.0
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            _load_block(b, unused, entries, state, messages, noise, rule, w, at)
            for k in range(modes[0], modes[1]):
                rows, Lam, eta = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k]
                if structured:
                    structured_products(k, columns, w, at)
                else:
                    products_of_others(k, K, R, w, at)
                if structured and closed_form:
                    offset_moments(k, rule.censored or k == K - 1, columns, R, w, at)
                copy(w, at.site_ok, w, at.ok, w, 0, 1, w, 0)
                if rule.censored:
                    _latent_moments(k, structured, R, w, at)
                    censored_sites(rule.tilted, w, at)
                    if k == K - 1:
                        censored_noise(messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
                elif rule.gaussian and k == K - 1:
                    _noise_message(k, structured, messages.a[b], messages.b[b], sums.noise[c], rule, R, w, at)
                if rule.censored:
                    censored_message(structured, R, w, at)
                elif closed_form:
                    gaussian_message(R, w, at)
                    if structured:
                        remove_offset(at.theta, R, w, at)
                elif rule.from_posterior:
                    cavity_moments(rows, state.Lam, state.eta, Lam, eta, w, at, K, at.site_ok)
                    tilted_message(rule, K, R, w, at)
                else:
                    tilted_message(rule, k, R, w, at)
                skipped += store_message(rows, entries.weight[b], Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
        sums.skipped[c] = skipped


@block_kernel
def add_sums(first, last, prior_Lam, prior_eta, sums, Lam, eta):
    """Natural parameters of rows first:last = prior + messages, the chunks added in a fixed order."""
    for i in range(first, last):
        for p in range(Lam.shape[1]):
            total = prior_Lam[i, p]
            for c in range(sums.Lam.shape[0]):
                total += sums.Lam[c, i, p]
            Lam[i, p] = total
        for r in range(eta.shape[1]):
            total = prior_eta[i, r]
            for c in range(sums.eta.shape[0]):
                total += sums.eta[c, i, r]
            eta[i, r] = total


@block_kernel
def scale_messages(factor, rows, Lam, eta):
    """Multiply every message to row i by factor[i]."""
    for b in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            for w in range(LANES):
                s = factor[rows[b, k, w]]
                if s != 1.0:
                    for p in range(Lam.shape[2]):
                        Lam[b, k, p, w] = s * Lam[b, k, p, w] if s > 0.0 else 0.0
                    for r in range(eta.shape[2]):
                        eta[b, k, r, w] = s * eta[b, k, r, w] if s > 0.0 else 0.0
