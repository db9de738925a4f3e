"""Does any damaged file end in more than one sentence? Readers, files, the shell and frames are fuzzed.

A case damages a good file (bytes, fields of a table, arrays, header or members of an archive, its sums then right)
and hands it to a reader, to `load`, to a stream that resumes, or to a command of the shell; or it mangles a frame and
hands it over as features, times, edges, rows to fold in or a batch. It passes by a result or by a refusal: a
ValueError, TypeError or OSError of this package, in one sentence. It fails by any other exception, by more seconds or
memory than a case may take, or if the process dies. A case is known by its target, the seed and its number:
`--targets load --seed 0 --first 1234 --cases 1 --keep FOLDER` runs one again and keeps its files.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.children import in_child
from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.fuzz import frames, targets
from scripts.lib.fuzz.seeds import corpus

BLOCK, BLOCK_SECONDS = 2500, 1200.0  # cases of a child, and the CPU seconds that it may take at most
CASE_SECONDS, GIGABYTES = 10.0, 4.0
LAST = "last"
CALLS = (targets.read, targets.load, targets.resume, targets.shell)
CALLS += (frames.features, frames.series, frames.edges, frames.fold_in, frames.batches)
TARGETS = {call.__name__: call for call in CALLS}  # a case's numbers depend on the place of its target


class Asked(NamedTuple):
    """What all children are told: the seed, the time at which they end, and a folder for the damaged files."""

    seed: int
    until: float
    keep: str | None


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


def block(target: str, asked: Asked, first: int, last: int, folder: str) -> tuple[int, list[tuple[int, str]]]:
    """The case before which time was up, or `last`; and the faults of those before it, each beside its number."""
    files = loaded(folder)
    faults: list[tuple[int, str]] = []
    with contextlib.nullcontext(asked.keep) if asked.keep else tempfile.TemporaryDirectory() as own:
        for case in range(first, last):
            if time.time() > asked.until:
                return case, faults
            (Path(folder) / LAST).write_text(str(case))
            fault = fault_of_case(target, asked.seed, case, files, own)
            if fault is not None:
                faults.append((case, fault))
    return last, faults


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


def measure(target: str, asked: Asked, first: int, cases: int, folder: str) -> list[Row]:
    """The rows of one target: cases, faults, and each fault. A child that died is a fault of its last case."""
    begin, at, faults = time.perf_counter(), first, []
    while at < first + cases and time.time() < asked.until:
        last = min(at + BLOCK, first + cases)
        outcome = in_child(block, (target, asked, at, last, folder), BLOCK_SECONDS, GIGABYTES, [__name__])
        if outcome.status == "ok":
            at, found = outcome.value
        else:
            died = int((Path(folder) / LAST).read_text())
            at, found = died + 1, [(died, outcome.status)]
        for case, fault in found:
            say(f"{target} {case}: {fault}")
        faults += found
    about = {"data": target, "seed": asked.seed, "first": first}
    rows = [row("cases", at - first, **about, seconds=time.perf_counter() - begin)]
    rows.append(row("faults", len(faults), **about))
    return rows + [row("fault of case", case, **about, reason=fault) for case, fault in faults]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__, seed=0)
    options.add_argument("--targets", type=words(*TARGETS), default=list(TARGETS), help="what is fuzzed (default: all)")
    options.add_argument("--cases", type=int, default=1000, help="cases of each target (default: 1000)")
    options.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    options.add_argument("--seconds", type=float, default=1e9, help="by the clock, after which no case begins")
    options.add_argument("--keep", metavar="FOLDER", help="leave the files of the last case in FOLDER")
    options.add_argument("--good", metavar="FOLDER", help="good files of an earlier run, or where to put them")
    given = options.parse_args(arguments)
    if given.keep:
        Path(given.keep).mkdir(parents=True, exist_ok=True)
    asked, rows = Asked(given.seed, time.time() + given.seconds, given.keep), []
    with contextlib.nullcontext(given.good) if given.good else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        if not loaded(folder):
            with tempfile.TemporaryDirectory() as made:
                written(corpus(made), folder)
        for target in given.targets:
            rows += measure(target, asked, given.first, given.cases, folder)
    report(rows, given.json)


if __name__ == "__main__":
    main()
