"""Time the readers of csv, parquet and .tns files, and of streams of csv, against pandas in the same process.

Ratios are of CPU seconds, all threads together: each figure is the least of some repeats, taken in turn. pandas checks
nothing: `pandas.read` is read_csv or read_parquet of the same file, `pandas.factorize` the same and the codes of its
columns of labels, `pandas.chunks` read_csv in chunks of --chunk lines. `read_tensor` checks every number, gives labels
rows and looks for repeated cells; `read_batches` gives batches of --batch-sizes entries, whose labels are text.
"""

from __future__ import annotations

import collections
import importlib.util
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from tensorcep.entries.io import read_batches, read_tensor
from tensorcep.entries.sparse_tensor import SparseTensor

SHAPE = (20_000, 10_000, 5_000)
KINDS = ("csv", "labels", "text", "parquet", "tns", "stream", "stream-text")
Call = Callable[[], object]


def make_files(folder: Path, lines: int, seed: int) -> dict[str, Path]:
    """Write entries in distinct random cells, with normal values of six decimals, as every kind of file."""
    rng = np.random.default_rng(seed)
    cells = SparseTensor.from_coo(np.empty((0, 3)), [], SHAPE).sample_zeros(lines, random_state=rng).coords + 1
    frame = pd.DataFrame(cells, columns=["user", "item", "tag"]).assign(y=rng.standard_normal(lines).round(6))
    paths = {name: folder / f"{name}.{kind}" for name, kind in (("csv", "csv"), ("text", "csv"), ("tns", "tns"))}
    frame.to_csv(paths["csv"], index=False)
    frame.to_csv(paths["tns"], sep=" ", header=False, index=False)
    for name in ("user", "item", "tag"):
        frame[name] = f"{name}_" + frame[name].astype(str)
    frame.to_csv(paths["text"], index=False)
    return paths


def run_through(parts: Any) -> None:
    """Take all parts, keeping none."""
    collections.deque(parts, maxlen=0)


def factorized(path: Path) -> None:
    """Read a csv file with pandas, and code its columns but the last."""
    frame = pd.read_csv(path)
    for name in frame.columns[:-1]:
        pd.factorize(frame[name], sort=True)


def calls_of(kind: str, paths: dict[str, Path], options: Any) -> dict[str, Call]:
    """What is timed for one kind of file: ours first, then what it is compared with."""
    csv, text = paths["csv"], paths["text"]
    if kind.startswith("stream"):
        path = text if kind == "stream-text" else csv
        ours: dict[str, Call] = {
            f"read_batches {size}": lambda size=size: run_through(  # type: ignore[misc]
                read_batches(path, size, labels=kind == "stream-text")
            )
            for size in options.batch_sizes
        }
        return {**ours, "pandas.chunks": lambda: run_through(pd.read_csv(path, chunksize=options.chunk))}
    if kind == "parquet":
        parquet = csv.with_suffix(".parquet")
        pd.read_csv(csv).to_parquet(parquet)
        return {
            "read_tensor": lambda: read_tensor(parquet, labels=False),
            "pandas.read": lambda: pd.read_parquet(parquet),
        }
    if kind == "tns":
        return {
            "read_tensor": lambda: read_tensor(paths["tns"]),
            "pandas.read": lambda: pd.read_csv(paths["tns"], sep=" ", header=None),
        }
    path = text if kind == "text" else csv
    found: dict[str, Call] = {"read_tensor": lambda: read_tensor(path, labels=kind != "csv")}
    found["pandas.read"] = lambda: pd.read_csv(path)
    return found if kind == "csv" else {**found, "pandas.factorize": lambda: factorized(path)}


def timed(calls: dict[str, Call], repeats: int) -> dict[str, float]:
    """The least CPU seconds of each call."""
    seconds = dict.fromkeys(calls, math.inf)
    for _ in range(repeats):  # in turn, so that what else the machine does meets all of them
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def measure(options: Any) -> list[Row]:
    """Return flat rows: CPU seconds of each reader, and ratios to those of pandas."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = make_files(Path(folder), options.lines, options.seed)
        for kind in options.kinds:
            if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
                rows.append(row("cpu_seconds", None, data=kind, skipped="pyarrow is not installed"))
                continue
            seconds = timed(calls_of(kind, paths, options), options.repeats)
            about = {"data": kind, "lines": options.lines, "seed": options.seed}
            rows += [row("cpu_seconds", best, **about, method=name) for name, best in seconds.items()]
            for peer in [name for name in seconds if name.startswith("pandas")]:
                for name in [name for name in seconds if not name.startswith("pandas")]:
                    ratio = seconds[name] / max(seconds[peer], 1e-9)
                    rows.append(row(f"ratio to {peer}", ratio, **about, method=name))
                    say(f"{kind}: {name} takes {ratio:.2f} of {peer}")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, seed=0)
    p.add_argument("--lines", type=int, default=1_000_000, help="entries in the file (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=5, help="the least of so many timings (default: %(default)s)")
    p.add_argument("--kinds", type=words(*KINDS), default=list(KINDS), help=f"among {', '.join(KINDS)} (default: all)")
    p.add_argument("--batch-sizes", type=numbers, default=[1000], help="entries of a batch (default: 1000)")
    p.add_argument("--chunk", type=int, default=1 << 16, help="lines of pandas' chunks (default: %(default)s)")
    options = p.parse_args(arguments)
    report(measure(options), options.json)


if __name__ == "__main__":
    main()
