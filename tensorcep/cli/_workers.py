"""Options of commands whose work is done by the workers of a Dask cluster."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from tensorcep.core.checks import check_int, fail_value

# What names many files, or a folder of them.
PATTERN = "*?["


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Add --dask-local, --dask-scheduler and --checkpoint."""
    group = parser.add_argument_group("workers (for every method but wopt; no effect on the result)")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--dask-local", type=int, metavar="N", help="start N workers on this machine")
    which.add_argument(
        "--dask-scheduler", metavar="ADDRESS", help="the workers of this Dask scheduler, such as tcp://host:8786"
    )
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="folder that all workers see, where the fit is kept; the same command goes on with a fit that was ended",
    )


def has_workers(args: argparse.Namespace) -> bool:
    """Whether workers are asked for.

    Raises
    ------
    ValueError
        If their number is none, or there is a checkpoint without them.
    """
    if args.dask_local is not None:
        check_int("--dask-local", args.dask_local)
    found = args.dask_local is not None or args.dask_scheduler is not None
    if args.checkpoint is not None and not found:
        fail_value("--checkpoint is for --dask-local and --dask-scheduler; give one of them, or leave it out.")
    return found


@contextlib.contextmanager
def client_of(args: argparse.Namespace) -> Iterator[Any]:
    """The client of the workers that the options name, which end with the block if they began with it."""
    from tensorcep.core.cluster import dask_module

    dask = dask_module("a fit on workers")
    with contextlib.ExitStack() as stack:
        address = args.dask_scheduler
        if args.dask_local is not None:
            local = dask.LocalCluster(n_workers=args.dask_local, threads_per_worker=1, dashboard_address=":0")
            address = stack.enter_context(local)
        try:
            client = stack.enter_context(dask.Client(address))
        except (OSError, ValueError, TimeoutError) as error:
            raise OSError(f"no scheduler answers at {address}; check the address, and that it runs.") from error
        if not args.quiet:
            n = len(client.scheduler_info(n_workers=-1)["workers"])
            print(f"workers     {n}, dashboard at {client.dashboard_link}", flush=True)
        yield client


def fit_on_workers(args: argparse.Namespace, model: Any, read: Callable[[], Any]) -> float:
    """Fit a model to what ``read()`` gives, or to files that the workers read; gives the seconds of the fit."""
    from tensorcep import distributed

    path = args.data
    by_workers = path.endswith(".parquet") and (any(sign in path for sign in PATTERN) or os.path.isdir(path))
    how: dict[str, Any] = {}
    data = None if by_workers else read()
    with client_of(args) as client:
        start = time.perf_counter()
        if by_workers:
            data, how = _table_of(args)
        distributed.fit(model, data, client=client, checkpoint=args.checkpoint, **how)
        return time.perf_counter() - start


def _table_of(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The table of Dask of parquet files, and which of its columns are the modes and the value."""
    tables = importlib.import_module("dask.dataframe")
    frame = tables.read_parquet(args.data)
    names = list(frame.columns)
    value = None if args.count else args.value or names[-1]
    return frame, {"modes": args.modes or [name for name in names if name != value], "value": value}
