"""Choices between fits by what each says of entries that it was not given: hold out, score, compare beyond chance.

So are chosen the weight of a point estimate's prior, how a method goes on from a pilot, the columns of a fit, its noise
and the power of its values; each part of this file says by which fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Posterior
from tensorcep.core.chance import THRESHOLDS, beyond_chance
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import AnyMethod, LeftOut, run
from tensorcep.core.settings import Settings
from tensorcep.cp.fit.warm_start import PATIENCE, PILOT_SWEEPS, Asked, Found, grown, guarded, of_logs, run_of
from tensorcep.cp.fitted.alignment import layout_of, shared_scales
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.init.residual import strengths, used, used_columns, with_spectral_start
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.problem import Problem, with_entries_of
from tensorcep.cp.model.subsets import places_telling, problem_in_memory, some_of
from tensorcep.cp.plan.plan import Pilot, Plan

# How much the prior of a point estimate counts: by entries that it was not given.
#
# The density of labels or counts has no noise whose variance could stand before the prior, and the maximum of both is
# far from what a posterior predicts where entries per row are few: on 20,000 simulated labels of 300 rows the log loss
# was 2.9 with the prior as it is and 0.65 with ten times its log density, a constant's 0.69.

WEIGHTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Where the search among them begins.
FIRST = 10.0

# What a plan's fit without the entries at some places says of them, or None.
Fit = Callable[[Plan, np.ndarray], LeftOut | None]


def weighs_prior(plan: Plan) -> bool:
    """Whether the weight of the prior is to be found: not of one that was given, or with a start that was."""
    options, problem = plan.settings.get_params(), plan.problem
    chosen = options.get("prior_weight") == "auto" and isinstance(options.get("ridge"), str)
    return chosen and plan.spectral and problem.noise_prior is None


def with_best_weight(plan: Plan, place: np.ndarray, asked: Fit) -> tuple[Plan, LeftOut | None]:
    """The plan with the weight that predicts the entries at these places best, and what a fit without them says.

    From the first weight down, or up where that does not help, until it gets worse.
    """
    found: dict[float, LeftOut | None] = {}

    def score(k: int) -> float:
        if WEIGHTS[k] not in found:
            found[WEIGHTS[k]] = asked(weighted(plan, WEIGHTS[k]), place)
        told = found[WEIGHTS[k]]
        return -np.inf if told is None else float(told.score.mean())

    k = WEIGHTS.index(FIRST)
    step = -1 if score(k - 1) > score(k) else 1
    while 0 <= k + step < len(WEIGHTS) and score(k + step) > score(k):
        k += step
    return weighted(plan, WEIGHTS[k]), found[WEIGHTS[k]]


def weighted(plan: Plan, weight: float) -> Plan:
    """The plan whose prior counts so much."""
    return plan._replace(settings=copy(plan.settings).set_params(prior_weight=weight))


# How an engine that may follow the noise goes on from a pilot: by what entries say that it was not given.
#
# Message passing can leave what a pilot has found, for products of uncertain numbers are no Gaussians, and a learned
# prior then gives way: annealed sweeps are tried, then none where they lose some of it, and where a fit gets worse with
# every sweep it ends when it is best.


class Trial(NamedTuple):
    """A fit to some of the entries.

    Attributes
    ----------
    anneal : int
    sweeps : int
        After which it is best; 0 where it does not get worse.
    lost : float
        How much worse it then gets.
    good : float
        The mean log score then of the entries left out.
    left_out : LeftOut
        The score of each, and that by the pilot.
    start : (n_rows, R) float64
        The row means that it went on from, of a pilot that was not given these entries either.
    """

    anneal: int
    sweeps: int
    lost: float
    good: float
    left_out: LeftOut
    start: np.ndarray


def tried(plan: Plan) -> tuple[Plan, Trial | None]:
    """The plan with the annealing, and the sweeps, that predict entries left out best; and how it was tried.

    A fit that ends before a trial would is not tried: what it would say then is no judgement.
    """
    problem, anneal = plan.problem, plan.settings.get_params().get("anneal", 0)
    if plan.max_iter < anneal + PILOT_SWEEPS:
        return plan, None
    if plan.local is not None or problem.fixed is not None:
        return plan, None
    place = held_places(problem)
    if len(place) < THRESHOLDS.fewest:
        return plan, None
    others = problem_in_memory(problem, place)
    pilot = plan.pilots[0]
    found = grown(of_logs(pilot._replace(problem=with_entries_of(pilot.problem, others))), plan, place=place)
    if found is None or len(found.pilot.columns) < len(pilot.columns):
        return plan, None
    quick: Any = found.beside
    told = LeftOut(place, quick.log_density, quick.log_density, quick.mean, quick.spread)
    start = found.belief.mean[0]  # streams by cep predict worse after trials from rows of one size
    start = to_go_on_from(start, problem, plan.method) if plan.method.regrows else start
    own = pilot._replace(method=plan.method, problem=others._replace(start=start, of_entries=None))
    trials = [one for one in (_trial(own, anneal, plan, told),) if one is not None]
    least = THRESHOLDS.least_difference
    if anneal and not (trials and trials[0].lost < least and trials[0].good >= found.good - least):
        trials += [one for one in (_trial(own, 0, plan, told),) if one is not None]
    if not trials:
        return plan, None
    best = max(trials, key=lambda one: one.good)
    if best.anneal != anneal:
        plan = plan._replace(settings=copy(plan.settings).set_params(anneal=best.anneal))
    if best.sweeps:
        plan = plan._replace(max_iter=min(plan.max_iter, best.sweeps))
    return plan, best


def to_go_on_from(rows: np.ndarray, problem: Problem, method: AnyMethod) -> np.ndarray:
    """The rows of a pilot for another method, each component of the same size in all its modes.

    A learned prior says too much of rows far below 1. Components that the pilot does not use are 0 where they could
    grow again: on labels Laplace's log loss was 0.65 with them, 0.56 without, that of a constant 0.69.
    """
    free = problem.every_free
    if method.regrows:
        rows = rows.copy()
        rows[:, np.setdiff1d(np.flatnonzero(free.all(axis=0)), used_columns(problem, rows))] = 0.0
    modes = [tuple(np.flatnonzero(own).tolist()) for own in free.T]
    layout = layout_of(problem.shape, modes, np.ones(len(rows), dtype=bool))
    return np.asarray(rows * np.repeat(shared_scales(rows, layout), problem.shape, axis=0))


def _trial(own: Pilot, anneal: int, plan: Plan, told: LeftOut) -> Trial | None:
    """A fit with so many annealed sweeps, until entries left out gain no more; None where it leaves finite numbers."""
    settings = copy(plan.settings).set_params(anneal=anneal)
    with threads_of(plan.n_threads) as executor:
        asked = Asked(own, own.problem, plan.problem, told.place, anneal, executor)

        def fit() -> Asked:
            done = run_of(own, settings, own.problem, plan, anneal + PILOT_SWEEPS, asked)
            if asked.last < done.n_iter:
                asked.ask(done.n_iter, done.posterior)
            return asked

        if guarded(fit, lambda asked: asked.best.belief) is None:
            return None
    lost = asked.score - asked.now if asked.vain >= PATIENCE else 0.0
    sweeps = asked.best.sweeps + anneal if lost > 0.0 else 0
    beside: Any = asked.best.beside
    told = told._replace(score=beside.log_density, mean=beside.mean, variance=beside.spread)
    return Trial(anneal, sweeps, lost, asked.score, told, np.asarray(own.problem.start))


# A choice between pilots by a tenth of the entries, which they are not given.


def best_by_score(scores: np.ndarray) -> int:
    """Which of the log scores (m, n) of n entries is the best on average; the first unless it is so beyond chance."""
    gain = scores[1:] - scores[0]
    with np.errstate(invalid="ignore"):
        best = int(np.argmax(np.nan_to_num(gain.mean(axis=1), nan=-np.inf)))
        return 1 + best if beyond_chance(gain[best]) else 0


def falls_short(scores: np.ndarray, others: np.ndarray) -> bool:
    """Whether log scores (n,) are worse than others of the same entries, beyond chance and by what matters."""
    matters = bool(others.mean() - scores.mean() > THRESHOLDS.least_difference)
    return matters and best_by_score(np.stack([scores, others])) == 1


def best_of_plans(plans: Sequence[Plan]) -> tuple[int, Found | None]:
    """Which plan's pilot predicts a tenth of the entries, which it is not given, best, and what that pilot found.

    The first, and nothing found, of few entries.
    """
    place = held_places(plans[0].problem)
    if len(place) < THRESHOLDS.fewest:
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
    if len(place) < THRESHOLDS.fewest:
        return False
    few, many = (min(one.pilots, key=_beside_components) for one in (plan, wider))
    found = _flown(plan, few, place)
    if found is None or used(_sizes(found)).mean() < THRESHOLDS.mostly:
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


# A choice between problems by entries that quick mean-field fits leave out.
#
# The same entries are fitted in every problem from the same start, of very many a part; those left out are a fifth, of
# few entries each fifth in turn. The problem that predicts them best by the mean log score is taken if it beats the
# first by more than chance. A problem that after some fits is behind the best
# one by far more is not fitted to the others. One whose means are far off is not taken whatever its scores: the
# logarithm of values between two bounds says well how small ones differ, and predicts some large ones ten times too
# high.

# Sweeps of a fit after the annealed ones.
SWEEPS = 30
# As many parts of the entries are left out in turn as hold so many entries; and the most entries.
ENOUGH, MOST = 4000, 100_000
# An entry speaks against a problem by so many nats at most: a few far out would otherwise drown what all others say.
MOST_WORSE = 10.0
# A problem is given up when it is surely behind after so many fits, of which one may be unlucky, or when the mean
# square of its errors is far off that of the first, in geometric mean over as many parts at least: of values with long
# tails a single one may be.
FITS = 2


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
        return np.asarray(loss.mean(axis=1) > THRESHOLDS.surely * loss.std(axis=1) / np.sqrt(scores.shape[1]))


def far_off(squares: np.ndarray) -> np.ndarray:
    """Which of the sums of squared errors (m, k) of k parts are far above the first one's."""
    with np.errstate(all="ignore"):
        return np.asarray(np.log(squares / squares[0]).mean(axis=1) > np.log(THRESHOLDS.most_off))


def _folds(problem: Problem) -> list[np.ndarray]:
    """Places in the lanes of the entries that are left out, as many fits as there are; none of few entries."""
    told = places_telling(problem)
    n = len(told)
    if n < THRESHOLDS.fewest_in_folds:
        return []
    folds = np.array_split(generator(problem.seed, Stream.HELD_OUT).permutation(told), THRESHOLDS.folds)
    return folds[: -(-ENOUGH * THRESHOLDS.folds // n)]


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
