"""Learning from a stream: partial_fit and stream of the CP estimators."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import CLASSES, NAMES, SHAPE, entries, new
from helpers.models import paper

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
PARTS = [slice(0, 200), slice(200, 400), slice(400, 600)]


def streamed(name, parts=PARTS, **params):
    """A model that learned `entries` in parts."""
    X, y = entries(name)
    model = new(name, **params)
    for part in parts:
        model.partial_fit(X[part], y[part])
    return model


def same(a, b):
    for x, z in zip((a.posterior_.Lam, a.posterior_.eta), (b.posterior_.Lam, b.posterior_.eta), strict=True):
        np.testing.assert_array_equal(x, z)
    assert a.posterior_.noise == b.posterior_.noise


@each("name", NAMES)
def test_partial_fit_of_one_batch_equals_fit(name):
    X, y = entries(name)
    same(new(name).partial_fit(X, y), new(name).fit(X, y))


@each("name", NAMES)
def test_partial_fit_counts_and_sharpens_what_is_known(name):
    model = streamed(name, PARTS[:1])
    before = model.factor_covs_[0].trace(axis1=1, axis2=2).mean()
    X, y = entries(name)
    for part in PARTS[1:]:
        model.partial_fit(X[part], y[part])
    assert (model.n_samples_seen_, model.n_batches_) == (600, 3)
    assert model.shape_ == SHAPE
    assert model.factor_covs_[0].trace(axis1=1, axis2=2).mean() < before
    assert all(np.isfinite(factor).all() for factor in model.factors_)
    assert set(model.trace_) >= {"change", "skipped", "train_score"}


@each("link", ["probit", "logit"])
def test_stream_of_labels_predicts_nearly_as_well_as_the_fit(link):
    s = tc.simulate_cp((15, 12, 10), 2, 1700, likelihood=link, prior_mean=0.8, prior_sd=0.8, random_state=1)
    X, y = s.tensor.coords, s.tensor.values
    model = paper(tc.CPClassifier, 2, link=link, random_state=0)
    model.stream((X[a : a + 150], y[a : a + 150]) for a in range(0, 1200, 150))
    whole = paper(tc.CPClassifier, 2, link=link, random_state=0).fit(X[:1200], y[:1200])
    scores = [tc.metrics.auc(y[1200:], m.decision_function(X[1200:])) for m in (model, whole)]
    assert scores[0] > scores[1] - 0.05
    trace = model.stream_trace_
    assert trace["n_samples_seen"].tolist() == list(range(150, 1201, 150))
    assert np.isnan(trace["log_score"][0])
    assert trace["log_score"][-3:].mean() > trace["log_score"][1]


def test_stream_of_real_values_finds_the_noise():
    s = tc.simulate_cp((15, 12, 10), 2, 1600, noise_precision=25.0, prior_mean=0.7, random_state=2)
    X, y = s.tensor.coords, s.tensor.values
    model = paper(tc.CPRegressor, 2, random_state=0)
    model.stream((X[a : a + 400], y[a : a + 400]) for a in range(0, 1600, 400))
    assert 15.0 < model.noise_precision_ < 35.0
    assert model.stream_trace_["rmse"][-1] < 0.35


@each("name", ["regressor", "classifier"])
def test_stream_of_variational_batches_learns_and_resumes(name, tmp_path):
    """POST: the same stream with mean-field inference inside the batches."""
    X, y = entries(name)
    same(new(name, method="vmp").partial_fit(X, y), new(name, method="vmp").fit(X, y))
    model = streamed(name, PARTS[:2], method="vmp")
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    same(model.partial_fit(X[PARTS[2]], y[PARTS[2]]), again.partial_fit(X[PARTS[2]], y[PARTS[2]]))
    assert model.score(X, y) > streamed(name, PARTS[:1], method="vmp").score(X, y)


def test_prequential_scores_are_those_of_predict_before_learning():
    X, y = entries("classifier")
    model = streamed("classifier", PARTS[:2])
    p = copy.deepcopy(model).predict_proba(X[PARTS[2]])[:, 1]
    model.stream([(X[PARTS[2]], y[PARTS[2]])])
    np.testing.assert_allclose(model.stream_trace_["rmse"], [np.sqrt(np.mean((y[PARTS[2]] - p) ** 2))], rtol=1e-10)
    log_score = np.log(np.where(y[PARTS[2]] > 0, p, 1.0 - p)).mean()
    np.testing.assert_allclose(model.stream_trace_["log_score"], [log_score], rtol=1e-8)


@each("name", NAMES)
def test_partial_fit_goes_on_after_save_and_load_with_the_same_bits(name, tmp_path):
    X, y = entries(name)
    model = streamed(name, PARTS[:2], forget=0.1)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert (again.n_samples_seen_, again.n_batches_) == (400, 2)
    same(model, again)
    far = X[PARTS[2]] + [20, 0, 0]  # new rows too
    same(model.partial_fit(far, y[PARTS[2]]), again.partial_fit(far, y[PARTS[2]]))


def test_partial_fit_goes_on_from_a_fit_and_fit_begins_anew():
    X, y = entries("classifier")
    model = new("classifier").fit(X[:400], y[:400])
    eta = model.posterior_.eta.copy()
    model.partial_fit(X[400:], y[400:])
    assert (model.n_samples_seen_, model.n_batches_) == (600, 2)
    assert not np.array_equal(model.posterior_.eta, eta)
    model.fit(X[:400], y[:400])
    np.testing.assert_array_equal(model.posterior_.eta, eta)
    assert (model.n_samples_seen_, model.n_batches_) == (400, 1)


def test_sweeps_may_change_from_batch_to_batch():
    X, y = entries("classifier")
    model = new("classifier").partial_fit(X[:400], y[:400])
    assert model.set_params(max_iter=1, tol=0.0).partial_fit(X[400:], y[400:]).n_iter_ == 1
    with pytest.raises(ValueError, match="max_iter must be 'auto' or an integer >= 1; got 0"):
        model.set_params(max_iter=0).partial_fit(X[400:], y[400:])


def test_stream_has_the_same_bits_on_one_and_two_threads():
    same(streamed("classifier", n_jobs=1), streamed("classifier", n_jobs=2))


def test_partial_fit_adds_rows_as_indices_come():
    X, y = entries("classifier")
    model = new("classifier").partial_fit(X[:300], y[:300])
    old = model.factors_[0].copy()
    model.partial_fit(np.array([[50, 3, 2]]), np.array([1.0]))
    assert model.shape_ == (51, *SHAPE[1:])
    np.testing.assert_array_equal(model.factors_[0][: len(old)], old)
    assert not model.posterior_.seen[len(old) : 50].any()
    assert model.posterior_.seen[50]
    fresh = model.factors_[0][len(old) : 50]
    assert ((fresh > 0.0) & (fresh < 1.0)).all()  # the prior's means, drawn from U(0, 1)
    assert len(np.unique(fresh)) == fresh.size


def test_partial_fit_new_rows_do_not_depend_on_the_batches_they_come_in():
    X, y = entries("classifier")
    one, two = (new("classifier").partial_fit(X[:300], y[:300]) for _ in range(2))
    for i in (20, 30):
        one.partial_fit(np.array([[i, 0, 0]]), np.array([1.0]))
    two.partial_fit(np.array([[30, 0, 0]]), np.array([1.0]))
    np.testing.assert_array_equal(one.factors_[0][21:30], two.factors_[0][21:30])


def test_partial_fit_with_shape_refuses_rows_beyond_it():
    X, y = entries("classifier")
    model = new("classifier", shape=SHAPE).partial_fit(X[:300], y[:300])
    with pytest.raises(ValueError, match=r"X must be below the shape \(12, 10, 8\); got 12"):
        model.partial_fit(np.array([[12, 0, 0]]), np.array([1.0]))
    assert model.n_batches_ == 1


def frame_of(name, part=slice(None)):
    X, y = entries(name)
    columns = {mode: [f"{mode}{i}" for i in X[part, k]] for k, mode in enumerate(("user", "item", "week"))}
    return pd.DataFrame({**columns, "y": y[part]})


def test_stream_of_frames_grows_labels_and_predicts_by_them():
    frame = frame_of("classifier")
    model = new("classifier").stream(frame, batch_size=150)
    assert model.n_batches_ == 4
    assert [found.name for found in model.labels_] == ["user", "item", "week"]
    assert model.shape_ == SHAPE
    assert {len(found) for found in model.labels_} == set(SHAPE)
    y = frame["y"].to_numpy()
    assert tc.metrics.auc(y, model.decision_function(frame[["user", "item", "week"]])) > 0.7


def test_stream_first_batch_of_a_frame_has_a_size_of_its_own():
    model = new("classifier").stream(frame_of("classifier"), batch_size=100, first_batch=350)
    assert model.stream_trace_["n_samples_seen"].tolist() == [350, 450, 550, 600]
    tiny = new("classifier").stream(frame_of("classifier"), batch_size=1000, first_batch=2000)
    assert tiny.n_samples_seen_ == 600


def test_stream_of_interactions_and_learned_priors_goes_on(tmp_path):
    X, y = entries("classifier")
    model = new("classifier", interactions="main+cp", prior="learned").partial_fit(X[:300], y[:300])
    prior = model.posterior_.mode_prior
    model.partial_fit(np.array([[30, 0, 0]]), np.array([1.0]))
    np.testing.assert_allclose(model.factors_[0][20], prior.mean[0], rtol=1e-6)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    same(model.partial_fit(X[300:], y[300:]), again.partial_fit(X[300:], y[300:]))
    assert tc.metrics.auc(y, model.decision_function(X)) > 0.75


def test_stream_of_labelled_tensors_equals_the_stream_of_frames():
    frames = [frame_of("classifier", part) for part in PARTS]
    tensors = [tc.SparseTensor.from_pandas(f, ["user", "item", "week"], "y") for f in frames]
    same(new("classifier").stream(frames), new("classifier").stream(tensors))


def test_stream_callback_stops_it_and_sees_every_batch():
    X, y = entries("classifier")
    seen = []

    def stop(model, scores):
        seen.append(scores["n_samples_seen"])
        return len(seen) == 2

    model = new("classifier").stream(((X[part], y[part]) for part in PARTS), callback=stop)
    assert seen == [200, 400]
    assert model.n_batches_ == 2


def test_forgetting_follows_factors_that_change():
    """Prequential loss after the factors have changed is lower with forgetting than without."""
    shape, losses = (12, 10, 8), {}
    sims = [
        tc.simulate_cp(shape, 1, 900, noise_precision=25.0, prior_mean=0.8, prior_sd=0.6, random_state=r)
        for r in (1, 2)
    ]
    for forget in (0.0, 0.2):
        model = paper(tc.CPRegressor, 1, random_state=0, forget=forget)
        for s in sims:
            X, y = s.tensor.coords, s.tensor.values
            model.stream((X[a : a + 100], y[a : a + 100]) for a in range(0, 900, 100))
        losses[forget] = model.stream_trace_["rmse"][3:].mean()
    assert losses[0.2] < 0.95 * losses[0.0]


def test_forgetting_counts_time_where_it_is_given():
    X, y = entries("classifier")
    near, far = (new("classifier", forget=0.1).partial_fit(X[:300], y[:300], time=0.0) for _ in range(2))
    near.partial_fit(X[300:], y[300:], time=1.0)
    far.partial_fit(X[300:], y[300:], time=50.0)
    assert far.factor_covs_[0].trace().sum() > near.factor_covs_[0].trace().sum()
    with pytest.raises(ValueError, match="time must not go back: the last batch was at 50; got 49"):
        far.partial_fit(X, y, time=49.0)


def test_streaming_refuses_what_it_cannot_learn_and_stays_as_it_was():
    X, y = entries("classifier")
    model = streamed("classifier", PARTS[:2])
    before = model.posterior_.eta.copy()
    wrong = [
        (lambda: model.partial_fit(X[:5], y[:5] + 7.0), "y must hold labels 0 and 1"),
        (lambda: model.partial_fit(X[:5, :2], y[:5]), "X must have 3 columns, one per mode; got 2"),
        (lambda: model.partial_fit(X[:0], y[:0]), "X holds no entries"),
        (lambda: model.partial_fit(X[:5], y[:4]), "y must hold one number for each of the 5 entries; got 4"),
        (lambda: model.partial_fit(X[:5] - 20, y[:5]), "X must be >= 0"),
        (lambda: model.stream((X, y), batch_size=0), "batch_size must be an integer >= 1; got 0"),
    ]
    for call, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="a batch must be a pair"):
        model.stream([3])
    with pytest.raises(TypeError, match="source must be an iterable of batches"):
        model.stream(3)
    np.testing.assert_array_equal(model.posterior_.eta, before)
    with pytest.raises(ValueError, match="forget must be a number in"):
        new("classifier", forget=1.0).fit(X, y)


def test_streaming_refuses_methods_without_streams():
    X, y = entries("regressor")
    with pytest.raises(
        ValueError, match=r"method 'laplace' learns no streams .* use one of the methods \['cep', 'vmp'\]"
    ):
        new("regressor", method="laplace").partial_fit(X, y)


@each("name", NAMES)
def test_unfitted_model_has_no_fitted_attributes(name):
    model = CLASSES[name]()
    assert not hasattr(model, "posterior_")
    assert not hasattr(model, "factors_")
    assert hasattr(copy.deepcopy(streamed(name, PARTS[:2])), "factors_")


def test_stream_of_files_equals_the_stream_of_arrays(tmp_path):
    X, y = entries("classifier")
    paths = []
    for n, part in enumerate((slice(0, 250), slice(250, 600))):
        paths.append(tmp_path / f"{n}.tns")
        lines = [f"{i + 1} {j + 1} {k + 1} {v:g}" for (i, j, k), v in zip(X[part], y[part], strict=True)]
        paths[-1].write_text("\n".join(lines) + "\n")
    same(new("classifier").stream(paths, batch_size=200), streamed("classifier"))
