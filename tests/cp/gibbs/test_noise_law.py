"""New observations that are not normal about their latent values, as the entries tell it that chains leave out."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.held import held_of
from scipy.special import ndtr
from scipy.stats import kurtosis, laplace, t

from tensorcep import CPRegressor, load, metrics
from tensorcep.cp.calibration.holdout import (
    GAMMA_SHAPES,
    INVERSE_SHAPES,
    LOG_FACTORS,
    LOG_SIZES,
    NoiseLaw,
    gain_of_constant,
    laws_of_factors,
    noise_law_of,
    with_factors,
)
from tensorcep.cp.posterior import Draws

X = np.linspace(-6.0, 6.0, 49)


def told(y, spread=0.0, **known):
    """Entries left out, weighed, whose latent values are 0 but for a variance."""
    zeros = np.zeros_like(y)
    held = held_of(y, zeros[None], zeros[None])
    return held._replace(mean_of_all=zeros, spread_of_all=zeros + spread, **known)


def density(mass, x):
    """Of noise of variance 1 whose precision has such a factor."""
    sd = np.exp(-0.5 * LOG_FACTORS)
    return (np.exp(-0.5 * (x[:, None] / sd) ** 2) / sd) @ mass / np.sqrt(2 * np.pi)


def below(law, x, sd=1.0):
    return ndtr(x[:, None] / sd * np.exp(0.5 * LOG_FACTORS)) @ law.mass


def test_laws_are_those_of_student_and_laplace_noise_of_variance_1():
    laws, same = laws_of_factors(), int(np.flatnonzero(LOG_SIZES == 0.0)[0])
    np.testing.assert_allclose(laws.sum(axis=1), 1.0)
    a = GAMMA_SHAPES[4]
    student = t(2.0 * a, scale=np.sqrt((a - 1.0) / a))
    np.testing.assert_allclose(density(laws[4 * len(LOG_SIZES) + same], X), student.pdf(X), rtol=0.02, atol=1e-5)
    first = len(GAMMA_SHAPES) + int(np.flatnonzero(INVERSE_SHAPES == 1.0)[0])
    found = density(laws[first * len(LOG_SIZES) + same], X[np.abs(X) > 0.2])
    np.testing.assert_allclose(found, laplace(scale=np.sqrt(0.5)).pdf(X[np.abs(X) > 0.2]), rtol=0.02)


@each("n", [50, 200, 2000])
def test_normal_noise_stays_normal(n):
    rng = np.random.default_rng(n)
    found = [noise_law_of(told(np.sqrt(1.3) * rng.standard_normal(n), spread=0.3)) for _ in range(25)]
    assert sum(law is not None for law in found) <= 2


@each("kind", ["student", "laplace", "outliers"])
def test_law_of_noise_that_is_not_normal_holds_its_shares(kind):
    rng = np.random.default_rng(1)
    draw = {
        "student": lambda n: rng.standard_t(3.0, n),
        "laplace": lambda n: rng.laplace(size=n),
        "outliers": lambda n: rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 8.0, 1.0),
    }[kind]
    y, new = draw(1000), draw(20_000)
    law = noise_law_of(told(y))
    place = below(law, new, y.std())
    normal = ndtr(new / y.std())
    off = 0.06 if kind == "outliers" else 0.035  # of which no law is one
    assert np.mean(np.abs(place - 0.5) < 0.25) == pytest.approx(0.5, abs=off)
    assert np.mean(np.abs(place - 0.5) < 0.45) == pytest.approx(0.9, abs=0.8 * off)
    assert np.mean(np.abs(normal - 0.5) < 0.25) > 0.57
    assert law.gain.mean() > 0.02


def test_law_knows_what_is_unknown_of_latent_values_and_what_the_constant_counts():
    """Student noise beside normal latent values; and products of normal factors, of which nothing is known."""
    rng = np.random.default_rng(2)
    y = 2.0 * rng.standard_normal(1000) + rng.standard_t(3.0, 1000)
    apart, mixed = noise_law_of(told(y, spread=4.0)), noise_law_of(told(y))
    assert apart is not None
    assert mixed is None or mixed.gain.mean() < apart.gain.mean()
    products = rng.standard_normal((3, 1000)).prod(axis=0)
    square = float(np.mean(products**2))
    held = told(products, share=0.0, constant_theta=1.0 / square)
    law = noise_law_of(held._replace(mean_of_all=rng.standard_normal(1000)))  # which counts nothing
    place = below(law, rng.standard_normal((3, 20_000)).prod(axis=0), np.sqrt(square))
    assert np.mean(np.abs(place - 0.5) < 0.25) == pytest.approx(0.5, abs=0.05)


def test_values_that_are_known_have_no_law():
    assert noise_law_of(told(np.zeros(100))) is None
    assert not gain_of_constant(told(np.zeros(100)), 0.0).any()


def test_gain_of_a_constant_is_that_of_its_own_residuals_whatever_a_fit_says(rng):
    y = rng.standard_t(3.0, 500)
    held = told(y + 7.0, spread=4.0, share=0.5)._replace(mean_of_all=rng.standard_normal(500))
    np.testing.assert_allclose(gain_of_constant(held, 7.0), noise_law_of(told(y)).gain, atol=1e-12)


def test_factors_of_draws_follow_the_law_evenly():
    mass = np.zeros(len(LOG_FACTORS))
    mass[[30, 54, 70]] = 0.1, 0.6, 0.3
    draws = Draws((2,), 1, np.zeros((2, 100, 2, 1)), np.ones((2, 100, 1)), None, np.ones(2, dtype=bool))
    found = with_factors(draws, NoiseLaw(mass, np.zeros(0))).factors
    near = np.argmin(np.abs(np.log(found.ravel())[:, None] - LOG_FACTORS), axis=1)
    np.testing.assert_allclose([np.mean(near == place) for place in (30, 54, 70)], [0.1, 0.6, 0.3], atol=0.011)
    assert with_factors(draws, None) is draws


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    shape, n = (25, 20, 15), 24_000
    rows = [rng.standard_normal((size, 2)) for size in shape]
    coords = np.stack([rng.integers(0, size, n) for size in shape], axis=1)
    f = np.prod([u[i] for u, i in zip(rows, coords.T, strict=True)], axis=0).sum(axis=1)
    return coords, f + 0.4 * rng.standard_t(3.0, n)


@pytest.fixture(scope="module")
def model(data):
    return CPRegressor(2, method="gibbs", max_iter=160, random_state=0).fit(data[0][:20_000], data[1][:20_000])


def normal_twin(model):
    """The same fit, whose new observations are normal."""
    belief, twin = model._result.belief, CPRegressor(2, method="gibbs", random_state=0)
    normal = belief._replace(theta=belief.theta._replace(factors=None))
    twin._set(model._result.changed(rows=model._result.rows._replace(belief=normal)))
    return twin


def test_default_intervals_hold_their_shares_of_long_tailed_values(model, data):
    coords, y = data[0][20_000:], data[1][20_000:]
    twin = normal_twin(model)
    held, normal = (
        [metrics.coverage(y, *one.predict_interval(coords, level).T) for level in (0.5, 0.9)] for one in (model, twin)
    )
    np.testing.assert_allclose(held, [0.5, 0.9], atol=0.04)
    assert normal[0] > 0.6
    np.testing.assert_array_equal(model.predict(coords), twin.predict(coords))
    assert model.log_score(coords, y).mean() > twin.log_score(coords, y).mean() + 0.05
    assert "not normal: half of it is within" in str(model.diagnostics_)
    assert model.diagnostics_.noise_half == pytest.approx(0.4 * t(3.0).ppf(0.75), rel=0.25)
    assert model.diagnostics_.score == pytest.approx(model.log_score(coords, y).mean(), abs=0.15)
    assert model.noise_sd_ == pytest.approx(np.std(y - model.predict(coords)), rel=0.5)


def test_new_observations_are_drawn_by_the_law_each_by_itself(model, data):
    coords = data[0][20_000:21_000]
    draws = model.sample_y(coords, 400, random_state=0)
    half = model.predict_interval(coords, 0.5)
    assert metrics.coverage(draws.ravel(), *np.tile(half.T, 400)) == pytest.approx(0.5, abs=0.02)
    each = kurtosis(draws - model.predict(coords), axis=1)
    assert np.median(each) > 1.0  # a factor for all cells of a draw would leave each draw normal


def test_law_is_saved_and_rows_are_added_beside_it(model, data, tmp_path):
    coords = data[0][5000:5100]
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").predict_interval(coords), model.predict_interval(coords))
    new = np.array([[25, 0, 0], [25, 1, 2], [25, 3, 4]])
    rows, plain = (one.transform(new, np.ones(3), mode=0) for one in (model, normal_twin(model)))
    np.testing.assert_array_equal(rows.mean, plain.mean)  # told by the precision itself
    assert model.with_rows(rows).posterior_.factors.shape == model.posterior_.factors.shape


def test_file_with_factors_that_are_not_positive_is_refused(model, tmp_path):
    damaged = normal_twin(model)
    damaged._set(
        damaged._result.changed(
            rows=damaged._result.rows._replace(posterior=model.posterior_._replace(factors=-model.posterior_.factors))
        )
    )
    with pytest.raises(ValueError, match=r"model\.npz"):  # as a load would
        damaged.save(tmp_path / "model.npz")
