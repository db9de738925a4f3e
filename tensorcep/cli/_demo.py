"""`tensorcep demo`: the demonstration, told to the terminal."""

from __future__ import annotations

import argparse

from tensorcep._checks import check_int
from tensorcep.cli._command import Command, say

DESCRIPTION = """\
Hold out a fifth of the COVID-19 serology tensor (it ships with TensorLy: nothing is downloaded), fit the rest, and
compare the predictions with the training mean and with TensorLy's masked parafac. Writes the model and a figure."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", metavar="DIR", default=".", help="folder for the two files (default: this one)")
    parser.add_argument("--rank", type=int, default=10, help="number of components (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the random starts (default: 0)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> None:
    check_int("--rank", args.rank)
    check_int("--seed", args.seed, 0)
    from tensorcep.demo import report, run_demo

    if not args.quiet:
        say("fitting (the first fit on a machine compiles for about 20 seconds, later ones start at once)")
    print(report(run_demo(args.output_dir, rank=args.rank, seed=args.seed, progress=not args.quiet)))


COMMAND = Command("demo", "", "see it work on real data, in a few seconds", add_arguments, run, DESCRIPTION)
