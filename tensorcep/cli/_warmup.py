"""`tensorcep warmup`: compile the usual kernels before they are needed."""

from __future__ import annotations

import argparse

from tensorcep.cli._command import Command, add_talk_options, say, shows_progress
from tensorcep.core.checks import check_int

DESCRIPTION = """\
Compile the usual kernels into a cache on the disk (NUMBA_CACHE_DIR), so that the first fit of every process is quick;
a wheel brings most of them. KIND is regressor, classifier, counts or levels (fits by default), cep, vmp or pg-vb (fits
by these methods), streams, knowledge (features, series, graphs), others, matrices, linear or gaussian-processes;
without any, all of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", metavar="KIND", nargs="*", help="what to compile (default: everything)")
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="kinds that are compiled at a time (default: 2)"
    )
    add_talk_options(parser)


def run(args: argparse.Namespace) -> None:
    check_int("--processes", args.processes)
    from tensorcep.warming import warmup

    seconds = warmup(args.kinds or None, n_processes=args.processes, verbose=bool(shows_progress(args)))
    if not args.quiet:
        for kind, each in seconds.items():
            say(f"{kind}: {each:.1f} s")


COMMAND = Command("warmup", "[KIND ...]", "compile the usual kernels beforehand", add_arguments, run, DESCRIPTION)
