"""Passes of methods that send messages, on the workers of a cluster: sums come back, messages stay in files.

The chunks of the entries are those of one process, and their sums are added here in the same order, so bits are the
same; there are `tensorcep.cp.model.entries.MAX_CHUNKS` of them at most, and fewer where rows have few entries each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tensorcep.core.cluster import Cluster
from tensorcep.core.executor import Rooms
from tensorcep.core.held import Call, Held
from tensorcep.cp.cep.averaged import averaged_chunks
from tensorcep.cp.cep.closed import Factors, closed_chunks
from tensorcep.cp.cep.sweep import cep_chunks
from tensorcep.cp.laplace.sweep import laplace_chunks
from tensorcep.cp.messages.kernels import scale_messages
from tensorcep.cp.messages.sent import Sums, send_first
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.workers.entrywise import KernelName, name_of_kernel
from tensorcep.cp.workers.kept import Memory, Version, Where
from tensorcep.cp.workers.messages import Chunk, ChunkPart, Found, Work, pass_chunks, scale_chunks
from tensorcep.cp.workers.parts import shared, write_part
from tensorcep.cp.workers.sent import SentRows, Sources
from tensorcep.cp.workers.shelf import Shelf, Stored
from tensorcep.cp.workers.tasks import Given
from tensorcep.kernels.nearest import narrow
from tensorcep.likelihoods.record import Likelihood

PASSES = (cep_chunks, averaged_chunks, closed_chunks, laplace_chunks)
# Fields of a rule that are addresses.
ADDRESSES = ("tilted", "loglik", "narrow", "first", "second", "clamped")
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
        work = Work(
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

        def call(i: int, given: Given, blocks: list[Held], store: Held) -> Call:
            return shares[i], work, given, blocks, store, *self._where(stored, shares[i])

        what = "messages-" + "-".join(map(str, range(*modes)))
        found: list[Found] = [
            one for told in self._rows.run(pass_chunks, read, len(shares), call, what) for one in told
        ]
        for c, (chunk, one) in enumerate(zip(chunks, found, strict=True)):
            self._take(c, chunk, modes, entries.offsets, one, sums)
        if stored is not None:
            moved = stored._replace(latest=stored.latest + 1, versions=tuple(one.versions for one in found))
            self._shelf.move(messages.Lam, moved)

    def _take(
        self, c: int, chunk: Chunk, modes: tuple[int, int], offsets: np.ndarray, found: Found, sums: Sums
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
            self._memory = (stored.folder, self._cluster.put(Memory()))
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
    kernels = {name: getattr(likelihood, name) for name in ("tilted", "loglik")} | {"narrow": narrow}
    used = [name for name in ADDRESSES if getattr(rule, name, 0)]
    return {name: _named(kernels[name]) if name in kernels else NOWHERE for name in used}


def can_be_passed(likelihood: Likelihood) -> bool:
    """Whether workers find the kernels of a likelihood."""
    kernels = (likelihood.tilted, likelihood.loglik)
    return all(kernel is None or name_of_kernel(kernel) is not None for kernel in kernels)
