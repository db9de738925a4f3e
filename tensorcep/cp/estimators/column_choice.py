"""Which columns a fit has, where that is left open and entries left out can tell: other parts, more components."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tensorcep.cp.choice import best_of_plans, needs_more_components
from tensorcep.cp.columns import parts_of
from tensorcep.cp.estimators.defaults import RANKS, Chosen, chosen_with, is_auto
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan import PILOTS, Plan

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# More components than RANKS has are tried where a sweep then sums at most so many products of two numbers per mode:
# those of 25,000 entries and 40 components, some seconds for a fit.
MOST_PRODUCTS = 4e7


def with_best_columns(
    model: BaseCP,
    chosen: Chosen,
    n_entries: int,
    shape: Sequence[int],
    able: Callable[[Chosen], bool],
    plan_of: Callable[[Chosen], Plan],
) -> Chosen:
    """The fit in the columns whose pilot predicts entries that it was not given best, beyond chance.

    `able` says whether there is memory for a fit, `plan_of` gives its plan.
    """
    others = [one for one in other_parts(model, chosen, shape) if able(one)]
    if others:
        return (chosen, *others)[best_of_plans([plan_of(one) for one in (chosen, *others)])]
    wider = wider_fit(model, chosen, n_entries, shape)
    if wider is not None and able(wider) and needs_more_components(plan_of(chosen), plan_of(wider)):
        return wider
    return chosen


def other_parts(model: BaseCP, chosen: Chosen, shape: Sequence[int]) -> list[Chosen]:
    """The same fit in other columns, where it may choose them: by CEP, which is harmed by too many."""
    parts = parts_of("main+cp", chosen.rank)
    if chosen.method != "cep" or len(shape) < 3 or not is_auto(model.interactions) or parts == chosen.parts:
        return []
    return [chosen._replace(parts=parts)]


def wider_fit(model: BaseCP, chosen: Chosen, n_entries: int, shape: Sequence[int]) -> Chosen | None:
    """The same fit with twice the components, where that many entries fall on a row on average.

    A tensor can have more components than its modes have rows, a matrix cannot. For methods that are not harmed by more
    columns than the data need.
    """
    rank, robust = 2 * chosen.rank, METHODS[chosen.method].sampler or chosen.method in PILOTS
    if not (robust and is_auto(model.rank) and len(shape) > 2 and chosen.rank == RANKS[1]):
        return None
    enough = rank <= min(n_entries // max(1, sum(shape)), math.prod(sorted(shape)[:-1]))
    if not enough or n_entries * rank**2 > MOST_PRODUCTS:
        return None
    return chosen_with(model, n_entries, shape, None, chosen.method, chosen.settings, rank)
