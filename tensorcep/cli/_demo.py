"""`tensorcep demo`: the demonstration, told to the terminal."""

from __future__ import annotations

import argparse

from tensorcep.cli._command import Command, say
from tensorcep.cli._fit import add_rank_option, check_whole_or_auto
from tensorcep.core.checks import check_int

DESCRIPTION = """\
Hold out a fifth of the COVID-19 serology tensor (it ships with TensorLy: nothing is downloaded), fit the rest, and
compare the predictions with the training mean and with TensorLy's masked parafac. Writes the model and a figure."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", metavar="DIR", default=".", help="folder for the two files (default: this one)")
    add_rank_option(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the split and the random starts (default: 0)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> None:
    check_whole_or_auto("--rank", args.rank)
    check_int("--seed", args.seed, 0)
    from tensorcep.demo import report, run_demo

    if not args.quiet:
        say(
            "fitting (about 10 seconds on two free cores; without compiled kernels it compiles for about 10 more), "
            "then scoring"
        )
    print(report(run_demo(args.output_dir, rank=args.rank, seed=args.seed, progress=not args.quiet)))


COMMAND = Command("demo", "", "see it work on real data, in half a minute", add_arguments, run, DESCRIPTION)
