"""A stream that is killed at any moment and resumed ends with the bytes of one that was not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.source_graph import ROOT

from tensorcep import simulate_cp

WRITTEN = ("model.npz", "aside.csv", "trace.csv")
OPTIONS = ("--rank", "2", "--batch-size", "50", "--checkpoint-every", "7", "--revisit", "40", "--forget", "0.001")


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tensorcep", "stream", "../data.csv", "-o", WRITTEN[0], "--bad-lines", WRITTEN[1]]
    command += ["--trace", WRITTEN[2], "--quiet", *OPTIONS, *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in WRITTEN]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_stream_killed_at_any_moment_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    tensor = simulate_cp((60, 50, 40), 2, 3000, noise_precision=25.0, prior_mean=0.7, random_state=0).tensor
    lines = ["user,item,month,y"]
    for at in np.argsort(tensor.coords[:, 0] // 10, kind="stable"):  # new rows of the first mode keep coming
        i, j, k = tensor.coords[at]
        lines += [f"user {at},broken"] * int(at % 997 == 500) + [f"u{i},v{j},w{k},{float(tensor.values[at])!r}"]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert start(tmp_path / "whole").wait() == 0  # compiles
    begin = time.perf_counter()
    assert start(tmp_path / "again").wait() == 0
    seconds = time.perf_counter() - begin
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")
    for number, after in enumerate(np.random.default_rng(0).uniform(0.3, 1.0, 4) * seconds):
        folder = tmp_path / str(number)
        process = start(folder)
        time.sleep(after)
        process.kill()
        process.wait()
        assert start(folder, "--resume").wait() == 0
        assert contents(folder) == contents(tmp_path / "whole"), after
