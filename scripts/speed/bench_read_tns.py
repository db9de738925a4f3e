"""Time read_tensor on a .tns file against pandas.read_csv of the same file, in the same process.

`pandas.read_csv` is `pandas.read_csv(path, sep=" ", header=None)`, which from pandas 3.1 on reads in several threads;
`pandas.read_csv chunks` the same with a chunksize, which is always one thread. Neither checks anything. `read_tensor`
reads blocks in threads, checks every number, counts from 0, packs the indices and looks for repeated cells.
"""

from __future__ import annotations

import collections
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.lib.common import Row, parser, report, row
from tensorcep.entries.io import read_tensor, write_tensor
from tensorcep.entries.sparse_tensor import SparseTensor

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


def measure(lines: int, seed: int, repeats: int) -> list[Row]:
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
    about = {"data": "simulated", "lines": lines, "megabytes": round(megabytes, 1), "seed": seed}
    rows = [row("seconds", best, **about, method=name, seconds=best) for name, best in seconds.items()]
    for name in ("pandas.read_csv", "pandas.read_csv chunks"):
        rows.append(row(f"ratio to {name}", seconds["read_tensor"] / seconds[name], **about, method="read_tensor"))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, seed=0)
    p.add_argument("--lines", type=int, default=1_000_000, help="entries in the file (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=5, help="the best of so many timings (default: %(default)s)")
    options = p.parse_args(arguments)
    report(measure(options.lines, options.seed, options.repeats), options.json)


if __name__ == "__main__":
    main()
