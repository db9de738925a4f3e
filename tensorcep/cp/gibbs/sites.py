"""What the entries say of their latent values, in the order in which the rows of a mode read it.

Read in the order of the lanes, every number of an entry would cost as much as a row of another mode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.arrays import on_scratch, room_of
from tensorcep.core.compile import block_kernel
from tensorcep.core.executor import Executor
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import unset
from tensorcep.cp.model.memmap import StoredTargets, taken_off
from tensorcep.cp.model.problem import Problem

NOTHING = np.zeros(0)


class DrawnSites(NamedTuple):
    """Weights and targets that are drawn: an entry says N(target / weight; f, 1 / (precision weight)).

    Attributes
    ----------
    weight, target : (n,) float64
        In the lanes, room for those of one chain.
    ordered : (2, N) float64
        Room for the same in the order of the rows of one mode.
    """

    weight: np.ndarray
    target: np.ndarray
    ordered: np.ndarray


class RowNoise(NamedTuple):
    """A mode whose rows have a precision (m,) each."""

    mode: int
    precision: np.ndarray


def weighted_sites(problem: Problem) -> DrawnSites:
    """Room for weights and targets; where entries have weights, those of values that are Gaussian in f."""
    entries = problem.entries
    room = room_of(entries.y).empty((2, len(entries.permutation)))
    if problem.power is None:
        weight, target = unset(entries).ravel(), unset(entries).ravel()
        weight[:], target[:] = 1.0, 0.0
        return DrawnSites(weight, target, room)
    return DrawnSites(problem.power.ravel().copy(), (problem.power * entries.y).ravel(), room)


def in_order(
    sites: DrawnSites | None, k: int, by_row: EntriesByRow, weighted: bool, problem: Problem, executor: Executor
) -> tuple[int, np.ndarray, np.ndarray] | StoredTargets:
    """The place of the first of them, weights (nothing where all are 1), and targets, in the order of mode k's rows."""
    if sites is None and on_scratch(by_row.value):
        return StoredTargets(by_row.value, taken_off(problem.likelihood))
    if sites is None:
        return 0, NOTHING, by_row.value
    n = sites.ordered.shape[1]
    place = by_row.entry[k * n : (k + 1) * n]
    parts = ((sites.target, sites.ordered[1]), (sites.weight, sites.ordered[0]))
    for source, out in parts if weighted else parts[:1]:
        executor.run(_take, 0, n, source, place, out)
    return k * n, (sites.ordered[0] if weighted else NOTHING), sites.ordered[1]


def _take(first: int, last: int, source: np.ndarray, place: np.ndarray, out: np.ndarray) -> None:
    """out = source[place] in the range first:last."""
    np.take(source, place[first:last], out=out[first:last], mode="clip")


@block_kernel
def _weigh(
    first: int,
    last: int,
    own: np.ndarray,
    others: np.ndarray,
    j: int,
    value: np.ndarray,
    weight: np.ndarray,
    target: np.ndarray,
) -> None:
    """Weights and targets of the entries first:last from the precisions `own` of the packed rows others[:, j]."""
    for n in range(first, last):
        w = own[others[n, j]]
        weight[n] = w
        target[n] = w * value[n]


def of_row_noise(
    k: int, noise: RowNoise, by_row: EntriesByRow, first: np.ndarray, executor: Executor
) -> tuple[tuple[int, np.ndarray, np.ndarray], np.ndarray]:
    """What the entries say in mode k, and the precision by which that is multiplied: it weighs them in other modes."""
    if k == noise.mode:
        return (0, NOTHING, by_row.value), noise.precision
    n = len(by_row.value) // (len(first) - 1)
    mine = slice(k * n, (k + 1) * n)
    own = np.concatenate([np.zeros(first[noise.mode]), noise.precision])
    weight, target = np.empty(n), np.empty(n)
    given = own, by_row.others[mine], noise.mode - (noise.mode > k), by_row.value[mine]
    executor.run(_weigh, 0, n, *given, weight, target)
    return (k * n, weight, target), np.ones(1)
