"""Files of entries: .tns, csv, parquet, npz and MatrixMarket, read and written, whole or in batches."""

from __future__ import annotations

from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.batches import batches_with_extents, read_batches
from tensorcep.entries.io.files import columns_of, read_cells, read_tensor, value_name_of, write_tensor
from tensorcep.entries.io.formats import FORMATS, format_of
from tensorcep.entries.io.layout import LAST, Reading

__all__ = [
    "FORMATS",
    "LAST",
    "Batch",
    "Position",
    "Reading",
    "batches_with_extents",
    "columns_of",
    "format_of",
    "read_batches",
    "read_cells",
    "read_tensor",
    "value_name_of",
    "write_tensor",
]
