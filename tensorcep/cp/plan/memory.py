"""Whether a fit has room in memory: every method says how many bytes it is going to take, of sizes alone.

What "auto" stands for keeps within a budget that follows from the number of entries, never from the machine, so that
the same data give the same model everywhere. Only a refusal looks at the machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensorcep.core.arrays import memory_of_machine
from tensorcep.core.checks import fail_value
from tensorcep.cp.model.memmap import PIECE, SORTING_BYTES
from tensorcep.cp.model.subsets import MOST_SAMPLED
from tensorcep.cp.settings import LEAST_DRAWS, VMP, Memory, Sampler, Size

# Bytes for a fit of few entries, for each entry, and at most: 0.9 GB at 100,000 entries, half of a machine of 24 GB.
LEAST, PER_ENTRY, MOST = 0.5e9, 4_000.0, 12e9
# Bytes of the program before a fit, numba and pandas included.
PROGRAM = 300_000_000


def budget(n_entries: int, limit: float = float("inf")) -> float:
    """The bytes that "auto" keeps within, which are no more than the user allows."""
    return min(MOST, LEAST + PER_ENTRY * n_entries, limit)


def within(size: Size, limit: float | None, stored: bool) -> Size:
    """The size of a fit that may take so many bytes; where entries lie on scratch, in memory are those of a sample."""
    sorting = SORTING_BYTES * min(size.n_entries, PIECE) if stored else 0
    if stored:
        size = size._replace(n_entries=min(size.n_entries, MOST_SAMPLED), n_stored=size.n_entries)
    return size if limit is None else size._replace(beside=PROGRAM + sorting, limit=limit)


def peak(settings: Any, size: Size, max_iter: int) -> Memory:
    """The bytes of a fit, of settings without "auto"; its spectral start comes before all else."""
    entries, rows, draws = _of_run(settings, size, max_iter)
    entries = size.packed_entries + max(entries, size.spectral - rows - draws)
    return Memory(size.beside + entries, rows, draws)


def _of_run(settings: Any, size: Size, max_iter: int) -> Memory:
    """The bytes of a run beside its entries."""
    # a sampler goes with mean-field fits, one of them beside its draws before these are copied
    entries, rows, draws = settings.bytes_at_peak(size, max_iter)
    if not isinstance(settings, Sampler):
        return Memory(entries, rows, draws)
    quick = VMP(n_starts=1).bytes_at_peak(size, max_iter)
    return Memory(max(entries, size.packed_entries) + quick.entries, max(rows, quick.rows - draws // 2), draws)


def room_for_draws(settings: Any, size: Size) -> float:
    """The draws of every chain in double precision that the budget has room for; infinitely many without chains."""
    if not isinstance(settings, Sampler):
        return float("inf")
    settings = replace(settings, burn_in=0, thin=1, dtype="float64")
    each, (entries, rows, _) = settings.draws(size, 1), _of_run(settings, size, 0)
    room = budget(size.n_entries, size.limit) - size.beside - size.packed_entries - entries
    return max(0.0, min(room - rows, 0.5 * (room - settings.bytes_at_peak(size, 0).rows))) / each


def fits(settings: Any, size: Size) -> bool:
    """Whether the budget has room for a fit, of a sampler for the least number of draws in single precision."""
    if isinstance(settings, Sampler) and 2.0 * room_for_draws(settings, size) < LEAST_DRAWS:
        return False
    sweeps = {"burn_in": 0, "thin": 1, "dtype": "float32"} if isinstance(settings, Sampler) else {}
    return peak(replace(settings, **sweeps), size, 0).total <= budget(size.n_entries, size.limit)


def check_memory(settings: Any, size: Size, max_iter: int) -> None:
    """Refuse a fit that takes more than the machine has, with both numbers, and what would take less."""
    needed, there = peak(settings, size, max_iter), memory_of_machine()
    if needed.total > size.limit:
        fail_value(
            f"the fit of {size.n_rows} rows in {size.R} columns by {settings.name!r} takes about "
            f"{needed.total / 1e9:.3g} GB of memory, of which memory= allows {size.limit / 1e9:.3g} GB; allow more, or "
            "set a lower rank."
        )
    if there is None or needed.total <= there:
        return
    what = "a lower rank" if needed.rows > needed.entries else "method='vmp' or CEP(messages='averaged')"
    if needed.draws > max(needed.rows, needed.entries):
        what = "a larger thin, or dtype='float32', in the method's settings, or a lower rank"
    fail_value(
        f"the fit of {size.n_entries} entries and {size.n_rows} rows in {size.R} columns by {settings.name!r} takes "
        f"about {needed.total / 1e9:.3g} GB, and this machine has {there / 1e9:.3g} GB; set {what}."
    )
