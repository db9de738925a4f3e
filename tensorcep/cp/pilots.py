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

Where entries are few and the pilots are believed more than the chains, chains in the columns of the best pilot of some
columns have a burn-in of their own and stand in for the others. They predict about as well, and mean field takes the
modes for independent: its intervals are too narrow. Both count the same unless the entries left out say otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.components import Components, draw_rows, stacked
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import pack
from tensorcep.cp.ahead import Ahead, chains_ahead
from tensorcep.cp.fleet import MANY, best_of, fly_all, score_of
from tensorcep.cp.flights import Flown, refitted
from tensorcep.cp.free_columns import some_columns
from tensorcep.cp.from_spectra import used_columns
from tensorcep.cp.gibbs.chains import taken
from tensorcep.cp.gibbs.held_out import HeldOut
from tensorcep.cp.gibbs.method import with_weights
from tensorcep.cp.gibbs.noise_law import with_factors
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.gibbs.shrinkage import with_constant
from tensorcep.cp.gibbs.state import GibbsState
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.plan import Plan, continued
from tensorcep.cp.problem import Problem
from tensorcep.priors.ahead import in_columns, lines_of_modes
from tensorcep.priors.record import clocks_of

# Chains in fewer columns are tried where pilots count more than this beside chains and the constant; the pilots then
# count so much unless the entries left out say otherwise.
LEAST_BELIEVED, PILOTS_BEFORE = 0.5, 0.5


class Sampled(NamedTuple):
    """The plan that a sampler follows, and which columns of the whole plan are its columns."""

    plan: Plan
    columns: np.ndarray


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
    """The run of a sampler beside pilots; None if it needs one that does not stay finite given all entries.

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
    begun = _burnt_in(sampled, flown, ahead=None if ahead is None else ahead.run)
    other = None if many or begun.stopped else _in_fewer_columns(begun.state.held, flown, plan)
    if other is not None:
        again = _burnt_in(other, flown, PILOTS_BEFORE * begun.state.held.beside / begun.state.held.beside.sum())
        if again.stopped or _stands_in(again.state.held, begun.state.held):
            sampled, begun = other, again
    if begun.stopped:
        return _whole(begun, sampled, plan.problem)
    weighted = begun.state.held is not None and begun.state.held.weights is not None
    # no name for the run that went on: its draws are large, and it is done with them before all are joined
    if not weighted:
        return _whole(continued(sampled.plan, begun), sampled, plan.problem)
    goes_on = bool(len(begun.state.chains.factors))
    return _joined(continued(sampled.plan, begun) if goes_on else begun, flown, sampled, plan)


def _burnt_in(sampled: Sampled, flown: list[Flown], before: Any = 0.0, ahead: Run | None = None) -> Run:
    """The burn-in, and what each chain and each pilot counts at its end; `before`: pilots, if nothing tells."""
    plan, options = sampled.plan, sampled.plan.settings
    burn_in = options.get_params()["burn_in"]
    if ahead is not None:
        begun = continued(plan._replace(max_iter=burn_in), ahead)
    else:
        begun = run(plan.method, plan.problem, options, **{**plan.how, "max_iter": max(1, burn_in)})
    if begun.stopped or begun.state.held is None or not burn_in:
        return begun
    beside = [one.beside for one in flown]
    return begun._replace(state=with_weights(begun.state, plan.problem, options, beside, before))


def _in_fewer_columns(held: HeldOut | None, flown: list[Flown], plan: Plan) -> Sampled | None:
    """The sampler in the columns of the pilot that is believed more than all chains; None if it has all columns."""
    if held is None or held.weights is None or held.share * held.beside.sum() <= LEAST_BELIEVED:
        return None
    found = flown[int(np.argmax(held.beside))]
    if len(found.pilot.columns) == plan.problem.rank:
        return None
    # the seed of the whole tells which entries are left out
    problem = found.pilot.problem._replace(start=found.mean, seed=plan.problem.seed)
    return Sampled(plan._replace(problem=problem), found.pilot.columns)


def _stands_in(held: HeldOut, first: HeldOut) -> bool:
    """Whether chains are left that count, and all together predict as well, but for what choosing weights can gain."""
    least = float(first.score.sum()) - (len(first.mean) + len(first.beside) - 1.0)
    return len(held.alive) > 0 and float(held.score.sum()) > least


def _narrowed(best: Flown, plan: Plan) -> Sampled:
    """The sampler in the columns that the best pilot uses, from its means."""
    problem = best.pilot.problem
    columns = used_columns(problem, best.mean)
    columns = columns if len(columns) else np.arange(problem.rank)
    # the seed of the whole tells which entries are left out
    small = some_columns(problem._replace(start=best.mean, seed=plan.problem.seed), columns)
    return Sampled(plan._replace(problem=small), best.pilot.columns[columns])


def _started(best: Flown, plan: Plan) -> Plan:
    """The sampler at the pilot's means; at the problem's start in columns that the pilot does not have."""
    problem = plan.problem
    means = _embedded(best.mean[None], best.pilot.columns, problem)[0]
    own = np.isin(np.arange(problem.rank), best.pilot.columns)
    return plan._replace(problem=problem._replace(start=np.where(own, means, np.asarray(problem.start))))


def _embedded(rows: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Rows (C, n, Q) in some columns as rows (C, n, R) in all columns, of which the others are 0.

    Clamped columns, which draws of a pilot's Gaussian hold at 1 to six digits only, are 1.
    """
    free, out = problem.every_free, rows
    if len(columns) < problem.rank:
        out = np.zeros((*rows.shape[:2], problem.rank), dtype=rows.dtype)
        out[:, :, columns] = rows
    clamped = ~np.repeat(free, problem.shape, axis=0) if rows.shape[1] > len(free) else ~free
    out[:, clamped] = 1.0
    return out


def _lines(lines: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Parameters of series in some columns as those of all columns, of which the others are 0 for good."""
    free = problem.every_free
    places = [np.where(own[columns], columns, -1) for own in free]
    return in_columns(lines, clocks_of(problem.prior), places, free)


def _whole(sampled: Run, of: Sampled, problem: Problem) -> Run:
    """The run with draws in all columns."""
    draws: Draws = sampled.posterior

    def whole(rows: np.ndarray) -> np.ndarray:
        return _embedded(rows.reshape(-1, *rows.shape[2:]), of.columns, problem).reshape(*rows.shape[:3], -1)

    unknown = None if draws.unknown is None else whole(draws.unknown)
    drifts = None if draws.drifts is None else _lines(draws.drifts, of.columns, problem)
    rows = whole(draws.rows)
    return sampled._replace(posterior=draws._replace(rank=problem.rank, rows=rows, unknown=unknown, drifts=drifts))


def _joined(sampled: Run, flown: list[Flown], of: Sampled, plan: Plan) -> Run | None:
    """The draws of the chains and of the pilots, as many of each as it counts; None where a pilot has none."""
    state: GibbsState = sampled.state
    held: Any = state.held
    settings = plan.settings.get_params()
    n = -(-(plan.max_iter - settings["burn_in"]) // settings["thin"])
    counts = np.zeros(len(plan.pilots))  # those that did not fly count nothing
    counts[[one.number for one in flown]] = held.beside
    sampled = sampled._replace(state=state._replace(held=held._replace(beside=counts)))
    if not held.beside.any():
        return _whole(sampled, of, plan.problem)
    if not len(held.alive):
        n *= settings["n_chains"]  # no chain has draws
    parts, rows = _parts_of_chains(sampled, of, plan) if len(held.alive) else ([], [])
    sampled = sampled._replace(posterior=None)
    for i in np.flatnonzero(held.beside):
        size = max(1, round(n * held.beside[i] / held.heaviest))
        draws = _draws_of(flown[i], size, plan, held.noise_ratio)
        if draws is None:
            return None
        parts.append(draws)
        rows += list(draws.rows[0])
    draws = with_constant(_in_one_chain(parts, rows), held, plan.problem.free, plan.problem.prior)
    return sampled._replace(posterior=with_factors(draws, state.noise_law))


def _parts_of_chains(sampled: Run, of: Sampled, plan: Plan) -> tuple[list[Draws], list[np.ndarray]]:
    """The draws of the chains without their rows, and these."""
    held, chains, own = sampled.state.held, sampled.state.chains, sampled.posterior
    rows = list(own.rows.reshape(-1, *own.rows.shape[2:]))
    if chains.kept:  # the same, of which one copy is enough
        rows = [chains.kept[d][c] for d, c in taken(chains, held.weights[held.alive] / held.heaviest)]
    rows = [_embedded(row[None], of.columns, plan.problem)[0] for row in rows]
    unknown = None
    if own.unknown is not None:
        unknown = _embedded(own.unknown.reshape(-1, *own.unknown.shape[2:]), of.columns, plan.problem)[None].copy()
    drifts = None if own.drifts is None else _lines(own.drifts, of.columns, plan.problem)
    rank, none = plan.problem.rank, np.empty((1, 0, *rows[0].shape))
    return [own._replace(rank=rank, rows=none, unknown=unknown, drifts=drifts)], rows


def _draws_of(flown: Flown, n: int, plan: Plan, noise_ratio: float) -> Draws | None:
    """Draws from a pilot's posterior given all entries; None where that leaves the finite numbers."""
    pilot, whole = flown.pilot, plan.problem
    posterior = refitted(flown, plan)
    if posterior is None:
        return None
    rng = generator(whole.seed, Stream.PILOT, flown.number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    theta: Any = None if belief.theta is None else belief.theta.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if belief.theta is None else belief.theta.mode
    if belief.theta is not None and posterior.noise is not None:
        theta = theta / noise_ratio
    n_rows = len(posterior.eta)
    dtype = plan.settings.get_params()["dtype"]
    parts = (rows[:, :n_rows], rows[:, n_rows:])
    known, unknown = (_embedded(part, pilot.columns, whole)[None].astype(dtype, copy=False) for part in parts)
    drifts, clocks, uneven = None, clocks_of(whole.prior), None
    if clocks:
        drifts = _lines(np.repeat(lines_of_modes(modes, clocks)[None, None], n, axis=1), pilot.columns, whole)
    if belief.theta is not None and belief.theta.uneven is not None:
        ratio = 1.0 if posterior.noise is None else noise_ratio
        uneven = np.repeat(belief.theta.uneven / [ratio, 1.0], n, axis=0)[None]
    return Draws(
        shape=whole.shape,
        rank=whole.rank,
        rows=known,
        theta=theta,
        theta_mode=mode,
        seen=posterior.seen,
        unknown=unknown,
        drifts=drifts,
        uneven=uneven,
        has_share=whole.likelihood.zeros is not None,
    )


def _in_one_chain(parts: list[Draws], rows: list[np.ndarray]) -> Draws:
    """All draws, one chain after the other, in one; `rows` are theirs."""
    fields: dict[str, Any] = {}
    for name in ("theta", "unknown", "drifts", "uneven"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    unknown = fields["unknown"][0] if "unknown" in fields else ()
    fields["rows"], fields["unknown"] = stacked(rows, unknown, (1, len(rows)))
    return parts[0]._replace(**fields)
