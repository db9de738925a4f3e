"""Peak memory of a fit per entry, measured in a fresh process, beside what the arrays add up to.

Each case runs in a process of its own: it makes N random entries, fits a few of them once (so that what is loaded once
is not counted), notes the resident memory, fits all N, and reports by how much the peak exceeds it. The derived figure
counts the messages (K modes, R(R+1)/2 + R numbers each, and two numbers for Gaussian noise), the packed entries and the
latent means; it holds what must stay, the measured one also passing copies and partial sums.

The model is the CEP paper's, with one start, which no pilot precedes; with --own what the estimator chooses with its CP
component alone; and with --rows, which spreads the entries over so many rows, its own in the columns that fits have by
default, from a random start: memory per row, and the microseconds per row that a fit takes beside its sweeps.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.common import (
    Row,
    fresh_process,
    numbers,
    paper_model,
    parser,
    report,
    row,
    say,
    with_settings,
    words,
)
from scripts.lib.memory import forget_peak, resident

ORDER = 3
WARM_UP_ENTRIES = 2_000
METHODS: dict[str, dict[str, Any]] = {
    "gibbs": {"method": "gibbs"},
    "vmp": {"method": "vmp"},
    "cep-averaged": {"method": "cep", "messages": "averaged"},
    "cep": {"method": "cep"},
}


def derived_bytes(rank: int, dtype: str) -> dict[str, float]:
    """Bytes per entry of everything that a Gaussian fit keeps."""
    messages = ORDER * (rank * (rank + 1) // 2 + rank) * np.dtype(dtype).itemsize
    noise_messages, latent_means = 2 * 8, 8
    packed = ORDER * 4 + 8 + 8 + 4  # rows, value, weight, permutation
    return {"messages": messages, "all": messages + noise_messages + packed + latent_means}


class Case(NamedTuple):
    """What a process of its own measures."""

    n: int
    rank: int
    dtype: str
    method: str
    own: bool
    sweeps: int
    threads: int
    seed: int
    rows: int = 0  # of all modes; 0 for as many as the entries ask for

    @property
    def shape(self) -> tuple[int, ...]:
        unit = max(1, self.rows // 5) if self.rows else max(100, self.n // 1000)
        return 2 * unit, unit, 2 * unit


def model_of(case: Case) -> Any:
    """The model that is fitted."""
    from tensorcep import CPRegressor
    from tensorcep.cp.plan.auto import every_column

    how: dict[str, Any] = {"max_iter": case.sweeps, "n_jobs": case.threads, "random_state": case.seed}
    how |= {"tol": 0.0, "dtype": case.dtype, "shape": case.shape, "interactions": "cp", **METHODS[case.method]}
    if case.rows:
        how |= {"interactions": every_column(case.rank, case.shape), "init": "random"}
    if case.own or case.rows:
        return CPRegressor(case.rank, **with_settings(CPRegressor, how))
    return paper_model(CPRegressor, case.rank, damping=0.5, **how)


def child(case: Case) -> dict[str, float]:
    """What one fresh process measures."""
    rng = np.random.default_rng(case.seed)
    coords = np.empty((case.n, ORDER), dtype=np.int64)
    for k, size in enumerate(case.shape):
        coords[:, k] = rng.integers(0, size, case.n)
    y = rng.standard_normal(case.n)
    model = model_of(case)
    warnings.simplefilter("ignore")  # so few sweeps do not converge
    model.fit(coords[:WARM_UP_ENTRIES], y[:WARM_UP_ENTRIES])
    forget_peak()
    before = resident("VmRSS")
    begin = time.perf_counter()
    model.fit(coords, y)
    seconds = time.perf_counter() - begin
    sweeps = np.asarray(model.trace_["seconds"])
    found = {"before": before, "peak": resident("VmHWM"), "seconds": seconds, "sweep_seconds": float(sweeps.min())}
    return {**found, "beside_sweeps": seconds - float(sweeps.sum())}


def measure(case: Case) -> list[Row]:
    """All rows of one case."""
    found = fresh_process("-m", __spec__.name, "--child", json.dumps(case))
    common = {"data": "simulated", "rank": case.rank, "method": case.method, "entries": case.n, "dtype": case.dtype}
    common["threads"] = case.threads
    if found.returncode != 0:
        why = f"the process ended with code {found.returncode}" + (" (out of memory)" if found.returncode == -9 else "")
        return [row("bytes_per_entry_peak", None, skipped=why, **common)]
    result = json.loads(found.stdout)
    grown = (result["peak"] - result["before"]) / case.n
    about = f"{case.method}, {case.n} entries, rank {case.rank}, {case.dtype}"
    say(f"{about}: {grown:.0f} bytes per entry, fit {result['seconds']:.1f} s")
    values: dict[str, Any] = {"bytes_per_entry_peak": grown}
    if case.method == "cep":
        derived = derived_bytes(case.rank, case.dtype)
        values |= {"bytes_per_entry_derived": derived["all"], "bytes_per_entry_messages": derived["messages"]}
        values["peak_over_derived"] = grown / derived["all"]
    if case.rows:
        values["bytes_per_row_peak"] = grown * case.n / sum(case.shape)
        values["us_per_row_beside_sweeps"] = 1e6 * result["beside_sweeps"] / sum(case.shape)
    values |= {"peak_gigabytes": result["peak"] / 1e9, "seconds_of_a_sweep": result["sweep_seconds"]}
    return [row(metric, value, seconds=result["seconds"], **common) for metric, value in values.items()]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--child"]:
        print(json.dumps(child(Case(*json.loads(arguments[1])))))
        return
    p = parser(__doc__, ranks="8", sweeps=2, threads="1", seed=0)
    p.add_argument("--entries", type=numbers, default="1e5,1e6", help="numbers of entries (default: %(default)s)")
    p.add_argument("--dtypes", type=words("float64", "float32"), default="float64,float32")
    p.add_argument("--methods", type=words(*METHODS), default="cep", help="default: %(default)s")
    p.add_argument("--own", action="store_true", help="prior, starts, chains and damping of the estimator's own")
    p.add_argument("--rows", type=int, default=0, help="rows of all modes (default: as many as Alog has per entry)")
    options = p.parse_args(arguments)
    rest = (options.own, options.sweeps, options.threads[0], options.seed, options.rows)
    cases = itertools.product(options.entries, options.ranks, options.dtypes, options.methods)
    report([found for case in cases for found in measure(Case(*case, *rest))], options.json)


if __name__ == "__main__":
    main()
