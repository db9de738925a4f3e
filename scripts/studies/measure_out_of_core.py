"""What a fit on scratch costs: time of sweeps beside the same in memory, memory that is held, bytes that are read.

Entries are simulated into parquet files in a folder, which are removed at the end. "sweeps": the same fit in memory and
on scratch, a sweep of each in turn, processor time. "fit": a whole fit from the files, the largest anonymous memory
(RssAnon of /proc/self/status, looked at ten times a second), and processor seconds until its first sweep and of a
sweep.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scripts.lib.common import Row, parser, report, say, words
from scripts.lib.common import row as any_row
from tensorcep import CPRegressor
from tensorcep.core.arrays import Scratch
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.plan.storage import Place, laid
from tensorcep.methods import CEP, VMP, Gibbs

PARTS, FILE = ("sweeps", "fit"), 1 << 22
TRUE_RANK, MODES = 4, ["user", "item", "day"]


def row(metric: str, value: float, **others: Any) -> Row:
    """A result of the simulated entries."""
    return any_row(metric, value, data="simulated", **others)


def shape_of(n: int) -> tuple[int, int, int]:
    return max(4, min(200_000, n // 50)), max(3, min(50_000, n // 200)), max(2, min(500, n // 1000))


def simulated(n: int, seed: int) -> Iterator[pd.DataFrame]:
    """Entries at random cells, values in single precision, so many at a time."""
    rng, shape = np.random.default_rng(seed), shape_of(n)
    factors = [rng.normal(0.0, TRUE_RANK**-0.5, (size, TRUE_RANK)) + 0.5 for size in shape]
    for first in range(0, n, FILE):
        m = min(FILE, n - first)
        cells = [rng.integers(0, size, m) for size in shape]
        f = np.prod([own[at] for own, at in zip(factors, cells, strict=True)], axis=0).sum(axis=1)
        y = (3.0 + f + rng.normal(0.0, 0.5, m)).astype(np.float32)
        yield pd.DataFrame({**dict(zip(MODES, cells, strict=True)), "y": y})


def model_of(method: str, options: argparse.Namespace, **params: Any) -> CPRegressor:
    """A model whose sweeps are all that it does: no pilots, one start, one chain."""
    engine: Any = {
        "gibbs": Gibbs(n_chains=1, burn_in=options.sweeps - 1, weights="equal", noise="sampled"),
        "vmp": VMP(anneal=0, n_starts=1),
        "averaged": CEP(messages="averaged", damping=0.5, anneal=0, n_starts=1, n_ensemble=1),
    }[method]
    plain = {"init": "random", "interactions": "cp", "tol": 0.0, "max_iter": options.sweeps, "random_state": 0}
    return CPRegressor(options.rank, method=engine, n_jobs=options.threads, lower_limit=None, **{**plain, **params})


def in_turns(method: str, frames: list[pd.DataFrame], options: argparse.Namespace) -> Iterator[Row]:
    """Processor time of sweeps in memory and on scratch, one after the other."""
    whole = pd.concat(frames)
    coords, y = whole[MODES].to_numpy(), whole["y"].to_numpy(np.float64)
    model, shape, states = model_of(method, options), shape_of(len(y)), {}
    room, threads = Scratch(options.folder), ThreadExecutor(options.threads)
    for name, place in (("memory", Place(None, None)), ("scratch", Place(room, None))):
        work = plan_fit(model._spec(), laid(model._spec(), (coords, y, shape, (None,) * 3), place), None)
        states[name] = work, work.engine.method.init(work.problem, work.engine.settings, threads)
    seconds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(options.sweeps):
        for name, (work, state) in states.items():
            begin = time.process_time()
            state, _ = work.engine.method.step(state, work.problem, work.engine.settings, threads)
            seconds[name].append(time.process_time() - begin)
            states[name] = work, state
    for name, times in seconds.items():
        yield row("ns per entry and sweep", 1e9 * float(np.median(times)) / len(y), method=method, place=name)
    passes, packed = len(MODES), states["scratch"][0].problem.entries
    read = passes * sum(part.nbytes for part in (packed.rows, packed.y, packed.weight)) / len(y)
    for _, by_row in room.tables.values():  # methods that read entries by row read these instead
        read = sum(part.nbytes for part in (by_row.value, by_row.others, by_row.entry)) / len(y)
    yield row("bytes read per entry and sweep", read, method=method, place="scratch")
    threads.close()
    room.tables.clear()


class Watch(threading.Thread):
    """The largest anonymous memory of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
            self.most = max(self.most, *(1024 * int(one.split()[1]) for one in lines if one.startswith("RssAnon")))


def whole_fit(method: str, files: str, options: argparse.Namespace) -> Iterator[Row]:
    """Memory and processor time of a fit from files."""
    begin, ends, watch = time.process_time(), list[float](), Watch()
    model = model_of(method, options, callbacks=lambda *_: ends.append(time.process_time()))
    watch.start()
    model.fit(files, value="y", scratch=options.folder, memory=options.memory)
    watch.over.set()
    watch.join()
    n, sweeps = model.n_samples_seen_, np.diff(ends)
    yield row("GB of anonymous memory", watch.most / 1e9, method=method)
    yield row("ns per entry before the sweeps", 1e9 * (ends[0] - begin - float(np.median(sweeps))) / n, method=method)
    yield row("ns per entry and sweep", 1e9 * float(np.median(sweeps)) / n, method=method, place="scratch")


@contextlib.contextmanager
def files_in(folder: str, options: argparse.Namespace) -> Iterator[str]:
    """Simulated entries as parquet files, which end with the block."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="out-of-core-") as place:
        for number, frame in enumerate(simulated(options.entries, options.seed)):
            frame.to_parquet(os.path.join(place, f"{number:04}.parquet"), index=False)
        yield place


def main(arguments: list[str] | None = None) -> None:
    """Measure what the options say."""
    options = parser(__doc__, methods="gibbs,vmp", sweeps=4, seed=0)
    options.add_argument("--entries", type=lambda text: int(float(text)), default=1_000_000)
    options.add_argument("--rank", type=int, default=8)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--parts", type=words(*PARTS), default=list(PARTS), help="(default: all)")
    options.add_argument("--folder", default=tempfile.gettempdir(), help="for all files (default: %(default)s)")
    options.add_argument("--memory", help="of the whole fit, such as 2GB (default: no bound, and scratch)")
    given = options.parse_args(arguments)
    given.methods = given.methods.split(",") if isinstance(given.methods, str) else given.methods
    rows: list[Row] = []
    warnings.simplefilter("ignore")
    if "sweeps" in given.parts:
        frames = list(simulated(given.entries, given.seed))
        for method in given.methods:
            rows += in_turns(method, frames, given)
        del frames
    with files_in(given.folder, given) as files:
        if "fit" in given.parts:
            for method in given.methods:
                say(f"{given.entries:,} entries by {method}")
                rows += whole_fit(method, files, given)
    report(rows, given.json)


if __name__ == "__main__":
    main()
