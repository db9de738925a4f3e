"""A choice between problems by entries that quick mean-field fits leave out.

The same entries are fitted in every problem from the same start, of very many a part; those left out are a fifth, of
few entries each fifth in turn. The problem that predicts them best by the mean log score is taken if it beats the first
by more than chance: two standard errors of the difference. A problem that after some fits is behind the best one by far
more is not fitted to the others. One whose means are far off is not taken whatever its scores: the logarithm of values
between two bounds says well how small ones differ, and predicts some large ones ten times too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorcep.core.belief import Posterior
from tensorcep.core.loop import AnyMethod, run
from tensorcep.core.settings import Settings
from tensorcep.cp.choice import best_by_score
from tensorcep.cp.extents import some_of
from tensorcep.cp.from_spectra import with_spectral_start
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import rows_of
from tensorcep.cp.telling import places_telling

# Sweeps of a fit after the annealed ones.
SWEEPS = 30
# Parts of the entries, as many of which are left out in turn as hold so many entries; and the fewest entries, and most.
FOLDS, ENOUGH, FEWEST, MOST = 5, 4000, 100, 100_000
# An entry speaks against a problem by so many nats at most: a few far out would otherwise drown what all others say.
MOST_WORSE = 10.0
# A problem is given up when it is behind by so many standard errors after so many fits, of which one may be unlucky.
BEHIND, FITS = 4.0, 2
# A problem is given up when the mean square of its errors is so many times that of the first, in geometric mean over
# two parts at least: of values with long tails a single one may be far off.
MOST_OFF = 2.0


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
    # many starts would take longer than all else, and no choice was another with them
    problems = [one._replace(tries=False) for one in problems]
    n = len(problems[0].entries.permutation)
    if n > MOST:
        part = np.sort(generator(problems[0].seed, Stream.HELD_OUT).permutation(n)[:MOST])
        problems = [some_of(one, part) for one in problems]
    scores, left = np.empty((len(problems), 0)), np.arange(len(problems))
    squares: list[np.ndarray] = []
    folds = _folds(problems[0])
    for fit, place in enumerate(folds, 1):
        new = np.full((len(problems), len(place)), -np.inf)
        off = np.full(new.shape, np.inf)
        for i in left:
            found = run(method, _without(problems[i], place), settings, max_iter=sweeps, **how).posterior
            new[i] = _scores(found, problems[i], place)
            off[i] = _squares(found, problems[i], place)
        scores = np.concatenate([scores, np.maximum(new, new.max(axis=0) - MOST_WORSE)], axis=1)
        squares += [part.sum(axis=1) for part in np.array_split(off, FITS if len(folds) < FITS else 1, axis=1)]
        if len(squares) >= FITS and left[0] == 0:
            left = left[~far_off(np.stack(squares, axis=1))[left]]
        if fit >= FITS:
            left = left[~far_behind(scores[left])]
        if len(left) == 1:
            return int(left[0])
    if not scores.size:
        return 0
    return int(left[best_by_score(scores[left]) if left[0] == 0 else np.argmax(scores[left].mean(axis=1))])


def far_behind(scores: np.ndarray) -> np.ndarray:
    """Which of the log scores (m, n) of n entries are worse on average than the best by far more than chance."""
    with np.errstate(invalid="ignore"):
        loss = scores[np.argmax(np.nan_to_num(scores.mean(axis=1), nan=-np.inf))] - scores
        return np.asarray(loss.mean(axis=1) > BEHIND * loss.std(axis=1) / np.sqrt(scores.shape[1]))


def far_off(squares: np.ndarray) -> np.ndarray:
    """Which of the sums of squared errors (m, k) of k parts are far above the first one's."""
    with np.errstate(all="ignore"):
        return np.asarray(np.log(squares / squares[0]).mean(axis=1) > np.log(MOST_OFF))


def _folds(problem: Problem) -> list[np.ndarray]:
    """Places in the lanes of the entries that are left out, as many fits as there are; none of few entries."""
    told = places_telling(problem)
    n = len(told)
    if n < FEWEST:
        return []
    folds = np.array_split(generator(problem.seed, Stream.HELD_OUT).permutation(told), FOLDS)
    return folds[: min(FOLDS, -(-ENOUGH * FOLDS // n))]


def _without(problem: Problem, place: np.ndarray) -> Problem:
    """The problem without these entries, from a start that the others show."""
    kept = np.delete(np.arange(len(problem.entries.permutation)), place)
    known = some_of(problem, kept)
    return known if known.start is None else with_spectral_start(known)


def _scores(found: Posterior, problem: Problem, place: np.ndarray) -> np.ndarray:
    """Log predictive densities of the observations at these places."""
    rows, y = rows_of(problem.entries, place), problem.entries.y.ravel()[place]
    with np.errstate(all="ignore"):
        score = observed_logpdf(problem.likelihood, found.components(), rows, y) + problem.likelihood.log_slopes(y)
    return np.where(np.isfinite(score), score, -np.inf)


def _squares(found: Posterior, problem: Problem, place: np.ndarray) -> np.ndarray:
    """The squares of what the means of the observations at these places are off."""
    rows, z = rows_of(problem.entries, place), problem.entries.y.ravel()[place]
    likelihood, known = problem.likelihood, np.zeros(len(place))
    with np.errstate(all="ignore"):
        mean = observed_moments(likelihood, found.components(), rows)[0]
        off = mean - likelihood.quantile(0.5, z, known, known + np.inf)  # the observation, of which z may be a power
        return np.asarray(np.nan_to_num(off * off, nan=np.inf))
