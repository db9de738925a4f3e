"""Chains beside quick fits: the policy of samplers.

A chain hardly leaves a bad start, and a model with more columns than the data show mixes badly. Quick mean-field fits
of the columns of a plan, or of some of them (`tensorcep.cp.fit.run`), show where chains start, and are believed
where chains are not: draws of both are joined, in all columns of the plan, each counting as much as the entries that
all left out say (stacking: see `tensorcep.cp.calibration.holdout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import Run, run
from tensorcep.core.packing import pack
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.calibration.holdout import HeldOut, held_out_places, with_factors
from tensorcep.cp.calibration.null_model import with_constant
from tensorcep.cp.fit import run as policies
from tensorcep.cp.fit.run import MANY, MultiStart, QuickResult
from tensorcep.cp.fit.validation import finite_or_none
from tensorcep.cp.gibbs.method import GibbsState, draws_to_take, with_weights
from tensorcep.cp.init.residual import strengths, used_columns
from tensorcep.cp.model.columns import some_columns
from tensorcep.cp.model.parameters import told_of_theta
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import SPARE_COMPONENTS, Plan
from tensorcep.cp.posterior import Components, Draws, draw_rows, room_for_draws
from tensorcep.priors.ou_process import in_columns, lines_of_modes

# Chains in fewer columns are tried where quick fits count more than this beside chains and the constant; these then
# count so much unless the entries left out say otherwise.
LEAST_BELIEVED, BELIEVED_BEFORE = 0.5, 0.5
# Chains in half the components are tried down to so many.
FEWEST_COMPONENTS = 3


@dataclass(frozen=True)
class ChainsWithQuickFits(MultiStart):
    """Chains from the best quick fit, in the columns that the data show, and stacked with the quick fits.

    First quick fits of all columns, of components alone, and of main effects alone, without a tenth of the entries. The
    one that predicts these best is the chains' start. Then the burn-in, at whose end the same entries decide how much
    each chain and each quick fit counts; where no chain does, sampling ends there.

    Of 50,000 entries and more, chains draw the columns alone that the best quick fit uses, if it is of some kinds of
    columns only: mean field switches columns off that a sampler still gains a little from (held-out training entries of
    DBLP: AUC 0.9741 with all columns, 0.9735 without; of ratings: RMSE 0.9057, 0.9064).

    Of fewer entries, chains in the components alone that their quick fit uses, and some more, have a burn-in, too: they
    stand in for those of all columns unless these predict entries left out better by a standard error. Half of these
    components, the stronger one, then takes their place as long as it predicts those entries better. Else, where quick
    fits are believed more than the chains, so do chains in the columns of the best quick fit of some columns. They
    predict about as well, and mean field takes the modes for independent: its intervals are too narrow. Both count the
    same unless the entries left out say otherwise.

    Costs three quick fits, one to five burn-ins (half of `max_iter` each), and the sweeps that are drawn.
    """

    def run(self, plan: Plan) -> Run:
        """Run a plan; by chains alone where no quick fit, or a chain of all columns, stays finite."""
        results = policies.run_quick_fits(plan, held_out_places(plan.problem)) if self.quick_fits else []
        with_them = _run_with(results, plan) if results else None
        return super().run(plan) if with_them is None else with_them


class Sampled(NamedTuple):
    """The plan that a sampler follows, and which columns of the whole plan are its columns."""

    plan: Plan
    columns: np.ndarray


def _run_with(results: list[QuickResult], plan: Plan) -> Run | None:
    """A sampler's run with quick fits; None if it, or one of them given all entries, does not stay finite."""
    many = len(plan.problem.entries.permutation) >= MANY
    best, problem = policies.best_of(results), plan.problem
    if many and len(best.quick.columns) < problem.rank:
        sampled = _narrowed(best, plan)
    else:  # at the quick fit's means, and at the problem's start in columns that it does not have
        start, own = np.array(problem.start), best.quick.columns
        start[:, own] = np.where(problem.rows_free[:, own], best.mean, 1.0)
        begun_at = plan.with_problem(start=start, likelihood=best.quick.problem.likelihood)
        sampled = Sampled(begun_at, np.arange(problem.rank))
    begun = _burnt_in(sampled, results, plan)
    if begun is None:
        return None
    if not many and not begun.stopped:
        sampled, begun = _in_fewer_columns(sampled, begun, results, plan)
    if begun.stopped:
        return in_all_columns(begun, sampled, plan.problem)
    weighted = begun.state.held is not None and begun.state.held.weights is not None
    # no name for the run that went on: its draws are large, and it is done with them before all are joined
    if not weighted:
        return in_all_columns(policies.continued(sampled.plan, begun), sampled, plan.problem)
    goes_on = bool(len(begun.state.rows))
    return joined_draws(policies.continued(sampled.plan, begun) if goes_on else begun, results, sampled, plan)


def _burnt_in(sampled: Sampled, results: list[QuickResult], whole: Plan, before: Any = 0.0) -> Run | None:
    """The burn-in, and what each chain and each quick fit counts at its end (these `before`); None if not finite."""
    problem, (method, settings), how = sampled.plan.problem, sampled.plan.engine, sampled.plan.options._asdict()
    burn_in = settings.get_params()["burn_in"]
    how |= {"max_iter": max(1, burn_in), "stage": f"burn-in of {problem.rank} columns"}

    def burn() -> Run:
        begun = run(method, problem, settings, **how)
        if begun.stopped or begun.state.held is None or not burn_in:
            return begun
        beside = [one.scores for one in results if one.scores is not None]
        # the whole plan has the column of the constant, if any does
        return begun._replace(state=with_weights(begun.state, whole.problem, settings, beside, before))

    return finite_or_none(burn)


def _in_fewer_columns(sampled: Sampled, begun: Run, results: list[QuickResult], plan: Plan) -> tuple[Sampled, Run]:
    """What was sampled, and its burn-in; of chains in fewer columns where these predict entries left out as well."""
    first = begun.state.held
    if first is None or first.weights is None:
        return sampled, begun
    found = next((one for one in results if one.quick.problem.every_free.all()), None)
    if found is not None and len(found.quick.columns) < plan.problem.rank:
        other = _narrowed(found, plan, SPARE_COMPONENTS)
        again = _burnt_in(other, results, plan)
        if again is not None and (again.stopped or _replaces(again.state.held, first)):
            return _in_few_enough(other, again, results, plan)
    believed = results[int(np.argmax(first.beside))] if first.share * first.beside.sum() > LEAST_BELIEVED else None
    if believed is not None and len(believed.quick.columns) < plan.problem.rank:
        # the seed of the whole tells which entries are left out
        problem = believed.quick.problem._replace(start=believed.mean, seed=plan.problem.seed)
        other = Sampled(plan._replace(problem=problem), believed.quick.columns)
        before = BELIEVED_BEFORE * first.beside / first.beside.sum()
        again = _burnt_in(other, results, other.plan, before)
        if again is not None and again.stopped:
            return other, again
        # chains are left that count, and all together predict as well, but for what choosing weights can gain
        least = float(first.score.sum()) - (len(first.mean) + len(first.beside) - 1.0)
        if again is not None and len(again.state.held.alive) and float(again.state.held.score.sum()) > least:
            return other, again
    return sampled, begun


def _in_few_enough(sampled: Sampled, begun: Run, results: list[QuickResult], plan: Plan) -> tuple[Sampled, Run]:
    """What was sampled, and its burn-in, in half the components as long as that predicts entries left out better."""
    while not begun.stopped:
        fewer = _halved(sampled)
        again = None if fewer is None else _burnt_in(fewer, results, plan)
        if fewer is None or again is None:
            break
        held, before = again.state.held, begun.state.held
        if not again.stopped and not (len(held.alive) and held.score.mean() > before.score.mean()):
            break
        sampled, begun = fewer, again
    return sampled, begun


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


def _replaces(held: HeldOut, first: HeldOut) -> bool:
    """Whether chains in fewer columns are left that count, and the first ones are not better beyond chance."""
    gain = first.score - held.score  # what columns add that the entries do not show is error alone
    return len(held.alive) > 0 and float(gain.mean()) <= float(gain.std() / np.sqrt(len(gain)))


def _narrowed(best: QuickResult, plan: Plan, spare: int = 0) -> Sampled:
    """The sampler in the columns that a quick fit uses, and so many components beside these, from its means."""
    problem = best.quick.problem
    columns = used_columns(problem, best.mean, spare)
    columns = columns if len(columns) else np.arange(problem.rank)
    # the seed of the whole tells which entries are left out
    small = some_columns(problem._replace(start=best.mean, seed=plan.problem.seed), columns)
    return Sampled(plan._replace(problem=small), best.quick.columns[columns])


def write_in(rows: np.ndarray, columns: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """Write rows (..., m, Q) in some columns (Q,) to `out` (..., m, R): 0 in others, and 1 where not `free` (m, R)."""
    # draws of a quick fit's Gaussian hold clamped columns at 1 to six digits only
    if len(columns) < out.shape[-1]:
        out[...] = 0.0
        out[..., columns] = rows
    else:
        out[...] = rows
    out[..., ~free] = 1.0


def _lines(lines: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Parameters of series in some columns as those of all columns, of which the others are 0 for good."""
    free = problem.every_free
    places = [np.where(own[columns], columns, -1) for own in free]
    return in_columns(lines, problem.prior.clocks, places, free)


def in_all_columns(sampled: Run, of: Sampled, problem: Problem) -> Run:
    """The run with draws in all columns; of those that say the constant alone the column that holds it may be new."""
    draws: Draws = sampled.posterior
    known, unknown, free = draws.rows, draws.unknown, problem.every_free
    if len(of.columns) < problem.rank:
        sizes = (*known.shape[:3], problem.rank)
        known, more = room_for_draws(sizes, 0 if unknown is None else len(free), known.dtype)
        write_in(draws.rows, of.columns, problem.rows_free, known)
        if draws.unknown is not None:
            unknown = more
            write_in(draws.unknown, of.columns, free, more)
    drifts = None if draws.drifts is None else _lines(draws.drifts, of.columns, problem)
    draws = draws._replace(rank=problem.rank, rows=known, unknown=unknown, drifts=drifts)
    held = None if sampled.state is None else sampled.state.held
    if held is not None and len(of.columns) < problem.rank:
        draws = with_constant(draws, held, problem.free, problem.prior)
    return sampled._replace(posterior=draws)


def joined_draws(sampled: Run, results: list[QuickResult], of: Sampled, plan: Plan) -> Run | None:
    """The draws of the chains and of the quick fits in one chain, as many as each counts; None where one has none."""
    state: GibbsState = sampled.state
    held: Any = state.held
    settings = plan.engine.settings.get_params()
    n = -(-(plan.options.max_iter - settings["burn_in"]) // settings["thin"])
    counts = np.zeros(len(plan.policy.quick_fits))  # those that did not fly count nothing
    counts[[one.number for one in results]] = held.beside
    sampled = sampled._replace(state=state.put(held=held._replace(beside=counts)))
    if not held.beside.any():
        return in_all_columns(sampled, of, plan.problem)
    if not len(held.alive):
        n *= settings["n_chains"]  # no chain has draws
    sizes = {i: max(1, round(n * held.beside[i] / held.heaviest)) for i in np.flatnonzero(held.beside)}
    kept, own = state.own.kept.rows, sampled.posterior if len(held.alive) else None
    sampled = sampled._replace(posterior=None)
    rows: list[np.ndarray] = [] if own is None else list(own.rows.reshape(-1, *own.rows.shape[2:]))
    if own is not None and kept:  # the same, of which one copy is enough
        rows = [kept[d][c] for d, c in draws_to_take(state, held.shares)]
        unseen = None if own.unknown is None else own.unknown.copy()  # parts of one array
        own = own._replace(rows=own.rows[:, :0].copy(), unknown=unseen)
    whole, n = plan.problem, len(rows)
    room = (1, n + sum(sizes.values()), sum(whole.shape), whole.rank)
    (known,), (unknown,) = room_for_draws(room, len(whole.shape), rows[0].dtype if rows else settings["dtype"])
    parts = []
    if own is not None:
        free = whole.rows_free
        for row, out in zip(rows, known, strict=False):
            write_in(row, of.columns, free, out)
        # learned priors have unknown rows, and without these there are no quick fits
        write_in(own.unknown.reshape(n, len(whole.shape), -1), of.columns, whole.every_free, unknown[:n])
        drifts = None if own.drifts is None else _lines(own.drifts, of.columns, whole)
        parts.append(own._replace(rank=whole.rank, drifts=drifts))
    for i, size in sizes.items():
        draws = _draws_of(results[i], plan, held.noise_ratio, known[n : n + size], unknown[n : n + size])
        if draws is None:
            return None
        parts.append(draws)
        n += size
    fields: dict[str, Any] = {"rows": known[None], "unknown": unknown[None]}
    for name in ("theta", "drifts", "uneven"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    draws = with_constant(parts[0]._replace(**fields), held, whole.free, whole.prior)
    return sampled._replace(posterior=with_factors(draws, state.own.noise_law))


def _draws_of(
    found: QuickResult, plan: Plan, noise_ratio: float, known: np.ndarray, unknown: np.ndarray
) -> Draws | None:
    """Draws of a quick fit given all entries, rows in `known` (n, n_rows, R) and `unknown`; None if not finite."""
    columns, whole, posterior = found.quick.columns, plan.problem, policies.refitted(found, plan)
    if posterior is None:
        return None
    n, rng = len(known), generator(whole.seed, RandomStream.PILOT, found.number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    own: Any = belief.theta
    theta: Any = None if own is None else own.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if own is None else own.mode
    if own is not None and posterior.noise is not None:
        with np.errstate(divide="ignore", over="ignore"):  # a quick fit of constant values has no noise
            theta = theta / noise_ratio
    elif own is not None and own.gamma is not None:  # draws of rows go with the mean of a dispersion
        theta = np.repeat(own.values[None], n, axis=1)
    n_rows = len(posterior.eta)
    write_in(rows[:, :n_rows], columns, whole.rows_free, known)
    write_in(rows[:, n_rows:], columns, whole.every_free, unknown)
    drifts, clocks, uneven = None, whole.prior.clocks, None
    if clocks:
        drifts = _lines(np.repeat(lines_of_modes(modes, clocks)[None, None], n, axis=1), columns, whole)
    if belief.theta is not None and belief.theta.uneven is not None:
        ratio = 1.0 if posterior.noise is None else noise_ratio
        uneven = np.repeat(belief.theta.uneven / [ratio, 1.0], n, axis=0)[None]
    laws: dict[str, Any] = {"theta": theta, "theta_mode": mode, "drifts": drifts, "uneven": uneven}
    laws |= told_of_theta(whole.likelihood)
    return Draws(whole.shape, whole.rank, rows=known[None], unknown=unknown[None], seen=posterior.seen, **laws)
