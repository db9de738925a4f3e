"""Batches of files with one more column of numbers: exposures of counts, or numbers of trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.entries.batch import Batch
from tensorcep.entries.io.batches import read_batches
from tensorcep.entries.io.lines import STDIN


def batches_with_extents(
    paths: Any, extent: str, batch_size: int = 1000, *, modes: Any = None, value: Any = None, **reading: Any
) -> Iterator[Batch]:
    """As `read_batches`, of csv and parquet files whose column `extent` holds a number of each entry.

    The files are read twice side by side, so they are no pipe, and a malformed line is refused.

    Raises
    ------
    ValueError
        Where `read_batches` does, or if the modes or the value are not named, or lines are to be set aside.
    """
    if modes is None or value is None:
        fail_value(f"the column {extent!r} beside the value needs modes= and value= of files; name them.")
    if extent == value or extent in modes:
        fail_value(f"the column {extent!r} is a mode or the value already; name another one.")
    if STDIN in ([paths] if isinstance(paths, str) else list(paths)):
        fail_value(f"the column {extent!r} beside the value is read apart from it, which '-' cannot be; give a file.")
    if "bad_line" in reading:
        fail_value(f"malformed lines cannot be set aside with the column {extent!r} beside the value; mend them.")
    each = (read_batches(paths, batch_size, modes=modes, value=column, **reading) for column in (value, extent))
    for batch, beside in zip(*each, strict=True):
        if len(batch.values) != len(beside.values) or not np.array_equal(batch.coords, beside.coords):
            fail_value(f"the column {extent!r} has gaps; give a number in every line.")
        yield batch._replace(extents=beside.values, column=extent)
