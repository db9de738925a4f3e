"""The clutter problem of Minka (2001), figures 1 and 2: cost against accuracy of six methods, and their posteriors.

    python -m scripts.papers.reproduce_clutter    # n = 20: typical, with a mode far out, three modes; n = 200
    python -m scripts.papers.draw rows.json --metric path_log_evidence,path_mean --x flops --panel data,metric -o c.png

Exact values come from a grid. Cost is in floating point operations, counted as in `baselines.clutter`, as in the paper,
and in seconds of the whole run here (EP is compiled, the other methods are numpy). For each method: evidence, mean and
variance at its end, their errors, and the errors that it had after the operations that EP took to converge
("at_ep_cost"). All Gaussian methods catch one mode only where there are several; EP is the most accurate elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scripts.benchmarks.common import Row, parser, report, row, say, words
from scripts.papers.baselines.clutter import (
    LISTED,
    METHODS,
    SAMPLERS,
    STOP,
    TYPICAL,
    Estimate,
    exact,
    fit_ep,
    simulate,
)

N_LARGE = 200
# A draw with three modes, found by going through seeds.
THREE_MODES_SEED = 3407
DATA = ("typical", "listed", "modes", "n200")


def observations(name: str, seed: int) -> np.ndarray:
    """One data set."""
    if name == "n200":
        return simulate(N_LARGE, np.random.default_rng(seed))
    if name == "modes":
        return simulate(20, np.random.default_rng(THREE_MODES_SEED))
    return np.array((TYPICAL if name == "typical" else LISTED).split(), dtype=float)


def work_of(method: str, y: np.ndarray, options: Any) -> Callable[[], list[Estimate]]:
    """A run of a method that returns its estimates."""
    if method in SAMPLERS:
        return lambda: list(METHODS[method](y, options.draws, np.random.default_rng([options.seed, 1])))
    return lambda: list(METHODS[method](y))


def best_seconds(method: str, y: np.ndarray, options: Any) -> float:
    """Seconds of the fastest run to the end; EP as a user runs it, in one call."""
    run: Callable[[], Any] = work_of(method, y, options)
    if method in ("ep", "adf"):
        sweeps = 500 if method == "ep" else 1

        def run() -> Any:
            return fit_ep(y, damping=0.0, max_iter=sweeps, tol=STOP)

    seconds = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def errors(path: list[Estimate], truth: Estimate, part: str) -> np.ndarray:
    """Absolute errors of one part of the estimates."""
    return np.array([abs(getattr(found, part) - getattr(truth, part)) for found in path])


def measure(name: str, y: np.ndarray, options: Any) -> list[Row]:
    """Rows of one data set: every method at its end, and its errors along the way."""
    truth = exact(y)
    common = {"data": name, "n": len(y)}
    rows = [row(part, getattr(truth, part), method="exact", **common) for part in ("log_evidence", "mean", "var")]
    cost = math.inf
    for method in ["ep", *[m for m in options.methods if m != "ep"]]:
        path = work_of(method, y, options)()
        cost = path[-1].flops if method == "ep" else cost
        end, setting = path[-1], {"method": method, **common}
        if method not in SAMPLERS:
            setting["sweep"] = len(path)
        rows.append(row("log_evidence", end.log_evidence, seconds=best_seconds(method, y, options), **setting))
        rows += [row("mean", end.mean, **setting), row("var", end.var, **setting), row("flops", end.flops, **setting)]
        for part in ("log_evidence", "mean"):
            found = errors(path, truth, part)
            rows.append(row(f"error_{part}", found[-1], **setting))
            early = found[[estimate.flops <= cost for estimate in path]]
            if method != "ep":
                rows.append(row(f"error_{part}_at_ep_cost", early[-1], **setting))
            at = {"data": name, "method": method}
            rows += [row(f"path_{part}", e, **at, flops=step.flops) for e, step in zip(found, path, strict=True)]
        say(f"{name} {method}: log evidence {end.log_evidence:.5f}, mean {end.mean:.5f}, {end.flops:.3g} operations")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=",".join(DATA), methods=",".join(METHODS), seed=0)
    p.add_argument("--draws", type=int, default=20_000, help="draws of the samplers (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="timed runs of each method (default: %(default)s)")
    options = p.parse_args(arguments)
    options.methods = words(*METHODS)(",".join(options.methods))
    rows: list[Row] = []
    for name in words(*DATA)(",".join(options.data)):
        rows += measure(name, observations(name, options.seed), options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
