"""One sweep on the workers of a Dask cluster on this machine, beside the same sweep on threads: bits, seconds, bytes.

Entries are at random places of a tensor of n / 10 x n / 40 x 500 rows. Every fit has the same start and seed. Seconds
are medians over the sweeps after the first: "wall seconds", "CPU seconds" of this process and all workers. "MB sent"
are the rows that this process gives to workers, "MB out of workers" what these give to each other and to it, of which
"MB back" the new rows or sums. "same bits" is 1 where factors and changes equal those of one thread. The first sweep,
which is left out, writes the files of entries.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from tensorcep import CPRegressor, SparseTensor
from tensorcep.core.cluster import Cluster
from tensorcep.core.host import hosted_by
from tensorcep.cp.workers.host import ClusterHost
from tensorcep.methods import VMP, Gibbs

ENGINES: dict[str, Any] = {
    "gibbs": lambda: Gibbs(n_chains=1, weights="equal", noise="sampled"),
    "vmp": lambda: VMP(anneal=0),
}


def entries(n: int, seed: int) -> SparseTensor:
    """Entries at random places."""
    rng, shape = np.random.default_rng(seed), (max(8, n // 10), max(8, n // 40), min(500, n))
    coords = np.unique(np.stack([rng.integers(size, size=n) for size in shape], axis=1), axis=0)
    return SparseTensor.from_coo(coords, rng.normal(size=len(coords)), shape)


class Meter:
    """A callback that takes seconds, of this process and of workers, and bytes, after every sweep."""

    def __init__(self, cluster: Cluster | None = None):
        self.cluster, self.lines = cluster, []

    def __call__(self, *_: Any) -> None:
        cpu, between, sent, back = time.process_time(), 0.0, 0, 0
        if self.cluster is not None:
            told = self.cluster.client.run(_of_worker)
            cpu += sum(seconds for seconds, _ in told.values())
            between = float(sum(size for _, size in told.values()))
            sent, back = self.cluster.sent, self.cluster.received
        self.lines.append((time.perf_counter(), cpu, sent / 1e6, between / 1e6, back / 1e6))

    def per_sweep(self) -> dict[str, float]:
        """Medians over the sweeps after the first."""
        found = np.median(np.diff(np.array(self.lines), axis=0), axis=0)
        names = ("wall seconds", "CPU seconds", "MB sent", "MB out of workers", "MB back")
        return dict(zip(names, found.tolist(), strict=True))


def _of_worker(dask_worker: Any) -> tuple[float, int]:
    return time.process_time(), dask_worker.transfer_outgoing_bytes_total


def fitted(tensor: SparseTensor, method: str, meter: Meter, options: argparse.Namespace, threads: int) -> CPRegressor:
    """The model of a method, fitted for some sweeps."""
    how: dict[str, Any] = {"max_iter": options.sweeps, "tol": 0.0, "random_state": options.seed, "n_jobs": threads}
    how |= {"interactions": "cp", "init": "random", "callbacks": meter}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is asked for
        return CPRegressor(options.ranks[0], method=ENGINES[method](), **how).fit(tensor)


def on_workers(tensor: SparseTensor, method: str, n: int, options: argparse.Namespace) -> tuple[CPRegressor, Meter]:
    """The same on so many workers."""
    from distributed import Client, LocalCluster

    folder = tempfile.TemporaryDirectory(prefix="tensorcep-")
    local = LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0", memory_limit=None)
    with folder as place, local, Client(local) as client:
        meter = Meter(Cluster(client))
        with hosted_by(ClusterHost(meter.cluster, Path(place), None, options.parts)):  # type: ignore[arg-type]
            return fitted(tensor, method, meter, options, 1), meter


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
    given = options.parse_args(argv)
    rows: list[Row] = []
    for n in given.entries:
        tensor = entries(n, given.seed)
        for method in given.engines:
            rows += rows_of(tensor, method, given)
    report(rows, given.json)


if __name__ == "__main__":
    main()
