"""Workers, clients and schedulers that are killed: fits end at the same bits, or with a sentence, and never hang."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clusters import local_client, tcp_processes
from helpers.ended_fit import TENSOR, model_of
from helpers.source_graph import ROOT

import tensorcep as tc
from tensorcep import distributed
from tensorcep.core.cluster import Cluster, ClusterError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "error::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        yield found


def check_same(one: Any, other: Any) -> None:
    for a, b in zip(one.factors_, other.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.trace_["change"], other.trace_["change"])


class Killer:
    """A callback that kills a worker a moment after the third sweep, while the next one is under way."""

    def __init__(self, client: Any):
        self.client, self.calls, self.killed = client, 0, set[int]()

    def __call__(self, *_: Any) -> None:
        self.calls += 1
        if self.calls == 3:
            pids = self.client.run(os.getpid)
            threading.Timer(0.02, self.kill, [sorted(pids.items())[0][1]]).start()

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.killed.add(pid)


@pytest.mark.parametrize("method", ["gibbs", "vmp", "cep"])
def test_fit_whose_workers_are_killed_ends_at_the_same_bits(client: Any, method: str) -> None:
    here = model_of(method).fit(TENSOR)
    before = set(client.run(os.getpid).values())
    killer = Killer(client)
    there = distributed.fit(model_of(method, callbacks=killer), TENSOR, client=client, n_parts=4, timeout=60)
    assert len(killer.killed) == 1
    assert killer.killed & before
    check_same(here, there)
    client.wait_for_workers(2, timeout=60)
    assert not killer.killed & set(client.run(os.getpid).values())


def test_folds_whose_worker_is_killed_have_the_same_scores(client: Any) -> None:
    how: dict[str, Any] = {"ranks": [1, 2], "cv": 3, "random_state": 4}
    here = tc.select_rank(model_of("vmp", max_iter=60), TENSOR, **how)
    pids = client.run(os.getpid)
    victim = sorted(pids.items())[0][1]
    threading.Timer(0.3, os.kill, [victim, signal.SIGKILL]).start()
    there = tc.select_rank(model_of("vmp", max_iter=60), TENSOR, **how, client=client)
    np.testing.assert_array_equal(here.scores, there.scores)
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()


def test_task_that_ends_its_workers_is_told(client: Any) -> None:
    with pytest.raises(ClusterError, match="workers ended while they did a task of 'end', perhaps for lack of memory"):
        Cluster(client, timeout=60).run(os._exit, [(1,)], "end")
    client.wait_for_workers(2, timeout=60)


def test_tasks_given_to_a_closed_client_end_with_a_sentence() -> None:
    with local_client() as other:
        cluster = Cluster(other)
        made = cluster.made_at(dict, None)
        other.close()
        with pytest.raises(ClusterError, match="the scheduler at .* is gone; start it again"):
            cluster.run(len, [(made,)], "lengths")
        assert cluster.after(len, [made]) is None


def test_default_fit_on_workers_goes_on_to_the_bits_of_one_process(client: Any, tmp_path: Path) -> None:
    here = tc.CPRegressor(2, max_iter=12, random_state=0).fit(TENSOR)
    assert here.method_ == "gibbs"
    seen: list[int] = []

    def end(n: int, *_: Any) -> None:
        seen.append(n)
        if len(seen) == 6:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"client": client, "n_parts": 2, "checkpoint": tmp_path / "fit"}
    with pytest.raises(KeyboardInterrupt):
        distributed.fit(tc.CPRegressor(2, max_iter=12, random_state=0, callbacks=end), TENSOR, **how)
    runs = len(list((tmp_path / "fit").glob("run-*.npz")))
    assert runs > 0
    there = distributed.fit(tc.CPRegressor(2, max_iter=12, random_state=0, callbacks=end), TENSOR, **how)
    check_same(here, there)
    assert seen[6] == 6  # the first sweep after the last that was stored


def test_client_or_scheduler_that_is_killed_leaves_a_fit_that_goes_on(tmp_path: Path) -> None:
    here = model_of("gibbs").fit(TENSOR)
    folder = tmp_path / "fit"
    with tcp_processes(tmp_path) as (address, scheduler):
        ended = subprocess.run(
            [sys.executable, "-m", "helpers.ended_fit", address, str(folder), "gibbs", "7"],
            cwd=ROOT / "tests",
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
            check=False,
            timeout=240,
        )
        assert ended.returncode == -signal.SIGKILL
        assert (folder / "run-0001.npz").is_file()
        seen: list[int] = []

        def end(n: int, *_: Any) -> None:
            seen.append(n)
            if n == 9:
                scheduler.send_signal(signal.SIGKILL)

        begin = time.monotonic()
        with pytest.raises(ClusterError, match=r"the scheduler at .* is gone; start it again, and the same call"):
            fit_at(address, folder, end)
        assert time.monotonic() - begin < 120
        assert seen == [6, 7, 8, 9]
    with tcp_processes(tmp_path / "again") as (address, _):
        check_same(here, fit_at(address, folder, None))


def fit_at(address: str, folder: Path, callback: Any) -> Any:
    client = pytest.importorskip("distributed").Client(address)
    try:
        how: dict[str, Any] = {"client": client, "checkpoint": folder, "n_parts": 2}
        return distributed.fit(model_of("gibbs", callbacks=callback), TENSOR, **how)
    finally:
        client.close(timeout=2)


def test_example_fits_on_workers_through_tcp(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, few = tc.datasets.load_il2().train_test_split(test_size=0.1, random_state=0)
    monkeypatch.setattr(tc.datasets, "load_il2", lambda: few)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["dask_workers.py"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    runpy.run_path(str(ROOT / "scripts" / "examples" / "dask_workers.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert "480 entries, 40 sweeps on <Client: 'tcp://127.0.0.1" in text
    assert "mean" in text
