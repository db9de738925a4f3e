"""Work on the workers of a Dask cluster: the same numbers as in process."""

from __future__ import annotations

import importlib
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.clusters import local_client, sleep
from sklearn.model_selection import KFold, cross_validate

import tensorcep as tc
from tensorcep import distributed
from tensorcep.core.cluster import Cluster, ClusterError
from tensorcep.core.held import LackingError
from tensorcep.cp import sampled
from tensorcep.cp.workers.sent import HeldRows
from tensorcep.cp.workers.store import Piece
from tensorcep.cp.workers.summing import Summing
from tensorcep.entries.dask_frames import frame_of_dask
from tensorcep.kernels.rows import row_divergences

TENSOR = tc.simulate_cp((14, 12, 10), 2, 900, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        yield found


def quick(**params: Any) -> tc.CPRegressor:
    return tc.CPRegressor(**{"rank": 2, "method": "vmp", "max_iter": 8, "random_state": 0, **params})


def recorded(call: Any) -> tuple[Any, list[str]]:
    """What a call gives, and the sentences of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return call(), sorted(str(one.message) for one in caught)


def test_select_rank_on_workers_has_the_scores_and_warnings_of_this_process(client: Any) -> None:
    how: dict[str, Any] = {"ranks": [1, 2], "cv": 2, "random_state": 4}
    here, said = recorded(lambda: tc.select_rank(quick(), TENSOR, **how))
    there, told = recorded(lambda: tc.select_rank(quick(), TENSOR, **how, client=client))
    np.testing.assert_array_equal(here.scores, there.scores)
    assert here.rank == there.rank
    assert said == told != []
    patient = tc.select_rank(quick(max_iter=100), TENSOR, **how, patience=1, client=client)
    assert patient.scores.shape == (2, 2)


def test_select_rank_and_compare_of_matrices_on_workers(client: Any, rng: np.random.Generator) -> None:
    X = tc.SparseTensor.from_dense(rng.normal(size=(30, 2)) @ rng.normal(size=(2, 8)) + rng.normal(size=(30, 8)))
    model = tc.BayesianPCA(2, random_state=0, max_iter=60)
    how: dict[str, Any] = {"ranks": [1, 2], "cv": 2, "random_state": 4}
    here, _ = recorded(lambda: tc.select_rank(model, X, **how))
    there, _ = recorded(lambda: tc.select_rank(model, X, **how, client=client))
    np.testing.assert_array_equal(here.scores, there.scores)
    train, test = X.train_test_split(0.2, 0)
    scores = ["rmse", "log_score", "coverage", "calibration_error", "sweeps"]
    tables = [
        recorded(lambda c=c: tc.compare(train, test, ["vb"], estimator=model, client=c))[0] for c in (None, client)
    ]
    pd.testing.assert_frame_equal(tables[0][scores], tables[1][scores])


def test_compare_on_workers_has_the_scores_of_this_process(client: Any) -> None:
    train, test = TENSOR.train_test_split(0.2, 0)
    how: dict[str, Any] = {"methods": ["vmp", tc.VMP(anneal=2)], "estimator": quick(max_iter=4, tol=0.0)}
    (here, said), (there, told) = (
        recorded(lambda c=c: tc.compare(train, test, **how, client=c)) for c in (None, client)
    )
    scores = ["rmse", "log_score", "coverage", "calibration_error", "sweeps"]
    pd.testing.assert_frame_equal(here[scores], there[scores])
    assert said == told != []


@pytest.mark.parametrize("by", ["seeds", "halves"])
def test_replicability_on_workers_has_the_scores_of_this_process(client: Any, by: str) -> None:
    here, there = (
        recorded(lambda c=c: tc.replicability(quick(), TENSOR, by=by, n_repeats=2, client=c))[0] for c in (None, client)
    )
    pd.testing.assert_frame_equal(here, there)


def test_errors_of_workers_are_those_of_this_process(client: Any) -> None:
    with pytest.raises(ValueError, match="damping"):
        tc.select_rank(quick(method=tc.CEP(damping=2.0)), TENSOR, ranks=[1], cv=2, client=client)
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client"):
        tc.select_rank(quick(), TENSOR, ranks=[1], cv=2, client="tcp://here:8786")


def test_tasks_of_a_turn_are_of_one_worker(client: Any) -> None:
    cluster = Cluster(client)
    pids = [
        [told.value for told in cluster.run(os.getpid, [()] * 3, "pid", where=cluster.turns(3, n))] for n in range(3)
    ]
    assert all(len(set(own)) == 1 for own in pids)
    assert pids[0] == pids[2] != pids[1]
    assert {own[0] for own in pids} == set(client.run(os.getpid).values())


def lacking(n: int, given: int | None) -> int:
    """A task that lacks what it was not given."""
    if given is None:
        raise LackingError
    return n + given


def test_tasks_that_lack_something_are_given_it(client: Any) -> None:
    cluster = Cluster(client)
    held = cluster.put(10)
    running = cluster.begin(lacking, [(1, held), (2, None)], "lacking", whole=lambda i: (i + 1, held))
    assert [told.value for told in running.finish()] == [11, 12]
    assert running.again
    with pytest.raises(ClusterError, match="were lost"):
        cluster.run(lacking, [(1, None)], "lacking", whole=lambda i: (i, None))


def test_rows_that_workers_draw_do_not_go_there_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(HeldRows, "value", property(lambda rows: sent.append(rows) or [Piece(0, rows.rows)]))
    recorded(lambda: distributed.fit(of_workers(GIBBS), TENSOR, client=client, n_parts=2))
    assert len(sent) == 3 * 2  # the modes of two chains, before the first sweep
    sent.clear()
    told: list[bool] = []

    def knows(self: Summing, kernel: Any, *rest: Any) -> bool:
        found = known(self, kernel, *rest)
        if kernel is row_divergences:
            told.append(found)
        return found

    known = Summing.knows
    monkeypatch.setattr(Summing, "knows", knows)
    recorded(lambda: distributed.fit(of_workers(tc.VMP(anneal=0)), TENSOR, client=client, n_parts=2))
    assert len(sent) == 2 * 2  # second moments and means of the modes but the first, before the first sweep
    assert told == [True] * (3 * 6)  # in no sweep divergences of rows are computed here


@pytest.mark.slow
def test_scikit_learn_validates_on_the_workers_of_the_active_client(client: Any) -> None:
    joblib, how = importlib.import_module("joblib"), {"cv": KFold(2, shuffle=True, random_state=0)}
    here, _ = recorded(lambda: cross_validate(quick(), TENSOR.coords, TENSOR.values, **how))
    with joblib.parallel_config(backend="dask"):
        there, _ = recorded(lambda: cross_validate(quick(), TENSOR.coords, TENSOR.values, **how))
    np.testing.assert_array_equal(here["test_score"], there["test_score"])


def test_tasks_that_no_worker_can_do_end_with_a_sentence(client: Any) -> None:
    cluster = Cluster(client, timeout=1.0)
    with pytest.raises(
        ClusterError, match=r"no task of 'sleep' got done in [0-9]+ s, with 2 workers: sleep-0-.* waits"
    ):
        cluster.run(sleep, [(4.0,)], "sleep")


def test_without_dask_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(name: str, *args: Any) -> Any:
        if name == "distributed":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr("tensorcep.core.cluster.importlib.import_module", absent)
    with pytest.raises(
        ImportError, match=r"needs dask\.distributed, which is not installed; pip install 'tensorcep\[dask\]'"
    ):
        tc.select_rank(quick(), TENSOR, ranks=[1], cv=2, client=object())


def of_workers(method: Any, **params: Any) -> tc.CPRegressor:
    return quick(**{"method": method, "init": "random", "max_iter": 6, "interactions": "cp", **params})


def check_same(one: Any, other: Any) -> None:
    """Factors and traces to the bit."""
    for a, b in zip(one.factors_, other.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    for name in set(one.trace_) - {"seconds"}:
        np.testing.assert_array_equal(one.trace_[name], other.trace_[name], err_msg=name)
    assert one.noise_precision_ == other.noise_precision_


GIBBS = tc.Gibbs(n_chains=2)
ENGINES = pytest.mark.parametrize(
    ("method", "params"),
    [
        ("vmp", {}),
        ("vmp", {"interactions": "main+cp", "prior": "ard"}),
        ("vmp", {"prior": {0: tc.Features(np.random.default_rng(1).normal(size=(14, 2)))}}),
        (GIBBS, {}),
        (GIBBS, {"interactions": "auto"}),
    ],
    ids=["vmp", "vmp-main", "vmp-features", "gibbs", "gibbs-pairs"],
)


@ENGINES
def test_fit_on_workers_has_the_bits_of_one_process(client: Any, method: Any, params: dict[str, Any]) -> None:
    here, _ = recorded(lambda: of_workers(method, **params).fit(TENSOR))
    there, _ = recorded(lambda: distributed.fit(of_workers(method, **params), TENSOR, client=client, n_parts=2))
    check_same(here, there)


@pytest.mark.parametrize("method", ["vmp", GIBBS], ids=["vmp", "gibbs"])
def test_fits_whose_pilots_see_some_entries_first_have_the_bits_of_one_process(
    client: Any, monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    monkeypatch.setattr(sampled, "ENOUGH", 300)
    monkeypatch.setattr(sampled, "ENOUGH_OF_ROW", 1)

    def model() -> tc.CPRegressor:
        return tc.CPRegressor(3, method=method, max_iter=6, random_state=0)

    here, _ = recorded(lambda: model().fit(TENSOR))
    there, _ = recorded(lambda: distributed.fit(model(), TENSOR, client=client, n_parts=2))
    check_same(here, there)


class EndedError(Exception):
    """What ends a fit in a test."""


@pytest.mark.parametrize("method", ["vmp", GIBBS], ids=["vmp", "gibbs"])
def test_fit_that_was_ended_goes_on_to_the_same_bits(client: Any, tmp_path: Path, method: Any) -> None:
    def end(n: int, sweep: Any, state: Any) -> None:
        if n == 5:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "n_parts": 2, "every": 2}
    here, _ = recorded(lambda: of_workers(method).fit(TENSOR))
    with pytest.raises(EndedError):
        distributed.fit(of_workers(method, callbacks=end), TENSOR, **how)
    seen: list[int] = []
    there, _ = recorded(
        lambda: distributed.fit(of_workers(method, callbacks=lambda n, *_: seen.append(n)), TENSOR, **how)
    )
    check_same(here, there)
    assert 1 < seen[0] <= 5  # after the last sweep that was stored of the run that was ended
    assert seen[-1] == 6
    again, _ = recorded(lambda: distributed.fit(of_workers(method), TENSOR, **how))
    check_same(here, again)
    with pytest.raises(ValueError, match="holds a fit of other entries, settings or seed"):
        distributed.fit(of_workers(method, random_state=1), TENSOR, **how)


def test_damaged_entries_and_a_full_disk_end_with_a_sentence(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "n_parts": 2}
    recorded(lambda: distributed.fit(of_workers("vmp"), TENSOR, **how))
    client.restart()
    for path in (tmp_path / "fit" / "entries").glob("*/value.npy"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    for path in (tmp_path / "fit").glob("run-*"):
        path.unlink()
    with pytest.raises(ValueError, match=r"value\.npy' are damaged \(another checksum\); remove the folder"):
        distributed.fit(of_workers("vmp"), TENSOR, **how)
    monkeypatch.setattr("tensorcep.cp.workers.parts.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 9))
    with pytest.raises(OSError, match=r"has room for 9 bytes, and [0-9,]+ are needed; free some"):
        distributed.fit(of_workers("vmp"), TENSOR, client=client)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            tc.CPRegressor(2, method="wopt"),
            "by gibbs, pg-gibbs, vmp, pg-vb, cep and laplace, not 'gaussian' by 'wopt'; fit it in",
        ),
        (tc.CPRegressor(2, method="vmp", noise="entry"), "workers fit entries of one noise"),
    ],
)
def test_fit_on_workers_refuses_what_they_cannot_do(client: Any, model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed.fit(model, TENSOR, client=client)
    assert not hasattr(model, "factors_")


def test_fit_on_workers_refuses_what_is_no_model_or_folder(client: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="model must be a CP estimator; got BayesianPCA"):
        distributed.fit(tc.BayesianPCA(), TENSOR, client=client)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="checkpoint must be a folder"):
        distributed.fit(quick(), TENSOR, client=client, checkpoint=tmp_path / "file")


def kept_by(dask_worker: Any) -> list[str]:
    """What a worker keeps of tables."""
    return [name for name in map(str, dask_worker.data) if "recoded" in name or "merged" in name]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Entries with text as labels in three files, in which not all labels are."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("files")
    frame = TENSOR.to_pandas(["user", "item", "day"], "stars")
    frame["user"] = np.array([f"user {i}" for i in range(14)])[frame["user"]]
    frame["item"] = rng.permutation(np.array([f"item-{i}" for i in range(12)]))[frame["item"]]
    for n, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(folder / f"part{n}.parquet")
    return folder, frame


def test_fit_of_a_dask_table_has_the_bits_of_its_lines_whatever_the_order_of_files(
    client: Any, files: tuple[Path, pd.DataFrame]
) -> None:
    tables = pytest.importorskip("dask.dataframe")
    folder, frame = files
    how: dict[str, Any] = {"modes": ["user", "item", "day"], "value": "stars"}
    here, _ = recorded(lambda: of_workers("vmp").fit(frame, **how))
    paths = sorted(map(str, folder.glob("*.parquet")))
    there, _ = recorded(lambda: of_workers("vmp").fit(tables.read_parquet(paths[::-1]), **how))
    assert [list(labels) for labels in there.labels_] == [list(labels) for labels in here.labels_]
    check_same(here, there)
    counted = frame_of_dask(tables.read_parquet(paths), ["item", "user"], None, False, Cluster(client))
    assert not any(client.run(kept_by).values())
    pd.testing.assert_frame_equal(counted.astype(object), frame[["item", "user"]].astype(object))
    with pytest.raises(ValueError, match="value=None"):
        of_workers("vmp").fit(tables.read_parquet(paths), modes=["user", "item"])
    with pytest.raises(ValueError, match="'price'"):
        of_workers("vmp").fit(tables.read_parquet(paths), modes=["user", "item"], value="price")


def test_predictions_of_a_dask_table_are_lazy_and_those_of_its_lines(
    client: Any, files: tuple[Path, pd.DataFrame]
) -> None:
    tables = pytest.importorskip("dask.dataframe")
    folder, frame = files
    model, _ = recorded(lambda: quick(max_iter=3).fit(frame, modes=["user", "item", "day"], value="stars"))
    found = distributed.predict(model, tables.read_parquet(folder))
    assert found.npartitions == 3
    assert list(found.columns) == ["mean", "std"]
    mean, std = model.predict(frame[["user", "item", "day"]], return_std=True)
    table = found.compute()
    np.testing.assert_array_equal(table["mean"], mean)
    np.testing.assert_array_equal(table["std"], std)
    of_files = distributed.predict(model, folder)
    assert of_files.npartitions == 3
    np.testing.assert_array_equal(of_files.compute()["mean"], mean)
    with pytest.raises(ValueError, match=r"use model\.predict"):
        distributed.predict(model, frame)
    with pytest.raises(FileNotFoundError, match="there is no parquet file at"):
        distributed.predict(model, folder / "none-*.parquet")


def test_probabilities_of_a_dask_table_are_lazy_and_those_of_its_lines(
    client: Any, files: tuple[Path, pd.DataFrame]
) -> None:
    pytest.importorskip("dask.dataframe")
    folder, frame = files
    cells, ones = frame[["user", "item", "day"]], np.where(frame["stars"] > 0.0, "yes", "no")
    how: dict[str, Any] = {"rank": 2, "method": "vmp", "max_iter": 3, "random_state": 0}
    model, _ = recorded(lambda: tc.CPClassifier(**how).fit(cells, ones))
    found = distributed.predict(model, str(folder / "*.parquet"))
    assert list(found.columns) == ["label", "no", "yes"]
    table = found.compute()
    np.testing.assert_array_equal(table[["no", "yes"]], model.predict_proba(cells))
    np.testing.assert_array_equal(table["label"].astype(str), model.predict(cells))


def test_tables_are_waited_for_as_long_as_a_worker_is_busy_with_what_comes_before(client: Any) -> None:
    delayed = importlib.import_module("dask").delayed
    last = delayed(abs)(delayed(lambda _: -1)(delayed(sleep)(2.0)))
    assert Cluster(client, timeout=0.6).results([last], "read") == [1]
