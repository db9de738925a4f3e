"""A small Dask cluster on this machine, of processes, for tests."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def sleep(seconds: float) -> None:
    """A task that takes its time."""
    time.sleep(seconds)


@contextlib.contextmanager
def local_client(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """The client of a cluster of processes with one thread each."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    found = os.pathsep.join(str(path) for path in (Path(__file__).parents[1], Path(__file__).parents[2]))
    settings = {"distributed.comm.timeouts.connect": "5s", "distributed.worker.memory.terminate": False}
    with dask.config.set(settings), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", found)  # workers find the helpers of tests
        cluster = distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=None,
            **options,
        )
        with cluster, distributed.Client(cluster) as client:
            yield client
