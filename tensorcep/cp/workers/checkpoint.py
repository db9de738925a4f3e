"""Fits on the workers of a cluster: the call, what is refused, and checkpoints.

The runs of a plan follow each other in a fixed order. Of each the state is stored every few sweeps and at its end; the
same fit with the same folder goes on from there, to the same bits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from tensorcep.core.persist.records import RECORD, merge, split
from tensorcep.core.settings import lacking
from tensorcep.cp.methods import listed, proposes_rows, why_unable
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.workers.executor import ClusterExecutor, is_shared
from tensorcep.cp.workers.partitions import parts_for
from tensorcep.cp.workers.site_files import SiteFiles, StoredSites
from tensorcep.entries.dask import frame_of_dask
from tensorcep.entries.tables import UNSAID, is_of
from tensorcep.priors.base import clocks_of

KIND, VERSION = "tensorcep.checkpoint", 2
# Entries hashed at a time.
BLOCKS = 1 << 16


# A state as a tree: records by their modules and names, with all but what `remade` of a record says that is made again.
# What is no number, text or array stays as it is at the beginning of the run.
SAME, GROWN, SITES = "same", "grown", "sites"


class StateTree(NamedTuple):
    """A state as a tree, the arrays of its tuples that grow, by their paths, and the sites that it has."""

    tree: Any
    grown: dict[str, tuple[np.ndarray, ...]]
    sites: list[StoredSites]


def tree_of_state(state: Any, sites: SiteFiles, growing: Collection[str]) -> StateTree:
    """A state to be stored; arrays of tuples whose paths are `growing` are never changed."""
    found = StateTree(None, {}, [])
    return found._replace(tree=_tree(state, "", found, sites, growing))


def _tree(value: Any, path: str, found: StateTree, sites: SiteFiles, growing: Collection[str]) -> Any:
    if hasattr(value, "_fields"):
        stored = sites.get(value)
        if stored is not None:
            found.sites.append(stored)
            return {RECORD: SITES, **stored.tree()}
        names = [name for name in value._fields if name not in (value.remade() if hasattr(value, "remade") else ())]
        parts = {name: _tree(getattr(value, name), f"{path}.{name}", found, sites, growing) for name in names}
        return {RECORD: f"{type(value).__module__}:{type(value).__name__}", **parts}
    if path in growing and value and all(isinstance(one, np.ndarray) for one in value):
        found.grown[path] = value
        return {RECORD: GROWN, "path": path, "n": len(value)}
    if isinstance(value, tuple):
        return [_tree(one, f"{path}.{n}", found, sites, growing) for n, one in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray)):
        return value
    return value.item() if isinstance(value, np.generic) else {RECORD: SAME}


def empty_tuples(state: Any, path: str = "") -> set[str]:
    """The paths of what has nothing yet, and may grow."""
    if isinstance(state, tuple) and not state:
        return {path}
    if not isinstance(state, tuple) or not hasattr(state, "_fields"):
        return set()
    names = [name for name in state._fields if not hasattr(state, "remade") or name not in state.remade()]
    return set().union(*(empty_tuples(getattr(state, name), f"{path}.{name}") for name in names))


def state_of(tree: Any, state: Any, grown: Sequence[Mapping[str, np.ndarray]], sites: SiteFiles) -> Any:
    """The state of a tree; what is not in it is as in the `state` with which the run began."""
    if isinstance(tree, list):
        known = state if isinstance(state, tuple) and len(state) == len(tree) else (None,) * len(tree)
        return tuple(state_of(*pair, grown, sites) for pair in zip(tree, known, strict=True))
    if not isinstance(tree, dict):
        return tree
    kind = tree.pop(RECORD)
    if kind == SAME:
        return state
    if kind == GROWN:
        return tuple(draw[tree["path"]] for draw in grown[: tree["n"]])
    if kind == SITES:
        sites.move(state, sites.get(state).at(**tree))  # type: ignore[union-attr]
        return state
    fields = {name: state_of(one, getattr(state, name, None), grown, sites) for name, one in tree.items()}
    module, _, name = kind.partition(":")
    if f"{type(state).__module__}:{type(state).__name__}" == kind:
        return state._replace(**fields)
    record: Any = getattr(importlib.import_module(module), name) if module.startswith("tensorcep.") else None
    if not hasattr(record, "_fields"):
        raise ValueError(f"{kind!r} is no record")
    return record(**fields)


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
        self._n_parts, self._every, self._n_runs, self._n_draws = n_parts, every, 0, 0
        self._method, self._growing, self._strict, self._here = "", set[str](), strict, False
        self._sites = SiteFiles((checkpoint or folder) / "messages")

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
            fail_value(f"{reason}.")
        self._here = reason is not None or proposes_rows(plan.engine.method.name, plan.problem.likelihood)
        if self._checkpoint is not None and not self._here:
            self._check_folder(self._checkpoint, _print_of(plan))

    def _check_folder(self, folder: Path, fingerprint: str) -> None:
        path = folder / "fit.npz"
        if not path.is_file():
            write_archive(path, KIND, VERSION, {"fit": fingerprint}, {})
            return
        header, _ = read_archive(path, KIND, VERSION)
        if header["version"] < VERSION:
            fail_value(
                f"'{folder}' holds a fit in format version {header['version']}, and this tensorcep reads version "
                f"{VERSION} only; name another folder."
            )
        if header.get("fit") != fingerprint:
            fail_value(
                f"'{folder}' holds a fit of other entries, settings or seed, or of another version of tensorcep; name "
                "another folder."
            )

    def executor(self, n_threads: int) -> Executor:
        """Who runs the kernels of a run."""
        if self._here:
            return ThreadExecutor(n_threads)
        return ClusterExecutor(self._cluster, self._folder, n_threads, self._sites)

    def begin(self, method: Any, problem: Problem, state: Any, executor: Any, kept: bool) -> StoredRun:
        """The next run, up to the last sweep that is stored."""
        if self._here:
            return StoredRun(state, [], [])
        self._n_runs, self._n_draws, self._method, self._growing = self._n_runs + 1, 0, method.name, empty_tuples(state)
        executor.begin(problem, self._n_parts or parts_for(len(problem.entries.permutation)))
        path = self._path("run")
        if path is None or not kept or not path.is_file():
            return StoredRun(state, [], [])
        header, arrays = read_archive(path, KIND, VERSION)
        if header["method"] != method.name:
            fail_value(f"'{path}' is of a run of {header['method']}, not {method.name}; name another folder.")
        sweeps = [Sweep(*line) for line in arrays.pop("sweeps").tolist()]
        seconds, self._n_draws = arrays.pop("seconds").tolist(), header["draws"]
        draws = [read_archive(str(self._path("draw", d)), KIND, VERSION)[1] for d in range(self._n_draws)]
        state = state_of(merge(header["state"], arrays), state, draws, self._sites)
        for stored in tree_of_state(state, self._sites, self._growing).sites:
            self._sites.hold(self._n_runs, stored)
        state = method.resume(state, problem, executor)
        return StoredRun(state, sweeps, seconds, header["ended"], header["stopped"])

    def end(self) -> None:
        """The fit has ended, and nobody needs messages any more."""
        self._sites.end()

    def keep(self, run: StoredRun) -> None:
        """Store a new draw, and every few sweeps and at the end of a run the rest of its state."""
        path, found = self._path("run"), tree_of_state(run.state, self._sites, self._growing)
        n_draws = max((len(arrays) for arrays in found.grown.values()), default=0)
        for d in range(self._n_draws, n_draws):
            new = {name: arrays[d] for name, arrays in found.grown.items() if d < len(arrays)}
            if path is not None:
                write_archive(self._path("draw", d), KIND, VERSION, {}, new)  # type: ignore[arg-type]
        self._n_draws = n_draws
        if path is None or not (run.ended or run.stopped or len(run.sweeps) % self._every == 0):
            return
        tree, arrays = split(found.tree)
        header = {"method": self._method, "state": tree, "draws": n_draws, "ended": run.ended, "stopped": run.stopped}
        lines = np.array(run.sweeps, dtype=float).reshape(-1, len(Sweep._fields))
        write_archive(path, KIND, VERSION, header, {**arrays, "sweeps": lines, "seconds": np.array(run.seconds)})
        for stored in found.sites:
            self._sites.hold(self._n_runs, stored)

    def _path(self, what: str, *number: int) -> Path | None:
        numbers = "".join(f"-{n:04d}" for n in (self._n_runs, *number))
        return None if self._checkpoint is None or self._here else self._checkpoint / f"{what}{numbers}.npz"


def _why_not(plan: Plan) -> str | None:
    """Why workers cannot do a plan, and what can be done; None if they can."""
    problem, likelihood, settings = plan.problem, plan.problem.likelihood, plan.engine.settings
    others = lacking(settings, "workers")
    if others:
        given, needed = ({name: of[name] for name in others} for of in (settings.get_params(), others))
        return f"method {settings.name!r} with {listed(given)} cannot be done by workers; use {listed(needed)}"
    if not plan.engine.method.capabilities.workers:
        return why_unable(settings, "workers", "cannot be done by workers", likelihood)
    reason = None
    if problem.uneven is not None or problem.fixed is not None:
        reason = "workers fit entries of one noise or dispersion, without fixed modes"
    elif not all(kernel is None or is_shared(kernel) for kernel in (likelihood.tilted, likelihood.loglik)):
        reason = f"workers do not find the kernels of the likelihood {likelihood.name!r}"
    elif any(clock is not None for clock in clocks_of(problem.prior)):
        reason = "workers do not fit rows that are a series or a graph"
    elif on_scratch(problem.entries.y):
        reason = "workers take entries that lie in memory, not on scratch"
    return None if reason is None else f"{reason}; fit it in one process"


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
