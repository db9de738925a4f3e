"""What fits on Dask workers are asked to reach, line by line, beside what they reach on this machine.

Each line has what is asked, the figure, and 1 or 0 for whether it is reached; lines of seconds and tasks, of which
nothing is asked, say what the ratios come from. Ratios are of fits one after the other, round and round: "wall" of the
shortest sweeps, which other work on the machine cannot help, "CPU" of the medians of this process and all workers
together without what Dask takes when idle, where what is asked of wall time would hold on as many free cores. Bytes are
those counted, sent or taken from a machine's memory, by the formula: rows and their sums once to this process, and what
is new to a worker once to each. A worker is killed a moment after the third sweep. Fits with two chains are shared by
two workers. From MANY entries on, each kind of fit is run once, one thread and one part are left out, and chains have
fewer entries: with 1e7 the whole takes about six minutes on free cores.

Not run here: a hundred million entries in a capped memory and parts on disk (`measure_out_of_core`), parquet files with
text as keys (`measure_distributed --parquet`), and a client or scheduler that is killed (tests marked slow).
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.distributed import ENGINES, Meter, entries, fitted, on_workers
from tensorcep import CPRegressor, SparseTensor, distributed
from tensorcep.cp.posterior.belief import Draws
from tensorcep.methods import Gibbs

# Of a worker that is killed: seconds that a fit may take longer, without the time to do its work again.
SLOWEST = 10.0
# So many entries are many: fits of them take half a minute.
MANY = 4_000_000


KINDS = ("1 thread", "2 threads", "1 worker", "2 workers", "1 worker, 1 part")


def line(what: str, method: str, asked: str, value: float, reached: bool, n: int) -> Row:
    """A line of the table."""
    end = "" if asked == "-" else f", asked: {asked}: {'reached' if reached else 'NOT REACHED'}"
    say(f"{method}, {what}: {value:.4g}{end}")
    return row(what, value, data="random", method=method, entries=n, asked=asked, reached=float(reached))


def is_same(one: CPRegressor, other: CPRegressor) -> bool:
    """Whether what was inferred of the rows, and the changes, have the same bits."""
    return all(np.array_equal(a, b) for a, b in zip(numbers_of(one), numbers_of(other), strict=True))


def numbers_of(model: CPRegressor) -> list[np.ndarray]:
    """The draws of a sampler, or the natural parameters of rows; and the changes."""
    found = model.posterior_
    return [*([found.rows] if isinstance(found, Draws) else [found.Lam, found.eta]), model.trace_["change"]]


def bytes_asked(method: str, n_rows: int, R: int, n_workers: int) -> float:
    """MB that leave workers, and this process, in a sweep, where all rows are sent and come back once."""
    P = R * (R + 1) // 2
    if method == "gibbs":  # rows and squares to this process and to the other workers
        return n_workers * n_rows * (R + 1) * 8 / 1e6
    return (2 + n_workers - 1) * n_rows * (P + R) * 8 / 1e6


def sweeps_of(tensor: SparseTensor, method: str, options: argparse.Namespace) -> list[Row]:
    """Bits, times and bytes of sweeps."""
    found: list[Row] = []
    many = tensor.nnz >= MANY
    kinds = ("2 threads", "1 worker", "2 workers") if many else KINDS
    wall: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    of_client: dict[str, list[float]] = {kind: [] for kind in kinds}
    known, same, sent = None, True, []
    for _ in range(1 if many else options.rounds):
        for kind in kinds:
            own = argparse.Namespace(**{**vars(options), "parts": 1 if kind.endswith("part") else None})
            meter, threads = Meter(), int(kind[0])
            if "thread" in kind:
                model = fitted(tensor, method, meter, options, threads)
            else:
                model, meter = on_workers(tensor, method, threads, own)
            known = model if known is None else known
            same = same and is_same(model, known)
            told = np.diff(np.array(meter.lines), axis=0)
            wall[kind].append(float(told[:, 0].min()))
            cpu[kind].append(float(np.median(told[:, 1])))
            of_client[kind].append(float(np.median(told[:, 5])))
            if kind == "2 workers":
                sent.append(float(np.median(told[:, 2] + told[:, 3])))
    n, R = tensor.nnz, options.ranks[0]
    for kind in kinds:
        of_all, own = min(cpu[kind]), min(of_client[kind])
        figures = {"wall": min(wall[kind]), "CPU of all": of_all, "CPU of this process": own}
        found += [line(f"seconds a sweep, {kind}, {name}", method, "-", s, True, n) for name, s in figures.items()]
    found.append(line("same bits, threads and workers", method, "1", float(same), same, n))
    for name, times in (("wall", {k: min(v) for k, v in wall.items()}), ("CPU", {k: min(v) for k, v in cpu.items()})):
        if not many:
            parts = times["1 worker"] / times["1 worker, 1 part"]
            found.append(line(f"{name}, parts / one part", method, "<= 1.0", parts, parts <= 1.0, n))
        of_threads = times["2 workers"] / times["2 threads"]
        found.append(line(f"{name}, 2 workers / 2 threads", method, "<= 1.3", of_threads, of_threads <= 1.3, n))
    gain = min(wall["1 worker"]) / min(wall["2 workers"])
    found.append(line("wall, 1 worker / 2 workers", method, ">= 1.7", gain, gain >= 1.7, n))
    more = min(cpu["2 workers"]) / min(cpu["1 worker"])
    found.append(line("CPU, 2 workers / 1 worker", method, "<= 1.18", more, more <= 2.0 / 1.7, n))
    formula = bytes_asked(method, sum(tensor.shape), R, 2)
    counted = float(np.median(sent)) / formula
    found.append(line("bytes / formula", method, "0.9 to 1.1", counted, 0.9 <= counted <= 1.1, n))
    return found


def killed(tensor: SparseTensor, method: str, options: argparse.Namespace) -> list[Row]:
    """Seconds that a fit takes longer whose worker is killed, and whether it ends at the same bits."""
    from distributed import Client, LocalCluster

    here, seconds, models = fitted(tensor, method, Meter(), options, 1), [], []
    local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=None)
    with local, Client(local) as client:
        for kills in (False, False, True):  # the first fit compiles
            calls: list[float] = []

            def end(*_: Any, calls: list[float] = calls, kills: bool = kills) -> None:
                calls.append(time.perf_counter())
                if kills and len(calls) == 3:
                    pid = sorted(client.run(os.getpid).values())[0]
                    threading.Timer(0.02, os.kill, [pid, signal.SIGKILL]).start()

            begin = time.perf_counter()
            model = CPRegressor(options.ranks[0], method=ENGINES[method](), max_iter=options.sweeps, tol=0.0)
            model.set_params(random_state=options.seed, interactions="cp", init="random", callbacks=end)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is asked for
                models.append(distributed.fit(model, tensor, client=client))
            seconds.append(time.perf_counter() - begin)
    same, longer = all(is_same(one, here) for one in models), seconds[2] - seconds[1]
    asked = f"<= {SLOWEST:g}"
    return [
        line("same bits after a worker was killed", method, "1", float(same), same, tensor.nnz),
        line("seconds longer, a worker killed", method, asked, longer, longer <= SLOWEST, tensor.nnz),
    ]


def chains(tensor: SparseTensor, options: argparse.Namespace) -> list[Row]:
    """Two chains on two workers, beside one worker and this process."""
    ENGINES["2 chains"] = lambda: Gibbs(n_chains=2, weights="equal", noise="sampled")
    here = fitted(tensor, "2 chains", Meter(), options, 1)
    times: dict[int, list[float]] = {1: [], 2: []}
    same = True
    for _ in range(options.rounds):
        for n, found in times.items():
            model, meter = on_workers(tensor, "2 chains", n, options)
            same = same and is_same(model, here)
            found.append(float(np.diff(np.array(meter.lines), axis=0)[:, 0].min()))
    gain = min(times[1]) / min(times[2])
    return [
        line("same draws, 2 chains on workers", "gibbs", "1", float(same), same, tensor.nnz),
        line("wall, 2 chains, 1 worker / 2 workers", "gibbs", ">= 1.75", gain, gain >= 1.75, tensor.nnz),
    ]


def main(argv: list[str] | None = None) -> None:
    options = parser(__doc__, ranks="8", sweeps=6, seed=0)
    options.add_argument("--entries", type=float, default=2e6, help="number of entries (default: 2e6)")
    options.add_argument("--engines", type=words(*ENGINES), default="gibbs,vmp", help="default: gibbs,vmp")
    options.add_argument("--kill", type=words(*ENGINES), default="gibbs,vmp,cep", help="default: gibbs,vmp,cep")
    options.add_argument("--kill-entries", type=float, default=2e5, help="of fits whose worker is killed")
    options.add_argument("--rounds", type=int, default=3, help="fits of every kind (default: 3)")
    given = options.parse_args(argv)
    given.parts = None
    rows: list[Row] = []
    tensor = entries(int(given.entries), given.seed)
    for method in given.engines:
        rows += sweeps_of(tensor, method, given)
    rows += chains(tensor if tensor.nnz < MANY else entries(MANY // 4, given.seed), given)
    few = entries(int(given.kill_entries), given.seed)
    for method in given.kill:
        rows += killed(few, method, given)
    report(rows, given.json)


if __name__ == "__main__":
    main()
