"""CEP in the free columns against the same model with clamped columns carried along as tight priors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import fit, structured

from tensorcep.core.packing import unpack
from tensorcep.priors import LEARNED


def assert_same(run, whole, free, rtol=1e-6):
    np.testing.assert_allclose(run.trace["change"], whole.trace["change"], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(run.state.f, whole.state.f, rtol=rtol, atol=rtol)
    R = free.shape[1]
    S, T = (np.linalg.inv(unpack(r.posterior.Lam, R)) for r in (run, whole))
    np.testing.assert_allclose(S, T, rtol=0, atol=rtol * np.abs(T).max())
    m, n = (np.einsum("nij,nj->ni", c, r.posterior.eta) for c, r in ((S, run), (T, whole)))
    np.testing.assert_allclose(m, n, rtol=0, atol=rtol * np.abs(n).max())
    if run.posterior.noise is not None:
        assert run.posterior.noise == pytest.approx(whole.posterior.noise, rel=rtol)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
@pytest.mark.parametrize(
    "options",
    [
        {"damping": 0.3},
        {"damping": 0.5, "schedule": "parallel"},
        {"damping": 0.5, "moments": "posterior", "anneal": 2},
    ],
)
def test_free_columns_give_what_clamped_ones_do(rng, likelihood, options):
    p, whole = structured(rng, 3, likelihood)
    assert fit(p, 1).state.small.rank == 6 < whole.rank == 10
    assert_same(fit(p, 6, **options), fit(whole, 6, **options), p.free, rtol=2e-5)  # clamping at 1e12 costs digits


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("likelihood", ["gaussian", "tobit", "probit"])
def test_free_columns_serve_any_order(rng, K, likelihood):
    p, whole = structured(rng, K, likelihood)
    assert_same(fit(p, 5, damping=0.3), fit(whole, 5, damping=0.3), p.free)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_modes_may_have_different_numbers_of_free_columns(rng, likelihood):
    free = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
    free = np.concatenate([free, free[:, :1]], axis=1)
    p, whole = structured(rng, 3, likelihood, free=free)
    assert_same(fit(p, 5, damping=0.3), fit(whole, 5, damping=0.3), free)


@pytest.mark.parametrize("kind", LEARNED)
@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_free_columns_learn_the_same_prior(rng, kind, likelihood):
    p, whole = structured(rng, 3, likelihood, kind)
    run, other = fit(p, 8, damping=0.3, anneal=2), fit(whole, 8, damping=0.3, anneal=2)
    assert_same(run, other, p.free, rtol=1e-5)
    np.testing.assert_allclose(run.posterior.mode_prior.mean, other.posterior.mode_prior.mean, rtol=1e-5, atol=1e-6)
    for found, wanted in zip(run.posterior.mode_prior.precision, other.posterior.mode_prior.precision, strict=True):
        np.testing.assert_allclose(np.linalg.inv(found), np.linalg.inv(wanted), rtol=1e-5, atol=1e-7)


def test_second_order_carries_the_clamped_columns(rng):
    p, whole = structured(rng, 3, "probit")
    options = {"damping": 0.5, "order": 2, "warm_up": 2}
    run = fit(p, 4, **options)
    assert run.state.small.rank == whole.rank
    np.testing.assert_array_equal(run.posterior.Lam, fit(whole, 4, **options).posterior.Lam)


def test_clamped_columns_of_the_posterior_are_one_and_rows_without_entries_keep_the_prior(rng):
    p, _ = structured(rng, 3, n=8)
    posterior = fit(p, 3).posterior
    free = np.repeat(p.free, p.shape, axis=0)
    mean = np.linalg.solve(unpack(posterior.Lam, p.rank), posterior.eta[..., None])[..., 0]
    np.testing.assert_array_equal(mean[~free], 1.0)
    assert (~posterior.seen).any()
    np.testing.assert_allclose(posterior.Lam[~posterior.seen], p.prior.Lam[~posterior.seen], rtol=1e-12)
    np.testing.assert_allclose(posterior.eta[~posterior.seen], p.prior.eta[~posterior.seen], rtol=1e-12)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_free_columns_give_the_same_bits_on_any_number_of_threads(rng, likelihood):
    p, _ = structured(rng, 3, likelihood, "learned", n=5000, shape=(30, 25, 20))
    assert len(p.entries.chunk_start) > 3
    runs = [fit(p, 3, threads=threads, damping=0.3) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.Lam, runs[1].posterior.Lam)
    np.testing.assert_array_equal(runs[0].posterior.eta, runs[1].posterior.eta)
