"""Learning from a stream: partial_fit and stream of the CP estimators."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
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


@pytest.mark.parametrize("name", NAMES)
def test_partial_fit_of_one_batch_equals_fit(name):
    X, y = entries(name)
    same(new(name).partial_fit(X, y), new(name).fit(X, y))


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("link", ["probit", "logit"])
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


@pytest.mark.parametrize("name", ["regressor", "classifier"])
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


@pytest.mark.parametrize("name", NAMES)
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
    with pytest.raises(ValueError, match="method must be one of 'cep', 'vmp', 'auto'; got 'laplace'"):
        new("regressor", method="laplace").partial_fit(X, y)


@pytest.mark.parametrize("name", NAMES)
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


def frames(*orders, part=150):
    """Consecutive batches whose columns come in these orders, each with its values."""
    frame = frame_of("regressor")
    return [
        (frame[list(order)][n * part : (n + 1) * part], frame["y"].to_numpy()[n * part : (n + 1) * part])
        for n, order in enumerate(orders)
    ]


MODES = ("user", "item", "week")


def test_batches_bring_their_modes_by_name_in_any_order(tmp_path):
    right = new("regressor").stream(frames(MODES, MODES, MODES))
    other = new("regressor").stream(frames(MODES, MODES[::-1], ("item", "week", "user")))
    same(right, other)
    assert other.shape_ == right.shape_
    names = ["user", "item", "week"]
    frame = frame_of("regressor", slice(0, 300))
    tensors = [
        tc.SparseTensor.from_pandas(part, order, "y")
        for part, order in ((frame[:150], names), (frame[150:], names[::-1]))
    ]
    model = new("regressor").partial_fit(tensors[0]).partial_fit(tensors[1])
    assert model.shape_ == tuple(len(set(frame[name])) for name in names)
    np.testing.assert_allclose(model.predict(tensors[1]), model.predict(frame[150:][names]))


def test_batches_and_entries_with_other_names_are_refused():
    model = new("regressor").stream(frames(MODES))
    X, y = frames(MODES, MODES)[1]
    other = X.set_axis(["u", "item", "week"], axis=1)
    refusal = "columns 'u', 'item', 'week' of X are not the modes 'user', 'item', 'week' of the model; rename"
    calls = [lambda X: model.partial_fit(X, y), model.predict, model.predict_interval, lambda X: model.log_score(X, y)]
    for call in calls:
        with pytest.raises(ValueError, match=refusal):
            call(other)
    with pytest.raises(ValueError, match="are not the modes"):
        model.predict(pd.concat([X, X["user"]], axis=1))
    tensor = tc.SparseTensor.from_pandas(other.assign(y=y), ["u", "item", "week"], "y")
    with pytest.raises(ValueError, match="are not the modes"):
        model.partial_fit(tensor)
    with pytest.raises(ValueError, match="are not the modes"):
        model.predict(tensor)
    np.testing.assert_array_equal(model.predict(X.assign(note=1)[["note", *MODES[::-1]]]), model.predict(X))
    with pytest.raises(ValueError, match="X must have 3 columns, one per mode; got 4"):
        model.partial_fit(X.assign(note=1), y)
    assert model.n_batches_ == 1


def test_modes_without_names_are_taken_in_order():
    X, y = entries("regressor")
    labels = [[f"{mode}{i}" for i in range(n)] for mode, n in zip("abc", SHAPE, strict=True)]
    model = new("regressor").fit(tc.SparseTensor.from_coo(X, y, SHAPE, labels=labels))
    frame = pd.DataFrame({k: [labels[k][i] for i in X[:, k]] for k in range(3)})
    np.testing.assert_array_equal(model.predict(frame.set_axis(["x", "y", "z"], axis=1)), model.predict(frame))


NUMBERS = pd.DataFrame({"a": [10, 20, 30, 10], "b": [1, 2, 1, 2]})


def test_row_numbers_for_a_model_of_labels_are_refused():
    y = np.arange(4.0) % 2
    tensor = tc.SparseTensor.from_pandas(NUMBERS.assign(y=y), ["a", "b"], "y")
    regressor, classifier = (new(name, max_iter=3, tol=1e9).fit(tensor) for name in ("regressor", "classifier"))
    X = [[0, 1]]
    plain = tc.SparseTensor.from_coo(X, [1.0], (3, 2))
    calls = [regressor.predict, regressor.predict_interval, regressor.predict_latent, regressor.sample_y]
    calls += [classifier.predict, classifier.predict_proba, classifier.decision_function]
    calls += [lambda X: regressor.sample_posterior(3, X), lambda X: regressor.log_score(X, [1.0])]
    calls += [regressor.to_arviz, lambda X: regressor.partial_fit(X, None if X is plain else [1.0])]
    for call in calls:
        for given in (X, np.array(X), plain):
            with pytest.raises(ValueError, match="mode 0 of the model has labels; got indices; pass a DataFrame"):
                call(given)


TEXT = NUMBERS.astype(str)
TIMES = NUMBERS.assign(a=pd.to_datetime(NUMBERS["a"]))
KINDS = [(NUMBERS, TEXT), (TEXT, NUMBERS), (TIMES, TEXT), (NUMBERS, TIMES), (NUMBERS.astype("category"), TEXT)]


@pytest.mark.parametrize(("first", "other"), KINDS)
def test_labels_of_another_kind_are_refused(first, other):
    y = np.arange(4.0)
    model = new("regressor", max_iter=3, tol=1e9).partial_fit(first, y)
    tensor = tc.SparseTensor.from_pandas(other.assign(y=y), ["a", "b"], "y")
    kinds = r"mode \d of the model has labels of the kind \w+, such as .*; got \w+, such as .*; convert one of them"
    for call in (
        lambda: model.predict(other),
        lambda: model.predict(tensor),
        lambda: model.partial_fit(tensor),
        lambda: model.partial_fit(other, y),
    ):
        with pytest.raises(ValueError, match=kinds):
            call()
    assert model.shape_ == (3, 2)


def test_labels_of_a_file_and_of_its_stream_do_not_meet_silently(tmp_path):
    path = tmp_path / "x.csv"
    NUMBERS.assign(y=np.arange(4.0)).to_csv(path, index=False)
    streamed, read = (new("regressor", max_iter=3, tol=1e9) for _ in range(2))
    streamed.stream(path)
    read.fit(tc.read_tensor(path))
    tensor = tc.read_tensor(path)
    for call in (lambda: streamed.predict(tensor), lambda: streamed.partial_fit(tensor), lambda: read.stream(path)):
        with pytest.raises(ValueError, match="mode 0 of the model has labels of the kind"):
            call()


def test_labels_that_are_numbers_of_any_type_are_the_same():
    y = np.arange(4.0)
    model = new("regressor", max_iter=3, tol=1e9).partial_fit(NUMBERS, y)
    for other in (NUMBERS.astype(float), NUMBERS.astype(object), NUMBERS.astype("int8"), NUMBERS.astype("category")):
        np.testing.assert_array_equal(model.predict(other), model.predict(NUMBERS))
        assert model.partial_fit(other, y).shape_ == (3, 2)
        model = new("regressor", max_iter=3, tol=1e9).partial_fit(NUMBERS, y)
    mixed = NUMBERS.assign(a=pd.Series([10, "x", 30, 10], dtype=object))
    model.partial_fit(mixed, y)
    assert model.shape_ == (4, 2)
    with pytest.warns(UserWarning, match="their prior is used"):
        model.predict(pd.DataFrame({"a": ["x", "y"], "b": [1, 1]}))
