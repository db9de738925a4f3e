"""Messages of values that are censored at a lower limit, for one block of lanes of CEP.

A censored entry says of the noisy value t ~ N(f, 1 / tau) only that t <= 0. Under the cavity f has mean m and, with the
moments of all modes and of the clamped columns, variance v. The tilted moments (alpha, beta) there, at tau = E[tau],
turn the entry into a Gaussian pseudo-observation y' of f with a precision lam of its own,

    lam = beta / (1 - v beta),    lam y' = (alpha + beta m) / (1 - v beta),

with which the closed-form message of the Gaussian is computed. Since 0 < lam < tau messages stay positive definite.
"""

from __future__ import annotations

from tensorcep.core.jit import block_kernel, call_tilted
from tensorcep.cp.cep.columns import remove_offset
from tensorcep.kernels.slots import LANES, scale


@block_kernel
def censored_sites(tilted, w, at):
    """Precision and precision times value of the pseudo-observations to scalar 1 and 2; of others E[tau] and E[tau] y.

    Needs E[f] and E[f^2] in the slots f_mean and f_var, of which the second becomes the variance.
    """
    for lane in range(LANES):
        w[at.f_var, lane] = max(0.0, w[at.f_var, lane] - w[at.f_mean, lane] ** 2)
    call_tilted(tilted, w[at.y], w[at.f_mean], w[at.f_var], w[at.theta], w[at.logz], w[at.alpha], w[at.beta])
    for lane in range(LANES):
        m, v, alpha, beta = w[at.f_mean, lane], w[at.f_var, lane], w[at.alpha, lane], w[at.beta, lane]
        left = 1.0 / (1.0 - v * beta)
        censored = w[at.y, lane] <= 0.0
        w[at.scalar + 1, lane] = beta * left if censored else w[at.theta, lane]
        w[at.scalar + 2, lane] = (alpha + beta * m) * left if censored else w[at.theta, lane] * w[at.y, lane]


@block_kernel
def censored_message(structured, R, w, at):
    """T = lam Z2 and eta = lam (y' z - E[z c]), from what `censored_sites` wrote."""
    scale(w, at.T, w, at.Z2, w, 0, R * (R + 1) // 2, w, at.scalar + 1)
    scale(w, at.eta, w, at.z, w, 0, R, w, at.scalar + 2)
    if structured:
        remove_offset(at.scalar + 1, R, w, at)


@block_kernel
def censored_noise(a, b, total, step, w, at):
    """a = 1/2 and b = E[(t - f)^2] / 2 under the tilted law, where t = y if that is not censored.

    With s = v + 1 / tau: E[(t - m)^2] = s + s^2 (alpha^2 - beta), and given t the noise t - f has mean
    (t - m) / (tau s) and variance v / (tau s), as in `sweep.squared_error`.
    """
    for lane in range(LANES):
        y, v, theta = w[at.y, lane], w[at.f_var, lane], w[at.theta, lane]
        s = v + 1.0 / theta
        share = 1.0 / (theta * s)
        spread = s + s * s * (w[at.alpha, lane] ** 2 - w[at.beta, lane])
        if y > 0.0:
            spread = (y - w[at.f_mean, lane]) ** 2
        if w[at.ok, lane] > 0.0:
            a[lane] += step * (0.5 - a[lane])
            b[lane] += step * (0.5 * share * (share * spread + v) - b[lane])
        total[0] += a[lane]
        total[1] += b[lane]
