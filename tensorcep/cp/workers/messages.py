"""What workers do for methods that pass messages: a pass over a chunk of the entries, whose messages they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.jit import LOGLIK_SIGNATURE, TILTED_SIGNATURE, address_of
from tensorcep.cp.cep.method import clamped_address, first_order_address, second_order_address
from tensorcep.cp.messages.columns import Columns
from tensorcep.cp.messages.kernels import scale_messages
from tensorcep.cp.messages.sent import Sums, no_messages
from tensorcep.cp.messages.state import first_cavities
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.entrywise import KernelName
from tensorcep.cp.workers.kept import Memory, Version, Where, messages_at, written
from tensorcep.cp.workers.parts import open_part
from tensorcep.cp.workers.store import Store
from tensorcep.cp.workers.tasks import Given
from tensorcep.kernels.nearest import NARROW_SIGNATURE

SIGNATURES = {"tilted": TILTED_SIGNATURE, "loglik": LOGLIK_SIGNATURE, "narrow": NARROW_SIGNATURE}


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


class Work(NamedTuple):
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
    columns: Columns
    rows: tuple[tuple[type, tuple[str, ...]], ...]
    R: int
    noise: tuple[float, float]
    rule: Any
    addresses: dict[str, KernelName]
    scratch: Callable[[], tuple[Any, ...]]


class Found(NamedTuple):
    """Of a chunk: sums of messages to its rows in the modes of the pass, (Lam, eta) each, and what else a pass tells.

    `versions` are those of the messages now.
    """

    sums: list[tuple[np.ndarray, np.ndarray]]
    noise: np.ndarray
    skipped: float
    versions: tuple[Version, ...]


def pass_chunks(
    chunks: list[Chunk],
    work: Work,
    given: Given,
    blocks: list[Any],
    store: Store,
    places: list[Where] | None = None,
    memory: Memory | None = None,
) -> list[Found]:
    """New messages of some chunks; without places none are kept."""
    with given.read(blocks, store) as sources:
        return [_pass(one, work, sources, places[n] if places else None, memory) for n, one in enumerate(chunks)]


def _pass(chunk: Chunk, work: Work, sources: list[np.ndarray], where: Where | None, memory: Memory | None) -> Found:
    part = open_part(chunk.path, ChunkPart)
    entries, K = _entries(part, work.offsets), part.rows.shape[1]
    if where is None or memory is None:
        messages = no_messages(0, K, work.R, "float64", False)
    else:
        messages = messages_at(where, part.weight, work.R, memory)
    n_rows, P, R = int(work.offsets[-1]), work.R * (work.R + 1) // 2, work.R
    none, left = np.zeros(0), iter(sources)
    sums = Sums(untouched((1, n_rows, P)), untouched((1, n_rows, R)), np.zeros((1, 2)), np.zeros(1), none)
    rows = [_rows(kind, {name: next(left) for name in names}, (n_rows, R)) for kind, names in work.rows]
    columns = Columns(*(np.array(one) for one in work.columns))
    rule = _with_addresses(work, columns)
    kept = first_cavities(0, K, work.R)
    record = (work.modes, entries, columns, *rows, messages, kept, sums, work.noise, rule)
    work.kernel.found()(0, 1, *record, *work.scratch())
    found = [(sums.Lam[0, a:b].copy(), sums.eta[0, a:b].copy()) for a, b in chunk.rows[slice(*work.modes)]]
    versions: tuple[Version, ...] = ()
    if where is not None and memory is not None:
        to_noise = [K] if where.to_noise and work.modes[1] == K else []
        versions = written(where, messages, [*range(*work.modes), *to_noise], memory)
    return Found(found, sums.noise[0], float(sums.skipped[0]), versions)


def scale_chunks(
    chunks: list[Chunk], factor: np.ndarray, modes: list[int], places: list[Where], memory: Memory, R: int
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


def _with_addresses(work: Work, columns: Columns) -> Any:
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
