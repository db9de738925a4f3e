"""The CP model, f = sum_r prod_k u^k[i_k, r]: its entries in lanes and by row, and the sums over them.

A matrix factorisation is the CP model of order 2. All modes are packed in one array of rows, so that one compiled
kernel serves every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorcep.core.compile import block_kernel
from tensorcep.core.executor import ALONE, Executor, Pass
from tensorcep.core.packing import offsets
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.sorting import lay_out, list_rows, number_lines, sort_lines

# A number of each of some entries, None where there is none.
OfEach: TypeAlias = "np.ndarray | None"
# Partial sums over chunks of entries make the result independent of the number of threads. They may take at most this
# fraction of the memory of the messages, which also bounds the time to add them up.
PARTIAL_FRACTION = 0.25
MAX_CHUNKS = 16
MIN_BLOCKS_PER_CHUNK = 64
# Sums per row are cut into this many parts of about as many entries, so that threads have equal shares.
MAX_PARTS = 64


class Entries(NamedTuple):
    """Observed entries in blocks of LANES, in the order of their coordinates."""

    rows: np.ndarray  # (n_blocks, K, LANES) int32, packed (`cp.posterior`); padding lanes point at row 0
    y: np.ndarray  # (n_blocks, LANES)
    weight: np.ndarray  # (n_blocks, LANES), 1 for an entry, 0 for padding
    chunk_start: np.ndarray  # (C + 1,) int64, blocks of chunk c are chunk_start[c]:chunk_start[c + 1]
    permutation: np.ndarray  # (N,) int32, int64 of more than that holds: the entry of the input that lane n holds
    offsets: np.ndarray  # (K + 1,) int64, first packed row of each mode
    known: np.ndarray = np.zeros((0, LANES))  # of the latent value beside the rows; no blocks where nothing is
    theta: np.ndarray = np.zeros((0, LANES))  # the likelihood's parameter where each entry knows its own; so too


def pack_entries(coords: np.ndarray, y: np.ndarray, shape: Sequence[int]) -> Entries:
    """Sort entries by coordinate, stably, and lay them out in lanes."""
    # so that rows of the first mode are local in memory, and the result does not depend on the order of the input
    n, order = coords.shape
    first, n_blocks = offsets(shape), -(-n // LANES)
    lines = number_lines(coords, n_blocks * LANES - n)
    other = np.empty_like(lines)
    for k in range(order - 1, -1, -1):
        sort_lines(lines[:n], k, np.zeros(shape[k] + 2, dtype=np.int64), other[:n])
        lines, other = other, lines
    # rows and places lie in the memory of the lines that were sorted, values and weights where as many bytes are
    if lines.dtype == np.int32:
        flat, size = other.ravel(), n_blocks * order * LANES
        rows, permutation = flat[:size].reshape(n_blocks, order, LANES), flat[size : size + n]
    else:
        rows, permutation = np.empty((n_blocks, order, LANES), dtype=np.int32), np.empty(n, other.dtype)
    if lines.dtype == np.int32 and order == 3:
        values, weight = lines.view(np.float64).ravel().reshape(2, n_blocks, LANES)
    else:
        values, weight = np.empty((n_blocks, LANES)), np.empty((n_blocks, LANES))
    rows[-1:] = 0
    lay_out(lines[:n], first, np.ascontiguousarray(y, dtype=np.float64), rows, values, permutation)
    values.ravel()[n:] = 0.0
    weight[...] = 1.0
    weight.ravel()[n:] = 0.0
    return Entries(rows, values, weight, chunk_starts(n, order, n_blocks, int(first[-1])), permutation, first)


def chunk_starts(n: int, order: int, n_blocks: int, n_rows: int) -> np.ndarray:
    """Where the chunks of n entries begin (see `Entries`)."""
    budget = int(PARTIAL_FRACTION * n * order / max(1, n_rows))
    n_chunks = max(1, min(MAX_CHUNKS, budget, n_blocks // MIN_BLOCKS_PER_CHUNK))
    return np.linspace(0, n_blocks, n_chunks + 1).astype(np.int64)


class EntriesByRow(NamedTuple):
    """The entries of every packed row, for sums per row whose order is fixed."""

    start: np.ndarray  # (n_rows + 1,) int64, row i has the places start[i]:start[i + 1] of these lists, mode after mode
    end: np.ndarray  # (n_rows,) int64, where in them the entries begin that come last in their rows
    entry: np.ndarray  # (K * N,) int32, place in the lanes of `Entries`, through all blocks; nothing with values for it
    value: np.ndarray  # (K * N,), values of the entries, or nothing
    others: np.ndarray  # (K * N, K - 1) int32, packed rows of the entry in the other modes
    chunks: tuple[np.ndarray, ...]  # per mode (C + 1,) int64, rows that cut it into parts of about as many entries


def entries_by_row(
    entries: Entries, late: np.ndarray | None = None, values: bool = False, executor: Executor = ALONE
) -> EntriesByRow:
    """Sort entries by row, once for every mode, those at places `late` last in rows; listed by places, or values."""
    n, K = len(entries.permutation), entries.rows.shape[1]
    entry, value = np.empty(0 if values else K * n, dtype=np.int32), np.empty(K * n if values else 0)
    others, is_late = np.empty((K * n, K - 1), dtype=np.int32), np.zeros(n, dtype=np.uint8)
    if late is not None:
        is_late[late] = 1
    end = np.zeros((int(entries.offsets[-1]), 2), dtype=np.int64)
    executor.run(list_rows, 0, K, entries.rows, entries.offsets, is_late, entries.y, end, entry, value, others)
    return lists_by_row(end, n, entries.offsets, (entry, value, others))


def lists_by_row(ends: np.ndarray, n: int, first: np.ndarray, lists: tuple[np.ndarray, ...]) -> EntriesByRow:
    """The record of n entries: `ends` (n_rows, 2) of the rows' entries, first of those not late; the three lists."""
    entry, value, others = lists
    end, start = np.ascontiguousarray(ends[:, 0]), np.append(0, ends[:, 1])
    parts = np.arange(MAX_PARTS + 1)
    chunks = [np.searchsorted(start[: b + 1], (k * n) + parts * n // MAX_PARTS) for k, b in enumerate(first[1:])]
    chunks = [np.unique([a, *np.clip(c, a, b), b]) for c, a, b in zip(chunks, first[:-1], first[1:], strict=True)]
    return EntriesByRow(start, end, entry, value, others, tuple(chunks))


def sum_products(first: int, last: int, by_row: EntriesByRow, *arrays: np.ndarray) -> None:
    """out[i] = sum over the entries n of row i of weight[n] * prod_{l != k} source[row_l(n)], for rows first:last."""
    # arrays are the weight, flat, one number per lane; the source (n_rows, W), whose products are elementwise; out; and
    # work space (W,). A row's sum runs in the order of its entries, whoever computes it.
    _sum_products(first, last, by_row.start, by_row.entry, by_row.others, *arrays)


@block_kernel
def _sum_products(first, last, start, entry, others, weight, source, out, scratch):
    """As `sum_products`, of arrays alone: the chunks of `EntriesByRow` would compile it anew for each order."""
    last_other, width = others.shape[1] - 1, source.shape[1]
    for i in range(first, last):
        total, end = out[i], start[i + 1]
        total[:] = 0.0
        n = start[i]
        while last_other == 1 and n + 1 < end:  # third order, two entries at a time: half as many passes over total
            w, x, y = weight[entry[n]], source[others[n, 0]], source[others[n, 1]]
            w2, x2, y2 = weight[entry[n + 1]], source[others[n + 1, 0]], source[others[n + 1, 1]]
            for p in range(width):
                total[p] += w * x[p] * y[p] + w2 * x2[p] * y2[p]
            n += 2
        for q in range(n, end):
            w, x = weight[entry[q]], source[others[q, 0]]
            if last_other == 0:
                for p in range(width):
                    total[p] += w * x[p]
                continue
            for p in range(width):
                scratch[p] = w * x[p]
            for j in range(1, last_other):
                x = source[others[q, j]]
                for p in range(width):
                    scratch[p] *= x[p]
            y = source[others[q, last_other]]
            for p in range(width):
                total[p] += scratch[p] * y[p]


def sum_chunks(
    first: int, last: int, chunks: np.ndarray, by_row: EntriesByRow, sums: tuple[Any, ...], scratch: np.ndarray
) -> None:
    """`sum_products` of every (weight, source, out) for the rows chunks[first]:chunks[last]."""
    for each in sums:
        sum_products(chunks[first], chunks[last], by_row, *each, scratch)


def room_for_products(width: int) -> tuple[np.ndarray]:
    """Work space of `sum_products` and `sum_squares` for sources (n_rows, width)."""
    return (np.empty(width),)


@block_kernel
def sum_squares(first, last, rows, second, twice, square, scratch):
    """square[block, lane] = sum_p twice[p] prod_k second[row_k, p] for the blocks first:last; scratch is (P,)."""
    K, P = rows.shape[1], second.shape[1]
    for b in range(first, last):
        for lane in range(LANES):
            x, total = second[rows[b, 0, lane]], 0.0
            if K == 3:  # third order: nothing is stored
                y, z = second[rows[b, 1, lane]], second[rows[b, 2, lane]]
                for p in range(P):
                    total += twice[p] * x[p] * y[p] * z[p]
                square[b, lane] = total
                continue
            for p in range(P):
                scratch[p] = twice[p] * x[p]
            for k in range(1, K - 1):
                y = second[rows[b, k, lane]]
                for p in range(P):
                    scratch[p] *= y[p]
            y = second[rows[b, K - 1, lane]]
            for p in range(P):
                total += scratch[p] * y[p]
            square[b, lane] = total


SQUARES = Pass(sum_squares, over="entries", reads=("second",), entries=("rows",), gives=("square",))


def rows_of(entries: Entries, places: np.ndarray) -> np.ndarray:
    """Packed rows (n, K) int64 of the entries at these places in the lanes, counted through all blocks."""
    block, lane = np.divmod(places, entries.rows.shape[2])
    return entries.rows[block, :, lane].astype(np.int64)


def in_lanes(entries: Entries, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
    """Values (N,) in the order of the lanes as (n_blocks, LANES), `fill` in padding lanes."""
    lanes = np.full(entries.y.shape, fill)
    lanes.ravel()[: len(values)] = values
    return lanes


def all_coords(entries: Entries) -> np.ndarray:
    """Coordinates (N, K) int32 of all entries, in the order of the lanes."""
    n, K = len(entries.permutation), entries.rows.shape[1]
    coords = np.empty((n, K), dtype=np.int32)
    for k in range(K):
        np.subtract(entries.rows[:, k].ravel()[:n], entries.offsets[k], out=coords[:, k], casting="unsafe")
    return coords
