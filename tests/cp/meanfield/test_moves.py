"""Moves of rows under matched likelihoods: none carries a latent value farther than any count could ask for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, cells, problem, settings_of
from scipy.stats import poisson

from tensorcep import CPCountRegressor
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.core.packing import unpack
from tensorcep.cp.meanfield import method
from tensorcep.cp.meanfield.method import FARTHEST, hold_back
from tensorcep.cp.model.latent import latent_of_entries


@each("seed", [0, 3])
def test_vmp_of_wild_counts_stays_among_the_numbers(seed):
    """Latent values left the range of numbers within two sweeps, and with them went the fit."""
    rng = np.random.default_rng(seed)
    coords = rng.integers(0, [30, 20, 10], (2000, 3))
    y = rng.poisson(np.exp(4.0 * rng.standard_normal(2000)))  # rates that no factors explain
    model = CPCountRegressor(rank=5, method="vmp", likelihood="poisson", random_state=0).fit(coords, y)
    mean, variance = model.predict_latent(coords)
    assert np.isfinite([mean, variance]).all()
    assert model.trace_["train_score"][-1] > 0.5 * poisson.logpmf(y, y.mean()).mean()


def test_a_move_is_cut_short_only_as_far_as_latent_values_would_leave_for():
    p = problem(np.random.default_rng(0), likelihood="poisson", sd=1.0)[2]
    executor = ThreadExecutor(1)
    state = method.VMP.init(p, settings_of("vmp"), executor)
    before = 1, state.rows.mean[p.shape[0] : p.shape[0] + p.shape[1]].copy(), state.f
    near, far, n = p.shape[0], p.shape[0] + 1, len(p.entries.permutation)
    state.rows.mean[near] *= 1.5
    state.rows.mean[far] *= 1e6
    there = state.rows.mean[near].copy()
    f = latent_of_entries(p.entries, state.rows.mean, executor, state.own.setup.columns.groups)
    state = state.put(sites=state.own.sites._replace(f=f))
    assert hold_back(*before, state, p, executor)
    f = latent_of_entries(p.entries, state.rows.mean, executor, state.own.setup.columns.groups)
    state = state.put(sites=state.own.sites._replace(f=f))
    assert not hold_back(*before, state, p, executor)
    np.testing.assert_array_equal(state.rows.mean[near], there)
    assert np.abs(f - before[2]).ravel()[:n].max() == pytest.approx(FARTHEST)
    eta = unpack(state.rows.Lam, p.rank)[far] @ state.rows.mean[far]
    np.testing.assert_allclose(state.rows.eta[far], eta, rtol=1e-12)


@pytest.mark.parametrize("likelihood", ["poisson", pytest.param("negbinomial", marks=pytest.mark.slow)])
def test_variances_of_the_sweep_before_have_the_fixed_point_of_fresh_ones(likelihood, monkeypatch):
    rng, shape = np.random.default_rng(0), (12, 10, 40)
    coords, factors = cells(rng, shape, 2000), [0.4 + 0.6 * rng.random((m, 1)) for m in shape]
    f = np.prod([u[i] for u, i in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    y = rng.poisson(np.exp(3.0 * f)).astype(float)
    p = build(coords, y, shape, 1, likelihood, start=np.concatenate(factors))
    fresh = run(method.VMP, p, settings_of("vmp"), max_iter=1000, tol=1e-9)
    monkeypatch.setattr(method, "MANY", 0)
    other = run(method.VMP, p, settings_of("vmp"), max_iter=1000, tol=1e-9)
    assert 0.0 < np.abs(other.state.f - fresh.state.f).max() < 1e-4
    np.testing.assert_allclose(other.state.rows.cov, fresh.state.rows.cov, atol=1e-4)
    np.testing.assert_allclose(other.state.own.sites.square, fresh.state.own.sites.square, atol=1e-3)
    assert np.abs(fresh.state.f).max() > 2.0
