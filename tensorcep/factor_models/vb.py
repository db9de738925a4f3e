"""Variational inference for relations with a joint Gaussian for every row: q = prod_i q(u_i) prod_j q(v_j).

Source: Klami (2014), sections 2.2, 4.1.2 and 4.2.2 ("naive"), after Ilin and Raiko (2010). Where every cell has the
same weight, one matrix is inverted per entity and sweep; otherwise one per row.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import unpack
from tensorcep.factor_models.moments import Moments, packed_index
from tensorcep.factor_models.relations import RelationProblem
from tensorcep.factor_models.rows import given_one, natural_parameters
from tensorcep.factor_models.settings import VB
from tensorcep.factor_models.state import State
from tensorcep.factor_models.variational import finish, start_state, sweep
from tensorcep.kernels.rows import row_moments


def init(problem: RelationProblem, settings: VB, executor: Executor) -> State:
    """The state before the first sweep."""
    return start_state(problem, False, executor)


def step(state: State, problem: RelationProblem, settings: VB, executor: Executor) -> tuple[State, Sweep]:
    """One sweep over all entities."""
    return sweep(state, problem, update_rows, executor)


def update_rows(state: State, problem: RelationProblem, e: int, executor: Executor) -> Moments:
    """q(u_i) of all rows of an entity."""
    entity = problem.entities[e]
    free, C = entity.free, len(entity.precision)
    Lam, eta = given_one(*natural_parameters(state, problem, e, executor), free, entity.one)
    told = problem.told[e] if problem.told else None
    if told is not None:
        Lam, eta = Lam + told.Lam, eta + told.eta
    n, P = Lam.shape
    mean, cov, good = np.ones((entity.n_rows, C)), np.zeros((n, C * (C + 1) // 2)), np.empty(n)
    packed = np.empty((n, P))
    if n == 1:  # one covariance for all rows
        row_moments(0, 1, Lam, np.zeros((1, len(free))), np.empty((1, len(free))), packed, good)
        mean[:, free] = eta @ unpack(packed[0], len(free))
    else:
        rows = np.empty((n, len(free)))
        executor.run(row_moments, 0, n, Lam, eta, rows, packed, good)
        mean[:, free] = rows
    cov[:, packed_index(free)] = packed
    return Moments(mean, cov, False)


VB_ENGINE = Method(
    name=VB.name,
    needs=(),
    options=VB,
    init=init,
    step=step,
    finish=finish,
    source="Klami (2014), naive approximation",
)
