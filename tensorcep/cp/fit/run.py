"""Policies of plans without quick fits: several starts and their mixture, and point estimates.

A policy says how a plan is run: from where, how often, and what decides. Those with quick fits go before these
(`tensorcep.cp.fit.quick_fit`, `tensorcep.cp.fit.chains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import threads_of
from tensorcep.core.loop import LeftOut, Run, run
from tensorcep.cp.calibration.holdout import held_out_places
from tensorcep.cp.fit.validation import finite_or_none, scored_run, without
from tensorcep.cp.init.residual import SMALL_SPARE, SPARE, with_more_components, with_spectral_start
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import seen_rows
from tensorcep.cp.model.subsets import number_telling, of_telling, problem_in_memory
from tensorcep.cp.plan.plan import Plan, QuickFit
from tensorcep.cp.posterior.belief import Mixture, PointEstimate, Posterior

# What a training entry may gain of its log score by the noise alone, on average, from which a fit is tried first; and
# the most entries of which it is, for that takes twice its time.
FOLLOWS_NOISE, MOST_TRIED = 0.1, 100_000
# The same from which a prior is not taken at its word: below it what the right weight gains is about a hundredth.
FOLLOWS_PRIOR = 0.005
# Times that components are looked for in what others leave over.
ROUNDS = 6


@dataclass(frozen=True)
class MultiStart:
    """The best of several starts goes on; several such fits are mixed.

    The first start comes from the spectra of the data, where the plan has the columns for that, and from those of what
    the components that they show leave over; others are drawn from the prior. Methods that can end anywhere get a few
    sweeps from each start, without a tolerance, and the start with the best train score goes on: the result is that of
    one run from there. Members of a mixture have starts of their own; one whose train score falls short of the best by
    more than so many numbers can gain by chance has not found what is there, and is left out. Costs the sweeps of all
    trials, and those of every member.

    Attributes
    ----------
    starts : tuple of (n_rows, R) float64 or None
        Row means, those of one member after the other; None is the prior's.
    members : int
    spectral : bool
        Whether the first start is to come from the spectra of the data.
    one_at_a_time : bool
        Whether no state waits while another start is tried, since states are large.
    quick_fits : tuple of QuickFit
        Fits that go first, by policies that have them.
    """

    starts: tuple[np.ndarray | None, ...]
    members: int = 1
    spectral: bool = False
    one_at_a_time: bool = False
    quick_fits: tuple[QuickFit, ...] = ()

    def run(self, plan: Plan) -> Run:
        """Run a plan."""
        return run_starts(plan.started_at(start_of_spectra(plan)) if self.spectral else plan)

    def with_changes(self, **fields: Any) -> MultiStart:
        """The same with other starts, members or quick fits."""
        return replace(self, **fields)


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
        """Run a plan."""
        plan = plan.started_at(start_of_spectra(plan)) if self.spectral else plan
        weighs, scored = self.spectral and leaves_weight(plan), None
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


def leaves_weight(plan: Plan) -> bool:
    """Whether the weight of the prior is to be found: not of one that was given."""
    options = plan.engine.settings.get_params()
    left_open = options.get("prior_weight") == "auto" and isinstance(options.get("ridge"), str)
    return left_open and plan.problem.noise_prior is None


def with_best_weight(plan: Plan, place: np.ndarray) -> tuple[Plan, LeftOut | None]:
    """The plan with the weight that predicts the entries at these places best, and what a fit without them says."""
    found: dict[float, LeftOut | None] = {}

    def weighted(weight: float) -> Plan:
        return plan._replace(engine=plan.engine.with_settings(prior_weight=weight))

    def score(k: int) -> float:
        if WEIGHTS[k] not in found:
            found[WEIGHTS[k]] = scored_without(weighted(WEIGHTS[k]), place, afresh=True)
        scored = found[WEIGHTS[k]]
        return -np.inf if scored is None else float(scored.score.mean())

    k = WEIGHTS.index(FIRST)
    step = -1 if score(k - 1) > score(k) else 1
    while 0 <= k + step < len(WEIGHTS) and score(k + step) > score(k):
        k += step
    return weighted(WEIGHTS[k]), found[WEIGHTS[k]]


def scored_without(plan: Plan, place: np.ndarray, afresh: bool = False) -> LeftOut | None:
    """What the plan's fit without the entries at these places says of them; None where it finds no numbers.

    Where it begins `afresh`, its spectral start does not know them either.
    """
    some = plan._replace(problem=without(plan.problem, place)).unseen()
    some = some.started_at(start_of_spectra(some)) if afresh else some
    return scored_run(plan, place, lambda: run_starts(some))


def overfit(problem: Problem) -> float:
    """What the mean log score of training entries gains at most where fits of so many numbers follow the noise.

    Half a nat per number, as the chi-square law of the likelihood ratio says.
    """
    numbers = int(np.array(problem.shape) @ problem.every_free.sum(axis=1))
    return 0.5 * numbers / max(1, number_telling(problem))


def may_follow_noise(problem: Problem) -> bool:
    """Whether entries are so few that starts which fit them best may not predict others."""
    return len(problem.entries.permutation) <= MOST_TRIED and overfit(problem) > FOLLOWS_NOISE


def start_of_spectra(plan: Plan) -> np.ndarray | None:
    """The start from the spectra of the data, and of what components that these show leave over."""
    problem = of_telling(problem_in_memory(plan.problem))
    spare = SMALL_SPARE if plan.engine.method.capabilities.point_estimate else SPARE
    with threads_of(plan.options.n_threads) as executor:
        problem = with_spectral_start(problem, spare, executor)
        for _ in range(ROUNDS):
            shown = PointEstimate(problem.shape, problem.rank, np.asarray(problem.start), None, seen_rows(problem))
            more = with_more_components(problem, shown.components(), False, executor)
            if more is None:
                break
            problem = more
    return problem.start


def finite_run(plan: Plan) -> Run | None:
    """The run of a plan from its starts; None where it leaves the range of numbers."""
    return finite_or_none(lambda: run_starts(plan), lambda one: _score(one) > -np.inf)


def run_starts(plan: Plan, *done: Run) -> Run:
    """Run every member of a plan, each from the best of its starts, and mix what they and members before them found.

    A callback that stops one run stops all. Members that leave the range of numbers are left out.

    Raises
    ------
    FloatingPointError, LinAlgError
        If all do.
    """
    method, settings = plan.engine
    members, starts, trial_sweeps = plan.policy.members, plan.policy.starts, method.trial_sweeps(settings)
    trial_sweeps = trial_sweeps if trial_sweeps < plan.options.max_iter else 0
    with np.errstate(over="ignore", invalid="ignore"):  # of starts that run away
        if members == 1 and not trial_sweeps and not done:
            return run(method, plan.problem, settings, **plan.options._asdict())
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
    """Run trial sweeps, if there are any, from every start, and go on from the one with the best train score.

    The result is that of one run from that start.
    """
    if not trial_sweeps:
        return run(plan.engine.method, plan.problem, plan.engine.settings, **plan.options._asdict())
    if plan.policy.one_at_a_time:
        return _best_alone(plan, trial_sweeps)
    best: Run | None = None
    for start in plan.policy.starts:
        shared = None if best is None else plan.engine.method.of_entries(best.state)
        trial = _trial(plan, start, trial_sweeps, shared)
        if trial.stopped:
            return trial
        if best is None or _score(trial) > _score(best):
            best = trial
        del trial  # its state holds all messages
    if best is None:
        raise ValueError("starts must hold at least one start; got none.")
    return continued(plan, best)


def _trial(plan: Plan, start: np.ndarray | None, sweeps: int, shared: Any) -> Run:
    """The trial sweeps from a start, with what another run has of the entries."""
    how: dict[str, Any] = {**plan.options._asdict(), "max_iter": sweeps, "tol": 0.0, "stage": "one of several starts"}
    problem = plan.problem._replace(start=start, of_entries=shared)
    return run(plan.engine.method, problem, plan.engine.settings, **how)


def _best_alone(plan: Plan, trial_sweeps: int) -> Run:
    """The same with one state at a time: the best start is tried again, unless it came last.

    The first one, which the data have shown, does, and is the best one more often than any other.
    """
    starts, of_entries = plan.policy.starts, plan.engine.method.of_entries
    best, score, state = 0, -np.inf, None
    tried = [*reversed(range(len(starts)))]
    for i in tried:
        shared = None if state is None else of_entries(state)
        state = None
        trial = _trial(plan, starts[i], trial_sweeps, shared)
        if trial.stopped:
            return trial
        if _score(trial) >= score:
            best, score = i, _score(trial)
        state = trial.state
        trial = trial._replace(state=None)
    if best != tried[-1]:
        shared, state = of_entries(state), None
        trial = _trial(plan, starts[best], trial_sweeps, shared)
        return trial if trial.stopped else continued(plan, trial)
    return continued(plan, trial._replace(state=state))


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


def mixed(runs: Sequence[Run], slack: float = np.inf) -> Run:
    """One result of runs from different starts: their mixture, the one with the best train score first.

    Runs that fall short of it by more than `slack` have not found what is there, and are no members. Sweeps are counted
    over all runs, and the trace, which then also tells the member, holds one run after the other. It has converged if
    every member has.
    """
    if len(runs) == 1:
        return runs[0]
    order = sorted(runs, key=lambda one: -_score(one))
    least = _score(order[0]) - slack
    found = [one for one in order if one is order[0] or -np.inf < _score(one) >= least]
    members = tuple(one.posterior for one in found if isinstance(one.posterior, Posterior))
    trace = {name: np.concatenate([one.trace[name] for one in order]) for name in order[0].trace}
    trace["member"] = np.repeat(np.arange(len(order)), [one.n_iter for one in order])
    return Run(
        Mixture(members) if len(members) > 1 else order[0].posterior,
        sum(one.n_iter for one in order),
        all(one.converged for one in found),
        any(one.stopped for one in order),
        trace,
        order[0].state,
    )
