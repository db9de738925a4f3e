"""Sites: the Gaussian factors exp(nu f - tau f^2 / 2 + logc) that stand for the likelihood terms.

They are kept in natural parameters with a log scale, so that a site of negative or zero precision is as good as any
other: no square root of its variance is ever taken. With a power other than 1 (power EP) a cavity leaves out that
power of a site, and the moments are those of that power of the likelihood term.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import kernel


class Sites(NamedTuple):
    """Natural parameters and log scale of every site.

    Attributes
    ----------
    tau : (n,) or (n, k, k) float64
        Precision; negative values are allowed.
    nu : (n,) or (n, k) float64
        Precision times mean.
    logc : (n,) float64
        Log scale.
    """

    tau: np.ndarray
    nu: np.ndarray
    logc: np.ndarray


@kernel
def cavity(f, s, tau, nu, power):
    """Return mean and variance of N(f, s) divided by the site to this power; the variance is <= 0 if there is none."""
    left = 1.0 - power * s * tau
    return (f - power * s * nu) / left, s / left


@kernel
def site_from_tilted(m, v, alpha, beta):
    """Return tau and nu of the site that turns the cavity N(m, v) into the moments that alpha and beta describe."""
    # Source: Minka (2008), EP: a quick reference, eqs 30 and 31.
    left = 1.0 - v * beta  # the new variance over v: the caller checks that v beta < 1
    tau = beta / left
    return tau, alpha / left + m * tau


@kernel
def log_integral(m, v, tau, nu):
    """Return log of the integral of N(f; m, v) exp(nu f - tau f^2 / 2); NaN where it does not exist."""
    pull = nu - tau * m
    grown = 1.0 + v * tau
    return (nu - 0.5 * tau * m) * m + 0.5 * pull * pull * v / grown - 0.5 * math.log(grown)


@kernel
def damp(old, new, damping):
    """Return the natural parameter with the fraction `damping` of the old one kept."""
    return new + damping * (old - new)


@kernel
def site_change(f, s, dtau, dnu):
    """Return how far a change of a site moves N(f, s): relative in precision, or in standard deviations of the mean."""
    return max(abs(dtau) * s, abs(dnu - f * dtau) * math.sqrt(s))
