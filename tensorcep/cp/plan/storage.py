"""Where the entries of a fit lie, in memory or on scratch; fits to files; and fits that begin with some of the entries.

The bits of a fit on scratch are those of the same fit in memory, but for starts: of more entries than a million on
scratch, a start is found from a sample of so many, which is chosen by a hash of their cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import Scratch, bytes_of
from tensorcep.core.checks import check_shape, fail_value
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.methods import proposes_rows
from tensorcep.cp.model.memmap import StoredColumns, scratch_bytes, spill
from tensorcep.cp.plan.auto import check_storable, choose, with_numbers
from tensorcep.cp.plan.memory import peak, room_for_draws, within
from tensorcep.cp.plan.spec import FitSpec
from tensorcep.cp.settings import checked_method, size_of
from tensorcep.entries.coo import merge_duplicates
from tensorcep.entries.io.chunks import Files, GrowingInMemory, read_columns
from tensorcep.entries.io.schema import LAST, Schema
from tensorcep.entries.tables import UNSAID


class Place(NamedTuple):
    """Scratch, if there is some, and how many bytes of memory a fit may take, if that is said."""

    room: Scratch | None
    limit: float | None

    def end(self) -> None:
        """Let go of what several runs have read."""
        if self.room is not None:
            self.room.tables.clear()


def checked_place(spec: FitSpec, scratch: Any, memory: Any, others: dict[str, Any]) -> Place:
    """What `scratch` and `memory` of a fit say, refused beside what does not go with them."""
    place = Place(None if scratch is None else Scratch(scratch), None if memory is None else bytes_of("memory", memory))
    if place.room is None and place.limit is None:
        return place
    check_alone("scratch=" if scratch is not None else "memory=", others)
    if place.room is not None:
        name, settings = checked_method(spec.method)
        noise = None if spec.target.noise == "one" else spec.target.noise
        check_storable(settings or name, noise, [spec.asked, *spec.target.likelihoods()])
    return place


def check_alone(name: str, others: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    for other, value in others.items():
        if value is not None:
            fail_value(f"{name} does not go with {other}=; got both; leave one of them out.")


def entries_of_files(
    spec: FitSpec, source: Any, modes: Any, value: Any, place: Place
) -> tuple[Entries, dict[str, Any]]:
    """The entries in files, on scratch where there is some, and facts of how they are coded."""
    files, room = source, place.room
    if not isinstance(source, Files):
        files = Files(source, Schema(modes=modes, value=LAST if value is UNSAID else value))
    found = read_columns(files, GrowingInMemory if room is None else room.growing)
    shape = found.shape
    if spec.shape is not None:
        shape = check_shape(spec.shape, len(shape))
        if not all(n == m if own else n >= m for own, n, m in zip(found.labels, shape, found.shape, strict=True)):
            fail_value(f"shape must hold the rows of the files, {found.shape}; got {shape}.")
    if room is not None:
        coding = spec.target.code_columns(found.values)
        return (StoredColumns(found.columns, files.distinct), found.values, shape, found.labels), coding  # type: ignore[return-value]
    cells = np.stack(found.columns, axis=1).astype(np.int64)
    if files.distinct:
        merge_duplicates(cells, found.values, shape, "error")
    (coords, values, *_), coding = spec.target.entries(cells, found.values, spec.shape)
    return (coords, values, shape, found.labels), coding


def laid(spec: FitSpec, entries: Entries, place: Place) -> Entries:
    """The entries where they are to lie in the fit: few counts, which chains read by entry, in memory."""
    coords: Any
    coords, values, shape, labels = entries
    n, stored = len(values), isinstance(coords, StoredColumns)
    few = place.room is not None and proposes_rows(choose(spec, n, shape, False).method, spec.asked)
    needed = 0.0 if place.limit is None else _bytes_in_memory(spec, n, shape, place.limit)
    if few or (place.limit is not None and needed <= place.limit):
        if not stored:
            return entries
        cells, values = np.stack(coords.columns, axis=1).astype(np.int64), np.array(values)
        if coords.distinct:
            merge_duplicates(cells, values, shape, "error")
        return cells, values, shape, labels
    if place.limit is not None and place.room is None:
        fail_value(
            f"the fit of {n} entries and {sum(shape)} rows takes about {needed / 1e9:.3g} GB in memory, of which "
            f"memory= allows {place.limit / 1e9:.3g} GB; allow more, or give a folder for files as scratch=."
        )
    if place.room is None:
        return entries
    place.room.check_free(scratch_bytes(n, len(shape), not spec.asked.is_gaussian))
    columns, values = (coords, values) if stored else spill(coords, values, place.room)
    return columns, values, shape, labels  # type: ignore[return-value]


def _bytes_in_memory(spec: FitSpec, n: int, shape: tuple[int, ...], limit: float) -> float:
    """The bytes of the fit that memory would see, at its peak."""
    chosen = choose(spec, n, shape, False, limit=limit)
    size = within(size_of(n, shape, chosen.parts), limit, False)
    learned, likelihood = chosen.prior_name == "learned", spec.asked.name
    most = room_for_draws(chosen.settings, size)
    settings = with_numbers(chosen.settings, likelihood, learned, chosen.max_iter, most)
    return float(peak(settings, size, chosen.max_iter).total)
