"""Files of entries: .tns, csv, parquet, npz and MatrixMarket, read and written, whole or some lines at a time."""

from __future__ import annotations

from tensorcep.entries.io.chunks import Batch, Files, read_batches
from tensorcep.entries.io.files import read_table, read_tensor, write_tensor
from tensorcep.entries.io.schema import Position, Schema

__all__ = ["Batch", "Files", "Position", "Schema", "read_batches", "read_table", "read_tensor", "write_tensor"]
