"""Names of the slots in which CEP works on one block of lanes, and the rule by which it makes messages."""

from __future__ import annotations

from typing import NamedTuple

from tensorcep.cp.free_columns import Places
from tensorcep.kernels.layout import layout


class Slots(NamedTuple):
    """Where things lie in the work array of one thread (see `tensorcep.kernels.layout`)."""

    S: int  # K + 1 packed cavity covariances (the last for a cavity beside posterior moments)
    m: int  # K + 1 means
    vt: int  # K + 1 inverse Cholesky factors
    G: int  # K second moments
    z: int
    Z2: int
    T: int  # the message: precision and natural mean
    eta: int
    g: int  # the new mean is m + S g
    A: int  # the new covariance is S - S A S
    # work space of the algebra
    a: int
    t: int
    inv_diag: int
    full: int
    v: int
    Y: int
    Yt: int
    product: int
    # the entry: value, likelihood's parameter, whether it counts, whether its message is one
    y: int
    theta: int
    ok: int
    site_ok: int
    zero: int
    one: int
    # its latent value, and the tilted moments there
    f_mean: int
    f_var: int
    logz: int
    alpha: int
    beta: int
    spread: int
    # the Gaussian observation of f that stands for it, E[(y - f)^2], and how messages are stored
    precision: int
    pull: int
    error: int
    step: int
    power: int
    # the sum c of the columns that are clamped in the mode being updated: E[c], E[c^2], E[z c]; 0 without such
    offset: int
    square: int
    cross: int
    # second order: Om = cov(z), products with it, gradients, contractions of Om
    Om: int
    Sz: int
    Om_m: int
    Om_Sz: int
    grad_alpha: int
    grad_beta: int
    m_Om_m: int
    m_Om_Sz: int
    Sz_Om_Sz: int
    trace_Om_S: int
    # its stencil: steps, points and values there; derivatives of alpha and beta by m, v, mm, mv, vv; factors of terms
    h_m: int
    h_v: int
    at_m: int
    at_v: int
    alpha_at: int
    beta_at: int
    d_alpha: int
    d_beta: int
    by_z: int
    by_zz: int
    by_Om: int
    by_grad: int
    size: int


def cep_slots(K: int, R: int) -> Slots:
    """Slots of the work array for order K and rank R."""
    P, Q = R * (R + 1) // 2, R * R
    sizes = {"S": (K + 1) * P, "m": (K + 1) * R, "vt": (K + 1) * Q, "G": K * P}
    sizes |= dict.fromkeys(("Z2", "T", "A", "a", "v", "Om"), P)
    sizes |= dict.fromkeys(("full", "Y", "Yt"), Q)
    vectors = ("z", "eta", "g", "t", "inv_diag", "cross", "Sz", "Om_m", "Om_Sz", "grad_alpha", "grad_beta")
    return layout(Slots, **sizes, **dict.fromkeys(vectors, R), d_alpha=5, d_beta=5)


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
    censored : bool
        Gaussian likelihood with a limit: some values y <= 0 say only that the noisy value is not above 0.
    from_posterior : bool
        Take the other modes' moments from the posterior instead of the cavity.
    order : int
        1 or 2: order of the Taylor approximation.
    positive : bool
        Keep messages positive (see `update.first_order`).
    tilted_noise : bool
        Messages to the noise count y in the moments of f (`update.squared_errors`).
    """

    step: float
    power: float
    theta: float
    tilted: int
    gaussian: bool
    censored: bool
    from_posterior: bool
    order: int
    positive: bool
    tilted_noise: bool
