"""Policies of plans: several starts and their mixture, point estimates, and fits that go on from a quick one.

A policy says how a plan is run: from where, how often, and what decides. A quick fit (`run_quick_fit`) is a mean-field
fit that finds components greedily: from the spectra of the data, then from what it leaves over. Samplers have several
of them beside their chains (`tensorcep.cp.fit.chains`); another method begins where one has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import Callback, LeftOut, Run, run
from tensorcep.core.settings import Settings
from tensorcep.cp.calibration.holdout import Beside, held_out_places
from tensorcep.cp.fit.validation import (
    ASK_EVERY,
    EarlyStopping,
    finite_or_none,
    scored_run,
    scores_of,
    without,
)
from tensorcep.cp.fitted.alignment import layout_of, shared_scales
from tensorcep.cp.init import residual
from tensorcep.cp.init.residual import NOTHING, used_columns, with_more_components, with_spectral_start
from tensorcep.cp.model import subsets
from tensorcep.cp.model.columns import some_columns
from tensorcep.cp.model.problem import Problem, weights_of_entries, with_entries_of
from tensorcep.cp.model.rows import seen_rows
from tensorcep.cp.plan.plan import REFIT_ANNEAL, SPARE_COMPONENTS, Engine, Plan, Policy, QuickFit
from tensorcep.cp.posterior import Components, GammaNoise, Mixture, PointEstimate, Posterior
from tensorcep.likelihoods.gaussian import GAUSSIAN

# What a training entry may gain of its log score by the noise alone, on average, from which a fit is tried first; and
# the most entries of which it is, for that takes twice its time.
FOLLOWS_NOISE, MOST_TRIED = 0.1, 100_000
# The same from which a prior is not taken at its word: below it what the right weight gains is about a hundredth.
FOLLOWS_PRIOR = 0.005
# Times that components are looked for in what others leave over.
ROUNDS = 6


@dataclass(frozen=True)
class MultiStart(Policy):
    """The best of several starts goes on; several such fits are mixed.

    The first start comes from the spectra of the data, where the plan has the columns for that, and from those of what
    the components that they show leave over; others are drawn from the prior. Methods that can end anywhere get a few
    sweeps from each start, without a tolerance, and the start with the best train score goes on: the result is that of
    one run from there. Members of a mixture have starts of their own; one whose train score falls short of the best by
    more than so many numbers can gain by chance has not found what is there, and is left out. Costs the sweeps of all
    trials, and those of every member.
    """

    def run(self, plan: Plan) -> Run:
        return run_starts(plan.started_at(start_of_spectra(plan)) if self.spectral else plan)


@dataclass(frozen=True)
class PenalisedEstimate(MultiStart):
    """A point estimate, whose prior counts as much as predicts entries left out best.

    Its density of labels or counts has no noise whose variance could stand before the prior, and the maximum of both is
    far from what a posterior predicts where entries per row are few: on 20,000 simulated labels of 300 rows the log
    loss was 2.9 with the prior as it is and 0.65 with ten times its log density, a constant's 0.69. Weights from 1 to
    1,000 are tried from 10 down, or up where that does not help, until it gets worse, each by a fit without a tenth of
    the entries, from spectra that do not know them either: two to five fits more. Where the user gave the weight or
    values have noise, and entries are few for the numbers of the rows, one such fit tells what the estimate is worth.
    """

    def run(self, plan: Plan) -> Run:
        plan = plan.started_at(start_of_spectra(plan)) if self.spectral else plan
        given, scored = plan.engine.settings.get_params(), None
        left_open = given.get("prior_weight") == "auto" and isinstance(given.get("ridge"), str)
        weighs = self.spectral and left_open and plan.problem.noise_prior is None
        asks = overfit(plan.problem) > FOLLOWS_PRIOR if weighs else may_follow_noise(plan.problem)
        place = held_out_places(plan.problem) if asks else np.zeros(0, dtype=int)
        if weighs and len(place) >= THRESHOLDS.fewest:
            plan, scored = with_best_weight(plan, place)
        one = run_starts(plan)
        if not weighs and len(place) >= THRESHOLDS.fewest and not one.stopped:
            scored = scored_without(plan, place)
        return one._replace(left_out=scored)


WEIGHTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Where the search among them begins.
FIRST = 10.0


def with_best_weight(plan: Plan, place: np.ndarray) -> tuple[Plan, LeftOut | None]:
    """The plan with the weight that predicts the entries at these places best, and what a fit without them says."""
    found: dict[int, LeftOut | None] = {}

    def weighted(k: int) -> Plan:
        return plan._replace(engine=plan.engine.with_settings(prior_weight=WEIGHTS[k]))

    def score(k: int) -> float:
        if k not in found:
            found[k] = scored_without(weighted(k), place, afresh=True)
        scored = found[k]
        return -np.inf if scored is None else float(scored.score.mean())

    k = WEIGHTS.index(FIRST)
    step = -1 if score(k - 1) > score(k) else 1
    while 0 <= k + step < len(WEIGHTS) and score(k + step) > score(k):
        k += step
    return weighted(k), found[k]


def scored_without(plan: Plan, place: np.ndarray, afresh: bool = False) -> LeftOut | None:
    """What the plan's fit without the entries at these places says of them; None where it finds no numbers."""
    some = plan._replace(problem=without(plan.problem, place)).unseen()
    some = some.started_at(start_of_spectra(some)) if afresh else some  # spectra that do not know them either
    return scored_run(plan, place, lambda: run_starts(some))


def overfit(problem: Problem) -> float:
    """What the mean log score of training entries gains at most where fits of so many numbers follow the noise."""
    # half a nat per number, as the chi-square law of the likelihood ratio says
    numbers = int(np.array(problem.shape) @ problem.every_free.sum(axis=1))
    return 0.5 * numbers / max(1, subsets.number_telling(problem))


def may_follow_noise(problem: Problem) -> bool:
    """Whether entries are so few that starts which fit them best may not predict others."""
    return len(problem.entries.permutation) <= MOST_TRIED and overfit(problem) > FOLLOWS_NOISE


def start_of_spectra(plan: Plan) -> np.ndarray | None:
    """The start from the spectra of the data, and of what components that these show leave over."""
    problem = subsets.of_telling(subsets.problem_in_memory(plan.problem))
    spare = residual.SMALL_SPARE if plan.engine.method.capabilities.point_estimate else residual.SPARE
    with threads_of(plan.options.n_threads) as executor:
        problem = with_spectral_start(problem, spare, executor)
        for _ in range(ROUNDS):
            found = PointEstimate(problem.shape, problem.rank, np.asarray(problem.start), None, seen_rows(problem))
            more = with_more_components(problem, found.components(), False, executor)
            if more is None:
                break
            problem = more
    return problem.start


def run_starts(plan: Plan, *done: Run) -> Run:
    """Run every member of a plan, each from the best of its starts, and mix the finite ones and those before them."""
    members, starts = plan.policy.members, plan.policy.starts
    trial_sweeps = plan.engine.method.trial_sweeps(plan.engine.settings)
    trial_sweeps = trial_sweeps if trial_sweeps < plan.options.max_iter else 0
    with np.errstate(over="ignore", invalid="ignore"):  # of starts that run away
        runs, errors = list(done), []
        for of_member in np.array_split(np.arange(len(starts)), members):
            member = plan.with_policy(starts=tuple(starts[i] for i in of_member))
            member = member.started_at(starts[of_member[0]])
            try:
                one = _best_run(member, trial_sweeps)
            except (FloatingPointError, np.linalg.LinAlgError) as error:
                errors.append(error)
                continue
            runs.append(one if members == 1 and not done else one._replace(state=None))  # states hold all messages
            if one.stopped:
                break
        if not runs:
            raise errors[0]
        return mixed(runs, overfit(plan.problem))


def _best_run(plan: Plan, trial_sweeps: int) -> Run:
    """Run trial sweeps, if there are any, from every start; the run from that with the best train score, to its end."""
    # where one state is there at a time, the first start, which the data have shown, comes last: it is the best one
    # more often than any other; one that came before is tried again
    if not trial_sweeps:
        return run(plan.engine.method, plan.problem, plan.engine.settings, **plan.options._asdict())
    starts, alone, at, shared = plan.policy.starts, plan.policy.one_at_a_time, 0, None
    best: Any = None
    order = [*range(len(starts))][:: -1 if alone else 1]
    for i in order:
        trial = _trial(plan, starts[i], trial_sweeps, shared)
        if trial.stopped:
            return trial
        score, least = _score(trial), -np.inf if best is None else _score(best)
        own = plan.engine.method.of_entries(trial.state) if alone else None
        if alone and i != order[-1]:
            trial = trial._replace(state=None)
        if best is None or score > least or (alone and score == least):
            best, at = trial, i
        del trial  # its state holds all messages
        shared = own if alone else plan.engine.method.of_entries(best.state)
    if best.state is None:
        best = _trial(plan, starts[at], trial_sweeps, shared)
    return best if best.stopped else continued(plan, best)


def _trial(plan: Plan, start: np.ndarray | None, sweeps: int, shared: Any) -> Run:
    """The trial sweeps from a start, with what another run has of the entries."""
    how: dict[str, Any] = {**plan.options._asdict(), "max_iter": sweeps, "tol": 0.0, "stage": "one of several starts"}
    return run(plan.engine.method, plan.problem._replace(start=start, of_entries=shared), plan.engine.settings, **how)


def continued(plan: Plan, begun: Run) -> Run:
    """Go on with a run to the plan's last sweep; the result is that of one run."""
    method, settings = plan.engine
    stage = "draws" if method.capabilities.sampler else "the best start"
    how: dict[str, Any] = {**plan.options._asdict(), "stage": stage}
    how["max_iter"] -= begun.n_iter
    rest = run(method, plan.problem, settings, state=begun.state, done=begun.n_iter, **how)
    trace = {name: np.concatenate([begun.trace[name], values]) for name, values in rest.trace.items()}
    return rest._replace(n_iter=begun.n_iter + rest.n_iter, trace=trace)


def _score(one: Run) -> float:
    """The last train score; that of a run which has left the range of numbers is below all others."""
    score = float(one.trace["train_score"][-1])
    return -np.inf if np.isnan(score) else score


def last_change(one: Run) -> float:
    """The change of the last sweep, the largest over the members of a run."""
    member = one.trace.get("member", np.zeros(one.n_iter, dtype=int))
    ends = np.append(np.flatnonzero(np.diff(member)), one.n_iter - 1)
    return float(max(one.trace["change"][ends]))


def mixed(runs: Sequence[Run], slack: float = np.inf) -> Run:
    """One result of runs from different starts: their mixture, the one with the best train score first."""
    # runs that fall short of it by more than `slack` have not found what is there. Sweeps are counted over all runs,
    # and the trace, which then also tells the member, holds one run after the other
    if len(runs) == 1:
        return runs[0]
    order = sorted(runs, key=lambda one: -_score(one))
    least = _score(order[0]) - slack
    found = [one for one in order if one is order[0] or -np.inf < _score(one) >= least]
    members = tuple(one.posterior for one in found if isinstance(one.posterior, Posterior))
    trace = {name: np.concatenate([one.trace[name] for one in order]) for name in order[0].trace}
    trace["member"] = np.repeat(np.arange(len(order)), [one.n_iter for one in order])
    posterior = Mixture(members) if len(members) > 1 else order[0].posterior
    converged, stopped = all(one.converged for one in found), any(one.stopped for one in order)
    return Run(posterior, sum(one.n_iter for one in order), converged, stopped, trace, order[0].state)


# Sweeps of a quick fit after the annealed ones, at most; those of its fit to all entries.
QUICK_SWEEPS, REFIT_SWEEPS = 40, 10
# Sweeps over all of very many entries, where some of them have shown the way.
SWEEPS_OF_ALL = REFIT_ANNEAL + ASK_EVERY
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
    """

    settings: Settings | None = None  # of a mean-field method that starts where the quick fit ended, if not the plan's

    def run(self, plan: Plan) -> Run:
        """Run a plan; as from its starts where it has no quick fit, or that leaves the range of numbers."""
        quick = next(iter(self.quick_fits), None)
        found = None if quick is None else run_quick_fit_to(subsets.problem_in_memory(quick.problem), quick, plan)
        if quick is None or found is None:
            return super().run(plan)
        if found.quick.problem.likelihood.observes == plan.problem.likelihood.observes:  # not one of logs
            plan = plan._replace(problem=from_dispersion(plan.problem, found.belief))
        alone = not any(clock is not None for clock in plan.problem.prior.clocks)
        if not plan.engine.method.capabilities.quick and alone:
            return _by_another_method(plan, found.mean, quick)
        plan = plan.started_at(found.mean)
        plan = plan._replace(engine=plan.engine._replace(settings=self.settings or plan.engine.settings))
        first, trial = tried(plan, quick) if alone and may_follow_noise(plan.problem) else (plan, None)
        if trial is None:
            return run_starts(plan)
        # entries that neither is given tell whether the fit is the usual one, or goes on until it gets worse
        careful = trial.left_out
        usual = scored_without(plan, careful.place)
        if usual is not None and usual.score.mean() >= careful.score.mean() - THRESHOLDS.least_difference:
            return run_starts(plan)._replace(left_out=usual._replace(quick=careful.quick))
        one = run_starts(first.from_rows(trial.start))
        converged = one.converged if first.options.max_iter == plan.options.max_iter else not one.stopped
        return one._replace(converged=converged, left_out=careful)


def _by_another_method(plan: Plan, start: np.ndarray, quick: QuickFit) -> Run:
    """Run a plan whose first member goes on from a quick fit, and its others, or all if that fails, from its starts."""
    policy, start = plan.policy, balanced(start, plan.problem, plan.engine)
    first, trial = tried(plan.from_rows(start), quick)
    one = finite_or_none(lambda: run_starts(first), lambda found: min(0.0, _score(found)))
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


class Trial(NamedTuple):
    """A fit to some of the entries."""

    lost: float  # how much worse it gets after it was best
    left_out: LeftOut  # the scores then of the entries left out, and those by the quick fit
    start: np.ndarray  # (n_rows, R), the means that it went on from, of a quick fit that was not given these entries


def tried(plan: Plan, quick: QuickFit) -> tuple[Plan, Trial | None]:
    """The plan with the annealing, and the sweeps, that predict entries left out best; and how it was tried, if so."""
    problem, anneal = plan.problem, plan.engine.settings.get_params().get("anneal", 0)
    if plan.options.max_iter < anneal + QUICK_SWEEPS or problem.fixed is not None:
        return plan, None
    place = held_out_places(problem)
    if len(place) < THRESHOLDS.fewest:
        return plan, None
    others = subsets.problem_in_memory(problem, place)
    found = run_quick_fit_to(others, quick, plan, place)
    if found is None or len(found.quick.columns) < len(quick.columns):
        return plan, None
    start = found.mean  # streams by cep predict worse after trials from rows of one size
    start = balanced(start, problem, plan.engine) if plan.engine.method.capabilities.regrows else start
    others = others._replace(start=start, of_entries=None)

    def fit(annealed: int) -> EarlyStopping:
        engine = plan.engine.with_settings(anneal=annealed)
        with threads_of(plan.options.n_threads) as executor:
            watch = EarlyStopping(engine, others, plan.problem, place, executor)
            watch.end(run_engine(engine, others, plan, annealed + QUICK_SWEEPS, watch))
        return watch

    best, least = finite_or_none(partial(fit, anneal), lambda one: one.belief.mean), THRESHOLDS.least_difference
    if anneal and not (best is not None and best.lost < least and best.score >= found.score - least):
        other = finite_or_none(partial(fit, 0), lambda one: one.belief.mean)
        best = other if best is None or (other is not None and other.score > best.score) else best
    if best is None:
        return plan, None
    first = plan._replace(engine=plan.engine.with_settings(anneal=best.anneal))
    if best.lost > 0.0:
        first = first.with_options(max_iter=min(plan.options.max_iter, best.anneal + best.sweeps))
    quick_scores: Any = found.scores
    own, of_quick = best.scores, quick_scores.log_density
    return first, Trial(best.lost, LeftOut(place, own.log_density, of_quick, own.mean, own.spread), start)


def balanced(rows: np.ndarray, problem: Problem, engine: Engine) -> np.ndarray:
    """The rows of a quick fit for another method, each component of the same size in all its modes."""
    # a learned prior says too much of rows far below 1. Components that the quick fit does not use are 0 where they
    # could grow again: on labels Laplace's log loss was 0.65 with them, 0.56 without, that of a constant 0.69
    free = problem.every_free
    if engine.method.capabilities.regrows:
        rows = rows.copy()
        rows[:, np.setdiff1d(np.flatnonzero(free.all(axis=0)), used_columns(problem, rows))] = 0.0
    modes = [tuple(np.flatnonzero(own).tolist()) for own in free.T]
    layout = layout_of(problem.shape, modes, np.ones(len(rows), dtype=bool))
    return np.asarray(rows * np.repeat(shared_scales(rows, layout), problem.shape, axis=0))


def scored_few(plan: Plan) -> LeftOut | None:
    """What one member of a plan of few entries, begun anew without some of them, says of these; None of others."""
    # of more entries `tried` says it; plans without a quick fit begin where they are told to, which knows these
    # entries, or at a prior that is not learned
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
    """What a quick fit found."""

    quick: QuickFit  # in the columns that it ended with
    belief: Components
    sweeps: int  # that led to it, beside the annealed ones
    score: float  # the mean log score of the entries left out; without any the evidence lower bound
    scores: Beside | None = None  # what it says of the entries left out
    number: int = 0  # of the quick fit among several

    @property
    def mean(self) -> np.ndarray:
        """The means of its rows, (n_rows, R)."""
        return self.belief.mean[0]


def run_quick_fit(
    quick: QuickFit, plan: Plan, rounds: int = ROUNDS, place: np.ndarray | None = None
) -> QuickResult | None:
    """What a quick fit finds from the spectra of the data, and then of what it leaves over; None if not finite."""
    again = quick.engine.with_settings(anneal=REFIT_ANNEAL)

    def searched(of: QuickFit, found: QuickResult, thorough: bool = True) -> QuickResult:
        for _ in range(rounds):
            more = with_more_components(of.problem, found.belief, thorough, executor)
            if more is None:
                break
            before, found = found, _fitted(of, again, from_dispersion(more, found.belief), plan, place)
            if found.score < before.score:  # of entries left out at these places; without any the bound
                return before
        return found

    def fit() -> QuickResult:
        started = with_spectral_start(quick.problem, executor=executor)
        enough = subsets.enough_entries(started)  # of very many entries; then a few sweeps over all refine that
        some = quick if enough is None else quick._replace(problem=with_entries_of(quick.problem, enough))
        found = _fitted(some, quick.engine, some.problem._replace(start=started.start), plan, place)
        found = searched(some, found)
        if enough is None:
            return found
        going_on = quick.problem._replace(start=found.mean)
        refined = quick._replace(problem=from_dispersion(going_on, found.belief))
        if place is not None and len(place):
            used = used_columns(going_on, found.mean, SPARE_COMPONENTS)
            refined = refined._replace(problem=some_columns(refined.problem, used), columns=quick.columns[used])
        found = _fitted(refined, again, refined.problem, plan, place, SWEEPS_OF_ALL)
        return searched(refined, found, thorough=False)

    with threads_of(plan.options.n_threads) as executor:
        return finite_or_none(fit, lambda found: found.mean)


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
        watch = EarlyStopping(engine, problem, plan.problem, place, executor)
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


def run_quick_fit_to(
    others: Problem, quick: QuickFit, plan: Plan, place: np.ndarray | None = None
) -> QuickResult | None:
    """What a quick fit to these entries finds (`run_quick_fit`); to their logs where most are large counts."""
    # a large count holds its latent value where it is from the first sweep on, and components stay where they started;
    # real values have a noise that begins as large as they are, and falls as components are found
    problem = with_entries_of(quick.problem, others)
    entries, likelihood = problem.entries, problem.likelihood
    of_rates = likelihood.is_of_rates and not quick.engine.method.lacks(GAUSSIAN)  # those of zeros say nothing
    if not of_rates or np.median(subsets.telling_values(problem)[0]) < LARGE_COUNTS:
        return run_quick_fit(quick._replace(problem=problem), plan, place=place)
    logs = np.log(entries.y + 0.5) - np.log(likelihood.first_theta)
    logs = logs - entries.known if len(entries.known) else logs
    y = np.where(entries.weight > 0, logs, 0.0)
    told = y.ravel()[: len(entries.permutation)][subsets.telling(weights_of_entries(problem))]
    noise = GammaNoise(NOISE_SHAPE, NOISE_SHAPE * max(float(told.var()), NOISE_SHAPE))
    real = problem._replace(entries=entries._replace(y=y, known=NOTHING), likelihood=GAUSSIAN, noise_prior=noise)
    return run_quick_fit(quick._replace(problem=real), plan, place=place)


def refitted(found: QuickResult, plan: Plan) -> Posterior | None:
    """A quick fit's posterior given all entries; None where it leaves the finite numbers."""
    engine = found.quick.engine.with_settings(anneal=REFIT_ANNEAL)
    problem = found.quick.problem._replace(start=found.mean)
    sweeps = REFIT_ANNEAL + int(np.clip(found.sweeps, ASK_EVERY, REFIT_SWEEPS))
    return finite_or_none(lambda: run_engine(engine, problem, plan, sweeps).posterior, lambda p: p.components().mean)


# From so many entries on, spectra tell what a quick fit leaves over, and chains of all columns take over ten seconds.
MANY = 50_000


def run_quick_fits(plan: Plan, place: np.ndarray) -> list[QuickResult]:
    """Every quick fit of a plan that stays finite, those of fewer columns first, without entries at these places."""
    # the one of all columns is run where it is likely to be the best: columns that others do not have say much, or say
    # what others leave over
    others, quick_fits = subsets.problem_in_memory(plan.problem, place), plan.policy.quick_fits
    many = subsets.number_telling(others) >= MANY
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
    others = others[:, ~others[residual.modes_of_products(free)].all(axis=0)]
    problem = with_entries_of(best.quick.problem, given)
    enough = subsets.enough_entries(problem)
    problem = problem if enough is None else enough
    with threads_of(plan.options.n_threads) as executor:
        alone = residual.shown(problem, others, executor=executor) >= THRESHOLDS.least_explained
        return alone or residual.shown(problem, others, best.mean, executor) > 0.0
