"""Safeguards of CEP: updates that would break a Gaussian are skipped or shrunk, counted, and nothing becomes nan."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, fit, messages, problem, settings_of, twin_of
from oracles import cep as oracle

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.simulate import simulate_cp
from tensorcep.priors.fixed import Prior


def start(p, **options):
    options = settings_of("cep", **options)
    return options, CEP.init(p, options, ThreadExecutor(1))


def put(state, p, entry, k, precision):
    """Set the message of one entry of the input to its row of mode k to precision * I."""
    block, lane = divmod(int(np.flatnonzero(p.entries.permutation == entry)[0]), 16)
    for r in range(p.rank):
        state.own.messages.Lam[block, k, r * (r + 3) // 2, lane] = precision


def assert_sound(posterior):
    assert np.isfinite(posterior.Lam).all()
    assert np.isfinite(posterior.eta).all()
    assert (np.linalg.eigvalsh(unpack(posterior.Lam, posterior.rank)) > 0).all()


@each("likelihood", ["gaussian", "probit"])
def test_guard_skips_an_entry_whose_cavity_is_indefinite_and_no_other(rng, likelihood):
    coords, y, p = problem(rng, 3, 3, 40, likelihood)
    options, state = start(p, schedule="parallel", damping=0.5)
    twin = twin_of(p, coords, y)
    put(state, p, 11, 1, 7.0)  # more than the whole row holds
    twin.msg_Lam[11, 1] = 7.0 * np.eye(3)
    before = messages(state, p)
    state, sweep = CEP.step(state, p, options, ThreadExecutor(1))
    oracle.sweep(twin, "parallel", damping=0.5)
    Lam, eta = messages(state, p)
    assert sweep.skipped == twin.skipped == 3
    np.testing.assert_array_equal(Lam[11], before[0][11])
    np.testing.assert_array_equal(eta[11], before[1][11])
    np.testing.assert_allclose(Lam, twin.msg_Lam, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.rows.Lam, CEP.finish(state, p).Lam)
    np.testing.assert_allclose(unpack(state.rows.Lam, 3), twin.Lam, rtol=1e-9, atol=1e-10)


@each("dtype", ["float64", "float32"])
def test_guard_shrinks_the_messages_of_an_indefinite_row(rng, dtype):
    coords, _, p = problem(rng, 3, 2, 40, "probit")
    options, state = start(p, damping=0.9, dtype=dtype)
    put(state, p, 5, 0, -60.0)
    state, sweep = CEP.step(state, p, options, ThreadExecutor(1))
    assert sweep.shrunk == 1
    posterior = CEP.finish(state, p)
    assert_sound(posterior)
    Lam, eta = messages(state, p)
    total, pull = unpack(p.prior.Lam, 2), p.prior.eta.copy()
    np.add.at(total, coords[:, 0], Lam[:, 0])
    np.add.at(pull, coords[:, 0], eta[:, 0])
    rows = slice(0, p.shape[0])
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(posterior.eta[rows], pull[rows], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(unpack(posterior.Lam, 2)[rows], total[rows], rtol=tolerance, atol=tolerance)
    # halving stops as soon as the row is sound: with half as much shrinking it would not be
    assert np.linalg.eigvalsh(2 * total[coords[5, 0]] - np.eye(2))[0] <= 1e-9


def test_guard_shrinks_only_what_it_must(rng):
    _, _, p = problem(rng, 3, 2, 40, "probit")
    options, state = start(p, damping=0.9)
    reference, _ = CEP.step(start(p, damping=0.9)[1], p, options, ThreadExecutor(1))
    put(state, p, 5, 2, -60.0)  # the last mode: the other modes are updated before any row is indefinite
    clean = messages(reference, p)[0]
    state, sweep = CEP.step(state, p, options, ThreadExecutor(1))
    assert sweep.shrunk == 1
    np.testing.assert_allclose(messages(state, p)[0][np.arange(40) != 5, 0], clean[np.arange(40) != 5, 0], rtol=1e-9)


def test_guard_recovers_from_a_message_that_is_not_a_number(rng):
    _, _, p = problem(rng, 3, 2, 40)
    options, state = start(p)
    put(state, p, 5, 0, np.nan)
    for _ in range(5):
        state, sweep = CEP.step(state, p, options, ThreadExecutor(1))
    assert_sound(CEP.finish(state, p))
    assert sweep.skipped == 0
    assert np.isfinite(messages(state, p)[0]).all()


STRESS = [
    ("probit", {"damping": 0.0, "schedule": "parallel"}),
    ("probit", {"damping": 0.0, "order": 2, "warm_up": 0}),
    ("logit", {"damping": 0.0, "schedule": "parallel", "moments": "posterior"}),
    ("poisson", {"damping": 0.0, "schedule": "parallel"}),
    ("probit", {"damping": 0.5, "order": 2}),
    ("poisson", {"damping": 0.5, "order": 2}),
    ("poisson", {"damping": 0.5, "positive": False}),
    ("probit", {"damping": 0.0, "anneal": 10}),
    ("gaussian", {"damping": 0.0, "order": 2, "warm_up": 0}),
    ("gaussian", {"damping": 0.0, "schedule": "parallel"}),
]


@each(("likelihood", "options"), STRESS)
def test_guards_keep_every_row_a_gaussian_under_stress(rng, likelihood, options):
    check_stress(rng, likelihood, options)


@pytest.mark.xfail(
    reason="undamped second order under a wide prior: precisions close to zero are let through, means overflow",
    strict=True,
)
def test_guards_keep_rows_of_counts_gaussians_in_undamped_second_order(rng):
    check_stress(rng, "poisson", {"damping": 0.0, "order": 2, "warm_up": 0})


def check_stress(rng, likelihood, options):
    _, _, p = problem(rng, 3, 4, 60, likelihood, prior=Prior([0.0] * 3, [0.05] * 3), shape=(12, 10, 11))
    run = fit(p, 25, **options)
    assert_sound(run.posterior)
    assert np.isfinite(run.trace["change"]).all()
    assert np.isfinite(run.state.own.messages.Lam).all()
    assert np.isfinite(run.state.own.messages.eta).all()


def simulated(likelihood, shape, R, n):
    """A problem drawn from the model, with its prior, and the latent values in the order of the lanes."""
    sim = simulate_cp(
        shape, R, n, likelihood=likelihood, latent_sd=1.0 if likelihood == "poisson" else 2.0, random_state=0
    )
    y = sim.tensor.values if likelihood == "poisson" else 2 * sim.tensor.values - 1
    sd = sim.prior.precision[0] ** -0.5
    start = sd * np.random.default_rng(0).random((sum(shape), R))
    p = build(sim.tensor.coords, y, shape, R, likelihood, sim.prior, start)
    return p, sim.latent[p.entries.permutation]


@pytest.mark.parametrize(
    ("likelihood", "shape", "R", "n"), [("poisson", (100, 80), 3, 2400), ("probit", (30, 25, 20), 4, 7500)]
)
def test_damped_cep_settles_on_data_from_its_own_model(likelihood, shape, R, n):
    p, latent = simulated(likelihood, shape, R, n)
    run = fit(p, 60, damping=0.5)
    assert run.trace["change"][-1] < 0.1
    assert run.trace["train_score"].min() > -10.0
    assert np.corrcoef(run.state.f.ravel()[:n], latent)[0, 1] > 0.8
    assert run.trace["skipped"].sum() + run.trace["shrunk"].sum() == 0


def test_published_messages_need_the_guards_and_they_count():
    p, _ = simulated("poisson", (100, 80), 3, 2400)
    run = fit(p, 10, damping=0.5, positive=False)
    assert run.trace["skipped"].sum() > 0
    assert run.trace["shrunk"].sum() > 0
    assert_sound(run.posterior)


def test_guard_gives_the_padding_no_part_in_the_counts(rng):
    p = build(np.zeros((1, 3), dtype=int), np.array([1.0]), (1, 1, 1), 2, "probit", start=np.ones((3, 2)))
    options, state = start(p, schedule="parallel")
    put(state, p, 0, 0, 9.0)
    _, sweep = CEP.step(state, p, options, ThreadExecutor(1))
    assert sweep.skipped == 3
    assert offsets(p.shape)[-1] == 3
