"""What a sweep costs more where rows of a mode have features, or follow each other, beside the same sweep without.

Entries are at random places of a tensor of 100,000 x 2,000 x 500 rows. Of the first mode's rows nothing is known
("without"), or each has 100 features ("features"), or they are a series ("series"). All sweeps are of the same entries,
by turns, so that other work on the machine slows them alike; the first of each, which may compile, is left out.

Rows: median CPU seconds of a sweep, and "times_without", the median of its ratios to the sweep without of its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from tensorcep import CPRegressor, Features, Series
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.fit.select import plan_fit
from tensorcep.methods import VMP, Gibbs

OTHERS = (2000, 500)
N_FEATURES = 100
METHODS: dict[str, Callable[[], Any]] = {
    "gibbs": lambda: Gibbs(n_chains=1, weights="equal", noise="sampled"),
    "vmp": lambda: VMP(anneal=0),
}
WITHOUT = "without"


def known(kind: str, n: int, rng: np.random.Generator) -> Any:
    """What is known of n rows."""
    if kind == WITHOUT:
        return "auto"
    return {0: Series() if kind == "series" else Features(rng.standard_normal((n, N_FEATURES)))}


class Sweeps:
    """A fit that is set up once, and does one sweep after the other."""

    def __init__(self, model: CPRegressor, coords: np.ndarray, y: np.ndarray, shape: tuple[int, ...], threads: int):
        self.plan = plan_fit(model._spec(), (coords, y, shape, (None,) * len(shape)), None)
        self.executor = ThreadExecutor(threads)
        self.state = self.plan.engine.method.init(self.plan.problem, self.plan.engine.settings, self.executor)

    def step(self) -> float:
        """CPU seconds of the next sweep."""
        begin = time.process_time()
        self.state, _ = self.plan.engine.method.step(
            self.state, self.plan.problem, self.plan.engine.settings, self.executor
        )
        return time.process_time() - begin


def measure(method: str, n: int, rank: int, threads: int, options: Any) -> list[Row]:
    """The rows of one method."""
    rng, shape = np.random.default_rng(options.seed), (options.rows, *OTHERS)
    coords = np.unique(np.stack([rng.integers(size, size=n) for size in shape], axis=1), axis=0)
    y, kinds = rng.standard_normal(len(coords)), [WITHOUT, *options.kinds]
    how: dict[str, Any] = {"interactions": options.columns, "init": "random", "random_state": options.seed}
    every = {}
    for kind in kinds:
        model = CPRegressor(rank, method=METHODS[method](), prior=known(kind, shape[0], rng), **how)
        every[kind] = Sweeps(model, coords, y, shape, threads)
        every[kind].step()
    turns = np.array([[every[kind].step() for kind in kinds] for _ in range(options.repeats)])
    rows, ratios = [], np.median(turns / turns[:, :1], axis=0)
    about = {"data": "random", "method": method, "entries": n, "rank": rank, "threads": threads}
    about["columns"] = options.columns
    for kind, seconds, ratio in zip(kinds, np.median(turns, axis=0).tolist(), ratios.tolist(), strict=True):
        rows.append(row("cpu_s", seconds, kind=kind, **about))
        rows.append(row("times_without", ratio, kind=kind, **about))
        say(f"{method}, {n} entries, rank {rank} {options.columns}, {kind}: {seconds:.3g} s, {ratio:.2f} times")
    for one in every.values():
        one.executor.close()
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="8", threads="1", seed=0)
    p.add_argument("--entries", type=numbers, default="1e6", help="numbers of entries (default: %(default)s)")
    p.add_argument("--rows", type=int, default=100_000, help="rows of the first mode (default: %(default)s)")
    p.add_argument("--engines", type=words(*METHODS), default="gibbs,vmp", help="default: %(default)s")
    p.add_argument("--kinds", type=words("features", "series"), default="features,series", help="default: %(default)s")
    p.add_argument("--columns", choices=("cp", "auto"), default="cp", help="all columns of fits by default, or not")
    p.add_argument("--repeats", type=int, default=5, help="sweeps of each kind (default: %(default)s)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for n in options.entries:
        for rank in options.ranks:
            for threads in options.threads:
                for method in options.engines:
                    rows += measure(method, n, rank, threads, options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
