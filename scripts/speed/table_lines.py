"""The lines of the table of speed and memory (`bench_table`): which row of a bench, beside which, and what is asked."""

from __future__ import annotations

from typing import Any, NamedTuple

Where = dict[str, Any]
SWEEP: Where = {"metric": "seconds_per_sweep"}


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
    """A bench, its options, those of --quick or None, the lines that are taken from it, and the data that it needs."""

    name: str
    options: str
    quick: str | None
    lines: tuple[Line, ...]
    needs: str = ""


def cpu_of(data: str, method: str, metric: str = "cpu_seconds") -> Where:
    return {"metric": metric, "data": data, "method": method}


def reading() -> tuple[Line, ...]:
    def line(kind: str, peer: str, asked: str, ours: str = "read_tensor") -> Line:
        return Line(f"reading {kind}, CPU seconds; {peer}", cpu_of(kind, ours), cpu_of(kind, peer), asked)

    return (
        line("csv", "pandas.read", "ratio 1.3"),
        line("parquet", "pandas.read", "ratio 1.3"),
        line("tns", "pandas.read", "ratio 1.0"),
        line("text", "pandas.factorize", "ratio 1.5"),
        line("stream", "pandas.chunks", "ratio 1.5", "read_batches 1000"),
    )


def fits() -> tuple[Line, ...]:
    lines = [
        Line(f"default, 1e5 {data}: CPU seconds; vmp", cpu_of(data, "auto"), cpu_of(data, "vmp"), f"value {seconds}")
        for data, seconds in (("values", 10), ("labels", 15))
    ]
    lines.append(Line("default, 1,330 labels: CPU seconds", cpu_of("tiny", "auto"), None, "value 1.5"))
    lines.append(Line("default, 70,000 counts: CPU seconds", cpu_of("counts", "auto"), None, "value 10"))
    score = cpu_of("values", "wopt", "rmse"), cpu_of("values", "vmp", "rmse")
    wopt = Line("wopt, 1e5 values: CPU seconds", cpu_of("values", "wopt"), None, "value 2")
    return (*lines, Line("wopt, 1e5 values: RMSE; vmp", *score, "ratio 1.03"), wopt)


def large_fits() -> tuple[Line, ...]:
    ours, rival = cpu_of("values", "auto"), cpu_of("values", "vmp")
    return (Line("default, 1e6 values: CPU seconds; vmp", ours, rival, "value 90"),)


def whole_fits() -> tuple[Line, ...]:
    def at(method: str, threads: int) -> Where:
        return {"metric": "seconds", "data": "values", "method": method, "threads": threads}

    names = {"auto": "default", "vmp": "vmp"}
    return tuple(
        Line(f"whole fit, {name}, 1e5 values, 1 -> 2 threads: seconds", at(m, 2), at(m, 1), "ratio 1.7", turned=True)
        for m, name in names.items()
    )


def dblp() -> tuple[Line, ...]:
    return (
        Line("default, DBLP: wall seconds", cpu_of("dblp", "auto", "seconds"), None, "value 40"),
        Line("default, DBLP: AUC", cpu_of("dblp", "auto", "auc"), None, "value 0.974"),
    )


def predictions() -> tuple[Line, ...]:
    def at(name: str, threads: int) -> Where:
        return {"metric": f"wall us per cell: {name}", "threads": threads}

    names = {"predict": 3, "predict_proba": 4, "predict_interval": 8}
    return (
        *(Line(f"{n}, microseconds per cell, 2 threads", at(n, 2), None, f"value {a}") for n, a in names.items()),
        *(Line(f"{n}, 1 -> 2 threads", at(n, 2), at(n, 1), "ratio 1.8", turned=True) for n in names),
    )


def sweeps(entries: str, values: dict[str, int]) -> tuple[Line, ...]:
    """Sweeps of Gibbs in some columns beside the reads that they need, its burn-in, and setting up."""

    def of(method: str, columns: str) -> Where:
        return {"metric": "ns_per_entry", "columns": columns, "method": method}

    asked = {"cp": "ratio 1.0, ", "default": ""}
    named = {"cp": "rank 8", "default": "default's columns"}
    later, found = {columns: of("later", columns) for columns in values}, []
    for columns, value in values.items():
        what = f"gibbs sweep, {named[columns]}, {entries}: ns per entry; six numpy.take"
        found.append(Line(what, later[columns], of("take", columns), f"{asked[columns]}value {value}"))
    of_phases = (("sweep of the burn-in", "burn-in", "ratio 1.0"), ("set-up", "set-up", "ratio 2"))
    for what, phase, ratio in of_phases:
        told = f"gibbs {what}, rank 8, {entries}: ns per entry; later sweep"
        found.append(Line(told, of(phase, "cp"), later["cp"], ratio))
    return tuple(found)


def averaged() -> tuple[Line, ...]:
    def at(method: str, rank: int) -> Where:
        return {"metric": "us_per_entry", "method": method, "rank": rank}

    return tuple(
        Line(f"cep averaged, rank {r}: us per entry; vmp", at("cep-averaged", r), at("vmp", r), "ratio 3")
        for r in (32, 64)
    )


def memory(what: str) -> tuple[Line, ...]:
    asked = {"gibbs": 60, "vmp": 100, "cep-averaged": 70, "cep": 600}
    peak = {"metric": "bytes_per_entry_peak"}
    return tuple(
        Line(f"{m}, rank 8, {what}: bytes per entry", {**peak, "method": m}, None, f"value {a}")
        for m, a in asked.items()
    )


def rows() -> tuple[Line, ...]:
    named = {"bytes_per_row_peak": ("bytes", 2000), "us_per_row_beside_sweeps": ("microseconds beside sweeps", 10)}
    return tuple(
        Line(f"gibbs, default's columns, per row: {what}", {"metric": metric}, None, f"value {asked}")
        for metric, (what, asked) in named.items()
    )


def pca() -> tuple[Line, ...]:
    def of(metric: str, method: str) -> Where:
        return {"metric": metric, "method": method}

    asked = {"seconds": 5, "gigabytes": 0.4}
    return tuple(
        Line(
            f"BayesianPCA, half observed: {m}; masked least squares in numpy",
            of(m, "pca"),
            of(m, "least-squares"),
            f"value {a}",
        )
        for m, a in asked.items()
    )


def scaling(*methods: str) -> tuple[Line, ...]:
    def at(method: str, threads: int) -> Where:
        return {"metric": "us_per_entry", "method": method, "threads": threads}

    return tuple(
        Line(f"{m} sweep, 1 -> 2 threads, rank 8", at(m, 2), at(m, 1), "ratio 1.85", turned=True) for m in methods
    )


def streams() -> tuple[Line, ...]:
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


def cold() -> tuple[Line, ...]:
    metric = {"metric": "first_fit_cold_cache"}
    named = {"auto": "fit", "cep": "fit by cep", "stream": "partial_fit", "usual": "fits by gibbs, cep, vmp, of labels"}
    asked = {"usual": 20}
    return tuple(
        Line(f"first {what} of the machine, seconds", {**metric, "method": m}, None, f"value {asked.get(m, 8)}")
        for m, what in named.items()
    )


def regressions() -> tuple[Line, ...]:
    asked = {"2000x20x1": 3, "20000x300x1": 5, "200000x50x1": 5, "100000x1000x.01": 8}
    return tuple(
        Line(
            f"logistic regression, {data}: CPU seconds; scikit-learn",
            cpu_of(data, "ep"),
            cpu_of(data, "sklearn"),
            f"ratio {a}",
        )
        for data, a in asked.items()
    )


def samplers(entries: str, **asked: str) -> tuple[Line, ...]:
    ours = {**SWEEP, "method": "gibbs"}
    return tuple(
        Line(f"gibbs sweep, {entries}: seconds; {peer}", ours, {**SWEEP, "method": peer}, ratio, True)
        for peer, ratio in asked.items()
    )
