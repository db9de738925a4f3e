"""Methods and their own settings through the estimators: laplace, and cep with averaged messages."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, fitted, new

import tensorcep as tc

CHOICES = {
    "laplace": {"method": "laplace"},
    "averaged": {"method": "cep", "messages": "averaged"},
}


@each("choice", CHOICES)
@pytest.mark.parametrize("name", NAMES)
def test_method_predicts_about_what_full_cep_does_and_survives_saving(tmp_path, name, choice):
    X, y = entries(name)
    model = new(name, **CHOICES[choice], tol=3e-2).fit(X, y)
    mean, variance = model.predict_latent(X)
    reference, _ = fitted(name).predict_latent(X)
    assert np.corrcoef(mean, reference)[0, 1] > 0.9
    assert (variance > 0.0).all()
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_latent(X)[0], mean)
    assert again.method == model.method
