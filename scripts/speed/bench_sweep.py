"""Time one full CEP sweep on simulated entries, and a plain nested-loop twin of the parallel sweep beside it.

The entries are those of `scripts.lib.simulated_entries`. One sweep is `tensorcep.cp.cep.method.step`: every message,
the rows, the latent means, the train score.

Rows: "us_per_entry" (the fastest sweep), its median, the part of the compiled kernel alone; the same for the twin
(method "plain"), and the ratios. Setting up is not timed. A case that does not fit the memory is skipped and says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.simulated_entries import ORDER, Case, damping_of, entry_counts, shape_of, simulate
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.cep import method as cep
from tensorcep.cp.model.problem import Problem
from tensorcep.methods import CEP
from tests.oracles.plain_sweep import plain_state, plain_sweep

MEMORY_SHARE = 0.85  # of the available memory that a case may plan to use
TWIN_LIKELIHOODS = ("gaussian", "probit")


def bytes_of_messages(case: Case, dtype: str) -> float:
    """Bytes per entry that the messages take: packed precision and natural mean for every mode, and the noise."""
    numbers = case.rank * (case.rank + 1) // 2 + case.rank
    return ORDER * numbers * np.dtype(dtype).itemsize + (16 if case.likelihood == "gaussian" else 0)


def planned_bytes(case: Case, dtype: str | None) -> float:
    """Memory of one case: dtype None is the plain twin; entries, their copies while they are packed, partial sums."""
    packing = case.n * (8 * ORDER * 3 + 8 * 4)
    if dtype is None:
        return packing + case.n * (ORDER * 8 * (case.rank**2 + case.rank) + 16)
    return packing + case.n * bytes_of_messages(case, dtype) * 1.25


def available_bytes() -> float:
    """Memory that can be had without swapping (infinite where the system does not tell)."""
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * float(line.split()[1])
    return float("inf")


def refusal(case: Case, dtype: str | None) -> str | None:
    """Why a case cannot run here, or None."""
    need, have = planned_bytes(case, dtype), available_bytes()
    if need <= MEMORY_SHARE * have:
        return None
    return f"needs {need / 1e9:.1f} GB, {have / 1e9:.1f} GB available"


def timed(work: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


class KernelClock:
    """Stands in for the sweep kernel and adds up the seconds that it runs, over all threads."""

    def __init__(self, kernel: Callable[..., Any]):
        self.kernel, self.seconds = kernel, 0.0

    def __call__(self, *args: Any) -> Any:
        """Run the kernel."""
        begin = time.perf_counter()
        result = self.kernel(*args)
        self.seconds += time.perf_counter() - begin
        return result


def time_sweep(
    problem: Problem, schedule: str, dtype: str, n_threads: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Seconds of each sweep, and of the kernel in it; the first sweep, which may compile, is left out."""
    damping = damping_of(problem.likelihood.name, schedule)
    options = CEP(schedule=schedule, damping=damping, dtype=dtype, anneal=0)
    threads = ThreadExecutor(n_threads)
    module: Any = cep  # the name that `step` looks up is replaced while it is timed
    work = module.CEP_PASS
    clock = KernelClock(work.kernel)
    total, inside = [], []
    module.CEP_PASS = work._replace(kernel=clock)
    try:
        state, _ = cep.step(cep.init(problem, options, threads), problem, options, threads)
        for _ in range(repeats):
            clock.seconds, begin = 0.0, time.perf_counter()
            state, _ = cep.step(state, problem, options, threads)
            total.append(time.perf_counter() - begin)
            inside.append(clock.seconds / n_threads)
    finally:
        module.CEP_PASS = work
        threads.close()
    return total, inside


def time_plain(problem: Problem, repeats: int) -> list[float]:
    """Seconds of each sweep of the plain twin."""
    state = plain_state(problem, (0.5, 0.5))

    def sweep() -> None:
        nonlocal state
        state = plain_sweep(state, problem, 0.5)

    return timed(sweep, repeats + 1)[1:]


def measure(case: Case, options: argparse.Namespace) -> list[Row]:
    """All rows of one case."""
    rows: list[Row] = []
    common = {"data": f"simulated {case.data}", "entries": case.n, "rank": case.rank, "likelihood": case.likelihood}

    def add(metric: str, value: float | None, seconds: float | None = None, **others: Any) -> None:
        rows.append(row(metric, value, seconds=seconds, **common, **others))

    def add_times(seconds: list[float], **others: Any) -> None:
        best = min(seconds)
        add("us_per_entry", 1e6 * best / case.n, best, **others)
        add("us_per_entry_median", 1e6 * float(np.median(seconds)) / case.n, float(np.median(seconds)), **others)

    smallest = min(options.dtypes, key=lambda name: np.dtype(name).itemsize)
    why = refusal(case, smallest)
    if why:
        add("us_per_entry", None, method="cep", skipped=why)
        return rows
    problem = simulate(case, options.seed)
    plain = None
    if not options.no_twin and case.likelihood in TWIN_LIKELIHOODS:
        why = refusal(case, None)
        if why:
            add("us_per_entry", None, method="plain", schedule="parallel", dtype="float64", threads=1, skipped=why)
        else:
            seconds = time_plain(problem, options.repeats)
            plain = min(seconds)
            add_times(seconds, method="plain", schedule="parallel", dtype="float64", threads=1)
    for schedule in options.schedules:
        for dtype in options.dtypes:
            one_thread = None
            for n_threads in options.threads:
                setting = {"method": "cep", "schedule": schedule, "dtype": dtype, "threads": n_threads}
                why = refusal(case, dtype)
                if why:
                    add("us_per_entry", None, skipped=why, **setting)
                    continue
                total, inside = time_sweep(problem, schedule, dtype, n_threads, options.repeats)
                add_times(total, **setting)
                add("us_per_entry_kernel", 1e6 * min(inside) / case.n, min(inside), **setting)
                if n_threads == 1:
                    one_thread = min(total)
                    add("bytes_per_entry_messages", bytes_of_messages(case, dtype), **setting)
                    if plain is not None and schedule == "parallel":
                        add("times_faster_than_plain", plain / one_thread, **setting)
                elif one_thread is not None:
                    add("times_faster_than_one_thread", one_thread / min(total), **setting)
                say(f"{case} {setting}: {1e6 * min(total) / case.n:.3f} us per entry")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="5,8,10", threads="1", seed=0)
    p.add_argument("--entries", type=entry_counts, default="alog,1e5,1e6", help="numbers of entries, or alog")
    p.add_argument("--likelihoods", type=words("gaussian", "probit", "logit", "poisson"), default="gaussian,probit")
    p.add_argument("--dtypes", type=words("float64", "float32"), default="float64")
    p.add_argument("--schedules", type=words("parallel", "modewise"), default="parallel")
    p.add_argument("--repeats", type=int, default=5, help="sweeps timed after the first (default: %(default)s)")
    p.add_argument("--no-twin", action="store_true", help="leave the plain twin out")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for data, n in options.entries:
        for likelihood in options.likelihoods:
            for rank in options.ranks:
                rows += measure(Case(data, n, shape_of(n), rank, likelihood), options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
