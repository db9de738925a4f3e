"""The run of a plan: by pilots, from one start, or from several of which the best one goes on, or all are mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.belief import Mixture, PointEstimate, Posterior
from tensorcep.core.chance import THRESHOLDS
from tensorcep.core.executor import threads_of
from tensorcep.core.host import current_host
from tensorcep.core.loop import LeftOut, Run, run
from tensorcep.cp.fit.chains import run_with_pilots
from tensorcep.cp.fit.deviations import run_local
from tensorcep.cp.fit.validation import to_go_on_from, tried, weighs_prior, with_best_weight
from tensorcep.cp.fit.warm_start import PILOT_SWEEPS, ROUNDS, beside_chains, from_dispersion, grown, guarded, of_logs
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.init.residual import SMALL_SPARE, SPARE, with_more_components, with_spectral_start
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import seen_rows
from tensorcep.cp.model.subsets import number_telling, of_telling, problem_in_memory
from tensorcep.cp.plan.plan import PILOTS, Pilot, Plan, continued
from tensorcep.priors.record import clocks_of

# What a training entry may gain of its log score by the noise alone, on average, from which a fit is tried first; and
# the most entries of which it is, for that takes twice its time.
FOLLOWS_NOISE, MOST_TRIED = 0.1, 100_000
# The same from which a prior is not taken at its word: below it what the right weight gains is about a hundredth.
FOLLOWS_PRIOR = 0.005


def run_plan(plan: Plan) -> Run:
    """Run a plan, from what the data say of where to start."""
    host = current_host()
    if host is not None:
        host.check_plan(plan)
    if plan.local is not None:
        return run_local(plan, plan.local, run_plan)
    if plan.method.sampler and plan.pilots:
        return run_with_pilots(plan)
    pilot = grown(of_logs(_in_memory(plan.pilots[0])), plan) if plan.pilots else None
    if pilot is not None:
        start = pilot.belief.mean[0]
        if pilot.pilot.problem.likelihood.name == plan.problem.likelihood.name:  # not one of logs
            plan = plan._replace(problem=from_dispersion(plan.problem, pilot.belief))
        alone = not any(clock is not None for clock in clocks_of(plan.problem.prior))
        if plan.method.name not in PILOTS and alone:
            return _run_from_pilot(plan, start)
        plan = _started_at(start, plan)._replace(settings=plan.after_pilot or plan.settings)
        if alone and _may_follow_noise(plan.problem):
            return _run_of_few(plan)
    elif plan.spectral and not plan.pilots:
        plan = _started_at(_from_spectra(plan), plan)
    return _run_from(plan) if plan.method.shrinks else _run_of_point(plan)


def _from_spectra(plan: Plan) -> np.ndarray | None:
    """The start from the spectra of the data, and of what components that these show leave over."""
    problem, spare = of_telling(problem_in_memory(plan.problem)), SPARE if plan.method.shrinks else SMALL_SPARE
    with threads_of(plan.n_threads) as executor:
        problem = with_spectral_start(problem, spare, executor)
        for _ in range(ROUNDS):
            shown = PointEstimate(problem.shape, problem.rank, np.asarray(problem.start), None, seen_rows(problem))
            more = with_more_components(problem, shown.components(), False, executor)
            if more is None:
                break
            problem = more
    return problem.start


def _run_of_point(plan: Plan) -> Run:
    """The run of a point estimate, and what the same without some entries says of these, since its own do not tell."""
    weighs, told = weighs_prior(plan), None
    asks = overfit(plan.problem) > FOLLOWS_PRIOR if weighs else _may_follow_noise(plan.problem)
    place = held_places(plan.problem) if asks else np.zeros(0, dtype=int)
    if weighs and len(place) >= THRESHOLDS.fewest:
        plan, told = with_best_weight(plan, place, partial(_without, afresh=True))
    one = _run_from(plan)
    if not weighs and len(place) >= THRESHOLDS.fewest and not one.stopped:
        told = _without(plan, place)
    return one._replace(left_out=told)


def _started_at(start: np.ndarray | None, plan: Plan) -> Plan:
    """The plan whose first start is this one."""
    return plan._replace(problem=plan.problem._replace(start=start), starts=(start, *plan.starts[1:]))


def _run_from(plan: Plan, *done: Run) -> Run:
    with np.errstate(over="ignore", invalid="ignore"):  # of starts that run away
        if plan.is_one_run and not done:
            return run(plan.method, plan.problem, plan.settings, **plan.how)
        return run_from_starts(plan, *done)


def _run_from_pilot(plan: Plan, start: np.ndarray) -> Run:
    """Run a plan whose first member goes on from a pilot alone, its others, or all if that fails, from random starts.

    That a random start fits the entries better after annealing is no reason to take it: it may follow the noise.
    """
    start = to_go_on_from(start, plan.problem, plan.method)
    problem, settings = plan.problem._replace(start=start), plan.after_pilot or plan.settings
    first, trial = tried(plan._replace(problem=problem, starts=(start,), members=1, settings=settings))
    one = _if_finite(first)
    if one is None:
        return _run_from(plan)
    if first.max_iter < plan.max_iter:  # it ends where it predicts best
        one = one._replace(converged=not one.stopped)
    if not one.stopped and plan.members > 1 and (trial is None or trial.lost < THRESHOLDS.least_difference):
        one = one._replace(state=None)  # it holds all messages
        each = len(plan.starts) // plan.members
        one = _run_from(plan._replace(starts=plan.starts[each:], members=plan.members - 1), one)
    if trial is None:
        return one
    told = trial.left_out  # of one member: that a mixture of several falls short of the pilot it does not say
    return one._replace(left_out=told if plan.members == 1 else told._replace(quick=told.score))


def _run_of_few(plan: Plan) -> Run:
    """Run a mean-field plan of entries that are few for the numbers of its rows.

    Starts that fit the entries best may follow the noise, and so may more sweeps from any start. Entries that both are
    not given tell whether the fit is the usual one, or goes on from what a pilot without them has found until it gets
    worse.
    """
    first, trial = tried(plan)
    if trial is None:
        return _run_from(plan)
    careful = trial.left_out
    usual = _without(plan, careful.place)
    if usual is not None and usual.score.mean() >= careful.score.mean() - THRESHOLDS.least_difference:
        return _run_from(plan)._replace(left_out=usual._replace(quick=careful.quick))
    one = _run_from(_started_at(trial.start, first)._replace(starts=(trial.start,), members=1))
    converged = one.converged if first.max_iter == plan.max_iter else not one.stopped
    return one._replace(converged=converged, left_out=trial.left_out)


def _without(plan: Plan, place: np.ndarray, afresh: bool = False) -> LeftOut | None:
    """What the plan's fit without the entries at these places says of them; None where it finds no numbers.

    Where it begins `afresh`, its spectral start does not know them either.
    """
    some = plan._replace(problem=_others(plan.problem, place), callbacks=(), verbose=False)
    some = _started_at(_from_spectra(some), some) if afresh and plan.spectral and not plan.pilots else some
    return _said(plan, place, lambda: _run_from(some))


def left_out_of_few(plan: Plan) -> LeftOut | None:
    """What one member of a plan of few entries, begun anew without some of them, says of these; None of others.

    Of more entries a fit is tried beforehand (`trials.tried`), which says it. Plans without a pilot begin where they
    are told to, which knows these entries, or at a prior that is not learned.
    """
    place, problem = held_places(plan.problem), plan.problem
    if not plan.pilots or not 0 < len(place) < THRESHOLDS.fewest:
        return None
    if plan.local is not None or problem.fixed is not None or problem.power is not None:
        return None
    some = plan._replace(
        problem=_others(problem, place),
        # many starts would take longer than all else
        pilots=tuple(one._replace(problem=_others(one.problem, place)._replace(tries=False)) for one in plan.pilots),
        starts=plan.starts[: len(plan.starts) // plan.members],
        members=1,
        max_iter=min(plan.max_iter, plan.settings.get_params().get("anneal", 0) + PILOT_SWEEPS),
        callbacks=(),
        verbose=False,
    )
    return _said(plan, place, lambda: run_plan(some))


def _others(problem: Problem, place: np.ndarray) -> Problem:
    """The problem of the entries at other places."""
    return problem_in_memory(problem, place)._replace(of_entries=None)


def _said(plan: Plan, place: np.ndarray, fit: Callable[[], Run]) -> LeftOut | None:
    found = guarded(lambda: fit().posterior, lambda one: one.components())
    if found is None:
        return None
    with threads_of(plan.n_threads) as executor:
        scores, mean, variance, *_ = beside_chains(found.components(), plan.problem, place, executor)
    return LeftOut(place, scores, scores, mean, variance) if np.isfinite(scores).all() else None


def _if_finite(plan: Plan) -> Run | None:
    """The run of a plan; None where it leaves the range of numbers."""
    try:
        one = _run_from(plan)
    except (FloatingPointError, np.linalg.LinAlgError):
        return None
    return one if _score(one) > -np.inf else None


def _in_memory(pilot: Pilot) -> Pilot:
    return pilot._replace(problem=problem_in_memory(pilot.problem))


def run_from_starts(plan: Plan, *done: Run) -> Run:
    """Run every member of a plan, each from the best of its starts, and mix what they and members before them found.

    A callback that stops one run stops all. Members that leave the range of numbers are left out.

    Raises
    ------
    FloatingPointError, LinAlgError
        If all do.
    """
    runs, errors = list(done), []
    for own in np.array_split(np.arange(len(plan.starts)), plan.members):
        member = plan._replace(
            problem=plan.problem._replace(start=plan.starts[own[0]]), starts=tuple(plan.starts[i] for i in own)
        )
        try:
            one = _best_run(member) if plan.trial_iter else run(plan.method, member.problem, plan.settings, **plan.how)
        except (FloatingPointError, np.linalg.LinAlgError) as error:
            errors.append(error)
            continue
        runs.append(one if plan.members == 1 and not done else one._replace(state=None))  # states hold all messages
        if one.stopped:
            break
    if not runs:
        raise errors[0]
    return mixed(runs, overfit(plan.problem))


def overfit(problem: Problem) -> float:
    """What the mean log score of training entries gains at most where fits of so many numbers follow the noise.

    Half a nat per number, as the chi-square law of the likelihood ratio says.
    """
    numbers = int(np.array(problem.shape) @ problem.every_free.sum(axis=1))
    return 0.5 * numbers / max(1, number_telling(problem))


def _may_follow_noise(problem: Problem) -> bool:
    """Whether entries are so few that starts which fit them best may not predict others."""
    return len(problem.entries.permutation) <= MOST_TRIED and overfit(problem) > FOLLOWS_NOISE


def _best_run(plan: Plan) -> Run:
    """Run the trial sweeps from every start, and go on from the one with the best train score.

    The result is that of one run from that start.
    """
    if plan.one_state:
        return _best_alone(plan)
    best: Run | None = None
    for start in plan.starts:
        shared = None if best is None else plan.method.of_entries(best.state)
        trial = _trial(plan, start, shared)
        if trial.stopped:
            return trial
        if best is None or _score(trial) > _score(best):
            best = trial
        del trial  # its state holds all messages
    if best is None:
        raise ValueError("starts must hold at least one start; got none.")
    return continued(plan, best)


def _trial(plan: Plan, start: np.ndarray | None, shared: Any) -> Run:
    """The trial sweeps from a start, with what another run has of the entries."""
    trials = {**plan.how, "max_iter": plan.trial_iter, "tol": 0.0, "stage": "one of several starts"}
    return run(plan.method, plan.problem._replace(start=start, of_entries=shared), plan.settings, **trials)


def _best_alone(plan: Plan) -> Run:
    """The same with one state at a time: the best start is tried again, unless it came last.

    The first one, which the data have shown, does, and is the best one more often than any other.
    """
    best, score, state = 0, -np.inf, None
    tried = [*reversed(range(len(plan.starts)))]
    for i in tried:
        shared = None if state is None else plan.method.of_entries(state)
        state = None
        trial = _trial(plan, plan.starts[i], shared)
        if trial.stopped:
            return trial
        if _score(trial) >= score:
            best, score = i, _score(trial)
        state = trial.state
        trial = trial._replace(state=None)
    if best != tried[-1]:
        shared, state = plan.method.of_entries(state), None
        trial = _trial(plan, plan.starts[best], shared)
        return trial if trial.stopped else continued(plan, trial)
    return continued(plan, trial._replace(state=state))


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
