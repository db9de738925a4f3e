"""The parser of the command line, what runs a command, and errors as the shell says them.

Exit codes: 0 done; 1 an error that the user can mend, told in one sentence on stderr; 2 wrong usage; 130 interrupted;
141 the reader of the output went away. Importing this module loads nothing heavy, so that --help is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from tensorcep import __version__
from tensorcep.cli import INTERRUPTED, LAST_WORDS, assess, die, files, fit, hear_interrupts, predict, stream
from tensorcep.cli.options import Command, say
from tensorcep.core.checks import InvalidParameter

# A command is one line of its module, and is listed here by that.
GROUPS: dict[str, tuple[Command, ...]] = {
    "fit a model": (fit.COMMAND, *stream.COMMANDS),
    "ask a model": (*predict.COMMANDS, files.REPORTING),
    "judge models": assess.COMMANDS,
    "files and the program": files.COMMANDS,
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)

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


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are as wide as the terminal, tables as they are written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(each if "\n  " in f"\n{each}" else textwrap.fill(each, width) for each in paragraphs)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    listed = "\n".join(
        f"{title}:\n" + "\n".join(f"  {command.name:<12} {command.help}" for command in group) + "\n"
        for title, group in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="tensorcep",
        usage="tensorcep COMMAND [options]",
        description="Bayesian tensor and matrix factorisation of sparse data, with an interval for every prediction.",
        epilog=f"{listed}\n{EPILOG}",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tensorcep {__version__}")
    commands = parser.add_subparsers(prog="tensorcep", metavar="COMMAND", dest="command", help=argparse.SUPPRESS)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            usage=f"tensorcep {command.name} {command.arguments} [options]".replace("  ", " "),
            description=command.description or f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=HelpFormatter,
        )
        own._negative_number_matcher = NEGATIVE  # argparse's own knows no exponents
        command.add_arguments(own)
        own.add_argument("--debug", action="store_true", help="show the traceback of an error")
        own.set_defaults(run=command.run, parser=own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, with the arguments of this process by default, and return its exit code.

    Wrong usage raises SystemExit with code 2, --help and --version with code 0.
    """
    _open_streams()
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.showwarning = _once_shown(args.parser)
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
            say(f"error: {sentence_of(error, args.parser)}")
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


def _once_shown(parser: argparse.ArgumentParser) -> Callable[..., None]:
    """Return what shows warnings: each sentence once, though several steps of a command may come upon it."""
    shown = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        sentence = sentence_of(message, parser)
        if sentence not in shown:
            say(f"warning: {sentence}")
        shown.add(sentence)

    return show


# The library's sentences as a user of the shell should read them.

# Parameters that the shell calls otherwise, or that are none of its own, and what has no option by its name.
CALLED = {"n_jobs": "--threads", "random_state": "--seed", "labels": "labels"}
OTHERWISE = {
    "value=None": "--count",
    "exclude='seen'": "leaving out what was seen",
    "pass them as exclude=, or None": "give --exclude FILE, or --all, which leaves out nothing",
    "give y as an ordered Categorical, or as numbers, for another": "say another by --levels",
    ", Timestamps, Timedeltas, dates or Periods, or its order=": " or dates such as 2024-01-31",
    "use CPOrdinalClassifier": "use --likelihood ordinal",
    "use CPRegressor": "use --likelihood gaussian",
}
VALUE = r"True|False|'\w+'(?:(?:,| or) '\w+')*|"


def sentence_of(error: BaseException | str, parser: argparse.ArgumentParser) -> str:
    """Return what went wrong as one sentence that speaks of the options of a command, not of Python's parameters."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}); use a lower --rank, or --dtype float32."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: '{error.filename}'"
    options = options_of(parser)
    text = error.in_shell(lambda name: options.get(name, name)) if isinstance(error, InvalidParameter) else str(error)
    return in_options(" ".join(text.split()) or type(error).__name__, options)


def options_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What is typed for parameters ("max_iter"), and for flags with their values ("labels=False")."""
    options = {}
    for action in parser._actions:
        words = [word for word in action.option_strings if word.startswith("--")] or action.option_strings
        options[action.dest] = words[0] if words else str(action.metavar)
        if action.nargs == 0:
            values = (True, False) if len(words) == 2 else (action.const,)
            options |= {f"{action.dest}={value}": word for value, word in zip(values, words, strict=True)}
    return {**options, **CALLED}


def in_options(text: str, options: dict[str, str]) -> str:
    """The text with options for parameters.

    These are what stands before a sign of equality, what begins a sentence as "NAME must", and words that are none of
    English.
    """
    for words, option_words in OTHERWISE.items():
        text = text.replace(words, option_words)
    names = "|".join(name for name in options if name.isidentifier())
    no_words = "|".join(name for name in options if name.isidentifier() and ("_" in name or name in ("tol", "damping")))

    def option(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if f"{name}={value}" in options:
            return options[f"{name}={value}"]
        follows = value or re.match(r"[\w'\"({\[-]", text[match.end() :])
        return f"{options[name]}{' ' if follows else ''}{value.replace(chr(39), '')}"

    text = re.sub(rf"(?<![-\w'/.])(?P<name>{names})=(?P<value>{VALUE})", option, text)
    return re.sub(rf"(?<![-\w'/.])(?:{no_words})\b(?![=(])|^(?:{names})(?= must )", lambda m: options[m[0]], text)
