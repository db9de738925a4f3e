"""`tensorcep fit` of data that outgrow memory, or that lie in several files."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorcep.cli._command import reading_of
from tensorcep.cli._workers import has_workers
from tensorcep.core.arrays import bytes_of
from tensorcep.core.checks import fail_value


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add what is said of data that outgrow memory."""
    group = parser.add_argument_group("data that outgrow memory")
    group.add_argument(
        "--scratch",
        metavar="DIR",
        help="folder for files of the entries, in place of memory; real values, labels and counts",
    )
    group.add_argument(
        "--memory", metavar="SIZE", help="most memory to take, such as 8GB: entries that fit stay in memory"
    )


def is_placed(args: argparse.Namespace) -> bool:
    """Whether the data are read some lines at a time: they are asked to be, or no one file has that name."""
    return args.scratch is not None or args.memory is not None or not _is_one_file(args.data)


def _is_one_file(path: str) -> bool:
    return not os.path.isdir(path) and (os.path.exists(path) or not set(path) & set("*?["))


def check_place(args: argparse.Namespace) -> None:
    """Refuse, before any work, what does not go with data read some lines at a time.

    Raises
    ------
    ValueError
    """
    if args.memory is not None:
        bytes_of("--memory", args.memory)
    said = args.scratch is not None or args.memory is not None
    if said and (args.model != "cp" or args.also):
        fail_value("--scratch and --memory are for one tensor (--model cp); leave them out.")
    if has_workers(args):
        if said:
            fail_value(
                "--scratch and --memory are for a fit in this process; got --dask-local or "
                "--dask-scheduler; leave them out."
            )
        return
    if not is_placed(args):
        return
    if args.model != "cp" or args.also:
        fail_value(f"--model {args.model} takes files by their names; got {args.data!r}; name one file.")
    for option, given in (
        ("--zeros", args.zeros is not None),
        ("--count", args.count),
        ("--shape", args.shape),
        ("--exposure", args.exposure),
    ):
        if given:
            fail_value(f"{option} is for one file that is read whole; leave it out, or --scratch and --memory.")
    if args.duplicates != "error":
        fail_value(
            f"--duplicates {args.duplicates} is for one file that is read whole; got --scratch, --memory or several "
            "files; merge the cells before."
        )


def files_of_place(args: argparse.Namespace) -> Any:
    """The files as the options describe them."""
    from tensorcep.entries.io import Files, files_of

    return Files(files_of(args.data), reading_of(args), distinct=True)
