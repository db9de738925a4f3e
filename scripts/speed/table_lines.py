"""The lines of the table of speed and memory (`bench_table`): of which bench each is, beside what, what is asked."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    """A bench, its options, those of --quick or None, the lines that are taken from it, and the data that it needs."""

    name: str
    options: str
    quick: str | None
    lines: tuple[Line, ...]
    needs: str = ""


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


def _whole_fits() -> tuple[Line, ...]:
    def at(method: str, threads: int) -> Where:
        return {"metric": "seconds", "data": "values", "method": method, "threads": threads}

    names = {"auto": "default", "vmp": "vmp"}
    return tuple(
        Line(f"whole fit, {name}, 1e5 values, 1 -> 2 threads: seconds", at(m, 2), at(m, 1), "ratio 1.7", turned=True)
        for m, name in names.items()
    )


def _dblp() -> tuple[Line, ...]:
    return (
        Line("default, DBLP: wall seconds", cpu_of("dblp", "auto", "seconds"), None, "value 40"),
        Line("default, DBLP: AUC", cpu_of("dblp", "auto", "auc"), None, "value 0.974"),
    )


def _predictions() -> tuple[Line, ...]:
    def at(name: str, threads: int) -> Where:
        return {"metric": f"wall us per cell: {name}", "threads": threads}

    names = {"predict": 3, "predict_proba": 4, "predict_interval": 8}
    return (
        *(Line(f"{n}, microseconds per cell, 2 threads", at(n, 2), None, f"value {a}") for n, a in names.items()),
        *(Line(f"{n}, 1 -> 2 threads", at(n, 2), at(n, 1), "ratio 1.8", turned=True) for n in names),
    )


def _sweeps(entries: str, values: dict[str, int]) -> tuple[Line, ...]:
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


def _averaged() -> tuple[Line, ...]:
    def at(method: str, rank: int) -> Where:
        return {"metric": "us_per_entry", "method": method, "rank": rank}

    return tuple(
        Line(f"cep averaged, rank {r}: us per entry; vmp", at("cep-averaged", r), at("vmp", r), "ratio 3")
        for r in (32, 64)
    )


def _memory() -> tuple[Line, ...]:
    asked = {"gibbs": 60, "vmp": 100, "cep-averaged": 70, "cep": 600}
    peak = {"metric": "bytes_per_entry_peak"}
    return tuple(
        Line(f"{m}, rank 8, 1e6: bytes per entry", {**peak, "method": m}, None, f"value {a}") for m, a in asked.items()
    )


def _pca() -> tuple[Line, ...]:
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


TABLE: dict[str, Bench] = {
    "fits": Bench(
        "bench_default",
        "--repeats 1 --cases values,labels,tiny,counts --methods auto,vmp,wopt",
        "--repeats 1 --cases values,tiny --methods auto,vmp --entries 3000 --sweeps 20",
        _fits(),
    ),
    "predictions": Bench(
        "bench_predict", "--repeats 3", "--repeats 1 --entries 2000 --cells 500 --sweeps 8", _predictions()
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
        "--no-simulations --sizes 2000 --beside 2000x20x1 20000x300x1 200000x50x1 100000x1000x.01 --repeats 1",
        "--no-simulations --sizes 2000 --beside 2000x20x1 --repeats 1",
        _regressions(),
    ),
    "cold": Bench(
        "bench_startup",
        "--likelihoods gaussian --repeats 1",
        "--likelihoods gaussian --repeats 1 --methods auto",
        _cold(),
    ),
    "sweeps": Bench(
        "bench_gibbs",
        "--entries 1e6",
        "--entries 5e4",
        _sweeps("1e6", {"cp": 45, "default": 200}),
    ),
    "sweeps-1e7": Bench("bench_gibbs", "--entries 1e7 --columns cp", None, _sweeps("1e7", {"cp": 60})),
    "averaged": Bench(
        "bench_engines",
        "--methods vmp,cep-averaged --ranks 32,64 --entries 1e5 --likelihoods gaussian --repeats 3",
        "--methods vmp,cep-averaged --ranks 32 --entries 5000 --likelihoods gaussian --repeats 2",
        _averaged(),
    ),
    "whole-fits": Bench(
        "bench_default",
        "--repeats 1 --cases values --methods auto,vmp --threads 1,2",
        "--repeats 1 --cases values --methods vmp --threads 1,2 --entries 3000 --sweeps 8",
        _whole_fits(),
    ),
    "memory": Bench(
        "bench_memory",
        "--entries 1e6 --dtypes float64 --own --methods gibbs,vmp,cep-averaged,cep",
        "--entries 20000 --dtypes float64 --own --methods gibbs,cep-averaged",
        _memory(),
    ),
    "pca": Bench("bench_pca", "", "--shape 1000,200", _pca()),
    "dblp": Bench("bench_default", "--repeats 1 --cases dblp --methods auto", None, _dblp(), needs="dblp"),
}

SWEEP = {"metric": "seconds_per_sweep"}


def _samplers(entries: str, **asked: str) -> tuple[Line, ...]:
    ours = {**SWEEP, "method": "gibbs"}
    return tuple(
        Line(f"gibbs sweep, {entries}: seconds; {peer}", ours, {**SWEEP, "method": peer}, ratio, True)
        for peer, ratio in asked.items()
    )


PEERS: dict[str, Bench] = {
    "samplers": Bench(
        "bench_peers",
        "--methods gibbs --folds 1 --ranks 10",
        "--methods gibbs --folds 1 --ranks 10 --sweeps 10",
        _samplers("Alog, rank 10", smurff="", myfm=""),
    ),
    "samplers-1e6": Bench(
        "bench_peers",
        "--entries 1e6 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 20",
        "--entries 2e4 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 10",
        _samplers("1e6, rank 8", smurff="ratio 9"),
    ),
    "samplers-1e7": Bench(
        "bench_peers",
        "--entries 1e7 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 6",
        None,
        _samplers("1e7, rank 8", smurff="ratio 6"),
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
