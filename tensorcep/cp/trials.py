"""How an engine that may follow the noise goes on from a pilot: by what entries say that it was not given.

Message passing can leave what a pilot has found, for products of uncertain numbers are no Gaussians, and a learned
prior then gives way: annealed sweeps are tried, then none where they lose some of it, and where a fit gets worse with
every sweep it ends when it is best.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import threads_of
from tensorcep.core.loop import AnyMethod, LeftOut
from tensorcep.cp.flights import PATIENCE, PILOT_SWEEPS, Asked, grown, guarded, of_logs, run_of
from tensorcep.cp.from_spectra import used_columns
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.plan import Pilot, Plan
from tensorcep.cp.problem import Problem, with_entries_of
from tensorcep.cp.sampled import problem_in_memory
from tensorcep.cp.standard_form import layout_of, shared_scales

# The fewest entries that tell, and what is lost of their mean log score by chance.
FEWEST, LEAST_LOSS = 50, 0.01


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
    if len(place) < FEWEST:
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
    if anneal and not (trials and trials[0].lost < LEAST_LOSS and trials[0].good >= found.good - LEAST_LOSS):
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
