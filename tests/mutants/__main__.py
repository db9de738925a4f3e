"""Plant every bug of `mutants.py` in a copy of the tree, run the tests that must fail, and tell which did not.

A bug is caught when a test fails. A test module that cannot be collected, a name that cannot be imported and a kernel
that does not compile say nothing of what the tests assert: they count as errors of the mutant.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", "*_cache", ".hypothesis", "build", "dist", "shared", "_compiled"
)
# Failures of these kinds are of a mutant that is no program.
NO_PROGRAM = ("ImportError", "ModuleNotFoundError", "SyntaxError", "NameError", "TypingError", "LoweringError")
NO_TESTS = 5  # pytest's exit code where it found none


class Outcome(NamedTuple):
    """What became of a mutant: caught, SURVIVED or error; the first failing test or what went wrong; CPU seconds."""

    name: str
    verdict: str
    test: str
    cpu_s: float


def fault_of(mutant: Mutant) -> str:
    """Return what keeps the mutant from being planted; nothing where its fragment is found once."""
    path = ROOT / mutant.path
    if not path.is_file():
        return f"{mutant.path} is no file"
    count = path.read_text(encoding="utf-8").count(mutant.old)
    return "" if count == 1 else f"its fragment is found {count} times in {mutant.path}, not once"


def tests_of(mutant: Mutant) -> list[str]:
    """Return where its tests are: of a file that is gone, the folder."""
    places = (Path(test) for test in mutant.tests.split())
    return sorted({str(place if (ROOT / place).exists() else place.parent) for place in places})


def run_tests(folder: Path, kernels: Path, tests: list[str], options: list[str]) -> tuple[int, str, float]:
    """Return pytest's exit code, its output and the CPU seconds of the tests in the copy of the tree in `folder`."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short", "-rfE"]
    own = {
        "NUMBA_CACHE_DIR": kernels,
        "PYTHONPATH": folder / "tree",
        "HYPOTHESIS_STORAGE_DIRECTORY": folder / "examples",
    }
    how = {"COLUMNS": "500", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **{name: str(path) for name, path in own.items()}}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *options, *tests],
            cwd=folder / "tree", env={**os.environ, **how}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, log.read_text(encoding="utf-8", errors="replace"), usage.ru_utime + usage.ru_stime


def judged(code: int, output: str) -> tuple[str, str]:
    """Return the verdict on a mutant, and the test that failed or what went wrong."""
    if code == 0:
        return "SURVIVED", ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "SUBFAILED"))]
    if code == 1 and failed:
        what, _, why = failed[0].partition(" - ")
        test = what[what.index(" tests/") + 1 :]
        kinds = [kind for kind in NO_PROGRAM if why.split(":")[0].endswith(kind)]
        return ("error", f"{kinds[0]} in {test}") if kinds else ("caught", test)
    return "error", f"pytest ended with {code}: {output.strip().splitlines()[-1] if output.strip() else 'no output'}"


def copied(folder: Path) -> Path:
    """Return the copy of the tree in `folder`, which is made once: what Python has compiled is found again."""
    tree = folder / "tree"
    if not tree.exists():
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
    return tree


def change(path: Path, old: str, new: str) -> None:
    """Put `new` in the place of the fragment `old`, which the file must hold once."""
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise SystemExit(f"{path}: {old!r} is found {text.count(old)} times, not once; move it.")
    path.write_text(text.replace(old, new), encoding="utf-8")


@contextlib.contextmanager
def planted(folder: Path, mutant: Mutant) -> Iterator[Path]:
    """Change the line in the copy of the tree, and yield where kernels are kept: anew for a mutant that changes some.

    The file is put back with its time, by which caches go.
    """
    there = copied(folder) / mutant.path
    kernels = folder / ("kernels-of-one" if mutant.compiled else "kernels")
    change(there, mutant.old, mutant.new)
    try:
        yield kernels
    finally:
        shutil.copy2(ROOT / mutant.path, there)
        if mutant.compiled:
            shutil.rmtree(kernels, ignore_errors=True)


def outcome_of(mutant: Mutant, folder: Path) -> Outcome:
    """Plant the mutant in a copy of the tree and run its tests there."""
    fault = fault_of(mutant)
    if fault:
        return Outcome(mutant.name, "error", fault, 0.0)
    options, tests = ["-m", "slow"] if mutant.tier == "slow" else [], tests_of(mutant)
    with planted(folder, mutant) as kernels:
        code, output, cpu_s = run_tests(folder, kernels, tests, [*options, "-k", mutant.keyword])
        if code in (0, NO_TESTS) and mutant.keyword:  # tests may have other names now
            code, output, more = run_tests(folder, kernels, tests, options)
            cpu_s += more
    verdict, test = judged(code, output)
    if verdict != "caught":
        sys.stderr.write("\n".join(output.splitlines()[-30:]) + "\n")
    return Outcome(mutant.name, verdict, test, round(cpu_s, 1))


def run_all(mutants: list[Mutant], jobs: int, top: Path) -> list[Outcome]:
    """Return the outcome of every mutant, each told as soon as it is known."""
    folders: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for job in range(jobs):
        (top / str(job)).mkdir()
        folders.put(top / str(job))

    def run(mutant: Mutant) -> Outcome:
        folder = folders.get()
        try:
            outcome = outcome_of(mutant, folder)
        finally:
            folders.put(folder)
        sys.stdout.write(f"{outcome.verdict:8} {outcome.cpu_s:6.1f} s  {outcome.name}: {outcome.test}\n")
        sys.stdout.flush()
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, mutants))


def clean_run(outcomes: list[Outcome], top: Path) -> bool:
    """Return whether the tests that failed pass in the tree as it is; where they do not, they have caught nothing."""
    tests = sorted({outcome.test for outcome in outcomes if outcome.verdict == "caught"})
    if not tests:
        return True
    copied(top / "0")
    code, output, _ = run_tests(top / "0", top / "0" / "kernels", tests, ["-m", ""])
    sys.stdout.write(f"{len(tests)} tests that caught them, without mutants: {output.strip().splitlines()[-1]}\n")
    return code == 0


def main() -> int:
    """Run the mutants that were asked for; the exit code is 1 where one was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", default="*", help="those whose name or file matches, as 'cep-*'")
    parser.add_argument("--list", action="store_true", help="check that every mutant can be planted, and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at the same time; each has kernels of its own")
    parser.add_argument("--clean", action="store_true", help="run the tests that failed once more without a bug")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the outcomes there")
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if fnmatch.fnmatch(m.name, args.only) or fnmatch.fnmatch(m.path, args.only)]
    if args.list:
        faults = {mutant.name: fault_of(mutant) for mutant in chosen}
        for mutant in chosen:
            sys.stdout.write(f"{mutant.name}: {faults[mutant.name] or mutant.bug} [{mutant.path}; {mutant.tests}]\n")
        return int(any(faults.values()))
    with tempfile.TemporaryDirectory(prefix="mutants-") as top:
        outcomes = run_all(chosen, args.jobs, Path(top))
        if args.json:
            args.json.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1) + "\n")
        clean = clean_run(outcomes, Path(top)) if args.clean else True
    missed = [outcome.name for outcome in outcomes if outcome.verdict != "caught"]
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    caught = len(outcomes) - len(missed)
    sys.stdout.write(f"{caught} of {len(outcomes)} caught in {cpu_s:.0f} CPU s; not: {', '.join(missed) or 'none'}\n")
    return int(bool(missed) or not clean)


if __name__ == "__main__":
    sys.exit(main())
