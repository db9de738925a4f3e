"""
Fit on Dask workers
===================

A scheduler and two workers as processes of their own, reached through TCP.

``python scripts/examples/dask_workers.py [FILES.parquet ...]``: the last column is the value, every other one a mode.

On several machines start `dask scheduler` on one and `dask worker tcp://HOST:8786 --nthreads 1` on each, give the
scheduler's address to Client, and let checkpoint be a folder that all of them see.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import dask.dataframe as dd
from distributed import Client

from tensorcep import CPRegressor, datasets, distributed

folder = Path(tempfile.mkdtemp(prefix="tensorcep-"))
if not (files := sys.argv[1:]):  # responses to IL-2: ligand x time x dose x cell; comes with TensorLy
    files = [str(folder / "entries.parquet")]
    datasets.load_il2().to_pandas().to_parquet(files[0])

at = ["--scheduler-file", str(folder / "scheduler.json")]
scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"]
worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard"]
processes = [subprocess.Popen([sys.executable, "-m", *one, *at]) for one in (scheduler, worker, worker)]
try:
    with Client(scheduler_file=at[1]) as client:
        client.wait_for_workers(2)
        frame = dd.read_parquet(files)
        *modes, value = frame.columns
        model = CPRegressor(3, method="gibbs", max_iter=40, lower_limit=None, random_state=0)
        distributed.fit(model, frame, modes=modes, value=value, client=client, checkpoint=folder / "fit")
        print(f"{model.n_samples_seen_} entries, {model.n_iter_} sweeps on {client}")
        print(distributed.predict(model, frame).head().round(2))
finally:
    for process in reversed(processes):
        process.terminate()
        process.wait()
