"""Which pilots fly (`flights`), and with which entries: of many a sample tells which one is worth a flight with all."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.extents import some_entries
from tensorcep.cp.flights import ROUNDS, Flown, Found, beside_chains, grown
from tensorcep.cp.from_spectra import shown
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.model import Entries
from tensorcep.cp.plan import Pilot, Plan
from tensorcep.cp.sampled import entries_in_memory

# From so many entries on, spectra tell what a pilot leaves over, and chains of all columns take more than ten seconds.
MANY = 50_000
# Columns that explain at least this share of the values by themselves deserve to be columns of their own.
LEAST_SHOWN = 0.05
# Of more entries than the last number so many are looked at first, if these are so many for each row.
SCOUTED, SCOUTED_PER_ROW, MOST_FLOWN = 100_000, 20, 200_000
# Standard errors from which a difference is no chance.
SURE = 2.0


def fly_all(plan: Plan, place: np.ndarray) -> list[Flown]:
    """Every pilot that stays finite, those of fewer columns first, without the entries at these places.

    Of more entries than `MOST_FLOWN` a sample tells which pilot is the best, which then goes on with all of them.
    """
    packed = entries_in_memory(plan.problem, place)
    if len(packed.permutation) <= MOST_FLOWN or SCOUTED_PER_ROW * sum(plan.problem.shape) > SCOUTED:
        return _fly(plan, place, packed)  # a sample of a few entries a row costs as much, and tells little
    own = np.sort(generator(plan.problem.seed, Stream.SCOUTS).permutation(len(packed.permutation))[:SCOUTED])
    scouts = _fly(plan, place, some_entries(plan.problem._replace(entries=packed), own))
    return _further(scouts, plan, place, packed) or _fly(plan, place, packed)


def _fly(plan: Plan, place: np.ndarray, packed: Entries) -> list[Flown]:
    """Every pilot that stays finite, with these entries.

    The one of all columns flies where it is likely to be the best: columns that others do not have say much, or say
    what others leave over.
    """
    flown: list[Flown] = []
    for number in np.argsort([len(pilot.columns) for pilot in plan.pilots], kind="stable").tolist():
        pilot = plan.pilots[number]
        whole = len(pilot.columns) == plan.problem.rank
        if whole and flown and len(packed.permutation) >= MANY and not _lacks_some(flown, plan, packed):
            continue
        rounds = ROUNDS if not whole or len(plan.pilots) == 1 else 0  # what pairs of modes say, it has to find, too
        found = grown(pilot._replace(problem=pilot.problem._replace(entries=packed)), plan, rounds, place)
        flown += _arrived(pilot, number, found, plan, place)
    return flown


def _arrived(pilot: Pilot, number: int, found: Found | None, plan: Plan, place: np.ndarray) -> list[Flown]:
    """What a pilot has found, if that is finite."""
    if found is None:
        return []
    beside = found.beside or beside_chains(found.belief, plan.problem, place)
    return [Flown(pilot, number, found.belief.mean[0], beside, found.sweeps)]


def _further(scouts: list[Flown], plan: Plan, place: np.ndarray, packed: Entries) -> list[Flown]:
    """The pilot that is the best with a sample, with all entries; and that of all columns, if they show more."""
    if not scouts:
        return []
    chosen = _smallest_of_best(scouts)
    flown = _flown_further(chosen, plan, place, packed)
    missed = [one for one in scouts if len(one.pilot.columns) == plan.problem.rank and one is not chosen]
    if flown and missed and _leaves_some(flown[0], plan, packed):
        flown += _flown_further(missed[0], plan, place, packed)
    return flown


def _flown_further(scout: Flown, plan: Plan, place: np.ndarray, packed: Entries) -> list[Flown]:
    """A pilot with all entries, from where a sample has led it."""
    pilot = scout.pilot
    known = pilot._replace(problem=pilot.problem._replace(entries=packed))
    whole = len(pilot.columns) == plan.problem.rank and len(plan.pilots) > 1
    found = grown(known, plan, 0 if whole else ROUNDS, place, scout.mean)
    return _arrived(pilot, scout.number, found, plan, place)


def _smallest_of_best(flown: list[Flown]) -> Flown:
    """The pilot of the fewest columns whose predictions are worse than the best ones by no more than chance."""
    best = best_of(flown)
    for one in sorted(flown, key=lambda one: len(one.pilot.columns)):
        loss = best.beside.log_density - one.beside.log_density
        if not len(loss) or loss.mean() <= SURE * loss.std() / np.sqrt(len(loss)):
            return one
    return best


def best_of(flown: list[Flown]) -> Flown:
    """The pilot that predicts the entries left out best; the first in the plan where there are none."""
    if not len(flown[0].beside.mean):
        return min(flown, key=lambda one: one.number)
    return max(flown, key=lambda one: float(one.beside.log_density.mean()))


def _lacks_some(flown: list[Flown], plan: Plan, packed: Entries) -> bool:
    """Whether the data show main effects or pairs of modes of which the best pilot has no columns."""
    best, free = best_of(flown), plan.problem.free
    if free is None:
        return False
    problem = best.pilot.problem._replace(entries=packed)
    return shown(problem, _others(best, free)) >= LEAST_SHOWN or _leaves_some(best, plan, packed)


def _leaves_some(flown: Flown, plan: Plan, packed: Entries) -> bool:
    """Whether a pilot leaves main effects or pairs of modes over of which it has no columns."""
    free = plan.problem.free
    if free is None:
        return False
    return shown(flown.pilot.problem._replace(entries=packed), _others(flown, free), flown.mean) > 0.0


def _others(flown: Flown, free: np.ndarray) -> np.ndarray:
    """The columns (K, n) of main effects and pairs that a pilot does not have."""
    others = np.delete(free, flown.pilot.columns, axis=1)
    return np.asarray(others[:, ~others.all(axis=0)])
