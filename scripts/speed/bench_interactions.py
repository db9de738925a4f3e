"""What main effects and interactions cost: a sweep against one of the CP model with as many free columns in every mode.

Simulated entries, as many as Alog has by default; processor seconds between the callbacks of sweeps, the two fits in
turn. Rows: "times_cp", the median over the rounds of the ratio of median sweeps, and both sweeps in milliseconds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from scripts.lib.common import Row, numbers, parser, report, row, say, with_settings, words
from tensorcep import CPClassifier, CPRegressor, SparseTensor, simulate_cp
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import get_likelihood

# Columns of each part for a rank; the CP model then has as many columns as `free_columns`.
PARTS = {
    "main+cp": lambda rank: {"main": 1, "cp": rank},
    "main+pairs": lambda rank: {"main": 1, "pair": rank},
    "all": lambda rank: {"main": 1, "pair": rank, "cp": rank},
}
WARM_UP = 3


def free_columns(parts: dict[str, int], order: int) -> int:
    """Columns that are free in each mode."""
    return parts.get("main", 0) + (order - 1) * parts.get("pair", 0) + parts.get("cp", 0)


def seconds_per_sweep(tensor: SparseTensor, method: str, parts: dict[str, int], sweeps: int, seed: int) -> float:
    """Median processor seconds of a sweep after the first few."""
    labels = METHODS[method].lacks(get_likelihood("gaussian"))
    given: dict[str, Any] = {"method": method, "interactions": parts, "random_state": seed, "n_ensemble": 1}
    given |= {"link": "logit"} if labels else {"lower_limit": None}
    times: list[float] = []
    estimator = CPClassifier if labels else CPRegressor
    watch = {"tol": 1e-12, "callbacks": lambda *_: times.append(time.process_time())}
    model = estimator(max_iter=sweeps + WARM_UP, **watch, **with_settings(estimator, given))
    y = (tensor.values > np.median(tensor.values)).astype(float) if labels else tensor.values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing converges
        model.fit(tensor.coords, y)
    return float(np.median(np.diff(times)[WARM_UP:]))


def measure(tensor: SparseTensor, method: str, name: str, rank: int, options: Any) -> list[Row]:
    """Rows of one method, structure and rank."""
    parts = PARTS[name](rank)
    plain = {"cp": free_columns(parts, tensor.order)}
    found = []
    for _ in range(options.repeats):
        pair = [seconds_per_sweep(tensor, method, p, options.sweeps, options.seed) for p in (parts, plain)]
        found.append(pair)
    structured, cp = np.median(found, axis=0)
    times = float(np.median([a / b for a, b in found]))
    about = {"data": "simulated", "method": method, "interactions": name, "rank": rank, "free_columns": plain["cp"]}
    say(f"{method} {name} rank {rank}: {1e3 * structured:.3g} ms, CP {1e3 * cp:.3g} ms, {times:.2f} times")
    milliseconds = {"milliseconds": 1e3 * structured, "milliseconds_cp": 1e3 * cp}
    return [row("times_cp", times, **about, **milliseconds)]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="4,8", methods=",".join(METHODS), sweeps=20, seed=0)
    p.add_argument("--interactions", type=words(*PARTS), default=list(PARTS), help="between commas (default: all)")
    p.add_argument("--shape", type=numbers, default=[200, 100, 200], help="default: 200,100,200")
    p.add_argument("--entries", type=int, default=21076, help="default: %(default)s")
    p.add_argument("--repeats", type=int, default=3, help="rounds (default: %(default)s)")
    options = p.parse_args(arguments)
    for name in options.methods:
        if name not in METHODS:
            p.error(f"argument --methods: {name!r} is not among {', '.join(METHODS)}")
    simulated = simulate_cp(options.shape, 4, options.entries, latent_sd=1.0, random_state=options.seed)
    rows: list[Row] = []
    for method in options.methods:
        for name in options.interactions:
            for rank in options.ranks:
                rows += measure(simulated.tensor, method, name, rank, options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
