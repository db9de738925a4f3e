"""A small Dask cluster on this machine, of processes, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
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
    settings = {
        "distributed.comm.timeouts.connect": "5s",
        "distributed.deploy.lost-worker-timeout": "300s",  # a worker that was killed comes back
        "distributed.worker.memory.terminate": False,
    }
    with dask.config.set(settings), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", found)  # workers find the helpers of tests
        cluster = distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=None,
            **options,
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


@contextlib.contextmanager
def tcp_processes(folder: Path, n_workers: int = 2) -> Iterator[tuple[str, Any]]:
    """A scheduler and workers as processes of their own: its address, and the process of the scheduler."""
    folder.mkdir(exist_ok=True)
    at = folder / "scheduler.json"
    root = Path(__file__).parents[2]
    env = {
        **os.environ,
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
    }
    start = [sys.executable, "-m"]
    scheduler = [
        *start,
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--dashboard-address",
        ":0",
    ]
    worker = [*start, "distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
    quiet: dict[str, Any] = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen([*scheduler, "--scheduler-file", str(at)], **quiet)]
    try:
        end = time.monotonic() + 60.0
        while not at.is_file() and time.monotonic() < end:
            time.sleep(0.05)
        processes += [subprocess.Popen([*worker, "--scheduler-file", str(at)], **quiet) for _ in range(n_workers)]
        yield json.loads(at.read_text())["address"], processes[0]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
