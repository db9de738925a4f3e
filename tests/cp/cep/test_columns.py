"""CEP in the free columns: beside `tests/cp/test_clamped_columns.py`, what becomes of the clamped ones."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from helpers.problems import fit, structured

from tensorcep.core.packing import unpack


@each("likelihood", ["gaussian", "probit"])
@each("moments", ["cavity", "posterior"])
def test_second_order_in_free_columns_is_not_first_order(rng, likelihood, moments):
    p, _ = structured(rng, 3, likelihood, precision=20.0)
    first, second = (fit(p, 5, damping=0.5, moments=moments, **more) for more in ({}, {"order": 2, "warm_up": 1}))
    assert np.abs(second.state.f - first.state.f).max() > 1e-3


def test_clamped_columns_of_the_posterior_are_one_and_rows_without_entries_keep_the_prior(rng):
    p, _ = structured(rng, 3, n=8)
    posterior = fit(p, 3).posterior
    free = np.repeat(p.free, p.shape, axis=0)
    mean = np.linalg.solve(unpack(posterior.Lam, p.rank), posterior.eta[..., None])[..., 0]
    np.testing.assert_array_equal(mean[~free], 1.0)
    assert (~posterior.seen).any()
    np.testing.assert_allclose(posterior.Lam[~posterior.seen], p.prior.Lam[~posterior.seen], rtol=1e-12)
    np.testing.assert_allclose(posterior.eta[~posterior.seen], p.prior.eta[~posterior.seen], rtol=1e-12)


@each("likelihood", ["gaussian", "probit"])
def test_free_columns_give_the_same_bits_on_any_number_of_threads(rng, likelihood):
    p, _ = structured(rng, 3, likelihood, "learned", n=5000, shape=(30, 25, 20))
    assert len(p.entries.chunk_start) > 3
    runs = [fit(p, 3, threads=threads, damping=0.3) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.Lam, runs[1].posterior.Lam)
    np.testing.assert_array_equal(runs[0].posterior.eta, runs[1].posterior.eta)
