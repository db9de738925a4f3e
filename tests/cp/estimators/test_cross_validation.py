"""scikit-learn's cross-validation of entries: tensors, tables, folds that are shuffled and that are not."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, new
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
MODES = ["user", "item", "month"]


def tensor(name="regressor"):
    X, y = entries(name)
    return tc.SparseTensor(X, y)


def frame(name="regressor"):
    return tensor(name).to_pandas(MODES)


@each("name", NAMES)
def test_folds_of_a_tensor_serve_as_cv(name):
    data, model = tensor(name), new(name, max_iter=20, shape=tensor(name).shape)
    folds = data.kfold(3, 0)
    assert len(folds) == folds.get_n_splits() == 3
    scores = cross_val_score(model, data, cv=folds)
    own = [model.fit(train).score(test) for train, test in folds]
    np.testing.assert_array_equal(scores, own)
    rows = list(folds.split())
    assert sorted(np.concatenate([test for _, test in rows]).tolist()) == list(range(len(data)))
    np.testing.assert_array_equal(scores, cross_val_score(model, data.coords, data.values, cv=folds))


def test_tables_are_cross_validated_by_label():
    df = frame()
    model = new("regressor", max_iter=20)
    found = cross_validate(
        model,
        df[MODES],
        df["y"],
        cv=KFold(3, shuffle=True, random_state=0),
        scoring=["r2", "neg_root_mean_squared_error"],
    )
    assert (found["test_r2"] > 0.5).all()
    predicted = cross_val_predict(model, df[MODES], df["y"], cv=tensor().kfold(3, 0))
    assert np.corrcoef(predicted, df["y"])[0, 1] > 0.7
    model.fit(df, value="y")
    assert model.score(df) == model.score(df[MODES], df["y"])


def test_a_search_over_a_tensor():
    data = tensor()
    found = GridSearchCV(new("regressor", max_iter=20), {"rank": [1, 2]}, cv=data.kfold(2, 0)).fit(data)
    assert found.best_params_ == {"rank": 2}
    assert found.best_estimator_.n_samples_seen_ == len(data)


@pytest.mark.filterwarnings("ignore:.*their prior is used")
def test_folds_that_are_not_shuffled_say_what_they_hold_out():
    df = frame().sort_values("user", kind="stable").reset_index(drop=True)
    data = tc.SparseTensor.from_pandas(df, MODES)
    with pytest.warns(UserWarning, match="train on no entry of one of their rows"):
        folds = data.kfold(3, shuffle=False)
    model = new("regressor", max_iter=5)
    with pytest.warns(UserWarning, match=r"shuffle it: cv=KFold\(5, shuffle=True\)"):
        cross_val_score(model, data, cv=folds)
    with pytest.warns(UserWarning, match="scored entries touch rows without"):
        cross_val_score(model, df[MODES], df["y"], cv=3)


def test_rows_of_the_first_mode_are_not_taken_for_samples():
    data = tensor()
    with pytest.raises(TypeError, match=r"cv=tensor.kfold\(n_splits\)"):
        cross_val_score(new("regressor"), data, cv=3)
    with pytest.raises(ValueError, match="these folds are of 600 entries; got 599"):
        next(data.kfold(3, 0).split(np.zeros(599)))
    with pytest.raises(ValueError, match="shuffle must be True or False; got 1"):
        data.kfold(3, 0, shuffle=1)


def test_score_needs_values_once():
    model = new("regressor", max_iter=5).fit(*entries("regressor"))
    with pytest.raises(ValueError, match="y must hold one value per row of X"):
        model.score(entries("regressor")[0])
    with pytest.raises(ValueError, match="y must be left out when X is a SparseTensor"):
        model.score(tensor(), entries("regressor")[1])
