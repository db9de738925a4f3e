"""Rows and sums that workers of one machine leave in its memory: the same bits, and nothing stays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.clusters import local_client

import tensorcep as tc
from tensorcep import distributed
from tensorcep.core import nearby
from tensorcep.core.cluster import Cluster
from tensorcep.core.held import Told
from tensorcep.cp.workers.updates import Made, rows_alone

pytestmark = [
    pytest.mark.skipif(not os.path.isdir(nearby.MEMORY), reason="the system has no folder in memory"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TENSOR = tc.simulate_cp((14, 12, 10), 2, 900, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor
METHODS = {
    "two chains": tc.Gibbs(n_chains=2, weights="equal", noise="sampled"),
    "three chains": tc.Gibbs(n_chains=3, weights="equal", noise="sampled"),  # on two workers: each on both
    "vmp": tc.VMP(),
    "cep": tc.CEP(n_starts=1),
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        found.run(leave_all)
        yield found


def leave_all() -> None:
    """Leave arrays of any size."""
    nearby.SMALLEST = 0


def taken() -> int:
    return nearby.TAKEN[0]


def model_of(method: str) -> tc.CPRegressor:
    how: dict[str, Any] = {"max_iter": 5, "random_state": 0, "interactions": "cp", "init": "random"}
    return tc.CPRegressor(2, method=METHODS[method], **how)


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_sums_left_in_memory_have_the_same_bits_and_go(
    client: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here, before = model_of(method).fit(TENSOR), set(os.listdir(nearby.MEMORY))
        monkeypatch.setattr(nearby, "SMALLEST", 0)
        given_up = list[nearby.Desk]()
        monkeypatch.setattr(nearby.Desk, "give_up", given_up.append)
        of_client, of_workers = taken(), sum(client.run(taken).values())
        there = distributed.fit(model_of(method), TENSOR, client=client, n_parts=2)
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(here.trace_["change"], there.trace_["change"])
    assert not given_up  # nobody missed what was removed too early
    assert sum(client.run(taken).values()) > of_workers
    assert (taken() > of_client) is (method != "cep")  # whose sums are sent
    assert not [name for name in set(os.listdir(nearby.MEMORY)) - before if name.startswith("tensorcep-")]


def test_rows_that_are_sent_go_to_other_workers_without_their_sums(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "MEMORY", "/no/folder")
    asked, after = list[Any](), Cluster.after
    monkeypatch.setattr(Cluster, "after", lambda *args: asked.append(args[1]) or after(*args))
    here, of_workers = model_of("vmp").fit(TENSOR), sum(client.run(taken).values())
    there = distributed.fit(model_of("vmp"), TENSOR, client=client, n_parts=2)
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert sum(client.run(taken).values()) == of_workers
    assert set(asked) == {rows_alone}
    made = Made(3, *(np.ones((2, width)) for width in (2, 3, 3, 2)), np.ones(2), np.ones(2))
    (_, mean, cov, *rest) = rows_alone(Told(made, [], 0.0)).value
    assert (mean is made.mean, cov is made.cov, sum(part.nbytes for part in rest)) == (True, True, 0)
