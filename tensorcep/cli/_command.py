"""What the commands share: the record of a command, options that say how to read entries, output and messages."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tensorcep.core.checks import DUPLICATE_POLICIES, fail_value, printable
from tensorcep.core.persist.archive import atomic_write

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.entries.io import Schema
    from tensorcep.entries.sparse_tensor import SparseTensor

STDOUT = "-"
FORMATS = ("tns", "csv", "parquet", "npz", "mtx")
FILE_KINDS = ".tns, .csv, .tsv, .txt, .dat, .data, .mtx (these also with .gz, .bz2, .xz, .zip), .parquet or .npz"
WRITTEN_KINDS = ".tns, .tns.gz, .csv, .csv.gz, .parquet or .npz"


class Command(NamedTuple):
    """One sub-command.

    Attributes
    ----------
    name, arguments, help : str
        What is typed, what comes after it, and one line about it.
    add_arguments : callable
        Takes the sub-command's parser.
    run : callable
        Takes the parsed arguments; writes results to stdout, everything else to stderr, and raises on errors.
    description : str
        Text above the options in its --help; default: the line of `help`.
    """

    name: str
    arguments: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    description: str = ""


def say(text: str) -> None:
    """Write a line to stderr, so that stdout holds results only; what moves a terminal's cursor is escaped."""
    print(printable(text).replace("\n", "\\n"), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Write lines to stdout; signs of labels and names of files that command a terminal are escaped."""
    print(printable(text), flush=True)


def add_data_options(parser: argparse.ArgumentParser, *, fixed_rows: bool = False) -> None:
    """Add the options that say how to read a file of entries (`fixed_rows`: a model has fixed what the rows are)."""
    group = parser.add_argument_group("how to read the entries")
    group.add_argument("--format", choices=FORMATS, help="default: by the extension")
    group.add_argument(
        "--index-base", type=int, choices=(0, 1), default=1, help="what indices count from (default: 1; labels: none)"
    )
    group.add_argument(
        "--modes", type=_words, metavar="A,B,C", help="columns of the modes (default: all but the value)"
    )
    value = group.add_mutually_exclusive_group()
    value.add_argument("--value", metavar="COLUMN", help="column of the value (default: the last)")
    if not fixed_rows:
        value.add_argument("--count", action="store_true", help="no column is the value: count the lines of each cell")
    group.add_argument(
        "--no-header", dest="header", action="store_false", help="csv without column names; columns are 0, 1, ..."
    )
    group.add_argument(
        "--sep",
        type=_separator,
        metavar="S",
        help="csv: what stands between the fields of a line, such as ';' or \\t (default: the comma, tab, ;, | or :: "
        "that the first line has, or blanks)",
    )
    group.add_argument(
        "--decimal", choices=(".", ","), default=".", metavar="P", help="decimal point of values: . (default) or ,"
    )
    group.add_argument(
        "--encoding", metavar="NAME", help="of text, such as latin1 (default: UTF-8, or what a byte-order mark says)"
    )
    group.add_argument(
        "--drop-missing", action="store_true", help="leave out lines whose value is missing: empty, NA, nan, null, ..."
    )
    text = "as the model's rows are named" if fixed_rows else "labels if the columns have names"
    group.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help=f"whether mode columns hold labels, not indices (default: {text})",
    )
    if not fixed_rows:
        group.add_argument(
            "--duplicates", choices=DUPLICATE_POLICIES, default="error", help="cells that occur twice (default: error)"
        )
        group.add_argument(
            "--shape", type=_sizes, metavar="N,N,N", help="sizes (default: the largest indices; not for labels)"
        )


def add_talk_options(parser: argparse.ArgumentParser) -> None:
    """Add --verbose and --quiet."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show progress bars even if stderr is no terminal, and how far a fit is to be believed",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="show nothing but warnings and errors")


def add_safe_csv(parser: Any) -> None:
    """Add --safe-csv."""
    parser.add_argument(
        "--safe-csv",
        action="store_true",
        help="csv for spreadsheets: text that they would run as a formula (it begins with =, +, -, @, tab or return) "
        "gets a ' before it",
    )


def write_csv(handle: BinaryIO, table: pd.DataFrame, args: argparse.Namespace, header: bool = True) -> None:
    """Write a table of results as csv, as --safe-csv says."""
    from tensorcep.entries.io import escaped

    shown = escaped(table) if args.safe_csv else table
    shown.to_csv(handle, index=False, header=header, float_format="%.8g", lineterminator="\n")


def shows_progress(args: argparse.Namespace) -> int:
    """1 if progress bars are wanted: when asked for, or when a person watches."""
    return int(args.verbose or (not args.quiet and sys.stderr.isatty()))


def read_data(path: str, args: argparse.Namespace, verbose: int = 0) -> SparseTensor:
    """Read entries as `add_data_options` let the user describe them."""
    from tensorcep.entries.io import read_entries

    return read_entries(path, reading_of(args), args.duplicates, verbose)[0]


def reading_of(args: argparse.Namespace) -> Schema:
    """How the options say that a file is to be read."""
    from tensorcep.entries.io import LAST, Schema

    return Schema(
        index_base=args.index_base,
        header=args.header,
        labels=args.labels,
        modes=chosen_modes(args),
        value=None if getattr(args, "count", False) else LAST if args.value is None else chosen_value(args),
        shape=getattr(args, "shape", None),
        sep=args.sep,
        decimal=args.decimal,
        encoding=args.encoding,
        drop_missing=args.drop_missing,
        format=args.format,
    )


def described(tensor: SparseTensor, path: str, args: argparse.Namespace) -> str:
    """What was read, and the column that was taken for the value."""
    from tensorcep.entries.io import value_name_of

    text = repr(tensor).removeprefix("<SparseTensor ").removesuffix(">")
    name = value_name_of(path, reading_of(args)) if os.path.isfile(path) else None
    return text if name is None else f"{text}, value {name}"


def chosen_modes(args: argparse.Namespace) -> list[str | int] | None:
    """The columns that --modes names, or None."""
    return None if args.modes is None else [_column(name, args.header) for name in args.modes]


def chosen_value(args: argparse.Namespace) -> str | int | None:
    """The column that --value names, or None."""
    return None if args.value is None else _column(args.value, args.header)


def _column(name: str, header: bool) -> str | int:
    """A column's name, or its position where there is no header."""
    if header:
        return name
    if not name.isdecimal():
        fail_value(f"without a header a column is its position from 0; got {name!r}; give a number.")
    return int(name)


def check_output(path: str, *inputs: str) -> str:
    """Refuse, before any work, a place that cannot be written, or that an input would be lost to."""
    if path == STDOUT:
        return path
    target = os.path.realpath(path)
    if any(os.path.realpath(name) == target for name in inputs):
        fail_value(f"'{path}' is an input of this command; give another file to write to.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot write '{path}': it is a folder; give the path of a file.")
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write '{path}': there is no folder '{folder}'; create it first.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write '{path}': the folder '{folder}' is read-only to you; choose another.")
    return path


@contextmanager
def output(path: str) -> Iterator[BinaryIO]:
    """Yield a binary handle on stdout, or on a file that appears only when it is complete."""
    if path == STDOUT:
        sys.stdout.flush()
        if sys.stdout.isatty():  # labels could command the terminal
            held = io.BytesIO()
            yield held
            sys.stdout.write(printable(held.getvalue().decode("utf-8", "replace")))
            return
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as handle:
            yield handle


def figure_module() -> Any:
    """What --figure needs of matplotlib; to be asked for before any work.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    from tensorcep.core.checks import optional_module

    return optional_module("matplotlib.figure", "--figure", "'tensorcep[plots]'")


def save_figure(path: str, *drawings: Callable[[Any], Any]) -> None:
    """Write a png with one panel for each drawing, which gets its axes; without pyplot, so no display is needed."""
    n = len(drawings)
    figure = figure_module().Figure(figsize=(6.4 * n, 4.8), layout="constrained")
    for draw, ax in zip(drawings, figure.subplots(1, n, squeeze=False)[0], strict=True):
        draw(ax)
    with output(path) as handle:
        figure.savefig(handle, format="png")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _separator(text: str) -> str:
    """A separator as it is typed: a tab, which a shell hardly lets one type, is \\t."""
    return text.replace("\\t", "\t")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.replace("x", ",").split(","))
    except ValueError:
        message = f"sizes are integers between commas, such as 200,100,200; got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def is_of_matrices(model: Any) -> bool:
    """Whether a model is one of matrices."""
    from tensorcep.estimators import FACTOR_MODELS

    return type(model).__name__ in FACTOR_MODELS


def load_any_model(path: str) -> Any:
    """Read a model of a tensor or of matrices.

    Raises
    ------
    FileNotFoundError, ValueError
        As `tensorcep.load`, or if the model is of another family.
    """
    from tensorcep.estimators import ESTIMATORS, FACTOR_MODELS, load

    model = load(path)
    if type(model).__name__ not in {**ESTIMATORS, **FACTOR_MODELS}:
        fail_value(
            f"'{path}' holds a {type(model).__name__}, and the command line serves models of tensors and of matrices "
            "only; use it from Python with tensorcep.load."
        )
    return model


def load_tensor_model(path: str) -> Any:
    """Read a model of a tensor; one of a matrix or a regression is for Python.

    Raises
    ------
    FileNotFoundError, ValueError
        As `tensorcep.load`, or if the model is not one of a tensor.
    """
    from tensorcep.estimators import ESTIMATORS, load

    model = load(path)
    if type(model).__name__ not in ESTIMATORS:
        fail_value(
            f"'{path}' holds a {type(model).__name__}, and this command serves models of tensors only; use it from "
            "Python with tensorcep.load."
        )
    return model
