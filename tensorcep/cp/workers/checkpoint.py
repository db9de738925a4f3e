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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorcep import __version__
from tensorcep.core.arrays import on_scratch
from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.cluster import TIMEOUT, Cluster, dask_module
from tensorcep.core.executor import Executor, ThreadExecutor
from tensorcep.core.loop import StoredRun, Sweep, hosted_by
from tensorcep.core.persist.archive import read_archive, write_archive
from tensorcep.core.persist.records import RECORD, merge, split
from tensorcep.core.settings import lacking
from tensorcep.cp.methods import listed, proposes_rows, why_unable
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.workers.executor import ClusterExecutor, is_shared
from tensorcep.cp.workers.files import SiteFiles
from tensorcep.entries.tables import UNSAID, frame_of_dask, is_of

KIND, VERSION = "tensorcep.checkpoint", 2
# Sweeps between two states that are stored; blocks of entries hashed at a time.
EVERY, BLOCKS = 5, 1 << 16
# Modes are cut into ranges of about so many entries, a power of two of them, by the number of entries alone.
ENTRIES_OF_PART, FEWEST_PARTS, MOST_PARTS = 1 << 21, 4, 1 << 10


# A state as a tree: records by their modules and names, with all but what they say is made again (`remade`). What is no
# number, text or array stays as it is at the beginning of the run. Tuples that only grow (`grows`) have files of items.
SAME, DRAWS, SITES = "same", "draws", "sites"


def tree_of_state(value: Any, sites: SiteFiles, found: list[Any]) -> Any:
    """A state as a tree; adds its stored sites, and records that grow, to what is found."""
    if hasattr(value, "_fields"):
        stored = sites.get(value)
        if stored is not None or hasattr(value, "grows"):
            found.append(value if stored is None else stored)
            sizes = {name: len(one) for name, one in value._asdict().items()}
            return {RECORD: DRAWS, **sizes} if stored is None else {RECORD: SITES, **stored.tree()}
        names = [name for name in value._fields if name not in (value.remade() if hasattr(value, "remade") else ())]
        parts = {name: tree_of_state(getattr(value, name), sites, found) for name in names}
        return {RECORD: f"{type(value).__module__}:{type(value).__name__}", **parts}
    if isinstance(value, tuple):
        return [tree_of_state(one, sites, found) for one in value]
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray)):
        return value
    return value.item() if isinstance(value, np.generic) else {RECORD: SAME}


def state_of(tree: Any, state: Any, draws: Sequence[Mapping[str, np.ndarray]], sites: SiteFiles) -> Any:
    """The state of a tree; what is not in it is as in the `state` with which the run began."""
    if isinstance(tree, list):
        known = state if isinstance(state, tuple) and len(state) == len(tree) else (None,) * len(tree)
        return tuple(state_of(*pair, draws, sites) for pair in zip(tree, known, strict=True))
    if not isinstance(tree, dict):
        return tree
    kind = tree.pop(RECORD)
    if kind == SAME:
        return state
    if kind == DRAWS:
        return type(state)(**{name: tuple(one[name] for one in draws[:n]) for name, n in tree.items()})
    if kind == SITES:
        sites.move(state, sites.get(state).at(**tree))  # type: ignore[union-attr]
        return state
    fields = {name: state_of(one, getattr(state, name, None), draws, sites) for name, one in tree.items()}
    module, _, name = kind.partition(":")
    record: Any = getattr(importlib.import_module(module), name) if module.startswith("tensorcep.") else None
    if not hasattr(record, "_fields"):
        raise ValueError(f"{kind!r} is no record")
    return state._replace(**fields) if type(state) is record else record(**fields)


class ClusterHost:
    """Runs on the workers of a cluster, whose entries are in a folder."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        checkpoint: Path | None,  # where states are stored, if anywhere
        n_parts: int | None = None,  # ranges that modes are cut into, by default by the number of entries
        every: int = EVERY,  # so many sweeps a state is stored
        strict: bool = True,  # a fit that workers cannot do is refused, and else done here
    ):
        self._cluster, self._folder, self._checkpoint = cluster, folder, checkpoint
        self._n_parts, self._every, self._n_runs, self._n_draws = n_parts, every, 0, 0
        self._method, self._strict, self._here = "", strict, False
        self._sites = SiteFiles((checkpoint or folder) / "messages")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a fit that workers cannot do, or that is not the one in the folder."""
        reason = _why_not(plan)
        if reason is not None and self._strict:
            fail_value(f"{reason}.")
        # so do chains that may turn rows down, which are for few entries
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
        self._n_runs, self._n_draws, self._method = self._n_runs + 1, 0, method.name
        wanted = min(MOST_PARTS, max(FEWEST_PARTS, len(problem.entries.permutation) // ENTRIES_OF_PART))
        executor.begin(problem, self._n_parts or 1 << (wanted - 1).bit_length())
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
        found: list[Any] = []
        tree_of_state(state, self._sites, found)
        self._sites.hold(self._n_runs, found)
        return StoredRun(method.resume(state, problem, executor), sweeps, seconds, header["ended"], header["stopped"])

    def end(self) -> None:
        """The fit has ended, and nobody needs messages any more."""
        self._sites.end()

    def keep(self, run: StoredRun) -> None:
        """Store a new draw, and every few sweeps and at the end of a run the rest of its state."""
        path, found = self._path("run"), list[Any]()
        if path is None:
            return
        tree, arrays = split(tree_of_state(run.state, self._sites, found))
        kept = {name: own for one in found if hasattr(one, "grows") for name, own in one._asdict().items()}
        n_draws = max(map(len, kept.values()), default=0)
        for d in range(self._n_draws, n_draws):
            new = {name: own[d] for name, own in kept.items() if d < len(own)}
            write_archive(self._path("draw", d), KIND, VERSION, {}, new)  # type: ignore[arg-type]
        self._n_draws = n_draws
        if run.ended or run.stopped or len(run.sweeps) % self._every == 0:
            header = {"method": self._method, "state": tree, "draws": n_draws}
            header |= {"ended": run.ended, "stopped": run.stopped}
            arrays["sweeps"] = np.array(run.sweeps, dtype=float).reshape(-1, len(Sweep._fields))
            write_archive(path, KIND, VERSION, header, {**arrays, "seconds": np.array(run.seconds)})
            self._sites.hold(self._n_runs, found)

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
    reason, kernels = None, [one for one in (likelihood.tilted, likelihood.loglik) if one is not None]
    if problem.uneven is not None or problem.fixed is not None:
        reason = "workers fit entries of one noise or dispersion, without fixed modes"
    elif plan.engine.method.capabilities.passes_messages and not all(map(is_shared, kernels)):
        reason = f"workers do not find the kernels of the likelihood {likelihood.name!r}"
    elif any(clock is not None for clock in problem.prior.clocks):
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


def fit_on_workers(
    model: Any,
    X: Any,
    y: Any,
    strict: bool,  # a fit that workers cannot do is refused
    client: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = EVERY,
    n_parts: int | None = None,
    timeout: float = TIMEOUT,
    **rest: Any,
) -> Any:
    """Fit a model as ``model.fit(X, y, **rest)`` does (see `tensorcep.distributed.fit`), or here if workers cannot."""
    if client is None:
        try:
            client = dask_module("a fit on workers").get_client()
        except ValueError:
            fail_value("there is no active Dask client; make one, or give client=.")
    cluster, every = Cluster(client, timeout), check_int("every", every)
    n_parts = None if n_parts is None else check_int("n_parts", n_parts)
    with contextlib.ExitStack() as stack:
        if checkpoint is None:
            parts, runs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tensorcep-"))), None
        else:
            runs = Path(checkpoint).absolute()
            if runs.exists() and not runs.is_dir():
                fail_value(f"checkpoint must be a folder; '{runs}' is a file.")
            parts = runs / "entries"
            parts.mkdir(parents=True, exist_ok=True)
        blind = [worker for worker, sees in cluster.client.run(os.path.isdir, str(parts)).items() if not sees]
        if blind:
            fail_value(f"worker {blind[0]} does not see '{parts}'; give checkpoint=, a folder that all workers see.")
        if is_of(X, "dask"):  # read by the workers
            value = rest.get("value", UNSAID)
            named = value is not UNSAID and value is not None
            X = frame_of_dask(X, rest.get("modes"), value, named, cluster)
            rest["modes"] = [name for name in X.columns if not named or name != value]
        host = ClusterHost(cluster, parts, runs, n_parts, every, strict)
        with hosted_by(host):
            model.fit(X, y, **rest)
        host.end()
        return model
