"""Cells to predict from files of any size, some lines at a time, and predictions as parquet."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import pandas as pd

from tensorcep.cli._command import reading_of
from tensorcep.cli._extents import taken_extents
from tensorcep.cli._queries import QueriedCells, chosen_cells, labelled_modes, matched_cells, numbers_of, read_queries
from tensorcep.core.checks import check_file, optional_module
from tensorcep.entries.io import files_of, format_of, read_tables

# Lines that are predicted at a time; a file that is no larger is read whole, as one column tells most of its labels.
LINES, WHOLE = 1 << 17, 1 << 24


def query_pieces(path: str, args: argparse.Namespace, model: Any) -> Iterator[QueriedCells]:
    """The cells of a file, a folder or a pattern, some at a time.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or it cannot be read.
    """
    for file in [path] if _is_named(path) else files_of(path):
        kind = format_of(check_file(file), args.format)
        large = os.path.isfile(file) and os.path.getsize(file) > WHOLE
        if not large or kind not in ("csv", "parquet"):
            yield read_queries(file, args, model, with_values=False)
            continue
        labelled = labelled_modes(args, model)
        for frame in read_tables(file, reading_of(args), lines=LINES):
            frame, extent = taken_extents(file, frame, args)
            extent = {name: numbers_of(file, column, args.decimal) for name, column in extent.items()}
            columns, _ = chosen_cells(file, list(frame.columns), args, model, False)
            cells = frame[columns].reset_index(drop=True)
            yield QueriedCells(matched_cells(file, cells, model, labelled, args.index_base), None, cells, extent)


def _is_named(path: str) -> bool:
    return not os.path.isdir(path) and (os.path.exists(path) or not set(path) & set("*?["))


def write_parquet(handle: BinaryIO, tables: Iterator[pd.DataFrame]) -> None:
    """Write tables of the same columns one after the other, of the types of the first."""
    arrow = optional_module("pyarrow", "writing parquet files", "'tensorcep[parquet]'")
    parquet = optional_module("pyarrow.parquet", "writing parquet files", "'tensorcep[parquet]'")
    first = arrow.Table.from_pandas(next(tables), preserve_index=False)
    with parquet.ParquetWriter(handle, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(arrow.Table.from_pandas(table, schema=first.schema, preserve_index=False))
