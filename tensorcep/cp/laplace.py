"""Laplace propagation (LP) for the CP model.

As in CEP every entry sends each of its K rows a Gaussian message, and an update removes the entry's own messages from
its rows (the cavities). LP then finds the joint mode of the K rows under cavities x likelihood, and stores the messages
that turn the cavities into a Gaussian at that mode with the curvature there. Any likelihood with a log density serves.

Source: Smola, Vishwanathan and Eskin, "Laplace propagation" (2003); the CEP paper (Wang and Zhe) compares with it.
Where we differ from the comparison's code: the curvature is that of the likelihood (there it was replaced by 1e-6 I),
the noise message has the residual at the mode and the variance around it, and damping acts on natural parameters.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.compile import LOGLIK_SIGNATURE, address_of, block_kernel, call_at, inlined
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.cp.messages.cavities import (
    PASS_SUMS,
    clear_sums,
    kept_moments,
    load_values,
    offset_mean,
    product_slots,
    store_message,
    store_noise,
    table_products,
)
from tensorcep.cp.messages.engine import MessageState, Pace, finish, first_state, resume, sweep
from tensorcep.cp.model.columns import Places
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.settings import Laplace
from tensorcep.kernels.lanes import add_outer, layout, symmetric_times_vector
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, copy, dot, multiply, scale, subtract

# Where things lie in the work array of one thread, in this order (see `tensorcep.kernels.lanes`).
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
    """How messages are computed; step, power, theta, gaussian and cuts as in the rule of CEP."""

    step: float
    power: float
    theta: float
    loglik: int  # address of the likelihood's log-likelihood kernel
    gaussian: bool
    marginal: bool  # curvature of the marginal of a row rather than of the row given the others (see `message`)
    cuts: np.ndarray


# The joint mode of the K rows of an entry under cavities x likelihood, for a block of lanes.
#
# The latent value is linear in each row, with the product z_k of the other rows as its gradient. Linearising it in all
# rows at once leaves a concave problem whose solution lies at u_k = m_k + lam S_k z_k, with one scalar lam = l'(s) and
# s = a + V l'(s), where a is the linearised value at the cavity means and V = sum_k z_k' S_k z_k. That is a
# Gauss-Newton step for K R numbers at the price of a scalar equation; it points uphill, so halving it until the density
# rises makes the iteration safe.

# The mode is found when a step is shorter than this, in posterior standard deviations (squared below).
STEP_SQUARED = 1e-12
MAX_STEPS, MAX_HALVINGS, MAX_SCALAR = 50, 30, 60
SCALAR_TOL = 1e-11
# Rounding in the log density must not look like a fall.
ROUNDING = 1e-12


@inlined
def _gradients(columns, K, R, w, at):
    """z_k, S_k z_k and v_k at the rows u, which `trial` holds too; V, the sum of v_k, and the linearised f at m."""
    copy(w, at.V, at.zero, 1)
    copy(w, at.f_cavity, at.f, 1)
    for k in range(K):
        z = at.z + k * R  # elementwise product of the rows of the other modes; of their free columns, if not all are
        if columns.z.shape[2] > 0:
            table_products(columns.z[k], w, z)
        else:
            first = 1 if k == 0 else 0
            copy(w, z, at.trial + first * R, R)
            for j in range(first + 1, K):
                if j != k:
                    multiply(w, z, z, at.trial + j * R, R)
        symmetric_times_vector(w, at.S + k * (R * (R + 1) // 2), z, at.Sz + k * R, R)
        dot(w, at.v + k, z, at.Sz + k * R, R)
        subtract(w, at.t, at.m + k * R, at.u + k * R, R)
        dot(w, at.product, z, at.t, R)
        for lane in range(LANES):
            w[at.V, lane] += w[at.v + k, lane]
            w[at.f_cavity, lane] += w[at.product, lane]


@inlined
def _solve_scalar(loglik, w, at):
    """lam = l'(s) at s = a + V l'(s) by Newton steps in a bracket: l' falls, so s is between a and a + V l'(a)."""
    call_at(loglik, w[at.y], w[at.f_cavity], w[at.theta], w[at.value], w[at.d1], w[at.d2])
    for lane in range(LANES):
        far = w[at.f_cavity, lane] + w[at.V, lane] * w[at.d1, lane]
        w[at.low, lane] = min(w[at.f_cavity, lane], far)
        w[at.high, lane] = max(w[at.f_cavity, lane], far)
        w[at.f_at, lane] = min(max(w[at.f, lane], w[at.low, lane]), w[at.high, lane])
    for _ in range(MAX_SCALAR):
        call_at(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.d1], w[at.d2])
        largest = 0.0
        for lane in range(LANES):
            s, V = w[at.f_at, lane], w[at.V, lane]
            excess = s - w[at.f_cavity, lane] - V * w[at.d1, lane]
            if excess > 0.0:
                w[at.high, lane] = s
            else:
                w[at.low, lane] = s
            new = s - excess / (1.0 + V * max(0.0, -w[at.d2, lane]))
            if not w[at.low, lane] <= new <= w[at.high, lane]:
                new = 0.5 * (w[at.low, lane] + w[at.high, lane])
            moved = abs(new - s) / (1.0 + abs(new))
            w[at.f_at, lane] = new
            if moved > largest and w[at.done, lane] == 0.0:
                largest = moved
        if largest <= SCALAR_TOL:
            break
    call_at(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.lam], w[at.d2])


@inlined
def _direction(K, R, w, at):
    """The step to u_k = m_k + lam S_k z_k, and the quadratic form of u - m along it: q_0 + 2 t q_1 + t^2 q_2."""
    for j in range(3):
        copy(w, at.q + j, at.zero, 1)
    for k in range(K):
        u, du, dual, d_dual = at.u + k * R, at.du + k * R, at.dual + k * R, at.d_dual + k * R
        axpy(w, du, at.m + k * R, at.Sz + k * R, R, at.lam)
        subtract(w, du, du, u, R)
        scale(w, d_dual, at.z + k * R, R, at.lam)
        subtract(w, d_dual, d_dual, dual, R)
        subtract(w, at.t, u, at.m + k * R, R)
        for j in range(3):
            dot(w, at.product, dual if j == 0 else d_dual, du if j == 2 else at.t, R)
            for lane in range(LANES):
                w[at.q + j, lane] += w[at.product, lane]


@inlined
def _latent_of_trial(columns, K, R, w, at):
    """f_at = the latent value at the rows u_k + length du_k, which become `trial`."""
    for k in range(K):
        axpy(w, at.trial + k * R, at.u + k * R, at.du + k * R, R, at.length)
    if columns.z.shape[2] > 0:
        table_products(columns.z[0], w, at.t)
        dot(w, at.f_at, at.t, at.trial, R)
        offset_mean(0, columns, w, at)
        axpy(w, at.f_at, at.f_at, at.offset, 1, at.one)
    else:
        copy(w, at.t, at.trial, R)
        for k in range(1, K - 1):
            multiply(w, at.t, at.t, at.trial + k * R, R)
        dot(w, at.f_at, at.t, at.trial + (K - 1) * R, R)
    axpy(w, at.f_at, at.f_at, at.known, 1, at.one)


@inlined
def _climb(loglik, columns, K, R, w, at):
    """Go along the step, halved until the log density does not fall; returns whether all lanes are done."""
    for lane in range(LANES):
        w[at.length, lane] = 1.0 - w[at.done, lane]
    for halving in range(MAX_HALVINGS + 1):
        _latent_of_trial(columns, K, R, w, at)
        call_at(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.d1], w[at.d2])
        falling = False
        for lane in range(LANES):
            t = w[at.length, lane]
            quadratic = w[at.q, lane] + t * (2.0 * w[at.q + 1, lane] + t * w[at.q + 2, lane])
            w[at.trial_density, lane] = w[at.value, lane] - 0.5 * quadratic
            slack = ROUNDING * (1.0 + abs(w[at.density, lane]))
            if t > 0.0 and not w[at.trial_density, lane] >= w[at.density, lane] - slack:
                falling = True
                w[at.length, lane] = 0.5 * t if halving < MAX_HALVINGS - 1 else 0.0
        if not falling:
            break
    copy(w, at.u, at.trial, K * R)
    axpy(w, at.dual, at.dual, at.d_dual, K * R, at.length)
    all_done = True
    for lane in range(LANES):
        t = w[at.length, lane]
        w[at.f, lane] = w[at.f_at, lane]
        if t > 0.0:
            w[at.density, lane] = w[at.trial_density, lane]
        if not t * t * w[at.q + 2, lane] > STEP_SQUARED:
            w[at.done, lane] = 1.0
        else:
            all_done = False
    return all_done


@inlined
def find_mode(loglik, columns, K, R, w, at):
    """From the rows u to their joint mode; z, v and V there, d1 and d2 of the log likelihood at f."""
    w[at.du : at.du + K * R] = 0.0
    copy(w, at.length, at.zero, 1)
    _latent_of_trial(columns, K, R, w, at)
    copy(w, at.f, at.f_at, 1)
    call_at(loglik, w[at.y], w[at.f], w[at.theta], w[at.density], w[at.d1], w[at.d2])
    subtract(w, at.du, at.u, at.m, K * R)
    dot(w, at.q, at.dual, at.du, K * R)
    for lane in range(LANES):
        w[at.density, lane] -= 0.5 * w[at.q, lane]
        w[at.done, lane] = 1.0 - w[at.ok, lane]
    for _ in range(MAX_STEPS):
        _gradients(columns, K, R, w, at)
        _solve_scalar(loglik, w, at)
        _direction(K, R, w, at)
        if _climb(loglik, columns, K, R, w, at):
            break
    _gradients(columns, K, R, w, at)
    call_at(loglik, w[at.y], w[at.f], w[at.theta], w[at.value], w[at.d1], w[at.d2])


# What is sent once the mode is known, and the compiled pass over the entries.


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
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last."""
    # as `cep.update.cep_chunks`: new messages replace old ones in place, their sums go to ``sums``, and ``noise`` is
    # the (a, b) of the noise posterior, whose messages are updated with those of the last mode
    K, R, structured = entries.rows.shape[1], rows.eta.shape[1], columns.z.shape[2] > 0
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_values(b, False, entries, messages, noise, rule, w, at)
            for k in range(K):
                Lam, eta, u, dual = messages.Lam[b, k], messages.eta[b, k], at.u + k * R, at.dual + k * R
                kept_moments(b, k, entries, rows, messages, kept, w, at)
                # start at the posterior mean, where the mode is at a fixed point; dual = eta - Lam u of its own message
                gather(entries.rows[b, k], rows.mean, w, u)
                copy(w, at.T, (Lam, 0), Lam.shape[0])
                copy(w, dual, (eta, 0), R)
                symmetric_times_vector(w, at.T, u, at.t, R)
                subtract(w, dual, dual, at.t, R)
            find_mode(rule.loglik, columns, K, R, w, at)
            for k in range(modes[0], modes[1]):
                index, Lam, eta = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k]
                message(k, rule.marginal, structured, R, w, at)
                skipped += store_message(index, entries.weight[b], Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
            if rule.gaussian and modes[1] == K:
                squared_errors(K, rule.marginal, w, at)
                store_noise(entries.weight[b], messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
        sums.skipped[c] = skipped


LAPLACE_PASS = Pass(
    laplace_chunks, over="chunks", reads=("rows.Lam", "rows.eta", "rows.mean"), keeps="messages", sums=PASS_SUMS
)


def init(problem: Problem, options: Laplace, executor: Executor) -> MessageState:
    """Messages that say nothing, and rows at the starting means with the prior's precision."""
    if isinstance(options.damping, str):
        fail_value(f"damping of method 'laplace' must be a number in [0, 1) or 'auto'; got {options.damping!r}.")
    loglik, gaussian = address_of(problem.likelihood.loglik, LOGLIK_SIGNATURE), problem.noise_prior is not None
    marginal, cuts = options.curvature == "marginal", np.zeros(0)
    rule = Rule(step=1.0, power=1.0, theta=np.nan, loglik=loglik, gaussian=gaussian, marginal=marginal, cuts=cuts)
    columns = product_slots(problem.free, len(problem.shape), places_of_modes)
    how: dict[str, Any] = {"pace": Pace(1.0 - options.damping), "dtype": options.dtype, "slots": laplace_slots}
    keeps = options.schedule == "modewise"
    return first_state(problem, executor, columns=columns, rule=rule, keeps_cavities=keeps, **how)


def step(state: MessageState, problem: Problem, options: Laplace, executor: Executor) -> tuple[MessageState, Sweep]:
    """One sweep: every message once."""
    return sweep(state, problem, options, executor, LAPLACE_PASS)


LAPLACE = Method(
    name="laplace",
    needs=("loglik",),
    options=Laplace,
    init=init,
    step=step,
    finish=finish,
    source="Smola, Vishwanathan & Eskin, Laplace propagation",
    capabilities=Capabilities(
        learns_prior=True,
        side_information=True,
        thresholds=True,
        heteroscedastic=("dispersion",),
        fixes_rows=True,
        workers=True,
        passes_messages=True,
        regrows=True,
    ),
    trial_sweeps=lambda options: options.anneal,
    resume=resume,
    of_entries=lambda state: state.own.sums,
)
