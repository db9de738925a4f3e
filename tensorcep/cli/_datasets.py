"""`tensorcep datasets`: list the published data sets, fetch one, or write one to a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tensorcep.cli._command import WRITTEN_KINDS, Command, add_safe_csv, check_output, show
from tensorcep.core.checks import check_choice, check_int, fail_value

if TYPE_CHECKING:
    from tensorcep.datasets import DatasetInfo
    from tensorcep.entries.sparse_tensor import SparseTensor

DESCRIPTION = f"""\
Without NAME, list the data sets. With NAME, download the files that are not there yet. With NAME and -o, write its
entries to a file ({WRITTEN_KINDS}). Downloads are kept in the folder that
TENSORCEP_DATA names, or in the cache of pooch."""

PARTS = ("train", "test")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one of those that the list shows")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the entries to this file")
    parser.add_argument("--part", choices=PARTS, help="alog, enron, dblp: which entries (default: train)")
    parser.add_argument("--fold", type=int, metavar="N", help="alog, enron: fold; dblp: test set (default: 1)")
    add_safe_csv(parser)


def run(args: argparse.Namespace) -> None:
    from tensorcep import datasets

    if args.name is None:
        if args.output or args.part or args.fold:
            fail_value("--output, --part and --fold need the NAME of a data set; give one.")
        print("\n".join(_line(item) for item in datasets.available()))
        return
    check_choice("NAME", args.name, datasets.CATALOGUE)
    if (args.part or args.fold) and (args.output is None or args.name not in {"alog", "enron", "dblp"}):
        fail_value("--part and --fold have a meaning only with --output, for alog, enron and dblp; leave them out.")
    if args.output is not None:
        _write(args)
        return
    files = [file for file in datasets.registry() if file.startswith(f"{args.name}/")]
    if not files:
        show(f"{args.name} ships with TensorLy: nothing to download; write it to a file with -o")
    for file in files:
        show(str(datasets.fetch(file)))


def _write(args: argparse.Namespace) -> None:
    from tensorcep.entries.io import write_tensor

    check_output(args.output)
    tensor = load_part(args.name, args.part or "train", 1 if args.fold is None else args.fold)
    write_tensor(tensor, args.output, safe_csv=args.safe_csv)
    show(f"{args.output}  {tensor!r}")


def load_part(name: str, part: str, fold: int) -> SparseTensor:
    """One tensor of a data set; `part` and `fold` are ignored where there is only one."""
    from tensorcep import datasets

    if name in ("covid19_serology", "il2"):
        return datasets.load_il2() if name == "il2" else datasets.load_covid19_serology()
    if name == "dblp":
        found = datasets.load_dblp()
        return found.train if part == "train" else found.tests[check_int("--fold", fold, 1, len(found.tests)) - 1]
    check_int("--fold", fold, 1, datasets.N_FOLDS)
    halves = datasets.load_alog(fold) if name == "alog" else datasets.load_enron(fold)
    return halves.train if part == "train" else halves.test


def _line(item: DatasetInfo) -> str:
    if not item.size:
        where = "with TensorLy"
    else:
        where = f"{item.size / 1e6:.1f} MB, {'fetched' if item.cached else 'to download'}"
    return f"{item.name:17} {where:21} {item.description}"


COMMAND = Command("datasets", "[NAME]", "list or fetch published data sets", add_arguments, run, DESCRIPTION)
