"""Rows of a mode that are neighbours in a graph, as a user says it, and the graph of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.persist.records import Sized
from tensorcep.entries.coo import stored_cells
from tensorcep.priors.features import Mode, rows_of_index, rows_of_lines

MOST_WEIGHT = 1e12  # a larger one, in medians, leaves nothing of the others in float64
TAKEN = "a square matrix, a DataFrame of edges, pairs or triples, or a networkx graph"


@dataclass(frozen=True, repr=False, eq=False)
class Graph:
    """Rows of a mode that are neighbours: ``CPRegressor(prior={"sensor": Graph(edges)})``.

    Each column of the factors, main effects included, is a Gaussian Markov field over the graph: its precision is one
    plus a multiple of the graph's Laplacian, scaled so that no row varies more than another beforehand. The multiple is
    learned, column by column, with mean and scale; it may be 0, of rows that do not depend on each other. Rows of the
    graph without entries are predicted from their neighbours, with the uncertainty that leaves; a row without edges is
    like any other row. Nodes that are no rows yet become rows, such as the groups of a taxonomy.

    For all methods but "wopt": "gibbs" and "pg-gibbs" draw all rows together; with the others, on large graphs, the
    columns of a row are independent of each other in the approximation. Noise is then the same everywhere. In a stream
    every batch tells all rows what its rows say, and the field is learned on.

    Parameters
    ----------
    edges : DataFrame, iterable of tuples, array-like of shape (n, n), sparse matrix, or networkx graph
        A DataFrame has two columns of labels, of rows' numbers where the mode has no labels, and perhaps one of
        weights; tuples are (a, b) or (a, b, weight), in a list or another iterable. An array or a sparse matrix is a
        symmetric matrix of weights. Weights are positive, one by default; a larger one holds two rows closer together.
        An edge may be listed in both directions, or twice; where a sparse matrix lists it twice, the sum counts.
    labels : sequence of labels, optional
        Of a matrix, what its lines are; by default line i belongs to row i of the mode (to the i-th label).

    Examples
    --------
    >>> from tensorcep import Graph
    >>> Graph([("a", "b"), ("b", "c", 2.0)])
    Graph(2 edges)
    """

    edges: Any
    labels: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        stays = hasattr(self.edges, "shape") or hasattr(self.edges, "nodes") or isinstance(self.edges, Sequence)
        if not stays and isinstance(self.edges, Iterable):  # of which there may be one pass alone
            object.__setattr__(self, "edges", list(self.edges))

    def __repr__(self) -> str:
        if hasattr(self.edges, "shape") and not isinstance(self.edges, pd.DataFrame):
            return f"Graph({' x '.join(map(str, self.edges.shape))})"
        is_network = hasattr(self.edges, "number_of_edges")
        return f"Graph({self.edges.number_of_edges() if is_network else len(self.edges)} edges)"


class Net(NamedTuple):
    """A mode's n rows and E edges left < right between them, in order, each once; weights have the median 1."""

    n: int
    left: Annotated[np.ndarray, Sized("E", "i")]
    right: Annotated[np.ndarray, Sized("E", "i")]
    weight: Annotated[np.ndarray, Sized("E")]

    def fits(self, n: int) -> bool:
        """Whether it is a graph of n rows, as those that `net` makes are."""
        inside = (self.left >= 0) & (self.left < self.right) & (self.right < n) & (self.weight > 0.0)
        return self.n == n and bool(inside.all())

    @property
    def matrix(self) -> sparse.csr_array:
        """The weights as a symmetric matrix; its indices have 32 bits, as the graph algorithms of older scipy ask."""
        left, right = self.left.astype(np.int32), self.right.astype(np.int32)
        both = np.append(left, right), np.append(right, left)
        return sparse.csr_array((np.tile(self.weight, 2), both), shape=(self.n, self.n))


def net(graph: Graph, mode: Mode) -> tuple[Net, Mode]:
    """The graph of a mode, and the mode with the rows that it names beside those with entries."""
    what = f"Graph of mode {mode.name!r}"
    if sparse.issparse(graph.edges) or isinstance(graph.edges, np.ndarray):
        a, b, weight, mode = _of_matrix(graph, mode, what)
    else:
        if graph.labels is not None:
            fail_value(f"labels of the {what} are those of the lines of a matrix; edges name their rows themselves.")
        *ends, weight, nodes = _of_edges(graph.edges, what)
        try:
            index = pd.Index(pd.unique(np.asarray(nodes)), tupleize_cols=False)
        except TypeError as error:  # of lists and sets, which no row is named by
            fail_value(f"edges of the {what} must hold labels, such as numbers, text or dates ({error}).")
        index = index if index.dtype != object else index.infer_objects()
        rows, mode = rows_of_index(index, mode, what)
        a, b = (rows[index.get_indexer(pd.Index(np.asarray(end), tupleize_cols=False))] for end in ends)
    return _checked(a, b, weight, mode, what), mode


def _of_matrix(graph: Graph, mode: Mode, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, Mode]:
    """Rows and weights of the edges of a symmetric matrix, and the mode with its rows."""
    shape = graph.edges.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        fail_value(f"{what} must be a square matrix; got the shape {shape}; give a list or a DataFrame of edges.")
    given: Any = graph.edges if sparse.issparse(graph.edges) else sparse.coo_array(graph.edges)
    matrix = stored_cells(given, tell=False)  # an edge that is listed twice weighs as both
    if not np.isfinite(matrix.data).all():
        _weights(matrix.data, what)
    n, apart = matrix.shape[0], abs(sparse.csr_array(matrix) - sparse.csr_array(matrix).T)
    if apart.nnz and not apart.max() <= 1e-9 * abs(matrix).max():
        fail_value(f"{what} must be a symmetric matrix; got weights that differ by direction; use (A + A.T) / 2.")
    if graph.labels is not None:
        index = pd.Index(graph.labels, tupleize_cols=False)
        if len(index) != n:
            fail_value(f"labels of the {what} must name its {n} lines; got {len(index)}.")
        rows, mode = rows_of_index(index, mode, what)
    else:
        rows, mode = rows_of_lines(n, mode, what, "name its lines by labels=")
    used = (matrix.data != 0.0) & (matrix.row <= matrix.col)
    return rows[matrix.row[used]], rows[matrix.col[used]], np.asarray(matrix.data[used], dtype=np.float64), mode


def _of_edges(edges: Any, what: str) -> tuple[Any, Any, np.ndarray, Any]:
    """Ends and weights, (E,) each, of a table, of tuples, or of a networkx graph, and all labels that it names."""
    nodes: list[Any] = []
    if hasattr(edges, "nodes") and hasattr(edges, "edges"):
        if edges.is_directed():
            fail_value(f"{what} must have no directions; got a directed graph; use its to_undirected().")
        nodes, edges = list(edges.nodes), list(edges.edges(data="weight", default=1.0))
    elif isinstance(edges, pd.DataFrame):
        if edges.shape[1] not in (2, 3):
            fail_value(f"{what} must have two columns of labels, and perhaps one of weights; got {edges.shape[1]}.")
        weight = _weights(edges.iloc[:, 2] if edges.shape[1] == 3 else np.ones(len(edges)), what)
        ends = [edges.iloc[:, i].astype(object) for i in (0, 1)]
        if any(end.isna().any() for end in ends):
            fail_value(f"{what} must have labels at both ends of its edges; got a missing one.")
        return *ends, weight, pd.concat(ends)
    elif not isinstance(edges, Sequence) or isinstance(edges, str):
        fail_value(f"{what} must be {TAKEN}; got {type(edges).__name__}.")
    for edge in edges:
        if not isinstance(edge, (tuple, list)) or len(edge) not in (2, 3):
            fail_value(f"{what} must have edges (a, b) or (a, b, weight); got {edge!r}.")
    a, b = (pd.Series([edge[i] for edge in edges], dtype=object) for i in (0, 1))
    weight = _weights([edge[2] if len(edge) == 3 else 1.0 for edge in edges], what)
    return a, b, weight, pd.concat([a, b, pd.Series(nodes, dtype=object)])


def _weights(weights: Any, what: str) -> np.ndarray:
    try:
        found = pd.to_numeric(pd.Series(weights, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    except OverflowError:
        fail_value(f"{what} must have weights that are finite numbers; got a whole number beyond the range of floats.")
    if not np.isfinite(found).all():
        bad = list(weights)[int(np.argmin(np.isfinite(found)))]
        fail_value(f"{what} must have weights that are finite numbers; got {bad!r}.")
    return found


def _checked(a: np.ndarray, b: np.ndarray, weight: np.ndarray, mode: Mode, what: str) -> Net:
    """The graph of these edges, each once."""
    if not (weight >= 0.0).all():
        bad = float(weight[~(weight >= 0.0)][0])
        fail_value(f"{what} must have weights above 0; got {bad:g}; rows that differ cannot be said to be apart.")
    a, b, weight = a[weight > 0.0], b[weight > 0.0], weight[weight > 0.0]
    if (a == b).any():
        name = mode.name_of(int(a[a == b][0]))
        fail_value(f"{what} must have edges between two rows; got one from {name!r} to itself.")
    if not len(a):
        fail_value(f"{what} must have an edge; got none; leave it out.")
    ends_of_all = np.sort(np.stack([a, b], axis=1), axis=1)
    pairs, first, which = np.unique(ends_of_all, axis=0, return_index=True, return_inverse=True)
    once, which = weight[first], which.ravel()
    apart = np.abs(weight - once[which]) > 1e-9 * weight.max()
    if apart.any():
        ends = [mode.name_of(int(end)) for end in pairs[which[np.argmax(apart)]]]
        fail_value(f"{what} must give every edge one weight; got two for {ends[0]!r} and {ends[1]!r}.")
    left, right = (np.ascontiguousarray(pairs[:, i], dtype=np.int64) for i in (0, 1))
    with np.errstate(over="ignore"):
        once = once / float(np.median(once))
    if once.max() > MOST_WEIGHT or once.min() == 0.0:
        ends = [mode.name_of(int(end[np.argmax(once)])) for end in (left, right)]
        got = f"weights from {weight.min():g} to {weight.max():g}, the largest between {ends[0]!r} and {ends[1]!r}"
        mend = "rescale them, or make rows that it makes the same one row"
        fail_value(f"{what} must have weights of at most {MOST_WEIGHT:g} times their median; got {got}; {mend}.")
    return Net(mode.size, left, right, once)


def warn_of_nodes(known: Net, mode: Mode, seen: np.ndarray) -> None:
    """Say which nodes that are no rows with entries look misspelt."""
    # That is where others with entries, (n,) bool, have no edge, or one of them is a node's but for case and spaces.
    # Others are rows to predict, or groups of a taxonomy. Nodes become rows by their labels alone.
    degree = np.bincount(np.append(known.left, known.right), minlength=known.n)
    lacking, added = seen & (degree == 0), ~seen & (degree > 0)
    if mode.labels is None or not added.any():
        return
    plain = mode.labels.index.astype(str).str.strip().str.casefold().to_numpy()
    alike = added & np.isin(plain, plain[seen])
    shown = added if lacking.any() else alike
    if not shown.any():
        return
    which = f"{shown.sum()} of {(degree > 0).sum()} nodes of the Graph of mode {mode.name!r}"
    text = f"{which} have no entries, such as {mode.name_of(int(np.argmax(shown)))!r}"
    if lacking.any():
        name = mode.name_of(int(np.argmax(lacking)))
        text += f", and {lacking.sum()} of {seen.sum()} rows with entries no edge, such as {name!r}"
    warn_user(f"{text}; where the same row is meant, labels must be spelled alike.", UserWarning)
