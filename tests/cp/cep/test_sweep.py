"""The compiled sweep of CEP against the plain twin, message by message."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, cells, fit, messages, problem, settings_of, twin_of
from oracles import cep as oracle

from tensorcep.core.packing import unpack
from tensorcep.priors.fixed import Prior


def assert_same(result, p, twin, tolerance):
    """Posterior, messages and noise of a Run equal those of the twin."""

    def close(a, b):
        scale = max(1e-3, np.abs(b).max())  # a fit that shrinks to nothing has no relative accuracy
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)

    Lam, eta = messages(result.state, p)
    close(unpack(result.posterior.Lam, p.rank), twin.Lam)
    close(result.posterior.eta, twin.eta)
    close(Lam, twin.msg_Lam)
    close(eta, twin.msg_eta)
    close(result.state.f.ravel()[: len(twin.y)], twin.latent()[p.entries.permutation])
    if p.noise_prior is not None:
        close(np.array(result.posterior.noise), np.array(twin.noise()))


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
@pytest.mark.parametrize("schedule", ["modewise", "parallel"])
@each("K", [2, 3, 4])
@each("R", [1, 2, 5, 9])
def test_sweep_equals_the_twin(rng, likelihood, schedule, K, R):
    coords, y, p = problem(rng, K, R, 30, likelihood)
    damping = {"gaussian": 0.0, "probit": 0.4}[likelihood] if schedule == "modewise" else 0.5
    result = fit(p, 3, schedule=schedule, damping=damping)
    twin = twin_of(p, coords, y)
    for _ in range(3):
        oracle.sweep(twin, schedule, damping=damping)
    assert result.trace["skipped"].sum() == twin.skipped
    assert_same(result, p, twin, 1e-10)


@each("schedule", ["modewise", "parallel"])
@each(("K", "R"), [(2, 1), (3, 4), (4, 2)])
def test_sweep_of_censored_values_equals_the_twin(rng, schedule, K, R):
    coords, y, p = problem(rng, K, R, 30, "tobit", prior=Prior([0.7] * K, [5.0] * K))
    assert 3 < (y == 0).sum() < 27
    result = fit(p, 3, schedule=schedule, damping=0.3)
    assert np.abs(result.state.f).mean() > 0.1
    twin = twin_of(p, coords, y)
    for _ in range(3):
        oracle.sweep(twin, schedule, damping=0.3)
    assert_same(result, p, twin, 1e-9)


def test_sweep_of_values_above_the_limit_has_the_bits_of_the_gaussian(rng):
    coords, y, p = problem(rng, 3, 3, 40)
    prior = Prior([0.5] * 3, [1.0] * 3)
    one, other = (fit(build(coords, np.abs(y), p.shape, 3, name, prior), 4) for name in ("gaussian", "tobit"))
    np.testing.assert_array_equal(one.posterior.Lam, other.posterior.Lam)
    np.testing.assert_array_equal(one.posterior.eta, other.posterior.eta)


@each("options", [{"order": 2}, {"moments": "posterior"}, {"messages": "averaged"}])
def test_sweep_of_censored_values_refuses_what_it_cannot_do(rng, options):
    _, _, p = problem(rng, 3, 2, 20, "tobit")
    with pytest.raises(ValueError, match=r"censored values need order=1.*lower_limit=None and upper_limit=None"):
        fit(p, 2, **options)


@each("schedule", ["modewise", "parallel"])
def test_sweep_without_the_limit_on_the_spread_equals_the_twin(rng, schedule):
    coords, y, p = problem(rng, 3, 3, 40, "probit")
    runs = {positive: fit(p, 4, schedule=schedule, damping=0.5, positive=positive) for positive in (True, False)}
    for positive, result in runs.items():
        twin = twin_of(p, coords, y)
        for _ in range(4):
            oracle.sweep(twin, schedule, damping=0.5, positive=positive)
        assert_same(result, p, twin, 1e-10)
    assert np.abs(runs[True].posterior.eta - runs[False].posterior.eta).max() > 1e-3, "the limit is never reached here"


@each("messages", ["full", "averaged"])
def test_noise_messages_that_count_the_entry_find_a_smaller_noise(rng, messages):
    *_, p = problem(rng, 3, 2, 300, sd=0.5, shape=(12, 10, 11))
    tilted, cavity = (
        fit(p, 60, noise_moments=which, messages=messages, damping=0.3, anneal=5).trace["noise_precision"][-1]
        for which in ("tilted", "cavity")
    )
    assert cavity < tilted


@each("schedule", ["modewise", "parallel"])
def test_sweep_with_the_noise_messages_of_the_cavity_equals_the_twin(rng, schedule):
    coords, y, p = problem(rng, 3, 3, 40)
    twin = twin_of(p, coords, y)
    for _ in range(4):
        oracle.sweep(twin, schedule, damping=0.5, noise_moments="cavity")
    assert_same(fit(p, 4, schedule=schedule, damping=0.5, noise_moments="cavity"), p, twin, 1e-10)


@each("likelihood", ["gaussian", "probit"])
def test_sweep_counts_messages_more_while_annealing(rng, likelihood):
    coords, y, p = problem(rng, 3, 3, 40, likelihood)
    twin = twin_of(p, coords, y)
    for power in (10.0, 10.0, 1.0, 1.0):
        oracle.sweep(twin, damping=0.5, power=power)
    assert_same(fit(p, 4, damping=0.5, anneal=2), p, twin, 1e-10)


@each("likelihood", ["gaussian", "probit"])
@each("schedule", ["modewise", "parallel"])
def test_sweep_with_posterior_moments_equals_the_twin(rng, likelihood, schedule):
    coords, y, p = problem(rng, 3, 3, 35, likelihood)
    result = fit(p, 3, schedule=schedule, damping=0.5, moments="posterior")
    twin = twin_of(p, coords, y)
    for _ in range(3):
        oracle.sweep(twin, schedule, "posterior", damping=0.5)
    assert_same(result, p, twin, 1e-10)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
@each("R", [1, 3])
def test_second_order_sweep_equals_the_twin(rng, likelihood, R):
    # a tight prior: the terms of second order must stay small beside the first
    prior = Prior([1.0, 1.0, 1.0], [20.0] * 3)
    coords, y, p = problem(rng, 3, R, 25, likelihood, prior=prior)
    result = fit(p, 3, damping=0.5, order=2, warm_up=1)
    twin = twin_of(p, coords, y)
    for order in (1, 2, 2):
        oracle.sweep(twin, order=order, damping=0.5)
    assert_same(result, p, twin, 1e-6)  # the kernel's derivatives are differences of second order
    plain = fit(p, 3, damping=0.5)
    assert np.abs(plain.posterior.eta - twin.eta).max() > 1e-3, "second order changes nothing here"


def test_sweep_from_the_published_start_equals_the_twin(rng):
    mean = [rng.random((n, 4)) for n in (5, 4, 6)]
    coords, y, p = problem(rng, 3, 4, 30, prior=Prior(mean, [1.0] * 3))
    p = p._replace(start=None)
    options = {"schedule": "parallel", "damping": 0.5, "message_precision": 1e-6, "message_noise": (1e-3, 1e-3)}
    twin = twin_of(p, coords, y, settings_of("cep", **options))
    for _ in range(4):
        oracle.sweep(twin, "parallel", damping=0.5)
    assert_same(fit(p, 4, **options), p, twin, 1e-10)


def test_sweep_takes_a_prior_per_row_and_repeated_cells(rng):
    shape, R = (4, 3, 5), 3
    root = [rng.standard_normal((n, R, R)) for n in shape]
    prior = Prior([rng.standard_normal((n, R)) for n in shape], [a @ a.swapaxes(1, 2) + np.eye(R) for a in root])
    coords = np.repeat(cells(rng, shape, 12), 2, axis=0)
    y = rng.standard_normal(24)
    p = build(coords, y, shape, R, prior=prior)
    twin = twin_of(p, coords, y)
    for _ in range(3):
        oracle.sweep(twin)
    assert_same(fit(p, 3), p, twin, 1e-10)


@each("n", [1, 15, 16, 17])
def test_sweep_padding_lanes_have_no_effect(rng, n):
    coords, y, p = problem(rng, 3, 2, n)
    result = fit(p, 2)
    twin = twin_of(p, coords, y)
    for _ in range(2):
        oracle.sweep(twin)
    assert_same(result, p, twin, 1e-10)
    assert result.posterior.noise.a == pytest.approx(1e-3 + 0.5 * n, rel=1e-14)


def test_sweep_train_score_and_noise_are_those_of_the_entries(rng):
    coords, y, p = problem(rng, 3, 2, 40)
    result = fit(p, 3, damping=0.25)
    twin = twin_of(p, coords, y)
    for _ in range(3):
        oracle.sweep(twin, damping=0.25)
    a, b = twin.noise()
    score = np.mean(0.5 * np.log(a / b / (2 * np.pi)) - 0.5 * a / b * (y - twin.latent()) ** 2)
    assert result.trace["train_score"][-1] == pytest.approx(score, rel=1e-9)
    assert result.trace["noise_precision"][-1] == pytest.approx(a / b, rel=1e-10)


@each("n", [64, 40])
def test_sweep_change_is_that_of_the_latent_means_of_the_entries(rng, n):
    coords, y, p = problem(rng, 3, 2, n)
    result = fit(p, 3, damping=0.25)
    twin = twin_of(p, coords, y)
    f = [twin.latent()]
    for _ in range(3):
        oracle.sweep(twin, damping=0.25)
        f.append(twin.latent())
    changes = [np.sqrt(np.mean((b - a) ** 2) / np.mean(b**2)) / 0.75 for a, b in pairwise(f)]
    np.testing.assert_allclose(result.trace["change"], changes, rtol=1e-8)
