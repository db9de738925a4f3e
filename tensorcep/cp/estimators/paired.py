"""Main effects and pairs of modes alone: what chains of many labels may have in place of all columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tensorcep.cp.ahead import asks_chains
from tensorcep.cp.estimators.priors import Rows
from tensorcep.cp.plan import Paired
from tensorcep.cp.problem import Problem

if TYPE_CHECKING:
    from tensorcep.cp.estimators.plan import FitPlan


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
    work, known = plan.work, plan.attributes
    parts, problem = known["interactions_"], work.problem
    plain = not (known["_features"] or known["_series"]) and work.local is None and problem.uneven is None
    if not (plain and len(work.pilots) > 1 and parts["pair"] and parts["cp"] and asks_chains(work)):
        return plan
    paired = []
    for own_parts in paired_parts(parts, problem.shape):
        own, rows = in_columns(own_parts)
        # the seed of the whole tells which entries are left out
        alone = work._replace(problem=own._replace(seed=problem.seed), starts=rows.starts, pilots=())
        paired.append(plan._replace(work=alone, prior=rows.prior, attributes=known | {"interactions_": own_parts}))
    asked = tuple(Paired(one.work, left_open) for one in paired)
    return plan._replace(work=work._replace(paired=asked), paired=tuple(paired))
