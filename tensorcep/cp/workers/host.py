"""Fits on workers: the call, checks, and checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep import __version__
from tensorcep.core.arrays import on_scratch
from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.cluster import TIMEOUT, Cluster, checked_client, dask_module
from tensorcep.core.executor import Executor, ThreadExecutor
from tensorcep.core.loop import StoredRun, Sweep, hosted_by
from tensorcep.core.persist.archive import read_archive, write_archive
from tensorcep.core.persist.records import merge, read_as, split, tree_of
from tensorcep.cp.methods import proposes_rows, why_unable
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.workers.ep_pass import can_be_passed
from tensorcep.cp.workers.executor import ClusterExecutor
from tensorcep.cp.workers.partitions import parts_for
from tensorcep.cp.workers.site_files import Shelf
from tensorcep.cp.workers.snapshot import ChainsNow, MessagesNow, RowsNow, kept_of, restored, snapshot_of, stored_by
from tensorcep.entries.dask import frame_of_dask
from tensorcep.entries.tables import UNSAID, is_of

# A fit on the workers of a cluster: what it takes, and what is kept of it, so that it can go on after any end.
#
# The runs of a plan follow each other in a fixed order. Of each the state is stored every few sweeps and at its end;
# the same fit with the same folder goes on from there, to the same bits.

KIND, VERSION = "tensorcep.checkpoint", 1
SNAPSHOTS = {"ChainsNow": ChainsNow, "RowsNow": RowsNow, "MessagesNow": MessagesNow}
# Entries hashed at a time.
BLOCKS = 1 << 16


class ClusterHost:
    """Runs on the workers of a cluster, kept in a folder.

    Parameters
    ----------
    cluster : Cluster
    folder : Path
        Of the entries, which this process writes and workers read.
    checkpoint : Path or None
        Where runs are stored; None: nowhere.
    n_parts : int or None
        Ranges that each mode is cut into; None: by the number of entries.
    every : int
        Sweeps between two states that are stored.
    strict : bool
        Whether a fit that workers cannot do is refused; else it is done here.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        checkpoint: Path | None,
        n_parts: int | None = None,
        every: int = 5,
        strict: bool = True,
    ):
        self._cluster, self._folder, self._checkpoint = cluster, folder, checkpoint
        self._n_parts, self._every, self._n_runs, self._n_kept = n_parts, every, 0, 0
        self._method, self._strict, self._here = "", strict, False
        self._shelf = Shelf((checkpoint or folder) / "messages")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a fit that workers cannot do, or that is not the one in the folder.

        Chains that may turn rows down, which are for few entries, run here.

        Raises
        ------
        ValueError
            With what they can do.
        """
        reason = _why_not(plan)
        if reason is not None and self._strict:
            fail_value(f"{reason}; fit it in one process.")
        self._here = reason is not None or proposes_rows(plan.engine.method.name, plan.problem.likelihood)
        if self._checkpoint is not None and not self._here:
            self._check_folder(self._checkpoint, _print_of(plan))

    def _check_folder(self, folder: Path, fingerprint: str) -> None:
        path = folder / "fit.npz"
        if not path.is_file():
            write_archive(path, KIND, VERSION, {"fit": fingerprint}, {})
            return
        header, _ = read_archive(path, KIND, VERSION)
        if header.get("fit") != fingerprint:
            fail_value(
                f"'{folder}' holds a fit of other entries, settings or seed, or of another version of tensorcep; name "
                "another folder."
            )

    def executor(self, n_threads: int) -> Executor:
        """Who runs the kernels of a run."""
        if self._here:
            return ThreadExecutor(n_threads)
        return ClusterExecutor(self._cluster, self._folder, n_threads, self._shelf)

    def begin(self, method: Any, problem: Problem, state: Any, executor: Any, kept: bool) -> StoredRun:
        """The next run, up to the last sweep that is stored."""
        if self._here:
            return StoredRun(state, [], [])
        self._n_runs, self._n_kept, self._method = self._n_runs + 1, 0, method.name
        n_parts = self._n_parts or parts_for(len(problem.entries.permutation))
        executor.begin(problem, n_parts)
        path = self._path("run")
        if path is None or not kept or not path.is_file():
            return StoredRun(state, [], [])
        header, arrays = read_archive(path, KIND, VERSION)
        if header["method"] != method.name:
            fail_value(f"'{path}' is of a run of {header['method']}, not {method.name}; name another folder.")
        sweeps = [Sweep(*line) for line in arrays.pop("sweeps").tolist()]
        seconds = arrays.pop("seconds").tolist()
        snapshot = read_as(SNAPSHOTS[header["kind_of_state"]], merge(header["state"], arrays), "")
        return self._restored(
            StoredRun(snapshot, sweeps, seconds, header["ended"], header["stopped"]), state, problem, executor
        )

    def _restored(self, stored: StoredRun, state: Any, problem: Problem, executor: Executor) -> StoredRun:
        kept: list[np.ndarray] = []
        for d in range(getattr(stored.state, "n_kept", 0)):
            kept.append(read_archive(str(self._path("draw", d)), KIND, VERSION)[1]["rows"])
        self._n_kept = len(kept)
        found = restored(stored.state, tuple(kept), state, problem, executor)
        if isinstance(stored.state, MessagesNow):
            self._hold(stored.state, found, moved=True)
        return stored._replace(state=found)

    def end(self) -> None:
        """The fit has ended, and nobody needs messages any more."""
        self._shelf.end()

    def keep(self, run: StoredRun) -> None:
        """Store a new draw, and every few sweeps and at the end of a run the rest of its state."""
        kept = kept_of(run.state)
        for d in range(self._n_kept, len(kept)):
            path = self._path("draw", d)
            if path is not None:
                write_archive(path, KIND, VERSION, {}, {"rows": kept[d]})
        self._n_kept = len(kept)
        path = self._path("run")
        if path is not None and (run.ended or run.stopped or len(run.sweeps) % self._every == 0):
            snapshot = snapshot_of(run.state, self._shelf)
            tree, arrays = split(tree_of(snapshot))
            header = {"method": self._method, "kind_of_state": type(snapshot).__name__, "state": tree}
            header |= {"ended": run.ended, "stopped": run.stopped}
            lines = np.array(run.sweeps, dtype=float).reshape(-1, len(Sweep._fields))
            write_archive(path, KIND, VERSION, header, {**arrays, "sweeps": lines, "seconds": np.array(run.seconds)})
            if isinstance(snapshot, MessagesNow):
                self._hold(snapshot, run.state, moved=False)

    def _hold(self, snapshot: MessagesNow, state: Any, moved: bool) -> None:
        """Keep the files of a snapshot's messages; `moved`: they are those of the state from now on."""
        own = stored_by(snapshot, self._shelf, state)
        if own is None:
            return
        if moved:
            self._shelf.move(state.messages.Lam, own)
        self._shelf.hold(self._n_runs, own)

    def _path(self, what: str, *number: int) -> Path | None:
        numbers = "".join(f"-{n:04d}" for n in (self._n_runs, *number))
        return None if self._checkpoint is None or self._here else self._checkpoint / f"{what}{numbers}.npz"


def _why_not(plan: Plan) -> str | None:
    """Why workers cannot do a plan; None if they can."""
    problem, likelihood = plan.problem, plan.problem.likelihood
    unable = why_unable(plan.engine.settings, "workers", "cannot be done by workers", likelihood)
    if unable is not None:
        return unable
    if problem.uneven is not None or problem.fixed is not None:
        return "workers fit entries of one noise or dispersion, without fixed modes"
    if plan.engine.method.capabilities.passes_messages and not can_be_passed(likelihood):
        return f"workers pass no messages of the likelihood {likelihood.name!r}"
    if any(clock is not None for clock in problem.prior.clocks):
        return "workers do not fit rows that are a series or a graph"
    if on_scratch(problem.entries.y):
        return "workers take entries that lie in memory, not on scratch"
    return None


def _print_of(plan: Plan) -> str:
    """What tells a fit from others: entries, settings and seed, and the version."""
    problem, entries, options, policy = plan.problem, plan.problem.entries, plan.options, plan.policy
    method, given = plan.engine
    of_run = (options.max_iter, options.tol, policy.members, len(policy.quick_fits))
    settings = (method.name, given.get_params(), *of_run)
    likelihood = (problem.likelihood.name, problem.likelihood.limit, problem.likelihood.side)
    said = (__version__, problem.shape, problem.rank, problem.seed, len(entries.permutation), settings, likelihood)
    found = hashlib.blake2b(repr(said).encode(), digest_size=16)
    for arrays in ((problem.prior.Lam, problem.prior.eta), () if problem.start is None else (problem.start,)):
        for array in arrays:
            found.update(np.ascontiguousarray(array).tobytes())
    beside = [array for array in (entries.theta, entries.known, problem.power) if array is not None and len(array)]
    for first in range(0, len(entries.y), BLOCKS):
        for array in (entries.rows, entries.y, *beside):
            found.update(np.ascontiguousarray(array[first : first + BLOCKS]).tobytes())
    return found.hexdigest()


# Fits whose row updates, or whose entries, are the work of a cluster.

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
