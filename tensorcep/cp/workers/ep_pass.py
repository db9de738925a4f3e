"""A pass of message passing on workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.cluster import Cluster
from tensorcep.core.compile import LOGLIK_SIGNATURE, TILTED_SIGNATURE, address_of
from tensorcep.core.executor import Rooms
from tensorcep.core.futures import Call, Held
from tensorcep.cp.cep.method import clamped_address, first_order_address, second_order_address
from tensorcep.cp.cep.stochastic import Factors, averaged_chunks, closed_chunks
from tensorcep.cp.cep.update import cep_chunks
from tensorcep.cp.laplace import laplace_chunks
from tensorcep.cp.messages.cavities import ProductSlots, scale_messages
from tensorcep.cp.messages.sites import MessageSums, first_cavities, no_messages, send_first
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.partitions import open_part, shared, write_part
from tensorcep.cp.workers.row_cache import SentRows, Sources
from tensorcep.cp.workers.row_store import Store
from tensorcep.cp.workers.site_files import Shelf, SiteMemory, Stored, Version, Where, messages_at, written
from tensorcep.cp.workers.tasks import KernelName, RowInputs, name_of_kernel
from tensorcep.likelihoods.base import Likelihood

# What workers do for methods that pass messages: a pass over a chunk of the entries, whose messages they keep.

SIGNATURES = {"tilted": TILTED_SIGNATURE, "loglik": LOGLIK_SIGNATURE}


class ChunkPart(NamedTuple):
    """The entries of a chunk, as `Entries` has them."""

    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    known: np.ndarray
    theta: np.ndarray


class Chunk(NamedTuple):
    """Where the entries of a chunk are, its number, and from where to where, of each mode, its entries have rows."""

    path: str
    number: int
    rows: tuple[tuple[int, int], ...]


class PassWork(NamedTuple):
    """What a pass is for every chunk.

    Attributes
    ----------
    kernel : KernelName
    modes : tuple of int
        From the one to before the other.
    offsets : (K + 1,) int64
    columns : Columns
    rows : tuple of (type, tuple of str)
        Every record of rows: `RowState` or another, and the fields that the kernel uses, in the order of the sources;
        there are R columns.
    R : int
    noise : tuple of float
    rule : NamedTuple
        The rule of the kernel, with 0 for addresses; `addresses` names the kernels of the likelihood among them.
    addresses : dict
    scratch : callable
    """

    kernel: KernelName
    modes: tuple[int, int]
    offsets: np.ndarray
    columns: ProductSlots
    rows: tuple[tuple[type, tuple[str, ...]], ...]
    R: int
    noise: tuple[float, float]
    rule: Any
    addresses: dict[str, KernelName]
    scratch: Callable[[], tuple[Any, ...]]


class ChunkSums(NamedTuple):
    """Of a chunk: sums of messages to its rows in the modes of the pass, (Lam, eta) each, and what else a pass tells.

    `versions` are those of the messages now.
    """

    sums: list[tuple[np.ndarray, np.ndarray]]
    noise: np.ndarray
    skipped: float
    versions: tuple[Version, ...]


def pass_chunks(
    chunks: list[Chunk],
    work: PassWork,
    given: RowInputs,
    blocks: list[Any],
    store: Store,
    places: list[Where] | None = None,
    memory: SiteMemory | None = None,
) -> list[ChunkSums]:
    """New messages of some chunks; without places none are kept."""
    with given.read(blocks, store) as sources:
        return [_pass(one, work, sources, places[n] if places else None, memory) for n, one in enumerate(chunks)]


def _pass(
    chunk: Chunk, work: PassWork, sources: list[np.ndarray], where: Where | None, memory: SiteMemory | None
) -> ChunkSums:
    part = open_part(chunk.path, ChunkPart)
    entries, K = _entries(part, work.offsets), part.rows.shape[1]
    if where is None or memory is None:
        messages = no_messages(0, K, work.R, "float64", False)
    else:
        messages = messages_at(where, part.weight, work.R, memory)
    n_rows, P, R = int(work.offsets[-1]), work.R * (work.R + 1) // 2, work.R
    none, left = np.zeros(0), iter(sources)
    sums = MessageSums(untouched((1, n_rows, P)), untouched((1, n_rows, R)), np.zeros((1, 2)), np.zeros(1), none)
    rows = [_rows(kind, {name: next(left) for name in names}, (n_rows, R)) for kind, names in work.rows]
    columns = ProductSlots(*(np.array(one) for one in work.columns))
    rule = _with_addresses(work, columns)
    kept = first_cavities(0, K, work.R)
    record = (work.modes, entries, columns, *rows, messages, kept, sums, work.noise, rule)
    work.kernel.found()(0, 1, *record, *work.scratch())
    found = [(sums.Lam[0, a:b].copy(), sums.eta[0, a:b].copy()) for a, b in chunk.rows[slice(*work.modes)]]
    versions: tuple[Version, ...] = ()
    if where is not None and memory is not None:
        to_noise = [K] if where.to_noise and work.modes[1] == K else []
        versions = written(where, messages, [*range(*work.modes), *to_noise], memory)
    return ChunkSums(found, sums.noise[0], float(sums.skipped[0]), versions)


def scale_chunks(
    chunks: list[Chunk], factor: np.ndarray, modes: list[int], places: list[Where], memory: SiteMemory, R: int
) -> list[tuple[Version, ...]]:
    """Multiply the messages of some chunks by the factors of their rows, (n_rows,), which are 1 but in these modes."""
    versions = []
    for chunk, where in zip(chunks, places, strict=True):
        part = open_part(chunk.path, ChunkPart)
        messages = messages_at(where, part.weight, R, memory)
        scale_messages(0, len(part.rows), np.array(factor), part.rows, messages.Lam, messages.eta)
        versions.append(written(where, messages, modes, memory))
    return versions


def untouched(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of which the system gives memory to those alone that are touched."""
    return np.zeros(shape)


def _entries(part: ChunkPart, offsets: np.ndarray) -> Entries:
    return Entries(
        rows=part.rows,
        y=part.y,
        weight=part.weight,
        chunk_start=np.array([0, len(part.rows)], dtype=np.int64),
        permutation=np.zeros(0, dtype=np.int32),
        offsets=np.array(offsets),
        known=part.known,
        theta=part.theta,
    )


def _rows(kind: type, fields: dict[str, np.ndarray], size: tuple[int, int]) -> Any:
    """A record of rows, whose fields that no kernel uses are zeros."""
    n, R = size
    if kind is not RowState:
        return kind(**fields)
    shapes = {"Lam": (n, R * (R + 1) // 2), "eta": (n, R), "mean": (n, R), "cov": (n, R * (R + 1) // 2), "good": (n,)}
    return RowState(**{name: fields[name] if name in fields else untouched(shape) for name, shape in shapes.items()})


def _with_addresses(work: PassWork, columns: ProductSlots) -> Any:
    """The rule with the addresses that kernels have in this process."""
    found: dict[str, Any] = {}
    for field, name in work.addresses.items():
        if field == "first":
            found[field] = first_order_address()
        elif field == "second":
            found[field] = second_order_address()
        elif field == "clamped":
            found[field] = clamped_address(columns)
        else:
            found[field] = address_of(name.found(), SIGNATURES[field])
    return work.rule._replace(cuts=np.array(work.rule.cuts), **found)


# Passes of methods that send messages, on the workers of a cluster: sums come back, messages stay in files.
#
# The chunks of the entries are those of one process, and their sums are added here in the same order, so bits are the
# same; there are `tensorcep.cp.model.entries.MAX_CHUNKS` of them at most, and fewer where rows have few entries each.

PASSES = (cep_chunks, averaged_chunks, closed_chunks, laplace_chunks)
# Fields of a rule that are addresses.
ADDRESSES = ("tilted", "loglik", "first", "second", "clamped")
NOWHERE = KernelName("", "")  # of parts of the pass itself


class Passing:
    """Passes over the entries of a problem, on workers.

    Parameters
    ----------
    cluster : Cluster
    folder : Path
        Of entries.
    shelf : Shelf
    rows : SentRows
    """

    def __init__(self, cluster: Cluster, folder: Path, shelf: Shelf, rows: SentRows):
        self._cluster, self._folder, self._shelf, self._rows = cluster, folder, shelf, rows
        self._problem: Problem | None = None
        self._chunks: tuple[Any, list[Chunk]] | None = None
        self._memory: tuple[str, Held] | None = None

    def begin(self, problem: Problem) -> None:
        """Passes are over the entries of this problem from now on."""
        self._problem = problem

    def close(self) -> None:
        """Let workers forget messages."""
        self._memory = None

    def run(self, kernel: Any, record: tuple[Any, ...], scratch: Any) -> bool:
        """Do what a kernel does with these arguments, after the blocks, if it is a matter of messages on workers."""
        if kernel is send_first:
            first, _, messages = record
            self._shelf.add(messages.Lam, first)
        elif self._problem is None:
            return False
        elif kernel is scale_messages and self._shelf.get(record[2]) is not None:
            self._scale(record[0], record[2], record[3].shape[2], self._problem.weighted_entries)
        elif any(kernel is one for one in PASSES):
            self._pass(kernel, record, scratch, self._problem.likelihood)
        else:
            return False
        return True

    def _pass(self, kernel: Any, record: tuple[Any, ...], scratch: Any, likelihood: Likelihood) -> None:
        (modes, entries, columns, *rows), (messages, _, sums, noise, rule) = record[:-5], record[-5:]
        chunks, stored = self._chunks_of(entries), self._shelf.get(messages.Lam)
        fields, every = _fields(kernel, rule), range(len(entries.offsets) - 1)
        read = Sources((), {})
        for n, (own, names) in enumerate(zip(rows, fields, strict=True)):
            for name in names:
                self._rows.look(f"{n} {name}", getattr(own, name))
                read += self._rows.source(f"{n} {name}", every)
        work = PassWork(
            kernel=_named(kernel),
            modes=modes,
            offsets=entries.offsets,
            columns=columns,
            rows=tuple((type(own), names) for own, names in zip(rows, fields, strict=True)),
            R=sums.eta.shape[2],
            noise=noise,
            rule=rule._replace(**{name: 0 for name in ADDRESSES if hasattr(rule, name)}),
            addresses=_addresses(rule, likelihood),
            scratch=scratch.make if isinstance(scratch, Rooms) else scratch,
        )
        shares = shared(chunks, self._cluster.turns())

        def call(i: int, given: RowInputs, blocks: list[Held], store: Held) -> Call:
            return shares[i], work, given, blocks, store, *self._where(stored, shares[i])

        what = "messages-" + "-".join(map(str, range(*modes)))
        found: list[ChunkSums] = [
            one for told in self._rows.run(pass_chunks, read, len(shares), call, what) for one in told
        ]
        for c, (chunk, one) in enumerate(zip(chunks, found, strict=True)):
            self._take(c, chunk, modes, entries.offsets, one, sums)
        if stored is not None:
            moved = stored._replace(latest=stored.latest + 1, versions=tuple(one.versions for one in found))
            self._shelf.move(messages.Lam, moved)

    def _take(
        self, c: int, chunk: Chunk, modes: tuple[int, int], offsets: np.ndarray, found: ChunkSums, sums: MessageSums
    ) -> None:
        """What the pass over a chunk gave, into the sums."""
        mine = slice(int(offsets[modes[0]]), int(offsets[modes[1]]))
        for whole, parts in zip((sums.Lam[c], sums.eta[c]), zip(*found.sums, strict=True), strict=True):
            whole[mine] = 0.0
            for (a, b), part in zip(chunk.rows[slice(*modes)], parts, strict=True):
                whole[a:b] = part
                self._cluster.received += part.nbytes
        sums.noise[c], sums.skipped[c] = found.noise, found.skipped

    def _scale(self, factor: np.ndarray, Lam: np.ndarray, R: int, entries: Entries) -> None:
        """Scale messages that workers have."""
        chunks, stored = self._chunks_of(entries), self._shelf.get(Lam)
        if stored is None:
            return
        bounds = zip(entries.offsets[:-1].tolist(), entries.offsets[1:].tolist(), strict=True)
        modes = [k for k, (a, b) in enumerate(bounds) if (factor[a:b] != 1.0).any()]
        sent = self._cluster.put(factor)
        shares = shared(chunks, self._cluster.turns())
        calls = [(share, sent, modes, *self._where(stored, share), R) for share in shares]
        told = self._cluster.run(scale_chunks, calls, "scaled-messages", where=self._cluster.turns(len(shares)))
        versions = tuple(own for one in told for own in one.value)
        self._shelf.move(Lam, stored._replace(latest=stored.latest + 1, versions=versions))

    def _where(self, stored: Stored | None, chunks: list[Chunk]) -> tuple[list[Where] | None, Held | None]:
        if stored is None:
            return None, None
        if self._memory is None or self._memory[0] != stored.folder:
            self._memory = (stored.folder, self._cluster.put(SiteMemory()))
        none = (Version(),) * (len(chunks[0].rows) + 1)
        same = (stored.latest + 1, stored.first, stored.dtype)
        versions = [stored.versions[one.number] if stored.versions else none for one in chunks]
        places = [Where(stored.folder, one.number, own, *same) for one, own in zip(chunks, versions, strict=True)]
        return places, self._memory[1]

    def _chunks_of(self, entries: Entries) -> list[Chunk]:
        """The chunks of the entries, which are written when they are first needed."""
        known = self._chunks
        if known is not None and all(a is b for a, b in zip(known[0], entries, strict=True)):
            return known[1]
        bounds = zip(entries.chunk_start[:-1].tolist(), entries.chunk_start[1:].tolist(), strict=True)
        chunks = [self._written(entries, c, a, b) for c, (a, b) in enumerate(bounds)]
        self._chunks = (entries, chunks)
        return chunks

    def _written(self, entries: Entries, number: int, first: int, last: int) -> Chunk:
        part = ChunkPart(*(getattr(entries, name)[first:last] for name in ChunkPart._fields))
        used, touched = part.weight > 0.0, []
        for k, offset in enumerate(entries.offsets[:-1].tolist()):
            rows = part.rows[:, k][used]
            touched.append((int(rows.min()), int(rows.max()) + 1) if len(rows) else (offset, offset))
        return Chunk(write_part(self._folder, part), number, tuple(touched))


def _named(kernel: Any) -> KernelName:
    name = name_of_kernel(kernel)
    if name is None:
        raise ValueError(f"workers cannot find the kernel {kernel!r} by its name; fit it in one process.")
    return name


def _fields(kernel: Any, rule: Any) -> tuple[tuple[str, ...], ...]:
    """The fields of every record of rows that a pass uses."""
    if kernel is laplace_chunks:
        return (("Lam", "eta", "mean"),)
    if kernel is cep_chunks:
        return (("Lam", "eta", "mean", "cov") if rule.from_posterior else ("Lam", "eta"),)
    if kernel is closed_chunks:
        return (Factors._fields,)
    return ("mean", "cov"), ("Lam", "eta", "good"), ("Lam", "eta")


def _addresses(rule: Any, likelihood: Likelihood) -> dict[str, KernelName]:
    """The kernels behind the addresses of a rule."""
    used = [name for name in ADDRESSES if getattr(rule, name, 0)]
    return {name: _named(getattr(likelihood, name)) if name in SIGNATURES else NOWHERE for name in used}


def can_be_passed(likelihood: Likelihood) -> bool:
    """Whether workers find the kernels of a likelihood."""
    kernels = (likelihood.tilted, likelihood.loglik)
    return all(kernel is None or name_of_kernel(kernel) is not None for kernel in kernels)
