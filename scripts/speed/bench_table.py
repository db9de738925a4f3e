"""One table of speed and memory: every row is a bench of this folder, run in processes of its own, beside its rival.

    python -m scripts.speed.bench_table --quick --rows reading,fits

A bench is run --repeats times; "value" and "rival" are medians over the runs, "ratio" the median of the ratios within
each run, and "asked" what the ratio or the value should reach. "cpu", "wall" and "megabytes"
are what the whole bench took, its rivals and the making of its data included. --quick runs once, on smaller data. Rows
of other packages' samplers (--peers) are installed by pip into an environment of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.common import ROOT, Row, parser, report, say, words

Where = dict[str, Any]


class Line(NamedTuple):
    """A line of the table: which row of a bench it is, which its rival, and what is asked.

    With `turned` the ratio is the rival's figure over ours: of what should be large.
    """

    what: str
    value: Where
    rival: Where | None = None
    asked: str = ""
    turned: bool = False
    field: str = "value"


class Bench(NamedTuple):
    """A bench, its options, those of --quick, and the lines that are taken from it."""

    name: str
    options: str
    quick: str
    lines: tuple[Line, ...]


def cpu_of(data: str, method: str, metric: str = "cpu_seconds") -> Where:
    return {"metric": metric, "data": data, "method": method}


def _reading() -> tuple[Line, ...]:
    def line(kind: str, peer: str, asked: str, ours: str = "read_tensor") -> Line:
        return Line(f"reading {kind}, CPU seconds; {peer}", cpu_of(kind, ours), cpu_of(kind, peer), asked)

    return (
        line("csv", "pandas.read", "ratio 1.3"),
        line("parquet", "pandas.read", "ratio 1.3"),
        line("tns", "pandas.read", "ratio 1.0"),
        line("text", "pandas.factorize", "ratio 1.5"),
        line("stream", "pandas.chunks", "ratio 1.5", "read_batches 1000"),
    )


def _fits() -> tuple[Line, ...]:
    lines = [
        Line(f"default, 1e5 {data}: CPU seconds; vmp", cpu_of(data, "auto"), cpu_of(data, "vmp"), f"value {seconds}")
        for data, seconds in (("values", 10), ("labels", 15))
    ]
    lines.append(Line("default, 1,330 labels: CPU seconds", cpu_of("tiny", "auto"), None, "value 1.5"))
    lines.append(Line("default, 70,000 counts: CPU seconds", cpu_of("counts", "auto"), None, "value 10"))
    score = cpu_of("values", "wopt", "rmse"), cpu_of("values", "vmp", "rmse")
    return (*lines, Line("wopt, 1e5 values: RMSE; vmp", *score, "ratio 1.03"))


def _predictions() -> tuple[Line, ...]:
    names = {"predict": 3, "predict_proba": 4, "predict_interval": 8}
    metric = "wall us per cell: {}".format
    return tuple(
        Line(
            f"{name}, microseconds per cell, 2 threads", {"metric": metric(name), "threads": 2}, None, f"value {asked}"
        )
        for name, asked in names.items()
    )


def _scaling() -> tuple[Line, ...]:
    def at(method: str, threads: int) -> Where:
        return {"metric": "us_per_entry", "method": method, "threads": threads}

    methods = ("gibbs", "vmp", "cep")
    return tuple(
        Line(f"{m} sweep, 1 -> 2 threads, rank 8", at(m, 2), at(m, 1), "ratio 1.85", turned=True) for m in methods
    )


def _streams() -> tuple[Line, ...]:
    asked = {1000: 150_000, 100: 60_000}
    return tuple(
        Line(
            f"stream of labels, batches of {n}: entries a second",
            {"metric": "entries_per_second", "batch_size": n},
            None,
            f"value {a}",
        )
        for n, a in asked.items()
    )


def _cold() -> tuple[Line, ...]:
    metric = {"metric": "first_fit_cold_cache"}
    return (
        Line("first fit of the machine, seconds", {**metric, "method": "auto"}, None, "value 8"),
        Line("the same by cep", {**metric, "method": "cep"}, None, "value 8"),
    )


def _regressions() -> tuple[Line, ...]:
    asked = {"2000x20x1": 3, "20000x300x1": 5}
    return tuple(
        Line(
            f"logistic regression, {data}: CPU seconds; scikit-learn",
            cpu_of(data, "ep"),
            cpu_of(data, "sklearn"),
            f"ratio {a}",
        )
        for data, a in asked.items()
    )


TABLE: dict[str, Bench] = {
    "fits": Bench(
        "bench_default",
        "--repeats 1 --cases values,labels,tiny,counts --methods auto,vmp,wopt",
        "--repeats 1 --cases values,tiny --methods auto,vmp --entries 3000 --sweeps 20",
        _fits(),
    ),
    "predictions": Bench(
        "bench_predict", "--repeats 1", "--repeats 1 --entries 2000 --cells 500 --sweeps 8", _predictions()
    ),
    "reading": Bench("bench_read", "--repeats 1", "--repeats 1 --lines 20000", _reading()),
    "streams": Bench(
        "bench_stream",
        "--studies speed --batch-sizes 100,1000",
        "--studies speed --batch-sizes 100 --entries 2000",
        _streams(),
    ),
    "scaling": Bench(
        "bench_engines",
        "--methods gibbs,vmp,cep --entries 1e6 --likelihoods gaussian --threads 1,2 --repeats 5",
        "--methods gibbs,vmp --entries 2e4 --likelihoods gaussian --threads 1,2 --repeats 2",
        _scaling(),
    ),
    "regressions": Bench(
        "bench_glm",
        "--no-simulations --sizes 2000 --beside 2000x20x1 20000x300x1 --repeats 1",
        "--no-simulations --sizes 2000 --beside 2000x20x1 --repeats 1",
        _regressions(),
    ),
    "cold": Bench(
        "bench_startup",
        "--likelihoods gaussian --repeats 1",
        "--likelihoods gaussian --repeats 1 --methods auto",
        _cold(),
    ),
    "memory": Bench(
        "bench_memory",
        "--entries 1e6 --dtypes float64",
        "--entries 20000 --dtypes float64",
        (Line("cep, rank 8: bytes per entry", {"metric": "bytes_per_entry_peak"}, None, "value 600"),),
    ),
}

SWEEP = {"metric": "seconds_per_sweep"}
PEERS: dict[str, Bench] = {
    "samplers": Bench(
        "bench_peers",
        "--methods gibbs --folds 1 --ranks 10",
        "--methods gibbs --folds 1 --ranks 10 --sweeps 10",
        tuple(
            Line(
                f"gibbs sweep, Alog, rank 10; {peer}",
                {**SWEEP, "method": "gibbs"},
                {**SWEEP, "method": peer},
                asked,
                True,
            )
            for peer, asked in (("smurff", "ratio 9 (at 1e6 entries)"), ("myfm", ""))
        ),
    ),
    "mofapy2": Bench(
        "bench_factor_models",
        "--peers mofapy2",
        "--peers mofapy2 --shape 200,40 --ranks 5 --sweeps 20",
        (
            Line(
                "BayesianPCA of labels, seconds; mofapy2",
                {"data": "bernoulli hidden", "method": "vb-factorized"},
                {"data": "bernoulli hidden", "method": "mofapy2"},
                field="seconds",
            ),
        ),
    ),
}


def matches(item: Row, where: Where) -> bool:
    return all(item.get(name) == value for name, value in where.items())


def figure(rows: Sequence[Row], where: Where | None, field: str) -> float:
    """The figure of the first row that is meant; nan where a smaller run does not have it."""
    found = (
        [] if where is None else [item[field] for item in rows if matches(item, where) and item.get(field) is not None]
    )
    return float(found[0]) if found else np.nan


def run_bench(name: str, options: str) -> tuple[list[Row], float, float, float]:
    """The rows of one run, and the CPU and wall seconds and peak megabytes of its process."""
    wall = time.perf_counter()
    command = [sys.executable, "-m", f"scripts.speed.{name}", *options.split(), "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True) as process:
        text = "" if process.stdout is None else process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with exit code {process.returncode}; run it by itself.")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return json.loads(text), used.ru_utime + used.ru_stime, time.perf_counter() - wall, used.ru_maxrss / unit


def lines_of(bench: Bench, options: str, repeats: int) -> list[Row]:
    """The lines that one bench fills: medians over its runs."""
    runs = [run_bench(bench.name, options) for _ in range(repeats)]
    cpu, wall, megabytes = (float(np.median([run[k] for run in runs])) for k in (1, 2, 3))
    filled = []
    for line in bench.lines:
        values = np.array(
            [[figure(rows, line.value, line.field), figure(rows, line.rival, line.field)] for rows, *_ in runs]
        )
        if np.isnan(values[:, 0]).any():
            continue  # not part of a quick run, or skipped there
        ratio = values[:, 1] / values[:, 0] if line.turned else values[:, 0] / values[:, 1]
        found = {"value": np.median(values[:, 0]), "rival": np.median(values[:, 1]), "ratio": np.median(ratio)}
        numbers = {name: None if np.isnan(value) else float(value) for name, value in found.items()}
        asked = {"asked": line.asked, "cpu": cpu, "wall": wall, "megabytes": megabytes, "runs": repeats}
        filled.append({"data": bench.name, "metric": line.what, **numbers, **asked})
        say(f"{line.what}: {numbers}, asked {line.asked}")
    return filled


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__)
    p.add_argument(
        "--rows", type=words(*TABLE, *PEERS), default=[*TABLE], help="groups of rows (default: all but peers)"
    )
    p.add_argument("--repeats", type=int, default=5, help="runs of which medians are taken (default: %(default)s)")
    p.add_argument("--quick", action="store_true", help="one run of each, on smaller data")
    p.add_argument("--peers", action="store_true", help="the rows that need other packages, too")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for name in [*options.rows, *(PEERS if options.peers else ())]:
        bench = {**TABLE, **PEERS}[name]
        rows += lines_of(
            bench, bench.quick if options.quick else bench.options, 1 if options.quick else options.repeats
        )
    report(rows, options.json)


if __name__ == "__main__":
    main()
