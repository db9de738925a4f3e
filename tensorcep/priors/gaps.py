"""Rows of a graph without entries: integrated out of its field, and what is then known of them given the others.

A row that is integrated out couples its neighbours. With y = S x (`priors.field`) the precision of y is always a
diagonal `rest` and a Laplacian with positive weights, so that nothing is ever subtracted.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from tensorcep.priors.graph import Net

# Neighbours of a row that is integrated out, at most.
MOST_COUPLED = 16


class Gaps(NamedTuple):
    """Rows that were integrated out, u of them in this order, and what each depends on: neighbours that come later.

    Attributes
    ----------
    row : (u,) int64
    start : (u + 1,) int64
        Where the neighbours of each begin.
    other : (m,) int64
    share : (L, m) float64
        How much of a neighbour's distance from the level a row is expected to have.
    spread : (L, u) float64
        Its variance given them, times lam.
    """

    row: np.ndarray
    start: np.ndarray
    other: np.ndarray
    share: np.ndarray
    spread: np.ndarray


class Left(NamedTuple):
    """What is left of the precision of y at each of L lengths, and the rows that were integrated out.

    Attributes
    ----------
    place : (n,) int64
        Rows that are left, ascending.
    left, right : (E,) int64
        Edges among these, left < right, by left.
    rest, weight : (L, n), (L, E) float64
    steps : list
        Of each row that was integrated out the row, its neighbours (k,), their weights (k, L), and its pivot (L,).
    """

    place: np.ndarray
    left: np.ndarray
    right: np.ndarray
    rest: np.ndarray
    weight: np.ndarray
    steps: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]


def integrated_out(net: Net, seen: np.ndarray, multiples: np.ndarray) -> Left:
    """The precision I + g L of y, for each multiple g (L,), with rows that are not `seen` (n,) integrated out."""
    L, n = len(multiples), net.n
    if seen.all():
        each = multiples[:, None] * net.weight
        return Left(np.arange(n), net.left, net.right, np.ones((L, n)), each, [])
    _, part = connected_components(net.matrix, directed=False)
    known = np.isin(part, part[seen])
    rest, near = np.ones((n, L)), _neighbours(net, multiples)
    none = np.zeros(0, dtype=np.int64), np.zeros((0, L)), np.ones(L)
    steps: list[Any] = [(row, *none) for row in np.flatnonzero(~known).tolist()]
    heap = [(len(near[row]), row) for row in np.flatnonzero(known & ~seen).tolist()]
    heapq.heapify(heap)
    is_left = known.copy()
    while heap:
        degree, row = heapq.heappop(heap)
        if not is_left[row] or degree != len(near[row]):
            continue
        if degree > MOST_COUPLED:
            break
        is_left[row] = False
        steps.append(_step(row, near, rest))
        for other in steps[-1][1].tolist():
            if not seen[other]:
                heapq.heappush(heap, (len(near[other]), other))
    return _left(is_left, near, rest, steps)


def _neighbours(net: Net, multiples: np.ndarray) -> list[dict[int, np.ndarray]]:
    """The weights (L,) of the edges of each row, by neighbour."""
    near: list[dict[int, np.ndarray]] = [{} for _ in range(net.n)]
    for a, b, weight in zip(net.left.tolist(), net.right.tolist(), net.weight.tolist(), strict=True):
        near[a][b] = near[b][a] = weight * multiples
    return near


def _step(
    row: int, near: list[dict[int, np.ndarray]], rest: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Integrate a row out."""
    others, L = sorted(near[row]), rest.shape[1]
    weights = np.array([near[row][other] for other in others]).reshape(-1, L)
    pivot = rest[row] + weights.sum(axis=0)
    share = weights / pivot
    for i, a in enumerate(others):
        rest[a] += share[i] * rest[row]
        del near[a][row]
        for j in range(i):
            b = others[j]
            near[a][b] = near[b][a] = near[a].get(b, 0.0) + weights[i] * share[j]
    near[row] = {}
    return row, np.array(others, dtype=np.int64), weights, pivot


def _left(is_left: np.ndarray, near: list[dict[int, np.ndarray]], rest: np.ndarray, steps: list[Any]) -> Left:
    """What is left, in arrays."""
    place, L = np.flatnonzero(is_left), rest.shape[1]
    number = np.cumsum(is_left) - 1
    edges = [(a, b) for a in place.tolist() for b in sorted(near[a]) if b > a]
    weight = np.array([near[a][b] for a, b in edges]).reshape(-1, L).T
    ends = number[np.array(edges, dtype=np.int64).reshape(-1, 2)]
    return Left(place, ends[:, 0].copy(), ends[:, 1].copy(), rest[place].T.copy(), np.ascontiguousarray(weight), steps)


def gaps_of(left: Left, scale: np.ndarray) -> Gaps:
    """The rows that were integrated out, x = y / scale (L, N)."""
    L, steps = len(scale), left.steps
    row = np.array([step[0] for step in steps], dtype=np.int64)
    start = np.append(0, np.cumsum([len(step[1]) for step in steps])).astype(np.int64)
    other = np.concatenate([np.zeros(0, dtype=np.int64), *(step[1] for step in steps)])
    share = [(weights / pivot).T * scale[:, others] / scale[:, [one]] for one, others, weights, pivot in steps]
    spread = [1.0 / (step[3] * scale[:, step[0]] ** 2) for step in steps]
    alone = [np.where(len(step[1]) == 0, 1.0, own) for step, own in zip(steps, spread, strict=True)]
    return Gaps(
        row,
        start,
        other,
        np.concatenate([np.zeros((L, 0)), *share], axis=1),
        np.array(alone).reshape(-1, L).T,
    )


def draw_gaps(gaps: Gaps, rows: np.ndarray, which: np.ndarray, level: np.ndarray, noise: np.ndarray) -> None:
    """Draw the rows that were integrated out, together, in place in `rows` (S, N, R).

    In each of S draws column r has the length number which (S, R), the level (S, R) and noise (S, u, R), which is
    divided by the root of lam.
    """
    for i in range(len(gaps.row) - 1, -1, -1):
        own = slice(gaps.start[i], gaps.start[i + 1])
        found = np.sqrt(gaps.spread[:, i])[which] * noise[:, i]
        for place in range(own.start, own.stop):
            found = found + gaps.share[:, place][which] * (rows[:, gaps.other[place]] - level)
        rows[:, gaps.row[i]] = level + found
