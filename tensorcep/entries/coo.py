"""Array functions on cells: linear indices, repeated cells and their merging, free cells, counts per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from tensorcep.core.checks import DUPLICATE_POLICIES, INT64_MAX, check_choice, fail_value, printable, warn_user
from tensorcep.kernels.sorting import perhaps_among, seen_before

# Of so many keys those that may repeat are looked for by marks, of which there are more than this many for each key;
# where more than this share of them may, all are sorted.
MANY, MARKS, MOST_AGAIN = 100_000, 8, 0.125

Coords = NDArray[np.int64]
Values = NDArray[np.float64]


def linear_index(coords: Coords, shape: Sequence[int]) -> NDArray[np.int64] | None:
    """Return each cell's position in row-major order, (N,) int64, or None where 64 bits do not hold it."""
    if math.prod(shape) > INT64_MAX:
        return None
    ids = coords[:, 0].copy()  # numpy's own function takes at most 31 modes, or 63
    for k in range(1, len(shape)):
        ids *= shape[k]
        ids += coords[:, k]
    return ids


def cells_of(ids: NDArray[np.int64], shape: Sequence[int]) -> Coords:
    """Return the (N, K) coordinates of row-major positions: the inverse of `linear_index`."""
    coords, rest = np.empty((len(ids), len(shape)), dtype=np.int64), ids
    for k in range(len(shape) - 1, 0, -1):
        rest, coords[:, k] = np.divmod(rest, shape[k])
    coords[:, 0] = rest
    return coords


def repeated_cells(coords: Coords, shape: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    """Return the entries (M,) of cells that occur more than once, and which repeat the one before; None if none do."""
    # Two looks at every key, a sort of few, and none when they ascend; equal cells stand together, in entry order.
    ids: Any = linear_index(coords, shape)
    ids = pd.DataFrame(coords).groupby(list(range(len(shape)))).ngroup().to_numpy() if ids is None else ids
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    ordered = np.sort(_may_repeat(ids))
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if again.size == 0:
        return None
    found = np.searchsorted(again, ids)
    order = np.flatnonzero(again[np.minimum(found, again.size - 1)] == ids)
    order = order[np.argsort(ids[order], kind="stable")]
    repeats = np.zeros(order.size, dtype=bool)
    repeats[1:] = ids[order[1:]] == ids[order[:-1]]
    return order, repeats


def _may_repeat(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all keys that occur more than once, as often as they do, and few others; of few keys, or many, all."""
    n = ids.size
    if n < MANY:
        return ids
    shift = np.uint64(64 - (MARKS * n).bit_length())
    marks, found = np.zeros(2 ** int(64 - shift) // 64, dtype=np.uint64), np.empty(n + 1, dtype=np.int64)
    with np.errstate(over="ignore"):  # where kernels run as Python, their products are said to overflow
        some = found[: seen_before(ids, shift, marks, found)].copy()
        if some.size > MOST_AGAIN * n:
            return ids
        marks[:] = 0
        return found[: perhaps_among(ids, some, shift, marks, found)]


def merge_duplicates(coords: Coords, values: Values, shape: Sequence[int], policy: str) -> tuple[Coords, Values]:
    """Return entries with every cell once; a merged cell stands where it first stood. See `SparseTensor`."""
    check_choice("duplicates", policy, DUPLICATE_POLICIES)
    repeated = repeated_cells(coords, shape)
    if repeated is None:
        return coords, values
    order, repeats = repeated
    if policy == "error":
        at = np.flatnonzero(repeats)
        where = at[np.argmin(order[at])]
        first = int(order[np.flatnonzero(~repeats[: where + 1])[-1]])
        cell = tuple(int(i) for i in coords[order[where]])
        fail_value(
            f"the cell {cell} (indices from 0) occurs more than once, first at entries {first} and "
            f"{int(order[where])}, and {at.size} {'entry repeats' if at.size == 1 else 'entries repeat'} an earlier "
            "one; pass duplicates='mean', 'sum' or 'last' to merge them, or, of a frame or csv file of events without "
            "values, value=None to count the lines of each cell."
        )
    starts = np.flatnonzero(~repeats)
    if policy == "last":
        merged = values[order[np.append(starts[1:], order.size) - 1]]
    else:
        merged = np.add.reduceat(values[order], starts)
        if policy == "mean":
            merged /= np.diff(np.append(starts, order.size))
    values = values.copy()
    values[order[starts]] = merged
    keep = np.ones(values.size, dtype=bool)
    keep[order[repeats]] = False
    return coords[keep], values[keep]


def check_sampled(sampled: Any, values: Values) -> NDArray[np.bool_] | None:
    """Return which entries (N,) are sampled zeros, None where none is."""
    if sampled is None:
        return None
    marks = np.asarray(sampled)
    if marks.dtype != bool or marks.shape != values.shape:
        got = f"{marks.dtype} of shape {marks.shape}"
        fail_value(f"sampled must be a boolean array of shape {values.shape}; got {got}.")
    odd = marks & (values != 0.0)
    if odd.any():
        n = int(np.argmax(odd))
        got = f"entry {n}, whose value is {values[n]:g}"
        fail_value(f"sampled marks zeros that nobody observed; got {got}; leave it out.")
    return marks if marks.any() else None


def merge_marks(sampled: NDArray[np.bool_] | None, coords: Coords, shape: Sequence[int]) -> NDArray[np.bool_] | None:
    """Return the marks of entries with every cell once: a cell was sampled where none of its entries was observed."""
    if sampled is None:
        return None
    return np.asarray(merge_duplicates(coords, (~sampled).astype(float), shape, "sum")[1] == 0.0)


def check_counting(policy: str) -> str:
    """Return how to merge the events of a cell, of each of which the value is 1; refuse any other way."""
    if check_choice("duplicates", policy, DUPLICATE_POLICIES) not in ("error", "sum"):
        fail_value(f"duplicates must be left out with value=None, which counts the lines of a cell; got {policy!r}.")
    return "sum"


def sample_free_cells(
    n: int, taken: Sequence[Coords], shape: Sequence[int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """Return (n, K) distinct cells, uniform without replacement over those not in `taken`, and their share of these."""
    stacked, total = np.concatenate(taken), math.prod(shape)
    ids = linear_index(stacked, shape)
    if ids is None:
        return _reject_taken(n, stacked, shape, rng), n / total  # taken cells are too few to count
    # Free cells are drawn by their number, so that a nearly full tensor costs no more than an empty one.
    ids = np.unique(ids)
    free = total - ids.size
    if n > free:
        counts = f"{free} free cells (of {total}, {ids.size} are observed or excluded)"
        fail_value(f"n must be at most the {counts}; got {n}.")
    if n > free // 2:
        ranks = rng.permutation(free)[:n].astype(np.int64)
    else:  # in O(n) memory however many are free
        ranks = np.empty(0, dtype=np.int64)
        while ranks.size < n:
            ranks = np.concatenate([ranks, rng.integers(0, free, size=n - ranks.size + 16, dtype=np.int64)])
            ranks = ranks[np.sort(np.unique(ranks, return_index=True)[1])]
        ranks = ranks[:n]
    # ids[j] - j free cells lie before the j-th taken cell, so the free cell of a rank is that many places further on.
    ranks += np.searchsorted(ids - np.arange(ids.size), ranks, side="right")
    return cells_of(ranks, shape), n / max(free, 1)


def _reject_taken(n: int, taken: Coords, shape: Sequence[int], rng: np.random.Generator) -> Coords:
    pool = _distinct(taken, shape)
    base = len(pool)
    while len(pool) - base < n:
        more = rng.integers(0, np.asarray(shape), size=(n - (len(pool) - base), len(shape)), dtype=np.int64)
        pool = _distinct(np.concatenate([pool, more]), shape)  # a drawn cell stands behind the taken one that it equals
    return pool[base:]


def _distinct(coords: Coords, shape: Sequence[int]) -> Coords:
    return merge_duplicates(coords, np.zeros(len(coords)), shape, "last")[0]


def unfold_cp(weights: Any, factors: Sequence[Any], coords: Coords) -> Values:
    """Return sum_r weights_r prod_k factors[k][i_k, r] at the given cells, (N,) float64."""
    product = np.asarray(factors[0], dtype=np.float64)[coords[:, 0]]
    if weights is not None:
        product = product * np.asarray(weights, dtype=np.float64)
    for k in range(1, len(factors)):
        product = product * np.asarray(factors[k], dtype=np.float64)[coords[:, k]]
    return product.sum(axis=1)


# The cells that scipy.sparse stores.


def scipy_parts(matrix: Any, duplicates: str = "sum", tell: bool = True) -> tuple[Coords, Any, tuple[int, ...]]:
    """Return the cells that a scipy.sparse matrix or array stores: in the whole package these are the observed ones."""
    if not hasattr(matrix, "tocoo") or matrix.ndim < 2:
        got = type(matrix).__name__ + (f" of shape {matrix.shape}" if hasattr(matrix, "shape") else "")
        raise TypeError(f"from_scipy takes a scipy.sparse matrix, or an array of two dimensions or more; got {got}.")
    coo = matrix.tocoo()
    coords = np.stack(coo.coords if hasattr(coo, "coords") else (coo.row, coo.col), axis=1).astype(np.int64)
    values = coo.data.astype(np.float64) if coo.data.dtype.kind in "iub" else coo.data
    if matrix.format in ("bsr", "dia"):  # zeros in their blocks and on their diagonals fill these up
        coords, values = coords[values != 0], values[values != 0]
    coords, values = merge_duplicates(coords, values, coo.shape, duplicates)
    zeros = int(np.count_nonzero(values == 0))
    if zeros and tell:
        cure = "call its eliminate_zeros() first if they were not observed"
        warn_user(f"{zeros} explicit zeros of the matrix are kept as observed entries; {cure}.", UserWarning)
    return coords, values, tuple(coo.shape)


def stored_cells(matrix: Any, tell: bool = True) -> Any:
    """Return a scipy.sparse matrix as a coo_array of its observed cells, each once: those listed twice are summed."""
    if matrix.ndim != 2:
        fail_value(f"a matrix must have 2 dimensions; got {matrix.ndim}.")
    coords, values, shape = scipy_parts(matrix, tell=tell)
    return sparse.coo_array((values, (coords[:, 0], coords[:, 1])), shape=shape)


class TensorInfo(NamedTuple):
    """What `SparseTensor.info` reports; `str()` of it is readable."""

    shape: tuple[int, ...]
    names: tuple[Any, ...]
    n_entries: int
    density: float
    counts: tuple[NDArray[np.int64], ...]  # per mode the number of entries in each row, (n_k,)
    empty_rows: tuple[NDArray[np.int64], ...]  # per mode the rows without any
    value_min: float
    value_mean: float
    value_max: float
    value_std: float

    def __str__(self) -> str:
        low, mean, high, sd = (f"{found:.6g}" for found in self[6:])
        text = f"shape    {' x '.join(map(str, self.shape))}\n"
        text += f"entries  {self.n_entries:,} (density {100 * self.density:.3g} %)\n"
        text += f"values   min {low}, mean {mean}, max {high}, sd {sd}"
        for k, (count, empty) in enumerate(zip(self.counts, self.empty_rows, strict=True)):
            name = "" if self.names[k] is None else f" ({self.names[k]})"
            text += f"\nmode {k}{name}: {count.size:,} rows, entries per row min {count.min()}, "
            text += f"median {np.median(count):g}, max {count.max()}; {empty.size:,} empty"
        return printable(text)
