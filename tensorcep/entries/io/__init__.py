"""Files of entries: .tns, csv, parquet, npz and MatrixMarket, read and written, whole or some lines at a time."""

from __future__ import annotations

from tensorcep.entries.io.chunks import Batch as Batch
from tensorcep.entries.io.chunks import Files as Files
from tensorcep.entries.io.chunks import read_batches as read_batches
from tensorcep.entries.io.files import read_table as read_table
from tensorcep.entries.io.files import read_tensor as read_tensor
from tensorcep.entries.io.files import write_tensor as write_tensor
from tensorcep.entries.io.schema import Position as Position
from tensorcep.entries.io.schema import Schema as Schema
