"""Does any damaged file end in more than one sentence? Readers, model files, checkpoints and the shell are fuzzed.

A case damages a good file (bytes, fields of a table, arrays, header or members of an archive, with sums that are right
again) and hands it to a reader, to `load`, to a stream that resumes, or to a command of the shell. It passes if there is
a result, or a refusal: a ValueError, TypeError or OSError of this package, in one sentence. It fails by any other
exception, by more seconds or memory than a case may take, or if the process dies. A case is known by its target, the
seed and its number: `--targets load --seed 0 --first 1234 --cases 1 --keep FOLDER` runs one again and keeps its files.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.children import in_child
from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.fuzz.seeds import corpus
from scripts.lib.fuzz.targets import TARGETS

BLOCK = 2500  # cases of a child
CASE_SECONDS, GIGABYTES = 10.0, 4.0
LAST = "last"


class TooLongError(BaseException):
    """A case that takes more processor time than it may; nothing but the fuzzer catches it."""


def _too_long(*_: Any) -> None:
    raise TooLongError


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A block that ends by a TooLongError after so many seconds of processor time."""
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def fault_of_case(target: str, seed: int, case: int, files: Any, folder: str) -> str | None:
    """What is wrong with one case."""
    rng = np.random.default_rng([seed, list(TARGETS).index(target), case])
    try:
        with at_most(CASE_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TARGETS[target](rng, files, folder)
    except TooLongError:
        return f"more than {CASE_SECONDS:.0f} CPU seconds"


def block(target: str, seed: int, first: int, cases: int, folder: str, keep: str | None) -> list[tuple[int, str]]:
    """The faults of some cases, each beside its number."""
    files = loaded(folder)
    faults = []
    with contextlib.nullcontext(keep) if keep else tempfile.TemporaryDirectory() as own:
        for case in range(first, first + cases):
            (Path(folder) / LAST).write_text(str(case))
            fault = fault_of_case(target, seed, case, files, own)
            if fault is not None:
                faults.append((case, fault))
    return faults


def written(files: dict[str, dict[str, bytes]], folder: str) -> None:
    """The corpus as files, so that every child damages the same."""
    for group, held in files.items():
        (Path(folder) / group).mkdir()
        for name, data in held.items():
            (Path(folder) / group / name).write_bytes(data)


def loaded(folder: str) -> dict[str, dict[str, bytes]]:
    """What `written` wrote."""
    groups = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    return {group.name: {path.name: path.read_bytes() for path in sorted(group.iterdir())} for group in groups}


def blocks_of(target: str, options: argparse.Namespace, folder: str) -> Iterator[list[tuple[int, str]]]:
    """The faults of one target, block by block; a child that died is a fault of its last case."""
    for first in range(options.first, options.first + options.cases, BLOCK):
        cases = min(BLOCK, options.first + options.cases - first)
        while cases > 0:
            asked = (target, options.seed, first, cases, folder, options.keep)
            outcome = in_child(block, asked, 1200.0, GIGABYTES, [__name__])
            if outcome.status == "ok":
                yield outcome.value
                break
            died = int((Path(folder) / LAST).read_text())
            yield [(died, outcome.status)]
            first, cases = died + 1, first + cases - died - 1


def measure(target: str, options: argparse.Namespace, folder: str) -> list[Row]:
    """The rows of one target: cases, faults, and each fault."""
    begin, faults = time.perf_counter(), []
    for found in blocks_of(target, options, folder):
        for case, fault in found:
            say(f"{target} {case}: {fault}")
        faults += found
    about = {"data": target, "seed": options.seed, "first": options.first}
    seconds = time.perf_counter() - begin
    rows = [row("cases", options.cases, **about, seconds=seconds), row("faults", len(faults), **about)]
    return rows + [row("fault of case", case, **about, reason=fault) for case, fault in faults]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__, seed=0)
    options.add_argument("--targets", type=words(*TARGETS), default=list(TARGETS), help="what is fuzzed (default: all)")
    options.add_argument("--cases", type=int, default=1000, help="cases of each target (default: 1000)")
    options.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    options.add_argument("--keep", metavar="FOLDER", help="leave the files of the last case in FOLDER")
    given = options.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as made:
        written(corpus(made), folder)
        for target in given.targets:
            rows += measure(target, given, folder)
    report(rows, given.json)


if __name__ == "__main__":
    main()
