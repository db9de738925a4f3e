"""A choice between fits by what each says of entries that it was not given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcep.cp.flights import grown, of_logs
from tensorcep.cp.gibbs.held_out import held_places
from tensorcep.cp.plan import Plan
from tensorcep.cp.sampled import entries_in_memory

# The standard errors from which a gain is no chance, and the fewest entries that tell.
SURE, FEWEST = 2.0, 50


def best_by_score(scores: np.ndarray) -> int:
    """Which of the log scores (m, n) of n entries is the best on average; the first unless it is so beyond chance."""
    gain = scores[1:] - scores[0]
    with np.errstate(invalid="ignore"):
        mean, error = gain.mean(axis=1), gain.std(axis=1) / np.sqrt(gain.shape[1])
    best = int(np.argmax(np.nan_to_num(mean, nan=-np.inf)))
    return 1 + best if mean[best] > SURE * error[best] else 0


def best_of_plans(plans: Sequence[Plan]) -> int:
    """Which plan's pilot predicts a tenth of the entries, which it is not given, best; the first of few entries."""
    place = held_places(plans[0].problem)
    if len(place) < FEWEST:
        return 0
    packed, scores = entries_in_memory(plans[0].problem, place), []
    for plan in plans:
        pilot = plan.pilots[0]
        known = of_logs(pilot._replace(problem=pilot.problem._replace(entries=packed)))
        found = grown(known, plan, place=place)
        lost = np.full(len(place), -np.inf)
        scores.append(lost if found is None or found.beside is None else found.beside.log_density)
    return best_by_score(np.stack(scores)) if np.isfinite(scores[0]).all() else 0
