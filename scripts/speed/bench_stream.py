"""Speed, memory and drift of streams over simulated entries.

speed    entries per second against batch size and rank
memory   resident size and latency per batch along one long stream of fresh entries (a process of its own)
drift    loss of the predictions made before learning, with and without `forget`, when the factors change half-way
order    spread of the final AUC over random orders of the same entries
revisit  prequential scores and seconds against the size of the reservoir of past entries that are learned again

--figure draws the memory study.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import Row, fresh_process, numbers, paper_model, parser, report, row, say, words
from tensorcep import CPClassifier, CPRegressor
from tensorcep.core.persist.archive import atomic_write
from tensorcep.metrics import auc

SHAPE = (1000, 200, 1000)
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


class Source:
    """Labels of entries drawn from a fixed probit CP model, without end and without storing any."""

    def __init__(self, rank: int, seed: int, shape: tuple[int, ...] = SHAPE):
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.factors = [self.rng.normal(0.6, 0.8, (n, rank)) for n in shape]
        self.middle = rank * 0.6 ** len(shape)

    def batches(self, n: int, size: int, real: bool = False) -> Batches:
        """Batches of `size` entries, n in all, of labels or of real values."""
        for start in range(0, n, size):
            coords = np.stack([self.rng.integers(0, m, min(size, n - start)) for m in self.shape], axis=1)
            yield coords, self.values(coords) if real else self.labels(coords)

    def values(self, coords: np.ndarray) -> np.ndarray:
        """Real values of cells, with noise of variance 1."""
        rows = [factor[column] for factor, column in zip(self.factors, coords.T, strict=True)]
        return np.asarray(np.prod(rows, axis=0).sum(axis=1) + self.rng.standard_normal(len(coords)))

    def labels(self, coords: np.ndarray) -> np.ndarray:
        """Labels of cells."""
        return (self.values(coords) > self.middle).astype(float)


def resident() -> float:
    """Resident memory of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return 1024.0 * int(line.split()[1])
    return float("nan")


def model_of(rank: int, seed: int, **params: Any) -> Any:
    """A classifier of the CEP paper's model; a stream starts at its prior, without annealing."""
    how: dict[str, Any] = {"random_state": seed, "init": "prior", "anneal": 0, "max_iter": 50}
    return paper_model(CPClassifier, rank, **how, **params)


def speed(args: Any) -> list[Row]:
    rows = []
    for rank in args.ranks:
        for size in args.batch_sizes:
            source, n = Source(rank, args.seed), max(args.entries[0], 3 * size)
            model = model_of(rank, args.seed).stream(source.batches(n, size))
            seconds = float(model.stream_trace_["seconds"][1:].sum())  # the first batch may compile
            about = {"data": "simulated", "rank": rank, "method": "cep", "batch_size": size, "entries": n}
            rows.append(row("entries_per_second", (n - size) / seconds, **about, seconds=seconds))
            rows.append(row("sweeps_per_batch", float(model.stream_trace_["n_iter"][1:].mean()), **about))
            say(f"rank {rank}, batches of {size}: {(n - size) / seconds:.0f} entries per second")
    return rows


def memory_child(n: int, size: int, rank: int, seed: int, points: int) -> list[dict[str, float]]:
    """Resident size and latency at some points of one stream; nothing is kept but these."""
    found: list[dict[str, float]] = []
    every = max(1, n // size // points)
    model, latency, wall = model_of(rank, seed), [], time.perf_counter()
    for batch, (coords, y) in enumerate(Source(rank, seed).batches(n, size), 1):
        begin = time.perf_counter()
        model.partial_fit(coords, y)
        latency.append(time.perf_counter() - begin)
        if batch % every == 0:
            found.append(
                {
                    "entries": model.n_samples_seen_,
                    "resident": resident(),
                    "latency": float(np.median(latency)),
                    "latency_99": float(np.quantile(latency, 0.99)),
                    "seconds": time.perf_counter() - wall,
                }
            )
            latency = []
    return found


def memory(args: Any) -> list[Row]:
    rows: list[Row] = []
    rank, size = args.ranks[0], args.batch_sizes[-1]
    case = map(str, (args.stream_entries[0], size, rank, args.seed, args.points))
    done = fresh_process("-m", __spec__.name, "--child", *case)
    done.check_returncode()
    for point in json.loads(done.stdout):
        about = {"data": "simulated", "rank": rank, "method": "cep", "batch_size": size}
        about |= {"entries": int(point["entries"]), "seconds": point["seconds"]}
        rows.append(row("resident_megabytes", point["resident"] / 1e6, **about))
        rows.append(row("latency_ms", 1e3 * point["latency"], **about))
        rows.append(row("latency_99_ms", 1e3 * point["latency_99"], **about))
    return rows


def drift(args: Any) -> list[Row]:
    rows: list[Row] = []
    rank, shape, half = args.ranks[0], (60, 50, 40), args.entries[0] // 2
    size = min(500, half // 4)
    for forget in args.forget:
        before, after = Source(rank, args.seed, shape), Source(rank, args.seed + 1, shape)
        model = model_of(rank, args.seed, forget=forget).stream(before.batches(half, size))
        losses = [-model.stream_trace_["log_score"]]
        losses.append(-model.stream(after.batches(half, size)).stream_trace_["log_score"])
        last = [part[-max(1, len(part) // 2) :].mean() for part in losses]
        about = {"data": "simulated drift", "rank": rank, "method": "cep", "batch_size": size, "forget": forget}
        rows.append(row("log_loss_before_change", float(last[0]), **about, entries=2 * half))
        rows.append(row("log_loss_after_change", float(losses[1].mean()), **about, entries=2 * half))
        rows.append(row("log_loss_second_half_after_change", float(last[1]), **about, entries=2 * half))
        say(f"forget {forget}: {last[0]:.4f} before the change, {losses[1].mean():.4f} after it")
    return rows


def order(args: Any) -> list[Row]:
    rank, size = args.ranks[0], args.batch_sizes[0]
    source = Source(rank, args.seed, (100, 60, 80))
    coords, y = next(source.batches(args.entries[0], args.entries[0]))
    test, truth = next(source.batches(5000, 5000))
    values = []
    for n in range(args.orders):
        arrive = np.random.default_rng([args.seed, n]).permutation(len(y))
        parts = (arrive[a : a + size] for a in range(0, len(y), size))
        model = model_of(rank, args.seed).stream((coords[part], y[part]) for part in parts)
        values.append(auc(truth, model.decision_function(test)))
    about = {"data": "simulated", "rank": rank, "method": "cep", "batch_size": size, "entries": len(y)}
    return [
        row("auc_mean_over_orders", float(np.mean(values)), **about, orders=len(values)),
        row("auc_sd_over_orders", float(np.std(values, ddof=1)), **about, orders=len(values)),
    ]


def revisit(args: Any) -> list[Row]:
    """Real values and labels, in small batches, of a tensor of which a stream sees a good part."""
    rows: list[Row] = []
    rank, shape, n, size = args.ranks[0], (60, 50, 40), args.entries[0], args.batch_sizes[0]
    for likelihood in ("gaussian", "probit"):
        for capacity in args.revisit:
            source, real = Source(rank, args.seed, shape), likelihood == "gaussian"
            how: dict[str, Any] = {"max_iter": 50, "revisit": capacity, "random_state": args.seed}
            model = paper_model(CPRegressor, rank, **how) if real else model_of(rank, args.seed, revisit=capacity)
            trace = model.stream(source.batches(n, size, real)).stream_trace_
            about = {"data": f"simulated {likelihood}", "rank": rank, "method": "cep", "batch_size": size}
            about |= {"entries": n, "revisit": capacity, "seconds": float(trace["seconds"][1:].sum())}
            second_half = -trace["log_score"][len(trace["log_score"]) // 2 :].mean()
            rows.append(row("log_loss", float(-trace["log_score"][1:].mean()), **about))
            rows.append(row("log_loss_second_half", float(second_half), **about))
            rows.append(row("revisits_skipped", model.n_revisits_skipped_, **about))
            say(f"{likelihood}, revisit {capacity}: {second_half:.4f} in the second half, {about['seconds']:.2f} s")
    return rows


def draw(rows: list[Row], path: str) -> None:
    """Resident size and latency of the memory study against the entries seen."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(6.4, 5.2), layout="constrained")
    for axes, metrics in ((above, ("resident_megabytes",)), (below, ("latency_ms", "latency_99_ms"))):
        for metric in metrics:
            found = [item for item in rows if item["metric"] == metric]
            axes.plot([item["entries"] for item in found], [item["value"] for item in found], "o-", label=metric)
        axes.grid(alpha=0.3)
    above.set_ylim(0.0, 1.2 * max(item["value"] for item in rows if item["metric"] == "resident_megabytes"))
    above.set_ylabel("resident size (MB)")
    below.set_yscale("log")  # the first batches, which load compiled code, take far longer than the others
    below.set_ylabel("latency per batch (ms)")
    below.legend(["median", "99th percentile"], frameon=False)
    below.set_xlabel("entries learned")
    with atomic_write(path) as handle:
        figure.savefig(handle, format="png", dpi=150)
    plt.close(figure)


STUDIES = {"speed": speed, "memory": memory, "drift": drift, "order": order, "revisit": revisit}


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    warnings.simplefilter("ignore")  # batches that end before the tolerance, rows without entries
    if arguments[:1] == ["--child"]:
        n, size, rank, seed, points = map(int, arguments[1:])
        print(json.dumps(memory_child(n, size, rank, seed, points)))
        return
    p = parser(__doc__, ranks="8", seed=0)
    p.add_argument("--studies", type=words(*STUDIES), default=",".join(STUDIES), help="default: %(default)s")
    p.add_argument("--batch-sizes", type=numbers, default="100,1000,10000", help="default: %(default)s")
    p.add_argument("--entries", type=numbers, default="100000", help="entries of a study (default: %(default)s)")
    p.add_argument("--stream-entries", type=numbers, default="1e7", help="of the memory study (default: %(default)s)")
    p.add_argument("--points", type=int, default=20, help="of the memory study (default: %(default)s)")
    p.add_argument("--orders", type=int, default=10, help="of the order study (default: %(default)s)")
    p.add_argument(
        "--forget",
        type=lambda text: [float(word) for word in text.split(",")],
        default="0,0.01,0.03,0.1",
        help="of the drift study (default: %(default)s)",
    )
    p.add_argument("--revisit", type=numbers, default="0,100,1000", help="of its study (default: %(default)s)")
    p.add_argument("--figure", metavar="FILE.png", help="draw resident size and latency of the memory study")
    args = p.parse_args(arguments)
    if args.figure and "memory" not in args.studies:
        p.error("--figure draws the study 'memory', which --studies leaves out")
    rows: list[Row] = []
    for name in args.studies:
        rows += STUDIES[name](args)
    if args.figure:
        draw(rows, args.figure)
    report(rows, args.json)


if __name__ == "__main__":
    main()
