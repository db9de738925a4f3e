"""Entries on scratch: packed, listed by row and read some at a time, to the bits of `tensorcep.cp.model.entries`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import MEMORY, Room, RunningSum, Scratch, leaves, read_ahead, room_of
from tensorcep.core.executor import ALONE, Executor
from tensorcep.core.packing import offsets
from tensorcep.cp.model.entries import Entries, EntriesByRow, chunk_starts, entries_by_row, lists_by_row, sum_products
from tensorcep.cp.model.latent import change_of_sums, latent_means
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.sorting import sorted_places
from tensorcep.likelihoods.base import Likelihood, log_density

# Entries that are read at a time, or those of a row with more.
READ = 1 << 17


class StoredTargets(NamedTuple):
    """Values in the order of the rows: float64 as they are, or float32, from which a number is taken."""

    value: np.ndarray
    shift: float

    def at(self, place: slice) -> np.ndarray:
        """The values at these places, float64."""
        part = self.value[place]
        return part if part.dtype == np.float64 else np.subtract(part, self.shift, dtype=np.float64)


def value_offset(likelihood: Likelihood) -> float:
    """What a likelihood of real values takes off them."""
    return -float(likelihood.check_y(np.zeros(1))[0])


def row_pieces(
    start: np.ndarray, first: int, last: int, lists: Sequence[np.ndarray], offset: int = 0, align: int = 1
) -> Iterator[tuple[int, int, slice]]:
    """Cuts of the rows first:last, at multiples of `align` from `offset`, and places of about READ entries between."""
    # what comes next of the lists is read ahead
    a, end = first, int(start[offset + last])
    while a < last:
        b = int(np.searchsorted(start, start[offset + a] + READ, side="right")) - 1 - offset
        b = min(last, max(a + align, b // align * align))
        at = slice(int(start[offset + a]), int(start[offset + b]))
        for part in lists:
            read_ahead(part, at.stop, min(at.stop + READ, end))
        yield a, b, at
        a = b


def in_pieces(kernel: Callable[..., None], first: int, last: int, offset: int, *record: Any, align: int = 1) -> None:
    """Call a kernel of rows for first:last; where their entries are stored, for as many rows at a time as are read."""
    lists, source, columns, (_, nothing, values), *rest = record
    if not isinstance(values, StoredTargets):
        kernel(first, last, offset, *record)
        return
    start, _, others = lists
    for a, b, at in row_pieces(start, first, last, (others, values.value), offset, align):
        kernel(a, b, offset, lists, source, columns, (at.start, nothing, values.at(at)), *rest)


def sum_stored(
    first: int, last: int, chunks: np.ndarray, by_row: EntriesByRow, sums: Any, shift: float, scratch: np.ndarray
) -> None:
    """As `sum_chunks` of `tensorcep.cp.model.entries`, of lists on scratch; weight None is 1, True is y."""
    start, lists, values = by_row.start, (by_row.others, by_row.value), StoredTargets(by_row.value, shift)
    for a, b, at in row_pieces(start, int(chunks[first]), int(chunks[last]), lists):
        n, others = at.stop - at.start, by_row.others[at]
        piece = by_row._replace(start=start[a : b + 1] - at.start, entry=np.arange(n, dtype=np.int32), others=others)
        for of_values, source, out in sums:
            weight = values.at(at) if of_values else np.ones(n)
            sum_products(0, b - a, piece, weight, source, out[a:b], scratch)


# Sorting is stable counting, a mode at a time: the places of the entries of every row are counted first, and the
# entries then written to them, a piece of the input after the other, each piece in order, so that files are written
# from their beginning to their end once for every piece.

# Entries that are sorted at a time, a multiple of LANES: each takes about a hundred bytes.
PIECE = 1 << 22
SORTING_BYTES = 100
# Bytes per entry of latent values, weights and targets: of four chains, and of a mean-field fit beside them.
SITES = 150


class StoredColumns(NamedTuple):
    """Coordinates of entries on scratch: a column (N,) int32 for each mode; whether no cell may occur twice."""

    columns: tuple[np.ndarray, ...]
    distinct: bool = False


def scratch_bytes(n: int, order: int, drawn: bool = False) -> int:
    """The most bytes that the files of a fit of n entries take at a time; `drawn`: with auxiliary variables."""
    source, sorting, packed = 4 * order + 8, 2 * (4 * order + 16), 4 * order + 24
    by_row, beside = order * (4 * (order - 1) + 8), 16  # values less their mean, values that were not left out
    return n * (source + beside + max(sorting, packed + 2 * by_row + (SITES if drawn else 0)))


def pieces(n: int) -> Iterator[slice]:
    """Slices of n entries, of PIECE each, the last of fewer."""
    for first in range(0, n, PIECE):
        yield slice(first, min(n, first + PIECE))


def pack_stored(source: StoredColumns, y: np.ndarray, shape: Sequence[int]) -> Entries:
    """As `entries.pack_entries`, of values (N,) on scratch, where entries lie too; ValueError if a cell comes twice."""
    n, order, room = len(y), len(shape), room_of(y)
    first, n_blocks = offsets(shape), -(-n // LANES)
    place = room.empty(n, np.int32 if n < np.iinfo(np.int32).max else np.int64)
    for at in pieces(n):
        place[at] = np.arange(at.start, at.stop)
    parts: tuple[np.ndarray, ...] = (*source.columns, y, place)
    del place
    for k in range(order - 1, -1, -1):  # all parts in the stable order of part k
        ordered = tuple(room.empty(part.shape, part.dtype) for part in parts)
        count = np.zeros(shape[k], dtype=np.int64)
        for at in pieces(n):
            count += np.bincount(parts[k][at], minlength=shape[k])
        filled = np.cumsum(count) - count
        for at in pieces(n):
            places, to = _place_keys(np.ascontiguousarray(parts[k][at]), filled)
            for part, out in zip(parts, ordered, strict=True):
                out[to] = part[at][places]
        parts = ordered
    if source.distinct:
        for at in pieces(n - 1):
            following = slice(at.start + 1, at.stop + 1)
            same = np.logical_and.reduce([column[at] == column[following] for column in parts[:order]])
            if same.any():
                cell = tuple(int(column[at][int(same.argmax())]) for column in parts[:order])
                raise ValueError(
                    f"the cell of rows {cell}, counted from 0, occurs more than once, and {int(same.sum())} of "
                    f"{at.stop - at.start} cells looked at do; merge them before a fit on scratch."
                )
    rows = room.empty((n_blocks, order, LANES), np.int32)
    values, weight = (room.empty((n_blocks, LANES)) for _ in range(2))
    for at in pieces(n_blocks * LANES):
        mine, own = slice(at.start // LANES, -(-at.stop // LANES)), slice(at.start, min(n, at.stop))
        used, flat = own.stop - own.start, np.zeros(at.stop - at.start)
        flat[:used] = parts[order][own]
        values[mine] = flat.reshape(-1, LANES)
        flat[:used] = 1.0
        weight[mine] = flat.reshape(-1, LANES)
        for k in range(order):
            column = np.zeros(len(flat), np.int32)
            np.add(parts[k][own], first[k], out=column[:used], casting="unsafe")
            rows[mine, k] = column.reshape(-1, LANES)
    return Entries(rows, values, weight, chunk_starts(n, order, n_blocks, int(first[-1])), parts[order + 1], first)


def _place_keys(key: np.ndarray, filled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of a piece's keys in order, and where each goes; `filled` tells what follows, and moves on."""
    place, cuts = sorted_places(key, len(filled))
    cuts = cuts.astype(np.int64)
    count = np.diff(cuts)
    to = np.repeat(filled - cuts[:-1], count)
    to += np.arange(len(key))
    filled += count
    return place, to


def by_row_of(
    problem: Problem, late: np.ndarray | None = None, values: bool = False, executor: Executor = ALONE
) -> EntriesByRow:
    """The entries of a problem by row, where they lie: see `tensorcep.cp.model.entries.entries_by_row`."""
    # those on scratch are listed once; with what the likelihood took from their values, as float32, where that loses
    # nothing (`StoredTargets` gives them back)
    entries = problem.entries
    room = room_of(entries.y)
    if not isinstance(room, Scratch):
        return entries_by_row(entries, late, values, executor)
    key = (id(entries.y), None if late is None else late.tobytes(), values)
    if key not in room.tables:
        shift = value_offset(problem.likelihood) if values else 0.0
        y = entries.y.ravel()[: len(entries.permutation)]

        def is_single(at: slice) -> bool:
            single = (y[at] + shift).astype(np.float32)
            return np.array_equal(np.subtract(single, shift, dtype=np.float64), y[at])

        raw = shift if values and all(map(is_single, pieces(len(y)))) else None
        room.tables[key] = (entries, _list_rows(entries, late, values, raw, room))
    found: EntriesByRow = room.tables[key][1]
    return found


def _list_rows(entries: Entries, late: np.ndarray | None, values: bool, raw: float | None, room: Room) -> EntriesByRow:
    n, K = len(entries.permutation), entries.rows.shape[1]
    first, ends = entries.offsets, np.zeros((int(entries.offsets[-1]), 2), dtype=np.int64)
    entry = room.empty(0 if values else K * n, np.int32)
    value = room.empty(K * n if values else 0, np.float64 if raw is None else np.float32)
    others = room.empty((K * n, K - 1), np.int32)
    last = None if late is None else np.sort(late)
    for k in range(K):
        count = np.zeros(2 * int(first[k + 1] - first[k]), dtype=np.int64)
        for _, key, _ in _keys(entries, k, last):
            count += np.bincount(key, minlength=len(count))
        filled = np.cumsum(count) - count
        filled += k * n
        for at, key, rest in _keys(entries, k, last):
            place, to = _place_keys(key, filled)
            others[to] = rest[place]
            if values:
                y = entries.y.ravel()[at][place]
                value[to] = y if raw is None else y + raw
            else:
                entry[to] = place + at.start
        ends[first[k] : first[k + 1]] = filled.reshape(-1, 2)
    return lists_by_row(ends, n, first, (entry, value, others))


def _keys(entries: Entries, k: int, late: np.ndarray | None) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Pieces of the entries: where, twice the rows of mode k, one more of those that come last; rows of the others."""
    n, K = len(entries.permutation), entries.rows.shape[1]
    others = [j for j in range(K) if j != k]
    for at in pieces(n):
        blocks = entries.rows[at.start // LANES : -(-at.stop // LANES)]
        key = 2 * (blocks[:, k].ravel()[: at.stop - at.start] - np.int32(entries.offsets[k]))
        if late is not None:
            key[late[slice(*np.searchsorted(late, [at.start, at.stop]))] - at.start] += 1
        yield at, key, np.stack([blocks[:, j].ravel()[: len(key)] for j in others], axis=1)


def spill(coords: np.ndarray, values: np.ndarray, room: Scratch) -> tuple[StoredColumns, np.ndarray]:
    """Checked entries in memory as columns and values on scratch."""
    columns = tuple(room.empty(len(coords), np.int32) for _ in range(coords.shape[1]))
    y = room.empty(len(values))
    for at, (k, column) in itertools.product(pieces(len(values)), enumerate(columns)):
        column[at] = coords[at, k]
    y[:] = values
    return StoredColumns(columns), y


def without_places(y: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The values (n,) but those at some places; those of values on scratch lie there."""
    room = room_of(y)
    if room is MEMORY:
        return np.delete(y, place)
    others, place, filled = room.empty(len(y) - len(place)), np.sort(place), 0
    for a, b in leaves(len(y)):
        part = np.delete(y[a:b], place[slice(*np.searchsorted(place, [a, b]))] - a)
        others[filled : filled + len(part)] = part
        filled += len(part)
    return others


# Sums and latent values of a fit whose rows are Gaussians, a piece of the entries after the other.
#
# Latent values are not kept: those of the sweep before are computed again beside the new ones, from the rows as they
# were. The sums of the first mode, which depend on the other modes alone, are taken for the next sweep in the same
# pass, so that a sweep reads every list of entries once.

# Blocks of entries whose latent values are computed at a time.
BLOCKS = 8 * READ // LANES


def sum_rows(cuts: np.ndarray, by_row: EntriesByRow, shift: float, sums: tuple[Any, ...], executor: Executor) -> None:
    """Sums (of values, source, out) over the entries of the rows cuts[0]:cuts[-1], by threads between two cuts each."""
    width = max(source.shape[1] for _, source, _ in sums)
    executor.run(sum_stored, 0, len(cuts) - 1, cuts, by_row, sums, shift, scratch=lambda: (np.empty(width),))


def change_and_score(
    means: Any, groups: np.ndarray, by_row: EntriesByRow, sums: Any, theta: float, problem: Problem, executor: Executor
) -> tuple[float, float]:
    """The change of the latent values, relative to them, and the mean log likelihood of the entries at the new ones."""
    # `means` are those of the rows after a sweep and before it; takes the `sums` of the first mode
    n, n_blocks = len(problem.entries.permutation), len(problem.entries.y)
    size, moved, score = RunningSum(n_blocks * LANES), RunningSum(n_blocks * LANES), RunningSum(n)
    shift, summed, start = value_offset(problem.likelihood), 0, by_row.start
    for b in range(0, n_blocks, BLOCKS):
        first, last = b * LANES, min(n, (b + BLOCKS) * LANES)
        # the packed rows of the entries, in blocks (n, K, LANES)
        others = by_row.others[first:last]
        packed = np.zeros((-(-(last - first) // LANES) * LANES, others.shape[1] + 1), dtype=np.int32)
        i, j = int(np.searchsorted(start, first, side="right")) - 1, int(np.searchsorted(start, last, side="left"))
        count = np.diff(np.clip(start[i : j + 1], first, last))
        packed[: last - first, 0] = np.repeat(np.arange(i, j, dtype=np.int32), count)
        packed[: last - first, 1:] = others
        rows = np.ascontiguousarray(packed.reshape(-1, LANES, packed.shape[1]).transpose(0, 2, 1))
        for part in (by_row.others, by_row.value):
            read_ahead(part, last, min(n, last + BLOCKS * LANES))
        new, old = (_latent(rows, mean, groups, last - first, executor) for mean in means)
        size.add(new**2)
        moved.add((new - old) ** 2)
        y, f = StoredTargets(by_row.value, shift).at(slice(first, last)), new[: last - first]
        score.add(log_density(problem.likelihood.loglik, y, f, theta)[0])
        complete = int(np.searchsorted(start[: problem.shape[0] + 1], last, side="right")) - 1
        if complete > summed:
            cuts = np.searchsorted(start[: complete + 1], np.linspace(start[summed], start[complete], 9))
            cuts = np.unique([summed, *np.clip(cuts, summed, complete), complete])
            sum_rows(cuts, by_row, shift, sums, executor)
            summed = complete
    return change_of_sums(moved.sum, size.sum, n_blocks * LANES), score.sum / n


def _latent(rows: np.ndarray, mean: np.ndarray, groups: np.ndarray, n: int, executor: Executor) -> np.ndarray:
    """Latent values of n entries at row means (n_rows, Q), and 0 up to a whole block."""
    f = np.empty((len(rows), LANES))
    executor.run(latent_means, 0, len(f), rows, mean, groups, f)
    flat = f.ravel()
    flat[n:] = 0.0
    return flat
