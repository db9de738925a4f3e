"""An executor whose passes are made on the workers of a cluster, and the tasks; all else runs on threads here.

A pass says what its kernel reads, keeps and sums (`tensorcep.core.executor.Pass`). Rows are here; workers are sent
those that have changed, and have those that they make from each other. Entries are in files that they map; numbers of
entries that change are sent. Kernels, entries and orders of additions are those of one process, and so are the bits.
A task, the kernel of a pass on a part of its work, is pure.
"""

from __future__ import annotations

import importlib
import itertools
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Broadcast, Call, Cluster, TaskBatch, TaskReport
from tensorcep.core.compile import ADDRESSES, Address, address_of
from tensorcep.core.executor import Kernel, Pass, Room, Rooms, ThreadExecutor, parameters_of
from tensorcep.core.packing import offsets
from tensorcep.core.shared_memory import Payload, SharedArray, Sheet, put
from tensorcep.cp.model.entries import Entries, EntriesByRow
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import ALIGNED_BLOCKS, RowSource
from tensorcep.cp.workers import files, row_cache
from tensorcep.cp.workers.files import ChunkPart, RowPartition, SiteFiles, SiteMemory, StoredSites, Version
from tensorcep.cp.workers.row_cache import BroadcastRows, Piece, Reading, RowCache, RowFiles, RowInputs, Store, pieces
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
                files.close_part(where.path)
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
    part, none, cuts = files.open_part(where.path, RowPartition), np.zeros(0), pieces(where.last - where.first, most)
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
        for name, array, one in zip((*work.of.entries, *work.of.changing), arrays, known or (), strict=True):
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
        for name, given in zip((*work.of.entries, *work.of.changing), numbers, strict=True):
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
            part = files.open_part(chunk.path, ChunkPart)
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


NOTHING = np.zeros(0)


class ClusterExecutor:
    """Runs passes on workers, whose entries are in a folder that they see; what passes keep is told by `sites`."""

    keeps_state = True

    def __init__(self, cluster: Cluster, folder: Path, n_threads: int, sites: SiteFiles):
        self._cluster, self._folder, self._sites, self._n_parts = cluster, folder, sites, 1
        self._cache, self._local = RowCache(cluster), ThreadExecutor(n_threads)
        self._ranges: dict[tuple[int, int, bool], tuple[Any, list[Range]]] = {}
        self._chunks: tuple[Any, list[Chunk]] | None = None
        self._blocks: dict[tuple[str, int], Broadcast] = {}
        self._entries: dict[tuple[str, int], tuple[np.ndarray, Broadcast]] = {}
        self._memory: tuple[str, Broadcast] | None = None
        self._told: dict[tuple[Kernel, int, int], tuple[Any, np.ndarray]] = {}
        self.updates_rows = False
        self._thread, self._lock = threading.local(), threading.Lock()

    def begin(self, problem: Problem, n_parts: int) -> None:
        """Run on workers from now on: modes, and entries, are cut into so many ranges."""
        self._n_parts, self.updates_rows = n_parts, True
        self._cache.begin(offsets(problem.shape))

    def close(self) -> None:
        """End the threads, and let the workers forget what they have."""
        self._local.close()
        self._cache.close()
        self._memory = None
        for known in (self._blocks, self._entries, self._told):
            known.clear()

    def apart(self, task: Callable[..., Any], n: int, *args: Any) -> list[Any]:
        """As `Executor.apart`, at once; where all workers get as many, each has its own, to which a chain's rows go."""
        if not self.updates_rows or n == 1:
            return [task(i, *args, self) for i in range(n)]
        alone = n % max(1, len(self._cluster.workers)) == 0

        def begin(i: int) -> Any:
            self._thread.at = i if alone else None
            return task(i, *args, self)

        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(begin, range(n)))

    def run(
        self, work: Kernel | Pass, first: int, last: int, *record: Any, align: int = 1, scratch: Room = None
    ) -> None:
        named = dict(zip(parameters_of(work.kernel), record, strict=False)) if isinstance(work, Pass) else {}
        there = self.updates_rows and isinstance(work, Pass) and is_shared(work.kernel)
        if not (isinstance(work, Pass) and work.later and there):
            self.settle()
        if not isinstance(work, Pass):
            self._local.run(work, first, last, *record, align=align, scratch=scratch)
        elif work.keeps and work.keeps in work.gives:
            sites, apart = named[work.keeps], ("entries", work.keeps)
            like = type(sites)(*(np.empty((0, *array.shape[1:]), array.dtype) for array in sites))
            given = {name: None if name in apart else shipped(value) for name, value in named.items()}
            self._sites.add(sites, files.Beginning(like, work.kernel, given, work.keeps))
        elif there and work.over == "rows" and work.modes:
            self._over_rows(work, named, scratch)
        elif there and work.over == "entries":
            self._over_blocks(work, last, named, scratch)
        elif there and work.over == "chunks" and not (work.keeps and self._sites.get(named[work.keeps]) is None):
            self._over_chunks(work, named, scratch)
        elif not self._knows(work, first, last, named):
            self._local.run(work, first, last, *record, align=align, scratch=scratch)

    def settle(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                running, *rest = waiting.pop(0)
                self._finish(running, *rest)
                if running.again:  # what follows was given what was lost
                    for later, *_ in waiting:
                        later.restart()
        finally:
            waiting.clear()

    @property
    def _waiting(self) -> list[tuple[Any, ...]]:
        """Passes of this thread whose rows come later, as `_finish` takes them, in the order of their beginnings."""
        found: list[tuple[Any, ...]] = self._thread.__dict__.setdefault("waiting", [])
        return found

    def _over_rows(self, work: Pass, named: dict[str, Any], scratch: Any) -> None:
        (mode,), by_row, waiting = work.modes, named["by_row"], self._waiting
        sources = {name: _source(name, named) for name in work.reads}
        if not waiting:
            self._cache.look(sources.values(), None if work.changes else mode)
        written = {*work.gives, *work.changes}
        changed = {one.kind: one for one in sources.values() if written & set(one.of)}.values()
        others, own = [k for k in self._cache.modes if k != mode], self._cache.rows_of(mode)
        wanted: list[Any] = [(name, source, others) for name, source in sources.items()]
        wanted += [("", next(one for one in changed if name in one.of), [mode]) for name in work.changes]
        reading, tag = self._cache.reading(wanted), next(iter(sources.values())).kind
        lines = [self._line(f"{tag} {name}", mode, value_of(named, name)) for name in work.lines]
        counts, all_counts = by_row.end[own] - by_row.start[own], np.diff(by_row.start[own.start : own.stop + 1])
        sizes = None if np.array_equal(counts, all_counts) else self._line(f"{tag} sizes", mode, counts)
        at = getattr(self._thread, "at", None)
        key = id(by_row.others), mode, bool(work.entries)
        with self._lock:  # entries are written when they are first needed
            if key not in self._ranges:
                ranges = ranges_of_mode(self._folder, own, self._n_parts, work.entries, named)
                self._ranges[key] = (by_row.others, ranges)
        shares = files.shared(self._ranges[key][1], self._cluster.turns(at=at))

        def numbers_of(one: Range) -> Broadcast | None:  # numbers of entries, unless they are those of the pass before
            first, last = own.start + one.first, own.start + one.last
            return self._cluster.put(_numbers_of(work.changing, first, last, named)) if work.changing else None

        numbers = [[numbers_of(one) for one in share] for share in shares]
        common = _work_of(work, named, scratch, {name for one in changed for name in one.of})
        widths = [sum(map(math.prod, shapes.values())) for shapes in (common.made, common.told)]
        row_files, apart = RowFiles(self._cache.desk), widths[1] >= widths[0]
        made = [BroadcastRows(source, own, self._cluster, row_files) for source in changed]

        def call(i: int, *given: Any) -> Call:
            paths = (row_files.new_path(), self._cache.desk.new_path())[: 1 + apart]
            return shares[i], common, *given, numbers[i], lines, sizes, paths

        running = self._cache.begin_tasks(pass_over_rows, reading, len(shares), call, f"rows-of-mode-{mode}", at)
        futures = running.futures
        if self._cache.desk.folder is None and apart:
            futures = self._cluster.after(rows_alone, futures) or None
        for one in made:
            self._cache.follow(one, mode, futures)
        pending = running, made, {name: value_of(named, name) for name in written}, named["offset"]
        if work.later:
            waiting.append(pending)
            return
        self._finish(*pending)
        if work.also is not None:
            also, names = work.also
            values = {name: value_of(named, one) for name, one in names.items()}
            at_rows = (also.kernel, own.start, own.stop)
            self._told[at_rows] = (_digests(also, *at_rows[1:], values), values[also.gives[0]][own])

    def _finish(
        self, running: TaskBatch, made: list[BroadcastRows], arrays: dict[str, np.ndarray], offset: int
    ) -> None:
        """Put rows of a mode, from the packed row `offset` on, in the arrays that they go to."""
        for piece in self._cache.end_tasks(running):
            for name, given in (piece.arrays | piece.told).items():
                put(given, arrays[name][offset + piece.first : offset + piece.first + piece.n])
            paths = [{one.path for one in given.values() if isinstance(one, SharedArray)} for given in piece[1:]]
            self._cache.discard(sorted(paths[1] - paths[0]))  # others need what is with the rows
        for one in made:
            one.know()
            if running.again:  # what follows was given what was lost
                one.future = None

    def _line(self, what: str, mode: int, array: np.ndarray) -> np.ndarray | Broadcast:
        """A line for each row of a mode as workers have them, sent again where they have changed; or one, as it is."""
        if len(array) == 1:
            return array
        broadcast = self._blocks.get((what, mode))
        if broadcast is None or not np.array_equal(broadcast.value, array):
            broadcast = self._blocks[what, mode] = self._cluster.put(array.copy())
        return broadcast

    def _knows(self, work: Pass, first: int, last: int, named: dict[str, Any]) -> bool:
        """Put what a kernel would give of these packed rows in place, if workers have told it."""
        known = self._told.get((work.kernel, first, last))
        values = {name: value_of(named, name) for name in (*work.reads, *work.lines) if known is not None}
        if known is None or known[0] != _digests(work, first, last, values):
            return False
        named[work.gives[0]][first:last] = known[1]
        return True

    def _all_rows(self, work: Pass, named: dict[str, Any]) -> Reading:
        """The rows of all modes that a pass reads."""
        sources = {name: _source(name, named) for name in work.reads}
        self._cache.look(sources.values())
        return self._cache.reading((name, source, self._cache.modes) for name, source in sources.items())

    def _over_blocks(self, work: Pass, n_blocks: int, named: dict[str, Any], scratch: Any) -> None:
        reading, common = self._all_rows(work, named), _work_of(work, named, scratch)
        groups, n_parts, names = -(-n_blocks // ALIGNED_BLOCKS), self._n_parts, (*work.entries, *work.changing)
        cuts = {min(n_blocks, ALIGNED_BLOCKS * (groups * part // n_parts)) for part in range(n_parts + 1)}
        ranges = list(itertools.pairwise(sorted(cuts)))
        numbers = [[self._cut(name, one, named[name], name in work.entries) for name in names] for one in ranges]

        def call(i: int, *given: Any) -> Call:
            return ranges[i], common, *given, numbers[i]

        told = self._cache.run(pass_over_blocks, reading, len(ranges), call, "-".join(("entries", *common.told)))
        for one, found in zip(ranges, told, strict=True):
            for name, array in zip(common.told, found, strict=True):
                where = ~np.isnan(array) if name in work.changes else True
                np.copyto(named[name][slice(*one)], array, where=where)

    def _cut(self, name: str, where: tuple[int, int], array: np.ndarray, stays: bool) -> Broadcast | float:
        """The range of an array as tasks take it; that of one that stays the same is sent once."""
        key, known = (name, where[0]), self._entries.get((name, where[0]))
        if stays and known is not None and known[0] is array:
            return known[1]
        part = _packed(array[slice(*where)])
        if isinstance(part, float):
            return part
        broadcast = self._cluster.put(part)
        if stays:
            self._entries[key] = (array, broadcast)
        return broadcast

    def _over_chunks(self, work: Pass, named: dict[str, Any], scratch: Any) -> None:
        chunks, reading = self._chunks_of(named["entries"]), self._all_rows(work, named)
        stored = self._sites.get(named[work.keeps]) if work.keeps else None
        shares, common = files.shared(chunks, self._cluster.turns()), _work_of(work, named, scratch)
        if stored is not None and (self._memory is None or self._memory[0] != stored.folder):
            self._memory = (stored.folder, self._cluster.put(SiteMemory()))

        def call(i: int, *given: Any) -> Call:
            if stored is None or self._memory is None:
                return shares[i], common, *given, [], None
            return shares[i], common, *given, [stored.of_chunk(one.number) for one in shares[i]], self._memory[1]

        what = "-".join(("entries-of-modes", *map(str, work.modes)))
        told = self._cache.run(pass_over_chunks, reading, len(shares), call, what)
        found = [one for share in told for one in share]
        for c, (chunk, (sums, _)) in enumerate(zip(chunks, found, strict=True)):
            for name, part in zip(work.sums, sums, strict=True):
                array = value_of(named, name)
                if array.ndim < 3:
                    array[c] = part
                    continue
                for k, rows in zip(work.modes, part, strict=True):  # those without entries in the chunk have sums of 0
                    array[c, self._cache.rows_of(k)] = 0.0
                    array[c, slice(*chunk.rows[k])] = rows
        if stored is not None:
            versions = tuple(versions for _, versions in found)
            self._sites.move(named[work.keeps], stored._replace(latest=stored.latest + 1, versions=versions))

    def _chunks_of(self, entries: Entries) -> list[Chunk]:
        """The chunks of the entries, which are written when they are first needed."""
        known = self._chunks
        if known is not None and all(a is b for a, b in zip(known[0], entries, strict=True)):
            return known[1]
        chunks = []
        for c, (first, last) in enumerate(itertools.pairwise(entries.chunk_start.tolist())):
            part = ChunkPart(*(getattr(entries, name)[first:last] for name in ChunkPart._fields))
            used, touched = part.weight > 0.0, []
            for k, offset in enumerate(entries.offsets[:-1].tolist()):
                rows = part.rows[:, k][used]
                touched.append((int(rows.min()), int(rows.max()) + 1) if len(rows) else (offset, offset))
            chunks.append(Chunk(files.write_part(self._folder, part), c, tuple(touched)))
        self._chunks = (entries, chunks)
        return chunks


def _work_of(work: Pass, named: dict[str, Any], scratch: Any, shared_rows: Collection[str] = ()) -> Work:
    """What the tasks of a pass have in common, without what each is given or makes for itself."""
    shapes = {name: value_of(named, name).shape[1:] for name in (*work.gives, *work.changes)}
    sums = {name: Blank((1, *value_of(named, name).shape[1:])) for name in work.sums}
    own = {**dict.fromkeys((*work.reads, *work.lines, *work.entries, *work.changing, *shapes)), **sums}
    record: dict[str, Any] = {}
    for name, value in named.items():
        fields = {one.partition(".")[2]: blank for one, blank in own.items() if one.startswith(f"{name}.")}
        if name in own or name in ("cuts", "offset", "by_row", "base", "entries", work.keeps):
            record[name] = None
        elif fields:
            blank = {one: Blank(array.shape) for one, array in value._asdict().items() if isinstance(array, np.ndarray)}
            record[name] = shipped(value._replace(**blank | fields))
        else:
            record[name] = shipped(value)
    make: Any = scratch.make if isinstance(scratch, Rooms) else scratch or tuple
    made = {name: shape for name, shape in shapes.items() if name in shared_rows}
    told = {name: shape for name, shape in shapes.items() if name not in shared_rows}
    return Work(work._replace(modes=tuple(work.modes), also=None), record, make, made, told)


def ranges_of_mode(
    folder: Path, own: slice, n_parts: int, stay: Sequence[str], named: Mapping[str, Any]
) -> list[Range]:
    """At most so many ranges of about as many entries, of a mode with these packed rows; with numbers that stay."""
    by_row, ranges = named["by_row"], []
    start, n = by_row.start[own.start : own.stop + 1], own.stop - own.start
    places = start[0] + np.arange(1, n_parts) * (start[-1] - start[0]) // n_parts
    inner = -(-np.searchsorted(start, places) // LANES) * LANES  # rows of a group share a random stream
    for first, last in itertools.pairwise(np.unique([0, *np.minimum(inner, n), n]).tolist()):
        start = by_row.start[own.start + first : own.start + last + 1]
        numbers = _numbers_of(stay, own.start + first, own.start + last, named)
        value = next((one for one in numbers if isinstance(one, np.ndarray) and len(one)), NOTHING)
        part = RowPartition(start - start[0], by_row.others[start[0] : start[-1]], value)
        said = tuple(None if one is value else one for one in numbers) if stay else None
        ranges.append(Range(files.write_part(folder, part), first, last, said))
    return ranges


def _numbers_of(names: Sequence[str], first: int, last: int, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Numbers of the entries of the packed rows first:last, in their order: from `base` on, or else in the lanes."""
    by_row, base = named["by_row"], named.get("base")
    a, b = int(by_row.start[first]), int(by_row.start[last])
    places = by_row.entry[a:b] if base is None else slice(a - base, b - base)
    return tuple(_packed(value_of(named, name)[places]) for name in names)


def is_shared(kernel: Any) -> bool:
    """Whether workers find a kernel by its name."""
    module, name = str(getattr(kernel, "__module__", "")), str(getattr(kernel, "__name__", ""))
    return module.startswith("tensorcep.") and getattr(importlib.import_module(module), name, None) is kernel


def _source(name: str, named: dict[str, Any]) -> RowSource:
    """What a pass reads of rows."""
    value = value_of(named, name)
    return value if isinstance(value, RowSource) else RowSource(name, value, {name: value})


def _digests(work: Pass, first: int, last: int, values: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Numbers that tell what a kernel reads of some packed rows; one line is that of all."""
    arrays = [values[name] for name in (*work.reads, *work.lines)]
    return row_cache.digests_of(one if len(one) == 1 else one[first:last] for one in arrays)


def _packed(array: np.ndarray) -> np.ndarray | float:
    """Numbers, or the one that all of them are."""
    alike = len(array) and (array.strides[0] == 0 or (array == array.flat[0]).all())
    return float(array.flat[0]) if alike and array.dtype == np.float64 else array
