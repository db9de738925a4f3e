"""CPClassifier with labels other than 0 and 1."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
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


@pytest.mark.parametrize("name", PAIRS)
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
    assert tc.CPClassifier.__dict__["_classes"] == [0, 1]


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
    with pytest.raises(ValueError, match=r"batches hold labels 0 and 1, but this model was fitted to \['no', 'yes'\]"):
        model.partial_fit(X, entries("classifier")[1])
    assert model.fit(*entries("classifier")).classes_.tolist() == [0, 1]
    model.partial_fit(*entries("classifier"))
