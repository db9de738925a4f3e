"""Which entries are censored: they say only that a Gaussian value t of mean f is not above 0."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.problem import Problem


def censored_lanes(problem: Problem) -> np.ndarray:
    """Whether the lane holds a censored entry, (n_blocks, LANES) bool."""
    entries = problem.entries
    if not problem.likelihood.censored:
        return np.zeros(entries.y.shape, dtype=bool)
    return (entries.y <= 0.0) & (entries.weight > 0.0)
