"""The clutter problem of Minka (2001), figures 1 and 2: cost against accuracy of six methods, and their posteriors.

    python -m scripts.papers.reproduce_clutter    # n = 20: typical, with a mode far out, three modes; n = 200
    python -m scripts.papers.reproduce_clutter --figure clutter.png

Exact values come from a grid. Cost is in floating point operations, counted as in `baselines.clutter`, as in the paper,
and in seconds of the whole run here (EP is compiled, the other methods are numpy). For each method: evidence, mean and
variance at its end, their errors, and the errors that it had after the operations that EP took to converge
("at_ep_cost"). All Gaussian methods catch one mode only where there are several; EP is the most accurate elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.papers.baselines.clutter import (
    LISTED,
    METHODS,
    SAMPLERS,
    STOP,
    TYPICAL,
    Estimate,
    exact,
    fit_ep,
    log_joint,
    simulate,
)

N_LARGE = 200
# A draw with three modes, found by going through seeds.
THREE_MODES_SEED = 3407
DATA = ("typical", "listed", "modes", "n200")
COLOURS = dict(zip(METHODS, ("black", "dimgrey", "tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True))
MARKS = {"ep": "x-", "adf": "s", "laplace": "o-", "vb": "o-", "importance": ".-", "gibbs": ".-"}
POSTERIORS = ("ep", "laplace", "vb")


def observations(name: str, seed: int) -> np.ndarray:
    """One data set."""
    if name == "n200":
        return simulate(N_LARGE, np.random.default_rng(seed))
    if name == "modes":
        return simulate(20, np.random.default_rng(THREE_MODES_SEED))
    return np.array((TYPICAL if name == "typical" else LISTED).split(), dtype=float)


def work_of(method: str, y: np.ndarray, options: Any) -> Callable[[], list[Estimate]]:
    """A run of a method that returns its estimates."""
    if method in SAMPLERS:
        return lambda: list(METHODS[method](y, options.draws, np.random.default_rng([options.seed, 1])))
    return lambda: list(METHODS[method](y))


def best_seconds(method: str, y: np.ndarray, options: Any) -> float:
    """Seconds of the fastest run to the end; EP as a user runs it, in one call."""
    run: Callable[[], Any] = work_of(method, y, options)
    if method in ("ep", "adf"):
        sweeps = 500 if method == "ep" else 1

        def run() -> Any:
            return fit_ep(y, damping=0.0, max_iter=sweeps, tol=STOP)

    seconds = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def errors(path: list[Estimate], truth: Estimate, part: str) -> np.ndarray:
    """Absolute errors of one part of the estimates."""
    return np.array([abs(getattr(found, part) - getattr(truth, part)) for found in path])


def measure(name: str, y: np.ndarray, options: Any) -> tuple[list[Row], dict[str, list[Estimate]], Estimate]:
    """Rows of one data set; the estimates of every method, and the exact posterior."""
    truth = exact(y)
    common = {"data": name, "n": len(y)}
    rows = [row(part, getattr(truth, part), method="exact", **common) for part in ("log_evidence", "mean", "var")]
    paths: dict[str, list[Estimate]] = {}
    cost = math.inf
    for method in ["ep", *[m for m in options.methods if m != "ep"]]:
        path = paths[method] = work_of(method, y, options)()
        cost = path[-1].flops if method == "ep" else cost
        end, setting = path[-1], {"method": method, **common}
        if method not in SAMPLERS:
            setting["sweep"] = len(path)
        rows.append(row("log_evidence", end.log_evidence, seconds=best_seconds(method, y, options), **setting))
        rows += [row("mean", end.mean, **setting), row("var", end.var, **setting), row("flops", end.flops, **setting)]
        for part in ("log_evidence", "mean"):
            found = errors(path, truth, part)
            rows.append(row(f"error_{part}", found[-1], **setting))
            early = found[[estimate.flops <= cost for estimate in path]]
            if method != "ep":
                rows.append(row(f"error_{part}_at_ep_cost", early[-1], **setting))
        say(f"{name} {method}: log evidence {end.log_evidence:.5f}, mean {end.mean:.5f}, {end.flops:.3g} operations")
    return rows, paths, truth


def draw(results: dict[str, tuple[np.ndarray, dict[str, list[Estimate]], Estimate]], file: Path) -> None:
    """One column for each data set: errors of evidence and mean against cost, and the posteriors."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(4, len(results), figsize=(4.8 * len(results), 13.0), squeeze=False)
    for column, (name, (y, paths, truth)) in enumerate(results.items()):
        for line, part in enumerate(("log_evidence", "mean")):
            ax = axes[line, column]
            for method, path in paths.items():
                cost, error = [found.flops for found in path], errors(path, truth, part)
                style = {"color": COLOURS[method], "markersize": 4, "linewidth": 1}
                ax.loglog(cost, error, MARKS[method], label=method, **style)
            ax.set_xlabel("floating point operations")
            ax.set_ylabel(f"error of the {part.replace('_', ' ')}")
        axes[0, column].set_title(f"{name}, n = {len(y)}")
        _draw_posteriors(axes[2, column], y, paths, truth)
        _draw_table(axes[3, column], paths, truth)
    axes[0, 0].legend(fontsize=8)
    axes[2, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)
    say(f"wrote {file}")


def _draw_posteriors(ax: Any, y: np.ndarray, paths: dict[str, list[Estimate]], truth: Estimate) -> None:
    width = 4.0 * math.sqrt(truth.var)
    x = np.linspace(truth.mean - width, truth.mean + width, 800)
    ax.plot(x, np.exp(log_joint(y, x) - truth.log_evidence), color="lightgrey", linewidth=4, label="exact")
    for method in POSTERIORS:
        if method in paths:
            end = paths[method][-1]
            density = np.exp(-0.5 * (x - end.mean) ** 2 / end.var) / math.sqrt(2.0 * math.pi * end.var)
            ax.plot(x, density, color=COLOURS[method], linewidth=1, label=method)
    ax.set_xlabel("x")
    ax.set_ylabel("posterior density")


def _draw_table(ax: Any, paths: dict[str, list[Estimate]], truth: Estimate) -> None:
    ends = {"exact": truth, **{method: path[-1] for method, path in paths.items()}}
    cells = [
        [method, f"{end.log_evidence:.4f}", f"{end.mean:.4f}", f"{end.var:.4f}", _cost(end.flops)]
        for method, end in ends.items()
    ]
    ax.axis("off")
    table = ax.table(cells, colLabels=["method", "log evidence", "mean", "variance", "operations"], loc="center")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.scale(1.0, 1.4)


def _cost(flops: float) -> str:
    return f"{flops:.1e}" if math.isfinite(flops) else ""


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=",".join(DATA), methods=",".join(METHODS), seed=0)
    p.add_argument("--draws", type=int, default=20_000, help="draws of the samplers (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="timed runs of each method (default: %(default)s)")
    p.add_argument("--figure", type=Path, help="draw the errors and posteriors into this file (needs matplotlib)")
    options = p.parse_args(arguments)
    options.methods = words(*METHODS)(",".join(options.methods))
    rows: list[Row] = []
    results = {}
    for name in words(*DATA)(",".join(options.data)):
        y = observations(name, options.seed)
        found, paths, truth = measure(name, y, options)
        rows += found
        results[name] = (y, paths, truth)
    if options.figure:
        draw(results, options.figure)
    report(rows, options.json)


if __name__ == "__main__":
    main()
