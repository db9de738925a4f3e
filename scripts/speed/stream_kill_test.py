"""Kill a stream at random moments (SIGKILL), resume it, and compare every byte with an uninterrupted run.

The stream has labels that keep appearing, malformed lines that are set aside, a trace, forgetting, and with --revisit a
reservoir of past entries. Each kill is a run of its own: killed at a moment drawn uniformly over the length of the
uninterrupted run, then resumed to the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scripts.lib.common import ROOT, Row, numbers, parser, report, row, say
from tensorcep.cp.simulate import simulate_cp

WRITTEN = ("model.npz", "aside.csv", "trace.csv")


def write_entries(path: Path, n: int, rank: int, seed: int) -> None:
    """A csv file of n entries with labels, sorted so that new rows of the first mode keep coming, and bad lines."""
    tensor = simulate_cp((60, 50, 40), rank, n, noise_precision=25.0, prior_mean=0.7, random_state=seed).tensor
    order = np.argsort(tensor.coords[:, 0] // 10, kind="stable")
    lines = ["user,item,month,y"]
    for place, at in enumerate(order):
        if place % 997 == 500:
            lines.append(f"user {place},broken")
        i, j, k = tensor.coords[at]
        lines.append(f"u{i},v{j},w{k},{float(tensor.values[at])!r}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def start(folder: Path, data: Path, options: list[str], resume: bool) -> subprocess.Popen[bytes]:
    """Start the command in a folder that its files go to."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tensorcep", "stream", str(data), "-o", WRITTEN[0], "--bad-lines", WRITTEN[1]]
    command += ["--trace", WRITTEN[2], "--forget", "0.001", "--quiet", *options, *(["--resume"] if resume else [])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)


def finished(folder: Path, data: Path, options: list[str], resume: bool) -> float:
    """Run the command to its end; returns the seconds it took."""
    begin = time.perf_counter()
    code = start(folder, data, options, resume).wait()
    if code != 0:
        raise RuntimeError(f"the stream ended with code {code} in {folder}")
    return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="3", seed=0)
    p.add_argument("--kills", type=int, default=20, help="number of kills (default: %(default)s)")
    p.add_argument("--entries", type=int, default=30_000, help="entries of the stream (default: %(default)s)")
    p.add_argument("--batch-sizes", type=numbers, default="100", help="between commas (default: %(default)s)")
    p.add_argument("--revisit", type=int, default=0, help="entries to revisit (default: %(default)s)")
    options = p.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for rank in options.ranks:
            data = Path(name) / f"rank{rank}.csv"
            write_entries(data, options.entries, rank, options.seed)
            for batch_size in options.batch_sizes:
                how = ["--rank", str(rank), "--batch-size", str(batch_size), "--checkpoint-every", "7"]
                how += ["--revisit", str(options.revisit)]
                about = {"data": "simulated", "rank": rank, "method": "cep", "batch_size": batch_size}
                about["revisit"] = options.revisit
                rows += kills(Path(name) / f"{rank}-{batch_size}", data, how, options.kills, rng, about)
    report(rows, options.json)


def kills(folder: Path, data: Path, how: list[str], n: int, rng: np.random.Generator, about: Row) -> list[Row]:
    """Kill and resume n times; rows of how many ended like the uninterrupted run."""
    folder.mkdir()
    whole = folder / "whole"
    seconds = finished(whole, data, how, resume=False)
    equal = running = with_checkpoint = 0
    for kill in range(n):
        place = folder / str(kill)
        process = start(place, data, how, resume=False)
        after = float(rng.uniform(0.0, seconds))
        time.sleep(after)
        running += process.poll() is None
        process.kill()
        process.wait()
        with_checkpoint += (place / WRITTEN[0]).exists()
        finished(place, data, how, resume=True)
        same = all((place / written).read_bytes() == (whole / written).read_bytes() for written in WRITTEN)
        equal += same
        say(f"kill {kill + 1}: after {after:.2f} of {seconds:.2f} s, {'equal' if same else 'DIFFERENT'}")
    return [
        row("kills", n, seconds=seconds, **about),
        row("kills_while_running", running, **about),
        row("kills_after_a_checkpoint", with_checkpoint, **about),
        row("runs_equal", equal, **about),
    ]


if __name__ == "__main__":
    main()
