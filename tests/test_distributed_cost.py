"""What a sweep on workers sends: rows and their sums once to the client, and what is new to a worker once to each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clusters import local_client

import tensorcep as tc
from tensorcep.core.cluster import Cluster
from tensorcep.core.loop import hosted_by
from tensorcep.core.shared_memory import BYTES_READ
from tensorcep.cp.workers.checkpoint import ClusterHost
from tensorcep.methods import VMP, Gibbs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
R, SWEEPS = 8, 6
METHODS: dict[str, Any] = {
    "gibbs": lambda: Gibbs(n_chains=1, weights="equal", noise="sampled"),
    "vmp": lambda: VMP(anneal=0),
}


def moved(dask_worker: Any) -> int:
    return dask_worker.transfer_outgoing_bytes_total + BYTES_READ[0]


@pytest.mark.parametrize("method", METHODS)
def test_bytes_of_a_sweep_are_those_of_the_formula(tmp_path: Path, method: str) -> None:
    rng, shape, n = np.random.default_rng(0), (20_000, 5_000, 500), 200_000
    cells = np.unique(np.ravel_multi_index([rng.integers(size, size=n) for size in shape], shape))
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    tensor = tc.SparseTensor.from_coo(coords, rng.normal(size=len(coords)), shape)
    counted: list[int] = []
    with local_client() as client:
        cluster = Cluster(client)

        def count(*_: Any) -> None:
            counted.append(cluster.sent + BYTES_READ[0] + sum(client.run(moved).values()))

        how: dict[str, Any] = {"method": METHODS[method](), "interactions": "cp", "init": "random", "random_state": 0}
        model = tc.CPRegressor(R, max_iter=SWEEPS, tol=0.0, callbacks=count, **how)
        with hosted_by(ClusterHost(cluster, tmp_path, None, None)):
            model.fit(tensor)
    assert len(counted) == SWEEPS
    # gibbs: rows and squares to the client, rows to the other worker; vmp: rows, sums and two more numbers to the
    # client, to the other worker rows, whose means it takes twice
    moments = R * (R + 1) // 2 + R
    numbers = 2 * R + 1 if method == "gibbs" else 2 * (moments + 1) + moments + R
    assert np.median(np.diff(counted)) == pytest.approx(8 * sum(shape) * numbers, rel=0.02)
