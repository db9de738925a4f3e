"""How the noise differs, told by entries that quick mean-field fits leave out: not, between rows of a mode, or entries.

Every kind of noise is fitted to the same entries from the same start; the others are a fifth, of few entries each fifth
in turn. The kind that predicts them best by the mean log score is taken if it beats the same noise everywhere by more
than chance: two standard errors of the difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.belief import Posterior
from tensorcep.core.loop import AnyMethod, run
from tensorcep.core.settings import Settings
from tensorcep.cp.choice import best_by_score
from tensorcep.cp.extents import some_entries
from tensorcep.cp.from_spectra import with_spectral_start
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.predict import observed_logpdf
from tensorcep.cp.problem import Problem, Uneven
from tensorcep.cp.rows import rows_of

# Sweeps of a fit after the annealed ones.
SWEEPS = 30
# Parts of the entries, as many of which are left out in turn as hold so many entries; and the fewest entries.
FOLDS, ENOUGH, FEWEST = 5, 4000, 100


def noise_by_score(problem: Problem, method: AnyMethod, settings: Settings, **how: Any) -> Uneven | None:
    """The kind of noise that predicts left out entries best; None where it is the same everywhere.

    Parameters
    ----------
    problem : Problem
        With one noise.
    method, settings
        Of a method whose noise may differ.
    **how
        The tolerance and threads of the fits, as `tensorcep.core.loop.run` takes them.
    """
    kinds: list[Uneven | None] = [None, *(Uneven(k) for k in range(len(problem.shape))), Uneven(None)]
    sweeps = settings.get_params()["anneal"] + SWEEPS
    scores = []
    for place in _folds(problem):
        known = _without(problem, place)
        fits = [run(method, known._replace(uneven=kind), settings, max_iter=sweeps, **how).posterior for kind in kinds]
        scores.append(np.stack([_scores(found, problem, place) for found in fits]))
    if not scores:
        return None
    return kinds[best_by_score(np.concatenate(scores, axis=1))]


def _folds(problem: Problem) -> list[np.ndarray]:
    """Places in the lanes of the entries that are left out, as many fits as there are; none of few entries."""
    n = len(problem.entries.permutation)
    if n < FEWEST:
        return []
    folds = np.array_split(generator(problem.seed, Stream.HELD_OUT).permutation(n), FOLDS)
    return folds[: min(FOLDS, -(-ENOUGH * FOLDS // n))]


def _without(problem: Problem, place: np.ndarray) -> Problem:
    """The problem without these entries, from a start that the others show."""
    kept = np.delete(np.arange(len(problem.entries.permutation)), place)
    known = problem._replace(entries=some_entries(problem, kept))
    return known if known.start is None else with_spectral_start(known)


def _scores(found: Posterior, problem: Problem, place: np.ndarray) -> np.ndarray:
    """Log predictive densities of the entries at these places."""
    rows, y = rows_of(problem.entries, place), problem.entries.y.ravel()[place]
    with np.errstate(all="ignore"):
        score = observed_logpdf(problem.likelihood, found.components(), rows, y)
    return np.where(np.isfinite(score), score, -np.inf)
