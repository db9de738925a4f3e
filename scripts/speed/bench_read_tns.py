"""Time read_tensor on a .tns file against pandas.read_csv of the same file, in the same process.

`pandas.read_csv` is `pandas.read_csv(path, sep=" ", header=None)`, which from pandas 3.1 on reads in several threads;
`pandas.read_csv chunks` the same with a chunksize, which is always one thread. Neither checks anything. `read_tensor`
reads blocks in threads, checks every number, counts from 0, packs the indices and looks for repeated cells.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.entries.io import read_tensor, write_tensor
from tensorcep.entries.tensor import SparseTensor

SHAPE = (100_000, 20_000, 5_000)
CHUNK = 1 << 18


def make_file(path: Path, lines: int, seed: int) -> None:
    """Write `lines` entries in distinct random cells, with normal values of six decimals."""
    rng = np.random.default_rng(seed)
    cells = SparseTensor.from_coo(np.empty((0, 3)), [], SHAPE).sample_zeros(lines, random_state=rng)
    write_tensor(SparseTensor.from_coo(cells.coords, rng.standard_normal(lines).round(6), SHAPE), path)


def read_in_chunks(path: Path) -> None:
    """Go through a file with pandas in chunks, keeping nothing."""
    with pd.read_csv(path, sep=" ", header=None, chunksize=CHUNK) as chunks:
        collections.deque(chunks, maxlen=0)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(lines: int, seed: int, repeats: int) -> list[dict[str, Any]]:
    """Return flat rows: seconds of each reader, and the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "entries.tns"
        make_file(path, lines, seed)
        readers: dict[str, Callable[[], object]] = {
            "read_tensor": lambda: read_tensor(path),
            "pandas.read_csv": lambda: pd.read_csv(path, sep=" ", header=None),
            "pandas.read_csv chunks": lambda: read_in_chunks(path),
        }
        seconds = dict.fromkeys(readers, math.inf)
        for _ in range(repeats):  # in turn, so that what else the machine does meets all of them
            for name, reader in readers.items():
                seconds[name] = min(seconds[name], timed(reader))
        megabytes = path.stat().st_size / 1e6
    common = {"data": "simulated", "lines": lines, "megabytes": round(megabytes, 1), "seed": seed}
    rows = [{**common, "method": m, "metric": "seconds", "value": s, "seconds": s} for m, s in seconds.items()]
    for name in ("pandas.read_csv", "pandas.read_csv chunks"):
        ratio = seconds["read_tensor"] / seconds[name]
        rows.append({**common, "method": "read_tensor", "metric": f"ratio to {name}", "value": ratio, "seconds": None})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000, help="entries in the file (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many timings (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON to this file, or to stdout with -")
    options = parser.parse_args(arguments)
    rows = measure(options.lines, options.seed, options.repeats)
    text = json.dumps(rows, indent=1)
    if options.json == "-":
        sys.stdout.write(text + "\n")
        return
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    for row in rows:
        print(f"{row['method']:24} {row['metric']:32} {row['value']:.3f}")


if __name__ == "__main__":
    main()
