"""Quick fits: mean-field fits from the spectra of the data, and the policy of methods that go on from one.

A quick fit (`run_quick_fit`) finds components greedily: from spectra, then from what it leaves over. Samplers have
several of them beside their chains (`tensorcep.cp.fit.chains`); another method begins where one has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import Callback, LeftOut, Run, run
from tensorcep.core.settings import Settings
from tensorcep.cp.calibration.holdout import Beside, held_out_places
from tensorcep.cp.fit.run import ROUNDS, MultiStart, finite_run, may_follow_noise, run_starts, scored_without
from tensorcep.cp.fit.validation import (
    ASK_EVERY,
    EarlyStopping,
    finite_or_none,
    has_finite_rows,
    scored_run,
    scores_of,
    without,
)
from tensorcep.cp.fitted.alignment import layout_of, shared_scales
from tensorcep.cp.init.residual import (
    NOTHING,
    modes_of_products,
    shown,
    used_columns,
    with_more_components,
    with_spectral_start,
)
from tensorcep.cp.model.columns import some_columns
from tensorcep.cp.model.problem import Problem, weights_of_entries, with_entries_of
from tensorcep.cp.model.subsets import enough_entries, number_telling, problem_in_memory, telling, telling_values
from tensorcep.cp.plan.plan import REFIT_ANNEAL, Engine, Plan, QuickFit
from tensorcep.cp.posterior.belief import GammaNoise, Posterior
from tensorcep.cp.posterior.components import Components
from tensorcep.likelihoods.gaussian import GAUSSIAN

# Sweeps of a quick fit after the annealed ones, at most; those of its fit to all entries.
QUICK_SWEEPS, REFIT_SWEEPS = 40, 10
# Sweeps over all of very many entries, where some of them have shown the way, and components beside those in use.
SWEEPS_OF_ALL, SPARE_COMPONENTS = REFIT_ANNEAL + ASK_EVERY, 3
# From this median on the log of a count tells its latent value to about a half; the prior shape of the noise of logs.
LARGE_COUNTS, NOISE_SHAPE = 5.0, 1e-3


@dataclass(frozen=True)
class FromQuickFit(MultiStart):
    """A quick mean-field fit, from which the method goes on.

    A mean-field method begins where the quick fit ended, and runs until it converges. Of few entries for the numbers of
    its rows that may follow the noise: a tenth of the entries are left out, and the fit that goes on from what the
    quick fit without them found, and ends when it predicts them best, takes its place where it predicts them better.

    Message passing can leave what a quick fit has found, for products of uncertain numbers are no Gaussians, and a
    learned prior then gives way. So it goes on without a tenth of the entries first: with annealed sweeps, then with
    none where they lose some of it; if it gets worse with every sweep the fit ends when it was best. Other members of a
    mixture have random starts, of which only the first few sweeps tell which is good; that one fits the entries better
    after annealing is no reason to take it in place of the quick fit, for it may follow the noise. Costs some 20 to 60
    mean-field sweeps, and as many of the method's again over nine tenths of the entries.

    Attributes
    ----------
    settings : Settings or None
        Of a mean-field method that starts where the quick fit has ended; None are the plan's.
    """

    settings: Settings | None = None

    def run(self, plan: Plan) -> Run:
        """Run a plan; as from its starts where it has no quick fit, or that leaves the range of numbers."""
        quick = self.quick_fits[0] if self.quick_fits else None
        found = None if quick is None else run_quick_fit(of_logs(in_memory(quick)), plan)
        if quick is None or found is None:
            return super().run(plan)
        if found.quick.problem.likelihood.observes == plan.problem.likelihood.observes:  # not one of logs
            plan = plan._replace(problem=from_dispersion(plan.problem, found.belief))
        alone = not any(clock is not None for clock in plan.problem.prior.clocks)
        if not plan.engine.method.capabilities.quick and alone:
            return _by_another_method(plan, found.mean, quick)
        plan = plan.started_at(found.mean)
        plan = plan._replace(engine=plan.engine._replace(settings=self.settings or plan.engine.settings))
        if alone and may_follow_noise(plan.problem):
            return _of_few_entries(plan, quick)
        return run_starts(plan)


def _by_another_method(plan: Plan, start: np.ndarray, quick: QuickFit) -> Run:
    """Run a plan whose first member goes on from a quick fit, and its others, or all if that fails, from its starts."""
    policy = plan.policy
    start = balanced(start, plan.problem, plan.engine)
    first, trial = tried(plan.from_rows(start), quick)
    one = finite_run(first)
    if one is None:
        return run_starts(plan)
    if first.options.max_iter < plan.options.max_iter:  # it ends where it predicts best
        one = one._replace(converged=not one.stopped)
    if not one.stopped and policy.members > 1 and (trial is None or trial.lost < THRESHOLDS.least_difference):
        one = one._replace(state=None)  # it holds all messages
        others = policy.starts[len(policy.starts) // policy.members :]
        one = run_starts(plan.with_policy(starts=others, members=policy.members - 1), one)
    if trial is None:
        return one
    scored = trial.left_out  # of one member: that a mixture of several falls short of the quick fit it does not say
    return one._replace(left_out=scored if policy.members == 1 else scored._replace(quick=scored.score))


def _of_few_entries(plan: Plan, quick: QuickFit) -> Run:
    """Run a mean-field plan of entries that are few for the numbers of its rows.

    Starts that fit the entries best may follow the noise, and so may more sweeps from any start. Entries that both are
    not given tell whether the fit is the usual one, or goes on from what a quick fit without them has found until it
    gets worse.
    """
    first, trial = tried(plan, quick)
    if trial is None:
        return run_starts(plan)
    careful = trial.left_out
    usual = scored_without(plan, careful.place)
    if usual is not None and usual.score.mean() >= careful.score.mean() - THRESHOLDS.least_difference:
        return run_starts(plan)._replace(left_out=usual._replace(quick=careful.quick))
    one = run_starts(first.from_rows(trial.start))
    converged = one.converged if first.options.max_iter == plan.options.max_iter else not one.stopped
    return one._replace(converged=converged, left_out=trial.left_out)


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
        The score of each, and that by the quick fit.
    start : (n_rows, R) float64
        The row means that it went on from, of a quick fit that was not given these entries either.
    """

    anneal: int
    sweeps: int
    lost: float
    good: float
    left_out: LeftOut
    start: np.ndarray


def tried(plan: Plan, quick: QuickFit) -> tuple[Plan, Trial | None]:
    """The plan with the annealing, and the sweeps, that predict entries left out best; and how it was tried.

    A fit that ends before a trial would is not tried: what it would say then is no judgement.
    """
    problem, anneal = plan.problem, plan.engine.settings.get_params().get("anneal", 0)
    if plan.options.max_iter < anneal + QUICK_SWEEPS or problem.fixed is not None:
        return plan, None
    place = held_out_places(problem)
    if len(place) < THRESHOLDS.fewest:
        return plan, None
    others = problem_in_memory(problem, place)
    found = run_quick_fit(of_logs(quick._replace(problem=with_entries_of(quick.problem, others))), plan, place=place)
    if found is None or len(found.quick.columns) < len(quick.columns):
        return plan, None
    scores: Any = found.scores
    left_out = LeftOut(place, scores.log_density, scores.log_density, scores.mean, scores.spread)
    start = found.mean  # streams by cep predict worse after trials from rows of one size
    start = balanced(start, problem, plan.engine) if plan.engine.method.capabilities.regrows else start
    others = others._replace(start=start, of_entries=None)
    trials = [one for one in (_trial(others, anneal, plan, left_out),) if one is not None]
    least = THRESHOLDS.least_difference
    if anneal and not (trials and trials[0].lost < least and trials[0].good >= found.score - least):
        trials += [one for one in (_trial(others, 0, plan, left_out),) if one is not None]
    if not trials:
        return plan, None
    best = max(trials, key=lambda one: one.good)
    if best.anneal != anneal:
        plan = plan._replace(engine=plan.engine.with_settings(anneal=best.anneal))
    if best.sweeps:
        plan = plan.with_options(max_iter=min(plan.options.max_iter, best.sweeps))
    return plan, best


def _trial(others: Problem, anneal: int, plan: Plan, left_out: LeftOut) -> Trial | None:
    """A fit with so many annealed sweeps, until entries left out gain no more; None where it leaves finite numbers."""
    engine = plan.engine.with_settings(anneal=anneal)
    with threads_of(plan.options.n_threads) as executor:
        watch = EarlyStopping(engine, others, plan.problem, left_out.place, anneal, executor)

        def fit() -> EarlyStopping:
            watch.end(run_engine(engine, others, plan, anneal + QUICK_SWEEPS, watch))
            return watch

        if finite_or_none(fit, lambda watch: has_finite_rows(watch.belief)) is None:
            return None
    sweeps, scores = watch.sweeps + anneal if watch.lost > 0.0 else 0, watch.scores
    left_out = left_out._replace(score=scores.log_density, mean=scores.mean, variance=scores.spread)
    return Trial(anneal, sweeps, watch.lost, watch.score, left_out, np.asarray(others.start))


def balanced(rows: np.ndarray, problem: Problem, engine: Engine) -> np.ndarray:
    """The rows of a quick fit for another method, each component of the same size in all its modes.

    A learned prior says too much of rows far below 1. Components that the quick fit does not use are 0 where they could
    grow again: on labels Laplace's log loss was 0.65 with them, 0.56 without, that of a constant 0.69.
    """
    free = problem.every_free
    if engine.method.capabilities.regrows:
        rows = rows.copy()
        rows[:, np.setdiff1d(np.flatnonzero(free.all(axis=0)), used_columns(problem, rows))] = 0.0
    modes = [tuple(np.flatnonzero(own).tolist()) for own in free.T]
    layout = layout_of(problem.shape, modes, np.ones(len(rows), dtype=bool))
    return np.asarray(rows * np.repeat(shared_scales(rows, layout), problem.shape, axis=0))


def scored_few(plan: Plan) -> LeftOut | None:
    """What one member of a plan of few entries, begun anew without some of them, says of these; None of others.

    Of more entries a fit is tried beforehand (`tried`), which says it. Plans without a quick fit begin where they are
    told to, which knows these entries, or at a prior that is not learned.
    """
    place, problem, policy = held_out_places(plan.problem), plan.problem, plan.policy
    if not isinstance(policy, FromQuickFit) or not policy.quick_fits or not 0 < len(place) < THRESHOLDS.fewest:
        return None
    if problem.fixed is not None or problem.power is not None:
        return None
    # many starts would take longer than all else
    quick = tuple(one._replace(problem=without(one.problem, place)._replace(tries=False)) for one in policy.quick_fits)
    some = plan._replace(problem=without(problem, place)).of_one_member().with_policy(quick_fits=quick).unseen()
    most = plan.engine.settings.get_params().get("anneal", 0) + QUICK_SWEEPS
    some = some.with_options(max_iter=min(plan.options.max_iter, most))
    return scored_run(plan, place, lambda: some.policy.run(some))


class QuickResult(NamedTuple):
    """What a quick fit found.

    Attributes
    ----------
    quick : QuickFit
        In the columns that it ended with.
    belief : Components
        Of the rows.
    sweeps : int
        That led to it, beside the annealed ones.
    score : float
        The mean log score of the entries left out; without any the evidence lower bound.
    scores : Beside or None
        What it says of the entries left out.
    number : int
        Of the quick fit among several.
    """

    quick: QuickFit
    belief: Components
    sweeps: int
    score: float
    scores: Beside | None = None
    number: int = 0

    @property
    def mean(self) -> np.ndarray:
        """The means of its rows, (n_rows, R)."""
        return self.belief.mean[0]


def run_quick_fit(
    quick: QuickFit, plan: Plan, rounds: int = ROUNDS, place: np.ndarray | None = None
) -> QuickResult | None:
    """What a quick fit finds from the spectra of the data, and then of what it leaves over, until that is noise.

    Of very many entries enough are fitted first; then a few sweeps over all refine that, and what all leave over is
    searched once more. The search ends where entries that the fit was not given, at these places of the plan's
    problem, gain no more; without any, where the bound does not. With such entries, sweeps over very many have the
    columns alone that were found to be in use. None where it leaves the finite numbers, as wild counts can make it.
    """
    again = quick.engine.with_settings(anneal=REFIT_ANNEAL)

    def searched(of: QuickFit, found: QuickResult, thorough: bool = True) -> QuickResult:
        for _ in range(rounds):
            more = with_more_components(of.problem, found.belief, thorough, executor)
            if more is None:
                break
            before, found = found, _fitted(of, again, from_dispersion(more, found.belief), plan, place)
            if found.score < before.score:
                return before
        return found

    def fit() -> QuickResult:
        started = with_spectral_start(quick.problem, executor=executor)
        enough = enough_entries(started)
        some = quick if enough is None else quick._replace(problem=with_entries_of(quick.problem, enough))
        found = _fitted(some, quick.engine, some.problem._replace(start=started.start), plan, place)
        found = searched(some, found)
        if enough is None:
            return found
        going_on = quick.problem._replace(start=found.mean)
        refined = quick._replace(problem=from_dispersion(going_on, found.belief))
        if place is not None and len(place):
            refined = _in_use(refined)
        found = _fitted(refined, again, refined.problem, plan, place, SWEEPS_OF_ALL)
        return searched(refined, found, thorough=False)

    with threads_of(plan.options.n_threads) as executor:
        return finite_or_none(fit, lambda found: has_finite_rows(found.belief))


def _fitted(
    quick: QuickFit, engine: Engine, problem: Problem, plan: Plan, place: np.ndarray | None, sweeps: int | None = None
) -> QuickResult:
    """A quick fit from where the problem starts, until it converges or entries that were left out gain no more."""
    anneal = engine.settings.get_params()["anneal"]
    most = anneal + QUICK_SWEEPS if sweeps is None else sweeps
    if place is None or not len(place):
        done = run_engine(engine, problem, plan, most)
        bound = float(done.trace["lower_bound"][-1])
        return QuickResult(quick, done.posterior.components(), done.n_iter - anneal, bound)
    with threads_of(plan.options.n_threads) as executor:
        watch = EarlyStopping(engine, problem, plan.problem, place, anneal, executor)
        watch.end(run_engine(engine, problem, plan, most, watch))
    return QuickResult(quick, watch.belief, watch.sweeps, watch.score, watch.scores)


def run_engine(engine: Engine, problem: Problem, plan: Plan, max_iter: int, *watch: Callback) -> Run:
    """A run of the engine, with the plan's tolerance and threads, from where the problem starts."""
    how: dict[str, Any] = {"tol": plan.options.tol, "n_threads": plan.options.n_threads, "max_iter": max_iter}
    return run(engine.method, problem, engine.settings, callbacks=watch, kept=not watch, **how)


def from_dispersion(problem: Problem, belief: Components) -> Problem:
    """The problem whose dispersion, if it learns one, starts where a fit found it: rows that go on go with it."""
    if not problem.likelihood.is_dispersed or belief.theta is None:
        return problem
    values = belief.theta.values[0]
    found = float(values[0] if belief.theta.mode is None else values.mean())
    return problem._replace(likelihood=problem.likelihood.starting_at(found))


def _in_use(quick: QuickFit) -> QuickFit:
    """The quick fit in the columns alone that its start uses, and some more."""
    columns = used_columns(quick.problem, np.asarray(quick.problem.start), SPARE_COMPONENTS)
    return quick._replace(problem=some_columns(quick.problem, columns), columns=quick.columns[columns])


def of_logs(quick: QuickFit) -> QuickFit:
    """The quick fit, of the logs of counts where most are large; others as they are.

    A large count holds its latent value where it is from the first sweep on, and components stay where they started.
    Real values have a noise that begins as large as they are, and falls as components are found.
    """
    problem = quick.problem
    entries, likelihood = problem.entries, problem.likelihood
    of_rates = likelihood.extent == "exposure" and likelihood.zeros is None  # whose logs say nothing
    if not of_rates or quick.engine.method.lacks(GAUSSIAN) or np.median(telling_values(problem)[0]) < LARGE_COUNTS:
        return quick
    logs = np.log(entries.y + 0.5) - np.log(likelihood.first_theta)
    logs = logs - entries.known if len(entries.known) else logs
    y = np.where(entries.weight > 0, logs, 0.0)
    told = y.ravel()[: len(entries.permutation)][telling(weights_of_entries(problem))]
    noise = GammaNoise(NOISE_SHAPE, NOISE_SHAPE * max(float(told.var()), NOISE_SHAPE))
    real = problem._replace(entries=entries._replace(y=y, known=NOTHING), likelihood=GAUSSIAN, noise_prior=noise)
    return quick._replace(problem=real)


def in_memory(quick: QuickFit) -> QuickFit:
    """The quick fit of entries in memory, enough of those on scratch."""
    return quick._replace(problem=problem_in_memory(quick.problem))


def refitted(found: QuickResult, plan: Plan) -> Posterior | None:
    """A quick fit's posterior given all entries; None where it leaves the finite numbers."""
    engine = found.quick.engine.with_settings(anneal=REFIT_ANNEAL)
    problem = found.quick.problem._replace(start=found.mean)
    sweeps = REFIT_ANNEAL + int(np.clip(found.sweeps, ASK_EVERY, REFIT_SWEEPS))
    return finite_or_none(
        lambda: run_engine(engine, problem, plan, sweeps).posterior, lambda one: has_finite_rows(one.components())
    )


# From so many entries on, spectra tell what a quick fit leaves over, and chains of all columns take over ten seconds.
MANY = 50_000


def run_quick_fits(plan: Plan, place: np.ndarray) -> list[QuickResult]:
    """Every quick fit of a plan that stays finite, those of fewer columns first, without the entries at these places.

    The one of all columns is run where it is likely to be the best: columns that others do not have say much, or say
    what others leave over.
    """
    others, quick_fits = problem_in_memory(plan.problem, place), plan.policy.quick_fits
    many = number_telling(others) >= MANY
    results: list[QuickResult] = []
    for number in np.argsort([len(quick.columns) for quick in quick_fits], kind="stable").tolist():
        quick = quick_fits[number]
        every = len(quick.columns) == plan.problem.rank
        if every and results and many and not _lacks_some(results, plan, others):
            continue
        rounds = ROUNDS if not every or len(quick_fits) == 1 else 0  # what pairs of modes say, it has to find, too
        found = run_quick_fit(quick._replace(problem=with_entries_of(quick.problem, others)), plan, rounds, place)
        if found is not None:
            scores = found.scores or scores_of(found.belief, plan.problem, place)
            problem = from_dispersion(with_entries_of(found.quick.problem, quick.problem), found.belief)
            belief, quick = found.belief._replace(cov=None), found.quick._replace(problem=problem)
            results.append(found._replace(quick=quick, belief=belief, scores=scores, number=number))
    return results


def best_of(results: list[QuickResult]) -> QuickResult:
    """The quick fit that predicts the entries left out best; the first in the plan where there are none."""
    first: Any = results[0].scores
    if not len(first.mean):
        return min(results, key=lambda one: one.number)
    return max(results, key=lambda one: float(one.scores.log_density.mean()))  # type: ignore[union-attr]


def _lacks_some(results: list[QuickResult], plan: Plan, given: Problem) -> bool:
    """Whether the data, or enough of them, show main effects or pairs of modes of which the best one has none."""
    best, free = best_of(results), plan.problem.free
    if free is None:
        return False
    others = np.delete(free, best.quick.columns, axis=1)
    others = others[:, ~others[modes_of_products(free)].all(axis=0)]
    problem = with_entries_of(best.quick.problem, given)
    enough = enough_entries(problem)
    problem = problem if enough is None else enough
    with threads_of(plan.options.n_threads) as executor:
        alone = shown(problem, others, executor=executor) >= THRESHOLDS.least_explained
        return alone or shown(problem, others, best.mean, executor) > 0.0
