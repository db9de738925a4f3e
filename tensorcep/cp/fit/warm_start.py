"""Pilots: quick mean-field fits from the spectra of the data, without the entries that a sampler leaves out.

Which pilots of a plan fly (`fly_all`), and which one is the best (`best_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.chance import THRESHOLDS
from tensorcep.core.components import EVEN, Components
from tensorcep.core.executor import ALONE, Executor, threads_of
from tensorcep.core.loop import Callback, Run, run
from tensorcep.core.settings import Settings
from tensorcep.cp.fitted.predict import observed_logpdf
from tensorcep.cp.gibbs.held_out import Beside
from tensorcep.cp.init.residual import (
    NOTHING,
    modes_of_products,
    shown,
    used_columns,
    with_more_components,
    with_spectral_start,
)
from tensorcep.cp.model.active_columns import some_columns
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.problem import Problem, weights_of_entries, with_entries_of
from tensorcep.cp.model.subsets import (
    enough_entries,
    extents_at,
    known_at,
    number_telling,
    problem_in_memory,
    telling,
    told_beside,
)
from tensorcep.cp.plan.plan import REFIT_ANNEAL, Pilot, Plan
from tensorcep.likelihoods import get_likelihood

# Sweeps of a pilot after the annealed ones, at most; those of its fit to all entries.
PILOT_SWEEPS, REFIT_SWEEPS = 40, 10
# After so many sweeps each time the entries left out are asked; a pilot ends where their mean log score has not gained
# for so many times. A learned prior can shrink what annealed sweeps have found and keep little of it.
ASK_EVERY, PATIENCE = 3, 2
# Times that a pilot looks for more components.
ROUNDS = 6
# Sweeps over all of very many entries, where some of them have shown the way, and components beside those in use.
SWEEPS_OF_ALL, SPARE_COMPONENTS = REFIT_ANNEAL + ASK_EVERY, 3
# From this median on the log of a count tells its latent value to about a half; the prior shape of the noise of logs.
LARGE_COUNTS, NOISE_SHAPE = 5.0, 1e-3

Result = TypeVar("Result")


class Flown(NamedTuple):
    """A pilot, its number in the plan, the row means that it found, and what it says of the entries left out.

    `sweeps` is how many of its sweeps, after the annealed ones, led to them.
    """

    pilot: Pilot
    number: int
    mean: np.ndarray
    beside: Beside
    sweeps: int


class Found(NamedTuple):
    """What a pilot in these columns knows, after how many sweeps that were not annealed; of entries left out, too.

    `good` is the mean log score of the entries left out; without any the evidence lower bound.
    """

    pilot: Pilot
    belief: Components
    sweeps: int
    good: float
    beside: Beside | None = None


def grown(
    pilot: Pilot, plan: Plan, rounds: int = ROUNDS, place: np.ndarray | None = None, least: float = -np.inf
) -> Found | None:
    """What a pilot finds from the spectra of the data, and then of what it leaves over, until that is noise.

    Of very many entries enough are fitted first; then a few sweeps over all refine that, and what all leave over is
    searched once more. The search ends where entries that the pilot was not given, at these places of the plan's
    problem, gain no more; without any, where the bound does not. With such entries, sweeps over very many have the
    columns alone that were found to be in use. Nothing is searched beside a fit to all of what is below `least`. None
    where it leaves the finite numbers, as wild counts can make it.
    """
    again = copy(pilot.settings).set_params(anneal=REFIT_ANNEAL)

    def searched(of: Pilot, found: Found, least: float, thorough: bool = True) -> Found:
        for _ in range(0 if found.good < least else rounds):  # a bound may be nan
            more = with_more_components(of.problem, found.belief, thorough, executor)
            if more is None:
                break
            before, found = found, _fitted(of, again, from_dispersion(more, found.belief), plan, place)
            if found.good < before.good:
                return before
        return found

    def fit() -> Found:
        started = with_spectral_start(pilot.problem, executor=executor)
        enough = enough_entries(started)
        some = pilot if enough is None else pilot._replace(problem=with_entries_of(pilot.problem, enough))
        found = _fitted(some, pilot.settings, some.problem._replace(start=started.start), plan, place)
        found = searched(some, found, least if enough is None else -np.inf)
        if enough is None:
            return found
        going_on = pilot.problem._replace(start=found.belief.mean[0])
        whole = pilot._replace(problem=from_dispersion(going_on, found.belief))
        if place is not None and len(place):
            whole = _in_use(whole)
        found = _fitted(whole, again, whole.problem, plan, place, SWEEPS_OF_ALL)
        return searched(whole, found, least, thorough=False)

    with threads_of(plan.n_threads) as executor:
        return guarded(fit, lambda found: found.belief)


def from_dispersion(problem: Problem, belief: Components) -> Problem:
    """The problem whose dispersion, if it learns one, starts where a fit found it: rows that go on go with it."""
    parameter = problem.likelihood.parameter
    if parameter is None or parameter.is_precision or belief.theta is None:
        return problem
    values = belief.theta.values[0]
    found = float(values[0] if belief.theta.mode is None else values.mean())
    return problem._replace(likelihood=problem.likelihood._replace(parameter=parameter._replace(start=found)))


def _in_use(pilot: Pilot) -> Pilot:
    """The pilot in the columns alone that its start uses, and some more."""
    columns = used_columns(pilot.problem, np.asarray(pilot.problem.start), SPARE_COMPONENTS)
    return pilot._replace(problem=some_columns(pilot.problem, columns), columns=pilot.columns[columns])


def of_logs(pilot: Pilot) -> Pilot:
    """The pilot, of the logs of counts where most are large; other pilots as they are.

    A large count holds its latent value where it is from the first sweep on, and components stay where they started.
    Real values have a noise that begins as large as they are, and falls as components are found.
    """
    problem = pilot.problem
    entries, likelihood = problem.entries, problem.likelihood
    if likelihood.zeros is not None:  # their logs say nothing
        return pilot
    if (
        likelihood.extent != "exposure"
        or pilot.method.name != "vmp"
        or np.median(told_beside(problem)[0]) < LARGE_COUNTS
    ):
        return pilot
    start = None if likelihood.parameter is None else likelihood.parameter.start
    logs = np.log(entries.y + 0.5) - np.log(start or likelihood.default_theta)
    logs = logs - entries.known if len(entries.known) else logs
    y = np.where(entries.weight > 0, logs, 0.0)
    told = y.ravel()[: len(entries.permutation)][telling(weights_of_entries(problem))]
    noise = GammaNoise(NOISE_SHAPE, NOISE_SHAPE * max(float(told.var()), NOISE_SHAPE))
    real = problem._replace(
        entries=entries._replace(y=y, known=NOTHING), likelihood=get_likelihood("gaussian"), noise_prior=noise
    )
    return pilot._replace(problem=real)


def refitted(flown: Flown, plan: Plan) -> Posterior | None:
    """A pilot's posterior given all entries; None as for `grown`."""
    pilot = flown.pilot
    problem = pilot.problem._replace(start=flown.mean)
    settings = copy(pilot.settings).set_params(anneal=REFIT_ANNEAL)
    sweeps = REFIT_ANNEAL + int(np.clip(flown.sweeps, ASK_EVERY, REFIT_SWEEPS))
    return guarded(lambda: run_of(pilot, settings, problem, plan, sweeps).posterior, Posterior.components)


def guarded(fit: Callable[[], Result], belief: Callable[[Result], Components]) -> Result | None:
    """What a fit leads to; None where what is known of the rows then leaves the finite numbers."""
    with np.errstate(all="ignore"):
        try:
            fitted = fit()
            finite = bool(np.isfinite(belief(fitted).mean).all())
        except (FloatingPointError, np.linalg.LinAlgError):
            return None
    return fitted if finite else None


def run_of(pilot: Pilot, settings: Settings, problem: Problem, plan: Plan, max_iter: int, *watch: Callback) -> Run:
    """A run of the pilot's method with these settings from where the problem starts."""
    how: dict[str, Any] = {"tol": plan.tol, "n_threads": plan.how["n_threads"], "max_iter": max_iter}
    return run(pilot.method, problem, settings, callbacks=watch, kept=not watch, **how)


def _fitted(
    pilot: Pilot, settings: Settings, problem: Problem, plan: Plan, place: np.ndarray | None, sweeps: int | None = None
) -> Found:
    """A pilot's fit from where the problem starts, until it converges or entries that were left out gain no more."""
    anneal = settings.get_params()["anneal"]
    most = anneal + PILOT_SWEEPS if sweeps is None else sweeps
    if place is None or not len(place):
        done = run_of(pilot, settings, problem, plan, most)
        return Found(pilot, done.posterior.components(), done.n_iter - anneal, float(done.trace["lower_bound"][-1]))
    with threads_of(plan.n_threads) as executor:
        asked = Asked(pilot, problem, plan.problem, place, anneal, executor)
        done = run_of(pilot, settings, problem, plan, most, asked)
        if asked.last < done.n_iter:  # the last sweep may be the best
            asked.ask(done.n_iter, done.posterior)
    return asked.best


class Asked:
    """A callback that asks the entries left out, keeps what predicts them best, and stops where nothing is gained."""

    best: Found

    def __init__(
        self, pilot: Pilot, problem: Problem, whole: Problem, place: np.ndarray, anneal: int, executor: Executor
    ) -> None:
        self.pilot, self.problem, self.whole, self.place, self.anneal = pilot, problem, whole, place, anneal
        self.executor = executor
        self.score, self.now, self.vain, self.last = -np.inf, -np.inf, 0, 0

    def __call__(self, sweep: int, _: Any, state: Any) -> bool:
        after = sweep - self.anneal
        if after > 0 and after % ASK_EVERY == 0:
            self.ask(sweep, self.pilot.method.finish(state, self.problem))
        return self.vain >= PATIENCE

    def ask(self, sweep: int, posterior: Posterior) -> None:
        """Keep what is known after this sweep if it is the best so far: its means, since covariances are large."""
        belief = posterior.components()
        beside = beside_chains(belief, self.whole, self.place, self.executor)
        score, self.last = _score(beside), sweep
        self.now = score
        self.vain = 0 if score > self.score + THRESHOLDS.least_gain else self.vain + 1
        if score > self.score or self.score == -np.inf:
            self.score = score
            self.best = Found(self.pilot, belief._replace(cov=None), sweep - self.anneal, score, beside)


def _score(beside: Beside) -> float:
    """The mean log score of the entries left out."""
    return float(np.nan_to_num(beside.log_density.mean(), nan=-np.inf))


def beside_chains(belief: Components, problem: Problem, place: np.ndarray, executor: Executor = ALONE) -> Beside:
    """What a pilot says of the entries that were left out."""
    entries = problem.entries
    rows = rows_of(entries, place)
    mean, spread = np.empty(len(rows)), np.empty(len(rows))
    noise = 1.0
    if belief.theta is not None:
        theta, own = belief.theta.values[0, 0], belief.theta.mode is not None and len(rows)
        noise = float(np.exp(-np.log(belief.theta.of(rows)).mean())) if own else 1.0 / float(theta)
    y = entries.y.ravel()[place]
    alpha = EVEN if belief.theta is None or belief.theta.uneven is None else float(belief.theta.uneven[0, 1])
    extent = extents_at(problem, place)
    density = observed_logpdf(problem.likelihood, belief, rows, y, executor, extent, (mean, spread))
    return Beside(density, mean + known_at(problem, place), spread, noise, alpha)


# From so many entries on, spectra tell what a pilot leaves over, and chains of all columns take more than ten seconds.
MANY = 50_000


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
        alone = shown(problem, others, executor=executor) >= THRESHOLDS.least_explained
        return alone or shown(problem, others, best.mean, executor) > 0.0
