"""Prior and posterior of the factor rows: independent Gaussians in natural parameters, all modes packed in one array.

Row i of mode k is packed row ``offsets[k] + i``. A precision matrix is packed by its lower triangle, row by row
(P = R*(R+1)//2 numbers).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class GammaNoise(NamedTuple):
    """Gamma posterior of a noise precision: shape a and rate b."""

    a: float
    b: float

    @property
    def precision(self) -> float:
        """Posterior mean of the precision."""
        return self.a / self.b

    @property
    def variance(self) -> float:
        """Posterior mean of the noise variance, E[1/tau] (b / a where that mean does not exist)."""
        return self.b / (self.a - 1.0) if self.a > 1.0 else self.b / self.a


class Dispersion(NamedTuple):
    """Gamma posteriors of the dispersion r of negative-binomial counts: shapes a and rates b, both (m,).

    m is 1 when all entries share one (`mode` is None), otherwise the rows of that mode.
    """

    mode: int | None
    a: np.ndarray
    b: np.ndarray


class ModePrior(NamedTuple):
    """One Gaussian prior for the rows of each mode, where it was learned: mean (K, R) and precision (K, R, R)."""

    mean: np.ndarray
    precision: np.ndarray


class Posterior(NamedTuple):
    """What the deterministic methods return: the natural parameters of every factor row, and the noise.

    Attributes
    ----------
    shape : tuple of int
        Rows of each mode.
    rank : int
    Lam : (n_rows, P) float64
        Packed precision of each row.
    eta : (n_rows, R) float64
        Natural mean (precision times mean) of each row.
    noise : GammaNoise or None
        Posterior of the Gaussian noise precision; None for likelihoods without one.
    seen : (n_rows,) bool
        Whether a training entry touches the row.
    dispersion : Dispersion or None
        Posterior of the dispersion of negative-binomial counts.
    mode_prior : ModePrior or None
        The learned prior of the rows of each mode; None where the prior was given.
    """

    shape: tuple[int, ...]
    rank: int
    Lam: np.ndarray
    eta: np.ndarray
    noise: GammaNoise | None
    seen: np.ndarray
    dispersion: Dispersion | None = None
    mode_prior: ModePrior | None = None


class Draws(NamedTuple):
    """What a sampler returns: draws of every factor row and of the likelihood's parameter.

    Attributes
    ----------
    shape : tuple of int
    rank : int
    rows : (n_chains, n_draws, n_rows, R) float64
    theta : (n_chains, n_draws, m) float64 or None
        Draws of the noise precision or the dispersion: m = 1, or one per row of `theta_mode`.
    theta_mode : int or None
        The mode whose rows have a parameter of their own; None when all entries share one.
    seen : (n_rows,) bool
    unknown : (n_chains, n_draws, K, R) float64 or None
        A draw of one more row of each mode, where the rows' prior is learned; None where it was given.
    """

    shape: tuple[int, ...]
    rank: int
    rows: np.ndarray
    theta: np.ndarray | None
    theta_mode: int | None
    seen: np.ndarray
    unknown: np.ndarray | None = None


class PointEstimate(NamedTuple):
    """What an optimiser returns: one value of every factor row, without uncertainty.

    Attributes
    ----------
    shape : tuple of int
    rank : int
    rows : (n_rows, R) float64
    theta : float or None
        Estimate of the noise precision; None for likelihoods without one.
    seen : (n_rows,) bool
    """

    shape: tuple[int, ...]
    rank: int
    rows: np.ndarray
    theta: float | None
    seen: np.ndarray


class Mixture(NamedTuple):
    """Equally likely posteriors, of runs from different starts; the first is the one that fits its data best.

    A product of factors has many equivalent and many nearly as good explanations; each run finds one of them, and what
    they disagree in is uncertain.

    Attributes
    ----------
    members : tuple of Posterior
        At least one, all of one shape and rank.
    """

    members: tuple[Posterior, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of each mode."""
        return self.members[0].shape

    @property
    def rank(self) -> int:
        """Number of columns."""
        return self.members[0].rank

    @property
    def seen(self) -> np.ndarray:
        """Whether a training entry touches the row, (n_rows,) bool."""
        return self.members[0].seen


Result = Posterior | Draws | PointEstimate | Mixture


def first_member(result: Result) -> Posterior | Draws | PointEstimate:
    """The best posterior of a mixture; any other result as it is."""
    return result.members[0] if isinstance(result, Mixture) else result
