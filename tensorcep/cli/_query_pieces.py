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
from tensorcep.core.checks import check_file, fail_value, optional_module, reason_of
from tensorcep.entries.io import format_of
from tensorcep.entries.io.columns import files_of
from tensorcep.entries.io.files import cells_layout
from tensorcep.entries.io.lines import open_binary, skip_lines
from tensorcep.entries.io.parquet import frames_of_parquet
from tensorcep.entries.io.text import general_dialect

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
        frames = (frame for frame, *_ in frames_of_parquet([file], None, LINES))
        for frame in frames if kind == "parquet" else _csv_frames(file, args):
            frame, extent = taken_extents(file, frame, args)
            extent = {name: numbers_of(file, column, args.decimal) for name, column in extent.items()}
            columns, _ = chosen_cells(file, list(frame.columns), args, model, False)
            cells = frame[columns].reset_index(drop=True)
            yield QueriedCells(matched_cells(file, cells, model, labelled, args.index_base), None, cells, extent)


def _is_named(path: str) -> bool:
    return not os.path.isdir(path) and (os.path.exists(path) or not set(path) & set("*?["))


def _csv_frames(path: str, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """Some lines of a csv file at a time, all columns as text."""
    layout = cells_layout(path, path, reading_of(args))
    try:
        with open_binary(path, coding=layout.coding) as (handle, *_):
            skip_lines(handle, layout.skip)
            how = {**general_dialect(layout), "na_filter": False}
            for frame in pd.read_csv(handle, header=None, dtype=str, chunksize=LINES, **how):
                if frame.shape[1] != len(layout.names):
                    fail_value(f"'{path}' has {frame.shape[1]} fields where {len(layout.names)} are expected; mend it.")
                yield frame.set_axis(list(layout.names), axis=1)
    except (pd.errors.ParserError, UnicodeError) as error:
        fail_value(f"'{path}' cannot be read ({reason_of(error)}); mend it.")


def write_parquet(handle: BinaryIO, tables: Iterator[pd.DataFrame]) -> None:
    """Write tables of the same columns one after the other, of the types of the first."""
    arrow = optional_module("pyarrow", "writing parquet files", "'tensorcep[parquet]'")
    parquet = optional_module("pyarrow.parquet", "writing parquet files", "'tensorcep[parquet]'")
    first = arrow.Table.from_pandas(next(tables), preserve_index=False)
    with parquet.ParquetWriter(handle, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(arrow.Table.from_pandas(table, schema=first.schema, preserve_index=False))
