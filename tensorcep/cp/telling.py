"""Weights of entries in what is taken from their values before and beside a fit: means, scales, starts, hold-outs.

An entry of weight 0 is not there, and one whose weight goes to 0 must come to the same. Means, scales and fits, those
of pilots among them, take the weights as they are. Spectra, hold-outs, numbers of entries and all that is told from
values one by one know only entries that are there or not: they take those that tell, beside which the others weigh next
to nothing.
"""

from __future__ import annotations

import numpy as np

from tensorcep.cp.extents import extents_at, some_of
from tensorcep.cp.problem import Problem, weights_of_entries
from tensorcep.cp.stored import without_places

# Entries that weigh less than this share of the usual weight do not tell.
LEAST_TELLING = 0.1


def usual_weight(weight: np.ndarray) -> float:
    """The weight (N,) up to which entries have half of all weight: neither few heavy nor many light ones move it."""
    ordered = np.sort(weight)
    shares = np.cumsum(ordered)
    return float(ordered[np.searchsorted(shares, 0.5 * shares[-1])])


def tells(weight: np.ndarray) -> np.ndarray:
    """Whether an entry of each of these weights (N,) tells, (N,) bool."""
    return np.asarray(weight >= LEAST_TELLING * usual_weight(weight))


def telling(weight: np.ndarray | None) -> np.ndarray | slice:
    """Which entries of these weights (N,) tell; all where they have none."""
    return slice(None) if weight is None else tells(weight)


def places_telling(problem: Problem) -> np.ndarray:
    """The places (n,) in the lanes of the entries that tell."""
    return np.arange(len(problem.entries.permutation))[telling(weights_of_entries(problem))]


def number_telling(problem: Problem) -> int:
    """How many entries tell."""
    return len(problem.entries.permutation) if problem.power is None else len(places_telling(problem))


def of_telling(problem: Problem) -> Problem:
    """The problem of the entries alone that tell, each of which counts once."""
    return problem if problem.power is None else some_of(problem, places_telling(problem))._replace(power=None)


def told_beside(problem: Problem, place: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Values, and extents if they have some, of the entries that tell, without those at some places."""
    entries = problem.entries
    y = entries.y.ravel()[: len(entries.permutation)]
    if problem.power is None and not len(entries.known) and not len(entries.theta):
        return (y if place is None else without_places(y, place)), None
    which = places_telling(problem)
    which = which if place is None else np.setdiff1d(which, place)
    return y[which], extents_at(problem, which)
