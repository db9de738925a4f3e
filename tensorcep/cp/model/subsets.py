"""Some of the entries of a problem, with what each has beside its value: folds, samples, those that tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcep.core.arrays import on_scratch, weighted_mean
from tensorcep.cp.model.entries import Entries, OfEach, all_coords, in_lanes, pack_entries
from tensorcep.cp.model.memmap import StoredColumns, pieces, without_places
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Likelihood

# What an entry of a count may have beside its value: an exposure, or a number of trials.
#
# An exposure multiplies e^f: its log is known of the latent value beside the rows. A number of trials is the parameter
# of the likelihood. Exposures count in units of their mean over the entries of the fit, so that exposures that are all
# the same change nothing, and what a fit takes from the counts before it (scales, starts, levels) holds for their
# rates.


def with_extents(entries: Entries, likelihood: Likelihood, extent: np.ndarray | None) -> Entries:
    """Entries with their extents (N,), in the order of the input."""
    if extent is None:
        return entries
    if likelihood.extent == "exposure":
        return entries._replace(known=in_lanes(entries, np.log(extent)[entries.permutation]))
    return entries._replace(theta=in_lanes(entries, extent[entries.permutation], fill=1.0))


def some_of(problem: Problem, places: np.ndarray) -> Problem:
    """The problem of the entries at these places in the lanes alone, with what each has beside its value."""
    entries, power = problem.entries, problem.power
    packed = pack_entries(all_coords(entries)[places], entries.y.ravel()[places], problem.shape)
    at = places[packed.permutation]
    known = in_lanes(packed, entries.known.ravel()[at]) if len(entries.known) else entries.known
    theta = in_lanes(packed, entries.theta.ravel()[at], fill=1.0) if len(entries.theta) else entries.theta
    power = None if power is None else in_lanes(packed, power.ravel()[at])
    return problem._replace(entries=packed._replace(known=known, theta=theta), power=power)


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


def plain_values(y: np.ndarray, likelihood: Likelihood, extent: OfEach, weight: OfEach = None) -> np.ndarray:
    """What counts y (N,) tell of those at the mean exposure; of trials, the share of successes, within (0, 1)."""
    # of an exposure below the mean the count is filled up with as many as the mean, by weights (N,), expects
    if extent is None:
        return y
    if likelihood.extent == "trials":
        return (y + 0.5) / (extent + 1.0)
    return np.where(extent < 1.0, y + weighted_mean(y, weight) * (1.0 - extent), y / np.maximum(extent, 1.0))


# Entries that are chosen by a keyed hash of their cells, and problems of those that memory has room for. Which entries
# are chosen depends on the key and on their coordinates, not on where they stand or how many others there are.

# Of more entries on scratch, so many are looked at for a start.
MOST_SAMPLED = 1 << 20
# Entries that show what is in a tensor: so many, and so many for every row, where each says as much as a real value.
ENOUGH, ENOUGH_OF_ROW = 1 << 18, 32


def chosen_by_hash(columns: Sequence[np.ndarray], share: float, key: int) -> np.ndarray:
    """Whether each cell, of whole numbers (n,) per mode, is among that share of all cells, (n,) bool."""
    mixed = np.full(len(columns[0]), np.uint64(key % 2**64))
    for column in columns:
        # the mixing of SplitMix64 (Steele, Lea and Flood 2014): a permutation that leaves nothing of their order
        mixed = (mixed ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def problem_in_memory(problem: Problem, without: np.ndarray | None = None) -> Problem:
    """A problem without the entries at some places; one on scratch with its entries, or a sample of them, in memory."""
    entries, n = problem.entries, len(problem.entries.permutation)
    if without is None and not on_scratch(entries.y):
        return problem
    few = not on_scratch(entries.y) or n <= MOST_SAMPLED
    places = np.arange(n) if few else _some_places(problem, MOST_SAMPLED / n)
    if without is not None:
        places = np.delete(places, without) if len(places) == n else np.setdiff1d(places, without)
    return some_of(problem, places)


def sampled_columns(source: StoredColumns, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (n, K) and values of entries on scratch in memory; of many a sample."""
    n, share = len(y), MOST_SAMPLED / max(1, len(y))
    places = np.arange(n)
    if n > MOST_SAMPLED:
        chosen = (chosen_by_hash([column[at] for column in source.columns], share, 0) for at in pieces(n))
        places = np.flatnonzero(np.concatenate([*chosen]))
    return np.stack([column[places] for column in source.columns], axis=1).astype(np.int64), y[places]


def enough_entries(problem: Problem) -> Problem | None:
    """The problem of enough of very many entries to find what is there; None where over half would be."""
    # a label says as much as p (1 - p) is beside 1/4, of the share of ones p; a count as much as its mean, or as a real
    # value
    n = len(problem.entries.permutation)
    y, observes = problem.entries.y.ravel()[:n], problem.likelihood.observes
    says = 1.0
    if observes == "labels":
        ones = float(np.mean(y > 0.0))
        says = 4.0 * ones * (1.0 - ones)
    elif observes == "counts":
        says = min(1.0, float(y.mean()))
    enough = max(ENOUGH, ENOUGH_OF_ROW * sum(problem.shape))
    return None if 2.0 * enough > says * n else some_of(problem, _some_places(problem, enough / (says * n)))


def _some_places(problem: Problem, share: float) -> np.ndarray:
    entries, n, found = problem.entries, len(problem.entries.permutation), []
    for at in pieces(n):
        blocks = entries.rows[at.start // LANES : -(-at.stop // LANES)]
        columns = [blocks[:, k].ravel()[: at.stop - at.start] for k in range(blocks.shape[1])]
        found.append(at.start + np.flatnonzero(chosen_by_hash(columns, share, problem.seed)))
    return np.concatenate(found)


# Weights of entries in what is taken from their values before and beside a fit: means, scales, starts, hold-outs.
#
# An entry of weight 0 is not there, and one whose weight goes to 0 must come to the same. Means, scales and fits, those
# quick ones among them, take the weights as they are. Spectra, hold-outs, numbers of entries and all that is told from
# values one by one know only entries that are there or not: they take those that tell, beside which the others weigh
# next to nothing.

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


def telling_values(problem: Problem, place: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Values, and extents if they have some, of the entries that tell, without those at some places."""
    entries = problem.entries
    y = entries.y.ravel()[: len(entries.permutation)]
    if problem.power is None and not len(entries.known) and not len(entries.theta):
        return (y if place is None else without_places(y, place)), None
    which = places_telling(problem)
    which = which if place is None else np.setdiff1d(which, place)
    return y[which], extents_at(problem, which)
