"""Work on the workers of a Dask cluster: the same numbers as in process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.clusters import local_client, sleep

import tensorcep as tc
from tensorcep.core.cluster import Cluster, ClusterError

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
    how: dict[str, Any] = {"methods": ["vmp", tc.VMP(anneal=2)], "estimator": quick(max_iter=4)}
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


def test_tasks_that_no_worker_can_do_end_with_a_sentence(client: Any) -> None:
    cluster = Cluster(client, timeout=1.5)
    with pytest.raises(ClusterError, match=r"no task of 'sleep' got done in . s, with 2 workers: sleep-0-.* waits for"):
        cluster.run(sleep, [(20.0,)], "sleep")
    client.restart()


def test_without_dask_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *args: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("tensorcep.core.cluster.importlib.import_module", absent)
    with pytest.raises(
        ImportError, match=r"needs dask\.distributed, which is not installed; pip install 'tensorcep\[dask\]'"
    ):
        tc.select_rank(quick(), TENSOR, ranks=[1], cv=2, client=object())
