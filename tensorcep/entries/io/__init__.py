"""Files of entries: .tns, csv, parquet, npz and MatrixMarket, read and written, whole or some lines at a time."""

from __future__ import annotations

from tensorcep.entries.batch import Batch, Chunk, Position
from tensorcep.entries.io.chunks import Files, are_files, files_of, read_batches, read_chunks, read_columns
from tensorcep.entries.io.files import (
    columns_of,
    escaped,
    read_entries,
    read_table,
    read_tables,
    read_tensor,
    separator_of,
    text_file,
    value_name_of,
    write_tensor,
)
from tensorcep.entries.io.lines import STDIN, comma_hint, number_in, open_lines, rows
from tensorcep.entries.io.schema import FORMATS, LAST, MISSING, Schema, chosen_columns, format_of

__all__ = [
    "FORMATS",
    "LAST",
    "MISSING",
    "STDIN",
    "Batch",
    "Chunk",
    "Files",
    "Position",
    "Schema",
    "are_files",
    "chosen_columns",
    "columns_of",
    "comma_hint",
    "escaped",
    "files_of",
    "format_of",
    "number_in",
    "open_lines",
    "read_batches",
    "read_chunks",
    "read_columns",
    "read_entries",
    "read_table",
    "read_tables",
    "read_tensor",
    "rows",
    "separator_of",
    "text_file",
    "value_name_of",
    "write_tensor",
]
