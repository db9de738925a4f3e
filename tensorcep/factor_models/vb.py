"""Variational inference for relations with a joint Gaussian for every row: q = prod_i q(u_i) prod_j q(v_j).

Source: Klami (2014), sections 2.2, 4.1.2 and 4.2.2 ("naive"), after Ilin and Raiko (2010). Where every cell has the
same weight, one matrix is inverted per entity and sweep; otherwise one per row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.factor_models.rows import update_rows
from tensorcep.factor_models.updates import RelationProblem, State, finish, start_state, sweep


@dataclass(frozen=True)
class Options:
    """This method has no settings."""


def init(problem: RelationProblem, options: Options, executor: Executor) -> State:
    """The state before the first sweep."""
    return start_state(problem, False, executor)


def step(state: State, problem: RelationProblem, options: Options, executor: Executor) -> tuple[State, Sweep]:
    """One sweep over all entities."""
    return sweep(state, problem, update_rows, executor)


PCA_VB = Method(
    name="vb",
    needs=(),
    options=Options,
    init=init,
    step=step,
    finish=finish,
    source="Klami (2014), naive approximation",
)
