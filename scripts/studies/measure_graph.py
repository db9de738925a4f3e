"""What it is worth to know which rows are neighbours: a graph of sensors, or of films, with and without `Graph`.

"field": sensors on a square grid, whose values are a sum of two products of a smooth field and a course over time,
and noise; a share of their cells is shown, and some sensors show none. "movielens": stars of MovieLens 100k; a film's
neighbours are the films with the most similar kinds and years, from the features beside the ratings, and a fifth of the
films shows no ratings. Scores are those of cells that were not shown, of known and of silent rows apart; at `--entries`
above 0 that many ratings are read.

"cost": CPU seconds of a Gibbs sweep on a grid of `--sizes` sensors, each with 10 cells, with a graph and without.

Nothing is chosen by the scores.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import Row, numbers, parser, report, row, say
from tensorcep import CPRegressor, Gibbs, Graph

SILENT, NEAREST = 0.2, 8


def grid(side: int) -> list[tuple[int, int]]:
    """The edges of a square grid of sensors."""
    at = np.arange(side * side).reshape(side, side)
    ends = np.append(at[:-1], at.T[:-1]), np.append(at[1:], at.T[1:])
    return list(zip(*(end.tolist() for end in ends), strict=True))


def field_of(side: int, hours: int, seed: int) -> tuple[np.ndarray, np.ndarray, Graph]:
    """Cells (N, 2) and values of all sensors and hours, and the graph."""
    rng, n = np.random.default_rng(seed), side * side
    place = np.stack(np.divmod(np.arange(n), side), axis=1)
    apart = ((place[:, None] - place) ** 2).sum(axis=-1)
    root = np.linalg.cholesky(np.exp(-apart / 18.0) + 1e-6 * np.eye(n))
    f = (root @ rng.standard_normal((n, 2))) @ rng.standard_normal((2, hours)) + root @ rng.standard_normal((n, 1))
    cells = np.argwhere(np.ones(f.shape, dtype=bool))
    return cells, f.ravel() + 0.5 * rng.standard_normal(f.size), Graph(grid(side))


def movielens(folder: Path, entries: int, seed: int) -> tuple[np.ndarray, np.ndarray, Graph]:
    """Cells (film, user) and stars of the five test folds, which are all ratings, and the graph of films."""
    lines = []
    for fold in range(1, 6):
        with gzip.open(folder / f"u{fold}.test.gz", "rt") as file:
            lines.append(np.loadtxt(file, dtype=np.int64)[:, :3])
    found = np.concatenate(lines)
    if entries:
        found = found[np.random.default_rng(seed).permutation(len(found))[:entries]]
    with np.load(folder / "side.npz", allow_pickle=False) as side:
        kinds = side["F1"]
    scaled = (kinds - kinds.mean(axis=0)) / np.maximum(kinds.std(axis=0), 1e-9)
    square = (scaled**2).sum(axis=1)
    apart = square[:, None] + square - 2.0 * scaled @ scaled.T
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1, kind="stable")[:, :NEAREST]
    edges = sorted({(min(a, b), max(a, b)) for a, others in enumerate(near.tolist()) for b in others})
    return found[:, [1, 0]] - 1, found[:, 2].astype(float), Graph(edges)


def scores(model: CPRegressor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """RMSE, coverage of 90 % intervals, and log score."""
    lower, upper = model.predict_interval(X).T
    found = {"rmse": float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))}
    found["coverage 90"] = float(np.mean((lower <= y) & (y <= upper)))
    return {**found, "log score": float(np.mean(model.log_score(X, y)))}


def measure(name: str, options: argparse.Namespace) -> list[Row]:
    """Scores with and without the graph."""
    if name == "field":
        cells, y, graph = field_of(options.side, 30, options.seed)
        share = 0.1
    else:
        cells, y, graph = movielens(Path(options.folder), options.entries, options.seed)
        share = 0.8
    rng = np.random.default_rng([options.seed, 1])
    shape = tuple(int(n) for n in cells.max(axis=0) + 1)
    silent = (rng.random(shape[0]) < SILENT)[cells[:, 0]]
    train = (rng.random(len(y)) < share) & ~silent
    parts, rows = {"known": ~train & ~silent, "silent": silent}, []
    how: dict[str, Any] = {"random_state": options.seed, "shape": None}
    how |= {"max_iter": options.sweeps} if options.sweeps else {}
    for kind, prior in (("plain", "auto"), ("graph", {0: graph})):
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = CPRegressor(method=options.method, prior=prior, **{**how, "shape": shape}).fit(
                cells[train], y[train]
            )
            found = {part: scores(model, cells[which], y[which]) for part, which in parts.items()}
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
        for part, own in found.items():
            rows += [row(key, value, data=name, rows=part, model=kind) for key, value in own.items()]
            say(f"{name} {part} {kind}: " + ", ".join(f"{key} {value:.4g}" for key, value in own.items()))
        rows.append(row("cpu_s", seconds, data=name, model=kind))
    return rows


def cost(n: int, options: argparse.Namespace) -> list[Row]:
    """CPU seconds of a sweep of Gibbs, and what a graph takes before the first one."""
    side, rng, rows = round(n**0.5), np.random.default_rng(options.seed), []
    n = side * side
    cells = np.stack([np.repeat(np.arange(n), 10), rng.integers(0, 200, 10 * n)], axis=1)
    _, first = np.unique(cells, axis=0, return_index=True)
    cells, rank = cells[first], 8
    y = rng.standard_normal((n, 1))[cells[:, 0], 0] + rng.standard_normal(len(cells))
    for kind, prior in (("plain", "auto"), ("graph", {0: Graph(grid(side))})):
        at = [time.process_time()]

        def note(*_: Any, at: list[float] = at) -> None:
            at.append(time.process_time())

        how: dict[str, Any] = {"max_iter": 1 + options.timed, "init": "random", "random_state": 0, "n_jobs": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = CPRegressor(rank, method=Gibbs(n_chains=1, burn_in=0), prior=prior, interactions="cp", **how)
            model.set_params(callbacks=note).fit(cells, y)
        each = (at[-1] - at[1]) / options.timed
        rows.append(row("cpu_s a sweep", each, data=f"{n} sensors", model=kind))
        rows.append(row("cpu_s until the first sweep is done", at[1] - at[0], data=f"{n} sensors", model=kind))
        say(f"{n} sensors {kind}: {each:.3g} CPU s a sweep, {at[1] - at[0]:.3g} until the first is done")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=["field"], sweeps=0, seed=0)
    p.add_argument("--method", default="auto")
    p.add_argument("--side", type=int, default=20, help="sensors of each side of the field")
    p.add_argument("--entries", type=int, default=0)
    p.add_argument("--sizes", type=numbers, default=[], help="sensors whose cost is measured, between commas")
    p.add_argument("--timed", type=int, default=5, help="sweeps whose cost is measured")
    p.add_argument("--folder", default=os.path.join(os.environ.get("TENSORCEP_DATA", "data"), "movielens100k"))
    options = p.parse_args(arguments)
    rows = [found for name in options.data for found in measure(name, options)]
    report([*rows, *(found for n in options.sizes for found in cost(n, options))], options.json)


if __name__ == "__main__":
    main()
