"""`predict_block`: what predictions of its cells say, as a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, fitted, new, simulated

import tensorcep as tc
from tensorcep.cp.fitted import recommend


@each("name", NAMES)
def test_a_block_has_the_predictions_of_its_cells(name, monkeypatch):
    monkeypatch.setattr(recommend, "CELLS", 7)  # more than one piece
    model = fitted(name)
    table, std = model.predict_block({1: 3}, return_std=True)
    assert table.shape == std.shape == (12, 8)
    cells = np.stack(np.meshgrid(np.arange(12), [3], np.arange(8), indexing="ij"), axis=-1).reshape(-1, 3)
    wanted = model.predict_proba(cells)[:, 1] if name == "classifier" else model.predict(cells)
    np.testing.assert_allclose(table.to_numpy().ravel(), wanted, rtol=1e-12)
    if name == "regressor":
        np.testing.assert_allclose(std.to_numpy().ravel(), model.predict(cells, return_std=True)[1], rtol=1e-12)
    turned = model.predict_block(modes={2: [5, 1], 0: None, 1: [3]})
    np.testing.assert_allclose(turned.loc[(1, 4), 3], table.loc[4, 1], rtol=1e-12)
    assert turned.index.names == ["mode_2", "mode_0"]
    assert model.predict_block({0: 2, 1: 3}).shape == (1, 8)


def test_blocks_have_labels_and_refuse_what_is_no_block():
    X, y = simulated("regressor").tensor.coords, simulated("regressor").tensor.values
    frame = pd.DataFrame(X, columns=["user", "item", "week"]).astype(str).add_prefix("")
    model = new("regressor", max_iter=10).partial_fit(frame, y)
    table = model.predict_block({"week": "2"}, ["item", "user"])
    assert (table.index.name, table.columns.name) == ("item", "user")
    cell = pd.DataFrame({"user": ["4"], "item": ["1"], "week": ["2"]})
    np.testing.assert_allclose(table.loc["1", "4"], model.predict(cell)[0], rtol=1e-12)
    with pytest.raises(ValueError, match="every mode must be in given or in modes, once"):
        model.predict_block({"week": "2"}, ["item"])
    with pytest.raises(ValueError, match="every mode must be in given or in modes, once"):
        model.predict_block({"week": "2"}, ["item", "user", "week"])
    with pytest.raises(ValueError, match="nobody"):
        model.predict_block({"user": "nobody"})
    levels = tc.CPOrdinalClassifier(1, max_iter=60, random_state=0).fit(X, np.digitize(y, [0.0, 1.0]))
    with pytest.raises(ValueError, match="predict_block is for real values, labels and counts"):
        levels.predict_block({0: 1})
