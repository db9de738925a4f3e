"""What entries left out decide of a fit, where that is left open: its columns, where noise differs, a power of values.

This is the one place where quick fits decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tensorcep.cp.fit.chains import asks_chains
from tensorcep.cp.fit.validation import best_of_plans, best_problem, components_in_use, needs_more_components
from tensorcep.cp.fit.warm_start import SPARE_COMPONENTS
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.meanfield.method import VMP
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import parts_of
from tensorcep.cp.model.problem import Problem, Uneven
from tensorcep.cp.plan.auto import RANKS, chosen_with, takes_every_column, with_numbers
from tensorcep.cp.plan.plan import Paired, Plan
from tensorcep.cp.plan.priors import Rows
from tensorcep.cp.plan.resolve import Draft, FitPlan, packed_entries, problem_of, resolve
from tensorcep.cp.plan.spec import FitSpec, is_auto
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.real import in_stream, likelihood_of, name_of_noise
from tensorcep.priors.learned import expected_of

# More components than a fit begins with are tried where a sweep then sums at most so many products of two numbers per
# mode: those of 25,000 entries and 40 components, some seconds for a fit.
MOST_PRODUCTS = 4e7


def with_best_columns(
    spec: FitSpec,
    chosen: Chosen,
    n_entries: int,
    shape: Sequence[int],
    able: Callable[[Chosen], bool],
    plan_of: Callable[[Chosen], Plan],
) -> Chosen:
    """The fit in the columns whose pilot predicts entries that it was not given best, beyond chance.

    `able` says whether there is memory for a fit, `plan_of` gives its plan.
    """
    several = (chosen, *(one for one in other_parts(spec, chosen, shape) if is_auto(spec.rank) or able(one)))
    if len(several) > 1 or _is_harmed(spec, chosen):
        best, found = best_of_plans([plan_of(one) for one in several])
        n_used = several[best].rank if found is None else components_in_use(found)
        return next((one for one in narrower(spec, several[best], n_used) if able(one)), chosen)
    wider = wider_fit(spec, chosen, n_entries, shape)
    while wider is not None and able(wider) and needs_more_components(plan_of(chosen), plan_of(wider)):
        chosen, wider = wider, wider_fit(spec, wider, n_entries, shape)
    return chosen


def _is_harmed(spec: FitSpec, chosen: Chosen) -> bool:
    """Whether the fit may have fewer components, and more of them than the data show do harm: they follow the noise."""
    robust, parts = METHODS[chosen.method].capabilities.robust, chosen.parts
    return not robust and is_auto(spec.rank) and parts["cp"] == chosen.rank and not parts["pair"]


def narrower(spec: FitSpec, chosen: Chosen, n_used: int) -> Iterator[Chosen]:
    """The fit, where it may have fewer components with those that a pilot uses and some more, then with fewer still."""
    if not _is_harmed(spec, chosen):
        yield chosen
        return
    most = min(chosen.rank, max(RANKS[0], n_used + SPARE_COMPONENTS))
    for rank in range(most, min(most, RANKS[0]) - 1, -1):
        yield chosen._replace(rank=rank, parts=chosen.parts | {"cp": rank})


def other_parts(spec: FitSpec, chosen: Chosen, shape: Sequence[int]) -> list[Chosen]:
    """The same fit in other columns, where it may choose them: by methods that are harmed by too many."""
    parts = parts_of("main+cp", chosen.rank)
    if takes_every_column(chosen.method) or len(shape) < 3 or not is_auto(spec.interactions) or parts == chosen.parts:
        return []
    return [chosen._replace(parts=parts)]


def wider_fit(spec: FitSpec, chosen: Chosen, n_entries: int, shape: Sequence[int]) -> Chosen | None:
    """The same fit with twice the components, where that many entries fall on a row on average.

    A tensor can have more components than its modes have rows, a matrix cannot. For methods that are not harmed by more
    columns than the data need.
    """
    rank, robust = 2 * chosen.rank, METHODS[chosen.method].capabilities.robust
    if not (robust and is_auto(spec.rank) and len(shape) > 2):
        return None
    enough = rank <= min(n_entries // max(1, sum(shape)), math.prod(sorted(shape)[:-1]))
    if not enough or n_entries * rank**2 > MOST_PRODUCTS:
        return None
    return chosen_with(spec, n_entries, shape, None, chosen.settings, rank)


def select(draft: Draft) -> FitPlan:
    """The plan of a fit, after what entries left out tell: where noise differs, the power of values, and the columns.

    Each is tried by mean-field fits only where it was left open; no random number is drawn from the estimator's.
    """
    draft = with_best_power(with_best_noise(draft))
    chosen = draft.chosen
    if draft.spectral and draft.has_pilots and not draft.streaming:
        n, shape = draft.n_told, draft.data.shape
        chosen = with_best_columns(draft.spec, chosen, n, shape, draft.fits, lambda one: draft.plan(one, seed=0)[0])
    work, rows = draft.plan(chosen)
    known, prior = draft.facts, work.problem.prior
    described = known["_features"] or known["_series"]
    came_to = {
        "method_": chosen.method,
        "rank_": chosen.rank,
        "max_iter_": chosen.max_iter,
        "prior_": chosen.prior_name,
        "interactions_": chosen.parts,
        "_expected": expected_of(prior) if described else None,
    }
    plan = FitPlan(work, rows.prior, draft.labels, {**came_to, **known})
    return with_pairs_alone(
        plan,
        isinstance(draft.spec.method, str),
        lambda parts: problem_of(draft.spec, draft.data, chosen, parts, draft.n_starts, seed=work.problem.seed),
    )


def plan_fit(spec: FitSpec, entries: Entries, source: Any, **how: Any) -> FitPlan:
    """The plan of a fit, decided by rule (`tensorcep.cp.plan.resolve.resolve`, which takes `how`) and by quick fits."""
    return select(resolve(spec, entries, source, **how))


def with_best_noise(draft: Draft) -> Draft:
    """The draft with the kind of noise that predicts entries left out best, where that was left open."""
    if draft.facts.get("noise_") != "auto":
        return draft
    problem, _ = draft.problem(draft.chosen.parts, 1, seed=0)
    kinds = [None, *(Uneven(k) for k in range(len(problem.shape))), Uneven(None)]
    uneven = kinds[_best(draft, [problem._replace(uneven=kind) for kind in kinds])]
    noise = {"noise_": name_of_noise(uneven, draft.labels)}
    return draft._replace(data=draft.data._replace(uneven=uneven), facts=draft.facts | noise)


def with_best_power(draft: Draft) -> Draft:
    """The draft with the power of the values that predicts entries left out best, where several may be it."""
    powers = draft.facts.get("power_")
    if not isinstance(powers, tuple):
        return draft
    (coords, values, weight), data, chosen = draft.given, draft.data, draft.chosen
    powers = in_stream(powers) if draft.streaming else powers
    centred = draft.spec.target.has_intercept(chosen)
    tried = [likelihood_of(power, values, centred, weight) for power in powers]
    each = [data]  # of the first, which is 1
    for likelihood, _ in tried[1:]:
        given, how = (coords, values, data.shape, None), (chosen.settings, None)
        packed, own, ordered = packed_entries(draft.spec, given, likelihood, how, None, weight)
        each.append(data._replace(entries=packed, values=own, likelihood=likelihood, weight=ordered))
    problems = [problem_of(draft.spec, one, chosen, chosen.parts, 1, seed=0)[0] for one in each]
    best = _best(draft, problems)
    return draft._replace(data=each[best], facts=draft.facts | tried[best][1])


def _best(draft: Draft, problems: Sequence[Problem]) -> int:
    """Which problem mean-field fits predict entries of best that they were not given."""
    chosen = draft.chosen
    settings = with_numbers(VMP.options(), draft.data.likelihood.name, chosen.learns_prior, chosen.max_iter)
    return best_problem(problems, VMP, settings, tol=draft.spec.tol)


def paired_parts(parts: dict[str, int], shape: Sequence[int]) -> list[dict[str, int]]:
    """Main effects and pairs of modes that share what the components had; the same without that, if it differs.

    There are no more columns in all, nor in any mode, so that neither memory nor sweeps grow; no more of a pair than
    the smallest mode has rows.
    """
    order = len(shape)
    more = parts["cp"] // (order * (order - 1) // 2)
    most = max(parts["pair"], min(parts["pair"] + more, *shape))
    return [parts | {"pair": n, "cp": 0} for n in dict.fromkeys((most, parts["pair"]))]


def with_pairs_alone(
    plan: FitPlan, left_open: bool, in_columns: Callable[[dict[str, int]], tuple[Problem, Rows]]
) -> FitPlan:
    """The plan, with the same fits in main effects and pairs alone where columns were left open and chains may ask.

    `left_open` says whether the number of chains was, too; `in_columns` gives the problem in columns of these parts.
    Not of rows of which features or an axis are known: these say what components share.
    """
    work, known = plan.work, plan.facts
    parts, problem = known["interactions_"], work.problem
    plain = not (known["_features"] or known["_series"]) and work.local is None and problem.uneven is None
    if not (plain and len(work.pilots) > 1 and parts["pair"] and parts["cp"] and asks_chains(work)):
        return plan
    paired = []
    for own_parts in paired_parts(parts, problem.shape):
        own, rows = in_columns(own_parts)
        # the seed of the whole tells which entries are left out
        alone = work._replace(problem=own._replace(seed=problem.seed), starts=rows.starts, pilots=())
        paired.append(plan._replace(work=alone, prior=rows.prior, facts=known | {"interactions_": own_parts}))
    asked = tuple(Paired(one.work, left_open) for one in paired)
    return plan._replace(work=work._replace(paired=asked), paired=tuple(paired))
