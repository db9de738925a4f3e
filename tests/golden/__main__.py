"""``python -m tests.golden``: compare the package with its record, or write the record anew."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from tests.golden import cp_cases, family_cases, interface, record, refusals, saved_files, table

CHANGES = Path(__file__).parent / "changes.md"
# The files of the record: of cases by their modules, and of what users see.
HOMES = {cp_cases.__name__: "cp", family_cases.__name__: "families", saved_files.__name__: "saved"}
FILES = (*HOMES.values(), *interface.SECTIONS)
# Places of temporary files, which differ from run to run.
ELSEWHERE = re.compile(rf"{re.escape(tempfile.gettempdir())}/[^\s'\",;]*/")
# Items of a change that changes.md names one by one.
NAMED = 20


def of_case(make: Callable[[], table.Arrays]) -> dict[str, Any]:
    """What is kept of a case; of one that raises, what it says."""
    arrays: table.Arrays = {}
    error = ""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            arrays = make()
        except refusals.ERRORS as raised:
            error = f"{type(raised).__name__}: {raised}"
    told = {
        f"{w.category.__name__}: {w.message}" for w in heard if issubclass(w.category, (UserWarning, RuntimeWarning))
    }
    entries = {name: record.entry_of(array) for name, array in arrays.items()}
    kept = {"warnings": sorted(ELSEWHERE.sub("<folder>/", text) for text in told), "arrays": entries}
    return {**kept, "error": error} if error else kept


def home_of(name: str) -> str:
    """The file of the record that holds a case."""
    return HOMES[table.HOMES[name]]


def names_of(only: str, but: str = "") -> list[str]:
    """The items whose name, or file of the record, matches a pattern, without those whose name matches another."""
    every = [(name, home_of(name)) for name in table.CASES]
    every += [(f"{section}/{name}", section) for section in interface.SECTIONS for name in interface.names(section)]
    chosen = [name for name, home in every if fnmatch.fnmatch(name, only) or home == only]
    return [name for name in chosen if not fnmatch.fnmatch(name, but)]


def now(names: Iterable[str], verbose: bool) -> dict[str, dict[str, Any]]:
    """What the package gives now, by file of the record and name; products of matrices are on one thread."""
    found: dict[str, dict[str, Any]] = {}
    with threadpool_limits(1):
        for name in names:
            began = time.process_time()
            if name in table.CASES:
                found.setdefault(home_of(name), {})[name] = of_case(table.CASES[name])
            else:
                section, _, own = name.partition("/")
                found.setdefault(section, {})[own] = interface.item(section, own)
            if verbose:
                print(f"{time.process_time() - began:7.2f} s  {name}", flush=True)
    return found


def check(names: list[str], bits: bool, verbose: bool) -> int:
    """Print what moved, and count it.

    Help texts are laid out by Python, and compared where it is the record's; some cases promise bits alone.
    """
    count = 0
    left = () if same_python() else ("help/*",)
    left += () if bits else record.BITS_ALONE
    names = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in left)]
    print("".join(f"not compared here: {pattern}\n" for pattern in left), end="")
    found, before = now(names, verbose), {file: record.read(file) for file in FILES}
    for file, items in found.items():
        for name, item in items.items():
            if name not in before[file]:
                told = ["is not in the record"]
            elif file in interface.SECTIONS:
                told = interface.moved(file, before[file][name], item)
            else:
                told = record.moved(before[file][name], item, bits)
            count += len(told) > 0
            for sentence in told:
                print(f"{file}: {name}: {sentence}")
    return count


def same_python() -> bool:
    """Whether this is the minor version of Python that the record was written by."""
    return record.read("machine")["python"].split(".")[:2] == platform.python_version().split(".")[:2]


def gone(before: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Items of the record that there are no more: their file and name."""
    every = {file: {name for name in table.CASES if home_of(name) == file} for file in HOMES.values()}
    every |= {section: set(interface.names(section)) for section in interface.SECTIONS}
    return [(file, name) for file in FILES for name in before[file] if name not in every[file]]


def is_wrong(name: str, item: Any) -> bool:
    """Say of an item that has no place in a record: a case that raises, or a bad call that is not refused."""
    said = item.get("error", "") if isinstance(item, dict) else item if item == refusals.GOES_THROUGH else ""
    if said:
        print(f"left out, {name}: {said}", flush=True)
    return bool(said)


def write(names: list[str], reason: str, verbose: bool) -> int:
    """Write the record of these items, and the reason where any moved; how many did."""
    found, changed = now(names, verbose), []
    before = {file: record.read(file) for file in FILES}
    for file, items in found.items():
        kept = {name: item for name, item in items.items() if not is_wrong(name, item)}
        # as text: a file has lists for tuples, and a NaN equals none
        changed += [f"{file}: {n}" for n, item in kept.items() if json.dumps(before[file].get(n)) != json.dumps(item)]
        before[file] |= kept
    for file, name in gone(before):
        del before[file][name]
        changed.append(f"{file}: {name} (gone)")
    for file in FILES:
        order = interface.names(file) if file in interface.SECTIONS else table.CASES
        record.write(file, {name: before[file][name] for name in order if name in before[file]})
    record.write("machine", record.machine())
    if changed:
        shown = changed if len(changed) <= NAMED else [*changed[: NAMED - 1], f"and {len(changed) - NAMED + 1} more"]
        lines = "".join(f"* {name}\n" for name in shown)
        with CHANGES.open("a", encoding="utf-8") as file:
            file.write(f"\n## {time.strftime('%Y-%m-%d', time.gmtime())}: {reason}\n\n{lines}")
    print("\n".join(changed) or "nothing moved")
    return len(changed)


def parsed() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The parser of the program, and its arguments."""
    parser = argparse.ArgumentParser("python -m tests.golden", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="the default: print what moved; exit code 1 if anything did")
    what.add_argument("--record", action="store_true", help="write the record anew; needs --reason")
    what.add_argument("--save", action="store_true", help="write the files of models that are missing")
    what.add_argument("--list", action="store_true", help="print the names of all items")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="items whose name, or file of the record, matches"
    )
    parser.add_argument("--but", default="", metavar="PATTERN", help="of these all but those whose name matches")
    parser.add_argument("--reason", help="why numbers or sentences were to move, for changes.md")
    parser.add_argument(
        "--numbers", action="store_true", help="compare numbers to 1e-9 on the machine of the record, too"
    )
    parser.add_argument("--verbose", action="store_true", help="print the seconds of each item")
    return parser, parser.parse_args()


def main() -> int:
    """Run the program; 0 if nothing moved."""
    parser, args = parsed()
    names, began = names_of(args.only, args.but), time.monotonic()
    everything = args.only == "*" and not args.but
    if not names:
        parser.error(f"no item matches {args.only!r}; --list prints them all")
    if args.list or args.save:
        print("\n".join(names if args.list else saved_files.save()))
        return 0
    same = record.read("machine") == record.machine()
    if args.record:
        if not args.reason:
            parser.error("--record needs --reason")
        if record.read("machine") and not same and not everything:
            parser.error("a part can be recorded on the kind of machine in record/machine.json alone")
        count, code = write(names, args.reason, args.verbose), 0
    else:
        bits = same and not args.numbers
        print(f"comparing {'bits' if bits else f'numbers to {record.CLOSE:g}'} with the record")
        count = check(names, bits, args.verbose)
        lost = gone({file: record.read(file) for file in FILES}) if everything else []
        print("".join(f"{file}: {name}: is gone\n" for file, name in lost), end="")
        count += len(lost)
        code = int(count > 0)
    spent, clock = sum(os.times()[:4]), time.monotonic() - began
    print(f"{len(names)} items, {count} moved; {spent:.0f} s of CPU, {clock:.0f} s by the clock")
    return code


if __name__ == "__main__":
    sys.exit(main())
