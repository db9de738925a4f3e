"""One sweep on the workers of a Dask cluster on this machine, beside the same sweep on threads: bits, seconds, bytes.

Entries are at random places of a tensor of n / 10 x n / 40 x 500 rows. Every fit has the same start and seed. Seconds
are medians over the sweeps after the first: "wall seconds", "CPU seconds" of this process and all workers, without what
Dask takes when idle, and of this process alone. "MB sent" are the rows that this process sends to workers, "MB moved"
what these send to each other and to it, and what processes of a machine take of each other from its memory; "MB back"
of it are the new rows or sums. "same bits" is 1 where factors and changes equal those of one thread. The first sweep,
which is left out, writes the files of entries.

With --parquet the entries are instead lines of parquet files in that folder, written first unless they are there, with
text as the keys of the first two modes. One fit from end to end on as many workers: seconds, wall and CPU, until the
first sweep ended, of a sweep after it and of all, and the most memory that this process, and a worker, held.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from scripts.lib.distributed import ENGINES, Meter, entries, fitted, on_workers
from tensorcep import CPRegressor, SparseTensor
from tensorcep.core.cluster import Cluster

# Lines of a parquet file.
LINES = 1_000_000


def written(folder: Path, n: int, seed: int) -> list[str]:
    """Parquet files of n entries in all, each of a million lines at most."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, shape, names = np.random.default_rng(seed), (max(8, n // 10), max(8, n // 40), 500), []
    for first in range(0, n, LINES):
        path = folder / f"{n}-{first}.parquet"
        names.append(str(path))
        user, item, day = (rng.integers(size, size=min(LINES, n - first)) for size in shape)
        if path.is_file():
            continue
        frame = pd.DataFrame({"user": user, "item": item, "day": day, "stars": rng.normal(size=len(user))})
        for name in ("user", "item"):
            frame[name] = name + frame[name].astype(str)
        frame.to_parquet(path, index=False)
    return names


def _peak() -> tuple[float, float]:
    """The most memory that this process held, in MB, and its CPU seconds."""
    lines = Path("/proc/self/status").read_text().splitlines()  # getrusage counts what the parent held at its birth
    return next(float(one.split()[1]) / 1e3 for one in lines if one.startswith("VmHWM")), time.process_time()


def from_parquet(n: int, n_workers: int, method: str, options: argparse.Namespace) -> list[Row]:
    """One fit of parquet files by workers, from end to end."""
    import dask.dataframe
    from distributed import Client, LocalCluster

    names = written(Path(options.parquet), n, options.seed)
    local = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=None)
    with local, Client(local) as client:
        meter, begin, before = Meter(Cluster(client)), time.perf_counter(), time.process_time()
        how = {"modes": ["user", "item", "day"], "value": "stars"}
        fitted(dask.dataframe.read_parquet(names), method, meter, options, 1, **how)
        wall, peaks = time.perf_counter() - begin, client.run(_peak)
        cpu = time.process_time() - before + sum(seconds for _, seconds in peaks.values())
        found = {"wall seconds of all": wall, "CPU seconds of all": cpu}
        found |= {"wall seconds to first sweep": meter.lines[0][0] - begin}
        found |= {"CPU seconds to first sweep": meter.lines[0][1] - before}
        found |= {f"{name} of a sweep": meter.per_sweep()[name] for name in ("wall seconds", "CPU seconds")}
        found |= {"MB of this process": _peak()[0], "MB of a worker": max(size for size, _ in peaks.values())}
    say(f"{method}, {n} lines of parquet, {n_workers} workers: " + ", ".join(f"{v:.3g} {k}" for k, v in found.items()))
    others = {"data": "parquet", "method": method, "entries": n, "rank": options.ranks[0], "workers": n_workers}
    return [row(name, value, **others) for name, value in found.items()]


def rows_of(tensor: SparseTensor, method: str, options: argparse.Namespace) -> list[Row]:
    """The rows of a method."""
    found: list[Row] = []
    known: CPRegressor | None = None
    for kind, n in [("threads", n) for n in options.threads] + [("workers", n) for n in options.workers]:
        say(f"{method}, {tensor.nnz} entries, {n} {kind}")
        if kind == "threads":
            meter = Meter()
            model = fitted(tensor, method, meter, options, n)
        else:
            model, meter = on_workers(tensor, method, n, options)
        known = model if known is None else known
        same = all(np.array_equal(a, b) for a, b in zip(model.factors_, known.factors_, strict=True))
        same = same and np.array_equal(model.trace_["change"], known.trace_["change"])
        others = {"data": "random", "method": method, "entries": tensor.nnz, "rank": options.ranks[0], kind: n}
        found.append(row("same bits", float(same), **others))
        told = meter.per_sweep()
        say(f"  same bits: {same}; " + ", ".join(f"{value:.3g} {name}" for name, value in told.items()))
        found += [row(name, value, **others) for name, value in told.items()]
    return found


def main(argv: list[str] | None = None) -> None:
    options = parser(__doc__, ranks="8", sweeps=5, seed=0, threads="1,2")
    options.add_argument("--entries", type=numbers, default="2e6", help="numbers of entries (default: 2e6)")
    options.add_argument("--engines", type=words(*ENGINES), default="gibbs,vmp", help="default: gibbs,vmp")
    options.add_argument("--workers", type=numbers, default="1,2", help="numbers of workers (default: 1,2)")
    options.add_argument("--parts", type=int, default=None, help="ranges of each mode (default: by the entries)")
    options.add_argument("--parquet", metavar="DIR", default=None, help="fit parquet files of this folder, on workers")
    given = options.parse_args(argv)
    rows: list[Row] = []
    if given.parquet is not None:
        rows += [
            one
            for n in given.entries
            for m in given.engines
            for w in given.workers
            for one in from_parquet(n, w, m, given)
        ]
        report(rows, given.json)
        return
    for n in given.entries:
        tensor = entries(n, given.seed)
        for method in given.engines:
            rows += rows_of(tensor, method, given)
    report(rows, given.json)


if __name__ == "__main__":
    main()
