"""`tensorcep fit` on the workers of a cluster: the model of one process, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.ended_fit import TENSOR
from helpers.source_graph import ROOT

import tensorcep as tc
from tensorcep.cli.main import main

FIT = ("--rank", "2", "--method", "gibbs", "--max-iter", "6", "--interactions", "cp", "--threads", "1")


def shell(*words: str) -> str:
    """What a command prints, run as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", "tensorcep", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_fit_on_workers_of_this_machine_writes_the_model_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    frame = TENSOR.to_pandas(["a", "b", "c"], "y")
    frame.to_csv(tmp_path / "all.csv", index=False)
    for n, rows in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame.iloc[rows].to_parquet(tmp_path / f"part{n}.parquet")
    shell("fit", str(tmp_path / "all.csv"), "-o", str(tmp_path / "here.npz"), *FIT)
    how = ("--dask-local", "1", "--checkpoint", str(tmp_path / "kept"), "--verbose")
    text = shell("fit", str(tmp_path / "part*.parquet"), "-o", str(tmp_path / "there.npz"), *FIT, *how)
    assert "workers     1, dashboard at http://" in text
    here, there = (tc.load(tmp_path / f"{name}.npz") for name in ("here", "there"))
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert list((tmp_path / "kept").glob("run-*.npz"))


def test_fit_refuses_workers_that_are_none(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("distributed")

    def absent(address: str) -> Any:
        raise OSError(address)

    monkeypatch.setattr(dask, "Client", absent)
    data = tmp_path / "all.csv"
    TENSOR.to_pandas(["a", "b", "c"], "y").to_csv(data, index=False)
    for options, message in (
        (["--checkpoint", "DIR"], "--checkpoint is for --dask-local and --dask-scheduler"),
        (["--dask-local", "0"], "--dask-local must be an integer >= 1; got 0"),
        (["--dask-scheduler", "nowhere"], "no scheduler answers at nowhere"),
    ):
        assert main(["fit", str(data), "-o", str(tmp_path / "model.npz"), *FIT, *options]) == 1, options
        assert message in capsys.readouterr().err
        assert not (tmp_path / "model.npz").exists(), options
