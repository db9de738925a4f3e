"""A choice between problems by entries that quick mean-field fits leave out.

The same entries are fitted in every problem from the same start, of very many a part; those left out are a fifth, of
few entries each fifth in turn. The problem that predicts them best by the mean log score is taken if it beats the first
by more than chance: two standard errors of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import rows_of

# Sweeps of a fit after the annealed ones.
SWEEPS = 30
# Parts of the entries, as many of which are left out in turn as hold so many entries; and the fewest entries, and most.
FOLDS, ENOUGH, FEWEST, MOST = 5, 4000, 100, 100_000
# An entry speaks against a problem by so many nats at most: a few far out would otherwise drown what all others say.
MOST_WORSE = 10.0


def best_problem(problems: Sequence[Problem], method: AnyMethod, settings: Settings, **how: Any) -> int:
    """Which problem predicts left out entries best; the first of few entries, or where chance could do it.

    Parameters
    ----------
    problems : sequence of Problem
        Of the same entries, in the same order.
    method, settings
        Of the fits.
    **how
        Their tolerance and threads, as `tensorcep.core.loop.run` takes them.
    """
    if len(problems) == 1:
        return 0
    sweeps = settings.get_params()["anneal"] + SWEEPS
    n = len(problems[0].entries.permutation)
    if n > MOST:
        part = np.sort(generator(problems[0].seed, Stream.HELD_OUT).permutation(n)[:MOST])
        problems = [one._replace(entries=some_entries(one, part)) for one in problems]
    scores = [
        np.stack(
            [
                _scores(run(method, known, settings, max_iter=sweeps, **how).posterior, problem, place)
                for problem, known in ((one, _without(one, place)) for one in problems)
            ]
        )
        for place in _folds(problems[0])
    ]
    if not scores:
        return 0
    each = np.concatenate(scores, axis=1)
    return best_by_score(np.maximum(each, each.max(axis=0) - MOST_WORSE))


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
    """Log predictive densities of the observations at these places."""
    rows, y = rows_of(problem.entries, place), problem.entries.y.ravel()[place]
    with np.errstate(all="ignore"):
        score = observed_logpdf(problem.likelihood, found.components(), rows, y) + problem.likelihood.log_slopes(y)
    return np.where(np.isfinite(score), score, -np.inf)
