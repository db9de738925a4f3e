"""Predictions of the estimators: means, variances, intervals, probabilities, draws, labels and unknown rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, SHAPE, entries, fitted, new, simulated
from scipy.stats import norm
from sklearn.metrics import d2_tweedie_score, r2_score

import tensorcep as tc

EVERY = each("name", NAMES)


def second_moments(model, X):
    """Mean and variance of the latent value from factors_ and factor_covs_ alone."""
    f, f2 = np.ones((len(X), model.rank)), np.ones((len(X), model.rank, model.rank))
    for k, (mean, cov) in enumerate(zip(model.factors_, model.factor_covs_, strict=True)):
        m, S = mean[X[:, k]], cov[X[:, k]]
        f *= m
        f2 *= S + m[:, :, None] * m[:, None, :]
    total = f.sum(axis=1)
    return total, f2.sum(axis=(1, 2)) - total**2


@EVERY
def test_predict_latent_is_the_product_of_the_factors_with_its_variance(name):
    X, _ = entries(name)
    mean, variance = fitted(name).predict_latent(X)
    right_mean, right_variance = second_moments(fitted(name), X)
    np.testing.assert_allclose(mean, right_mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(variance, right_variance, rtol=1e-8)


def test_regressor_predicts_mean_and_spread_of_an_observation():
    model, (X, y) = fitted("regressor"), entries("regressor")
    f, v = model.predict_latent(X)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, f)
    noise = model.posterior_.noise
    np.testing.assert_allclose(std, np.sqrt(v + noise.b / (noise.a - 1)), rtol=1e-14)
    np.testing.assert_array_equal(model.predict(X), mean)
    assert model.score(X, y) == pytest.approx(r2_score(y, mean))
    np.testing.assert_allclose(model.log_score(X, y), norm.logpdf(y, mean, std), rtol=1e-10)
    low, high = model.predict_interval(X, 0.8).T
    np.testing.assert_allclose(low, norm.ppf(0.1, mean, std))
    np.testing.assert_allclose(high, norm.ppf(0.9, mean, std))


def test_classifier_integrates_the_latent_value_out():
    model, (X, y) = fitted("classifier"), entries("classifier")
    f, v = model.predict_latent(X)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p[:, 1], norm.cdf(f / np.sqrt(1 + v)), rtol=1e-10)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)
    labels = model.predict(X)
    np.testing.assert_array_equal(labels, (f > 0).astype(int))
    assert labels.dtype == np.int64
    assert model.score(X, y) == np.mean(labels == y)
    np.testing.assert_allclose(model.log_score(X, y), np.log(p[np.arange(600), y.astype(int)]), rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), f / np.sqrt(1 + v))
    interval = model.predict_interval(X, 0.9)
    sd = np.sqrt(v)
    np.testing.assert_allclose(interval[:, 0], norm.cdf(f - norm.ppf(0.95) * sd), rtol=1e-8)
    np.testing.assert_allclose(interval[:, 1], norm.cdf(f + norm.ppf(0.95) * sd), rtol=1e-8)


def test_counts_predict_the_mean_of_a_log_normal_mixture():
    model, (X, y) = fitted("counts"), entries("counts")
    f, v = model.predict_latent(X)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, np.exp(f + 0.5 * v), rtol=1e-9)
    np.testing.assert_allclose(std**2, mean + mean**2 * np.expm1(v), rtol=1e-6)
    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, mean, power=1))
    interval = model.predict_interval(X, 0.9)
    assert (interval == np.round(interval)).all()
    assert (interval[:, 0] <= mean).all()
    assert (interval[:, 1] >= mean - 1).all()


@EVERY
def test_sample_posterior_has_the_moments_of_predict_latent(name):
    model, n = fitted(name), 20_000
    X = entries(name)[0][:6]
    f, v = model.predict_latent(X)
    draws = model.sample_posterior(n, X, random_state=0)
    assert draws.shape == (n, 6)
    assert (np.abs(draws.mean(axis=0) - f) < 6 * np.sqrt(v / n)).all()
    square = (draws - f) ** 2
    assert (np.abs(square.mean(axis=0) - v) < 6 * square.std(axis=0) / np.sqrt(n)).all()


def test_sample_posterior_of_the_factors_has_their_moments():
    model, n = fitted("regressor"), 20_000
    factors = model.sample_posterior(n, random_state=0)
    assert [u.shape for u in factors] == [(n, size, 2) for size in SHAPE]
    for draws, mean, cov in zip(factors, model.factors_, model.factor_covs_, strict=True):
        sd = np.sqrt(cov[:, [0, 1], [0, 1]])
        assert (np.abs(draws.mean(axis=0) - mean) < 6 * sd / np.sqrt(n)).all()
        product = (draws[..., 0] - mean[:, 0]) * (draws[..., 1] - mean[:, 1])
        assert (np.abs(product.mean(axis=0) - cov[:, 0, 1]) < 6 * product.std(axis=0) / np.sqrt(n)).all()


@EVERY
def test_sample_y_has_the_predicted_mean_and_spread(name):
    model, n = fitted(name), 20_000
    X = entries(name)[0][:5]
    draws = model.sample_y(X, n, random_state=1)
    assert draws.shape == (n, 5)
    if name == "classifier":
        assert set(np.unique(draws)) <= {0.0, 1.0}
        mean = model.predict_proba(X)[:, 1]
        std = np.sqrt(mean * (1 - mean))
    else:
        mean, std = model.predict(X, return_std=True)
    sd = draws.std(axis=0)
    assert (np.abs(draws.mean(axis=0) - mean) < 6 * sd / np.sqrt(n)).all()
    square = (draws - mean) ** 2
    assert (np.abs(square.mean(axis=0) - std**2) < 6 * square.std(axis=0) / np.sqrt(n)).all()
    np.testing.assert_array_equal(model.sample_y(X, 3, 5), model.sample_y(X, 3, 5))


def test_intervals_cover_held_out_observations():
    sim = simulated("regressor")
    train, test = sim.tensor.train_test_split(0.25, random_state=0)
    model = new("regressor").fit(train)
    low, high = model.predict_interval(test, 0.9).T
    covered = np.mean((test.values >= low) & (test.values <= high))
    assert 0.8 < covered < 0.98
    f, v = model.predict_latent(sim.tensor)
    assert 0.7 < np.mean(np.abs(sim.latent - f) < 1.645 * np.sqrt(v)) < 0.98


@EVERY
def test_predictions_of_a_tensor_or_a_list_are_those_of_the_array(name):
    X, y = entries(name)
    model = fitted(name)
    right = model.predict(X)
    np.testing.assert_array_equal(model.predict(tc.SparseTensor(X, y, SHAPE)), right)
    np.testing.assert_array_equal(model.predict(X[:7].tolist()), right[:7])
    np.testing.assert_array_equal(model.predict(pd.DataFrame(X)), right)
    assert model.predict(X[:0]).shape == (0,)


# Labels


@pytest.fixture(scope="module")
def labelled():
    """A frame of entries with labels in two modes, and a model fitted to it."""
    X, y = entries("regressor")
    frame = pd.DataFrame({"gene": np.char.add("g", X[:, 0].astype(str)), "day": X[:, 1], "dose": 0.5 * X[:, 2], "y": y})
    tensor = tc.SparseTensor.from_pandas(frame, ["gene", "day", "dose"])
    return frame, tensor, new("regressor").fit(tensor)


def test_predict_takes_labels_in_a_frame(labelled):
    _, tensor, model = labelled
    right = model.predict(tensor)
    back = tensor.to_pandas()
    np.testing.assert_array_equal(model.predict(back[["gene", "day", "dose"]]), right)
    shuffled = back.sample(frac=1.0, random_state=0)
    np.testing.assert_array_equal(model.predict(shuffled[["gene", "day", "dose"]]), right[shuffled.index])


def test_predict_matches_the_labels_of_another_tensor(labelled):
    frame, tensor, model = labelled
    some = tc.SparseTensor.from_pandas(frame[frame["gene"] > "g2"], ["gene", "day", "dose"])
    assert some.shape[0] < tensor.shape[0]
    back = some.to_pandas()[["gene", "day", "dose"]]
    np.testing.assert_array_equal(model.predict(some), model.predict(back))


def test_predict_gives_unknown_labels_the_prior(labelled):
    _, _, model = labelled
    unknown = pd.DataFrame({"gene": ["new", "g1"], "day": [1, 99], "dose": [0.5, 0.5]})
    with pytest.warns(UserWarning, match=r"2 of 2 entries touch rows without training entries .*prior is used"):
        f, v = model.predict_latent(unknown)
    assert np.isfinite(f).all()
    known, _ = model.predict_latent(pd.DataFrame({"gene": ["g1"], "day": [1], "dose": [0.5]}))
    assert (v > 0).all()
    assert known.shape == (1,)


def test_predict_finds_the_columns_of_a_frame_by_name(labelled):
    _, tensor, model = labelled
    back = tensor.to_pandas()
    np.testing.assert_array_equal(model.predict(back[["dose", "gene", "day"]]), model.predict(tensor))


def test_predict_refuses_indices_in_a_frame_that_are_not_whole_numbers():
    X, y = entries("regressor")
    tensor = tc.SparseTensor(X, y, SHAPE, labels=(list("abcdefghijkl"), None, None))
    model = new("regressor").fit(tensor)
    with pytest.raises(ValueError, match="must hold integers"):
        model.predict(pd.DataFrame({"a": ["a"], "b": [1.7], "c": [2]}))


# Rows without training entries


@pytest.fixture(scope="module")
def wide():
    """A model whose shape has a row more than the data in each mode."""
    X, y = entries("regressor")
    return new("regressor", shape=tuple(n + 1 for n in SHAPE), prior_mean=0.3, prior_scale=0.8).fit(X, y)


def test_unknown_rows_inside_and_beyond_the_shape_get_the_prior(wide):
    inside, beyond = [12, 10, 8], [50, 60, 70]
    with pytest.warns(UserWarning, match=r"2 of 3 entries touch rows .*first is entry 1"):
        f, v = wide.predict_latent([[0, 0, 0], inside, beyond])
    second = 0.3**2 + 0.64
    product = 2 * 0.3**3
    right_v = 2 * second**3 + 2 * 0.3**6 - product**2
    np.testing.assert_allclose(f[1:], wide.level_ + product, rtol=1e-12)
    np.testing.assert_allclose(v[1:], right_v, rtol=1e-12)


def test_unknown_rows_can_be_refused(wide):
    X, y = entries("regressor")
    strict = new("regressor", unknown="error").fit(X, y)
    np.testing.assert_allclose(strict.predict(X), fitted("regressor").predict(X))
    with pytest.raises(ValueError, match=r"1 of 2 entries touch rows without training .* or set unknown=\"prior\""):
        strict.predict([[0, 0, 0], [0, 0, 8]])


def test_unknown_rows_are_drawn_from_the_prior(wide):
    n = 20_000
    with pytest.warns(UserWarning, match="prior is used"):
        f, v = wide.predict_latent([[50, 0, 0]])
    with pytest.warns(UserWarning, match="prior is used"):
        draws = wide.sample_posterior(n, [[50, 0, 0]], random_state=0)
    assert abs(draws.mean() - f[0]) < 6 * np.sqrt(v[0] / n)
    square = (draws - f[0]) ** 2
    assert abs(square.mean() - v[0]) < 6 * square.std() / np.sqrt(n)


def test_different_unknown_rows_are_drawn_independently(wide):
    with pytest.warns(UserWarning, match="prior is used"):
        draws = wide.sample_posterior(4000, [[50, 0, 0], [51, 0, 0]], random_state=0)
    assert not np.array_equal(draws[:, 0], draws[:, 1])


@each("method", ["predict", "predict_latent"])
def test_unknown_row_warning_points_at_the_callers_line(wide, method):
    with pytest.warns(UserWarning, match="prior is used") as caught:
        getattr(wide, method)([[50, 0, 0]])
    assert caught[0].filename == __file__


def test_decision_function_ranks_as_the_probabilities_do():
    X, _ = entries("classifier")
    model = fitted("classifier")
    assert (np.argsort(model.decision_function(X)) == np.argsort(model.predict_proba(X)[:, 1])).mean() > 0.99


def test_means_beyond_float64_are_told_of_and_have_no_nan_beside_them():
    X, y = entries("counts")
    model = new("counts").fit(X, y, exposure=np.ones(len(y)))
    with pytest.warns(UserWarning, match=r"1 of 2 predicted means \(the first is entry 1\) are infinite") as caught:
        mean, sd = model.predict(X[:2], return_std=True, exposure=[1.0, 1.7e308])
    assert caught[0].filename == __file__
    assert np.isfinite([mean[0], sd[0]]).all()
    assert mean[1] == sd[1] == np.inf
