"""What a method for the CP model infers from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise
from tensorcep.cp.model import Entries
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.record import RowPrior


class Problem(NamedTuple):
    """What a method infers from.

    Attributes
    ----------
    prior : RowPrior
        Prior of the rows.
    start : (n_rows, R) float64 or None
        Row means that a method starts from; None starts at the prior.
    noise_prior : GammaNoise or None
        Prior of the Gaussian noise precision; None for likelihoods without one.
    seed : int
        Seed of the methods that draw random numbers.
    free : (K, R) bool or None
        Columns that are not clamped to 1 by the prior (`tensorcep.cp.columns`); None when all are free.
    """

    entries: Entries
    shape: tuple[int, ...]
    rank: int
    likelihood: Likelihood
    prior: RowPrior
    start: np.ndarray | None
    noise_prior: GammaNoise | None
    seed: int = 0
    free: np.ndarray | None = None
