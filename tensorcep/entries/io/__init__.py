"""Files of entries: .tns, csv, parquet and npz, read and written, whole or in batches."""

from __future__ import annotations

from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.batches import read_batches
from tensorcep.entries.io.extents import batches_with_extents
from tensorcep.entries.io.layout import LAST, format_of
from tensorcep.entries.io.read import read_cells, read_tensor
from tensorcep.entries.io.write import write_tensor

__all__ = [
    "LAST",
    "Batch",
    "Position",
    "batches_with_extents",
    "format_of",
    "read_batches",
    "read_cells",
    "read_tensor",
    "write_tensor",
]
