"""Time a sweep of our methods and of SMURFF and myFM on the same folds of Alog.

    python -m scripts.speed.bench_peers

The peers are Gibbs samplers with learned hyper-parameters: SMURFF of the same CP model, myFM of a factorisation machine
(pairwise products of rows). They are installed into an environment of their own, which the first run makes, and run in
processes of their own. Sweeps are timed without test entries, after those of the first tenth.

Rows: the seconds of the fastest sweep, which other work on the machine disturbs least, and of the median one; RMSE on
the test entries after all sweeps (for a sampler, of the mean over the second half); and how many times the fastest
sweep of each of our methods fits into that of each peer. With --entries all fit so many simulated entries instead, of
the same rank and with no test entries.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.heldout import Entries, Split, splits
from scripts.lib.peers.environment import prepare
from scripts.lib.peers.fits import ENVIRONMENT, PEERS, PeerSetting, run_peer
from scripts.lib.published import load, options_with, scores
from scripts.lib.simulated_entries import Case, drawn, entry_counts, shape_of, simulate
from tensorcep.core.loop import run
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import rmse


class Setting(NamedTuple):
    """What is fitted, and how: a fold of Alog, or so many simulated entries."""

    data: tuple[str, int]
    fold: int
    rank: int
    sweeps: int
    threads: int

    @property
    def label(self) -> str:
        """What rows call the data."""
        return "alog" if self.data[0] == "alog" else f"simulated {self.data[0]}"

    @property
    def case(self) -> Case:
        """The simulated entries."""
        name, n = self.data
        return Case(name, n, shape_of(n), self.rank, "gaussian")


def split_of(setting: Setting) -> Split:
    """The entries in the form that peers take."""
    if setting.data[0] == "alog":
        return splits("alog", [setting.fold])[0]
    coords, y, _ = drawn(setting.case, setting.fold)
    return Split(setting.label, setting.fold, setting.case.shape, Entries(coords, y), [])


def time_peer(python: Path, peer: str, setting: Setting) -> tuple[np.ndarray, float | None]:
    """Seconds of every sweep of a peer without test entries, and its RMSE on those that there are."""
    split = split_of(setting)
    how = PeerSetting(setting.rank, setting.sweeps, setting.sweeps // 2, "learned", grouped=True)
    timed = run_peer(python, peer, split, how, threads=setting.threads, predict=False)
    if not split.tests:
        return timed["sweep_seconds"], None
    scored = run_peer(python, peer, split, how, threads=setting.threads)
    return timed["sweep_seconds"], rmse(split.held.y, scored["predicted"])


def time_ours(name: str, setting: Setting) -> tuple[np.ndarray, float | None]:
    """Seconds of every sweep of one of our methods, and its RMSE on the test entries that there are."""
    loaded = None
    if setting.data[0] == "alog":
        loaded = load("alog", setting.fold, setting.rank, "gaussian", "vmp" if name == "vmp" else "cep")
    problem = simulate(setting.case, setting.fold) if loaded is None else loaded.problem
    options = options_with(name, max_iter=setting.sweeps, n_chains=1, iterations=1, ridge=0.0)
    found = run(METHODS[name], problem, options, max_iter=setting.sweeps, tol=0.0, n_threads=setting.threads)
    return found.trace["seconds"], None if loaded is None else scores(loaded, found.posterior)["rmse"]


def measure(python: Path, name: str, setting: Setting) -> list[Row]:
    """The rows of one method or peer."""
    seconds, error = time_peer(python, name, setting) if name in PEERS else time_ours(name, setting)
    seconds = seconds[len(seconds) // 10 :]
    about: dict[str, Any] = {"data": setting.label, "fold": setting.fold, "rank": setting.rank, "method": name}
    about["threads"] = setting.threads
    rows = [
        row("seconds_per_sweep", float(seconds.min()), **about),
        row("seconds_per_sweep_median", float(np.median(seconds)), **about),
    ]
    if error is not None:
        rows.append(row("rmse", error, **about, sweep=setting.sweeps))
    scored = "" if error is None else f", RMSE {error:.4f}"
    say(f"{name} {setting.label} rank {setting.rank} fold {setting.fold}: {seconds.min():.5f} s per sweep{scored}")
    return rows


def ratios(rows: list[Row]) -> list[Row]:
    """How many of our fastest sweeps a peer's takes, from the means over folds."""
    mean: dict[tuple[str, int, int, str], list[float]] = {}
    for item in rows:
        if item["metric"] == "seconds_per_sweep":
            key = item["data"], item["rank"], item["threads"], item["method"]
            mean.setdefault(key, []).append(item["value"])
    result = []
    for (data, rank, threads, name), values in mean.items():
        for peer in PEERS:
            theirs = mean.get((data, rank, threads, peer))
            if name not in PEERS and theirs is not None:
                times = float(np.mean(theirs) / np.mean(values))
                about = {"data": data, "rank": rank, "method": name, "threads": threads}
                result.append(row(f"times_faster_than_{peer}", times, **about))
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    able = [name for name, method in METHODS.items() if not method.lacks(get_likelihood("gaussian"))]
    p = parser(__doc__, folds="1,2,3,4,5", ranks="10", methods=",".join(able), sweeps=100, threads="1")
    p.add_argument("--entries", type=entry_counts, default="alog", help="numbers of simulated entries, or alog")
    p.add_argument("--peers", type=words(*PEERS, "none"), default=list(PEERS), help="peers between commas, or none")
    p.add_argument(
        "--environment", type=Path, default=ENVIRONMENT, help="folder to install them in (default: %(default)s)"
    )
    options = p.parse_args(arguments)
    wrong = [name for name in options.methods if name not in able]
    if wrong:
        p.error(f"argument --methods: {wrong[0]!r} is not among {', '.join(able)}")
    peers = [name for name in options.peers if name != "none"]
    python = prepare(options.environment, peers) if peers else Path(sys.executable)
    rows: list[Row] = []
    for data, rank, threads, fold in itertools.product(options.entries, options.ranks, options.threads, options.folds):
        setting = Setting(data, fold, rank, options.sweeps, threads)
        rows += [found for name in [*peers, *options.methods] for found in measure(python, name, setting)]
    report([*rows, *ratios(rows)], options.json)


if __name__ == "__main__":
    main()
