"""Entries meet a model by the names of its modes and by its labels; what cannot meet is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import SHAPE, entries, new

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
MODES = ("user", "item", "week")


def same(a, b):
    np.testing.assert_array_equal(a.posterior_.Lam, b.posterior_.Lam)
    np.testing.assert_array_equal(a.posterior_.eta, b.posterior_.eta)


def frame_of(name, part=slice(None)):
    X, y = entries(name)
    columns = {mode: [f"{mode}{i}" for i in X[part, k]] for k, mode in enumerate(MODES)}
    return pd.DataFrame({**columns, "y": y[part]})


def frames(*orders, part=150):
    """Consecutive batches whose columns come in these orders, each with its values."""
    frame = frame_of("regressor")
    return [
        (frame[list(order)][n * part : (n + 1) * part], frame["y"].to_numpy()[n * part : (n + 1) * part])
        for n, order in enumerate(orders)
    ]


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
        model.predict(X.set_axis(["user", "user", "week"], axis=1))
    with pytest.raises(ValueError, match="X must have 3 columns"):
        model.predict(pd.concat([X, X["user"]], axis=1))
    tensor = tc.SparseTensor.from_pandas(other.assign(y=y), ["u", "item", "week"], "y")
    with pytest.raises(ValueError, match="are not the modes"):
        model.partial_fit(tensor)
    with pytest.raises(ValueError, match="are not the modes"):
        model.predict(tensor)
    np.testing.assert_array_equal(model.predict(X.assign(note=1)[["note", *MODES[::-1]]]), model.predict(X))
    assert model.n_batches_ == 1
    assert model.partial_fit(X.assign(note=1), y).n_batches_ == 2  # columns are found by name


def test_modes_without_names_are_taken_in_order():
    X, y = entries("regressor")
    labels = [[f"{mode}{i}" for i in range(n)] for mode, n in zip("abc", SHAPE, strict=True)]
    model = new("regressor").fit(tc.SparseTensor.from_coo(X, y, SHAPE, labels=labels))
    frame = pd.DataFrame({k: [labels[k][i] for i in X[:, k]] for k in range(3)})
    named = new("regressor").partial_fit(frame.set_axis(MODES, axis=1), y)
    np.testing.assert_array_equal(named.predict(frame), named.predict(frame.set_axis(MODES, axis=1)))
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
NAMES_OF = "n" + TEXT
KINDS = [
    (NUMBERS, NAMES_OF),
    (NAMES_OF, NUMBERS),
    (TIMES, TEXT),
    (NUMBERS, TIMES),
    (NUMBERS.astype("category"), NAMES_OF),
]


@each(("first", "other"), KINDS)
def test_labels_of_another_kind_are_refused(first, other):
    y = np.arange(4.0)
    model = new("regressor", max_iter=3, tol=1e9).partial_fit(first, y)
    tensor = tc.SparseTensor.from_pandas(other.assign(y=y), ["a", "b"], "y")
    kinds = r"mode \d of the model has labels of the kind \w+, such as [^n].*; got \w+, such as [^n].*; convert one of"
    for call in (
        lambda: model.predict(other),
        lambda: model.predict(tensor),
        lambda: model.partial_fit(tensor),
        lambda: model.partial_fit(other, y),
    ):
        with pytest.raises(ValueError, match=kinds):
            call()
    assert model.shape_ == (3, 2)


def test_labels_of_a_file_and_of_its_stream_are_the_same_or_refused(tmp_path):
    path = tmp_path / "x.csv"
    NUMBERS.assign(y=np.arange(4.0)).to_csv(path, index=False)
    tensor = tc.read_tensor(path)
    streamed = new("regressor", max_iter=3, tol=1e9).stream(path)
    read = new("regressor", max_iter=3, tol=1e9).fit(tensor)
    known = streamed.predict(TEXT)
    calls = [(streamed, streamed.predict, tensor), (streamed, streamed.partial_fit, tensor), (read, read.stream, path)]
    for model, call, given in calls:
        problem = ""
        try:
            answer = call(given)
        except ValueError as error:
            answer, problem = model, str(error)
        assert answer is model or (answer == known).all()
        assert not problem or "of the model has labels of the kind" in problem
        assert model.shape_ == (3, 2)


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
