"""What a method for the CP model infers from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import Capabilities
from tensorcep.cp.model.entries import Entries, in_lanes
from tensorcep.cp.posterior import GammaNoise
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.base import RowPrior

# What a method can do that learns the posterior of all rows from entries of any kind; each says what else it can.
USUAL = Capabilities(
    learns_prior=True, side_information=True, local=True, censors=True, thresholds=True, fixes_rows=True, workers=True
)


class FixedRows(NamedTuple):
    """Modes whose rows are known, and stay as they are; lines of rows of other modes are of no meaning."""

    modes: tuple[bool, ...]
    seen: np.ndarray  # (n_rows,) bool, of the rows of these modes those that entries told of
    Lam: np.ndarray  # (n_rows, P), natural parameters
    eta: np.ndarray  # (n_rows, R)
    draws: np.ndarray  # (D, n_rows, R), the same for samplers, which take one after the other


class Uneven(NamedTuple):
    """Noise that differs between the rows of a mode, or (None) between entries; of counts the dispersion, of rows."""

    # see scale_mixture and dispersion in tensorcep.likelihoods.parameters
    mode: int | None


class Problem(NamedTuple):
    """What a method infers from."""

    entries: Entries
    shape: tuple[int, ...]
    rank: int
    likelihood: Likelihood
    prior: RowPrior
    start: np.ndarray | None  # (n_rows, R), row means that a method starts from; None starts at the prior
    noise_prior: GammaNoise | None  # of the Gaussian noise precision; None for likelihoods without one
    seed: int = 0  # of the methods that draw random numbers
    free: np.ndarray | None = None  # (K, R) bool, columns that the prior does not clamp to 1 (`columns`); None: all
    fixed: FixedRows | None = None  # rows that are not learned
    power: np.ndarray | None = None  # (n_blocks, LANES), of each entry's likelihood, 0 in padding lanes; None where 1
    uneven: Uneven | None = None  # how noise, or the dispersion, differs; None where it is the same everywhere
    of_entries: Any = None  # what another run of the method has of the same entries (`core.loop.Method.of_entries`)
    tries: bool = True  # whether many quick starts are worth their time where spectra show nothing (`init.multistart`)

    def is_fixed(self, k: int) -> bool:
        """Whether the rows of mode k stay as they are."""
        return self.fixed is not None and self.fixed.modes[k]

    @property
    def weights(self) -> np.ndarray:
        """How much each entry counts, (n_blocks, LANES), 0 in padding lanes."""
        return self.entries.weight if self.power is None else self.power

    @property
    def total_weight(self) -> float:
        """How much all of them count together."""
        return float(len(self.entries.permutation) if self.power is None else self.power.sum())

    @property
    def weighted_entries(self) -> Entries:
        """The entries with these weights, for methods that send messages."""
        return self.entries._replace(weight=self.weights)

    @property
    def rows_of_fixed(self) -> np.ndarray:
        """Whether a packed row stays as it is, (n_rows,) bool."""
        return np.repeat([self.is_fixed(k) for k in range(len(self.shape))], self.shape)

    @property
    def every_free(self) -> np.ndarray:
        """Columns that are not clamped, (K, R) bool."""
        return np.ones((len(self.shape), self.rank), dtype=bool) if self.free is None else self.free

    @property
    def rows_free(self) -> np.ndarray:
        """The same of every row, (n_rows, R) bool."""
        return self.every_free.repeat(self.shape, axis=0)


def weights_of_entries(problem: Problem) -> np.ndarray | None:
    """How much each entry counts, (N,) in the order of the lanes; None where all count once."""
    return None if problem.power is None else problem.power.ravel()[: len(problem.entries.permutation)]


def with_powers(problem: Problem, power: np.ndarray) -> Problem:
    """The problem whose likelihoods are taken to these powers, (N,) in the order of the input."""
    return problem._replace(power=in_lanes(problem.entries, power[problem.entries.permutation]))


def with_entries_of(problem: Problem, other: Problem) -> Problem:
    """The problem with the entries of another one, and what these count."""
    return problem._replace(entries=other.entries, power=other.power)
