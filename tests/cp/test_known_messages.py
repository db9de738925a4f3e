"""What is known of rows in methods that pass messages: ridge regression, and dense Gaussian processes by EP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers.cases import each
from helpers.problems import build, cells, fit, means, settings_of
from scipy.stats import norm

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.messages.engine import with_joint_rows
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.problem import FixedRows
from tensorcep.cp.model.rows import refresh_rows
from tensorcep.cp.posterior import GammaNoise
from tensorcep.entries.labels import Labels
from tensorcep.ep.gaussian import GaussianEP
from tensorcep.priors.base import Drift, ModePrior, Slopes, damped, per_row
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Mode, design
from tensorcep.priors.graph import Graph, net
from tensorcep.priors.series import Series, clock

ENGINES = each(("method", "options"), [("cep", {}), ("cep", {"messages": "averaged"}), ("laplace", {})])
N, M, TAU, CENTRE, WIDTH = 9, 6, 4.0, 0.3, 0.7
KNOWN = 1e12


def known_problem(rng, R=1, likelihood="gaussian", seen=N, n=30):
    """Entries of a matrix whose columns' rows V (M, R) are known: coords, y, V, and the problem."""
    coords, V = cells(rng, (seen, M), n), rng.standard_normal((M, R))
    y = rng.standard_normal(n) if likelihood == "gaussian" else np.where(rng.random(n) < 0.5, 1.0, -1.0)
    p = build(coords, y, (N, M), R, likelihood, noise=GammaNoise(1e12 * TAU, 1e12))
    whole = np.ones((2, R))
    lines = pack(np.stack([np.eye(R) / WIDTH**2] * 2)), np.full((2, R), CENTRE / WIDTH**2)
    plain = PriorByMode(*lines, CENTRE * whole, WIDTH * whole, whole > 0.0, strength=1e12)
    Lam = np.concatenate([np.zeros((N, R * (R + 1) // 2)), np.tile(pack(KNOWN * np.eye(R)), (M, 1))])
    eta = np.concatenate([np.zeros((N, R)), KNOWN * V])
    fixed = FixedRows((False, True), np.ones(N + M, dtype=bool), Lam, eta, np.zeros((1, N + M, R)))
    return coords, y, V, p._replace(prior=plain, fixed=fixed)


@ENGINES
def test_rows_with_features_are_a_ridge_regression(rng, method, options):
    """One component, the other mode known, real values: rows and slopes are jointly Gaussian."""
    coords, y, V, p = known_problem(rng, seen=7)
    X = rng.standard_normal((N, 2))
    described = np.arange(N) != 4
    X[~described] = 0.0
    prior = replace(p.prior, designs=[design(X, described, ("a", "b")), None], feature_strength=(3e3, 3e3))
    posterior = fit(p._replace(prior=prior), 400, method=method, **options).posterior
    Z, lam = prior.designs[0].matrix, WIDTH**-2
    slopes = posterior.mode_prior.slopes[0]
    # of z = (rows, slopes): the prior's precision, and what the entries say
    A = np.c_[np.eye(N), -Z]
    K = lam * A.T @ A
    K[N:, N:] += slopes.strength * lam * np.eye(2)
    field = A.T @ np.full(N, lam * CENTRE)
    np.add.at(K, (coords[:, 0], coords[:, 0]), TAU * V[coords[:, 1], 0] ** 2)
    np.add.at(field, coords[:, 0], TAU * V[coords[:, 1], 0] * y)
    wanted = np.linalg.solve(K, field)
    np.testing.assert_allclose(slopes.coef[:, 0], wanted[N:], atol=1e-8)
    np.testing.assert_allclose(means(posterior)[:N, 0], wanted[:N], atol=1e-8)
    told = np.bincount(coords[:, 0], TAU * V[coords[:, 1], 0] ** 2, N)
    H = Z[:7].T @ Z[:7] + slopes.strength * np.eye(2)
    unsure = np.where(np.arange(N) < 7, 0.0, np.einsum("nf,fg,ng->n", Z, np.linalg.inv(H), Z))
    np.testing.assert_allclose(posterior.Lam[:N, 0], lam / (1.0 + unsure) + told, rtol=1e-8)


def series_of(rng, R):
    """A series of N unequal steps, its parameters, and the columns' covariances."""
    times = np.cumsum(0.5 + rng.random(N))
    known = clock(Series(kind="ou"), Mode("t", Labels(times), N))
    return known, lambda of, length: np.exp(-np.abs(of.clock.times[:, None] - of.clock.times) / length)


def graph_of(rng, R):
    """A graph of N rows with their covariances."""
    left = np.arange(N - 1)
    known, _ = net(Graph([*np.c_[left, left + 1].tolist(), (0, 5), (2, 7)]), Mode("t", None, N))

    def covariance(of, length):
        L = np.diag(known.matrix.toarray().sum(axis=1)) - known.matrix.toarray()
        S = np.linalg.inv(np.eye(N) + length**2 * L)
        return S / np.sqrt(np.outer(np.diag(S), np.diag(S)))

    return known, covariance


def coupled_state(rng, kind, R, likelihood, method, options):
    """A state whose first mode is coupled at parameters that stay, and dense covariances (R, N, N) of its columns."""
    coords, y, V, p = known_problem(rng, R, likelihood)
    known, covariance = kind(rng, R)
    prior = replace(p.prior, clocks=[known, None])
    p = p._replace(prior=prior)
    settings = settings_of(method, **{"anneal": 10_000, "anneal_power": 1.0, "damping": 0.0, **options})
    state = METHODS[method].init(p, settings, ThreadExecutor(1))
    of = state.own.prior.axis(0)
    scale, length = 0.5 + rng.random(R), of.lengths[np.arange(R) * 3 + len(of.lengths) // 2]
    modes = ModePrior(np.tile(rng.standard_normal(R), (2, 1)), np.stack([np.diag(scale)] * 2))
    modes = modes._replace(drifts=(Drift(length, np.zeros((0, R))), None))
    lines = (per_row(part, p.shape) for part in (state.hyper.now.Lam, state.hyper.now.eta))
    now = state.hyper.now._replace(**dict(zip(("Lam", "eta"), lines, strict=True)))
    state = state._replace(hyper=state.hyper._replace(now=now, joint=(state.own.prior.links(0, modes), None)))
    state.rows.Lam[:N], state.rows.eta[:N] = 0.0, 0.0
    state = with_joint_rows(state, 0, slice(0, N))
    refresh_rows(state.rows, 0, N + M, ThreadExecutor(1))
    covs = np.stack([covariance(of, one) / s for one, s in zip(length, scale, strict=True)])
    return coords, y, V, p, settings, state, modes.mean[0], covs


def joint_prior(mean, covs):
    """Mean and covariance of all rows, row after row."""
    R, K = len(mean), np.zeros((N, len(mean), N, len(mean)))
    for r in range(R):
        K[:, r, :, r] = covs[r]
    return np.tile(mean, N), K.reshape(N * R, N * R)


def directions(coords, V):
    """The gradients of the latent values in all rows, (n, N * R)."""
    out = np.zeros((len(coords), N, V.shape[1]))
    out[np.arange(len(coords)), coords[:, 0]] = V[coords[:, 1]]
    return out.reshape(len(coords), -1)


def assert_moments(state, mean, cov, R, atol):
    np.testing.assert_allclose(state.rows.mean[:N], mean.reshape(N, R), atol=atol)
    blocks = cov.reshape(N, R, N, R)[np.arange(N), :, np.arange(N)]
    np.testing.assert_allclose(unpack(state.rows.cov[:N], R), blocks, atol=atol)


KINDS = each("kind", [series_of, graph_of])


@KINDS
@each("R", [1, 2])
@ENGINES
def test_coupled_rows_of_real_values_are_a_dense_gaussian_process(rng, kind, R, method, options):
    coords, y, V, p, settings, state, mean, covs = coupled_state(rng, kind, R, "gaussian", method, options)
    centre, K = joint_prior(mean, covs)
    assert_moments(state, centre, K, R, 1e-9)
    for _ in range(2):
        state, _ = METHODS[method].step(state, p, settings, ThreadExecutor(1))
    Z = directions(coords, V)
    S = np.linalg.inv(np.linalg.inv(K) + TAU * Z.T @ Z)
    assert_moments(state, S @ (np.linalg.solve(K, centre) + TAU * Z.T @ y), S, R, 1e-8)


@KINDS
def test_coupled_rows_of_labels_are_a_gaussian_process_by_expectation_propagation(rng, kind):
    coords, y, V, p, settings, state, mean, covs = coupled_state(
        rng, kind, 2, "probit", "cep", {"damping": 0.3, "positive": True}
    )
    for _ in range(80):
        state, sweep = METHODS["cep"].step(state, p, settings, ThreadExecutor(1))
        assert sweep.skipped == sweep.shrunk == 0
    wanted = GaussianEP(*joint_prior(mean, covs), tol=1e-11, max_iter=300)
    found = wanted.fit(directions(coords, V), (y > 0).astype(int), "probit")
    assert_moments(state, found.mean, found.cov, 2, 1e-7)


@KINDS
def test_coupled_rows_of_labels_are_laplace_s_approximation(rng, kind):
    coords, y, V, p, settings, state, mean, covs = coupled_state(rng, kind, 2, "probit", "laplace", {"damping": 0.3})
    for _ in range(80):
        state, _ = METHODS["laplace"].step(state, p, settings, ThreadExecutor(1))
    (centre, K), Z = joint_prior(mean, covs), directions(coords, V)
    u = state.rows.mean[:N].ravel()
    f = y * (Z @ u)
    ratio = np.exp(norm.logpdf(f) - norm.logcdf(f))
    np.testing.assert_allclose(np.linalg.solve(K, u - centre), Z.T @ (y * ratio), atol=1e-6)
    S = np.linalg.inv(np.linalg.inv(K) + (Z.T * (ratio * (ratio + f))) @ Z)
    assert_moments(state, u, S, 2, 1e-6)


@ENGINES
def test_columns_of_a_large_graph_keep_the_exact_means(rng, monkeypatch, method, options):
    """Columns are taken by themselves: no cavity is lost, and real values have the means of the joint posterior."""
    monkeypatch.setattr("tensorcep.priors.gmrf.MOST_BOND_WORK", 0.0)
    coords, y, V, p, settings, state, mean, covs = coupled_state(rng, graph_of, 2, "gaussian", method, options)
    for _ in range(2):
        state, sweep = METHODS[method].step(state, p, settings, ThreadExecutor(1))
        assert sweep.skipped == sweep.shrunk == 0
    (centre, K), Z = joint_prior(mean, covs), directions(coords, V)
    S = np.linalg.inv(np.linalg.inv(K) + TAU * Z.T @ Z)
    wanted = S @ (np.linalg.solve(K, centre) + TAU * Z.T @ y)
    np.testing.assert_allclose(state.rows.mean[:N].ravel(), wanted, atol=1e-8)
    assert (np.linalg.eigvalsh(unpack(state.hyper.now.Lam[:N], 2)) > 0.0).all()


def test_damping_goes_along_the_natural_slopes(rng):
    roots = rng.standard_normal((2, 2, 3, 3))
    old, new = (
        ModePrior(rng.standard_normal((2, 3)), r @ r.swapaxes(1, 2), (Slopes(rng.standard_normal((4, 3)), s), None))
        for r, s in zip(roots, (1.0, 2.0), strict=True)
    )
    half, first = damped(old, new, 0.4), damped(old._replace(slopes=()), new, 0.4)
    natural = [one.slopes[0].coef @ one.precision[0] for one in (old, new, half, first)]
    np.testing.assert_allclose(natural[2], 0.6 * natural[0] + 0.4 * natural[1])
    np.testing.assert_allclose(natural[3], 0.4 * natural[1])
    assert half.slopes[0].strength == 2.0
    assert half.slopes[1] is None
