"""The field of a mode that is a graph: which rows are coupled, and what they say of each other at every length.

A column of the rows of a graph is a level and x, a Gaussian Markov field of precision lam K,

    K = S (I + g L) S,

L the graph's Laplacian and S the diagonal matrix with which every row of x alone has the variance 1 / lam. The length
is sqrt(g), about as many edges as a field goes together over; g = 0 is rows that do not depend on each other.

Rows without entries are integrated out, one after the other, each of which then couples its neighbours; but for those
that would couple too many, such as the root of a tree, which are rows like any other. Those of a part of the graph
without any entry are left out.

Source: Rue and Held (2005), Gaussian Markov Random Fields; Leroux, Lei and Breslow (2000); for a variance that means
the same everywhere, Sorbye and Rue (2014).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from tensorcep.core.checks import fail_value
from tensorcep.priors.elimination import Order, factor, inverted, ordered
from tensorcep.priors.gaps import Gaps, gaps_of, integrated_out
from tensorcep.priors.graph import Net
from tensorcep.priors.learned import MEAN_ROWS

# Lengths of the grid beside 0, in edges the least and the largest, which is at most so many times the rows of a part.
LENGTHS, LEAST_EDGES, MOST_EDGES, MOST_RANGES = 12, 0.3, 300.0, 3.0
# The prior shape of a precision, as of a series.
SHAPE = 0.5
# Products that a factor of numbers may take: some seconds.
MOST_WORK = 2e9


class Field(NamedTuple):
    """The rows of a graph, made once; those that have entries, and few others, in n rows and E edges.

    Attributes
    ----------
    clock : Net
    place : (n,) int64
        These rows of the mode, ascending.
    order : (n,) int64
        All of them in order.
    left, right : (E,) int64
        The ends of each edge among them, left < right, by left.
    lengths : (L,) float64
        sqrt(g).
    own, between : (L, n), (L, E) float64
        The diagonal of K, and less its elements at edges.
    rest : (L, n) float64
        The diagonal without what its edges add to it.
    total : (L, n) float64
        K summed over the columns.
    scale : (L, N) float64
        S of all N rows of the mode.
    log_det : (L,) float64
        log |K|.
    strengths, mean_rows, shape, gram, values, vectors
        As in `axis.Axis`, without a season.
    pattern, whole : Order
        Of a factor for these rows, and for all rows of the mode.
    gaps : Gaps
    """

    clock: Net
    place: np.ndarray
    order: np.ndarray
    left: np.ndarray
    right: np.ndarray
    lengths: np.ndarray
    own: np.ndarray
    between: np.ndarray
    rest: np.ndarray
    total: np.ndarray
    scale: np.ndarray
    log_det: np.ndarray
    strengths: np.ndarray
    mean_rows: float
    shape: float
    gram: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    pattern: Order
    whole: Order
    gaps: Gaps

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of all edges."""
        return self.left, self.right


def check_graph(net: Net, name: Any) -> None:
    """Refuse a graph whose factors would take too long.

    Raises
    ------
    ValueError
    """
    if ordered(net.n, net.left, net.right, MOST_WORK) is None:
        fail_value(
            f"Graph of mode {name!r} connects too much of its {net.n} rows with each other to be learned; got "
            f"{len(net.left)} edges; keep those of each row's nearest neighbours."
        )


def field(net: Net, seen: np.ndarray, strength: float = 1.0) -> Field | None:
    """Prepare the rows of a graph, of which those `seen` (n,) have entries; None where these are less than two.

    `strength` is how many times as much as by default the prior of the parameters counts.
    """
    if seen.sum() < 2:
        return None
    lengths = lengths_of(net)
    whole: Any = ordered(net.n, net.left, net.right)
    (scale, log_det), L = scales_of(net, whole, lengths), len(lengths)
    left = integrated_out(net, seen, lengths**2)
    place, a, b = left.place, left.left, left.right
    s, n = scale[:, place], len(left.place)
    between, rest = left.weight * s[:, a] * s[:, b], left.rest * s * s
    own, total = left.rest.copy(), left.rest * s
    for i in range(L):
        for one, other in ((a, b), (b, a)):
            own[i] += np.bincount(one, left.weight[i], n)
            total[i] += np.bincount(one, left.weight[i] * (s[i, one] - s[i, other]), n)
    own, total = own * s * s, total * s
    pattern: Any = whole if n == net.n else ordered(n, a, b)
    if n < net.n:
        log_det = np.array([factor(pattern, own[i][:, None, None], between[i][:, None]).log_det for i in range(L)])
    return Field(
        clock=net,
        place=place,
        order=np.arange(n),
        left=a,
        right=b,
        lengths=lengths,
        own=own,
        between=between,
        rest=rest,
        total=total,
        scale=scale,
        log_det=log_det,
        strengths=np.ones(1),
        mean_rows=strength * MEAN_ROWS,
        shape=strength * SHAPE,
        gram=total.sum(axis=1)[:, None],
        values=np.zeros((L, 0)),
        vectors=np.zeros((L, 0, 0)),
        pattern=pattern,
        whole=whole,
        gaps=gaps_of(left, scale),
    )


def scales_of(net: Net, whole: Order, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S of all rows, (L, N), and log |K|, (L,), at these lengths; `whole` is of a factor for all rows."""
    scale, log_det = zip(*(_scaled(net, whole, length) for length in lengths.tolist()), strict=True)
    return np.stack(scale), np.array(log_det)


def _scaled(net: Net, whole: Order, length: float) -> tuple[np.ndarray, float]:
    """S of all rows, (n,), and log |K|."""
    if length == 0.0:
        return np.ones(net.n), 0.0
    own = 1.0 + length**2 * net.matrix.sum(axis=1)
    found = factor(whole, own[:, None, None], length**2 * net.weight[:, None])
    variance = inverted(found)[0][:, 0, 0]
    return np.sqrt(variance), found.log_det + float(np.log(variance).sum())


def lengths_of(net: Net) -> np.ndarray:
    """The lengths of the grid, by how many rows the largest part of the graph has."""
    _, part = connected_components(net.matrix, directed=False)
    most = min(MOST_EDGES, MOST_RANGES * float(np.bincount(part).max()))
    return np.append(0.0, np.geomspace(LEAST_EDGES, most, LENGTHS))
