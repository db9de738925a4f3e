"""What theory says of CEP: exact cases, invariances, and the same bits on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import NOISE, build, cells, fit, means, messages, problem
from scipy.integrate import quad
from scipy.stats import norm

from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.posterior import GammaNoise
from tensorcep.priors.fixed import Prior

FIXED = 1e12  # a prior precision at which a row does not move


def clamped(rng, R, likelihood, n=24, tau=2.5, shape=(6, 4, 5)):
    """A problem whose last two modes are known, so that the first is a linear model with regressors z."""
    known = [rng.standard_normal((m, R)) for m in shape[1:]]
    prior = Prior([np.full(R, 0.3), *known], [1.5, FIXED, FIXED])
    coords = cells(rng, shape, n)
    y = rng.standard_normal(n) if likelihood == "gaussian" else rng.choice([-1.0, 1.0], n)
    noise = GammaNoise(1e12 * tau, 1e12)  # the noise precision is known too
    z = known[0][coords[:, 1]] * known[1][coords[:, 2]]
    return coords, y, z, build(coords, y, shape, R, likelihood, prior, noise=noise)


@each("options", [{}, {"schedule": "parallel"}, {"moments": "posterior"}, {"order": 2, "warm_up": 0}])
@each("R", [1, 3])
def test_cep_is_exact_for_linear_regression(rng, R, options):
    coords, y, z, p = clamped(rng, R, "gaussian")
    posterior = fit(p, 3, **options).posterior
    for i in range(p.shape[0]):
        mine = coords[:, 0] == i
        Lam = 1.5 * np.eye(R) + 2.5 * z[mine].T @ z[mine]
        eta = 1.5 * 0.3 + 2.5 * z[mine].T @ y[mine]
        np.testing.assert_allclose(unpack(posterior.Lam[i], R), Lam, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(posterior.eta[i], eta, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(means(posterior)[p.shape[0] :], means_of_prior(p)[p.shape[0] :], atol=1e-9)


def means_of_prior(p):
    return np.linalg.solve(unpack(p.prior.Lam, p.rank), p.prior.eta[..., None])[..., 0]


@each("order", [1, 2])
def test_cep_gives_the_exact_moments_of_a_single_probit_entry(rng, order):
    shape = (1, 1)
    prior = Prior([[[0.4]], [[-1.3]]], [0.8, FIXED])
    p = build(np.zeros((1, 2), dtype=int), np.array([1.0]), shape, 1, "probit", prior)
    posterior = fit(p, 2, order=order, warm_up=0).posterior

    def weight(u):
        return norm.cdf(-1.3 * u) * norm.pdf(u, 0.4, 0.8**-0.5)

    total, mean, square = (quad(lambda u, q=q: u**q * weight(u), -12, 12, epsabs=1e-13)[0] for q in range(3))
    assert means(posterior)[0, 0] == pytest.approx(mean / total, rel=1e-7)
    assert 1.0 / posterior.Lam[0, 0] == pytest.approx(square / total - (mean / total) ** 2, rel=1e-7)


def test_cep_fixed_point_is_ep_for_probit_regression(rng):
    """With the other modes known CEP is expectation propagation; EP's own fixed-point equations hold."""
    coords, y, z, p = clamped(rng, 2, "probit")
    run = fit(p, 60, damping=0.3)
    Lam, eta = messages(run.state, p)
    rows = unpack(run.posterior.Lam, 2)
    for n in range(len(y)):
        i = coords[n, 0]
        S = np.linalg.inv(rows[i] - Lam[n, 0])
        m = S @ (run.posterior.eta[i] - eta[n, 0])
        f, v = z[n] @ m, z[n] @ S @ z[n]
        x = y[n] * f / np.sqrt(1 + v)
        r = norm.pdf(x) / norm.cdf(x)
        alpha, beta = y[n] * r / np.sqrt(1 + v), r * (x + r) / (1 + v)
        np.testing.assert_allclose(np.linalg.inv(rows[i]), S - beta * np.outer(S @ z[n], S @ z[n]), atol=1e-7)
        np.testing.assert_allclose(np.linalg.solve(rows[i], run.posterior.eta[i]), m + alpha * S @ z[n], atol=1e-7)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "logit", "poisson"])
@each("options", [{}, {"schedule": "parallel"}, {"order": 2, "warm_up": 2}])
def test_cep_posterior_is_prior_times_messages(rng, likelihood, options):
    coords, _, p = problem(rng, 3, 3, 45, likelihood)
    run = fit(p, 6, damping=0.5, **options)
    Lam, eta = messages(run.state, p)
    total_Lam, total_eta = unpack(p.prior.Lam, 3), p.prior.eta.copy()
    rows = coords + offsets(p.shape)[:-1]
    for k in range(3):
        np.add.at(total_Lam, rows[:, k], Lam[:, k])
        np.add.at(total_eta, rows[:, k], eta[:, k])
    np.testing.assert_allclose(unpack(run.posterior.Lam, 3), total_Lam, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(run.posterior.eta, total_eta, rtol=1e-11, atol=1e-11)


@each("likelihood", ["gaussian", "probit"])
def test_cep_does_not_depend_on_the_order_of_the_entries(rng, likelihood):
    coords, y, p = problem(rng, 3, 3, 45, likelihood)
    shuffle = rng.permutation(45)
    q = build(coords[shuffle], y[shuffle], p.shape, 3, likelihood, start=p.start)
    first, second = fit(p, 4, damping=0.3).posterior, fit(q, 4, damping=0.3).posterior
    np.testing.assert_array_equal(first.Lam, second.Lam)
    np.testing.assert_array_equal(first.eta, second.eta)


@each("likelihood", ["gaussian", "probit"])
@each("moments", ["cavity", "posterior"])
def test_parallel_cep_does_not_depend_on_the_order_of_the_modes(rng, likelihood, moments):
    coords, y, p = problem(rng, 4, 3, 50, likelihood)
    turn = [2, 0, 3, 1]
    first = offsets(p.shape)
    rows = np.concatenate([np.arange(first[k], first[k + 1]) for k in turn])
    q = build(coords[:, turn], y, tuple(p.shape[k] for k in turn), 3, likelihood, start=p.start[rows])
    options = {"schedule": "parallel", "damping": 0.5, "moments": moments}
    one, other = fit(p, 5, **options), fit(q, 5, **options)
    np.testing.assert_allclose(other.posterior.Lam, one.posterior.Lam[rows], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(other.posterior.eta, one.posterior.eta[rows], rtol=1e-9, atol=1e-10)
    assert one.posterior.noise is None or one.posterior.noise == pytest.approx(other.posterior.noise, rel=1e-10)


def test_cep_without_entries_gives_the_prior(rng):
    p = build(np.zeros((0, 3), dtype=int), np.zeros(0), (3, 4, 2), 2, prior=Prior([0.5] * 3, [2.0] * 3))
    posterior = fit(p, 3).posterior
    np.testing.assert_array_equal(posterior.Lam, p.prior.Lam)
    np.testing.assert_array_equal(posterior.eta, p.prior.eta)
    assert not posterior.seen.any()
    assert posterior.noise == NOISE


def test_cep_rows_without_entries_keep_the_prior_and_are_not_seen(rng):
    shape = (6, 5, 7)
    coords = cells(rng, (4, 5, 6), 30)
    p = build(coords, rng.standard_normal(30), shape, 2, start=rng.random((18, 2)))
    posterior = fit(p, 3).posterior
    seen = np.concatenate([np.isin(np.arange(n), coords[:, k]) for k, n in enumerate(shape)])
    np.testing.assert_array_equal(posterior.seen, seen)
    np.testing.assert_array_equal(posterior.Lam[~seen], p.prior.Lam[~seen])
    np.testing.assert_array_equal(posterior.eta[~seen], p.prior.eta[~seen])


MANY = (30, 25, 20)


@pytest.mark.parametrize(
    ("likelihood", "options"),
    [
        ("gaussian", {}),
        ("gaussian", {"schedule": "parallel", "damping": 0.5, "dtype": "float32"}),
        ("probit", {"damping": 0.5}),
        ("poisson", {"damping": 0.5, "order": 2, "warm_up": 2}),
    ],
)
def test_cep_gives_the_same_bits_on_any_number_of_threads(rng, likelihood, options):
    _, _, p = problem(rng, 3, 3, 6000, likelihood, shape=MANY)
    assert len(p.entries.chunk_start) > 3
    runs = [fit(p, 4, threads=threads, **options) for threads in (1, 2, 3)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].posterior.Lam, other.posterior.Lam)
        np.testing.assert_array_equal(runs[0].posterior.eta, other.posterior.eta)
        np.testing.assert_array_equal(runs[0].state.f, other.state.f)
        np.testing.assert_array_equal(runs[0].trace["change"], other.trace["change"])
        assert runs[0].posterior.noise == other.posterior.noise


@each("likelihood", ["gaussian", "probit"])
def test_cep_with_float32_messages_is_close_to_float64(rng, likelihood):
    _, _, p = problem(rng, 2, 3, 400, likelihood, shape=(30, 20))
    double, single = (fit(p, 8, damping=0.3, dtype=dtype) for dtype in ("float64", "float32"))
    assert single.state.own.messages.Lam.dtype == np.float32
    scale = np.sqrt(np.mean(double.state.f**2))
    assert scale > 0.5
    assert 0.0 < np.abs(double.state.f - single.state.f).max() < 1e-4 * scale


def test_parallel_cep_with_posterior_moments_is_damped_variational_message_passing(rng):
    coords, y, p = problem(rng, 3, 3, 50)
    run = fit(p, 6, schedule="parallel", moments="posterior", damping=0.4)
    rows = coords + offsets(p.shape)[:-1]
    # mean-field updates of all rows and of the noise from the same state, damped in natural parameters
    prior_Lam, prior_eta = unpack(p.prior.Lam, 3), p.prior.eta
    Lam, mean = prior_Lam.copy(), p.start
    eta = np.einsum("nij,nj->ni", Lam, mean)
    sum_Lam, sum_eta = np.zeros_like(Lam), np.zeros_like(eta)
    a, b = 1e-3 + 25.0, 1e-3 + 0.5 * np.sum(y**2)
    for _ in range(6):
        mean = np.linalg.solve(Lam, eta[..., None])[..., 0]
        second = np.linalg.inv(Lam) + mean[:, :, None] * mean[:, None, :]
        target_Lam, target_eta = np.zeros_like(Lam), np.zeros_like(eta)
        for k in range(3):
            others = [j for j in range(3) if j != k]
            np.add.at(target_Lam, rows[:, k], a / b * second[rows[:, others]].prod(axis=1))
            np.add.at(target_eta, rows[:, k], a / b * y[:, None] * mean[rows[:, others]].prod(axis=1))
        f, f2 = mean[rows].prod(axis=1).sum(axis=1), second[rows].prod(axis=1).sum(axis=(1, 2))
        b += 0.6 * (1e-3 + 0.5 * np.sum(y**2 - 2 * y * f + f2) - b)
        sum_Lam += 0.6 * (target_Lam - sum_Lam)
        sum_eta += 0.6 * (target_eta - sum_eta)
        Lam, eta = prior_Lam + sum_Lam, prior_eta + sum_eta
    np.testing.assert_allclose(unpack(run.posterior.Lam, 3), Lam, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(run.posterior.eta, eta, rtol=1e-10, atol=1e-11)
    assert run.posterior.noise == pytest.approx((a, b), rel=1e-10)
