"""CPClassifier's zero_rate: probabilities of a population whose zeros were sampled."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import entries, fitted, new
from helpers.models import paper
from helpers.short import CUT_SHORT
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

import tensorcep as tc
from tensorcep import metrics
from tensorcep.entries.io import read_tensor, write_tensor

RATE = 0.05


@pytest.fixture(scope="module")
def population():
    """Every cell of a tensor of labels with 1.7 % ones."""
    rng = np.random.default_rng(0)
    shape = (40, 40, 40)
    factors = [rng.normal(0.0, 0.6, (n, 2)) for n in shape]
    f = np.einsum("ir,jr,kr->ijk", *factors) - 2.6
    for k, n in enumerate(shape):
        f += rng.normal(0.0, 0.4, n).reshape([n if j == k else 1 for j in range(3)])
    coords = np.stack(np.unravel_index(np.arange(f.size), shape), axis=1)
    return tc.SparseTensor.from_coo(coords, rng.random(f.size) < ndtr(f.ravel()), shape)


@pytest.fixture(scope="module")
def sample(population):
    """All ones, and 5 % of the zeros."""
    ones = population.select(population.values == 1.0)
    return ones.concatenate(ones.sample_zeros(int(RATE * (population.nnz - ones.nnz)), random_state=0))


def with_rate(rate, **params):
    """A small fitted classifier that predicts for this rate."""
    model = new("classifier", **params).fit(*entries("classifier"))
    return model.set_params(zero_rate=rate)


@CUT_SHORT  # 60 sweeps
@each("options", [{"prior": "learned"}, {"method": "gibbs", "prior": "learned", "max_iter": 60}])
def test_zero_rate_calibrates_in_the_large(options, population, sample):
    model = paper(tc.CPClassifier, 2, zero_rate="auto", random_state=0, **options).fit(sample)
    share = population.values.mean()
    if "method" in options:  # one share is as good as another, and draws take long
        population = population.select(np.arange(0, population.nnz, 8))
    p = model.predict_proba(population)[:, 1]
    assert model.zero_rate_ == pytest.approx(RATE, rel=1e-3)
    assert p.mean() == pytest.approx(share, rel=0.15)
    assert -model.log_score(population, population.values).mean() == pytest.approx(
        metrics.log_loss(population.values, p), rel=1e-9
    )
    sampled = model.set_params(zero_rate=1.0).predict_proba(population)[:, 1]
    assert sampled.mean() > 8.0 * share
    aucs = [metrics.auc(population.values, values) for values in (p, sampled)]
    assert abs(aucs[0] - aucs[1]) < 0.01
    assert metrics.log_loss(population.values, p) < 0.5 * metrics.log_loss(population.values, sampled)


def test_zero_rate_of_one_is_the_likelihood_of_the_fit_and_the_fit_never_changes():
    model = fitted("classifier")
    assert model.zero_rate_ == 1.0
    assert model._fitted.likelihood_of_new is model._result.likelihood
    other = new("classifier", zero_rate=RATE).fit(*entries("classifier"))
    np.testing.assert_array_equal(other.posterior_.eta, model.posterior_.eta)


@each("link", ["probit", "logit"])
def test_zero_rate_acts_inside_the_integral_over_the_latent_value(link):
    model, X = with_rate(RATE, link=link), entries("classifier")[0][:5]
    cdf = ndtr if link == "probit" else lambda f: 1.0 / (1.0 + np.exp(-f))

    def of_population(f, m, v):
        return RATE * cdf(f) / (RATE * cdf(f) + cdf(-f)) * norm.pdf(f, m, np.sqrt(v))

    expected = []
    for m, v in zip(*model.predict_latent(X), strict=True):
        ends = m - 10 * np.sqrt(v), m + 10 * np.sqrt(v)
        expected.append(quad(of_population, *ends, args=(m, v), epsabs=1e-13)[0])
    p = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), p > 0.5)
    np.testing.assert_allclose(model.log_score(X, np.ones(5)), np.log(p), rtol=1e-12)
    np.testing.assert_allclose(model.decision_function(X), np.log(p / (1.0 - p)), rtol=1e-9)


@CUT_SHORT  # the mean is that of the draws there are, however few
def test_zero_rate_over_draws_is_the_mean_of_the_corrected_probabilities():
    model, X = with_rate(RATE, method="gibbs", max_iter=40), entries("classifier")[0][:6]
    draws = model.posterior_.rows.shape[0] * model.posterior_.rows.shape[1]
    p = ndtr(model.sample_posterior(draws, X, random_state=0))  # every draw once
    expected = (RATE * p / (RATE * p + 1.0 - p)).mean(axis=0)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, rtol=1e-8)


def test_zero_rate_moves_the_ends_of_intervals_and_the_draws():
    model, X = with_rate(1.0), entries("classifier")[0][:50]
    ends = model.predict_interval(X, 0.8)
    p = model.set_params(zero_rate=RATE).predict_proba(X)[:, 1]
    np.testing.assert_allclose(model.predict_interval(X, 0.8), RATE * ends / (RATE * ends + 1.0 - ends), rtol=1e-9)
    drawn = model.sample_y(X, 4000, random_state=0)
    assert abs(drawn.mean() - p.mean()) < 6.0 * np.sqrt(0.25 / 4000)  # draws share factors: at most this


def test_zero_rate_serves_point_estimates_and_streams():
    X, y = entries("classifier")
    point = with_rate(RATE, method="wopt")
    f, _ = point.predict_latent(X)
    np.testing.assert_allclose(point.predict_proba(X)[:, 1], RATE * ndtr(f) / (RATE * ndtr(f) + ndtr(-f)), rtol=1e-9)
    streams = [new("classifier", zero_rate=rate).stream([(X[:400], y[:400]), (X[400:], y[400:])]) for rate in (1, RATE)]
    for name in ("log_score", "rmse"):  # of batches that were sampled as the fit was
        np.testing.assert_array_equal(streams[0].stream_trace_[name], streams[1].stream_trace_[name])
    one, other = (model.predict_proba(X)[:, 1] for model in streams)
    assert (other < one).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
def test_zero_rate_auto_survives_splits_files_and_saving(sample, tmp_path):
    train, _ = sample.train_test_split(0.5, random_state=0)
    write_tensor(train, tmp_path / "train.npz")
    again = read_tensor(tmp_path / "train.npz")
    assert again.zero_rate == train.zero_rate == sample.zero_rate
    model = paper(tc.CPClassifier, 1, zero_rate="auto", max_iter=2, tol=10.0, random_state=0).fit(again)
    model.save(tmp_path / "model.npz")
    loaded = tc.load(tmp_path / "model.npz")
    assert loaded.zero_rate_ == model.zero_rate_ == sample.zero_rate
    np.testing.assert_array_equal(loaded.predict_proba(train), model.predict_proba(train))


@pytest.mark.filterwarnings("ignore:the stream predicts")  # labels of noise
def test_zero_rate_auto_of_a_stream_takes_one_rate(sample):
    model = paper(tc.CPClassifier, 1, zero_rate="auto", max_iter=2, tol=10.0, random_state=0)
    batches = list(sample.minibatches(1500, random_state=0))
    model.stream(batches[:2])
    assert model.zero_rate_ == sample.zero_rate
    other = tc.SparseTensor(batches[2].coords, batches[2].values, sample.shape, zero_rate=0.5)
    with pytest.raises(ValueError, match=r"sampled at one rate; got 0\.5 after 0\.04"):
        model.partial_fit(other)
    with pytest.raises(ValueError, match="needs a SparseTensor whose zero_rate is one number; give the number"):
        model.partial_fit(batches[2].coords, batches[2].values)
    assert model.n_batches_ == 2


@each("rate", [0.0, 1.5, -1, "all", None, True])
def test_zero_rate_refuses(rate):
    model = new("classifier", zero_rate=rate)
    with pytest.raises(ValueError, match=r"zero_rate must be 'auto', or a number in \(0, 1\]; got"):
        model.fit(*entries("classifier"))


def test_zero_rate_of_a_model_that_is_not_fitted_says_so():
    for call in (new("classifier").predict_proba, new("classifier", zero_rate=RATE).decision_function):
        with pytest.raises(NotFittedError):
            call(entries("classifier")[0])


def test_zero_rate_auto_needs_to_know():
    X, y = entries("classifier")
    with pytest.raises(ValueError, match="needs a SparseTensor whose zero_rate is one number; give the number"):
        new("classifier", zero_rate="auto").fit(X, y)
    with pytest.raises(ValueError, match="needs a fit to a SparseTensor whose zero_rate is one number"):
        _ = with_rate("auto").zero_rate_
