"""The joint mode of the K rows of an entry under cavities x likelihood, for a block of lanes.

The latent value is linear in each row, with the product z_k of the other rows as its gradient. Linearising it in all
rows at once leaves a concave problem whose solution lies at u_k = m_k + lam S_k z_k, with one scalar lam = l'(s) and
s = a + V l'(s), where a is the linearised value at the cavity means and V = sum_k z_k' S_k z_k. That is a Gauss-Newton
step for K R numbers at the price of a scalar equation; it points uphill, so halving it until the density rises makes
the iteration safe.
"""

from __future__ import annotations

from tensorcep.core.compile import call_loglik, inlined
from tensorcep.cp.messages.columns import offset_mean, table_products
from tensorcep.kernels.lanes import symmetric_times_vector
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, copy, dot, multiply, scale, subtract

# The mode is found when a step is shorter than this, in posterior standard deviations (squared below).
STEP_SQUARED = 1e-12
MAX_STEPS, MAX_HALVINGS, MAX_SCALAR = 50, 30, 60
SCALAR_TOL = 1e-11
# Rounding in the log density must not look like a fall.
ROUNDING = 1e-12


@inlined
def _gradient(k, columns, K, R, w, at, z):
    """Slots z = the elementwise product of the rows `trial` of the other modes; of their free columns, if not all."""
    if columns.z.shape[2] > 0:
        table_products(columns.z[k], w, z)
        return
    first = 1 if k == 0 else 0
    copy(w, z, at.trial + first * R, R)
    for j in range(first + 1, K):
        if j != k:
            multiply(w, z, z, at.trial + j * R, R)


@inlined
def _gradients(columns, K, R, w, at):
    """z_k, S_k z_k and v_k at the rows u, which `trial` holds too; V, the sum of v_k, and the linearised f at m."""
    copy(w, at.V, at.zero, 1)
    copy(w, at.f_cavity, at.f, 1)
    for k in range(K):
        z = at.z + k * R
        _gradient(k, columns, K, R, w, at, z)
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
        axpy(w, at.f_at, at.f_at, at.known, 1, at.one)
        return
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
        call_loglik(loglik, w[at.y], w[at.f_at], w[at.theta], w[at.value], w[at.d1], w[at.d2])
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
def start_at_posterior(k, rows, mean, Lam, eta, w, at):
    """Start row k at its posterior mean, where the mode is at a fixed point; dual = eta - Lam u of its own message."""
    R = mean.shape[1]
    gather(rows, mean, w, at.u + k * R)
    copy(w, at.T, (Lam, 0), Lam.shape[0])
    copy(w, at.dual + k * R, (eta, 0), R)
    symmetric_times_vector(w, at.T, at.u + k * R, at.t, R)
    subtract(w, at.dual + k * R, at.dual + k * R, at.t, R)


@inlined
def find_mode(loglik, columns, K, R, w, at):
    """From the rows u to their joint mode; z, v and V there, d1 and d2 of the log likelihood at f."""
    w[at.du : at.du + K * R] = 0.0
    copy(w, at.length, at.zero, 1)
    _latent_of_trial(columns, K, R, w, at)
    copy(w, at.f, at.f_at, 1)
    call_loglik(loglik, w[at.y], w[at.f], w[at.theta], w[at.density], w[at.d1], w[at.d2])
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
    call_loglik(loglik, w[at.y], w[at.f], w[at.theta], w[at.value], w[at.d1], w[at.d2])
