"""`tensorcep split`: hold entries out."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import (
    FILE_KINDS,
    Command,
    add_data_options,
    add_safe_csv,
    add_talk_options,
    check_output,
    output,
    read_data,
    reading_of,
    show,
    shows_progress,
)
from tensorcep.core.checks import check_columns, check_fraction, check_int, fail_value

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = """\
Write a part of the entries of IN to TEST and the others to TRAIN. What is held out says --by:

  entry   entries at random
  time    those of the last times: --times names the mode or column; entries of one time stay together
  row     some entries of each row of --mode, such as each user; the last ones where --times says when, or random ones;
          a row keeps at least one entry to train on
  group   rows of --mode with all their entries

--test-size is a share (of entries; of group, of rows), or a whole number: of entries, times, entries of each row, rows.
Files of csv and parquet keep their header, all their columns and the order of their lines, those of csv also their
separator, if it is a single character."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="IN", help=f"entries in {FILE_KINDS}")
    parser.add_argument("train", metavar="TRAIN", help="file for the entries to fit")
    parser.add_argument("test", metavar="TEST", help="file for the entries held out")
    parser.add_argument("--by", choices=("entry", "time", "row", "group"), default="entry", help="default: entry")
    parser.add_argument("--mode", help="of row and group: name of the mode (without names: its position from 0)")
    parser.add_argument("--times", metavar="COLUMN", help="of time and row: mode or column that says when")
    parser.add_argument(
        "--test-size",
        type=_share_or_number,
        default=0.2,
        metavar="S",
        help="share that is held out, or a whole number (default: 0.2)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random choice (default: 0)")
    add_safe_csv(parser)
    add_data_options(parser)
    add_talk_options(parser)


def _share_or_number(text: str) -> float | int:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a share or a whole number is expected; got {text!r}") from None


def run(args: argparse.Namespace) -> None:
    from tensorcep.entries.io import write_tensor
    from tensorcep.entries.splitting import held_out, way_of

    if isinstance(args.test_size, int):
        check_int("--test-size", args.test_size)
    else:
        check_fraction("--test-size", args.test_size)
    check_output(args.train, args.data)
    check_output(args.test, args.data, args.train)
    table = _table(args)
    # Lines are not merged: what is bought again later is held out, too.
    again = table is not None and args.by != "entry" and not args.count
    how = argparse.Namespace(**{**vars(args), "duplicates": "last" if again else args.duplicates})
    tensor = read_data(args.data, how, shows_progress(args))
    if tensor.nnz < 2:
        fail_value(f"'{args.data}' must hold at least two entries to be split; got {tensor.nnz}.")
    if table is not None and args.by == "entry" and len(table) != tensor.nnz:
        table = None

    def column_of(name: Any) -> Any:
        if name is None or table is None:
            return (tensor.values if table is None else table.index) if name is None else tensor._column(_mode(name))
        named = dict(zip([str(column).strip() for column in table.columns], table.columns, strict=True))
        check_columns(list(named), [name], f"'{args.data}'")
        return table[named[name]]

    n = tensor.nnz if table is None else len(table)
    parts = held_out(way_of(args.by, args.mode, args.times, column_of), n, args.test_size, args.seed)
    for path, rows in zip((args.train, args.test), parts, strict=True):
        if table is not None:
            _write(path, table.iloc[rows], args)
        else:
            value = args.value if args.header and args.value is not None else "count" if args.count else "y"
            part = tensor.select(rows)
            write_tensor(part, path, index_base=args.index_base, value=value, safe_csv=args.safe_csv)
        if not args.quiet:
            show(f"{path}  {tensor.select(rows)!r}" if n == tensor.nnz else f"{path}  {len(rows):,} lines")


def _mode(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _table(args: argparse.Namespace) -> pd.DataFrame | None:
    """The lines of a table, csv as text; None where the parts are no lines of the same kind of file."""
    from tensorcep.entries.io import format_of, read_table

    kinds = {format_of(path, args.format) for path in (args.data, args.train, args.test)}
    merged = args.duplicates != "error" or (args.count and args.by == "entry")
    if len(kinds) > 1 or merged or not os.path.isfile(args.data):
        return None
    return read_table(args.data, reading_of(args)) if kinds in ({"csv"}, {"parquet"}) else None


def _write(path: str, table: pd.DataFrame, args: argparse.Namespace) -> None:
    from tensorcep.entries.io import escaped, format_of, separator_of, text_file

    if format_of(path, args.format) == "parquet":
        with output(path) as handle:
            table.to_parquet(handle, index=False)
        return
    separator = separator_of(args.data, reading_of(args))
    with text_file(path) as handle:
        shown = escaped(table) if args.safe_csv else table
        shown.to_csv(handle, sep=separator, index=False, header=args.header, lineterminator="\n")


COMMAND = Command("split", "IN TRAIN TEST", "hold out a part of the entries", add_arguments, run, DESCRIPTION)
