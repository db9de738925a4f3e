"""Samplers with pilots: quick mean-field fits that find where chains start, and that are believed where chains are not.

A chain hardly leaves a bad start, and a model with more columns than the data show mixes badly. Pilots
(`tensorcep.cp.fit.warm_start`) are mean-field fits of the whole model, or of some of its columns, from the spectra of
the data. The best of them is the first chain's start. What the entries that all left out say then decides how much each
pilot and each chain counts (stacking: see `tensorcep.cp.gibbs.held_out`); draws of both are joined, in all columns of
the plan that they serve. Where no chain counts, sampling ends with the burn-in.

Where entries are many, chains draw the columns alone that the best pilot uses, if it is of some kinds of columns only:
mean field switches columns off that a sampler still gains a little from (held-out training entries of DBLP: AUC 0.9741
with all columns, 0.9735 without; of ratings: RMSE 0.9057, 0.9064).

Of many labels chains go first, and on where they are ahead of the pilots (`chains_ahead`). Those of pairs of modes
alone, whose columns no pilot has, go on without them.

Where entries are few, chains in the components alone that their pilot uses, and some more, have a burn-in of their own,
too: they stand in for those of all columns unless these predict entries left out better by a standard error. Half of
these components, the stronger one, then takes their place as long as it predicts those entries better. Else, where the
pilots are believed more than the chains, so do chains in the columns of the best pilot of some columns. They predict
about as well, and mean field takes the modes for independent: its intervals are too narrow. Both count the same unless
the entries left out say otherwise.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.belief import Draws
from tensorcep.core.chance import THRESHOLDS
from tensorcep.core.components import Components, draw_rows, room_for_draws
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import pack
from tensorcep.cp.fit.warm_start import MANY, SPARE_COMPONENTS, Flown, best_of, fly_all, refitted, score_of
from tensorcep.cp.gibbs.chains import taken
from tensorcep.cp.gibbs.held_out import WINDOW, HeldOut, some_of
from tensorcep.cp.gibbs.method import with_weights
from tensorcep.cp.gibbs.noise_law import with_factors
from tensorcep.cp.gibbs.places import held_places
from tensorcep.cp.gibbs.shrinkage import with_constant
from tensorcep.cp.gibbs.state import GibbsState
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.init.residual import strengths, used_columns
from tensorcep.cp.model.active_columns import some_columns
from tensorcep.cp.model.latent import latent_of_draws
from tensorcep.cp.model.parameters import told_of_theta
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan, continued
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.ahead import in_columns, lines_of_modes
from tensorcep.priors.record import clocks_of


class Sampled(NamedTuple):
    """The plan that a sampler follows, and which columns of the whole plan are its columns."""

    plan: Plan
    columns: np.ndarray


def write_in(rows: np.ndarray, columns: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """Write rows (n, m, Q) in some columns (Q,) to `out` (n, m, R): in the others they are 0, in clamped ones 1.

    Draws of a pilot's Gaussian hold clamped columns at 1 to six digits only. `free` (m, R) tells of every row.
    """
    if len(columns) < out.shape[-1]:
        out[...] = 0.0
        out[..., columns] = rows
    else:
        out[...] = rows
    out[:, ~free] = 1.0


def embedded(rows: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Rows (C, n, Q) in some columns as rows (C, n, R) in all columns (see `write_in`)."""
    out = np.empty((*rows.shape[:2], problem.rank), dtype=rows.dtype)
    write_in(rows, columns, problem.rows_free, out)
    return out


def _lines(lines: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Parameters of series in some columns as those of all columns, of which the others are 0 for good."""
    free = problem.every_free
    places = [np.where(own[columns], columns, -1) for own in free]
    return in_columns(lines, clocks_of(problem.prior), places, free)


def in_all_columns(sampled: Run, of: Sampled, problem: Problem) -> Run:
    """The run with draws in all columns; of those that say the constant alone the column that holds it may be new."""
    draws: Draws = sampled.posterior
    known, unknown, free = draws.rows, draws.unknown, problem.every_free
    if len(of.columns) < problem.rank:
        sizes = (*known.shape[:3], problem.rank)
        known, more = room_for_draws(sizes, 0 if unknown is None else len(free), known.dtype)
        of_rows = problem.rows_free
        for c, rows in enumerate(draws.rows):
            write_in(rows, of.columns, of_rows, known[c])
        if draws.unknown is not None:
            unknown = more
            for c, rows in enumerate(draws.unknown):
                write_in(rows, of.columns, free, more[c])
    drifts = None if draws.drifts is None else _lines(draws.drifts, of.columns, problem)
    draws = draws._replace(rank=problem.rank, rows=known, unknown=unknown, drifts=drifts)
    held = None if sampled.state is None else sampled.state.held
    if held is not None and len(of.columns) < problem.rank:
        draws = with_constant(draws, held, problem.free, problem.prior)
    return sampled._replace(posterior=draws)


def joined_draws(sampled: Run, flown: list[Flown], of: Sampled, plan: Plan) -> Run | None:
    """The draws of the chains and of the pilots, as many of each as it counts; None where a pilot has none."""
    state: GibbsState = sampled.state
    held: Any = state.held
    settings = plan.settings.get_params()
    n = -(-(plan.max_iter - settings["burn_in"]) // settings["thin"])
    counts = np.zeros(len(plan.pilots))  # those that did not fly count nothing
    counts[[one.number for one in flown]] = held.beside
    sampled = sampled._replace(state=state._replace(held=held._replace(beside=counts)))
    if not held.beside.any():
        return in_all_columns(sampled, of, plan.problem)
    if not len(held.alive):
        n *= settings["n_chains"]  # no chain has draws
    sizes = {i: max(1, round(n * held.beside[i] / held.heaviest)) for i in np.flatnonzero(held.beside)}
    chains, own = state.chains, sampled.posterior if len(held.alive) else None
    sampled = sampled._replace(posterior=None)
    rows: list[np.ndarray] = [] if own is None else list(own.rows.reshape(-1, *own.rows.shape[2:]))
    if own is not None and chains.kept:  # the same, of which one copy is enough
        rows = [chains.kept[d][c] for d, c in taken(chains, held.weights[held.alive] / held.heaviest)]
        unknown = None if own.unknown is None else own.unknown.copy()  # parts of one array
        own = own._replace(rows=own.rows[:, :0].copy(), unknown=unknown)
    draws = _in_one_chain(own, rows, of, [(flown[i], size) for i, size in sizes.items()], plan, held.noise_ratio)
    if draws is None:
        return None
    draws = with_constant(draws, held, plan.problem.free, plan.problem.prior)
    return sampled._replace(posterior=with_factors(draws, state.noise_law))


def _in_one_chain(
    own: Draws | None,
    rows: list[np.ndarray],
    of: Sampled,
    flown: list[tuple[Flown, int]],
    plan: Plan,
    noise_ratio: float,
) -> Draws | None:
    """The draws of the chains, whose rows are given, and so many of each of these pilots, in one chain."""
    whole, n = plan.problem, len(rows)
    sizes = (1, n + sum(size for _, size in flown), sum(whole.shape), whole.rank)
    dtype = rows[0].dtype if rows else plan.settings.get_params()["dtype"]
    (known,), (unknown,) = room_for_draws(sizes, len(whole.shape), dtype)
    parts = []
    if own is not None:
        free = whole.rows_free
        for row, out in zip(rows, known, strict=False):
            write_in(row[None], of.columns, free, out[None])
        unseen: Any = own.unknown  # of learned priors, without which there are no pilots
        write_in(unseen.reshape(n, len(whole.shape), -1), of.columns, whole.every_free, unknown[:n])
        drifts = None if own.drifts is None else _lines(own.drifts, of.columns, whole)
        parts.append(own._replace(rank=whole.rank, drifts=drifts))
    for one, size in flown:
        draws = _draws_of(one, plan, noise_ratio, known[n : n + size], unknown[n : n + size])
        if draws is None:
            return None
        parts.append(draws)
        n += size
    fields: dict[str, Any] = {"rows": known[None], "unknown": unknown[None]}
    for name in ("theta", "drifts", "uneven"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    return parts[0]._replace(**fields)


def _draws_of(flown: Flown, plan: Plan, noise_ratio: float, known: np.ndarray, unknown: np.ndarray) -> Draws | None:
    """Draws from a pilot's posterior given all entries, whose rows are written to `known` (n, n_rows, R) and `unknown`.

    None where that posterior leaves the finite numbers.
    """
    pilot, whole = flown.pilot, plan.problem
    posterior = refitted(flown, plan)
    if posterior is None:
        return None
    n, rng = len(known), generator(whole.seed, Stream.PILOT, flown.number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    own: Any = belief.theta
    theta: Any = None if own is None else own.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if own is None else own.mode
    if own is not None and posterior.noise is not None:
        with np.errstate(divide="ignore", over="ignore"):  # a pilot of constant values has no noise
            theta = theta / noise_ratio
    elif own is not None and own.gamma is not None:  # draws of rows go with the mean of a dispersion
        theta = np.repeat(own.values[None], n, axis=1)
    n_rows = len(posterior.eta)
    write_in(rows[:, :n_rows], pilot.columns, whole.rows_free, known)
    write_in(rows[:, n_rows:], pilot.columns, whole.every_free, unknown)
    drifts, clocks, uneven = None, clocks_of(whole.prior), None
    if clocks:
        drifts = _lines(np.repeat(lines_of_modes(modes, clocks)[None, None], n, axis=1), pilot.columns, whole)
    if belief.theta is not None and belief.theta.uneven is not None:
        ratio = 1.0 if posterior.noise is None else noise_ratio
        uneven = np.repeat(belief.theta.uneven / [ratio, 1.0], n, axis=0)[None]
    return Draws(
        shape=whole.shape,
        rank=whole.rank,
        rows=known[None],
        theta=theta,
        theta_mode=mode,
        seen=posterior.seen,
        unknown=unknown[None],
        drifts=drifts,
        uneven=uneven,
        **told_of_theta(whole.likelihood),
    )


# Chains ahead of pilots: their first sweeps tell whether pilots are worth their time, and which columns to draw.
#
# A sweep of mean field takes several times as long as one of a chain, and where rows have many labels chains find from
# random starts what pilots find, and more (held-out training entries of DBLP: log score -.279 after 25 sweeps of four
# chains; -.280 by the pilot of the CP component, in twice their time; AUC .9750 without pilots, .9745 with them). Where
# chains are stuck the first fit of a pilot is ahead of them, and everything is as if they had not been asked.
#
# Where what chains of all columns say of entries left out is said by main effects and pairs of modes, and components
# add nothing, chains that have columns of pairs in place of the components are asked, too, then those without any. The
# first that predict better go on, were it by chance, for components have had their say (DBLP: log score -.275 after 25
# sweeps, -.285 with components; in the end AUC .9749 by two chains, .9744 by four with fewer columns of pairs).
#
# Two chains are asked: the fewest that are weighed and compared. In pairs alone they may be enough: what two more would
# gain, by the same entries, is half of what the second gained. With components, chains differ in those that they find,
# so that more starts find more, and what the first sweeps gain tells nothing of that.

# The share of the burn-in after which chains are asked; not before their running means are full.
ASKED_AFTER = 1.0 / 3.0
# Chains that are asked.
ASKED = 2
# The least share of the variance of labels left out that columns say something of them with (DBLP: pairs .59,
# components nothing beside them; labels of a CP tensor with mean zero: .0004 and .26).
LEAST_SAID = 0.01


class Ahead(NamedTuple):
    """The first sweeps of a sampler, and what they say.

    Attributes
    ----------
    plan : Plan
        The one to go on with: of all columns, or of pairs of modes alone.
    run : Run or None
        Of the chains that were asked; None where more begin anew.
    scores : (n,) float64
        Log scores of the entries that they left out.
    stands_in : int
        The number of the plan among those that may stand in for that of all columns, from 1 on; 0 is that one.
    """

    plan: Plan
    run: Run | None
    scores: np.ndarray
    stands_in: int = 0

    @property
    def score(self) -> float:
        """Their mean log score."""
        return float(self.scores.mean())

    @property
    def stopped(self) -> bool:
        """Whether a callback has stopped it."""
        return self.run is not None and self.run.stopped


def asks_chains(plan: Plan) -> bool:
    """Whether chains of a plan go ahead: those of a sampler of many labels, and of enough sweeps."""
    options, problem = plan.settings.get_params(), plan.problem
    stacked = options.get("weights") == "stacked" and options["n_chains"] >= ASKED
    asked = stacked and _sweeps(plan) >= WINDOW and problem.likelihood.observes == "labels"
    return asked and len(problem.entries.permutation) >= MANY


def chains_ahead(plan: Plan) -> Ahead | None:
    """The first sweeps of a sampler of many labels from random starts; None for other plans, and for few sweeps."""
    if not asks_chains(plan):
        return None
    found, pairs_say_all = _asked(plan)
    if found is None or found.stopped or not pairs_say_all:
        return found
    for number, paired in enumerate(plan.paired, 1):
        other, _ = _asked(*paired)
        if other is not None and (other.stopped or other.score > found.score):
            return other._replace(stands_in=number)
    return found


def _sweeps(plan: Plan) -> int:
    """The sweeps after which chains are asked."""
    return int(ASKED_AFTER * plan.settings.get_params().get("burn_in", 0))


def _asked(plan: Plan, few_may_do: bool = False) -> tuple[Ahead | None, bool]:
    """What the first sweeps of two chains say, and whether pairs say all of it; None where they left no entry out.

    `few_may_do`: whether they go on alone where two more would not gain what matters.
    """
    few = plan._replace(settings=copy(plan.settings).set_params(n_chains=ASKED))
    how = {**plan.how, "max_iter": _sweeps(plan), "stage": "first sweeps"}
    begun = run(plan.method, plan.problem, few.settings, **how)
    held = begun.state.held
    if held is None:
        return None, False
    goes_on = bool(plan.settings.get_params()["n_chains"] == ASKED)
    likelihood = plan.problem.likelihood
    if not goes_on and few_may_do and _gain_of_more(held, likelihood) < THRESHOLDS.least_difference:
        plan, goes_on = few, True
    found = Ahead(plan, begun if goes_on or begun.stopped else None, log_scores(held, likelihood))
    return found, _pairs_say_all(begun, plan.problem)


def _gain_of_more(held: HeldOut, likelihood: Likelihood) -> float:
    """What as many chains more would gain of the mean log score, by what two gain over one.

    Means of n chains differ from that of all by 1/n of what one does: from two to four is half of one to two. Without
    bound where one has ended, and the other is to be believed alone.
    """
    n = len(held.mean)
    if n < ASKED:
        return np.inf
    each = [log_scores(some_of(held, np.array([c])), likelihood).mean() for c in range(n)]
    return 0.5 * float(log_scores(held, likelihood).mean() - np.mean(each))


def _pairs_say_all(begun: Run, problem: Problem) -> bool:
    """Whether main effects and pairs say something of labels left out, and components nothing that matters beside them.

    By the last draws of all chains together, in parts of their columns.
    """
    held, factors = begun.state.held, begun.state.chains.factors
    without = _share_said(held, factors[:, :, ~problem.every_free.all(axis=0)])
    return without >= LEAST_SAID and _share_said(held, factors) - without < LEAST_SAID


def _share_said(held: HeldOut, factors: np.ndarray) -> float:
    """The squared correlation of labels left out with their mean latent values by draws (C, n_rows, Q)."""
    f = np.empty((len(factors), len(held.place)))
    latent_of_draws(np.ascontiguousarray(factors), held.rows, f)
    said, y = f.mean(axis=0), held.y - held.y.mean()
    said -= said.mean()
    scale = (said @ said) * (y @ y)
    return float((said @ y) ** 2 / scale) if scale > 0.0 else 0.0


def log_scores(held: HeldOut, likelihood: Likelihood) -> np.ndarray:
    """The log scores (n,) of entries that chains left out, by the running means of all of them together."""
    theta = np.full_like(held.y, likelihood.default_theta)
    moments = zip(held.mean, held.spread, strict=True)
    density = np.stack([likelihood.logpdf(held.y, mean, spread, theta) for mean, spread in moments])
    return np.asarray(logsumexp(density, axis=0) - np.log(len(density)))


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
