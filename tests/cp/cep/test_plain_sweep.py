"""The lane sweep of CEP against nested loops over rows and columns, the parallel schedule of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import problem, settings_of
from oracles.plain_sweep import plain_state, plain_sweep

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import unpack
from tensorcep.cp.cep import method as cep


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_plain_twin_equals_the_lane_sweep(rng, likelihood):
    _, _, entries = problem(rng, K=3, R=3, n=1003, likelihood=likelihood, shape=(20, 15, 25))
    published = {"positive": False, "message_noise": (0.5, 0.5), "noise_moments": "cavity"}
    options = settings_of("cep", schedule="parallel", damping=0.5, **published)
    threads = ThreadExecutor(1)
    state, plain = cep.init(entries, options, threads), plain_state(entries, (0.5, 0.5))
    for _ in range(2):
        state, _ = cep.step(state, entries, options, threads)
        plain = plain_sweep(plain, entries, 0.5)
    scale = np.abs(plain.row_Lam).max()
    np.testing.assert_allclose(unpack(state.rows.Lam, 3), plain.row_Lam, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(state.rows.eta, plain.row_eta, rtol=0, atol=1e-9 * np.abs(plain.row_eta).max())
    if likelihood == "gaussian":
        np.testing.assert_allclose(state.noise, plain.noise, rtol=1e-9)
