"""Compiled sweeps of Gaussian EP over sites on f_i = offset_i + a_i'u, u ~ N(0, I) a priori."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import call_tilted, kernel
from tensorcep.ep.power import power_tilted
from tensorcep.kernels.sites import cavity, damped, log_integral, site_change, site_from_tilted

# With a power below 1, the part of a latent value's precision that a whole step must leave.
LEAST_PRECISION = 0.1


class Rows(NamedTuple):
    """The rows a_i in compressed form (those of a dense matrix hold every column), and the offsets of f."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    offset: np.ndarray


class Term(NamedTuple):
    """The likelihood terms: observations, parameters (the same number for every entry) and kernels by address.

    `address` is that of `tilted`, or that of `loglik` when the power is not 1.
    """

    y: np.ndarray
    theta: np.ndarray
    address: int
    power: float


class Work(NamedTuple):
    """Buffers: five numbers per entry of a block, h (d,), one entry's f and s, and the (4, 1) of `power_tilted`."""

    m: np.ndarray
    v: np.ndarray
    logz: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    h: np.ndarray
    f: np.ndarray
    s: np.ndarray
    one: np.ndarray


@kernel
def block_moments(term, first, last, work):
    """Write logz, alpha and beta of the terms first..last at the cavities in work.m, work.v."""
    n = term.y.shape[0]
    size = last - first
    p = term.theta.shape[0] // n
    y, theta = term.y[first:last], term.theta[p * first : p * last]
    if term.power == 1.0:
        call_tilted(
            term.address, y, work.m[:size], work.v[:size], theta, work.logz[:size], work.alpha[:size], work.beta[:size]
        )
        return
    for j in range(size):
        work.logz[j], work.alpha[j], work.beta[j] = power_tilted(
            term.address, y[j : j + 1], work.m[j], work.v[j], theta[p * j : p * (j + 1)], term.power, work.one
        )


@kernel
def cavities(first, last, f, s, term, old, work):
    """Write the cavities of the sites first..last to work.m, work.v; the variance is -1 where there is none.

    It is 0 where f is known, as for a row of zeros.
    """
    for j in range(last - first):
        m, v = cavity(f[j], s[j], old.tau[first + j], old.nu[first + j], term.power)
        good = 0.0 <= v < np.inf and abs(m) < np.inf
        work.m[j], work.v[j] = (m, v) if good else (0.0, -1.0)


@kernel
def renew(first, last, f, s, term, old, new, damping, work):
    """Write the damped new sites first..last from the cavities and the moments in `work`; see `propose`."""
    power, worst, skipped = term.power, 0.0, 0
    for j in range(last - first):
        i = first + j
        m, v, logz, alpha, beta = work.m[j], work.v[j], work.logz[j], work.alpha[j], work.beta[j]
        if not (v >= 0.0 and v * beta < 1.0 and abs(alpha) < np.inf and abs(logz) < np.inf):
            new.tau[i], new.nu[i], new.logc[i] = old.tau[i], old.nu[i], old.logc[i]
            skipped += 1
            continue
        tau, nu = site_from_tilted(m, v, alpha, beta)
        dtau, dnu = tau / power - old.tau[i], nu / power - old.nu[i]
        worst = max(worst, site_change(f[j], s[j], dtau, dnu))
        if 1.0 + dtau * s[j] < LEAST_PRECISION:
            dtau, dnu = min(power, 1.0) * dtau, min(power, 1.0) * dnu
        new.tau[i] = damped(old.tau[i], old.tau[i] + dtau, damping)
        new.nu[i] = damped(old.nu[i], old.nu[i] + dnu, damping)
        new.logc[i] = (logz - log_integral(m, v, power * new.tau[i], power * new.nu[i])) / power
    return worst, skipped


@kernel
def propose(first, last, f, s, term, old, new, damping, work):
    """Write the damped new sites first..last, given mean f and variance s of each latent value under the posterior.

    Returns the largest undamped change and the number of sites left as they were, because the cavity or the new
    posterior would not be a Gaussian. With a power P, (cavity x term^P) gives the site to the power P. For P < 1 the
    whole step may then leave no Gaussian; the fraction P of it is the new posterior itself, which is one.

    Source: Minka (2008), eqs 22-33; Minka (2004), Power EP, sec. 3.
    """
    cavities(first, last, f, s, term, old, work)
    block_moments(term, first, last, work)
    return renew(first, last, f, s, term, old, new, damping, work)


@kernel
def sequential_sweep(rows, term, sites, mean, cov, damping, work):
    """Refine every site once, in order, and the posterior N(mean, cov) of u with each; O(n d^2).

    Returns the largest undamped change and the number of sites left as they were.

    Source: Minka (2008), eqs 44 and 45, for the change of a site's natural parameters.
    """
    d = mean.shape[0]
    h, f, s = work.h, work.f, work.s
    worst, skipped = 0.0, 0
    for i in range(term.y.shape[0]):
        h[:] = 0.0
        f[0], s[0] = rows.offset[i], 0.0
        for at in range(rows.start[i], rows.start[i + 1]):
            column, x = rows.column[at], rows.value[at]
            f[0] += x * mean[column]
            for b in range(d):
                h[b] += x * cov[column, b]
        for at in range(rows.start[i], rows.start[i + 1]):
            s[0] += rows.value[at] * h[rows.column[at]]
        tau, nu = sites.tau[i], sites.nu[i]
        change, left_out = propose(i, i + 1, f, s, term, sites, sites, damping, work)
        worst, skipped = max(worst, change), skipped + left_out
        dtau, dnu = sites.tau[i] - tau, sites.nu[i] - nu
        if dtau == 0.0 and dnu == 0.0:
            continue
        shrink = dtau / (1.0 + dtau * s[0])
        shift = (dnu - dtau * f[0]) / (1.0 + dtau * s[0])
        for a in range(d):
            mean[a] += shift * h[a]
            c = shrink * h[a]
            for b in range(d):
                cov[a, b] -= c * h[b]
    return worst, skipped
