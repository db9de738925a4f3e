"""From a posterior and packed rows to moments and draws."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit, ndtr
from scipy.stats import norm

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.predict import (
    draw,
    latent,
    latent_quantiles,
    observed_logpdf,
    observed_moments,
    observed_quantiles,
)
from tensorcep.cp.model.latent import latent_of_points
from tensorcep.cp.model.parameters import theta_of
from tensorcep.cp.posterior import (
    Components,
    Dispersion,
    Draws,
    EntryTheta,
    GammaNoise,
    PointEstimate,
    Posterior,
    draw_rows,
)
from tensorcep.likelihoods import get_likelihood

SHAPE = (5, 4, 3)


def posterior(rng, R=3, shape=SHAPE):
    root = rng.standard_normal((sum(shape), R, R))
    Lam = root @ root.swapaxes(1, 2) + np.eye(R)
    eta = rng.standard_normal((sum(shape), R))
    return Posterior(shape, R, pack(Lam), eta, GammaNoise(3.0, 2.0), np.ones(sum(shape), dtype=bool))


@each("R", [1, 3, 8])
def test_moments_of_rows_equal_numpy(rng, R):
    p = posterior(rng, R)
    mean, cov = p.components().moments()
    Lam = unpack(p.Lam, R)
    np.testing.assert_allclose(unpack(cov, R), np.linalg.inv(Lam), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mean, np.linalg.solve(Lam, p.eta[..., None])[..., 0], rtol=1e-8, atol=1e-10)


def test_moments_of_rows_name_a_row_that_is_no_gaussian(rng):
    p = posterior(rng)
    p.Lam[7] *= -1.0
    with pytest.raises(FloatingPointError, match="row 7 is not positive definite"):
        p.components()


def test_moments_of_no_rows_are_empty():
    p = Posterior((), 2, np.zeros((0, 3)), np.zeros((0, 2)), None, np.zeros(0, dtype=bool))
    assert p.components().mean.shape == (1, 0, 2)


def test_draws_of_rows_have_mean_and_covariance(rng):
    mean, packed = posterior(rng).components().moments()
    n = 40_000
    draws = draw_rows(mean, packed, n, rng)
    assert draws.shape == (n, 12, 3)
    cov = unpack(packed, 3)
    sd = np.sqrt(np.einsum("nii->ni", cov))
    assert (np.abs(draws.mean(axis=0) - mean) < 6 * sd / np.sqrt(n)).all()
    centred = draws - mean
    for i in range(3):
        for j in range(3):
            product = centred[..., i] * centred[..., j]
            assert (np.abs(product.mean(axis=0) - cov[:, i, j]) < 6 * product.std(axis=0) / np.sqrt(n)).all()


@each("K", [1, 2, 3, 5])
def test_draw_latent_is_the_cp_sum_of_each_draw(rng, K):
    draws = rng.standard_normal((6, 12, 3))
    rows = rng.integers(0, 12, (10, K))
    right = [[np.prod([draw[i] for i in entry], axis=0).sum() for entry in rows] for draw in draws]
    np.testing.assert_allclose(latent_of_points(draws, rows), right, rtol=1e-13)
    few = draws.astype(np.float32)
    right = latent_of_points(few.astype(np.float64), rows[:2])
    np.testing.assert_array_equal(latent_of_points(few, rows[:2]), right)


def test_latent_agrees_with_draws(rng):
    belief, n = posterior(rng).components(), 100_000
    rows = np.array([[0, 5, 9], [4, 8, 11]])
    f, v = latent(belief, rows)
    draws = latent_of_points(draw_rows(*belief.moments(), n, rng), rows)
    assert (np.abs(draws.mean(axis=0) - f) < 6 * np.sqrt(v / n)).all()
    square = (draws - f) ** 2
    assert (np.abs(square.mean(axis=0) - v) < 6 * square.std(axis=0) / np.sqrt(n)).all()
    empty = latent(belief, rows[:0])
    assert empty[0].shape == empty[1].shape == (0,)


ROWS = np.array([[0, 5, 9], [4, 8, 11], [2, 6, 13]])  # the last one has a row that the model does not know
UNSEEN = Components(np.zeros((1, 3, 3)), pack(np.stack([np.eye(3)] * 3))[None])


def draws_like(rng, n=4000):
    """Draws from the Gaussian posterior of `posterior`, and their moments."""
    known = posterior(rng).components().moments()
    rows = draw_rows(*known, 2 * n, rng).reshape(2, n, 12, 3)
    theta = rng.gamma(9.0, 0.5, (2, n, 1))
    return Draws(SHAPE, 3, rows, theta, None, np.ones(12, dtype=bool)), known


def test_moments_of_draws_are_those_of_the_posterior_they_come_from(rng):
    result, (known_mean, known_cov) = draws_like(rng)
    mean, cov = result.components().moments()
    sd = np.sqrt(np.einsum("nii->ni", unpack(known_cov, 3)))
    assert (np.abs(mean - known_mean) < 6 * sd / np.sqrt(8000)).all()
    np.testing.assert_allclose(cov, known_cov, atol=0.15 * known_cov.max())


@each("name", ["gaussian", "probit", "logit", "poisson"])
def test_predictions_of_draws_average_over_them(rng, name):
    likelihood, belief = get_likelihood(name), draws_like(rng, 50)[0].components(UNSEEN)
    theta = theta_of(belief, likelihood)
    y = np.array([1.0, 1.0, 1.0])
    f = latent_of_points(belief.mean, ROWS)
    each = [likelihood.predict(f_s, np.zeros(3), np.full(3, t)) for f_s, t in zip(f, theta.values[:, 0], strict=True)]
    mean, variance = np.stack([m for m, _ in each]), np.stack([v for _, v in each])
    found = observed_moments(likelihood, belief, ROWS)
    np.testing.assert_allclose(found[0], mean.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found[1], variance.mean(axis=0) + mean.var(axis=0), rtol=1e-10)
    mass = [
        np.exp(likelihood.logpdf(y, f_s, np.zeros(3), np.full(3, t)))
        for f_s, t in zip(f, theta.values[:, 0], strict=True)
    ]
    np.testing.assert_allclose(observed_logpdf(likelihood, belief, ROWS, y), np.log(np.mean(mass, axis=0)), rtol=1e-8)


def test_quantiles_of_draws_cover_what_they_say(rng):
    likelihood, belief = get_likelihood("gaussian"), draws_like(rng)[0].components(UNSEEN)
    f, t = latent_of_points(belief.mean, ROWS), theta_of(belief, likelihood).of(ROWS)
    y = likelihood.sample(rng, f.ravel(), t.ravel()).reshape(f.shape)
    for q in (0.05, 0.5, 0.9):
        below = np.mean(y < observed_quantiles(likelihood, belief, ROWS, [q])[:, 0], axis=0)
        assert (np.abs(below - q) < 6 * np.sqrt(q * (1 - q) / len(y)) + 1e-3).all()
        np.testing.assert_allclose(latent_quantiles(belief, ROWS, [q])[:, 0], np.quantile(f, q, axis=0), rtol=1e-12)
        np.testing.assert_allclose(np.mean(f < latent_quantiles(belief, ROWS, [q])[:, 0], axis=0), q, atol=2e-3)


def test_a_mean_beyond_float64_in_one_draw_makes_mean_and_variance_infinite():
    rows = np.ones((1, 4, 12, 3))
    rows[0, 1, 0] = 300.0  # of the first row of the first mode: f = 900 there and 3 elsewhere
    draws = Draws(SHAPE, 3, rows, np.ones((1, 4, 1)), None, np.ones(12, dtype=bool))
    places = np.array([[0, 5, 9], [1, 5, 9]])
    mean, variance = observed_moments(get_likelihood("poisson"), draws.components(UNSEEN), places)
    np.testing.assert_allclose(mean, [np.inf, np.exp(3.0)])
    np.testing.assert_allclose(variance, [np.inf, np.exp(3.0)])


@each("name", ["gaussian", "logit", "negbinomial"])
def test_predictions_have_the_same_bits_on_two_threads_and_in_parts(rng, name):
    likelihood, belief = get_likelihood(name), draws_like(rng, 5)[0].components(UNSEEN)
    rows = rng.integers(0, 12, (2100, 3))
    levels = (0.1, 0.9)

    def predicted(rows, executor):
        moments = np.empty(len(rows)), np.empty(len(rows))
        return [
            observed_logpdf(likelihood, belief, rows, np.ones(len(rows)), executor, moments=moments),
            *moments,
            *observed_moments(likelihood, belief, rows, executor),
            *latent(belief, rows, executor),
            *latent_quantiles(belief, rows, levels, executor).T,
            *observed_quantiles(likelihood, belief, rows[:50], levels, executor).T,
        ]

    two = ThreadExecutor(2)
    for one, other in zip(predicted(rows, ThreadExecutor(1)), predicted(rows, two), strict=True):
        np.testing.assert_array_equal(one, other)
    two.close()
    few = predicted(rows[:1], ThreadExecutor(1))
    np.testing.assert_array_equal([part[0] for part in few], [part[0] for part in predicted(rows, ThreadExecutor(1))])


@each("doubtful", [False, True])
def test_log_density_gives_the_moments_of_latent_values_on_the_way(rng, doubtful):
    for belief in (posterior(rng).components(UNSEEN), draws_like(rng, 5)[0].components(UNSEEN)):
        if doubtful:
            belief = belief._replace(doubt=rng.random(belief.size))
        moments, likelihood = (np.empty(len(ROWS)), np.empty(len(ROWS))), get_likelihood("gaussian")
        observed_logpdf(likelihood, belief, ROWS, np.zeros(len(ROWS)), moments=moments)
        for one, other in zip(moments, latent(belief, ROWS), strict=True):
            np.testing.assert_array_equal(one, other)


@each("name", ["logit", "probit"])
def test_a_label_at_a_point_has_the_probability_of_the_link(name):
    """Also where it is all but sure, to full relative accuracy."""
    likelihood, f = get_likelihood(name), np.array([[-30.0, -3.0, 0.0, 1.0, 20.0]])
    link = expit if name == "logit" else ndtr
    one, variance = likelihood.of_points(f, np.ones_like(f))
    np.testing.assert_allclose(one, link(f[0]), rtol=1e-13)
    np.testing.assert_allclose(variance, link(f[0]) * link(-f[0]), rtol=1e-12)


@each("q", [1e-3, 0.05, 0.5, 0.995])
def test_quantile_of_a_gaussian_mixture_has_the_probability_q_below(rng, q):
    """Also of components far apart, or all the same."""
    mean, theta = rng.standard_normal((50, 4)) * [0.0, 1.0, 30.0, 1e4], rng.gamma(2.0, 1.0, (50, 4))
    theta[:, 0] = 4.0
    x = get_likelihood("gaussian").mixture_quantile(q, mean, np.full((50, 4), 0.1), theta)
    below = norm.cdf(x, mean, np.sqrt(0.1 + 1.0 / theta)).mean(axis=0)
    np.testing.assert_allclose(below, q, rtol=0, atol=1e-6)


def test_parameter_of_an_entry_is_that_of_its_row(rng):
    p = posterior(rng)._replace(noise=None, dispersion=Dispersion(1, np.array([1.0, 2.0, 3.0, 6.0]), np.full(4, 2.0)))
    belief, likelihood = p.components(UNSEEN), get_likelihood("poisson")
    theta = theta_of(belief, likelihood)
    np.testing.assert_array_equal(theta.of(np.array([[0, 5, 9], [0, 8, 9], [0, 99, 9]])), [[0.5, 3.0, 1.5]])
    drawn = draw(belief, likelihood, 20_000, rng)[1]
    assert drawn.values.shape == (20_000, 4)
    assert (np.abs(drawn.values.mean(axis=0) - p.dispersion.a / 2.0) < 6 * np.sqrt(p.dispersion.a / 4.0 / 20_000)).all()


def test_draws_are_taken_together_with_their_parameter(rng):
    result, _ = draws_like(rng, 10)
    result.theta[..., 0] = result.rows[..., 0, 0] ** 2
    values, theta, _ = draw(result.components(UNSEEN), get_likelihood("gaussian"), 20, rng)
    np.testing.assert_array_equal(theta.values[:, 0], values[:, 0, 0] ** 2)
    assert len(np.unique(values[:, 0, 0])) == 20  # without repetition


def test_point_estimate_has_no_variance(rng):
    result = PointEstimate(SHAPE, 3, rng.standard_normal((12, 3)), 4.0, np.ones(12, dtype=bool))
    belief = result.components(UNSEEN)
    f, v = latent(belief, ROWS[:2])
    np.testing.assert_allclose(f, latent_of_points(result.rows[None], ROWS[:2])[0])
    np.testing.assert_array_equal(v, 0.0)
    assert belief.theta == EntryTheta(np.array([[4.0]]))
    assert not belief.uncertain
