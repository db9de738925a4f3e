"""Samplers with pilots: quick mean-field fits that find where chains start, and that are believed where chains are not.

A chain hardly leaves a bad start, and a model with more columns than the data show mixes badly. Pilots (`fleet`) are
mean-field fits of the whole model, or of some of its columns, from the spectra of the data. The best of them is the
first chain's start. What the entries that all left out say then decides how much each pilot and each chain counts
(stacking: see `tensorcep.cp.gibbs.held_out`). Where no chain counts, sampling ends with the burn-in.

Where entries are many, chains draw the columns alone that the best pilot uses, if it is of some kinds of columns only:
mean field switches columns off that a sampler still gains a little from (held-out training entries of DBLP: AUC 0.9741
with all columns, 0.9735 without; of ratings: RMSE 0.9057, 0.9064).

Of many labels chains go first, and on where they are ahead of the pilots (`ahead`). Those of pairs of modes alone,
whose columns no pilot has, go on without them.

Where entries are few, chains in the components alone that their pilot uses, and some more, have a burn-in of their own,
too: they stand in for those of all columns unless these predict entries left out better by a standard error. Half of
these components, the stronger one, then takes their place as long as it predicts those entries better. Else, where the
pilots are believed more than the chains, so do chains in the columns of the best pilot of some columns. They predict
about as well, and mean field takes the modes for independent: its intervals are too narrow. Both count the same unless
the entries left out say otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.loop import Run, run
from tensorcep.cp.ahead import Ahead, chains_ahead
from tensorcep.cp.fleet import MANY, best_of, fly_all, score_of
from tensorcep.cp.flights import SPARE_COMPONENTS, Flown
from tensorcep.cp.free_columns import some_columns
from tensorcep.cp.from_spectra import strengths, used_columns
from tensorcep.cp.gibbs.held_out import HeldOut
from tensorcep.cp.gibbs.method import with_weights
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.joined import Sampled, embedded, in_all_columns, joined_draws
from tensorcep.cp.plan import Plan, continued

# Chains in fewer columns are tried where pilots count more than this beside chains and the constant; the pilots then
# count so much unless the entries left out say otherwise.
LEAST_BELIEVED, PILOTS_BEFORE = 0.5, 0.5
# Chains in half the components are tried down to so many.
FEWEST_COMPONENTS = 3


def run_with_pilots(plan: Plan) -> Run:
    """Run a sampler beside its pilots; by itself where no pilot stays finite."""
    ahead = chains_ahead(plan)
    if ahead is not None and ahead.run is not None and ahead.run.stopped:
        return ahead.run._replace(stands_in=ahead.stands_in)
    least = -np.inf if ahead is None else ahead.score
    flown = fly_all(plan, held_places(plan.problem), least)
    ahead = ahead if ahead is not None and flown and score_of(best_of(flown)) < least else None
    if ahead is not None and ahead.stands_in:
        return _going_on(ahead.plan, ahead.run)._replace(stands_in=ahead.stands_in)
    run_of_both = _run_beside(flown, plan, ahead) if flown else None
    return _going_on(plan, None) if run_of_both is None else run_of_both


def _going_on(plan: Plan, begun: Run | None) -> Run:
    """The run of a plan without pilots, from its first sweeps on where there are such."""
    if begun is not None:
        return continued(plan, begun)
    return run(plan.method, plan.problem, plan.settings, **plan.how)


def _run_beside(flown: list[Flown], plan: Plan, ahead: Ahead | None = None) -> Run | None:
    """The run of a sampler beside pilots; None if it, or one that it needs given all entries, does not stay finite.

    It goes on where it is `ahead` of them.
    """
    many = len(plan.problem.entries.permutation) >= MANY
    best = best_of(flown)
    whole = len(best.pilot.columns) == plan.problem.rank
    if ahead is not None:
        sampled = Sampled(ahead.plan, np.arange(plan.problem.rank))
    elif many and not whole:
        sampled = _narrowed(best, plan)
    else:
        sampled = Sampled(_started(best, plan), np.arange(plan.problem.rank))
    begun = _burnt_in_if_finite(sampled, flown, plan, 0.0, None if ahead is None else ahead.run)
    if begun is None:
        return None
    if not many and not begun.stopped:
        sampled, begun = _in_fewer_columns(sampled, begun, flown, plan)
    if begun.stopped:
        return in_all_columns(begun, sampled, plan.problem)
    weighted = begun.state.held is not None and begun.state.held.weights is not None
    # no name for the run that went on: its draws are large, and it is done with them before all are joined
    if not weighted:
        return in_all_columns(continued(sampled.plan, begun), sampled, plan.problem)
    goes_on = bool(len(begun.state.chains.factors))
    return joined_draws(continued(sampled.plan, begun) if goes_on else begun, flown, sampled, plan)


def _burnt_in(sampled: Sampled, flown: list[Flown], whole: Plan, before: Any = 0.0, ahead: Run | None = None) -> Run:
    """The burn-in, and what each chain and each pilot counts at its end; `before`: pilots, if nothing tells.

    The `whole` plan has the column, if any does, of the constant beside which they count.
    """
    plan, options = sampled.plan, sampled.plan.settings
    burn_in = options.get_params()["burn_in"]
    if ahead is not None:
        begun = continued(plan._replace(max_iter=burn_in), ahead)
    else:
        stage = f"burn-in of {plan.problem.rank} columns"
        begun = run(plan.method, plan.problem, options, **{**plan.how, "max_iter": max(1, burn_in), "stage": stage})
    if begun.stopped or begun.state.held is None or not burn_in:
        return begun
    beside = [one.beside for one in flown]
    return begun._replace(state=with_weights(begun.state, whole.problem, options, beside, before))


def _in_fewer_columns(sampled: Sampled, begun: Run, flown: list[Flown], plan: Plan) -> tuple[Sampled, Run]:
    """What was sampled, and its burn-in; of chains in fewer columns where these predict entries left out as well."""
    first = begun.state.held
    if first is None or first.weights is None:
        return sampled, begun
    other = _in_used_components(flown, plan)
    if other is not None:
        again = _burnt_in_if_finite(other, flown, plan)
        if again is not None and (again.stopped or _replaces(again.state.held, first)):
            return _in_few_enough(other, again, flown, plan)
    other = _in_believed_columns(first, flown, plan)
    if other is not None:
        before = PILOTS_BEFORE * first.beside / first.beside.sum()
        again = _burnt_in_if_finite(other, flown, other.plan, before)
        if again is not None and (again.stopped or _stands_in(again.state.held, first)):
            return other, again
    return sampled, begun


def _in_few_enough(sampled: Sampled, begun: Run, flown: list[Flown], plan: Plan) -> tuple[Sampled, Run]:
    """What was sampled, and its burn-in, in half the components as long as that predicts entries left out better."""
    while not begun.stopped:
        fewer = _halved(sampled)
        again = None if fewer is None else _burnt_in_if_finite(fewer, flown, plan)
        if fewer is None or again is None or not (again.stopped or _is_better(again.state.held, begun.state.held)):
            break
        sampled, begun = fewer, again
    return sampled, begun


def _is_better(held: HeldOut, than: HeldOut) -> bool:
    return len(held.alive) > 0 and bool(held.score.mean() > than.score.mean())


def _halved(sampled: Sampled) -> Sampled | None:
    """The sampler in the stronger half of its components; None where it has few."""
    problem = sampled.plan.problem
    components = np.flatnonzero(problem.every_free.all(axis=0))
    half = len(components) // 2
    if half < FEWEST_COMPONENTS:
        return None
    weak = components[np.argsort(strengths(problem, np.asarray(problem.start))[components], kind="stable")[:-half]]
    kept = np.delete(np.arange(problem.rank), weak)
    return Sampled(sampled.plan._replace(problem=some_columns(problem, kept)), sampled.columns[kept])


def _burnt_in_if_finite(sampled: Sampled, flown: list[Flown], whole: Plan, *more: Any) -> Run | None:
    """The burn-in; None where a chain leaves the range of numbers, as wild counts can make it."""
    try:
        return _burnt_in(sampled, flown, whole, *more)
    except (FloatingPointError, np.linalg.LinAlgError):
        return None


def _in_believed_columns(held: HeldOut, flown: list[Flown], plan: Plan) -> Sampled | None:
    """The sampler in the columns of the pilot that is believed more than all chains; None if it has all columns."""
    if held.share * held.beside.sum() <= LEAST_BELIEVED:
        return None
    found = flown[int(np.argmax(held.beside))]
    if len(found.pilot.columns) == plan.problem.rank:
        return None
    # the seed of the whole tells which entries are left out
    problem = found.pilot.problem._replace(start=found.mean, seed=plan.problem.seed)
    return Sampled(plan._replace(problem=problem), found.pilot.columns)


def _in_used_components(flown: list[Flown], plan: Plan) -> Sampled | None:
    """The sampler in the components that their pilot uses, and some more; None where no pilot has components alone."""
    found = next((one for one in flown if one.pilot.problem.every_free.all()), None)
    if found is None or len(found.pilot.columns) == plan.problem.rank:
        return None
    return _narrowed(found, plan, SPARE_COMPONENTS)


def _stands_in(held: HeldOut, first: HeldOut) -> bool:
    """Whether chains are left that count, and all together predict as well, but for what choosing weights can gain."""
    least = float(first.score.sum()) - (len(first.mean) + len(first.beside) - 1.0)
    return len(held.alive) > 0 and float(held.score.sum()) > least


def _replaces(held: HeldOut, first: HeldOut) -> bool:
    """Whether chains in fewer columns are left that count, and the first ones are not better beyond chance.

    What columns add that the entries do not show is error alone.
    """
    gain = first.score - held.score
    return len(held.alive) > 0 and float(gain.mean()) <= float(gain.std() / np.sqrt(len(gain)))


def _narrowed(best: Flown, plan: Plan, spare: int = 0) -> Sampled:
    """The sampler in the columns that a pilot uses, and so many components beside these, from its means."""
    problem = best.pilot.problem
    columns = used_columns(problem, best.mean, spare)
    columns = columns if len(columns) else np.arange(problem.rank)
    # the seed of the whole tells which entries are left out
    small = some_columns(problem._replace(start=best.mean, seed=plan.problem.seed), columns)
    return Sampled(plan._replace(problem=small), best.pilot.columns[columns])


def _started(best: Flown, plan: Plan) -> Plan:
    """The sampler at the pilot's means; at the problem's start in columns that the pilot does not have."""
    problem = plan.problem
    means = embedded(best.mean[None], best.pilot.columns, problem)[0]
    own = np.isin(np.arange(problem.rank), best.pilot.columns)
    start, likelihood = np.where(own, means, np.asarray(problem.start)), best.pilot.problem.likelihood
    return plan._replace(problem=problem._replace(start=start, likelihood=likelihood))
