"""CEP with averaged messages: the plain twin whose messages are averaged per row, exact cases, same bits."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, cells, problem, settings_of, twin_of
from oracles import cep as oracle

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.cep.stochastic import averaged_rows, closed_chunks
from tensorcep.cp.cep.update import cep_slots
from tensorcep.cp.posterior import GammaNoise
from tensorcep.kernels.lanes import work_array
from tensorcep.priors.fixed import Prior

FIXED = 1e12  # a prior precision at which a row does not move


def fit(p, sweeps, threads=1, **options):
    settings = settings_of("cep", **{"messages": "averaged", **options})
    return run(CEP, p, settings, max_iter=sweeps, tol=0.0, n_threads=threads)


def average_messages(twin):
    """Give all entries of a row the average of their messages, and all entries the average noise message."""
    for k in range(twin.coords.shape[1]):
        for i in np.unique(twin.coords[:, k]):
            mine = twin.coords[:, k] == i
            twin.msg_Lam[mine, k] = twin.msg_Lam[mine, k].mean(axis=0)
            twin.msg_eta[mine, k] = twin.msg_eta[mine, k].mean(axis=0)
    if twin.noise_prior is not None:
        twin.a[:], twin.b[:] = twin.a.mean(), twin.b.mean()


@each("likelihood", ["gaussian", "probit"])
@each("moments", ["cavity", "posterior"])
@each(("K", "R"), [(2, 1), (3, 3), (4, 2)])
def test_averaged_messages_are_the_averages_of_full_ones(rng, likelihood, moments, K, R):
    shape = {2: (7, 5), 3: (5, 4, 6), 4: (3, 4, 2, 5)}[K]
    prior = Prior([rng.random((n, R)) for n in shape], [1.5] * K)
    coords, y, p = problem(rng, K, R, 30, likelihood, prior=prior)
    p = p._replace(start=None)
    options = {"schedule": "parallel", "damping": 0.4, "moments": moments}
    posterior = fit(p, 4, **options).posterior
    twin = twin_of(p, coords, y)
    average_messages(twin)
    for _ in range(4):
        oracle.sweep(twin, "parallel", moments, damping=0.4)
        average_messages(twin)
    np.testing.assert_allclose(unpack(posterior.Lam, R), twin.Lam, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.eta, twin.eta, rtol=1e-9, atol=1e-9)
    if likelihood == "gaussian":
        assert posterior.noise == pytest.approx(twin.noise(), rel=1e-9)


def plain_fit(p, coords, y, sweeps, damping, tilted):
    """Real values mode after mode, in dense matrices: rows Lam and eta, and the noise (a, b)."""
    twin, at = twin_of(p, coords, y), coords + offsets(p.shape)[:-1]
    prior_Lam, prior_eta, (a, b), n = twin.prior_Lam, twin.prior_eta, twin.noise_prior, len(y)
    Lam, eta, noise = twin.Lam.copy(), twin.eta.copy(), np.array(twin.noise())
    counts = np.maximum(np.bincount(at.ravel(), minlength=len(eta)), 1)[:, None]
    K, keep = at.shape[1], 1.0 - damping
    for k in list(range(K)) * sweeps:
        S = np.linalg.inv(Lam - (Lam - prior_Lam) / counts[:, :, None])
        m = np.einsum("nij,nj->ni", S, eta - (eta - prior_eta) / counts)
        G = S + m[:, :, None] * m[:, None, :]
        others = [j for j in range(K) if j != k]
        z, Z2 = np.prod([m[at[:, j]] for j in others], axis=0), np.prod([G[at[:, j]] for j in others], axis=0)
        without = noise - (noise - (a, b)) / n
        tau, own = without[0] / without[1], slice(*offsets(p.shape)[k : k + 2])
        new_Lam, new_eta = prior_Lam.copy(), prior_eta.copy()
        np.add.at(new_Lam, at[:, k], tau * Z2)
        np.add.at(new_eta, at[:, k], tau * y[:, None] * z)
        Lam[own] += keep * (new_Lam - Lam)[own]
        eta[own] += keep * (new_eta - eta)[own]
        if k == K - 1:
            f = (z * m[at[:, k]]).sum(axis=1)
            v = np.einsum("nij,nij->n", Z2, G[at[:, k]]) - f**2
            share = 1.0 / (1.0 + v * tau) if tilted else 1.0
            error = share * (share * (y - f) ** 2 + v)
            noise += keep * (np.array([a + 0.5 * n, b + 0.5 * error.sum()]) - noise)
    return Lam, eta, noise


@each(("K", "R", "n"), [(2, 3, 25), (3, 1, 40), (3, 9, 90), (4, 4, 70)])
@each("options", [{}, {"damping": 0.4, "noise_moments": "cavity"}])
def test_averaged_messages_of_real_values_are_those_of_dense_matrices(rng, K, R, n, options):
    shape = {2: (7, 5), 3: (5, 4, 6), 4: (3, 4, 2, 5)}[K]
    prior = Prior([rng.standard_normal((m, R)) for m in shape], [1.5] * K)
    coords, y, p = problem(rng, K, R, n, prior=prior)
    posterior = fit(p, 4, **options).posterior
    Lam, eta, noise = plain_fit(p, coords, y, 4, options.get("damping", 0.0), "noise_moments" not in options)
    np.testing.assert_allclose(unpack(posterior.Lam, R), Lam, rtol=1e-9, atol=1e-9 * np.abs(Lam).max())
    np.testing.assert_allclose(posterior.eta, eta, rtol=1e-9, atol=1e-9 * np.abs(eta).max())
    assert posterior.noise == pytest.approx(tuple(noise), rel=1e-9)


def test_averaged_messages_of_real_values_replace_those_without_a_cavity(rng):
    """An entry whose cavity is no Gaussian sends the average message of its row."""
    _, _, p = problem(rng, 3, 2, 30)
    state = fit(p, 2).state
    (factors,), noise = averaged_rows(state, p, (1, 2), ThreadExecutor(1))
    factors.good[:] = 0.0
    own, sums = state.own, state.own.sums
    record = (own.columns, factors, own.messages, own.cavities, sums, noise, own.rule)
    closed_chunks(0, 1, (1, 2), p.entries, *record, *work_array(cep_slots(3, 2)))
    mode = slice(*offsets(p.shape)[1:3])
    counts = sums.counts[mode, None]
    assert sums.skipped[0] == 30
    np.testing.assert_allclose(sums.Lam[0, mode], counts * factors.Lam[mode], rtol=1e-12)
    np.testing.assert_allclose(sums.eta[0, mode], counts * factors.eta[mode], rtol=1e-12)


@each("options", [{}, {"schedule": "parallel"}, {"order": 2, "warm_up": 0}])
def test_averaged_messages_are_exact_for_linear_regression(rng, options):
    R, shape = 2, (6, 4, 5)
    known = [rng.standard_normal((m, R)) for m in shape[1:]]
    coords, y = cells(rng, shape, 24), rng.standard_normal(24)
    noise = GammaNoise(1e12 * 2.5, 1e12)
    p = build(coords, y, shape, R, "gaussian", Prior([0.3, *known], [1.5, FIXED, FIXED]), noise=noise)
    z = known[0][coords[:, 1]] * known[1][coords[:, 2]]
    posterior = fit(p, 1 if options.get("order", 1) == 1 else 200, damping=0.0, **options).posterior
    for i in range(shape[0]):
        mine = coords[:, 0] == i
        Lam = 1.5 * np.eye(R) + 2.5 * z[mine].T @ z[mine]
        np.testing.assert_allclose(unpack(posterior.Lam[i], R), Lam, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(posterior.eta[i], 1.5 * 0.3 + 2.5 * y[mine] @ z[mine], rtol=1e-5, atol=1e-5)


def test_averaged_messages_of_one_entry_per_row_are_full_ones(rng):
    """The average of one message is that message."""
    coords = np.stack([np.arange(5)] * 3, axis=1)
    prior = Prior([rng.random((5, 2)) for _ in range(3)], [1.0] * 3)
    p = build(coords, rng.choice([-1.0, 1.0], 5), (5, 5, 5), 2, "probit", prior)
    full, averaged = (fit(p, 5, messages=kind, damping=0.3).posterior for kind in ("full", "averaged"))
    np.testing.assert_allclose(averaged.Lam, full.Lam, rtol=1e-10)
    np.testing.assert_allclose(averaged.eta, full.eta, rtol=1e-10)


def test_averaged_messages_take_no_memory_per_entry(rng):
    _, _, p = problem(rng, 3, 3, 45)
    state = fit(p, 2).state
    assert [part.size for part in state.own.messages] == [0, 0, 0, 0]


def test_averaged_messages_leave_rows_without_entries_at_the_prior(rng):
    shape = (6, 5, 7)
    p = build(cells(rng, (4, 5, 6), 30), rng.standard_normal(30), shape, 2, start=rng.random((18, 2)))
    posterior = fit(p, 3, damping=0.5).posterior
    unseen = ~posterior.seen
    assert unseen.sum() == 3
    np.testing.assert_array_equal(posterior.Lam[unseen], p.prior.Lam[unseen])
    np.testing.assert_array_equal(posterior.eta[unseen], p.prior.eta[unseen])


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_averaged_messages_give_the_same_bits_for_any_order_and_threads(rng, likelihood):
    coords, y, p = problem(rng, 3, 3, 6000, likelihood, shape=(30, 25, 20))
    shuffle = rng.permutation(6000)
    q = build(coords[shuffle], y[shuffle], p.shape, 3, likelihood, start=p.start)
    runs = [fit(x, 3, threads=threads, damping=0.3).posterior for x, threads in ((p, 1), (p, 2), (q, 1))]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].Lam, other.Lam)
        np.testing.assert_array_equal(runs[0].eta, other.eta)
        assert runs[0].noise == other.noise


def test_averaged_messages_shrink_a_row_that_outweighs_its_prior(rng):
    """Without the limit on the spread messages may be negative; rows stay Gaussians all the same."""
    coords = cells(rng, (5, 4, 6), 60)
    p = build(coords, rng.choice([-1.0, 1.0], 60), (5, 4, 6), 3, "probit", start=4.0 * rng.standard_normal((15, 3)))
    result = fit(p, 10, positive=False)
    assert np.linalg.eigvalsh(unpack(result.posterior.Lam, 3)).min() > 0.0
    assert result.trace["shrunk"].sum() + result.trace["skipped"].sum() > 0


def test_averaged_messages_without_entries_give_the_prior():
    p = build(np.zeros((0, 3), dtype=int), np.zeros(0), (3, 4, 2), 2, prior=Prior([0.5] * 3, [2.0] * 3))
    posterior = fit(p, 2).posterior
    np.testing.assert_array_equal(posterior.Lam, p.prior.Lam)
    assert offsets(p.shape)[-1] == len(posterior.eta)


def test_messages_setting_is_checked(rng):
    _, _, p = problem(rng, 3, 2, 10)
    with pytest.raises(ValueError, match="messages must be one of 'full', 'averaged'; got 'none'"):
        fit(p, 1, messages="none")
