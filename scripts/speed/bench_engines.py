"""Time one full sweep of every inference method on Alog-shaped entries.

The entries are random cells of a (200, 100, 200) tensor, N = 21,076 (`scripts.lib.simulated_entries`); one sweep is the
method's `step`: every update, the latent means, the train score, and the lower bound where there is one. A sweep of
wopt is one iteration of L-BFGS-B, timed over the first ten of a search. Setting up is not timed, and neither is the
first step, which may compile. "cep-averaged" is CEP with one message per row.

Rows: "us_per_entry" (the fastest sweep), its median, and the time as a multiple of that of cep.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.published import options_with
from scripts.lib.simulated_entries import ALOG_ENTRIES, Case, damping_of, entry_counts, shape_of, simulate
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.problem import Problem
from tensorcep.likelihoods import LIKELIHOODS

WOPT_ITERATIONS = 10
AVERAGED = "cep-averaged"
TIMED = [name for name in ("gaussian", "probit", "logit", "poisson", "negbinomial") if name in LIKELIHOODS]


def options_of(method: str, likelihood: str) -> tuple[Any, int]:
    """A method's settings (of a sampler with one chain), and how many sweeps one step stands for."""
    damping = damping_of(likelihood, "modewise")
    more = {"messages": "averaged"} if method == AVERAGED else {}
    options = options_with(engine_of(method), damping=damping, n_chains=1, iterations=WOPT_ITERATIONS, **more)
    return options, WOPT_ITERATIONS if method == "wopt" else 1


def engine_of(method: str) -> str:
    """The name that a method has in the package."""
    return "cep" if method == AVERAGED else method


def time_steps(problem: Problem, name: str, n_threads: int, repeats: int) -> list[float]:
    """Seconds of each sweep after the first."""
    method, threads = METHODS[engine_of(name)], ThreadExecutor(n_threads)
    options, stride = options_of(name, problem.likelihood.name)
    seconds = []
    try:
        state, _ = method.step(method.init(problem, options, threads), problem, options, threads)
        for _ in range(repeats):
            if stride > 1:  # a later step might end before it has done all its iterations
                state = method.init(problem, options, threads)
            begin = time.perf_counter()
            state, _ = method.step(state, problem, options, threads)
            seconds.append((time.perf_counter() - begin) / stride)
    finally:
        threads.close()
    return seconds


def measure(case: Case, methods: list[str], threads: list[int], repeats: int, seed: int) -> list[Row]:
    """All rows of one set of entries, rank and likelihood."""
    problem, rows = simulate(case, seed), []
    about = {"data": f"simulated {case.data}", "rank": case.rank, "likelihood": case.likelihood, "entries": case.n}
    for n_threads in threads:
        best: dict[str, float] = {}
        for name in methods:
            if METHODS[engine_of(name)].lacks(problem.likelihood):
                continue
            seconds = time_steps(problem, name, n_threads, repeats)
            best[name] = min(seconds)
            mine = {**about, "method": name, "threads": n_threads}
            rows.append(row("us_per_entry", 1e6 * best[name] / case.n, seconds=best[name], **mine))
            rows.append(row("us_per_entry_median", 1e6 * float(np.median(seconds)) / case.n, **mine))
            if "cep" in best and name != "cep":
                rows.append(row("times_cep", best[name] / best["cep"], **mine))
            say(f"{case.likelihood} rank {case.rank} {name}: {1e6 * best[name] / case.n:.3f} us per entry")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="8", methods=",".join(METHODS), threads="1", seed=0)
    p.add_argument("--entries", type=entry_counts, default=[("alog", ALOG_ENTRIES)], help="numbers of entries, or alog")
    p.add_argument("--likelihoods", type=words(*LIKELIHOODS), default=TIMED)
    p.add_argument("--repeats", type=int, default=20, help="sweeps timed after the first (default: %(default)s)")
    options = p.parse_args(arguments)
    wrong = [name for name in options.methods if name not in (*METHODS, AVERAGED)]
    if wrong:
        p.error(f"argument --methods: {wrong[0]!r} is not among {', '.join((*METHODS, AVERAGED))}")
    rows: list[Row] = []
    for data, n in options.entries:
        for likelihood in options.likelihoods:
            for rank in options.ranks:
                case = Case(data, n, shape_of(n), rank, likelihood)
                rows += measure(case, options.methods, options.threads, options.repeats, options.seed)
    report(rows, options.json)


if __name__ == "__main__":
    main()
