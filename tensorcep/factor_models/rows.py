"""Natural parameters of an entity's rows given the rest, and their exact update."""

from __future__ import annotations

import numpy as np

from tensorcep.core.packing import unpack
from tensorcep.factor_models.model import Moments, Over, packed_index, second_moments
from tensorcep.factor_models.updates import RelationProblem, State, opposite, sides
from tensorcep.kernels.rows import row_moments


def natural_parameters(state: State, problem: RelationProblem, e: int, over: Over) -> tuple[np.ndarray, np.ndarray]:
    """Lam (n or 1, P) and eta (n, C) of an entity's rows: the prior plus the sum over its relations."""
    entity = problem.entities[e]
    C = len(entity.precision)
    k = np.arange(C)
    Lam = np.zeros((1, C * (C + 1) // 2))
    Lam[0, k * (k + 3) // 2] = state.precisions[e].mean
    eta = np.zeros((entity.n_rows, C))
    for side in sides(problem, e):
        other, sites = opposite(state, side), state.sites[side.number]
        found = side.sums(sites.weight, second_moments(other), over)
        if len(found) > len(Lam):
            Lam = np.repeat(Lam, len(found), axis=0)
        Lam[:, packed_index(side.coords)] += found
        eta[:, side.coords] += side.sums(sites.target, other.mean, over)
    return Lam, eta


def given_one(Lam: np.ndarray, eta: np.ndarray, free: np.ndarray, one: int) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the free coordinates, given that coordinate `one` is 1."""
    if one < 0:
        return Lam, eta
    beside = np.array([packed_index(np.array([one, k]))[1] for k in free], dtype=np.int64)
    rest = np.ascontiguousarray(eta[:, free] - Lam[:, beside])
    return np.ascontiguousarray(Lam[:, packed_index(free)]), rest


def update_rows(state: State, problem: RelationProblem, e: int, over: Over) -> Moments:
    """q(u_i) of all rows of an entity."""
    entity = problem.entities[e]
    free, C = entity.free, len(entity.precision)
    Lam, eta = given_one(*natural_parameters(state, problem, e, over), free, entity.one)
    n, P = Lam.shape
    mean, cov, good = np.ones((entity.n_rows, C)), np.zeros((n, C * (C + 1) // 2)), np.empty(n)
    if n == 1:  # one covariance for all rows
        row, packed = np.empty((1, len(free))), np.empty((1, P))
        row_moments(0, 1, Lam, np.zeros((1, len(free))), row, packed, good)
        mean[:, free] = eta @ unpack(packed[0], len(free))
        cov[:, packed_index(free)] = packed
        return Moments(mean, cov, False)
    rows, packed = np.empty((n, len(free))), np.empty((n, P))
    over(n, lambda a, b: row_moments(a, b, Lam, eta, rows, packed, good))
    mean[:, free] = rows
    cov[:, packed_index(free)] = packed
    return Moments(mean, cov, False)
