"""What the entries say of their latent values in the order in which the rows of a mode read it.

Read in the order of the lanes, every number of an entry would cost as much as a row of another mode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.model import Entries, EntriesByRow

NOTHING = np.zeros(0)


class Sites(NamedTuple):
    """Targets and weights of the entries: one of them says N(target / weight; f, 1 / (precision weight)).

    Attributes
    ----------
    weight, target : (n,) float64
        In the lanes, room for the draws of one chain; nothing where targets are the values.
    ordered : (K, N) or (2, N) float64
        The values in the order of the rows of every mode; or room for the draws in that of one mode.
    drawn : bool
        Whether weights and targets are drawn.
    """

    weight: np.ndarray
    target: np.ndarray
    ordered: np.ndarray
    drawn: bool


def sites_of_values(entries: Entries, by_row: EntriesByRow) -> Sites:
    """Weights 1, and the values for targets."""
    K, y = entries.rows.shape[1], entries.y.ravel()
    ordered = np.empty((K, len(by_row.entry) // K))
    np.take(y, by_row.entry, out=ordered.ravel(), mode="clip")
    return Sites(NOTHING, NOTHING, ordered, False)


def room_for_sites(entries: Entries) -> Sites:
    """Room for weights and targets that are drawn."""
    n = entries.y.size
    return Sites(np.ones(n), np.zeros(n), np.empty((2, len(entries.permutation))), True)


def in_order(
    sites: Sites, k: int, by_row: EntriesByRow, weighted: bool, executor: Executor
) -> tuple[np.ndarray, np.ndarray]:
    """Weights, nothing where all are 1, and targets in the order of the rows of mode k."""
    if not sites.drawn:
        return NOTHING, sites.ordered[k]
    n = sites.ordered.shape[1]
    place = by_row.entry[k * n : (k + 1) * n]
    parts = ((sites.target, sites.ordered[1]), (sites.weight, sites.ordered[0]))
    for source, out in parts if weighted else parts[:1]:
        executor.run(_take, 0, n, source, place, out)
    return (sites.ordered[0] if weighted else NOTHING), sites.ordered[1]


def _take(first: int, last: int, source: np.ndarray, place: np.ndarray, out: np.ndarray) -> None:
    """out = source[place] in the range first:last."""
    np.take(source, place[first:last], out=out[first:last], mode="clip")
