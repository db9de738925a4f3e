"""Time a sweep of our methods and of SMURFF and myFM on the same folds of Alog.

    python -m scripts.speed.bench_peers

The peers are Gibbs samplers with learned hyper-parameters: SMURFF of the same CP model, myFM of a factorisation machine
(pairwise products of rows). They are installed into an environment of their own, which the first run makes, and run in
processes of their own. Sweeps are timed without test entries, after those of the first tenth.

Rows: the seconds of the fastest sweep, which other work on the machine disturbs least, and of the median one; RMSE on
the test entries after all sweeps (for a sampler, of the mean over the second half); and how many times the fastest
sweep of each of our methods fits into that of each peer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.heldout import splits
from scripts.lib.peers.environment import prepare
from scripts.lib.peers.fits import ENVIRONMENT, PEERS, PeerSetting, run_peer
from scripts.lib.published import load, options_with, scores
from tensorcep.core.loop import run
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import rmse


def time_peer(python: Path, peer: str, fold: int, rank: int, sweeps: int, threads: int) -> tuple[np.ndarray, float]:
    """Seconds of every sweep of a peer without test entries, and its RMSE."""
    split = splits("alog", [fold])[0]
    setting = PeerSetting(rank, sweeps, sweeps // 2, "learned", grouped=True)
    timed, scored = (run_peer(python, peer, split, setting, threads=threads, predict=p) for p in (False, True))
    return timed["sweep_seconds"], rmse(split.held.y, scored["predicted"])


def time_ours(name: str, fold: int, rank: int, sweeps: int, threads: int) -> tuple[np.ndarray, float]:
    """Seconds of every sweep of one of our methods, and its RMSE."""
    loaded, method = load("alog", fold, rank, "gaussian", "vmp" if name == "vmp" else "cep"), METHODS[name]
    options = options_with(name, max_iter=sweeps, n_chains=1, iterations=1, ridge=0.0)
    found = run(method, loaded.problem, options, max_iter=sweeps, tol=0.0, n_threads=threads)
    return found.trace["seconds"], scores(loaded, found.posterior)["rmse"]


def ratios(rows: list[Row]) -> list[Row]:
    """How many of our fastest sweeps a peer's takes, from the means over folds."""
    mean: dict[tuple[int, int, str], list[float]] = {}
    for item in rows:
        if item["metric"] == "seconds_per_sweep":
            mean.setdefault((item["rank"], item["threads"], item["method"]), []).append(item["value"])
    result = []
    for (rank, threads, name), values in mean.items():
        for peer in PEERS:
            theirs = mean.get((rank, threads, peer))
            if name not in PEERS and theirs is not None:
                times = float(np.mean(theirs) / np.mean(values))
                result.append(
                    row(f"times_faster_than_{peer}", times, data="alog", rank=rank, method=name, threads=threads)
                )
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    able = [name for name, method in METHODS.items() if not method.lacks(get_likelihood("gaussian"))]
    p = parser(__doc__, folds="1,2,3,4,5", ranks="10", methods=",".join(able), sweeps=100, threads="1")
    p.add_argument("--peers", type=words(*PEERS, "none"), default=list(PEERS), help="peers between commas, or none")
    p.add_argument(
        "--environment", type=Path, default=ENVIRONMENT, help="folder to install them in (default: %(default)s)"
    )
    options = p.parse_args(arguments)
    wrong = [name for name in options.methods if name not in able]
    if wrong:
        p.error(f"argument --methods: {wrong[0]!r} is not among {', '.join(able)}")
    peers = [name for name in options.peers if name != "none"]
    python = prepare(options.environment, PEERS) if peers else Path(sys.executable)
    rows: list[Row] = []
    for rank in options.ranks:
        for threads in options.threads:
            for fold in options.folds:
                for name in [*peers, *options.methods]:
                    sizes = (fold, rank, options.sweeps, threads)
                    seconds, error = time_peer(python, name, *sizes) if name in PEERS else time_ours(name, *sizes)
                    seconds = seconds[len(seconds) // 10 :]
                    about: dict[str, Any] = {"data": "alog", "fold": fold, "rank": rank, "method": name}
                    rows.append(row("seconds_per_sweep", float(seconds.min()), **about, threads=threads))
                    rows.append(row("seconds_per_sweep_median", float(np.median(seconds)), **about, threads=threads))
                    rows.append(row("rmse", error, **about, sweep=options.sweeps, threads=threads))
                    say(f"{name} rank {rank} fold {fold}: {seconds.min():.5f} s per sweep, RMSE {error:.4f}")
    report([*rows, *ratios(rows)], options.json)


if __name__ == "__main__":
    main()
