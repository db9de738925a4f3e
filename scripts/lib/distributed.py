"""Fits of random entries on threads and on the workers of a Dask cluster on this machine, and what a sweep takes."""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPRegressor, SparseTensor
from tensorcep.core.cluster import Cluster
from tensorcep.core.loop import hosted_by
from tensorcep.core.shared_memory import BYTES_READ
from tensorcep.cp.workers.checkpoint import ClusterHost
from tensorcep.methods import CEP, VMP, Gibbs, Laplace

ENGINES: dict[str, Any] = {
    "gibbs": lambda: Gibbs(n_chains=1, weights="equal", noise="sampled"),
    "vmp": lambda: VMP(anneal=0),
    "cep": lambda: CEP(anneal=0, n_starts=1, n_ensemble=1),
    "averaged": lambda: CEP(messages="averaged", damping=0.5, anneal=0, n_starts=1, n_ensemble=1),
    "laplace": lambda: Laplace(anneal=0, n_starts=1),
}


def entries(n: int, seed: int) -> SparseTensor:
    """Entries at random places."""
    rng, shape = np.random.default_rng(seed), (max(8, n // 10), max(8, n // 40), min(500, n))
    cells = np.unique(np.ravel_multi_index([rng.integers(size, size=n) for size in shape], shape))
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    return SparseTensor.from_coo(coords, rng.normal(size=len(coords)), shape)


NAMES = ("wall seconds", "CPU seconds", "MB sent", "MB moved", "MB back", "CPU seconds of the client")


class Meter:
    """A callback that takes seconds, of this process and of workers, and bytes, after every sweep; not its own seconds.

    Dask takes some CPU time of every process each second, whether it has work or not (`idle` of all, and of this
    process): on a machine where sweeps wait for others that grows with the wait. It is left out.
    """

    def __init__(self, cluster: Cluster | None = None):
        self.cluster, self.lines, self.idle, self._own = cluster, list[tuple[float, ...]](), np.zeros(2), 0.0

    def look_at_idle(self, seconds: float = 1.5) -> None:
        """Measure what Dask takes where nothing is done."""
        begin, before = time.perf_counter(), self._cpu()[:2]
        time.sleep(seconds)
        self.idle = np.subtract(self._cpu()[:2], before) / (time.perf_counter() - begin)

    def _cpu(self) -> tuple[float, float, float]:
        """CPU seconds of all and of this process, and bytes that were moved."""
        own, moved = time.process_time(), float(BYTES_READ[0])
        if self.cluster is None:
            return own, own, moved
        told = self.cluster.client.run(_of_worker).values()
        return own + sum(seconds for seconds, _ in told), own, moved + sum(size for _, size in told)

    def __call__(self, *_: Any) -> None:
        now = time.perf_counter()
        cpu, own, moved = self._cpu()
        sent, back = (0, 0) if self.cluster is None else (self.cluster.sent, self.cluster.received)
        wall = now - self._own
        without = np.array([cpu, own]) - self.idle * wall
        self.lines.append((wall, without[0], sent / 1e6, moved / 1e6, back / 1e6, without[1]))
        self._own += time.perf_counter() - now

    def per_sweep(self) -> dict[str, float]:
        """Medians over the sweeps after the first."""
        found = np.median(np.diff(np.array(self.lines), axis=0), axis=0)
        return dict(zip(NAMES, found.tolist(), strict=True))


def _of_worker(dask_worker: Any) -> tuple[float, int]:
    return time.process_time(), dask_worker.transfer_outgoing_bytes_total + BYTES_READ[0]


def fitted(
    data: Any, method: str, meter: Meter, options: argparse.Namespace, threads: int, **given: Any
) -> CPRegressor:
    """The model of a method, fitted for some sweeps."""
    how: dict[str, Any] = {"max_iter": options.sweeps, "tol": 0.0, "random_state": options.seed, "n_jobs": threads}
    how |= {"interactions": "cp", "init": "random", "callbacks": meter}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is asked for
        return CPRegressor(options.ranks[0], method=ENGINES[method](), **how).fit(data, **given)


def on_workers(tensor: SparseTensor, method: str, n: int, options: argparse.Namespace) -> tuple[CPRegressor, Meter]:
    """The same on so many workers."""
    from distributed import Client, LocalCluster

    folder = tempfile.TemporaryDirectory(prefix="tensorcep-")
    local = LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0", memory_limit=None)
    with folder as place, local, Client(local) as client:
        meter = Meter(Cluster(client))
        time.sleep(1.0)  # workers have ended to begin
        meter.look_at_idle()
        with hosted_by(ClusterHost(meter.cluster, Path(place), None, options.parts)):  # type: ignore[arg-type]
            return fitted(tensor, method, meter, options, 1), meter
