"""What an entry of a count may have beside its value: an exposure, or a number of trials.

An exposure multiplies e^f: its log is known of the latent value beside the rows. A number of trials is the parameter of
the likelihood. Exposures count in units of their mean over the entries of the fit, so that exposures that are all the
same change nothing, and what a fit takes from the counts before it (scales, starts, levels) holds for their rates.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.sums import weighted_mean
from tensorcep.cp.model import Entries, pack_entries
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import all_coords
from tensorcep.likelihoods.record import Likelihood


def with_extents(entries: Entries, likelihood: Likelihood, extent: np.ndarray | None) -> Entries:
    """Entries with their extents (N,), in the order of the input."""
    if extent is None:
        return entries
    if likelihood.extent == "exposure":
        return entries._replace(known=_in_lanes(entries, np.log(extent)[entries.permutation]))
    return entries._replace(theta=_in_lanes(entries, extent[entries.permutation], fill=1.0))


def _in_lanes(entries: Entries, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
    lanes = np.full(entries.y.shape, fill)
    lanes.ravel()[: len(values)] = values
    return lanes


def some_entries(problem: Problem, places: np.ndarray) -> Entries:
    """The entries at these places in the lanes alone."""
    entries = problem.entries
    packed = pack_entries(all_coords(entries)[places], entries.y.ravel()[places], problem.shape)
    at = places[packed.permutation]
    known = _in_lanes(packed, entries.known.ravel()[at]) if len(entries.known) else entries.known
    theta = _in_lanes(packed, entries.theta.ravel()[at], fill=1.0) if len(entries.theta) else entries.theta
    return packed._replace(known=known, theta=theta)


def some_of(problem: Problem, places: np.ndarray) -> Problem:
    """The problem of the entries at these places in the lanes alone, with their powers."""
    entries, power = some_entries(problem, places), None
    if problem.power is not None:
        power = _in_lanes(entries, problem.power.ravel()[places[entries.permutation]])
    return problem._replace(entries=entries, power=power)


def extents_at(problem: Problem, places: np.ndarray) -> np.ndarray | None:
    """The extents (n,) of the entries at these places in the lanes; None where they have none."""
    entries = problem.entries
    if len(entries.known):
        return np.asarray(np.exp(entries.known.ravel()[places]))
    return entries.theta.ravel()[places] if len(entries.theta) else None


def known_at(problem: Problem, places: np.ndarray) -> np.ndarray | float:
    """What is known beside the rows of the latent values (n,) of the entries at these places in the lanes."""
    known = problem.entries.known
    return known.ravel()[places] if len(known) else 0.0


def plain_values(
    y: np.ndarray, likelihood: Likelihood, extent: np.ndarray | None, weight: np.ndarray | None = None
) -> np.ndarray:
    """What counts y (N,) tell of those at the mean exposure; of trials, the share of successes, within (0, 1).

    Of an exposure below the mean the count is filled up with as many as the mean, by weights (N,), expects.
    """
    if extent is None:
        return y
    if likelihood.extent == "trials":
        return (y + 0.5) / (extent + 1.0)
    return np.where(extent < 1.0, y + weighted_mean(y, weight) * (1.0 - extent), y / np.maximum(extent, 1.0))
