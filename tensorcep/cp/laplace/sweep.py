"""The compiled pass of Laplace propagation over the entries of a CP model.

For each entry the joint mode of its K rows under cavities x likelihood is found first. The latent value is linear in
each row, with the product z_k of the other rows as its gradient. Linearising it in all rows at once leaves a concave
problem whose solution lies at u_k = m_k + lam S_k z_k, with one scalar lam = l'(s) and s = a + V l'(s), where a is the
linearised value at the cavity means and V = sum_k z_k' S_k z_k. That is a Gauss-Newton step for K R numbers at the
price of a scalar equation; it points uphill, so halving it until the density rises makes the iteration safe.
"""

from __future__ import annotations

from typing import NamedTuple

from tensorcep.core.jit import block_kernel, call_loglik
from tensorcep.cp.cep.sweep import cavity_moments, store_message
from tensorcep.kernels.lanes import add_outer, symmetric_times_vector
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, copy, dot, multiply, scale, subtract

# The mode is found when a step is shorter than this, in posterior standard deviations (squared below).
STEP_SQUARED = 1e-12
MAX_STEPS, MAX_HALVINGS, MAX_SCALAR = 50, 30, 60
SCALAR_TOL = 1e-11
# Rounding in the log density must not look like a fall.
ROUNDING = 1e-12


class LaplaceRule(NamedTuple):
    """How messages are computed.

    Attributes
    ----------
    step : float
        Fraction of the way from the old to the new natural parameters.
    theta : float
        The likelihood's parameter, for likelihoods without a noise posterior.
    loglik : int
        Address of the likelihood's log-likelihood kernel.
    gaussian : bool
        Gaussian likelihood: theta is the expected noise precision, which has messages of its own.
    marginal : bool
        Curvature of the marginal of a row rather than of the row given the others (see `_message`).
    power : float
        Factor of new messages: 1, or more while annealing.
    """

    step: float
    theta: float
    loglik: int
    gaussian: bool
    marginal: bool
    power: float


class LaplaceSlots(NamedTuple):
    """Where things lie in the work array of one thread (slots of one lane array; see `laplace_layout`)."""

    S: int  # K packed cavity covariances
    m: int  # K cavity means
    vt: int  # K inverse Cholesky factors
    u: int  # K rows at the mode; u_k = m_k + S_k dual_k
    dual: int
    z: int  # K gradients of f
    Sz: int
    du: int  # K steps
    d_dual: int
    trial: int  # K rows to try
    T: int  # message
    eta: int
    a: int  # packed work
    t: int  # vector work
    inv_diag: int
    v: int  # K variances z_k' S_k z_k
    y: int
    theta: int
    ok: int
    site_ok: int
    zero: int
    one: int
    f: int
    density: int
    V: int
    f_cavity: int
    lam: int
    low: int
    high: int
    f_at: int
    value: int
    d1: int
    d2: int
    q: int  # 3 coefficients of the quadratic part along a step
    length: int
    done: int
    scalar: int  # 2 work slots
    size: int


def laplace_layout(K: int, R: int) -> LaplaceSlots:
    """Slots of the work array for order K and rank R."""
    P = R * (R + 1) // 2
    sizes = [K * P, K * R, K * R * R, *[K * R] * 7, P, R, P, R, R, K, *[1] * 17, 3, 1, 1, 2]
    first = [0]
    for size in sizes:
        first.append(first[-1] + size)
    return LaplaceSlots(*first)


@block_kernel
def _gradients(K, R, w, at):
    """z_k, S_k z_k and v_k at the rows u; V, their sum, and the value at the cavity means of f linearised there."""
    copy(w, at.V, w, at.zero, w, 0, 1, w, 0)
    copy(w, at.f_cavity, w, at.f, w, 0, 1, w, 0)
    for k in range(K):
        z, first = at.z + k * R, 1 if k == 0 else 0
        copy(w, z, w, at.u + first * R, w, 0, R, w, 0)
        for j in range(first + 1, K):
            if j != k:
                multiply(w, z, w, z, w, at.u + j * R, R, w, 0)
        symmetric_times_vector(w, at.S + k * (R * (R + 1) // 2), z, at.Sz + k * R, R)
        dot(w, at.v + k, w, z, w, at.Sz + k * R, R, w, 0)
        subtract(w, at.t, w, at.m + k * R, w, at.u + k * R, R, w, 0)
        dot(w, at.scalar, w, z, w, at.t, R, w, 0)
        for lane in range(LANES):
            w[at.V, lane] += w[at.v + k, lane]
            w[at.f_cavity, lane] += w[at.scalar, lane]


@block_kernel
def _solve_scalar(loglik, w, at):
    """lam = l'(s) at s = a + V l'(s) by Newton steps in a bracket: l' falls, so s is between a and a + V l'(a)."""
    call_loglik(loglik, w[at.y], w[at.f_cavity], w[at.theta], w[at.value], w[at.d1], w[at.d2])
    for lane in range(LANES):
        far = w[at.f_cavity, lane] + w[at.V, lane] * w[at.d1, lane]
        w[at.low, lane] = min(w[at.f_cavity, lane], far)
        w[at.high, lane] = max(w[at.f_cavity, lane], far)
        w[at.f_at, lane] = min(max(w[at.f, lane], w[at.low, lane]), w[at.high, lane])
    for _ in range(MAX_SCALAR):
        call_loglik(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.d1], w[at.d2])
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
    call_loglik(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.lam], w[at.d2])


@block_kernel
def _direction(K, R, w, at):
    """The step to u_k = m_k + lam S_k z_k, and the quadratic form of u - m along it: q_0 + 2 t q_1 + t^2 q_2."""
    for j in range(3):
        copy(w, at.q + j, w, at.zero, w, 0, 1, w, 0)
    for k in range(K):
        u, du, dual, d_dual = at.u + k * R, at.du + k * R, at.dual + k * R, at.d_dual + k * R
        axpy(w, du, w, at.m + k * R, w, at.Sz + k * R, R, w, at.lam)
        subtract(w, du, w, du, w, u, R, w, 0)
        scale(w, d_dual, w, at.z + k * R, w, 0, R, w, at.lam)
        subtract(w, d_dual, w, d_dual, w, dual, R, w, 0)
        subtract(w, at.t, w, u, w, at.m + k * R, R, w, 0)
        for j in range(3):
            dot(w, at.scalar, w, dual if j == 0 else d_dual, w, du if j == 2 else at.t, R, w, 0)
            for lane in range(LANES):
                w[at.q + j, lane] += w[at.scalar, lane]


@block_kernel
def _latent_of_trial(K, R, w, at):
    """f_at = sum_r prod_k (u_k + length du_k)."""
    for k in range(K):
        axpy(w, at.trial + k * R, w, at.u + k * R, w, at.du + k * R, R, w, at.length)
    copy(w, at.t, w, at.trial, w, 0, R, w, 0)
    for k in range(1, K - 1):
        multiply(w, at.t, w, at.t, w, at.trial + k * R, R, w, 0)
    dot(w, at.f_at, w, at.t, w, at.trial + (K - 1) * R, R, w, 0)


@block_kernel
def _climb(loglik, K, R, w, at):
    """Go along the step, halved until the log density does not fall; returns whether all lanes are done."""
    for lane in range(LANES):
        w[at.length, lane] = 1.0 - w[at.done, lane]
    for halving in range(MAX_HALVINGS + 1):
        _latent_of_trial(K, R, w, at)
        call_loglik(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.d1], w[at.d2])
        falling = False
        for lane in range(LANES):
            t = w[at.length, lane]
            quadratic = w[at.q, lane] + t * (2.0 * w[at.q + 1, lane] + t * w[at.q + 2, lane])
            w[at.scalar, lane] = w[at.value, lane] - 0.5 * quadratic
            slack = ROUNDING * (1.0 + abs(w[at.density, lane]))
            if t > 0.0 and not w[at.scalar, lane] >= w[at.density, lane] - slack:
                falling = True
                w[at.length, lane] = 0.5 * t if halving < MAX_HALVINGS - 1 else 0.0
        if not falling:
            break
    copy(w, at.u, w, at.trial, w, 0, K * R, w, 0)
    axpy(w, at.dual, w, at.dual, w, at.d_dual, K * R, w, at.length)
    all_done = True
    for lane in range(LANES):
        t = w[at.length, lane]
        w[at.f, lane] = w[at.f_at, lane]
        if t > 0.0:
            w[at.density, lane] = w[at.scalar, lane]
        if not t * t * w[at.q + 2, lane] > STEP_SQUARED:
            w[at.done, lane] = 1.0
        else:
            all_done = False
    return all_done


@block_kernel
def _start_at_posterior(k, rows, mean, Lam, eta, w, at):
    """Start row k at its posterior mean, where the mode is at a fixed point; dual = eta - Lam u of its own message."""
    R = mean.shape[1]
    gather(rows, mean, w, at.u + k * R)
    copy(w, at.T, Lam, 0, w, 0, Lam.shape[0], w, 0)
    copy(w, at.dual + k * R, eta, 0, w, 0, R, w, 0)
    symmetric_times_vector(w, at.T, at.u + k * R, at.t, R)
    subtract(w, at.dual + k * R, w, at.dual + k * R, w, at.t, R, w, 0)


@block_kernel
def _find_mode(loglik, K, R, w, at):
    """From the rows u to their joint mode; z, v and V there, d1 and d2 of the log likelihood at f."""
    for p in range(K * R):
        copy(w, at.du + p, w, at.zero, w, 0, 1, w, 0)
        copy(w, at.d_dual + p, w, at.zero, w, 0, 1, w, 0)
    copy(w, at.length, w, at.zero, w, 0, 1, w, 0)
    _latent_of_trial(K, R, w, at)
    copy(w, at.f, w, at.f_at, w, 0, 1, w, 0)
    call_loglik(loglik, w[at.y], w[at.f], w[at.theta], w[at.density], w[at.d1], w[at.d2])
    subtract(w, at.trial, w, at.u, w, at.m, K * R, w, 0)
    dot(w, at.q, w, at.dual, w, at.trial, K * R, w, 0)
    for lane in range(LANES):
        w[at.density, lane] -= 0.5 * w[at.q, lane]
        w[at.done, lane] = 1.0 - w[at.ok, lane]
    for _ in range(MAX_STEPS):
        _gradients(K, R, w, at)
        _solve_scalar(loglik, w, at)
        _direction(K, R, w, at)
        if _climb(loglik, K, R, w, at):
            break
    _gradients(K, R, w, at)
    call_loglik(loglik, w[at.y], w[at.f], w[at.theta], w[at.value], w[at.d1], w[at.d2])


@block_kernel
def _message(k, marginal, R, w, at):
    """Message T = h z z' and eta = (l' + h f) z, which puts the row's mean at its mode.

    h is -l'' for the row given the others. With the others free, the Gauss-Newton curvature
    diag(S^-1) - l'' z z' of all K rows has an inverse whose block k is that with h = -l'' / (1 - l'' (V - v_k)).
    """
    for lane in range(LANES):
        h = max(0.0, -w[at.d2, lane])
        if marginal:
            h /= 1.0 + h * (w[at.V, lane] - w[at.v + k, lane])
        slope = w[at.d1, lane] + h * w[at.f, lane]
        w[at.scalar, lane] = h
        w[at.scalar + 1, lane] = slope
        w[at.site_ok, lane] = w[at.ok, lane] if abs(slope) < 1e300 and h < 1e300 else 0.0
    z = at.z + k * R
    for p in range(R * (R + 1) // 2):
        copy(w, at.T + p, w, at.zero, w, 0, 1, w, 0)
    scale(w, at.t, w, z, w, 0, R, w, at.scalar)
    add_outer(w, at.T, at.t, z, at.T, R)
    scale(w, at.eta, w, z, w, 0, R, w, at.scalar + 1)


@block_kernel
def _noise_message(K, marginal, a, b, total, step, w, at):
    """a = 1/2 and b = ((y - f)^2 + var f) / 2, with the variance of the linearised f under the new rows."""
    for lane in range(LANES):
        h, residual = -w[at.d2, lane], w[at.y, lane] - w[at.f, lane]
        variance = w[at.V, lane] / (1.0 + h * w[at.V, lane])
        if not marginal:
            variance = 0.0
            for k in range(K):
                variance += w[at.v + k, lane] / (1.0 + h * w[at.v + k, lane])
        if w[at.ok, lane] > 0.0:
            a[lane] += step * (0.5 - a[lane])
            b[lane] += step * (0.5 * (residual * residual + variance) - b[lane])
        total[0] += a[lane]
        total[1] += b[lane]


@block_kernel
def laplace_chunks(chunks, modes, entries, state, messages, sums, noise, rule, w, at):
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks ``chunks[0]:chunks[1]``.

    As `sweep_chunks` of CEP: new messages replace old ones in place, their sums go to ``sums``, and ``noise`` is the
    (a, b) of the noise posterior, whose messages are updated with those of the last mode.
    """
    K, R = entries.rows.shape[1], state.eta.shape[1]
    first_row, last_row = entries.offsets[modes[0]], entries.offsets[modes[1]]
    for c in range(chunks[0], chunks[1]):
        sums.Lam[c, first_row:last_row] = 0.0
        sums.eta[c, first_row:last_row] = 0.0
        sums.noise[c] = 0.0
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            for lane in range(LANES):
                w[at.ok, lane] = entries.weight[b, lane]
                w[at.y, lane] = entries.y[b, lane]
                w[at.theta, lane] = rule.theta
                if rule.gaussian:
                    w[at.theta, lane] = (noise[0] - messages.a[b, lane]) / (noise[1] - messages.b[b, lane])
            for k in range(K):
                rows = entries.rows[b, k]
                Lam, eta = messages.Lam[b, k], messages.eta[b, k]
                cavity_moments(rows, state.Lam, state.eta, Lam, eta, w, at, k, at.ok)
                _start_at_posterior(k, rows, state.mean, Lam, eta, w, at)
            _find_mode(rule.loglik, K, R, w, at)
            for k in range(modes[0], modes[1]):
                _message(k, rule.marginal, R, w, at)
                Lam, eta = messages.Lam[b, k], messages.eta[b, k]
                weight = entries.weight[b]
                skipped += store_message(entries.rows[b, k], weight, Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
            if rule.gaussian and modes[1] == K:
                _noise_message(K, rule.marginal, messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
        sums.skipped[c] = skipped
