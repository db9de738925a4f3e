"""Names of the slots in which CEP works on one block of lanes, and the rule by which it makes messages."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import NamedTuple

import numpy as np

from tensorcep.cp.model.columns import Places
from tensorcep.kernels.layout import layout
from tensorcep.kernels.nearest import SCRATCH
from tensorcep.kernels.slots import LANES

# Where things lie in the work array of one thread, in this order (see `tensorcep.kernels.layout`).
Slots = namedtuple(
    "Slots",
    "S m vt "  # K + 1 packed cavity covariances (the last beside posterior moments), means, inverse Cholesky factors
    "G z Z2 "  # K second moments of the modes; moments of z
    "T eta g A "  # the message: precision and natural mean; the new mean is m + S g, the new covariance S - S A S
    "a t inv_diag full v Y Yt product "  # work space of the algebra
    "y theta ok site_ok zero one "  # the entry: value, parameter, whether it counts, whether its message is one
    "f_mean f_var logz alpha beta spread "  # its latent value, and the tilted moments there
    "precision pull error step power "  # the Gaussian observation of f for it, E[(y - f)^2], how messages are stored
    "known "  # what is known of the latent value beside the rows
    "offset square cross "  # E[c], E[c^2], E[z c] of the sum c of the columns that are clamped in the mode
    "Om Sz Om_m Om_Sz grad_alpha grad_beta "  # second order: Om = cov(z), products with it, gradients
    "m_Om_m m_Om_Sz Sz_Om_Sz trace_Om_S "  # its contractions of Om
    "h_m h_v at_m at_v alpha_at beta_at "  # its stencil: steps, points and values there
    "d_alpha d_beta "  # derivatives of alpha and beta by m, v, mm, mv, vv
    "by_z by_zz by_Om by_grad "  # factors of the terms
    "nodes "  # work space of the projection onto the nearest Gaussian
    "flat "  # work space without lanes
    "size",
)


@functools.cache
def cep_slots(K: int, R: int, C: int = 0) -> Slots:
    """Slots of the work array for order K and rank R, and C columns that are clamped."""
    P, Q = R * (R + 1) // 2, R * R
    sizes = {"S": (K + 1) * P, "m": (K + 1) * R, "vt": (K + 1) * Q, "G": K * P}
    sizes |= dict.fromkeys(("Z2", "T", "A", "a", "v", "Om"), P)
    sizes |= dict.fromkeys(("full", "Y", "Yt"), Q)
    vectors = ("z", "eta", "g", "t", "inv_diag", "cross", "Sz", "Om_m", "Om_Sz", "grad_alpha", "grad_beta")
    flat = -(-(P + R * C + C * (C + 1) // 2 + R + C) // LANES)
    return layout(Slots, **sizes, flat=flat, **dict.fromkeys(vectors, R), d_alpha=5, d_beta=5, nodes=SCRATCH)


def places_of_modes(K: int, R: int) -> list[Places]:
    """Where every mode's second moments and means lie."""
    at = cep_slots(K, R)
    return [Places(at.G + k * (R * (R + 1) // 2), at.m + k * R, at.one, at.zero) for k in range(K)]


class Rule(NamedTuple):
    """How messages are computed.

    Attributes
    ----------
    step : float
        Fraction of the way from the old to the new natural parameters.
    power : float
        Factor of new messages: 1, or more while annealing.
    theta : float
        The likelihood's parameter, for likelihoods without a noise posterior.
    tilted : int
        Address of the likelihood's tilted moments.
    gaussian : bool
        Gaussian likelihood: theta is the expected noise precision, which has messages of its own.
    side : float
        Gaussian likelihood with a limit: some values side y <= 0 say only that side times the noisy value is not above
        0. 0 where no value is censored.
    from_posterior : bool
        Take the other modes' moments from the posterior instead of the cavity.
    order : int
        1 or 2: order of the Taylor approximation.
    first, second : int
        Addresses of the first-order message of a likelihood that is not Gaussian, and of the second-order one, or 0
        where none is sent (`parts`).
    clamped : int
        Address of the products with columns that are clamped, or 0 where none is (`parts`).
    positive : bool
        Keep messages positive (see `update.first_order`).
    nearest : bool
        Project onto the nearest Gaussian in the Wasserstein distance, not the one of the same moments.
    narrow, loglik : int
        Addresses of that projection and of the log likelihood, or 0.
    tilted_noise : bool
        Messages to the noise count y in the moments of f (`update.squared_errors`).
    cuts : (L + 1,) float64
        Where ordered levels are cut; nothing for other likelihoods.
    """

    step: float
    power: float
    theta: float
    tilted: int
    gaussian: bool
    side: float
    from_posterior: bool
    order: int
    first: int
    second: int
    clamped: int
    positive: bool
    nearest: bool
    narrow: int
    loglik: int
    tilted_noise: bool
    cuts: np.ndarray
