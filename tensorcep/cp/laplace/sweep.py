"""The compiled pass of Laplace propagation over the entries of a CP model: what is sent once the mode is known."""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel, inlined
from tensorcep.cp.laplace.mode import find_mode, start_at_posterior
from tensorcep.cp.messages.kernels import clear_sums, kept_moments, load_values, store_message, store_noise
from tensorcep.cp.model.columns import Places
from tensorcep.kernels.lanes import add_outer
from tensorcep.kernels.layout import layout
from tensorcep.kernels.slots import LANES, dot, scale, subtract

# Where things lie in the work array of one thread, in this order (see `tensorcep.kernels.layout`).
Slots = namedtuple(
    "Slots",
    "S m vt "  # K packed cavity covariances, means and inverse Cholesky factors
    "u dual "  # K rows at the mode, u_k = m_k + S_k dual_k
    "z Sz du d_dual trial v "  # K gradients of f, steps, rows to try, variances z_k' S_k z_k
    "T eta "  # the message: precision and natural mean
    "a t inv_diag product "  # work space of the algebra
    "known "  # what is known of the latent value beside the rows
    "y theta ok site_ok zero one "  # the entry: value, parameter, whether it counts, whether its message is one
    "f density f_at trial_density "  # the search for the mode: latent value and log density, now and at the trial
    "V f_cavity lam low high value d1 d2 "  # the linearised f, its bracket, and derivatives of the log likelihood
    "q length done "  # 3 coefficients of the quadratic part along a step
    "offset "  # the sum of the columns that are clamped in the first mode
    "precision pull error step power "  # the Gaussian observation of f for the entry, and how messages are stored
    "size",
)


def laplace_slots(K: int, R: int) -> Slots:
    """Slots of the work array for order K and rank R."""
    P = R * (R + 1) // 2
    sizes = {"S": K * P, "vt": K * R * R, "v": K, "T": P, "a": P, "eta": R, "t": R, "inv_diag": R, "q": 3}
    return layout(Slots, **sizes, **dict.fromkeys(("m", "u", "dual", "z", "Sz", "du", "d_dual", "trial"), K * R))


def places_of_modes(K: int, R: int) -> list[Places]:
    """Where every mode's row lies, of which the latent value is made; second moments do not enter."""
    at = laplace_slots(K, R)
    return [Places(at.zero, at.trial + k * R, at.one, at.zero) for k in range(K)]


class Rule(NamedTuple):
    """How messages are computed; step, power, theta and gaussian as in the rule of CEP.

    Attributes
    ----------
    loglik : int
        Address of the likelihood's log-likelihood kernel.
    marginal : bool
        Curvature of the marginal of a row rather than of the row given the others (see `message`).
    cuts : (L + 1,) float64
        Where ordered levels are cut; nothing for other likelihoods.
    """

    step: float
    power: float
    theta: float
    loglik: int
    gaussian: bool
    marginal: bool
    cuts: np.ndarray


@inlined
def message(k, marginal, structured, R, w, at):
    """Message T = h z z' and eta = (l' + h z'u) z, which puts the row's mean at its mode u.

    h is -l'' for the row given the others. With the others free, the Gauss-Newton curvature
    diag(S^-1) - l'' z z' of all K rows has an inverse whose block k is that with h = -l'' / (1 - l'' (V - v_k)).
    """
    z = at.z + k * R
    if structured:  # f = z'u + c, c the sum of the columns that are clamped in mode k
        dot(w, at.product, z, at.u + k * R, R)
    else:
        subtract(w, at.product, at.f, at.known, 1)
    for lane in range(LANES):
        h = max(0.0, -w[at.d2, lane])
        if marginal:
            h /= 1.0 + h * (w[at.V, lane] - w[at.v + k, lane])
        slope = w[at.d1, lane] + h * w[at.product, lane]
        w[at.precision, lane] = h
        w[at.pull, lane] = slope
        w[at.site_ok, lane] = w[at.ok, lane] if abs(slope) < 1e300 and h < 1e300 else 0.0
    w[at.T : at.T + R * (R + 1) // 2] = 0.0
    scale(w, at.t, z, R, at.precision)
    add_outer(w, at.T, at.t, z, at.T, R)
    scale(w, at.eta, z, R, at.pull)


@inlined
def squared_errors(K, marginal, w, at):
    """Slot error = (y - f)^2 + var f, with the variance of the linearised f under the new rows."""
    for lane in range(LANES):
        h, residual = -w[at.d2, lane], w[at.y, lane] - w[at.f, lane]
        variance = w[at.V, lane] / (1.0 + h * w[at.V, lane])
        if not marginal:
            variance = 0.0
            for k in range(K):
                variance += w[at.v + k, lane] / (1.0 + h * w[at.v + k, lane])
        w[at.error, lane] = residual * residual + variance


@block_kernel
def laplace_chunks(first, last, modes, entries, columns, rows, messages, kept, sums, noise, rule, w, at):
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last.

    As `cep.sweep.cep_chunks`: new messages replace old ones in place, their sums go to ``sums``, and ``noise`` is the
    (a, b) of the noise posterior, whose messages are updated with those of the last mode.
    """
    K, R, structured = entries.rows.shape[1], rows.eta.shape[1], columns.z.shape[2] > 0
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_values(b, False, entries, messages, noise, rule, w, at)
            for k in range(K):
                index, Lam, eta = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k]
                kept_moments(b, k, entries, rows, messages, kept, w, at)
                start_at_posterior(k, index, rows.mean, Lam, eta, w, at)
            find_mode(rule.loglik, columns, K, R, w, at)
            for k in range(modes[0], modes[1]):
                index, Lam, eta = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k]
                message(k, rule.marginal, structured, R, w, at)
                skipped += store_message(index, entries.weight[b], Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
            if rule.gaussian and modes[1] == K:
                squared_errors(K, rule.marginal, w, at)
                store_noise(entries.weight[b], messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
        sums.skipped[c] = skipped
