"""Seconds and memory of BayesianPCA on a large matrix with gaps, beside ten lines of masked least squares in numpy.

Both fit, in processes of their own and on one thread, the same product of normal rows with noise of standard deviation
0.5, of which half of the cells are observed. The rival alternates between rows and columns with the mask as a matrix of
zeros and ones, so that its sums are products of matrices; it knows nothing of uncertainty.

Rows: wall and CPU seconds, the gigabytes that the fit took beside the data, and the error in the hidden cells.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from scripts.lib.common import Row, fresh_process, numbers, parser, report, row, say, words
from scripts.lib.memory import forget_peak, resident
from tensorcep import BayesianPCA

NOISE, RIDGE, OBSERVED = 0.5, 0.25, 0.5


class Case(NamedTuple):
    """What a process of its own measures; `sweeps` are those of least squares."""

    n: int
    d: int
    rank: int
    sweeps: int
    seed: int


def half_solved(mask: np.ndarray, filled: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The rows that explain the cells observed best, given those of the other mode."""
    rank = other.shape[1]
    pairs = (other[:, :, None] * other[:, None, :]).reshape(-1, rank * rank)
    grams = (mask @ pairs).reshape(-1, rank, rank) + RIDGE * np.eye(rank)
    return np.asarray(np.linalg.solve(grams, (filled @ other)[:, :, None])[:, :, 0])


def masked_least_squares(x: np.ndarray, case: Case) -> np.ndarray:
    """All cells, from alternating least squares over those that are not nan."""
    mask, filled = (~np.isnan(x)).astype(float), np.nan_to_num(x)
    columns = np.random.default_rng(case.seed).standard_normal((x.shape[1], case.rank))
    for _ in range(case.sweeps):
        rows = half_solved(mask, filled, columns)
        columns = half_solved(mask.T, filled.T, rows)
    return rows @ columns.T


def bayesian(x: np.ndarray, case: Case) -> Any:
    """The model fitted with nothing set but the rank."""
    return BayesianPCA(case.rank, random_state=case.seed).fit(x)


FITS: dict[str, Callable[[np.ndarray, Case], Any]] = {"pca": bayesian, "least-squares": masked_least_squares}


def child(method: str, case: Case) -> dict[str, float]:
    """What one fresh process measures."""
    rng = np.random.default_rng(case.seed)
    x = rng.standard_normal((case.n, case.rank)) @ rng.standard_normal((case.rank, case.d))
    hidden = rng.random(x.shape) > OBSERVED
    truth = x[hidden].astype(np.float32)
    x += NOISE * rng.standard_normal(x.shape)
    x[hidden] = np.nan
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        FITS[method](x[: 10 * case.rank], case)  # compiled code is loaded
        forget_peak()
        before, wall, cpu = resident("VmRSS"), time.perf_counter(), time.process_time()
        found = FITS[method](x, case)
    measured = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    measured["gigabytes"] = (resident("VmHWM") - before) / 1e9
    filled = found if isinstance(found, np.ndarray) else found.reconstruct()
    return {**measured, "hidden rmse": float(np.sqrt(np.mean((filled[hidden] - truth) ** 2)))}


def measure(method: str, case: Case) -> list[Row]:
    """The rows of one method."""
    done = fresh_process("-m", __spec__.name, "--child", method, json.dumps(case), OPENBLAS_NUM_THREADS="1")
    common = {"data": "half observed", "rank": case.rank, "method": method, "shape": f"{case.n}x{case.d}"}
    if done.returncode:
        why = f"the process ended with code {done.returncode}" + (" (out of memory)" if done.returncode == -9 else "")
        return [row("seconds", None, skipped=why, **common)]
    found = json.loads(done.stdout)
    say(f"{method}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in found.items()))
    return [row(metric, value, **common) for metric, value in found.items()]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--child"]:
        print(json.dumps(child(arguments[1], Case(*json.loads(arguments[2])))))
        return
    p = parser(__doc__, ranks="10", sweeps=15, seed=0)
    p.add_argument("--methods", type=words(*FITS), default="pca,least-squares", help="default: %(default)s")
    p.add_argument("--shape", type=numbers, default="20000,500", help="rows and columns (default: %(default)s)")
    options = p.parse_args(arguments)
    if len(options.shape) != 2:
        p.error(f"argument --shape: two numbers are allowed; got {len(options.shape)}")
    rows: list[Row] = []
    n, d = options.shape
    for rank in options.ranks:
        case = Case(n, d, rank, options.sweeps, options.seed)
        rows += [found for method in options.methods for found in measure(method, case)]
    report(rows, options.json)


if __name__ == "__main__":
    main()
