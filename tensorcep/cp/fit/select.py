"""What entries left out decide of a fit, where that is left open: its columns, where noise differs, a power of values.

This is the one place where quick fits decide what a fit is to be; its policy then says how it is run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.loop import run
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.calibration.holdout import held_out_places
from tensorcep.cp.fit import run as policies
from tensorcep.cp.fit.chains import ChainsWithQuickFits
from tensorcep.cp.fit.deviations import Deviating
from tensorcep.cp.fit.validation import best_by_score
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments
from tensorcep.cp.init.residual import strengths, used, used_columns, with_spectral_start
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.inputs.weights import check_power
from tensorcep.cp.meanfield.method import VMP
from tensorcep.cp.methods import METHODS, quick_method
from tensorcep.cp.model.columns import columns_within, parts_of
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.problem import Problem, Uneven
from tensorcep.cp.model.subsets import places_telling, problem_in_memory, some_of
from tensorcep.cp.plan import plan as planning
from tensorcep.cp.plan.auto import RANKS, chosen_with, takes_every_column, with_numbers
from tensorcep.cp.plan.plan import REFIT_ANNEAL, SPARE_COMPONENTS, Draft, Engine, Plan, QuickFit
from tensorcep.cp.plan.spec import FitSpec, is_auto
from tensorcep.cp.posterior import Posterior
from tensorcep.cp.settings import has_one_state
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.real import in_stream, likelihood_of, name_of_noise
from tensorcep.priors.by_mode import expected_of


def plan_fit(spec: FitSpec, entries: Entries, source: Any, **how: Any) -> Plan:
    """The plan of a fit, decided by rule (`tensorcep.cp.plan.plan.resolve`, which takes `how`) and by quick fits."""
    return select(planning.resolve(spec, entries, source, **how))


def select(draft: Draft) -> Plan:
    """The plan of a fit, after what entries left out tell of what was left open: noise, power of values, columns."""
    draft = with_best_columns(with_best_power(with_best_noise(draft)))
    plan, chosen, known = plan_of(draft, draft.chosen), draft.chosen, draft.facts
    expected = expected_of(plan.problem.prior) if known["_features"] or known["_series"] else None
    came_to: dict[str, Any] = {"method_": chosen.method, "rank_": chosen.rank, "max_iter_": chosen.max_iter}
    came_to |= {"prior_": chosen.prior_name, "interactions_": chosen.parts, "_expected": expected}
    return plan._replace(decided={**came_to, **known})


def plan_of(draft: Draft, chosen: Chosen, seed: Any = None) -> Plan:
    """The plan of a draft in these columns, and the policy that runs it."""
    problem, prior, row_means = planning.problem_of(draft.spec, draft.data, chosen, draft.n_starts, seed)
    (method, settings), alone = draft.engine, has_one_state(draft.engine.settings, draft.size)
    if problem.power is not None:
        check_power(method.name, problem)
    quick = quick_fits_of(draft, chosen, problem.seed) if draft.has_quick_fits else ()
    starts: dict[str, Any] = {"starts": row_means, "members": chosen.members, "quick_fits": quick}
    starts |= {"spectral": draft.spectral and not quick, "one_at_a_time": alone}
    policy: policies.MultiStart
    if quick and method.capabilities.sampler:
        policy = ChainsWithQuickFits(**starts)
    elif quick:
        if METHODS[chosen.method].capabilities.quick and chosen.settings.get_params()["anneal"] == "auto":
            settings = copy(settings).set_params(anneal=min(REFIT_ANNEAL, settings.get_params()["anneal"]))
        policy = policies.FromQuickFit(**starts, settings=settings)
    elif method.capabilities.point_estimate:
        policy = policies.PenalisedEstimate(**starts)
    else:
        policy = policies.MultiStart(**starts)
    policy = policy if draft.local is None else Deviating(**starts, local=draft.local, policy=policy)
    options = draft.options._replace(max_iter=chosen.max_iter)
    return Plan(problem, draft.engine, policy, options, prior, draft.labels, draft.facts)


# So many overdispersed counts have a quick fit of all but pairs of modes, too: in noise that begins large these take
# what components would explain. A tenth of fewer can't tell, and of more that of all columns finds what there is.
WITHOUT_PAIRS = 1000, 20_000


def quick_fits_of(draft: Draft, chosen: Chosen, seed: Any) -> tuple[QuickFit, ...]:
    """Quick fits of all columns; for samplers by default also of the CP component and of main effects alone."""
    likelihood, order, parts = draft.data.likelihood, len(draft.data.shape), chosen.parts
    method = quick_method(likelihood)
    if method is None:
        return ()
    engine = Engine(method, with_numbers(method.options(), likelihood.name, True, chosen.max_iter))
    some = {"all columns": parts}
    stacked = chosen.settings.get_params().get("weights") == "stacked"  # else one start is all that they are for
    if draft.engine.method.capabilities.sampler and stacked and is_auto(draft.spec.interactions):
        some |= {"cp": parts | {"main": 0, "pair": 0}, "main": parts | {"pair": 0, "cp": 0}}
        few = WITHOUT_PAIRS[0] <= draft.n_told < WITHOUT_PAIRS[1]
        if few and likelihood.is_dispersed and parts["pair"]:
            some |= {"main+cp": parts | {"pair": 0}}
    quick = []
    for kind, own in some.items():
        problem, *_ = planning.problem_of(draft.spec, draft.data, chosen._replace(parts=own), 1, seed)
        quick.append(QuickFit(kind, engine, problem, columns_within(own, parts, order)))
    return tuple(quick)


# Columns, by quick fits without a tenth of the entries.

# More components than a fit begins with are tried where a sweep then sums at most so many products of two numbers per
# mode: those of 25,000 entries and 40 components, some seconds for a fit.
MOST_PRODUCTS = 4e7


def with_best_columns(draft: Draft) -> Draft:
    """The draft in the columns whose quick fit predicts entries that it was not given best, beyond chance."""
    if not draft.has_quick_fits or draft.streaming:
        return draft
    spec, chosen, n, shape, able = draft.spec, draft.chosen, draft.n_told, draft.data.shape, draft.fits
    # the same fit in other columns, where it may choose them: by methods that are harmed by too many
    other = chosen._replace(parts=parts_of("main+cp", chosen.rank))
    may = not takes_every_column(chosen.method) and len(shape) > 2 and is_auto(spec.interactions)
    may = may and other.parts != chosen.parts and (is_auto(spec.rank) or able(other))
    several = (chosen, other) if may else (chosen,)
    if may or _is_harmed(spec, chosen):
        plans, best, found = [plan_of(draft, one, seed=0) for one in several], 0, None
        place = held_out_places(plans[0].problem)
        if len(place) >= THRESHOLDS.fewest:
            results, scores = zip(*(_scored(plan, plan.policy.quick_fits[0], place) for plan in plans), strict=True)
            best = best_by_score(np.stack(scores)) if may and np.isfinite(scores[0]).all() else 0
            found = results[best]
        n_used = several[best].rank
        if found is not None:  # components that say something beside the strongest column, main effects aside
            n_used = int(_components(found.quick)[used_columns(found.quick.problem, found.mean)].sum())
        return draft._replace(chosen=next((one for one in narrower(spec, several[best], n_used) if able(one)), chosen))
    wider = wider_fit(spec, chosen, n, shape)
    while wider is not None and able(wider):
        if not needs_more_components(plan_of(draft, chosen, seed=0), plan_of(draft, wider, seed=0)):
            break
        chosen, wider = wider, wider_fit(spec, wider, n, shape)
    return draft._replace(chosen=chosen)


def _is_harmed(spec: FitSpec, chosen: Chosen) -> bool:
    """Whether the fit may have fewer components, and more of them than the data show do harm: they follow the noise."""
    robust, parts = METHODS[chosen.method].capabilities.robust, chosen.parts
    return not robust and is_auto(spec.rank) and parts["cp"] == chosen.rank and not parts["pair"]


def narrower(spec: FitSpec, chosen: Chosen, n_used: int) -> Iterator[Chosen]:
    """The fit, where it may have fewer components with those that a quick fit uses and some more, then with fewer."""
    if not _is_harmed(spec, chosen):
        yield chosen
        return
    most = min(chosen.rank, max(RANKS[0], n_used + SPARE_COMPONENTS))
    for rank in range(most, min(most, RANKS[0]) - 1, -1):
        yield chosen._replace(rank=rank, parts=chosen.parts | {"cp": rank})


def wider_fit(spec: FitSpec, chosen: Chosen, n_entries: int, shape: Sequence[int]) -> Chosen | None:
    """The same fit with twice the components, where that many entries fall on a row on average."""
    # a tensor can have more components than its modes have rows, a matrix cannot
    rank, robust = 2 * chosen.rank, METHODS[chosen.method].capabilities.robust
    if not (robust and is_auto(spec.rank) and len(shape) > 2):
        return None
    enough = rank <= min(n_entries // max(1, sum(shape)), math.prod(sorted(shape)[:-1]))
    if not enough or n_entries * rank**2 > MOST_PRODUCTS:
        return None
    return chosen_with(spec, n_entries, shape, None, chosen.settings, rank)


def needs_more_components(plan: Plan, wider: Plan) -> bool:
    """Whether a fit uses most of its components, and more of them predict entries that were left out better."""
    # asked of quick fits of components alone, where there are such
    place = held_out_places(plan.problem)
    if len(place) < THRESHOLDS.fewest:
        return False

    few, many = (
        min(one.policy.quick_fits, key=lambda quick: (not _components(quick).any(), (~_components(quick)).sum()))
        for one in (plan, wider)
    )
    found, score = _scored(plan, few, place)
    if found is None:
        return False
    sizes = strengths(found.quick.problem, found.mean)[_components(found.quick)]
    if used(sizes).mean() < THRESHOLDS.mostly:
        return False
    scores = np.stack([score, _scored(wider, many, place)[1]])
    return bool(np.isfinite(scores).all()) and best_by_score(scores) == 1


def _components(quick: QuickFit) -> np.ndarray:
    """Which of its columns are free in all modes."""
    return np.asarray(quick.problem.every_free.all(axis=0))


def _scored(plan: Plan, quick: QuickFit, place: np.ndarray) -> tuple[policies.QuickResult | None, np.ndarray]:
    """What a quick fit finds without the entries at these places, and their log scores; -inf where it finds nothing."""
    found = policies.run_quick_fit_to(problem_in_memory(plan.problem, place), quick, plan, place)
    scores = None if found is None else found.scores
    return found, np.full(len(place), -np.inf) if scores is None else scores.log_density


# Noise and power.


def with_best_noise(draft: Draft) -> Draft:
    """The draft with the kind of noise that predicts entries left out best, where that was left open."""
    if draft.facts.get("noise_") != "auto":
        return draft
    problem, *_ = planning.problem_of(draft.spec, draft.data, draft.chosen, 1, seed=0)
    kinds = [None, *(Uneven(k) for k in range(len(problem.shape))), Uneven(None)]
    uneven = kinds[_best(draft, [problem._replace(uneven=kind) for kind in kinds])]
    noise = {"noise_": name_of_noise(uneven, draft.labels)}
    return draft._replace(data=draft.data._replace(uneven=uneven), facts=draft.facts | noise)


def with_best_power(draft: Draft) -> Draft:
    """The draft with the power of the values that predicts entries left out best, where several may be it."""
    powers = draft.facts.get("power_")
    if not isinstance(powers, tuple):
        return draft
    (entries, weight), data, chosen = draft.given, draft.data, draft.chosen
    powers = in_stream(powers) if draft.streaming else powers
    centred = draft.spec.target.has_intercept(chosen)
    tried = [likelihood_of(power, entries[1], centred, weight) for power in powers]
    each = [data]  # of the first, which is 1
    for likelihood, _ in tried[1:]:
        packed, own, ordered = planning.packed_entries(draft.spec, entries, likelihood, None, weight)
        each.append(data._replace(entries=packed, values=own, likelihood=likelihood, weight=ordered))
    best = _best(draft, [planning.problem_of(draft.spec, one, chosen, 1, seed=0)[0] for one in each])
    return draft._replace(data=each[best], facts=draft.facts | tried[best][1])


def _best(draft: Draft, problems: Sequence[Problem]) -> int:
    """Which problem mean-field fits predict entries of best that they were not given."""
    chosen, likelihood = draft.chosen, draft.data.likelihood.name
    settings = with_numbers(VMP.options(), likelihood, chosen.learns_prior, chosen.max_iter)
    return best_problem(problems, Engine(VMP, settings), tol=draft.spec.tol)


# A choice between problems by entries that quick mean-field fits leave out.
#
# The same entries are fitted in every problem from the same start, of very many a part; those left out are a fifth, of
# few entries each fifth in turn. The problem that predicts them best by the mean log score is taken if it beats the
# first by more than chance. A problem that after some fits is behind the best
# one by far more is not fitted to the others. One whose means are far off is not taken whatever its scores: the
# logarithm of values between two bounds says well how small ones differ, and predicts some large ones ten times too
# high.

# Sweeps of a fit after the annealed ones.
SWEEPS = 30
# As many parts of the entries are left out in turn as hold so many entries; and the most entries.
ENOUGH, MOST = 4000, 100_000
# An entry speaks against a problem by so many nats at most: a few far out would otherwise drown what all others say.
MOST_WORSE = 10.0
# A problem is given up when it is surely behind after so many fits, of which one may be unlucky, or when the mean
# square of its errors is far off that of the first, in geometric mean over as many parts at least: of values with long
# tails a single one may be.
FITS = 2


def best_problem(problems: Sequence[Problem], engine: Engine, **how: Any) -> int:
    """Which problem of the same entries predicts left out ones best; the first of few, or where chance could do it."""
    if len(problems) == 1:
        return 0
    method, settings = engine
    sweeps = settings.get_params()["anneal"] + SWEEPS
    # many starts would take longer than all else, and no choice was another with them
    problems = [one._replace(tries=False) for one in problems]
    n = len(problems[0].entries.permutation)
    if n > MOST:
        part = np.sort(generator(problems[0].seed, RandomStream.HELD_OUT).permutation(n)[:MOST])
        problems = [some_of(one, part) for one in problems]
    scores, left = np.empty((len(problems), 0)), np.arange(len(problems))
    squares: list[np.ndarray] = []
    told, folds = places_telling(problems[0]), []  # places in the lanes of the entries that are left out in turn
    if len(told) >= THRESHOLDS.fewest:
        order = generator(problems[0].seed, RandomStream.HELD_OUT).permutation(told)
        folds = np.array_split(order, THRESHOLDS.folds)[: -(-ENOUGH * THRESHOLDS.folds // len(told))]
    for fit, place in enumerate(folds, 1):
        new = np.full((len(problems), len(place)), -np.inf)
        off = np.full(new.shape, np.inf)
        for i in left:
            found = run(method, _without(problems[i], place), settings, max_iter=sweeps, **how).posterior
            new[i], off[i] = _judged(found, problems[i], place)
        scores = np.concatenate([scores, np.maximum(new, new.max(axis=0) - MOST_WORSE)], axis=1)
        squares += [part.sum(axis=1) for part in np.array_split(off, FITS if len(folds) < FITS else 1, axis=1)]
        if len(squares) >= FITS and left[0] == 0:
            left = left[~far_off(np.stack(squares, axis=1))[left]]
        if fit >= FITS:
            left = left[~far_behind(scores[left])]
        if len(left) == 1:
            return int(left[0])
    if not scores.size:
        return 0
    return int(left[best_by_score(scores[left]) if left[0] == 0 else np.argmax(scores[left].mean(axis=1))])


def far_behind(scores: np.ndarray) -> np.ndarray:
    """Which of the log scores (m, n) of n entries are worse on average than the best by far more than chance."""
    with np.errstate(invalid="ignore"):
        loss = scores[np.argmax(np.nan_to_num(scores.mean(axis=1), nan=-np.inf))] - scores
        return np.asarray(loss.mean(axis=1) > THRESHOLDS.surely * loss.std(axis=1) / np.sqrt(scores.shape[1]))


def far_off(squares: np.ndarray) -> np.ndarray:
    """Which of the sums of squared errors (m, k) of k parts are far above the first one's."""
    with np.errstate(all="ignore"):
        return np.asarray(np.log(squares / squares[0]).mean(axis=1) > np.log(THRESHOLDS.most_off))


def _without(problem: Problem, place: np.ndarray) -> Problem:
    """The problem without these entries, from a start that the others show."""
    known = some_of(problem, np.delete(np.arange(len(problem.entries.permutation)), place))
    return known if known.start is None else with_spectral_start(known)


def _judged(found: Posterior, problem: Problem, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log predictive densities (n,) of the observations at these places, and the squares of what means are off."""
    rows, z, likelihood = rows_of(problem.entries, place), problem.entries.y.ravel()[place], problem.likelihood
    belief, known = found.components(), np.zeros(len(place))
    with np.errstate(all="ignore"):
        score = observed_logpdf(likelihood, belief, rows, z) + likelihood.log_slopes(z)
        mean = observed_moments(likelihood, belief, rows)[0]
        off = mean - likelihood.quantile(0.5, z, known, known + np.inf)  # the observation, of which z may be a power
        squares = np.nan_to_num(off * off, nan=np.inf)
    return np.where(np.isfinite(score), score, -np.inf), squares
