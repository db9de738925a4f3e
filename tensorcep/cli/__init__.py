"""The command line. A command is one module of this folder and one line in COMMANDS.

Exit codes: 0 done; 1 an error that the user can mend, told in one sentence on stderr; 2 wrong usage; 130 interrupted;
141 the reader of the output went away. Importing this module loads nothing heavy, so that --help is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from tensorcep import __version__
from tensorcep.cli import (
    _compare,
    _datasets,
    _demo,
    _evaluate,
    _files,
    _fit,
    _predict,
    _recommend,
    _report,
    _score,
    _select_rank,
    _split,
    _stream,
    _transform,
    _update,
    _warmup,
)
from tensorcep.cli._command import Command, say
from tensorcep.cli._wording import sentence_of
from tensorcep.program import INTERRUPTED, LAST_WORDS, die, hear_interrupts

COMMANDS: tuple[Command, ...] = (
    _fit.COMMAND,
    _stream.COMMAND,
    _update.COMMAND,
    _predict.COMMAND,
    _evaluate.COMMAND,
    _recommend.RECOMMENDING,
    _recommend.WEIGHTS,
    _transform.COMMAND,
    _score.COMMAND,
    _report.COMMAND,
    _compare.COMMAND,
    _select_rank.COMMAND,
    _files.INFO,
    _files.CONVERT,
    _split.COMMAND,
    _datasets.COMMAND,
    _demo.COMMAND,
    _warmup.COMMAND,
)

NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$|-inf$", re.IGNORECASE)
BROKEN_PIPE = 141  # what a shell reports for SIGPIPE
# What a user can mend: bad input or options, files that are not there, libraries that are not installed, a fit that
# left the range of floating point, too little memory. Anything else is a bug of ours and shows its traceback.
MENDABLE = (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError)

EPILOG = """\
a session, on data that needs no download:
  tensorcep datasets il2 -o il2.csv
  tensorcep split il2.csv train.csv test.csv
  tensorcep fit train.csv -o model.npz --rank 6
  tensorcep evaluate model.npz test.csv
  tensorcep predict model.npz test.csv -o predictions.csv --coverage 0.9

"tensorcep COMMAND --help" explains one command."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="tensorcep",
        description="Bayesian tensor and matrix factorisation of sparse data, with honest uncertainty.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tensorcep {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            usage=f"tensorcep {command.name} {command.arguments} [options]".replace("  ", " "),
            help=command.help,
            description=command.description or f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        own._negative_number_matcher = NEGATIVE  # argparse's own knows no exponents
        command.add_arguments(own)
        own.add_argument("--debug", action="store_true", help="show the traceback of an error")
        own.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the program's name; default: those of this process.

    Raises
    ------
    SystemExit
        With code 2 on wrong usage, and with code 0 after --help and --version.
    """
    _open_streams()
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.showwarning = _once_shown()
        try:
            hear_interrupts()
            args.run(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            say(LAST_WORDS)
            return INTERRUPTED
        except BrokenPipeError:
            # The interpreter flushes stdout once more at exit; give it something that takes what is left.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except MENDABLE as error:
            if args.debug:
                traceback.print_exc()
            say(f"error: {sentence_of(error)}")
            return 1
    return 0


def run_as_program() -> NoReturn:
    """Run the command line of this process and end the process.

    An interrupted program dies of SIGINT, which a shell reports as 130 and which also stops a loop around it. Exiting
    with 130 is not enough: CPython ends with the signal on its own when Ctrl-C came while it ran a string of code
    (as imports do now and then), so that the exit would depend on the moment.
    """
    code = main()
    if code == INTERRUPTED:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        die()
    sys.exit(code)


def _open_streams() -> None:
    """Have what a shell closed (``>&-``) take, and give, nothing; its number is taken before another file gets it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _once_shown() -> Callable[..., None]:
    """Return what shows warnings: each sentence once, though several steps of a command may come upon it."""
    shown = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        sentence = sentence_of(message)
        if sentence not in shown:
            say(f"warning: {sentence}")
        shown.add(sentence)

    return show
