"""Work on the workers of a Dask cluster: the same numbers as in process.

Folds and fits, fits whose entries have auxiliary variables, methods that pass messages, and rows and sums that workers
of one machine leave in its memory. All share one cluster.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.clusters import local_client, sleep
from helpers.ended_fit import TENSOR as OTHER
from helpers.kinds import Kinds, check_bits, kinds_of, of_kind
from sklearn.model_selection import KFold, cross_validate

import tensorcep as tc
from tensorcep import distributed
from tensorcep.core import shared_memory
from tensorcep.core.cluster import Cluster, ClusterError, LackingError, TaskBatch, TaskReport
from tensorcep.cp.model import subsets
from tensorcep.cp.workers.executor import ClusterExecutor, rows_alone
from tensorcep.cp.workers.row_cache import BroadcastRows, Piece
from tensorcep.entries.tables import frame_of_dask

TENSOR = tc.simulate_cp((14, 12, 10), 2, 900, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor
# So many entries for so few rows that there are two chunks.
CHUNKS = tc.simulate_cp((20, 16, 12), 2, 2200, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor
GIBBS = tc.Gibbs(n_chains=2)
PG = tc.PGGibbs(n_chains=2)
SHORT = pytest.mark.filterwarnings("ignore::UserWarning")  # that fits of few sweeps have not ended


class EndedError(Exception):
    """What ends a fit in a test."""


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
    running = TaskBatch(cluster, lacking, [(1, held), (2, None)], "lacking", whole=lambda i: (i + 1, held))
    assert [told.value for told in running.finish()] == [11, 12]
    assert running.again
    with pytest.raises(ClusterError, match="were lost"):
        cluster.run(lacking, [(1, None)], "lacking", whole=lambda i: (i, None))


def test_rows_that_workers_draw_do_not_go_there_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    value = BroadcastRows.value.fget
    monkeypatch.setattr(BroadcastRows, "value", property(lambda rows: sent.append(rows) or value(rows)))
    recorded(lambda: distributed.fit(of_workers(GIBBS), TENSOR, client=client, n_parts=2))
    assert len(sent) == 3 * 2  # the modes of two chains, before the first sweep
    sent.clear()
    told: list[bool] = []

    def knows(self: ClusterExecutor, *rest: Any) -> bool:
        told.append(known(self, *rest))
        return told[-1]

    known = ClusterExecutor._knows
    monkeypatch.setattr(ClusterExecutor, "_knows", knows)
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
        if name == "dask.distributed":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr("tensorcep.core.checks.importlib.import_module", absent)
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
    monkeypatch.setattr(subsets, "ENOUGH", 300)
    monkeypatch.setattr(subsets, "ENOUGH_OF_ROW", 1)

    def model() -> tc.CPRegressor:
        return tc.CPRegressor(3, method=method, max_iter=6, random_state=0)

    here, _ = recorded(lambda: model().fit(TENSOR))
    there, _ = recorded(lambda: distributed.fit(model(), TENSOR, client=client, n_parts=2))
    check_same(here, there)


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


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            tc.CPRegressor(2, method="wopt"),
            "'wopt' cannot be done by workers; use one of the methods .*'cep', 'laplace', 'vmp', 'gibbs'.*\\]\\.",
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


# Fits whose entries have auxiliary variables


KINDS = kinds_of(OTHER)


def check_kind(client: Any, kinds: Kinds, kind: str, method: Any, **params: Any) -> None:
    """A fit on workers and here."""
    model, tensor = of_kind(kinds, kind, method, **params)
    here = model.fit(tensor)
    n_parts = None if kinds is IN_CHUNKS else 2
    there = distributed.fit(of_kind(kinds, kind, method, **params)[0], tensor, client=client, n_parts=n_parts)
    if kinds is IN_CHUNKS and kind == "counts":  # their kernels round differently in a process that compiles them
        for a, b in zip(here.factors_, there.factors_, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        return
    check_bits(here, there, tensor.coords[:20])


# Weights and targets that workers draw, and those that follow from squares that they compute.
@SHORT
@pytest.mark.parametrize(("kind", "method"), [("labels", PG), ("labels", "pg-vb")])
def test_fit_with_auxiliary_variables_on_workers_has_the_bits_of_one_process(
    client: Any, kind: str, method: Any
) -> None:
    check_kind(client, KINDS, kind, method)


@SHORT
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("labels", "pg-vb", {"interactions": "main+cp"}),
        ("labels", PG, {"interactions": "auto"}),
        ("probit", GIBBS, {}),
        ("probit", "vmp", {}),
        ("limits", GIBBS, {}),
        ("limits", "vmp", {}),
        ("counts", "pg-vb", {}),
        ("poisson", "vmp", {}),
        ("levels", GIBBS, {}),
        ("levels", "vmp", {}),
    ],
)
def test_other_fits_with_auxiliary_variables_on_workers(
    client: Any, kind: str, method: Any, params: dict[str, Any]
) -> None:
    check_kind(client, KINDS, kind, method, **params)


@SHORT
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "poisson", "limits", "levels"])
def test_default_fits_of_other_data_on_workers(client: Any, kind: str) -> None:
    check_kind(client, KINDS, kind, "auto", init="auto", interactions="auto", max_iter=9)


@SHORT
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"), [("labels", PG), ("labels", "pg-vb"), ("limits", "vmp"), ("levels", "vmp")]
)
def test_fit_with_auxiliary_variables_goes_on_to_the_same_bits(
    client: Any, tmp_path: Path, kind: str, method: Any
) -> None:
    def end(n: int, *_: Any) -> None:
        if n == 4:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "n_parts": 2, "every": 1}
    model, tensor = of_kind(KINDS, kind, method)
    here = model.fit(tensor)
    with pytest.raises(EndedError):
        distributed.fit(of_kind(KINDS, kind, method, callbacks=end)[0], tensor, **how)
    seen: list[int] = []
    ended = of_kind(KINDS, kind, method, callbacks=lambda n, *_: seen.append(n))[0]
    there = distributed.fit(ended, tensor, **how)
    check_bits(here, there, OTHER.coords[:20])
    assert seen == [4, 5]


# Methods that pass messages


IN_CHUNKS = kinds_of(CHUNKS)
AVERAGED, FULL, LAPLACE = (
    tc.CEP(messages="averaged", anneal=2, n_starts=2, n_ensemble=1),
    tc.CEP(anneal=2, n_starts=2, n_ensemble=1),
    tc.Laplace(anneal=2, n_starts=2),
)


@SHORT
@pytest.mark.parametrize(
    ("kind", "method"),
    [("labels", AVERAGED), ("values", FULL), ("labels", LAPLACE)],
    ids=["averaged", "full", "laplace"],
)
def test_messages_on_workers_have_the_bits_of_one_process(client: Any, kind: str, method: Any) -> None:
    check_kind(client, IN_CHUNKS, kind, method)


def cep(**params: Any) -> tc.CEP:
    return tc.CEP(**{"anneal": 1, "n_starts": 1, "n_ensemble": 1, **params})


@SHORT
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("values", AVERAGED, {}),
        ("labels", FULL, {}),
        ("values", LAPLACE, {}),
        ("values", cep(messages="averaged", moments="posterior"), {"interactions": "main+cp"}),
        ("probit", cep(messages="averaged", order=2, warm_up=2), {}),
        ("values", cep(schedule="parallel", dtype="float32"), {"prior": "ard"}),
        ("labels", cep(order=2, warm_up=2, positive=False, damping="adaptive"), {"interactions": "auto"}),
        ("probit", cep(moments="posterior", message_precision=1e-6), {}),
        ("limits", cep(n_ensemble=2), {}),
        ("counts", cep(), {}),
        ("levels", cep(), {}),
        ("counts", tc.Laplace(schedule="parallel", anneal=1, n_starts=1), {}),
        ("levels", tc.Laplace(anneal=1, n_starts=1), {"interactions": "main+cp"}),
    ],
)
def test_other_messages_on_workers(client: Any, kind: str, method: Any, params: dict[str, Any]) -> None:
    check_kind(client, IN_CHUNKS, kind, method, **params)


@SHORT
@pytest.mark.slow
def test_default_fit_by_cep_on_workers(client: Any) -> None:
    check_kind(client, IN_CHUNKS, "values", "cep", init="auto", interactions="auto", max_iter=8)


def files_of(folder: Path) -> set[Path]:
    """The files of messages in a folder."""
    return set(folder.glob("messages/**/*.npy"))


@SHORT
@pytest.mark.parametrize(("kind", "method"), [("values", FULL), ("labels", AVERAGED)], ids=["full", "averaged"])
def test_messages_that_were_ended_go_on_to_the_same_bits(client: Any, tmp_path: Path, kind: str, method: Any) -> None:
    calls: list[int] = []

    def end(n: int, *_: Any) -> None:
        calls.append(n)
        if len(calls) == 6:
            raise EndedError

    folder = tmp_path / "fit"
    how: dict[str, Any] = {"client": client, "checkpoint": folder, "every": 2}
    model, tensor = of_kind(IN_CHUNKS, kind, method)
    here = model.fit(tensor)
    with pytest.raises(EndedError):
        distributed.fit(of_kind(IN_CHUNKS, kind, method, callbacks=end)[0], tensor, **how)
    assert calls == [1, 2, 1, 2, 3, 4]  # two starts, of which the better one goes on
    # of each start the versions at its end, two for the last sweep that was stored, and those after it
    assert len(files_of(folder)) <= 2 * 4 * 4
    check_bits(here, distributed.fit(of_kind(IN_CHUNKS, kind, method)[0], tensor, **how), CHUNKS.coords[:20])
    assert not files_of(folder)
    check_bits(here, distributed.fit(of_kind(IN_CHUNKS, kind, method)[0], tensor, **how), CHUNKS.coords[:20])


@SHORT
def test_damaged_messages_end_with_a_sentence(client: Any, tmp_path: Path) -> None:
    def end(n: int, *_: Any) -> None:
        if n == 3:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "every": 1}
    with pytest.raises(EndedError):
        distributed.fit(of_kind(IN_CHUNKS, "values", cep(), callbacks=end)[0], CHUNKS, **how)
    for path in files_of(tmp_path / "fit"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"messages in '.*npy' are damaged \(another checksum\); remove the folder"):
        distributed.fit(of_kind(IN_CHUNKS, "values", cep())[0], CHUNKS, **how)
    for path in files_of(tmp_path / "fit"):
        path.unlink()
    with pytest.raises(ValueError, match=r"messages in '.*npy' cannot be read \(.*No such file.*\); remove the folder"):
        distributed.fit(of_kind(IN_CHUNKS, "values", cep())[0], CHUNKS, **how)


@SHORT
def test_messages_that_are_to_be_kept_are_refused(client: Any) -> None:
    with pytest.raises(ValueError, match="with keep_messages=True cannot be done by workers"):
        distributed.fit(of_kind(IN_CHUNKS, "values", cep(keep_messages=True))[0], CHUNKS, client=client)


# Rows and sums that workers leave in the memory of their machine


IN_MEMORY = pytest.mark.skipif(not os.path.isdir(shared_memory.MEMORY), reason="the system has no folder in memory")
METHODS = {
    "two chains": tc.Gibbs(n_chains=2, weights="equal", noise="sampled"),
    "three chains": tc.Gibbs(n_chains=3, weights="equal", noise="sampled"),  # on two workers: each on both
    "vmp": tc.VMP(),
    "cep": tc.CEP(n_starts=1),
}


def leave(smallest: int) -> None:
    """Leave arrays of so many bytes."""
    shared_memory.SMALLEST = smallest


@pytest.fixture
def leaving(client: Any) -> Iterator[Any]:
    """The client of workers that leave arrays of any size."""
    client.run(leave, 0)
    yield client
    client.run(leave, shared_memory.SMALLEST)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory in which no other process leaves anything."""
    with tempfile.TemporaryDirectory(dir=shared_memory.MEMORY) as folder:
        monkeypatch.setattr(shared_memory, "MEMORY", folder)
        yield Path(folder)


def taken() -> int:
    return shared_memory.BYTES_READ[0]


def left_of(method: str) -> tc.CPRegressor:
    how: dict[str, Any] = {"max_iter": 5, "random_state": 0, "interactions": "cp", "init": "random"}
    return tc.CPRegressor(2, method=METHODS[method], **how)


@SHORT
@IN_MEMORY
@pytest.mark.parametrize("method", METHODS)
def test_rows_and_sums_left_in_memory_have_the_same_bits_and_go(
    leaving: Any, memory: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = left_of(method).fit(TENSOR)
        monkeypatch.setattr(shared_memory, "SMALLEST", 0)
        given_up = list[shared_memory.SharedFolder]()
        monkeypatch.setattr(shared_memory.SharedFolder, "give_up", given_up.append)
        of_client, of_workers = taken(), sum(leaving.run(taken).values())
        there = distributed.fit(left_of(method), TENSOR, client=leaving, n_parts=2)
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(here.trace_["change"], there.trace_["change"])
    assert not given_up  # nobody missed what was removed too early
    assert sum(leaving.run(taken).values()) > of_workers
    assert (taken() > of_client) is (method != "cep")  # whose sums are sent
    assert not list(memory.iterdir())


@SHORT
@IN_MEMORY
def test_rows_that_are_sent_go_to_other_workers_without_their_sums(
    leaving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "MEMORY", "/no/folder")
    asked, after = list[Any](), Cluster.after
    monkeypatch.setattr(Cluster, "after", lambda *args: asked.append(args[1]) or after(*args))
    here, of_workers = left_of("vmp").fit(TENSOR), sum(leaving.run(taken).values())
    there = distributed.fit(left_of("vmp"), TENSOR, client=leaving, n_parts=2)
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert sum(leaving.run(taken).values()) == of_workers
    assert set(asked) == {rows_alone}
    made = Piece(3, {"mean": np.ones((2, 2))}, {"sum_yz": np.ones((2, 2))})
    alone = rows_alone(TaskReport(made, [], 0.0)).value
    assert alone.arrays is made.arrays
    assert not alone.told


# The last test, as workers that begin again load all their kernels anew.
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
    monkeypatch.setattr("tensorcep.cp.workers.files.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 9))
    with pytest.raises(OSError, match=r"has room for 9 bytes, and [0-9,]+ are needed; free some"):
        distributed.fit(of_workers("vmp"), TENSOR, client=client)
