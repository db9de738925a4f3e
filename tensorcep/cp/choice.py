"""A choice between fits by what each says of entries that it was not given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcep.core.chance import beyond_chance
from tensorcep.cp.flights import Found, grown, of_logs
from tensorcep.cp.from_spectra import strengths, used, used_columns
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.plan import Pilot, Plan
from tensorcep.cp.problem import with_entries_of
from tensorcep.cp.sampled import problem_in_memory
from tensorcep.cp.trials import FEWEST, LEAST_LOSS

# Where fits use a smaller share of their components than this, more would find nothing; the fit by chance leaves some.
MOSTLY = 0.8


def best_by_score(scores: np.ndarray) -> int:
    """Which of the log scores (m, n) of n entries is the best on average; the first unless it is so beyond chance."""
    gain = scores[1:] - scores[0]
    with np.errstate(invalid="ignore"):
        best = int(np.argmax(np.nan_to_num(gain.mean(axis=1), nan=-np.inf)))
        return 1 + best if beyond_chance(gain[best]) else 0


def falls_short(scores: np.ndarray, others: np.ndarray) -> bool:
    """Whether log scores (n,) are worse than others of the same entries, beyond chance and by what matters."""
    return best_by_score(np.stack([scores, others])) == 1 and bool(others.mean() - scores.mean() > LEAST_LOSS)


def best_of_plans(plans: Sequence[Plan]) -> tuple[int, Found | None]:
    """Which plan's pilot predicts a tenth of the entries, which it is not given, best, and what that pilot found.

    The first, and nothing found, of few entries.
    """
    place = held_places(plans[0].problem)
    if len(place) < FEWEST:
        return 0, None
    flown = [_flown(plan, plan.pilots[0], place) for plan in plans]
    scores = np.stack([_scored(found, place) for found in flown])
    best = best_by_score(scores) if len(plans) > 1 and np.isfinite(scores[0]).all() else 0
    return best, flown[best]


def components_in_use(found: Found) -> int:
    """How many components say something beside the strongest column, main effects aside."""
    columns = used_columns(found.pilot.problem, found.belief.mean[0])
    return int(_components(found.pilot)[columns].sum())


def needs_more_components(plan: Plan, wider: Plan) -> bool:
    """Whether a fit uses most of its components, and more of them predict entries that were left out better.

    That is asked of the pilots of components alone, where there are such. They are not given a tenth of the entries.
    """
    place = held_places(plan.problem)
    if len(place) < FEWEST:
        return False
    few, many = (min(one.pilots, key=_beside_components) for one in (plan, wider))
    found = _flown(plan, few, place)
    if found is None or used(_sizes(found)).mean() < MOSTLY:
        return False
    scores = np.stack([_scored(found, place), _scored(_flown(wider, many, place), place)])
    return bool(np.isfinite(scores).all()) and best_by_score(scores) == 1


def _sizes(found: Found) -> np.ndarray:
    """What its components say."""
    return strengths(found.pilot.problem, found.belief.mean[0])[_components(found.pilot)]


def _components(pilot: Pilot) -> np.ndarray:
    """Which of its columns are free in all modes."""
    return np.asarray(pilot.problem.every_free.all(axis=0))


def _beside_components(pilot: Pilot) -> tuple[bool, int]:
    """Whether it has none, and how many other columns."""
    own = _components(pilot)
    return not own.any(), int((~own).sum())


def _flown(plan: Plan, pilot: Pilot, place: np.ndarray) -> Found | None:
    """What a pilot finds without the entries at these places."""
    others = problem_in_memory(plan.problem, place)
    return grown(of_logs(pilot._replace(problem=with_entries_of(pilot.problem, others))), plan, place=place)


def _scored(found: Found | None, place: np.ndarray) -> np.ndarray:
    """The log scores of the entries left out; -inf where a pilot found nothing."""
    return np.full(len(place), -np.inf) if found is None or found.beside is None else found.beside.log_density
