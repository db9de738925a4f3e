"""Which columns a fit has, where that is left open and entries left out can tell: other parts, more components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tensorcep.cp.fit.validation import best_of_plans, components_in_use, needs_more_components
from tensorcep.cp.fit.warm_start import SPARE_COMPONENTS
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import parts_of
from tensorcep.cp.plan.auto import RANKS, chosen_with
from tensorcep.cp.plan.plan import PILOTS, Plan
from tensorcep.cp.plan.spec import FitSpec, is_auto
from tensorcep.cp.targets.base import Chosen

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
    robust = METHODS[chosen.method].sampler or chosen.method in PILOTS
    parts = chosen.parts
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
    """The same fit in other columns, where it may choose them: by CEP, which is harmed by too many."""
    parts = parts_of("main+cp", chosen.rank)
    if chosen.method != "cep" or len(shape) < 3 or not is_auto(spec.interactions) or parts == chosen.parts:
        return []
    return [chosen._replace(parts=parts)]


def wider_fit(spec: FitSpec, chosen: Chosen, n_entries: int, shape: Sequence[int]) -> Chosen | None:
    """The same fit with twice the components, where that many entries fall on a row on average.

    A tensor can have more components than its modes have rows, a matrix cannot. For methods that are not harmed by more
    columns than the data need.
    """
    rank, robust = 2 * chosen.rank, METHODS[chosen.method].sampler or chosen.method in PILOTS
    if not (robust and is_auto(spec.rank) and len(shape) > 2):
        return None
    enough = rank <= min(n_entries // max(1, sum(shape)), math.prod(sorted(shape)[:-1]))
    if not enough or n_entries * rank**2 > MOST_PRODUCTS:
        return None
    return chosen_with(spec, n_entries, shape, None, chosen.method, chosen.settings, rank)
