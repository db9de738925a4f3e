"""The dispersion r of negative-binomial counts, one for all entries or one per row of a mode."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.checks import check_int
from tensorcep.cp.problem import Problem

# Where r starts, whatever its prior: from a large r (nearly Poisson counts) the factors first explain noise, and stay
# in a worse optimum when r falls.
DISPERSION_START = 1.0


class Groups(NamedTuple):
    """Which entries share a dispersion.

    Attributes
    ----------
    mode : int or None
    of_entry : (n_blocks, LANES) int64
        Number of the dispersion of every entry (0 in padding lanes).
    size : int
        How many dispersions there are.
    """

    mode: int | None
    of_entry: np.ndarray
    size: int

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums of (n_blocks, LANES) values over the entries of each dispersion."""
        return np.bincount(self.of_entry.ravel(), weights=values.ravel(), minlength=self.size)


def groups_of(problem: Problem, mode: int | None) -> Groups:
    """One group, or one per row of `mode`."""
    entries = problem.entries
    if mode is None:
        return Groups(None, np.zeros(entries.y.shape, dtype=np.int64), 1)
    of_entry = entries.rows[:, mode].astype(np.int64) - entries.offsets[mode]
    return Groups(mode, np.where(entries.weight > 0, of_entry, 0), problem.shape[mode])


def has_dispersion(problem: Problem) -> bool:
    """Whether the likelihood's parameter is a dispersion to infer."""
    return problem.likelihood.name == "negbinomial"


def check_dispersion_mode(mode: int | None, problem: Problem) -> None:
    """Refuse a mode that the tensor does not have."""
    if mode is not None:
        check_int("dispersion_mode", mode, 0, len(problem.shape) - 1)
