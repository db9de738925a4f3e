"""Which pilots fly (`flights`), and which one is the best."""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import threads_of
from tensorcep.cp.flights import ROUNDS, Flown, beside_chains, from_dispersion, grown
from tensorcep.cp.from_spectra import modes_of_products, shown
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem, with_entries_of
from tensorcep.cp.sampled import enough_entries, problem_in_memory
from tensorcep.cp.telling import number_telling

# From so many entries on, spectra tell what a pilot leaves over, and chains of all columns take more than ten seconds.
MANY = 50_000
# Columns that explain at least this share of the values by themselves deserve to be columns of their own.
LEAST_SHOWN = 0.05


def fly_all(plan: Plan, place: np.ndarray, least: float = -np.inf) -> list[Flown]:
    """Every pilot that stays finite, those of fewer columns first, without the entries at these places.

    The one of all columns flies where it is likely to be the best: columns that others do not have say much, or say
    what others leave over. Below `least`, the mean log score of others, a pilot does not look for more, and the one of
    all columns stays where it is.
    """
    others = problem_in_memory(plan.problem, place)
    many = number_telling(others) >= MANY
    flown: list[Flown] = []
    for number in np.argsort([len(pilot.columns) for pilot in plan.pilots], kind="stable").tolist():
        pilot = plan.pilots[number]
        whole = len(pilot.columns) == plan.problem.rank
        behind = bool(flown) and score_of(best_of(flown)) < least
        if whole and flown and many and (behind or not _lacks_some(flown, plan, others)):
            continue
        rounds = ROUNDS if not whole or len(plan.pilots) == 1 else 0  # what pairs of modes say, it has to find, too
        found = grown(pilot._replace(problem=with_entries_of(pilot.problem, others)), plan, rounds, place, least)
        if found is not None:
            beside = found.beside or beside_chains(found.belief, plan.problem, place)
            problem = from_dispersion(with_entries_of(found.pilot.problem, pilot.problem), found.belief)
            pilot = found.pilot._replace(problem=problem)
            flown.append(Flown(pilot, number, found.belief.mean[0], beside, found.sweeps))
    return flown


def best_of(flown: list[Flown]) -> Flown:
    """The pilot that predicts the entries left out best; the first in the plan where there are none."""
    if not len(flown[0].beside.mean):
        return min(flown, key=lambda one: one.number)
    return max(flown, key=score_of)


def score_of(flown: Flown) -> float:
    """The mean log score of the entries left out; the least of all where there are none."""
    scores = flown.beside.log_density
    return float(scores.mean()) if len(scores) else -np.inf


def _lacks_some(flown: list[Flown], plan: Plan, given: Problem) -> bool:
    """Whether the data, or enough of them, show main effects or pairs of modes of which the best pilot has none."""
    best, free = best_of(flown), plan.problem.free
    if free is None:
        return False
    others = np.delete(free, best.pilot.columns, axis=1)
    others = others[:, ~others[modes_of_products(free)].all(axis=0)]
    problem = with_entries_of(best.pilot.problem, given)
    enough = enough_entries(problem)
    problem = problem if enough is None else enough
    with threads_of(plan.n_threads) as executor:
        alone = shown(problem, others, executor=executor) >= LEAST_SHOWN
        return alone or shown(problem, others, best.mean, executor) > 0.0
