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
    assert fit(p, 1).state.rows.eta.shape[1] == 6 < whole.rank == 10
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


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
@pytest.mark.parametrize("moments", ["cavity", "posterior"])
def test_second_order_in_free_columns_is_that_of_clamped_ones(rng, likelihood, moments):
    p, whole = structured(rng, 3, likelihood, precision=20.0)
    options = {"damping": 0.5, "order": 2, "warm_up": 1, "moments": moments}
    run = fit(p, 5, **options)
    assert_same(run, fit(whole, 5, **options), p.free, rtol=2e-4)
    first_order = fit(p, 5, damping=0.5, moments=moments)
    assert np.abs(run.state.f - first_order.state.f).max() > 1e-3, "second order changes nothing here"


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
@pytest.mark.parametrize("options", [{}, {"schedule": "parallel"}, {"moments": "posterior"}])
def test_averaged_messages_to_free_columns_are_those_to_clamped_ones(rng, K, likelihood, options):
    p, whole = structured(rng, K, likelihood)
    run, other = (fit(x, 5, messages="averaged", damping=0.5, **options) for x in (p, whole))
    assert run.state.rows.eta.shape[1] < whole.rank
    assert_same(run, other, p.free, rtol=2e-4)


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
