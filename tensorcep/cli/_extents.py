"""Exposures of counts, and numbers of trials, in the shell: a column of the file beside the value."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.cli._command import STDOUT, read_data, reading_of
from tensorcep.core.checks import check_columns, check_file, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.entries.sparse_tensor import SparseTensor

# Kinds of files with further columns.
TABLES = ("csv", "parquet")


def add_extent_options(parser: argparse.ArgumentParser) -> None:
    """Add --exposure and --n-trials."""
    parser.add_argument(
        "--exposure",
        metavar="COLUMN",
        help="for counts, column of the exposures that means are proportional to, such as hours; of csv and parquet "
        "files",
    )
    parser.add_argument(
        "--n-trials", metavar="COLUMN", help="for binomial counts, column of the numbers of trials (default: 1 each)"
    )


def check_extents(args: argparse.Namespace) -> None:
    """Refuse options that the likelihood does not have.

    Raises
    ------
    ValueError
    """
    given, likelihood = given_extents(args), args.likelihood or "gaussian"
    if "exposure" in given and likelihood not in ("counts", "poisson", "negbinomial"):
        fail_value(f"--exposure is for counts; got --likelihood {likelihood}; leave it out.")
    if "n_trials" in given and likelihood != "binomial":
        fail_value(f"--n-trials is for --likelihood binomial; got {likelihood}; leave it out.")


def given_extents(args: argparse.Namespace) -> dict[str, str]:
    """The columns that hold extents, by the name of what they hold."""
    columns = {name: getattr(args, name, None) for name in ("exposure", "n_trials")}
    return {name: column for name, column in columns.items() if column is not None}


def option_of(name: str) -> str:
    """What is typed."""
    return f"--{name.replace('_', '-')}"


def read_with_extents(path: str, args: argparse.Namespace, verbose: int) -> tuple[SparseTensor, dict[str, np.ndarray]]:
    """The entries of a file, and what `fit` takes beside them.

    Raises
    ------
    ValueError
        If the file has no such column, or none beside the modes and the value.
    """
    given = given_extents(args)
    if not given:
        return read_data(path, args, verbose), {}
    ((name, column),) = given.items()
    from tensorcep.entries.io import format_of, read_entries

    if args.count:
        fail_value(f"{option_of(name)} needs a column of counts beside it; got none; give --value.")
    if path == STDOUT or format_of(check_file(path), args.format) not in TABLES or not args.header:
        fail_value(
            f"{option_of(name)} names a column, which '{path}' has none of; give a csv or parquet file with a header."
        )
    tensor, extras = read_entries(path, reading_of(args)._replace(extras=(column,)), args.duplicates, verbose)
    return tensor, {name: extras[column]}


def taken_extents(path: str, frame: pd.DataFrame, args: argparse.Namespace) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The columns of a file of cells but those that hold extents, and these.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    given = given_extents(args)
    check_columns(list(frame.columns), list(given.values()), f"'{path}'")
    return frame.drop(columns=list(given.values())), {name: frame[column] for name, column in given.items()}
