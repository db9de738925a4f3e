"""The adapter for river: entries one by one are those of partial_fit."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc

MODES = ["user", "item", "week"]


def entries(likelihood):
    tensor = tc.simulate_cp((8, 7, 6), 2, 130, likelihood=likelihood, prior_mean=0.8, random_state=0).tensor
    rows = [{**{m: f"{m}{i}" for m, i in zip(MODES, c, strict=True)}, "note": 1} for c in tensor.coords]
    return rows, tensor.values


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "likelihood"), [("CPRegressor", "gaussian"), ("CPClassifier", "probit")])
def test_river_learns_as_partial_fit_does(name, likelihood):
    base = pytest.importorskip("river.base")
    from tensorcep.river import to_river

    rows, y = entries(likelihood)
    new = getattr(tc, name)
    model = to_river(new(2, random_state=0), MODES, batch_size=50)
    assert isinstance(model, base.Classifier if name == "CPClassifier" else base.Regressor)
    assert not model.predict_one(rows[0])
    for x, value in zip(rows, y, strict=True):
        model.learn_one(x, value)
    same = new(2, random_state=0)
    frame = pd.DataFrame(rows)[MODES]
    for part in (slice(0, 50), slice(50, 100)):
        same.partial_fit(frame[part], y[part])
    np.testing.assert_array_equal(model.model.posterior_.eta, same.posterior_.eta)
    if name == "CPClassifier":
        p = same.predict_proba(frame[:1])[0]
        assert model.predict_proba_one(rows[0]) == {False: p[0], True: p[1]}
    else:
        assert model.predict_one(rows[0]) == same.predict(frame[:1])[0]
    assert model.predict_one({"user": "new", "item": "new", "week": "new"}) is not None
    with pytest.raises(ValueError, match="the entry has no column 'week'"):
        model.learn_one({"user": "a", "item": "b"}, 1.0)


def test_river_that_is_not_there_is_named_with_its_extra(monkeypatch):
    from tensorcep.river import to_river

    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ImportError, match=r"tensorcep\[river\]"):
        to_river(tc.CPRegressor(), ["a", "b"])
