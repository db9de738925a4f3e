"""Laplace propagation: the pass over entries, and the method."""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.compile import LOGLIK_SIGNATURE, address_of, block_kernel, inlined
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.cp.laplace.mode import find_mode, start_at_posterior
from tensorcep.cp.messages.cavities import clear_sums, kept_moments, load_values, store_message, store_noise
from tensorcep.cp.messages.columns import columns_of
from tensorcep.cp.messages.schedule import sweep
from tensorcep.cp.messages.sites import MessageState, Pace, finish, first_state
from tensorcep.cp.model.columns import Places
from tensorcep.cp.model.parameters import cuts_of, first_thresholds
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.settings import messages as passing
from tensorcep.kernels.lanes import add_outer, layout
from tensorcep.kernels.slots import LANES, dot, scale, subtract

# The compiled pass of Laplace propagation over the entries of a CP model: what is sent once the mode is known.

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

    As `cep.update.cep_chunks`: new messages replace old ones in place, their sums go to ``sums``, and ``noise`` is the
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


LAPLACE_PASS = Pass(
    laplace_chunks, over="chunks", reads=("rows.Lam", "rows.eta", "rows.mean"), keeps="messages", sums="sums"
)


# Laplace propagation (LP) for the CP model.
#
# As in CEP every entry sends each of its K rows a Gaussian message, and an update removes the entry's own messages from
# its rows (the cavities). LP then finds the joint mode of the K rows under cavities x likelihood, and stores the
# messages that turn the cavities into a Gaussian at that mode with the curvature there. Any likelihood with a log
# density serves.
#
# Source: Smola, Vishwanathan and Eskin, "Laplace propagation" (2003); the CEP paper (Wang and Zhe) compares with it.
# Where we differ from the comparison's code: the curvature is that of the likelihood (there it was replaced by 1e-6 I),
# the noise message has the residual at the mode and the variance around it, and damping acts on natural parameters.


def init(problem: Problem, options: passing.Laplace, executor: Executor) -> MessageState:
    """Messages that say nothing, and rows at the starting means with the prior's precision.

    Raises
    ------
    ValueError
        If the damping is adaptive.
    """
    if isinstance(options.damping, str):
        fail_value(f"damping of method 'laplace' must be a number in [0, 1) or 'auto'; got {options.damping!r}.")
    rule = Rule(
        step=1.0,
        power=1.0,
        theta=float(problem.likelihood.default_theta),
        loglik=address_of(problem.likelihood.loglik, LOGLIK_SIGNATURE),
        gaussian=problem.noise_prior is not None,
        marginal=options.curvature == "marginal",
        cuts=cuts_of(problem, first_thresholds(problem)),
    )
    return first_state(
        problem,
        executor,
        columns=columns_of(problem.free, len(problem.shape), places_of_modes),
        rule=rule,
        slots=laplace_slots,
        pace=Pace(1.0 - options.damping),
        dtype=options.dtype,
        keeps_cavities=options.schedule == "modewise",
    )


def step(
    state: MessageState, problem: Problem, options: passing.Laplace, executor: Executor
) -> tuple[MessageState, Sweep]:
    """One sweep: every message once."""
    return sweep(state, problem, options, executor, LAPLACE_PASS)


LAPLACE = Method(
    name="laplace",
    needs=("loglik",),
    options=passing.Laplace,
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
    of_entries=lambda state: state.sums,
)
