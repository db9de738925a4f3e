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


def paired_parts(parts: dict[str, int], shape: Sequence[int]) -> dict[str, int]:
    """Main effects and pairs of modes that share what the components had.

    There are no more columns in all, nor in any mode, so that neither memory nor sweeps grow; no more of a pair than
    the smallest mode has rows.
    """
    order = len(shape)
    more = parts["cp"] // (order * (order - 1) // 2)
    return {"main": parts["main"], "pair": min(parts["pair"] + more, max(1, min(shape))), "cp": 0}


def with_pairs_alone(
    plan: FitPlan, left_open: bool, in_columns: Callable[[dict[str, int]], tuple[Problem, Rows]]
) -> FitPlan:
    """The plan, with the same fit in main effects and pairs alone where columns were left open and chains may ask.

    `left_open` says whether the number of chains was, too; `in_columns` gives the problem in columns of these parts.
    Not of rows of which features or an axis are known: these say what components share.
    """
    work, known = plan.work, plan.attributes
    parts, problem = known["interactions_"], work.problem
    plain = not (known["_features"] or known["_series"]) and work.local is None and problem.uneven is None
    if not (plain and len(work.pilots) > 1 and parts["pair"] and parts["cp"] and asks_chains(work)):
        return plan
    parts = paired_parts(parts, problem.shape)
    own, rows = in_columns(parts)
    # the seed of the whole tells which entries are left out
    alone = work._replace(problem=own._replace(seed=problem.seed), starts=rows.starts, pilots=())
    paired = plan._replace(work=alone, prior=rows.prior, attributes=known | {"interactions_": parts})
    return plan._replace(work=work._replace(paired=Paired(alone, left_open)), paired=paired)
