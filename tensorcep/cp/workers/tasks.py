"""The tasks of workers: the kernel of a pass on a part of its work. All of it is pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import TaskReport
from tensorcep.core.compile import ADDRESSES, Address, address_of
from tensorcep.core.executor import Pass
from tensorcep.core.shared_memory import Payload, Sheet
from tensorcep.cp.model.entries import Entries, EntriesByRow
from tensorcep.cp.workers.files import ChunkPart, RowPartition, SiteMemory, StoredSites, Version, close_part, open_part
from tensorcep.cp.workers.row_cache import Piece, RowInputs, Store, pieces
from tensorcep.kernels.slots import LANES

# Rows are made some at a time, whose numbers stay in a cache: a worker never holds those of all.
BYTES_AT_A_TIME = 1 << 19


class Blank(NamedTuple):
    """An array of zeros: what a task fills in by itself, or nobody reads."""

    shape: tuple[int, ...]


class Work(NamedTuple):
    """What the tasks of a pass have in common."""

    of: Pass
    record: dict[str, Any]  # the kernel's arguments in order, None for those that every task has of its own
    scratch: Callable[[], tuple[Any, ...]]
    made: dict[str, tuple[int, ...]]  # shapes of lines of what it writes: of rows that other tasks read,
    told: dict[str, tuple[int, ...]]  # and of what the client alone needs

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers of entries, which stay or change."""
        return (*self.of.entries, *self.of.changing)

    def arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """The kernel's arguments as they came, with these for those that a task has of its own."""
        return with_values({name: arrived(value) for name, value in self.record.items()}, values)


def value_of(record: Mapping[str, Any], name: str) -> Any:
    """An argument, or a field of one ("rows.Lam")."""
    argument, _, field = name.partition(".")
    return getattr(record[argument], field) if field else record[argument]


def with_values(record: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Arguments some of which, or of whose fields ("rows.Lam"), have other values."""
    record = dict(record)
    for name, value in values.items():
        argument, _, field = name.partition(".")
        record[argument] = record[argument]._replace(**{field: value}) if field else value
    return record


def shipped(value: Any) -> Any:
    """An argument as it is sent: addresses are those of this process."""
    if type(value) is int and value in ADDRESSES:
        return ADDRESSES[value]
    if isinstance(value, tuple) and not isinstance(value, Blank):
        return _of_type(value, map(shipped, value))
    return value


def arrived(value: Any) -> Any:
    """An argument that was sent; its arrays may be written, as kernels compile again for others."""
    if isinstance(value, Blank):
        return np.zeros(value.shape)
    if isinstance(value, Address):
        return address_of(*value)
    if isinstance(value, np.ndarray):
        return np.array(value)
    return _of_type(value, map(arrived, value)) if isinstance(value, tuple) else value


def _of_type(value: Any, items: Any) -> Any:
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


# Passes over the rows of a mode.


class Range(NamedTuple):
    """Rows of a mode: where their entries are, the first, the one after the last, and the numbers of the entries."""

    path: str
    first: int
    last: int
    numbers: tuple[Any, ...] | None = None  # None of what is with the entries, or, if they change, in place of all


def pass_over_rows(
    ranges: list[Range],
    work: Work,
    inputs: RowInputs,
    blocks: list[Any],
    store: Store,
    numbers: Sequence[Any],
    lines: list[np.ndarray],  # for all rows of the mode, or one
    sizes: np.ndarray | None,  # how many entries of each row count, the first ones; None: all
    paths: tuple[str | None, ...],  # where what is made is left, and what else is told, or both where there is one
) -> Piece:
    """New rows of ranges that follow each other."""
    first, n, shapes = ranges[0].first, ranges[-1].last - ranges[0].first, work.made | work.told
    groups = (work.made, work.told) if len(paths) == 2 else (shapes,)
    offset, scratch = inputs.first[work.of.modes[0]], work.scratch()
    most = max(LANES, BYTES_AT_A_TIME // (8 * sum(map(math.prod, shapes.values()))) // LANES * LANES)
    room = {name: np.empty((min(n, most), *shape)) for name, shape in shapes.items()}
    sheets = [Sheet(path, [(n, *own[name]) for name in own]) for path, own in zip(paths, groups, strict=True)]
    try:
        with store.reading(inputs, blocks) as read:
            n_read = len(work.of.reads)
            before = dict(zip(work.of.changes, read[n_read:], strict=True))
            values = dict(zip((*work.of.reads, *work.of.lines), (*read[:n_read], *map(np.array, lines)), strict=True))
            record = work.arguments(values)
            for where, given in zip(ranges, numbers, strict=True):
                for a, b, entries in _entries_of(where, given, work, sizes, most):
                    own = {name: array[: b - a] for name, array in room.items()}
                    for name, rows in before.items():
                        own[name][...] = rows[offset + a : offset + b]
                    work.of.kernel(0, 1, *with_values(record, entries | own).values(), *scratch)
                    for sheet, names in zip(sheets, groups, strict=True):
                        for i, name in enumerate(names):
                            sheet.put(i, a - first, own[name])
                close_part(where.path)
        found: dict[str, Payload] = {}
        for sheet, names in zip(sheets, groups, strict=True):
            found |= zip(names, sheet.done(), strict=True)
        return Piece(first, {name: found[name] for name in work.made}, {name: found[name] for name in work.told})
    finally:
        for sheet in sheets:
            sheet.drop()


def _entries_of(
    where: Range, given: tuple[Any, ...] | None, work: Work, sizes: np.ndarray | None, most: int
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Some rows of a range after the other, from one to before the other, and what the kernel is given of entries."""
    part, none, cuts = open_part(where.path, RowPartition), np.zeros(0), pieces(where.last - where.first, most)
    known = where.numbers if given is None else given
    by_place, bounds = "base" not in work.record, [(a, b, int(part.start[a]), int(part.start[b])) for a, b in cuts]
    longest = max((last - begin for _, _, begin, last in bounds), default=0)
    entry = np.arange(longest if by_place else 0, dtype=np.int32)
    arrays = [part.value if one is None else np.array(one) for one in known or ()]
    arrays = [np.full(longest, one) if one.ndim == 0 else one for one in arrays]
    for a, b, begin, last in bounds:
        start, row = part.start[a : b + 1] - begin, where.first + a
        end = start[1:] if sizes is None else start[:-1] + sizes[row : row + b - a]
        by_row = EntriesByRow(start, end, entry[: last - begin], none, part.others[begin:last], ())
        values = {"cuts": np.array([row, row + b - a]), "offset": -row, "by_row": by_row}
        values |= {} if by_place else {"base": 0}
        for name, array, one in zip(work.numbers, arrays, known or (), strict=True):
            values[name] = array[: last - begin] if isinstance(one, float) else array[begin:last]
        yield row, row + b - a, values


def rows_alone(told: TaskReport) -> TaskReport:
    """What other workers need of rows that one has made: where results are sent, they would be sent the rest, too."""
    return told if told.lacks else told._replace(value=told.value._replace(told={}))


# Passes over blocks of entries. A draw's stream is that of its block, counted through all blocks: arrays are made as if
# they began at the first one; of what lies before a range nothing is ever touched, and the system gives it no memory.


def pass_over_blocks(
    where: tuple[int, int], work: Work, inputs: RowInputs, blocks: list[Any], store: Store, numbers: list[Any]
) -> list[np.ndarray]:
    """What the kernel writes of the blocks from one to before the other; what it leaves as it was is no number."""
    first, last = where
    with store.reading(inputs, blocks) as read:
        values = dict(zip(work.of.reads, read, strict=True))
        for name, given in zip(work.numbers, numbers, strict=True):
            shape, kind = ((LANES,), np.float64) if isinstance(given, float) else (given.shape[1:], given.dtype)
            values[name] = np.empty((last, *shape), kind)
            values[name][first:] = given
        results = {name: np.empty((last, *shape)) for name, shape in work.told.items()}
        for name in work.of.changes:
            results[name][first:] = np.nan
        work.of.kernel(first, last, *work.arguments(values | results).values(), *work.scratch())
    return [array[first:].copy() for array in results.values()]


# Passes over chunks of entries, of which workers may keep something.


class Chunk(NamedTuple):
    """Where the entries of a chunk are, its number, and from where to where, of each mode, its entries have rows."""

    path: str
    number: int
    rows: tuple[tuple[int, int], ...]


def pass_over_chunks(
    chunks: list[Chunk],
    work: Work,
    inputs: RowInputs,
    blocks: list[Any],
    store: Store,
    places: list[StoredSites],
    memory: SiteMemory | None,
) -> list[tuple[list[Any], tuple[Version, ...]]]:
    """Sums of chunks, of rows those of the entries alone, and versions of what is kept: nothing without memory."""
    scratch, found, none = work.scratch(), [], np.zeros(0, dtype=np.int32)
    first = np.array(inputs.first, dtype=np.int64)
    with store.reading(inputs, blocks) as read:
        for n, chunk in enumerate(chunks):
            record = work.arguments(dict(zip(work.of.reads, read, strict=True)))
            part = open_part(chunk.path, ChunkPart)
            bounds = np.array([0, len(part.rows)], dtype=np.int64)  # as one chunk
            said = part.rows, part.y, part.weight, bounds, none, first, part.known, part.theta
            record["entries"] = entries = Entries(*said)
            if memory is not None:
                record[work.of.keeps] = memory.take(chunk.number, places[n], entries)
            work.of.kernel(0, 1, *record.values(), *scratch)
            sums: list[Any] = [value_of(record, name)[0] for name in work.of.sums]
            for i, whole in enumerate(sums):
                if whole.ndim > 1:  # of rows
                    sums[i] = [whole[slice(*chunk.rows[k])].copy() for k in work.of.modes]
            versions: tuple[Version, ...] = ()
            if memory is not None:
                versions = memory.write(chunk.number, places[n], record[work.of.keeps], work.of.modes)
            found.append((sums, versions))
    return found
