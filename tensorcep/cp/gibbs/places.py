"""Which entries are left out: in the burn-in of chains, by pilots, and where columns are chosen."""

from __future__ import annotations

import numpy as np

from tensorcep.core.chance import THRESHOLDS
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.model.memmap import pieces
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.subsets import places_telling, usual_weight

# More entries left out say no more about a handful of chains.
MOST_HELD = 50_000
ROUNDING = 1e-6  # of a share of a number that should be whole
# From so many entries on those that are left out are drawn by themselves, and not the first of all in any order.
MANY = 500_000


def held_places(problem: Problem) -> np.ndarray:
    """The places of the entries to leave out; none when there are too few entries.

    Of labels the same share of either class, and as large as the rarer one asks for. Where entries have weights, those
    that tell, the more often the more they weigh: means over them are then weighted ones.
    """
    n, rng = len(problem.entries.permutation), generator(problem.seed, Stream.HELD_OUT)
    y, of_labels = problem.entries.y.ravel()[:n], problem.likelihood.observes == "labels"
    weight = weights_of_entries(problem)
    if n >= MANY and weight is None:
        return _drawn(y, of_labels, rng)
    order = rng.permutation(places_telling(problem))
    if weight is not None:
        order = order[rng.random(len(order)) * usual_weight(weight) <= weight[order]]
    above = y[order] > 0.0 if of_labels else np.ones(len(order), dtype=bool)
    parts = [part for part in (order[above], order[~above]) if len(part)]
    sizes = _sizes([len(part) for part in parts])
    held = np.concatenate([part[:size] for part, size in zip(parts, sizes, strict=True)] or [order])
    return held if len(held) >= THRESHOLDS.fewest_of_all else held[:0].copy()


def _sizes(counts: list[int]) -> list[int]:
    """How many entries of each part to leave out, of parts of so many.

    Without those of few entries these are overfitted, and nothing says so.
    """
    bar = THRESHOLDS
    share = bar.share_of(min(counts, default=0))
    share = max(share, min(bar.fewest_of_few / max(1, sum(counts)), bar.share_of_few))
    share = min(share, MOST_HELD / max(1, sum(counts)))
    return [int(share * count + ROUNDING) for count in counts]


def _drawn(y: np.ndarray, of_labels: bool, rng: np.random.Generator) -> np.ndarray:
    """The places to leave out of very many values (n,), each class of labels by itself, in memory of a piece."""
    n_above = sum(int(np.count_nonzero(y[at] > 0.0)) for at in pieces(len(y))) if of_labels else 0
    counts = [count for count in (n_above, len(y) - n_above) if count]
    ranks = [np.sort(rng.choice(n, size, replace=False)) for n, size in zip(counts, _sizes(counts), strict=True)]
    if len(counts) == 1:
        return ranks[0]
    return np.concatenate([_places_of(ranks[0], y, True), _places_of(ranks[1], y, False)])


def _places_of(ranks: np.ndarray, y: np.ndarray, above: bool) -> np.ndarray:
    """The places of those values, counted by ascending ranks, that are above 0, or that are not."""
    found, seen = [], 0
    for at in pieces(len(y)):
        places = np.flatnonzero((y[at] > 0.0) == above)
        first, last = np.searchsorted(ranks, [seen, seen + len(places)])
        found.append(at.start + places[ranks[first:last] - seen])
        seen += len(places)
    return np.concatenate(found)
