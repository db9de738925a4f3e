"""What theory says of Laplace propagation: exact cases, joint modes found by scipy, invariances, same bits."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import NOISE, build, cells, messages, problem, settings_of
from oracles import laplace as oracle
from scipy.optimize import minimize

from tensorcep.core.loop import run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.laplace import LAPLACE
from tensorcep.cp.posterior import GammaNoise
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior, natural_prior

FIXED = 1e12  # a prior precision at which a row does not move
KNOWN_NOISE = GammaNoise(1e12 * 2.5, 1e12)
OPTIONS = [{}, {"schedule": "parallel"}, {"curvature": "marginal"}]


def fit(p, sweeps, threads=1, **options):
    return run(LAPLACE, p, settings_of("laplace", **options), max_iter=sweeps, tol=0.0, n_threads=threads)


def row_means(posterior):
    return np.linalg.solve(unpack(posterior.Lam, posterior.rank), posterior.eta[..., None])[..., 0]


def derivatives(p, y, f):
    """Log likelihood and its first two derivatives at f, at the known noise."""
    y, f = np.atleast_1d(np.asarray(y, dtype=float)), np.atleast_1d(np.asarray(f, dtype=float))
    out = [np.empty_like(f) for _ in range(3)]
    p.likelihood.loglik(y, f, np.full_like(f, 2.5), *out)
    return out


def draw_y(rng, likelihood, n):
    if likelihood == "gaussian":
        return rng.standard_normal(n)
    return rng.poisson(2.0, n).astype(float) if likelihood == "poisson" else rng.choice([-1.0, 1.0], n)


def twin_of(p, coords, y):
    prior = unpack(p.prior.Lam, p.rank), p.prior.eta
    return oracle.Twin(coords + offsets(p.shape)[:-1], y, *prior, p.likelihood.name, p.noise_prior, p.start)


def assert_same_messages(result, p, twin, tolerance):
    Lam, eta = messages(result.state, p)
    scale = np.abs(twin.msg_Lam).max()
    assert scale > 0.01
    np.testing.assert_allclose(Lam, twin.msg_Lam, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(eta, twin.msg_eta, rtol=0, atol=tolerance * np.abs(twin.msg_eta).max())
    if p.noise_prior is not None:
        assert result.posterior.noise == pytest.approx(twin.noise(), rel=tolerance)


CASES = [("gaussian", 3, 2), ("probit", 2, 3), ("poisson", 3, 1)]


@each("schedule", ["modewise", "parallel"])
@each("curvature", ["conditional", "marginal"])
@pytest.mark.parametrize(("likelihood", "K", "R"), CASES)
def test_laplace_sends_the_messages_of_the_twin(rng, likelihood, K, R, curvature, schedule):
    coords, y, p = problem(rng, K, R, 16, likelihood, prior=Prior([0.7] * K, [10.0] * K))
    result = fit(p, 2, damping=0.5, anneal=1, curvature=curvature, schedule=schedule)
    twin = twin_of(p, coords, y)
    for power in (10.0, 1.0):
        oracle.sweep(twin, schedule, curvature, damping=0.5, power=power)
    # the search for a mode ends with steps of 1e-6 standard deviations
    assert_same_messages(result, p, twin, 1e-5)


@each("curvature", ["conditional", "marginal"])
@pytest.mark.parametrize(("likelihood", "K", "R"), [*CASES, ("probit", 4, 2)])
def test_laplace_settles_at_the_fixed_point_of_the_twin(rng, likelihood, K, R, curvature):
    coords, y, p = problem(rng, K, R, 16, likelihood, prior=Prior([0.7] * K, [10.0] * K))
    result = fit(p, 300, damping=0.3, curvature=curvature)
    assert result.trace["change"][-1] < 1e-11
    twin = twin_of(p, coords, y)
    twin.msg_Lam, twin.msg_eta = messages(result.state, p)
    twin.total(range(K))
    if likelihood == "gaussian":
        twin.b[p.entries.permutation] = result.state.own.messages.b.ravel()[: len(y)]
    oracle.sweep(twin, "parallel", curvature)
    assert_same_messages(result, p, twin, 1e-9)


@each("options", OPTIONS)
@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "logit", "poisson"])
def test_laplace_is_the_laplace_approximation_of_a_regression(rng, likelihood, options):
    """With the other modes known the fixed point has the exact mode and the curvature there (exact for a Gaussian)."""
    R, shape = 3, (6, 4, 5)
    known = [rng.standard_normal((m, R)) for m in shape[1:]]
    coords, y = cells(rng, shape, 40), draw_y(rng, likelihood, 40)
    p = build(coords, y, shape, R, likelihood, Prior([0.3, *known], [1.5, FIXED, FIXED]), noise=KNOWN_NOISE)
    z = known[0][coords[:, 1]] * known[1][coords[:, 2]]
    posterior = fit(p, 1 if likelihood == "gaussian" else 60, **options).posterior
    mean = row_means(posterior)[: shape[0]]
    f = np.einsum("nr,nr->n", z, mean[coords[:, 0]])
    _, slope, curvature = derivatives(p, y, f)
    for i in range(shape[0]):
        mine = coords[:, 0] == i
        gradient = -1.5 * (mean[i] - 0.3) + slope[mine] @ z[mine]
        np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
        Lam = 1.5 * np.eye(R) - (z[mine].T * curvature[mine]) @ z[mine]
        np.testing.assert_allclose(unpack(posterior.Lam[i], R), Lam, rtol=1e-6, atol=1e-6)


@each("curvature", ["marginal", "conditional"])
@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "logit", "poisson"])
@each("K", [2, 3, 4])
def test_laplace_of_one_entry_is_at_its_joint_mode(rng, likelihood, K, curvature):
    R, shape = 3, (1,) * K
    roots = rng.standard_normal((K, R, R))
    precision = roots @ roots.swapaxes(1, 2) + np.eye(R)
    prior = Prior([rng.standard_normal((1, R)) for _ in range(K)], list(precision[:, None]))
    centre = np.concatenate(prior.mean)
    y = draw_y(rng, likelihood, 1) + (1.0 if likelihood == "gaussian" else 0.0)
    p = build(np.zeros((1, K), dtype=int), y, shape, R, likelihood, prior, noise=KNOWN_NOISE)
    posterior = fit(p, 2, schedule="parallel", curvature=curvature).posterior

    def minus_log_density(rows):
        rows = rows.reshape(K, R)
        d = rows - centre
        return 0.5 * np.einsum("ki,kij,kj", d, precision, d) - derivatives(p, y, rows.prod(axis=0).sum())[0][0]

    rows = row_means(posterior)
    best = minimize(minus_log_density, rows.ravel() + 1e-3, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(rows.ravel(), best.x, atol=2e-5)
    assert minus_log_density(rows.ravel()) < minus_log_density(centre.ravel())
    z = np.stack([np.delete(rows, k, axis=0).prod(axis=0) for k in range(K)])
    h = -derivatives(p, y, rows.prod(axis=0).sum())[2][0]
    if curvature == "marginal":
        joint = np.zeros((K * R, K * R))
        for k in range(K):
            joint[k * R : (k + 1) * R, k * R : (k + 1) * R] = precision[k]
        cov = np.linalg.inv(joint + h * np.outer(z, z))
        expected = [np.linalg.inv(cov[k * R : (k + 1) * R, k * R : (k + 1) * R]) for k in range(K)]
    else:
        expected = [precision[k] + h * np.outer(z[k], z[k]) for k in range(K)]
    np.testing.assert_allclose(unpack(posterior.Lam, R), expected, rtol=1e-4, atol=1e-5)


@each("options", OPTIONS)
def test_laplace_noise_message_has_the_residual_and_the_variance_at_the_mode(rng, options):
    coords, y, p = problem(rng, 3, 2, 30, prior=Prior([1.0] * 3, [10.0] * 3))
    result = fit(p, 200, damping=0.5, **options)
    assert result.trace["change"][-1] < 1e-6
    state = result.state
    posterior = result.posterior
    mean, Lam = row_means(posterior), unpack(posterior.Lam, 2)
    msg_Lam, msg_eta = messages(state, p)
    rows, total = coords + offsets(p.shape)[:-1], 0.0
    b_n = np.empty(30)
    b_n[p.entries.permutation] = state.own.messages.b.ravel()[:30]
    a, b = posterior.noise
    for n in range(30):
        theta = (a - 0.5) / (b - b_n[n])
        cavity = [np.linalg.inv(Lam[i] - msg_Lam[n, k]) for k, i in enumerate(rows[n])]
        at = [S @ (posterior.eta[i] - msg_eta[n, k]) for k, (S, i) in enumerate(zip(cavity, rows[n], strict=True))]
        u = mean[rows[n]]  # at the fixed point the mode of every tilted density is the mean of q
        z = [np.delete(u, k, axis=0).prod(axis=0) for k in range(3)]
        f = u.prod(axis=0).sum()
        for k in range(3):
            np.testing.assert_allclose(u[k], at[k] + theta * (y[n] - f) * cavity[k] @ z[k], atol=1e-5)
        v = np.array([z[k] @ cavity[k] @ z[k] for k in range(3)])
        spread = (v / (1 + theta * v)).sum()
        if options.get("curvature") == "marginal":
            spread = v.sum() / (1 + theta * v.sum())
        total += 0.5 * ((y[n] - f) ** 2 + spread)
    assert a == pytest.approx(1e-3 + 15.0)
    assert b == pytest.approx(1e-3 + total, rel=1e-5)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
@each("options", OPTIONS)
@each("kind", [None, *LEARNED])
def test_laplace_posterior_is_prior_times_messages_that_are_never_negative(rng, likelihood, options, kind):
    coords, _, p = problem(rng, 3, 3, 45, likelihood)
    prior_Lam, prior_eta = p.prior.Lam, p.prior.eta
    if kind is not None:
        p = p._replace(
            prior=LEARNED[kind](
                p.prior.Lam, p.prior.eta, np.zeros((3, 3)), np.ones((3, 3)), np.ones((3, 3), dtype=bool)
            )
        )
    result = fit(p, 6, damping=0.3, anneal=2, **options)
    if kind is not None:
        learned = result.posterior.mode_prior
        prior_Lam, prior_eta = natural_prior(Prior(list(learned.mean), list(learned.precision)), p.shape, 3)
        assert max(np.abs(prior_Lam - p.prior.Lam).max(), np.abs(prior_eta - p.prior.eta).max()) > 0.1
    Lam, eta = messages(result.state, p)
    total_Lam, total_eta = unpack(prior_Lam, 3), prior_eta.copy()
    rows = coords + offsets(p.shape)[:-1]
    for k in range(3):
        np.add.at(total_Lam, rows[:, k], Lam[:, k])
        np.add.at(total_eta, rows[:, k], eta[:, k])
    np.testing.assert_allclose(unpack(result.posterior.Lam, 3), total_Lam, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(result.posterior.eta, total_eta, rtol=1e-11, atol=1e-11)
    assert np.linalg.eigvalsh(Lam).min() > -1e-12
    assert result.trace["skipped"].sum() == 0


@each("likelihood", ["gaussian", "probit"])
def test_laplace_does_not_depend_on_the_order_of_entries_or_modes(rng, likelihood):
    coords, y, p = problem(rng, 4, 3, 50, likelihood)
    shuffle = rng.permutation(50)
    first = fit(p, 4, damping=0.3).posterior
    second = fit(build(coords[shuffle], y[shuffle], p.shape, 3, likelihood, start=p.start), 4, damping=0.3).posterior
    np.testing.assert_array_equal(first.Lam, second.Lam)
    np.testing.assert_array_equal(first.eta, second.eta)
    turn, start = [2, 0, 3, 1], offsets(p.shape)
    rows = np.concatenate([np.arange(start[k], start[k + 1]) for k in turn])
    q = build(coords[:, turn], y, tuple(p.shape[k] for k in turn), 3, likelihood, start=p.start[rows])
    one, other = (fit(x, 5, schedule="parallel", damping=0.5).posterior for x in (p, q))
    np.testing.assert_allclose(other.Lam, one.Lam[rows], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(other.eta, one.eta[rows], rtol=1e-6, atol=1e-8)


def test_laplace_without_entries_gives_the_prior(rng):
    p = build(np.zeros((0, 3), dtype=int), np.zeros(0), (3, 4, 2), 2, prior=Prior([0.5] * 3, [2.0] * 3))
    posterior = fit(p, 3).posterior
    np.testing.assert_array_equal(posterior.Lam, p.prior.Lam)
    np.testing.assert_array_equal(posterior.eta, p.prior.eta)
    assert posterior.noise == NOISE


@each("n", [1, 15, 16, 17])
def test_laplace_padding_lanes_have_no_effect(rng, n):
    _, _, p = problem(rng, 3, 2, n)
    assert fit(p, 2).posterior.noise.a == pytest.approx(1e-3 + 0.5 * n, rel=1e-14)


@pytest.mark.parametrize(("likelihood", "dtype"), [("gaussian", "float64"), ("logit", "float32")])
def test_laplace_gives_the_same_bits_on_any_number_of_threads(rng, likelihood, dtype):
    _, _, p = problem(rng, 3, 3, 6000, likelihood, shape=(30, 25, 20))
    runs = [fit(p, 3, threads=threads, damping=0.3, dtype=dtype) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.Lam, runs[1].posterior.Lam)
    np.testing.assert_array_equal(runs[0].posterior.eta, runs[1].posterior.eta)
    assert runs[0].posterior.noise == runs[1].posterior.noise


def test_laplace_counts_messages_more_while_annealing(rng):
    _, _, p = problem(rng, 3, 2, 30, "probit")
    plain, annealed = (fit(p, 1, schedule="parallel", anneal=n).posterior for n in (0, 1))
    np.testing.assert_allclose(annealed.Lam - p.prior.Lam, 10.0 * (plain.Lam - p.prior.Lam), rtol=1e-9, atol=1e-12)


@each(
    ("options", "message"),
    [
        ({"curvature": "full"}, "curvature must be one of"),
        ({"damping": "adaptive"}, "damping must be 'auto'"),
    ],
)
def test_laplace_refuses_wrong_settings(rng, options, message):
    _, _, p = problem(rng, 3, 2, 10)
    with pytest.raises(ValueError, match=message):
        fit(p, 1, **options)
