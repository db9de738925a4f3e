"""Peak memory of a fit per entry, measured in a fresh process, beside what the arrays add up to.

Each case runs in a process of its own: it makes N random entries, fits a few of them once (so that what is loaded once
is not counted), notes the resident memory, fits all N, and reports by how much the peak exceeds it. The derived figure
counts the messages (K modes, R(R+1)/2 + R numbers each, and two numbers for Gaussian noise), the packed entries and the
latent means; it holds what must stay, the measured one also passing copies and partial sums.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from typing import Any

import numpy as np

from scripts.lib.common import Row, fresh_process, numbers, paper_model, parser, report, row, say, words
from scripts.lib.memory import forget_peak, resident

ORDER = 3
WARM_UP_ENTRIES = 2_000


def derived_bytes(rank: int, dtype: str) -> dict[str, float]:
    """Bytes per entry of everything that a Gaussian fit keeps."""
    messages = ORDER * (rank * (rank + 1) // 2 + rank) * np.dtype(dtype).itemsize
    noise_messages, latent_means = 2 * 8, 8
    packed = ORDER * 4 + 8 + 8 + 4  # rows, value, weight, permutation
    return {"messages": messages, "all": messages + noise_messages + packed + latent_means}


def child(n: int, rank: int, dtype: str, sweeps: int, threads: int, seed: int) -> dict[str, float]:
    """What one fresh process measures."""
    from tensorcep import CPRegressor

    unit = max(100, n // 1000)
    shape = (2 * unit, unit, 2 * unit)
    rng = np.random.default_rng(seed)
    coords = np.empty((n, ORDER), dtype=np.int64)
    for k, size in enumerate(shape):
        coords[:, k] = rng.integers(0, size, n)
    y = rng.standard_normal(n)
    how: dict[str, Any] = {"max_iter": sweeps, "tol": 0.0, "n_jobs": threads, "random_state": seed, "damping": 0.5}
    model = paper_model(CPRegressor, rank, dtype=dtype, shape=shape, **how)
    warnings.simplefilter("ignore")  # so few sweeps do not converge
    model.fit(coords[:WARM_UP_ENTRIES], y[:WARM_UP_ENTRIES])
    forget_peak()
    before = resident("VmRSS")
    begin = time.perf_counter()
    model.fit(coords, y)
    seconds = time.perf_counter() - begin
    sweep_seconds = float(np.min(model.trace_["seconds"]))
    return {"before": before, "peak": resident("VmHWM"), "seconds": seconds, "sweep_seconds": sweep_seconds}


def measure(n: int, rank: int, dtype: str, options: argparse.Namespace) -> list[Row]:
    """All rows of one case."""
    case = [str(n), str(rank), dtype, str(options.sweeps), str(options.threads[0]), str(options.seed)]
    found = fresh_process("-m", __spec__.name, "--child", *case)
    common = {"data": "simulated", "rank": rank, "method": "cep", "entries": n, "dtype": dtype}
    common["threads"] = options.threads[0]
    if found.returncode != 0:
        why = f"the process ended with code {found.returncode}" + (" (out of memory)" if found.returncode == -9 else "")
        return [row("bytes_per_entry_peak", None, skipped=why, **common)]
    result = json.loads(found.stdout)
    grown = result["peak"] - result["before"]
    say(f"{n} entries, rank {rank}, {dtype}: {grown / n:.0f} bytes per entry, fit {result['seconds']:.1f} s")
    derived = derived_bytes(rank, dtype)
    values: dict[str, Any] = {
        "bytes_per_entry_peak": grown / n,
        "bytes_per_entry_derived": derived["all"],
        "bytes_per_entry_messages": derived["messages"],
        "peak_over_derived": grown / n / derived["all"],
        "peak_gigabytes": result["peak"] / 1e9,
        "seconds_of_a_sweep": result["sweep_seconds"],
    }
    return [row(metric, value, seconds=result["seconds"], **common) for metric, value in values.items()]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--child"]:
        n, rank, dtype, sweeps, threads, seed = arguments[1:]
        print(json.dumps(child(int(n), int(rank), dtype, int(sweeps), int(threads), int(seed))))
        return
    p = parser(__doc__, ranks="8", sweeps=2, threads="1", seed=0)
    p.add_argument("--entries", type=numbers, default="1e5,1e6", help="numbers of entries (default: %(default)s)")
    p.add_argument("--dtypes", type=words("float64", "float32"), default="float64,float32")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for n in options.entries:
        for rank in options.ranks:
            for dtype in options.dtypes:
                rows += measure(n, rank, dtype, options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
