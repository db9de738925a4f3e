"""CPClassifier with labels other than 0 and 1."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import SHAPE, entries, new
from sklearn.model_selection import cross_val_score

import tensorcep as tc

PAIRS = {
    "text": ("no", "yes"),
    "signs": (-1, 1),
    "real signs": (-1.0, 1.0),
    "numbers": (3, 7),
}


def labels_of(pair):
    X, y = entries("classifier")
    return X, np.array(pair)[y.astype(int)]


@each("name", PAIRS)
def test_two_labels_of_any_kind_are_learned_as_0_and_1(name, tmp_path):
    X, y = labels_of(PAIRS[name])
    plain = new("classifier").fit(*entries("classifier"))
    model = new("classifier").fit(X, y)
    np.testing.assert_array_equal(model.posterior_.eta, plain.posterior_.eta)
    assert model.classes_.tolist() == list(PAIRS[name])
    assert model.classes_.dtype == np.unique(y).dtype
    np.testing.assert_array_equal(model.predict(X), np.array(PAIRS[name])[plain.predict(X)])
    assert model.score(X, y) == plain.score(*entries("classifier"))
    np.testing.assert_array_equal(model.log_score(X, y), plain.log_score(*entries("classifier")))
    drawn = model.sample_y(X[:50], 4, random_state=0)
    np.testing.assert_array_equal(drawn == PAIRS[name][1], plain.sample_y(X[:50], 4, random_state=0) == 1)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_labels_of_a_tensor_and_of_a_column_are_taken_too():
    X, y = labels_of((-1, 1))
    truths = entries("classifier")[1] > 0
    right = new("classifier", shape=SHAPE).fit(*entries("classifier")).posterior_.eta
    for given in (
        (tc.SparseTensor(X, y, SHAPE), None),
        (X, pd.Series(y)),
        (X, y.tolist()),
        (X, truths),
    ):
        np.testing.assert_array_equal(new("classifier", shape=SHAPE).fit(*given).posterior_.eta, right)
    assert new("classifier").fit(X, truths).classes_.tolist() == [0, 1]
    text = np.where(y > 0, "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cross_val_score(new("classifier", max_iter=5, tol=1e9), X, text, cv=3).mean() > 0.5


def test_other_labels_than_those_of_the_fit_are_refused():
    X, y = labels_of(("no", "yes"))
    model = new("classifier").fit(X, y)
    with pytest.raises(ValueError, match="y must hold labels 'no' and 'yes'; got 'maybe' at entry 1"):
        model.log_score(X[:2], ["no", "maybe"])
    with pytest.raises(ValueError, match="y must hold labels 'no' and 'yes'; got 1.0 at entry 0"):
        model.log_score(X[:1], [1.0])
    with pytest.raises(ValueError, match=r"y must hold labels 'no' and 'yes'; got [01](\.0)? at entry 0"):
        model.partial_fit(X, entries("classifier")[1])
    assert model.fit(*entries("classifier")).classes_.tolist() == [0, 1]
    model.partial_fit(*entries("classifier"))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@each("missing", [None, np.nan, pd.NA])
@each("model", [tc.CPClassifier(1, max_iter=20), tc.CPOrdinalClassifier(1, max_iter=20)])
def test_missing_words_are_refused_by_name(model, missing):
    X, y = labels_of(("no", "yes"))
    gaps = y.astype(object)
    gaps[1] = missing
    for call in (model.fit, model.fit(X, y).score, model.log_score):
        with pytest.raises(ValueError, match="y must have no missing labels; got 1, the first at entry 1"):
            call(X, gaps)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@each("name", PAIRS)
def test_streams_take_two_labels_of_any_kind(name, tmp_path):
    (X, y), plain = labels_of(PAIRS[name]), entries("classifier")[1]
    how = {"max_iter": 20, "shape": SHAPE}
    right = new("classifier", **how).stream([(X[:300], plain[:300]), (X[300:], plain[300:])])
    model = new("classifier", **how).stream([(X[:300], y[:300]), (X[300:], y[300:])])
    np.testing.assert_array_equal(model.posterior_.eta, right.posterior_.eta)
    assert model.classes_.tolist() == list(PAIRS[name])
    np.testing.assert_array_equal(model.stream_trace_["rmse"], right.stream_trace_["rmse"])
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz").partial_fit(X[:50], y[:50])
    assert again.predict(X[:5]).tolist()[0] in PAIRS[name]
    frame = pd.DataFrame(X).astype(str).assign(y=y)
    tables = new("classifier", max_iter=20).stream(frame, batch_size=300)
    assert tables.classes_.tolist() == list(PAIRS[name])
    if name != "text":
        tensors = new("classifier", max_iter=20).partial_fit(tc.SparseTensor(X, y, SHAPE))
        assert tensors.classes_.tolist() == list(PAIRS[name])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
def test_a_first_batch_needs_both_labels_unless_they_are_0_and_1():
    X, y = labels_of(("no", "yes"))
    ones = y == "yes"
    model = new("classifier", max_iter=5, shape=SHAPE)
    with pytest.raises(ValueError, match="y must hold labels of two classes; got only 'yes'"):
        model.partial_fit(X[ones], y[ones])
    assert model._fit is None
    assert model.partial_fit(X[ones], np.ones(ones.sum())).classes_.tolist() == [0, 1]
    later = new("classifier", max_iter=5, shape=SHAPE).partial_fit(X, y).partial_fit(X[ones], y[ones])
    with pytest.raises(ValueError, match="y must hold labels 'no' and 'yes'; got 'maybe' at entry 0"):
        later.partial_fit(X[:1], ["maybe"])
    assert later.classes_.tolist() == ["no", "yes"]
