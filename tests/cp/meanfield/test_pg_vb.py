"""PG-VB: a plain twin, the bound of Jaakkola and Jordan, stored optima, growth, invariances; PG-Gibbs beside it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, means, problem, settings_of, structured
from oracles import pg_vb as oracle
from scipy.special import expit, gammaln

from tensorcep.core.loop import run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.methods import METHODS
from tensorcep.priors.fixed import Prior

LIKELIHOODS = each("likelihood", ["logit", "negbinomial"])
# Modes with four, three and two free columns; no two columns are free in the same modes.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
CELLS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def fit(p, sweeps=30, threads=1, **given):
    method = METHODS["pg-vb"]
    return run(method, p, settings_of("pg-vb", **given), max_iter=sweeps, tol=0.0, n_threads=threads)


def data(rng, likelihood, K=3, R=2, n=40, **kw):
    coords, y, p = problem(rng, K, R, n, likelihood="poisson", **kw)
    y = np.where(y > 0, 1.0, -1.0) if likelihood == "logit" else y
    return coords, y, build(coords, y, p.shape, R, likelihood, start=p.start)


def second_moments(posterior):
    cov, mean = np.linalg.inv(unpack(posterior.Lam, posterior.rank)), means(posterior)
    return cov, mean, cov + mean[:, :, None] * mean[:, None, :]


def kl_of_rows(posterior, p):
    cov, mean, _ = second_moments(posterior)
    Lam = unpack(p.prior.Lam, p.rank)
    apart = mean - np.linalg.solve(Lam, p.prior.eta[..., None])[..., 0]
    terms = np.einsum("nij,nji->n", Lam, cov) + np.einsum("ni,nij,nj->n", apart, Lam, apart) - p.rank
    return 0.5 * (terms - np.linalg.slogdet(Lam)[1] - np.linalg.slogdet(cov)[1]).sum()


@LIKELIHOODS
@each("mode", [None, 1])
@each(("K", "R"), [(2, 1), (3, 3), (4, 2)])
def test_pg_vb_equals_its_plain_twin(rng, likelihood, mode, K, R):
    coords, y, p = data(rng, likelihood, K, R, 30)
    p = p._replace(start=p.start - 0.4)
    first, prior = offsets(p.shape), (1.3, 0.4)
    rows = coords + first[:-1]
    twin = oracle.Twin(rows, y, unpack(p.prior.Lam, R), p.prior.eta, first, p.start)
    if likelihood == "negbinomial":
        group = np.zeros(len(y), dtype=int) if mode is None else coords[:, mode]
        twin = oracle.Twin(rows, y, unpack(p.prior.Lam, R), p.prior.eta, first, p.start, prior, group)
    run, bounds = fit(p, 4, dispersion_prior=prior, dispersion_mode=mode), []
    for _ in range(4):
        twin.sweep()
        bounds.append(twin.bound())
    np.testing.assert_allclose(run.state.rows.mean, twin.m, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unpack(run.state.rows.cov, R), twin.S, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(run.trace["lower_bound"], bounds, rtol=1e-9)
    if likelihood == "negbinomial":
        used = np.arange(len(twin.a))
        np.testing.assert_allclose(run.posterior.dispersion.a[used], twin.a, rtol=1e-9)
        np.testing.assert_allclose(run.posterior.dispersion.b[used], twin.b, rtol=1e-9)


@LIKELIHOODS
@each("kind", [None, "learned"])
def test_pg_vb_bound_with_clamped_columns_never_falls(rng, likelihood, kind):
    p, _ = structured(rng, 3, likelihood, kind, free=UNEQUAL)
    assert (np.diff(fit(p, 50).trace["lower_bound"]) > -1e-9).all()


def test_pg_vb_with_clamped_columns_gives_the_same_bits_on_two_threads(rng):
    p, _ = structured(rng, 3, "negbinomial", "learned", n=2000, shape=(40, 35, 20))
    one, two = (fit(p, 5, threads).posterior for threads in (1, 2))
    np.testing.assert_array_equal(one.Lam, two.Lam)
    np.testing.assert_array_equal(one.dispersion.a, two.dispersion.a)


@each("K", [2, 3, 4])
def test_pg_vb_bound_is_that_of_jaakkola(rng, K):
    coords, y, p = data(rng, "logit", K, n=30)
    result = fit(p, 7)
    _, mean, second = second_moments(result.posterior)
    packed = coords + offsets(p.shape)[:-1]
    f = mean[packed].prod(axis=1).sum(axis=1)
    second_f = second[packed].prod(axis=1).sum(axis=(1, 2))
    xi = np.sqrt(second_f)
    slope = np.tanh(xi / 2) / (4 * xi)
    tangent = np.log(expit(xi)) + 0.5 * (y * f - xi) - slope * (second_f - xi**2)
    wanted = tangent.sum() - kl_of_rows(result.posterior, p)
    assert result.trace["lower_bound"][-1] == pytest.approx(wanted, rel=1e-11)


def test_pg_vb_equals_jaakkola_regression_where_the_other_modes_are_known(rng):
    coords, y, p = data(rng, "logit", 2, 2, 30)
    known = rng.standard_normal((p.shape[1], 2))
    prior = Prior([0.3, known], [0.7, 1e12])
    p = build(coords, y, p.shape, 2, "logit", prior, p.start)
    found = fit(p, 200).posterior
    for i in range(p.shape[0]):
        x, t = known[coords[coords[:, 0] == i, 1]], y[coords[:, 0] == i]
        xi = np.ones(len(t))
        for _ in range(500):
            Lam = 0.7 * np.eye(2) + (x.T * np.tanh(xi / 2) / (2 * xi)) @ x
            cov = np.linalg.inv(Lam)
            mean = cov @ (0.7 * 0.3 * np.ones(2) + 0.5 * x.T @ t)
            xi = np.sqrt(np.einsum("ni,ij,nj->n", x, cov + np.outer(mean, mean), x)) + 1e-300
        np.testing.assert_allclose(unpack(found.Lam[i], 2), Lam, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(means(found)[i], mean, rtol=1e-7, atol=1e-8)


# log evidence by quadrature and the best bound, for standard normal factors of rank 1
def test_pg_vb_reaches_the_stored_bounds(rng):
    start = 0.3 * rng.standard_normal((4, 1))
    labels = build(CELLS, np.array([1.0, -1.0, 1.0, 1.0]), (2, 2), 1, "logit", start=start)
    assert fit(labels, 400).trace["lower_bound"][-1] == pytest.approx(-3.12256762, abs=1e-6)
    counts = build(CELLS, np.array([3.0, 0.0, 1.0, 5.0]), (2, 2), 1, "negbinomial", start=start)
    narrow = (2e8, 1e8)  # r = 2
    assert fit(counts, 400, dispersion_prior=narrow).trace["lower_bound"][-1] == pytest.approx(-8.81999057, abs=1e-5)


def test_pg_gibbs_reaches_the_stored_expectations():
    method, n = METHODS["pg-gibbs"], 2_500
    options = settings_of("pg-gibbs", n, burn_in=500, thin=1, n_chains=2, dispersion_prior=(2e8, 1e8))
    truth = {
        "logit": ([1.0, -1.0, 1.0, 1.0], [0.55851, 0.44149, 0.55851, 0.55851], expit),
        "negbinomial": ([3.0, 0.0, 1.0, 5.0], [0.16359, -0.46010, -0.16669, 0.38391], lambda f: f),
    }
    for likelihood, (y, wanted, of) in truth.items():
        p = build(CELLS, np.array(y), (2, 2), 1, likelihood, start=np.full((4, 1), 0.5))
        rows = run(method, p, options, max_iter=n, tol=0.0).posterior.rows[..., 0]
        f = of(rows[..., CELLS[:, 0]] * rows[..., 2 + CELLS[:, 1]])
        batches = f.reshape(40, -1, 4).mean(axis=1)
        assert (np.abs(batches.mean(axis=0) - wanted) < 4.5 * batches.std(axis=0) / np.sqrt(40) + 1e-5).all()


@LIKELIHOODS
@each("mode", [None, 1])
def test_pg_vb_bound_never_falls(rng, likelihood, mode):
    _, _, p = data(rng, likelihood, 3, 3, 60)
    bound = fit(p, 60, dispersion_mode=mode).trace["lower_bound"]
    assert np.diff(bound).min() > -1e-9 * abs(bound[-1])
    assert np.isfinite(bound).all()


def test_pg_vb_bound_is_below_the_evidence_of_counts_at_any_dispersion(rng):
    """Without rows to infer (a prior of zero width), the evidence is an integral over r alone."""
    y = np.array([0.0, 2.0, 7.0, 1.0, 4.0])
    coords = np.stack([np.arange(5), np.zeros(5, dtype=int)], axis=1)
    f = np.array([0.3, -0.2, 0.5, 0.1, 0.4])
    p = build(coords, y, (5, 1), 1, "negbinomial", Prior([f[:, None], 1.0], [1e14, 1e14]))
    r = np.linspace(1e-3, 60.0, 60_000)
    log_joint = 2 * np.log(1.0) - r
    for count, latent in zip(y, f, strict=True):
        log_joint += gammaln(r + count) - gammaln(r) - gammaln(count + 1) + count * latent
        log_joint -= (count + r) * np.logaddexp(0.0, latent)
    evidence = np.log(np.exp(log_joint).sum() * (r[1] - r[0]))
    result = fit(p, 60, dispersion_prior=(1.0, 1.0))
    assert evidence - 0.25 < result.trace["lower_bound"][-1] < evidence
    mean = (r * np.exp(log_joint)).sum() / np.exp(log_joint).sum()
    assert result.posterior.dispersion.a / result.posterior.dispersion.b == pytest.approx(mean, rel=0.1)


@LIKELIHOODS
def test_pg_vb_does_not_depend_on_threads_or_the_order_of_entries(rng, likelihood):
    coords, y, p = data(rng, likelihood, 3, 5, 500, shape=(40, 35, 20))
    one, two = (fit(p, 3, threads).posterior for threads in (1, 2))
    np.testing.assert_array_equal(one.Lam, two.Lam)
    np.testing.assert_array_equal(one.eta, two.eta)
    order = rng.permutation(len(y))
    again = fit(build(coords[order], y[order], p.shape, 5, likelihood, start=p.start), 3).posterior
    np.testing.assert_array_equal(again.eta, one.eta)


@LIKELIHOODS
@each("K", [2, 4])
def test_pg_vb_without_entries_gives_the_prior(likelihood, K):
    shape = (4, 3, 2, 5)[:K]
    p = build(np.empty((0, K), dtype=int), np.empty(0), shape, 2, likelihood, Prior([0.5] * K, [4.0] * K))
    result = fit(p, 2)
    np.testing.assert_array_equal(result.posterior.Lam, p.prior.Lam)
    np.testing.assert_array_equal(result.posterior.eta, p.prior.eta)
    assert result.trace["lower_bound"][-1] == pytest.approx(0.0, abs=1e-12)
