"""One table of speed and memory: every row is a bench of this folder, run in processes of its own, beside its rival.

    python -m scripts.speed.bench_table --quick --rows reading,fits

A bench is run --repeats times; "value" and "rival" are medians over the runs, "ratio" the median of the ratios within
each run, and "asked" what the ratio or the value should reach. "cpu", "wall" and "megabytes"
are what the whole bench took, its rivals and the making of its data included. --quick runs once, on smaller data, and
leaves out what is told at large sizes alone; rows of published data are left out where TENSORCEP_DATA does not hold
them. Rows of other packages' samplers (--peers) are installed by pip into an environment of their own.
`table_benches` has the groups, `table_lines` their lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scripts.lib.common import ROOT, Row, parser, report, say, words
from scripts.speed.table_benches import PEERS, TABLE
from scripts.speed.table_lines import Bench, Where


def matches(item: Row, where: Where) -> bool:
    return all(item.get(name) == value for name, value in where.items())


def figure(rows: Sequence[Row], where: Where | None, field: str) -> float:
    """The figure of the first row that is meant; nan where a smaller run does not have it."""
    found = (
        [] if where is None else [item[field] for item in rows if matches(item, where) and item.get(field) is not None]
    )
    return float(found[0]) if found else np.nan


def run_bench(name: str, options: str) -> tuple[list[Row], float, float, float]:
    """The rows of one run, and the CPU and wall seconds and peak megabytes of its process."""
    wall = time.perf_counter()
    command = [sys.executable, "-m", f"scripts.speed.{name}", *options.split(), "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True) as process:
        text = "" if process.stdout is None else process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with exit code {process.returncode}; run it by itself.")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return json.loads(text), used.ru_utime + used.ru_stime, time.perf_counter() - wall, used.ru_maxrss / unit


def lines_of(bench: Bench, options: str, repeats: int) -> list[Row]:
    """The lines that one bench fills: medians over its runs."""
    runs = [run_bench(bench.name, options) for _ in range(repeats)]
    cpu, wall, megabytes = (float(np.median([run[k] for run in runs])) for k in (1, 2, 3))
    filled = []
    for line in bench.lines:
        values = np.array(
            [[figure(rows, line.value, line.field), figure(rows, line.rival, line.field)] for rows, *_ in runs]
        )
        if np.isnan(values[:, 0]).any():
            continue  # not part of a quick run, or skipped there
        ratio = values[:, 1] / values[:, 0] if line.turned else values[:, 0] / values[:, 1]
        found = {"value": np.median(values[:, 0]), "rival": np.median(values[:, 1]), "ratio": np.median(ratio)}
        numbers = {name: None if np.isnan(value) else float(value) for name, value in found.items()}
        asked = {"asked": line.asked, "cpu": cpu, "wall": wall, "megabytes": megabytes, "runs": repeats}
        filled.append({"data": bench.name, "metric": line.what, **numbers, **asked})
        say(f"{line.what}: {numbers}, asked {line.asked}")
    return filled


def is_there(data: str) -> bool:
    """Whether the published data that a bench needs lie in the folder that TENSORCEP_DATA names."""
    folder = os.environ.get("TENSORCEP_DATA")
    return not data or (folder is not None and Path(folder, data).is_dir())


def measure(name: str, quick: bool, repeats: int) -> list[Row]:
    """The lines of one group; none, with the reason on stderr, where it cannot or need not run."""
    bench = {**TABLE, **PEERS}[name]
    options = bench.quick if quick else bench.options
    if options is None:
        say(f"{name} is left out of --quick")
        return []
    if not is_there(bench.needs):
        say(f"{name} is left out: no {bench.needs} in the folder that TENSORCEP_DATA names")
        return []
    return lines_of(bench, options, 1 if quick else repeats)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__)
    p.add_argument(
        "--rows", type=words(*TABLE, *PEERS), default=[*TABLE], help="groups of rows (default: all but peers)"
    )
    p.add_argument("--repeats", type=int, default=5, help="runs of which medians are taken (default: %(default)s)")
    p.add_argument("--quick", action="store_true", help="one run of each, on smaller data")
    p.add_argument("--peers", action="store_true", help="the rows that need other packages, too")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for name in [*options.rows, *(PEERS if options.peers else ())]:
        rows += measure(name, options.quick, options.repeats)
    report(rows, options.json)


if __name__ == "__main__":
    main()
