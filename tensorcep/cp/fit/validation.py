"""Entries left out of a fit: its scores of them, when it is to end by these, and which of several fits is the best.

Everything that a fit decides by trying goes by this: some entries are left out (`tensorcep.cp.calibration.holdout`),
quick fits of the others are scored by the log predictive density of those, and the first one is taken unless another is
better beyond chance, by two standard errors of the mean difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tensorcep.core.diagnostics import THRESHOLDS, beyond_chance
from tensorcep.core.executor import ALONE, Executor, threads_of
from tensorcep.core.loop import LeftOut, Run
from tensorcep.cp.calibration.holdout import Beside
from tensorcep.cp.fitted.predict import observed_logpdf
from tensorcep.cp.model import subsets
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Engine, Plan
from tensorcep.cp.posterior import Components, Posterior
from tensorcep.likelihoods.parameters.scale_mixture import EVEN

# After so many sweeps each time the entries left out are asked; a fit ends where their mean log score has not gained
# for so many times. A learned prior can shrink what annealed sweeps have found and keep little of it.
ASK_EVERY, PATIENCE = 3, 2

Fitted = TypeVar("Fitted")


def without(problem: Problem, place: np.ndarray) -> Problem:
    """The problem of the entries at other places."""
    return subsets.problem_in_memory(problem, place)._replace(of_entries=None)


def finite_or_none(fit: Callable[[], Fitted], numbers_of: Callable[[Fitted], Any] = lambda _: 0.0) -> Fitted | None:
    """What a fit leads to; None where that, or such numbers of it, leave the range, as wild counts can make them."""
    with np.errstate(all="ignore"):
        try:
            fitted = fit()
            return fitted if np.isfinite(numbers_of(fitted)).all() else None
        except (FloatingPointError, np.linalg.LinAlgError):
            return None


def scores_of(belief: Components, problem: Problem, place: np.ndarray, executor: Executor = ALONE) -> Beside:
    """What a Gaussian of all rows says of the entries at these places."""
    rows = rows_of(problem.entries, place)
    mean, spread, noise = np.empty(len(rows)), np.empty(len(rows)), 1.0
    if belief.theta is not None:
        theta, differs = belief.theta.values[0, 0], belief.theta.mode is not None and len(rows)
        noise = float(np.exp(-np.log(belief.theta.of(rows)).mean())) if differs else 1.0 / float(theta)
    y = problem.entries.y.ravel()[place]
    alpha = EVEN if belief.theta is None or belief.theta.uneven is None else float(belief.theta.uneven[0, 1])
    extent = subsets.extents_at(problem, place)
    density = observed_logpdf(problem.likelihood, belief, rows, y, executor, extent, (mean, spread))
    return Beside(density, mean + subsets.known_at(problem, place), spread, noise, alpha)


def scored_run(plan: Plan, place: np.ndarray, fit: Callable[[], Run]) -> LeftOut | None:
    """What a fit without the entries at these places of the plan says of them; None where it is not finite."""
    run = finite_or_none(fit, lambda one: one.posterior.components().mean)
    if run is None:
        return None
    with threads_of(plan.options.n_threads) as executor:
        scores, mean, variance, *_ = scores_of(run.posterior.components(), plan.problem, place, executor)
    return LeftOut(place, scores, scores, mean, variance) if np.isfinite(scores).all() else None


class EarlyStopping:
    """A callback that asks the entries left out, keeps what predicts them best, and stops where nothing is gained."""

    belief: Components  # the best so far, after so many `sweeps` beside the annealed ones; without covariances
    scores: Beside  # what it says of the entries left out; `score` is their mean, `now` that of the last time

    def __init__(self, engine: Engine, problem: Problem, of: Problem, place: np.ndarray, executor: Executor) -> None:
        self._method, self._problem, self._of, self._place = engine.method, problem, of, place
        self.anneal, self._executor = engine.settings.get_params()["anneal"], executor
        self.score, self.now, self.sweeps, self._vain, self._last = -np.inf, -np.inf, 0, 0, 0

    @property
    def lost(self) -> float:
        """How much worse than at its best the fit ended; 0 where it did not get worse."""
        return self.score - self.now if self._vain >= PATIENCE else 0.0

    def __call__(self, sweep: int, _: Any, state: Any) -> bool:
        after = sweep - self.anneal
        if after > 0 and after % ASK_EVERY == 0:
            self._ask(sweep, self._method.finish(state, self._problem))
        return self._vain >= PATIENCE

    def end(self, done: Run) -> None:
        """Ask once more after the last sweep, which may be the best."""
        if self._last < done.n_iter:
            self._ask(done.n_iter, done.posterior)

    def _ask(self, sweep: int, posterior: Posterior) -> None:
        belief = posterior.components()
        scores = scores_of(belief, self._of, self._place, self._executor)
        score, self._last = float(np.nan_to_num(scores.log_density.mean(), nan=-np.inf)), sweep
        self.now = score
        self._vain = 0 if score > self.score + THRESHOLDS.least_gain else self._vain + 1
        if score > self.score or self.score == -np.inf:
            self.score, self.sweeps = score, sweep - self.anneal
            self.belief, self.scores = belief._replace(cov=None), scores


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
