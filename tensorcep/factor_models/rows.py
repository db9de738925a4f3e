"""Natural parameters of an entity's rows given the rest."""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.factor_models.latent import Products
from tensorcep.factor_models.moments import packed_index, second_moments
from tensorcep.factor_models.relations import RelationProblem
from tensorcep.factor_models.state import State, opposite, sides


def natural_parameters(
    state: State, problem: RelationProblem, e: int, executor: Executor
) -> tuple[np.ndarray, np.ndarray]:
    """Lam (n or 1, P) and eta (n, C) of an entity's rows: the prior plus the sum over its relations."""
    entity = problem.entities[e]
    C = len(entity.precision)
    k = np.arange(C)
    Lam = np.zeros((1, C * (C + 1) // 2))
    Lam[0, k * (k + 3) // 2] = state.precisions[e].mean
    eta = np.zeros((entity.n_rows, C))
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        latent = state.latent[side.number]
        if isinstance(latent, Products) and not side.rows:
            precision = sites.weight.T * latent.row_squares
        else:
            precision = side.sums(sites.weight, second_moments(other), executor)
        if len(precision) > len(Lam):
            Lam = np.repeat(Lam, len(precision), axis=0)
        all_of_them = np.array_equal(side.coords, np.arange(C))
        Lam[:, slice(None) if all_of_them else packed_index(side.coords)] += precision
        eta[:, side.coords] += side.target_sums(sites, other.mean, executor)
    return Lam, eta


def given_one(Lam: np.ndarray, eta: np.ndarray, free: np.ndarray, one: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the free coordinates, given that coordinate `one` is 1."""
    if one < 0:
        return Lam, eta
    with_one = np.array([packed_index(np.array([one, k]))[1] for k in free], dtype=np.int64)
    rest = np.ascontiguousarray(eta[:, free] - Lam[:, with_one])
    return np.ascontiguousarray(Lam[:, packed_index(free)]), rest
