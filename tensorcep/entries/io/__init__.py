"""Files of entries: .tns, csv, parquet, npz and MatrixMarket, read and written, whole or some lines at a time."""

from __future__ import annotations

from tensorcep.entries.io.chunks import Batch as Batch
from tensorcep.entries.io.chunks import Files as Files
from tensorcep.entries.io.chunks import are_files as are_files
from tensorcep.entries.io.chunks import files_of as files_of
from tensorcep.entries.io.chunks import read_batches as read_batches
from tensorcep.entries.io.chunks import read_chunks as read_chunks
from tensorcep.entries.io.chunks import read_columns as read_columns
from tensorcep.entries.io.files import columns_of as columns_of
from tensorcep.entries.io.files import escaped as escaped
from tensorcep.entries.io.files import read_entries as read_entries
from tensorcep.entries.io.files import read_table as read_table
from tensorcep.entries.io.files import read_tables as read_tables
from tensorcep.entries.io.files import read_tensor as read_tensor
from tensorcep.entries.io.files import separator_of as separator_of
from tensorcep.entries.io.files import text_file as text_file
from tensorcep.entries.io.files import value_name_of as value_name_of
from tensorcep.entries.io.files import write_tensor as write_tensor
from tensorcep.entries.io.lines import comma_hint as comma_hint
from tensorcep.entries.io.lines import number_in as number_in
from tensorcep.entries.io.lines import open_lines as open_lines
from tensorcep.entries.io.schema import LAST as LAST
from tensorcep.entries.io.schema import MISSING as MISSING
from tensorcep.entries.io.schema import Position as Position
from tensorcep.entries.io.schema import Schema as Schema
from tensorcep.entries.io.schema import chosen_columns as chosen_columns
from tensorcep.entries.io.schema import format_of as format_of
