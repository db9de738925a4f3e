"""The state of a mean-field method: q = Gaussian rows x auxiliary variables of the entries x laws of the parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.arrays import beside
from tensorcep.cp.meanfield.columns import Orders
from tensorcep.cp.meanfield.sites import ExpectedSites
from tensorcep.cp.meanfield.stored import StoredSums
from tensorcep.cp.model.columns import FreeColumns
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.parameters import Learned, in_places_of
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.row_prior import PriorFactor
from tensorcep.cp.model.rows import RowState
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameters.base import Gamma, Groups
from tensorcep.likelihoods.parameters.scale_mixture import Evenness
from tensorcep.likelihoods.parameters.thresholds import ThresholdLaw
from tensorcep.likelihoods.parameters.zero_inflation import Beta
from tensorcep.priors.solvers.chain import Marginals


class UnevenFactors(NamedTuple):
    """Factors of the noise precision, where noise differs.

    Attributes
    ----------
    groups : Groups
        Which entries share a factor; of no meaning where each has its own.
    found : Evenness
        The precision that they multiply, and the shape of their prior.
    law : Gamma
        Those of rows; nothing where entries have them.
    mean : (n_blocks, LANES) float64
        The mean of every entry's.
    evidence : float
        What entries and factors add to the lower bound, at the precision and shape as they are.
    """

    groups: Groups
    found: Evenness
    law: Gamma
    mean: np.ndarray
    evidence: float


class MeanFieldState(NamedTuple):
    """Rows and what follows from them; rows have the free columns alone, Q of them.

    Attributes
    ----------
    small : Problem
        The problem in the free columns.
    orders : Orders or None
        None where no column is clamped.
    numbers : (n_rows, P), or (n_rows, P + Q + 1) with clamped columns
        Second moments of the rows; their means, and 1.
    sum_Z2, sum_yz : (n_rows, W), (n_rows, Q + C)
        Sums over the entries of a row, as of its last update (see `Orders`; W = P and C = 0 for the CP model).
    square : float
        E[sum of f^2] over the entries; of no meaning where entries have weights.
    augmentation : Augmentation or None
        None where no entry has an auxiliary variable.
    learned : Learned or None
        What is learned of the likelihood.
    law : Gamma
        Law of its parameter, which stays at the likelihood's own where nothing is learned.
    counts : tuple of three arrays
        The distinct pairs of a parameter and a count, and how many entries have each; empty where not needed.
    found : tuple of Marginals or None
        Of the rows of each mode that are one Gaussian (a series), as of their last update.
    cut : ThresholdLaw or None
        Law of the thresholds between ordered levels; they count as known, at its middle.
    uneven : UnevenFactors or None
        None where noise is the same everywhere.
    stored : StoredSums or None
        None for entries in memory; of others no latent values are kept.
    share : Beta or None
        Law of the share of structural zeros.
    """

    small: Problem
    columns: FreeColumns
    orders: Orders | None
    rows: RowState
    prior: PriorFactor
    numbers: np.ndarray
    by_row: EntriesByRow
    sum_Z2: np.ndarray
    sum_yz: np.ndarray
    square: float
    augmentation: Augmentation | None
    sites: ExpectedSites
    learned: Learned | None
    law: Gamma
    counts: tuple[np.ndarray, ...]
    sweeps: int
    found: tuple[Marginals | None, ...]
    cut: ThresholdLaw | None = None
    uneven: UnevenFactors | None = None
    stored: StoredSums | None = None
    share: Beta | None = None

    @property
    def f(self) -> np.ndarray:
        """E[f] of every entry, (n_blocks, LANES)."""
        return self.sites.f

    @property
    def learns_precision(self) -> bool:
        """Whether the entries have a precision that is learned."""
        return self.learned is not None and self.learned.parameter.is_precision

    def precision(self, power: float = 1.0) -> float:
        """E[tau] of the entries, by which their weights are multiplied, times `power`."""
        return power * float(self.law.a[0]) / float(self.law.b[0]) if self.learns_precision else power

    @property
    def weighted(self) -> bool:
        """Whether weights differ from 1."""
        return self.augmentation is not None and self.augmentation.weighted

    @property
    def matched(self) -> bool:
        """Whether what entries say is matched to the log likelihood, without an auxiliary variable."""
        return self.augmentation is not None and self.augmentation.matched

    def theta(self) -> np.ndarray:
        """The likelihood's parameter of every entry, (n_blocks, LANES)."""
        if self.learned is None or (self.learned.groups.mode is None and self.uneven is None):
            of_all = beside(self.sites.weight)
            of_all[:] = self.law.mean[0]
            return of_all
        theta = self.learned.groups.per_entry(self.law.mean)
        return theta if self.uneven is None else theta * np.where(self.uneven.mean > 0.0, self.uneven.mean, 1.0)

    def given(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take as y and theta of every entry, (n_blocks, LANES) each."""
        return in_places_of(problem, self.theta(), None if self.cut is None else self.cut.thresholds)
