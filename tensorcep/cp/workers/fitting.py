"""Fits whose row updates, or whose entries, are the work of a cluster."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.cluster import TIMEOUT, Cluster, checked_client, dask_module
from tensorcep.core.host import hosted_by
from tensorcep.cp.workers.host import ClusterHost
from tensorcep.entries.dask_frames import frame_of_dask
from tensorcep.entries.tables import UNSAID, is_of

# Sweeps between two states that are stored.
EVERY = 5


class OnWorkers(NamedTuple):
    """How a fit is spread over workers; see `tensorcep.distributed.fit`."""

    client: Any = None
    checkpoint: str | os.PathLike[str] | None = None
    every: int = EVERY
    n_parts: int | None = None
    timeout: float = TIMEOUT


def fit_on_workers(model: Any, X: Any, y: Any, how: OnWorkers, strict: bool, **rest: Any) -> Any:
    """Fit a model as ``model.fit(X, y, **rest)`` does; unless `strict`, here if workers cannot.

    A table of Dask is read by the workers.
    """
    cluster = Cluster(active_client() if how.client is None else how.client, how.timeout)
    every = check_int("every", how.every)
    n_parts = how.n_parts if how.n_parts is None else check_int("n_parts", how.n_parts)
    with _folders(how.checkpoint) as (parts, runs):
        _check_seen(cluster, parts)
        if is_of(X, "dask"):
            value = rest.get("value", UNSAID)
            named = value is not UNSAID and value is not None
            X = frame_of_dask(X, rest.get("modes"), value, named, cluster)
            rest["modes"] = [name for name in X.columns if not named or name != value]
        host = ClusterHost(cluster, parts, runs, n_parts, every, strict)
        with hosted_by(host):
            model.fit(X, y, **rest)
        host.end()
        return model


def active_client() -> Any:
    """The client of Dask that is active.

    Raises
    ------
    ValueError
        If there is none.
    """
    dask = dask_module("a fit on workers")
    try:
        return checked_client(dask.get_client())
    except ValueError:
        fail_value("there is no active Dask client; make one, or give client=.")


@contextlib.contextmanager
def _folders(checkpoint: str | os.PathLike[str] | None) -> Iterator[tuple[Path, Path | None]]:
    """Where entries and runs are stored."""
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="tensorcep-") as temporary:
            yield Path(temporary), None
        return
    folder = Path(checkpoint).absolute()
    if folder.exists() and not folder.is_dir():
        fail_value(f"checkpoint must be a folder; '{folder}' is a file.")
    parts = folder / "entries"
    parts.mkdir(parents=True, exist_ok=True)
    yield parts, folder


def _check_seen(cluster: Cluster, folder: Path) -> None:
    """Refuse a folder that workers do not see."""
    seen = cluster.client.run(os.path.isdir, str(folder))
    blind = [worker for worker, sees in seen.items() if not sees]
    if blind:
        fail_value(f"worker {blind[0]} does not see '{folder}'; give checkpoint=, a folder that all workers see.")
